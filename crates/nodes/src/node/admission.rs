//! Whether a kubelet takes up a pod that no scheduler has placed (`AdmissionCheck` and `generalFilter`): the resources are
//! there, the node is one that the pod selects, and its ports are free.
//!
//! The decision ([`rejects`]) is pure. Not here: what a node under pressure refuses (`eviction`).

use kubewright::{Context, EventType, Request, Result};
use kubewright_objects::api::core::v1::{Node, Pod, PodSpec};
use kubewright_objects::{disruption_target, meta, node_affinity, pods, requests};
use serde_json::json;

use super::container::Observations;
use super::{Kubelet, ON_NODE, eviction, resize};

/// Why a pod is not taken up: the reason of its status, and the message.
pub(super) type Rejection = (String, String);

impl Kubelet {
    /// Whether the node does not take up a new pod, which is said of it (`rejectPod`): it is short of something, or no
    /// scheduler has seen that there is room.
    pub(super) async fn refuse(&self, ctx: &Context, pod: &Pod, node: &Node) -> Result<bool> {
        if is_admitted(pod) || pods::is_finished(pod) || meta::is_deleting(&pod.metadata) {
            return Ok(false);
        }
        let mut rejection = eviction::refuses(node, pod).map(|why| (eviction::REASON.to_owned(), why));
        rejection = rejection.or_else(|| is_of_other_os(pod));
        if rejection.is_none() && is_unplaced(pod) {
            rejection = self.rejects(ctx, pod, node).await?;
        }
        let Some((reason, why)) = rejection else {
            return Ok(false);
        };
        ctx.event(pod, EventType::Warning, &reason, &why);
        let status = json!({ "phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {why}") });
        disruption_target::patch_status(ctx, pod, status).await
    }

    /// Why the node has no room for what a pod wants, beside the others that it has.
    async fn rejects(&self, ctx: &Context, pod: &Pod, node: &Node) -> Result<Option<Rejection>> {
        let client = ctx.client();
        let others = client
            .list_by_index::<Pod>(None, ON_NODE, meta::name(&node.metadata))
            .await?;
        let counts = |other: &&Pod| {
            Request::of(*other) != *ctx.request()
                && !pods::is_finished(other)
                && (is_admitted(other) || !is_unplaced(other))
        };
        let others: Vec<&Pod> = others.iter().map(|other| &**other).filter(counts).collect();
        Ok(rejects(node, pod, &others))
    }

    /// The pod with the status that follows from other resources than its containers have; none when they have theirs.
    pub(super) async fn resized(
        &self,
        ctx: &Context,
        pod: &Pod,
        node: &Node,
        notes: &mut Observations,
    ) -> Result<Option<Pod>> {
        if !resize::is_due(pod) {
            return Ok(None);
        }
        // Before the others are read: one that goes afterwards finds the pod among those that wait.
        self.cramped.insert(ctx.request());
        let lacks = self.rejects(ctx, pod, node).await?.map(|(_, why)| why);
        if lacks.is_none() {
            self.cramped.remove(ctx.request());
        }
        let mut next = pod.clone();
        next.status = Some(resize::advance(pod, lacks.as_deref(), ctx.now(), notes));
        Ok(Some(next))
    }
}

fn is_admitted(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

/// Every node runs Linux (`rejectPodAdmissionBasedOnOSField`).
fn is_of_other_os(pod: &Pod) -> Option<Rejection> {
    let os = pod.spec.as_ref()?.os.as_ref()?;
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    (os.name != "linux").then(|| ("PodOSNotSupported".to_owned(), message.to_owned()))
}

/// Whether a pod came to its node without a scheduler: a binding says that it is scheduled.
pub(super) fn is_unplaced(pod: &Pod) -> bool {
    pods::condition(pod, "PodScheduled").is_none_or(|condition| condition.status != "True")
}

/// Why a node does not take up a pod beside the others that it has, if it does not. A node that has not said what it has
/// is not asked.
pub(super) fn rejects(node: &Node, pod: &Pod, others: &[&Pod]) -> Option<Rejection> {
    let room = requests::allocatable(node);
    if room.is_empty() {
        return None;
    }
    let there = |name: &str| room.get(name).copied().unwrap_or(0);
    let count = i128::try_from(others.len()).unwrap_or(i128::MAX);
    let mut used = requests::Amounts::new();
    for other in others {
        requests::add(&mut used, &requests::of(other));
    }
    let mut asked = requests::of(pod);
    // In a kubelet's order.
    let mut lacks = [("pods".to_owned(), 1000, count.saturating_mul(1000))]
        .into_iter()
        .chain(
            ["cpu", "memory", "ephemeral-storage"]
                .into_iter()
                .filter_map(|name| asked.remove_entry(name))
                .collect::<Vec<_>>()
                .into_iter()
                .chain(asked)
                .map(|(name, amount)| {
                    let used = used.get(&name).copied().unwrap_or(0);
                    (name, amount, used)
                }),
        );
    let lack = lacks.find(|(name, amount, used)| *amount > 0 && *amount > there(name).saturating_sub(*used));
    if let Some((name, amount, used)) = lack {
        let unit = if name == "cpu" { 1 } else { 1000 };
        let there = there(&name);
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
            amount / unit,
            used / unit,
            there / unit
        );
        return Some((format!("OutOf{name}"), message));
    }
    let empty = PodSpec::default();
    if !node_affinity::selected(pod.spec.as_ref().unwrap_or(&empty), node) {
        return Some(failed(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    let ports = requests::host_ports(pod);
    let taken = |other: &&Pod| {
        let others = requests::host_ports(other);
        ports
            .iter()
            .any(|port| others.iter().any(|other| requests::is_same_port(port, other)))
    };
    if !ports.is_empty() && others.iter().any(taken) {
        return Some(failed(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    None
}

fn failed(predicate: &str, why: &str) -> Rejection {
    (predicate.to_owned(), format!("Predicate {predicate} failed: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_of_another_system() {
        for (os, is_rejected) in [(Value::Null, false), ("linux".into(), false), ("windows".into(), true)] {
            let os = if os.is_null() { os } else { json!({ "name": os }) };
            let pod = serde_json::from_value(json!({ "spec": { "containers": [], "os": os } })).expect("a pod");
            assert_eq!(is_of_other_os(&pod).is_some(), is_rejected, "{os}");
        }
    }

    #[test]
    fn pods_that_are_rejected() {
        let pod = |spec: Value| -> Pod { serde_json::from_value(json!({ "spec": spec })).expect("a pod") };
        let asking = |cpu: &str, port: i32| {
            let ports = json!([{ "containerPort": 80, "hostPort": port }]);
            json!({ "containers": [{ "name": "c", "ports": ports, "resources": { "requests": { "cpu": cpu } } }] })
        };
        let check = |spec: Value, others: &[Value], expected: Option<(&str, &str)>| {
            let node = json!({ "metadata": { "name": "n", "labels": { "disk": "ssd" } },
                "status": { "allocatable": { "cpu": "4", "pods": "2" } } });
            let node: Node = serde_json::from_value(node).expect("a node");
            let others: Vec<Pod> = others.iter().cloned().map(pod).collect();
            let found = rejects(&node, &pod(spec.clone()), &others.iter().collect::<Vec<_>>());
            let found = found.as_ref().map(|(reason, why)| (reason.as_str(), why.as_str()));
            assert_eq!(found, expected, "{spec}");
        };
        check(asking("4", 80), &[], None);
        let cpu = "Node didn't have enough resource: cpu, requested: 500000, used: 0, capacity: 4000";
        check(asking("500", 80), &[], Some(("OutOfcpu", cpu)));
        let cpu = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";
        check(asking("3", 80), &[asking("2", 81)], Some(("OutOfcpu", cpu)));
        let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(asking("1", 80), &[asking("2", 80)], Some(("NodePorts", ports)));
        let count = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
        check(
            asking("1", 80),
            &[asking("1", 81), asking("1", 82)],
            Some(("OutOfpods", count)),
        );
        let selector = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        let wanting = |disk: &str| json!({ "containers": [], "nodeSelector": { "disk": disk } });
        check(wanting("hdd"), &[], Some(("NodeAffinity", selector)));
        check(wanting("ssd"), &[], None);
    }
}
