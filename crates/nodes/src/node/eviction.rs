//! Which pods a kubelet evicts when its node is short of something, and its messages (`pkg/kubelet/eviction`).
//!
//! Pure. A node is short of the resources in its annotation `kubewright.dev/pressure`. Nothing is reclaimed but by
//! evicting: images and dead containers take no room here.

use std::cmp::Reverse;

use kubewright_objects::api::core::v1::{Container, Node, Pod, Taint};

use super::fleet;
use kubewright_objects::meta;
use kubewright_objects::quantity::milli;
use kubewright_objects::usage;
use kubewright_objects::{pods, tolerations};

/// The reason of an evicted pod, and of the event about it.
pub(super) const REASON: &str = "Evicted";
/// From this priority on a pod is critical to the system (`SystemCriticalPriority`).
const CRITICAL: i32 = 2_000_000_000;

/// The resources that a node may be short of, in the order of their priority (`byEvictionPriority`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    Memory,
    Disk,
    Pids,
}

impl Pressure {
    const ALL: [Pressure; 3] = [Pressure::Memory, Pressure::Disk, Pressure::Pids];

    /// The word of the annotation.
    fn word(self) -> &'static str {
        match self {
            Pressure::Memory => "memory",
            Pressure::Disk => "disk",
            Pressure::Pids => "pid",
        }
    }

    /// The resource that is reclaimed.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Pressure::Memory => "memory",
            Pressure::Disk => "ephemeral-storage",
            Pressure::Pids => "pids",
        }
    }

    fn condition(self) -> &'static str {
        match self {
            Pressure::Memory => "MemoryPressure",
            Pressure::Disk => "DiskPressure",
            Pressure::Pids => "PIDPressure",
        }
    }

    /// The resources that a node is short of by its conditions, which follow its annotation.
    pub(super) fn of(node: &Node) -> Vec<Pressure> {
        let said = meta::annotation(&node.metadata, fleet::PRESSURE).unwrap_or_default();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let posted: Vec<&str> = conditions
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.type_.as_str())
            .collect();
        let is_short = |short: &Pressure| {
            said.split(',').any(|word| word.trim() == short.word()) && posted.contains(&short.condition())
        };
        Pressure::ALL.into_iter().filter(is_short).collect()
    }
}

/// The usage of a pod and its request, in thousandths.
struct Ranked<'a> {
    pod: &'a Pod,
    used: i128,
    requested: i128,
}

/// The pod that goes next (`rankMemoryPressure`, `rankDiskPressure`, `rankPIDPressure`): one that uses more than it
/// requests before others, then those of the lowest priority, then the one that is the farthest above its request.
/// Never one that is critical.
pub(super) fn next<'p>(
    all: impl IntoIterator<Item = &'p Pod>,
    short: Pressure,
    used: impl Fn(&Pod) -> i128,
) -> Option<&'p Pod> {
    let candidates = all.into_iter().filter(|pod| is_active(pod) && !is_critical(pod));
    let ranked = candidates.map(|pod| Ranked {
        pod,
        used: used(pod),
        requested: usage::containers(pod).fold(0, |sum, container| sum + requested(container, short.resource())),
    });
    let first = ranked.min_by_key(|one| {
        let above = one.used.saturating_sub(one.requested);
        let is_within = above <= 0;
        let is_named = (one.pod.metadata.namespace.clone(), one.pod.metadata.name.clone());
        match short {
            // A request of processes does not exist.
            Pressure::Pids => (false, priority(one.pod), Reverse(one.used), is_named),
            _ => (is_within, priority(one.pod), Reverse(above), is_named),
        }
    });
    first.map(|one| one.pod)
}

fn is_active(pod: &Pod) -> bool {
    !pods::is_finished(pod) && !meta::is_deleting(&pod.metadata) && pods::phase(pod) == "Running"
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether a pod is never evicted (`IsCriticalPod`).
fn is_critical(pod: &Pod) -> bool {
    let is_said = |key: &str| meta::annotation(&pod.metadata, key).is_some();
    priority(pod) >= CRITICAL || is_said("kubernetes.io/config.mirror")
}

fn requested(container: &Container, resource: &str) -> i128 {
    let requests = container.resources.as_ref().and_then(|all| all.requests.as_ref());
    requests
        .and_then(|requests| milli(requests.get(resource)?))
        .unwrap_or(0)
}

/// The message for an evicted pod (`evictionMessage`), whose containers use so much, in thousandths. The kubelet's
/// sentences end with a space. The available amount is left out, because it is not measured.
pub(super) fn message(pod: &Pod, short: Pressure, used: impl Fn(&str) -> Option<i128>) -> String {
    let resource = short.resource();
    let mut said = format!("The node was low on resource: {resource}. ");
    if short == Pressure::Pids {
        return said;
    }
    for container in usage::containers(pod) {
        let Some(used) = used(&container.name) else { continue };
        let requested = requested(container, resource);
        if used > requested {
            let name = &container.name;
            said.push_str(&format!(
                "Container {name} was using {}, request is {}, has larger consumption of {resource}. ",
                bytes(used),
                bytes(requested)
            ));
        }
    }
    said
}

/// An amount as a quantity of bytes.
fn bytes(milli: i128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut amount = milli / 1000 + i128::from(milli % 1000 > 0);
    let mut suffix = 0;
    while amount != 0 && amount % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
        (amount, suffix) = (amount / 1024, suffix + 1);
    }
    format!("{amount}{}", SUFFIXES[suffix])
}

/// Why a node takes up no such pod, if it does not (`managerImpl.Admit`).
pub(super) fn refuses(node: &Node, pod: &Pod) -> Option<String> {
    let short = Pressure::of(node);
    if short.is_empty() || is_critical(pod) {
        return None;
    }
    if short == [Pressure::Memory] {
        let class = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let tolerated = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
        if class != Some("BestEffort") || tolerations::tolerates(tolerated.unwrap_or_default(), &taint) {
            return None;
        }
    }
    let conditions: Vec<&str> = short.into_iter().map(Pressure::condition).collect();
    Some(format!("The node had condition: [{}]. ", conditions.join(" ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Name, priority, request and use of memory.
    fn pods(all: &[(&str, i32, &str, &str)]) -> Vec<Pod> {
        let pod = |(name, priority, request, used): &(&str, i32, &str, &str)| -> Pod {
            let requests = match *request {
                "" => json!({}),
                request => json!({"memory": request, "ephemeral-storage": request}),
            };
            let annotations =
                json!({"kubewright.dev/usage-memory": used, "kubewright.dev/usage-ephemeral-storage": used});
            let pod = json!({
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}]},
                "status": {"phase": "Running"},
            });
            serde_json::from_value(pod).expect("a pod")
        };
        all.iter().map(pod).collect()
    }

    fn goes(all: &[Pod], short: Pressure) -> Option<&str> {
        let used = |pod: &Pod| usage::of_pod(pod, short.resource(), None).unwrap_or(0);
        next(all, short, used).map(|pod| meta::name(&pod.metadata))
    }

    #[test]
    fn pods_are_evicted_in_order() {
        let check = |all: &[(&str, i32, &str, &str)], expected: Option<&str>| {
            assert_eq!(goes(&pods(all), Pressure::Memory), expected, "{all:?}");
        };
        check(&[], None);
        check(
            &[("within", 0, "2Gi", "1Gi"), ("above", 9, "1Mi", "2Mi")],
            Some("above"),
        );
        check(&[("high", 9, "", "2Gi"), ("low", 0, "", "1Mi")], Some("low"));
        check(&[("little", 0, "1Gi", "2Gi"), ("much", 0, "1Gi", "5Gi")], Some("much"));
        check(
            &[("idle", 0, "", "0"), ("guaranteed", 0, "1Gi", "1Gi")],
            Some("guaranteed"),
        );
        check(
            &[("critical", CRITICAL, "", "9Gi"), ("other", 5, "9Gi", "0")],
            Some("other"),
        );
        check(&[("critical", CRITICAL, "", "9Gi")], None);
    }

    #[test]
    fn pods_that_do_not_count() {
        let mut all = pods(&[("a", 0, "", "1Gi")]);
        all[0].status.as_mut().expect("it has one").phase = Some("Failed".to_owned());
        assert_eq!(goes(&all, Pressure::Memory), None);
        let disk = pods(&[("a", 1, "", "1Gi"), ("b", 1, "", "2Gi"), ("c", 2, "", "9Gi")]);
        assert_eq!(goes(&disk, Pressure::Disk), Some("b"));
        assert_eq!(goes(&disk, Pressure::Pids), Some("a"));
    }

    #[test]
    fn messages() {
        let check = |request: &str, used: &str, short: Pressure, expected: &str| {
            let pod = &pods(&[("p", 0, request, used)])[0];
            let said = message(pod, short, |name| usage::of_pod(pod, short.resource(), Some(name)));
            assert_eq!(said, expected);
        };
        check(
            "",
            "96328Ki",
            Pressure::Memory,
            "The node was low on resource: memory. Container c was using 96328Ki, request is 0, has larger consumption of memory. ",
        );
        check("1Gi", "1Gi", Pressure::Memory, "The node was low on resource: memory. ");
        check(
            "1Gi",
            "3Gi",
            Pressure::Disk,
            "The node was low on resource: ephemeral-storage. Container c was using 3Gi, request is 1Gi, has larger consumption of ephemeral-storage. ",
        );
        check("", "3Gi", Pressure::Pids, "The node was low on resource: pids. ");
    }

    #[test]
    fn pods_that_are_not_admitted() {
        let check = |pressure: &str, posted: &[&str], pod: Value, expected: Option<&str>| {
            let conditions: Vec<Value> = (posted.iter())
                .map(|kind| json!({"type": kind, "status": "True"}))
                .collect();
            let node =
                json!({"metadata": {"annotations": {fleet::PRESSURE: pressure}}, "status": {"conditions": conditions}});
            let node: Node = serde_json::from_value(node).expect("a node");
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(refuses(&node, &pod).as_deref(), expected, "{pressure} {pod:?}");
        };
        let pod = |class: &str, tolerations: Value| json!({"spec": {"containers": [], "tolerations": tolerations}, "status": {"qosClass": class}});
        let memory = Some("The node had condition: [MemoryPressure]. ");
        check("memory", &["MemoryPressure"], pod("BestEffort", json!([])), memory);
        check("memory", &[], pod("BestEffort", json!([])), None);
        check("", &["MemoryPressure"], pod("BestEffort", json!([])), None);
        check("memory", &["MemoryPressure"], pod("Burstable", json!([])), None);
        check(
            "memory",
            &["MemoryPressure"],
            pod("BestEffort", json!([{"operator": "Exists"}])),
            None,
        );
        let both = Some("The node had condition: [MemoryPressure DiskPressure]. ");
        check(
            "disk, memory",
            &["MemoryPressure", "DiskPressure"],
            pod("Guaranteed", json!([])),
            both,
        );
    }
}
