//! The simulated nodes: which there are, their status, and how a node is told to fail.
//!
//! Pure. Invariant: capacity and addresses that the creator of a Node has set stay. Which Nodes are simulated:
//! `kubewright_objects::node`.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_model::Minor;
use kubewright_model::facts::amounts::is_counted_in_wholes;
use kubewright_objects::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo};
use kubewright_schema::names;

use super::behaviour;
use kubewright_objects::meta;
use kubewright_objects::node::{HOSTNAME, SIMULATED, STATE, ZONE, is_told_silent};
use kubewright_objects::quantity::milli;

/// The annotation with the resources that the node is short of: `memory`, `disk`, `pid`, with commas.
pub(crate) const PRESSURE: &str = "kubewright.dev/pressure";
/// The taint of a node that is not ready.
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The most nodes that a cluster has from its start, twenty times what Kubernetes supports.
const MOST: usize = 100_000;

/// The nodes that a cluster has from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// How many there are: `node-0`, `node-1`, ….
    pub count: usize,
    /// Labels that all have.
    pub labels: BTreeMap<String, String>,
    /// The capacity of each node, beside or instead of 32 `cpu`, 256Gi of `memory` and room for 1000 `pods`.
    pub capacity: BTreeMap<String, String>,
    /// The zones over which they are spread in turn (`topology.kubernetes.io/zone`).
    pub zones: Vec<String>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            count: 1,
            labels: BTreeMap::new(),
            capacity: BTreeMap::new(),
            zones: Vec::new(),
        }
    }
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// It says of itself that it is not ready.
    NotReady,
    /// It has fallen silent: no Lease, no status, and nothing happens to its pods.
    Silent,
}

/// The annotations of a node that say nothing: a state or a pressure that does not exist.
pub(super) fn misunderstood(node: &Node) -> Vec<String> {
    let wrong = |key: &str, word: &str, known: &[&str]| {
        let nearest = behaviour::nearest(word, known.iter().copied());
        let is_wrong = !word.is_empty() && !known.contains(&word);
        is_wrong
            .then(|| format!("the annotation {key} has a value that says nothing: {word:?}; did you mean {nearest:?}?"))
    };
    let said = |key: &str| meta::annotation(&node.metadata, key).unwrap_or_default();
    let state = wrong(STATE, said(STATE), &["ready", "not-ready", "silent"]);
    let pressures = said(PRESSURE).split(',').map(str::trim);
    let pressures = pressures.filter_map(|word| wrong(PRESSURE, word, &["memory", "disk", "pid"]));
    let own = [STATE, PRESSURE];
    let all = node.metadata.annotations.iter().flatten();
    let unknown = all.filter(|(key, _)| {
        key.starts_with(behaviour::PREFIX) && !own.contains(&key.as_str()) && !behaviour::is_of_pods(key)
    });
    let unknown = unknown.map(|(key, _)| {
        let nearest = behaviour::nearest(key, own.into_iter());
        format!("the annotation {key} is unknown; did you mean {nearest}?")
    });
    state.into_iter().chain(pressures).chain(unknown).collect()
}

/// How a node is told to be.
pub(super) fn state(node: &Node) -> State {
    match meta::annotation(&node.metadata, STATE) {
        Some("not-ready") => State::NotReady,
        _ if is_told_silent(node) => State::Silent,
        _ => State::Ready,
    }
}

impl From<usize> for Nodes {
    fn from(count: usize) -> Nodes {
        Nodes {
            count,
            ..Nodes::default()
        }
    }
}

impl Nodes {
    /// With this label on each.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Nodes {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With so much of a resource on each.
    #[must_use]
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Nodes {
        self.capacity.insert(resource.into(), amount.into());
        self
    }

    /// Spread over these zones in turn.
    #[must_use]
    pub fn zones<Z: Into<String>>(mut self, zones: impl IntoIterator<Item = Z>) -> Nodes {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// The error in it, before a node is made: what the API server would refuse of each node.
    pub fn wrong(&self) -> Option<String> {
        if self.count > MOST {
            return Some(format!("{} nodes are more than {MOST}", self.count));
        }
        let first = |what: String, messages: Vec<String>| Some(format!("{what}: {}", messages.into_iter().next()?));
        let capacity = self
            .capacity
            .iter()
            .find_map(|(resource, amount)| match milli(&Quantity(amount.clone())) {
                None => Some(format!("{amount:?} is no quantity of {resource}")),
                Some(amount) if amount < 0 => Some(format!("the capacity of {resource} is negative")),
                // `validation.ValidateResourceQuantityValue`: only cpu, memory and the like may be fractions.
                Some(amount) if amount % 1000 != 0 && is_counted_in_wholes(resource) => {
                    Some(format!("the capacity of {resource} must be an integer"))
                }
                Some(_) => first(format!("resource {resource:?}"), names::qualified_name(resource)),
            });
        let label = |(key, value): (&String, &String)| {
            first(format!("label {key:?}"), names::qualified_name(key))
                .or_else(|| first(format!("value {value:?} of label {key}"), names::label_value(value)))
        };
        let zone = |zone: &String| match zone.as_str() {
            "" => Some("the name of a zone is empty".to_owned()),
            _ => first(format!("zone {zone:?}"), names::label_value(zone)),
        };
        capacity
            .or_else(|| self.labels.iter().find_map(label))
            .or_else(|| self.zones.iter().find_map(zone))
    }

    /// The names of the nodes.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.count).map(|number| format!("node-{number}")).collect()
    }

    /// The Node of this number.
    pub(super) fn node(&self, number: usize) -> Node {
        let name = format!("node-{number}");
        let mut labels = self.labels.clone();
        for (key, value) in [
            (HOSTNAME, name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            (SIMULATED, "true"),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        if let Some(zone) = number.checked_rem(self.zones.len()).and_then(|at| self.zones.get(at)) {
            labels.entry(ZONE.to_owned()).or_insert_with(|| zone.clone());
        }
        Node {
            metadata: ObjectMeta {
                name: Some(name),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            ..Node::default()
        }
    }

    /// The capacity of a node that does not say so itself.
    fn room(&self) -> BTreeMap<String, Quantity> {
        let usual = [
            ("cpu", "32"),
            ("memory", "256Gi"),
            ("ephemeral-storage", "1Ti"),
            ("pods", "1000"),
        ];
        let usual = usual
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        let all: BTreeMap<String, String> = usual.chain(self.capacity.clone()).collect();
        all.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect()
    }

    /// The status of a node as its kubelet posts it; `None` when it says so already.
    pub(super) fn status(&self, node: &Node, minor: Minor, now: Timestamp) -> Option<NodeStatus> {
        let name = meta::name(&node.metadata);
        let before = node.status.clone().unwrap_or_default();
        let mut next = before.clone();
        let capacity = before.capacity.clone().filter(|capacity| !capacity.is_empty());
        let capacity = capacity.unwrap_or_else(|| self.room());
        let allocatable = before.allocatable.clone().filter(|room| !room.is_empty());
        next.allocatable = Some(allocatable.unwrap_or_else(|| capacity.clone()));
        next.capacity = Some(capacity);
        if before.addresses.as_ref().is_none_or(Vec::is_empty) {
            let address = |kind: &str, address: String| NodeAddress {
                type_: kind.to_owned(),
                address,
            };
            next.addresses = Some(vec![
                address("InternalIP", ip(name)),
                address("Hostname", name.to_owned()),
            ]);
        }
        let info = before.node_info.clone().filter(|info| !info.kubelet_version.is_empty());
        next.node_info = Some(info.unwrap_or_else(|| node_info(name, minor)));
        let pressure = meta::annotation(&node.metadata, PRESSURE).unwrap_or_default();
        let short_of = |what: &str| pressure.split(',').any(|one| one.trim() == what);
        let of_room = |type_, what, yes, no, text: &str| match short_of(what) {
            true => (
                type_,
                true,
                yes,
                format!("kubelet has {}", text.replace("sufficient", "insufficient")),
            ),
            false => (type_, false, no, format!("kubelet has {text}")),
        };
        let mut disk = of_room(
            "DiskPressure",
            "disk",
            "KubeletHasDiskPressure",
            "KubeletHasNoDiskPressure",
            "disk pressure",
        );
        if !disk.1 {
            disk.3 = "kubelet has no disk pressure".to_owned();
        }
        let (memory, pid) = ("sufficient memory available", "sufficient PID available");
        let ready = match state(node) {
            State::Ready => (
                "Ready",
                true,
                "KubeletReady",
                "kubelet is posting ready status".to_owned(),
            ),
            _ => {
                let why = format!("simulated: the annotation {STATE} says so");
                ("Ready", false, "KubeletNotReady", why)
            }
        };
        let conditions = [
            of_room(
                "MemoryPressure",
                "memory",
                "KubeletHasInsufficientMemory",
                "KubeletHasSufficientMemory",
                memory,
            ),
            disk,
            of_room(
                "PIDPressure",
                "pid",
                "KubeletHasInsufficientPID",
                "KubeletHasSufficientPID",
                pid,
            ),
            ready,
        ];
        for (type_, holds, reason, message) in conditions {
            set(&mut next, type_, holds, reason, message, now);
        }
        (next != before).then_some(next)
    }
}

fn set(status: &mut NodeStatus, type_: &str, holds: bool, reason: &str, message: String, now: Timestamp) {
    let text = if holds { "True" } else { "False" };
    let all = status.conditions.get_or_insert_default();
    let present = all.iter_mut().find(|condition| condition.type_ == type_);
    let same = |present: &NodeCondition| present.status == text && present.reason.as_deref() == Some(reason);
    if present.as_ref().is_some_and(|present| same(present)) {
        return;
    }
    let since = present.as_ref().filter(|present| present.status == text);
    let since = since.and_then(|present| present.last_transition_time.clone());
    let next = NodeCondition {
        type_: type_.to_owned(),
        status: text.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(meta::time(now)),
        last_transition_time: Some(since.unwrap_or_else(|| meta::time(now))),
    };
    match present {
        Some(present) => *present = next,
        None => all.push(next),
    }
}

/// The address of a node, out of the ranges for documentation (RFC 5737) and for measurements (RFC 2544), so that no
/// real host is ever reached by mistake.
pub(crate) fn ip(name: &str) -> String {
    let number = name.strip_prefix("node-").and_then(|number| number.parse::<u8>().ok());
    if let Some(last) = number
        .and_then(|number| number.checked_add(1))
        .filter(|last| *last < 255)
    {
        return format!("192.0.2.{last}");
    }
    // FNV-1a: an address that is the same at every start.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [_, second, third, last] = hash.to_be_bytes();
    format!("198.{}.{third}.{last}", 18 + second % 2)
}

/// The address of a node that pods are told.
pub(super) fn address(node: &Node) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let mut addresses = addresses.into_iter().flatten();
    let internal = addresses.find(|address| address.type_ == "InternalIP");
    internal.map_or_else(|| ip(meta::name(&node.metadata)), |internal| internal.address.clone())
}

/// The machine's facts: `kubectl get nodes` shows the version, and every field says that nothing runs here.
fn node_info(name: &str, minor: Minor) -> NodeSystemInfo {
    let simulated = || "simulated".to_owned();
    NodeSystemInfo {
        kubelet_version: minor.version().to_owned(),
        container_runtime_version: "simulated://".to_owned(),
        os_image: simulated(),
        kernel_version: simulated(),
        machine_id: name.to_owned(),
        system_uuid: name.to_owned(),
        boot_id: name.to_owned(),
        operating_system: "linux".to_owned(),
        architecture: std::env::consts::ARCH
            .replace("x86_64", "amd64")
            .replace("aarch64", "arm64"),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn annotations_that_say_nothing() {
        let check = |key: &str, value: &str, expected: Option<&str>| {
            let node = serde_json::from_value(serde_json::json!({ "metadata": { "annotations": { key: value } } }));
            let found = super::misunderstood(&node.expect("a node"));
            assert_eq!(found.first().map(String::as_str), expected, "{key}: {value}");
        };
        check("kubewright.dev/node", "silent", None);
        check("kubewright.dev/pressure", "memory, disk", None);
        check("kubewright.dev/exit-code", "1", None);
        let said =
            "the annotation kubewright.dev/node has a value that says nothing: \"slient\"; did you mean \"silent\"?";
        check("kubewright.dev/node", "slient", Some(said));
        let said =
            "the annotation kubewright.dev/pressure has a value that says nothing: \"mem\"; did you mean \"memory\"?";
        check("kubewright.dev/pressure", "disk,mem", Some(said));
        let said = "the annotation kubewright.dev/presure is unknown; did you mean kubewright.dev/pressure?";
        check("kubewright.dev/presure", "disk", Some(said));
    }

    use serde_json::{Value, json};

    use super::*;

    fn fleet() -> Nodes {
        Nodes {
            count: 3,
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            capacity: [
                ("cpu".to_owned(), "4".to_owned()),
                ("example.com/gpu".to_owned(), "1".to_owned()),
            ]
            .into(),
            zones: vec!["a".to_owned(), "b".to_owned()],
        }
    }

    #[test]
    fn nodes_from_the_start() {
        let check = |number: usize, zone: &str, address: &str| {
            let node = fleet().node(number);
            let labels = meta::labels(&node.metadata);
            assert_eq!((labels[ZONE].as_str(), labels["disk"].as_str()), (zone, "ssd"));
            assert_eq!(super::address(&node), address);
            assert!(kubewright_objects::node::is_simulated(&node));
        };
        check(0, "a", "192.0.2.1");
        check(1, "b", "192.0.2.2");
        check(2, "a", "192.0.2.3");
        assert_eq!(fleet().names(), ["node-0", "node-1", "node-2"]);
    }

    #[test]
    fn what_the_api_server_would_refuse_is_wrong_from_the_start() {
        for (nodes, wrong) in [
            (fleet(), None),
            (Nodes::from(0), None),
            (Nodes::from(MOST + 1), Some("100001 nodes are more than 100000")),
            (fleet().label("disk", ""), None),
            (fleet().label("", "a"), Some("label \"\"")),
            (fleet().label("a key", "a"), Some("label \"a key\"")),
            (fleet().label("key", "a value"), Some("value \"a value\" of label key")),
            (fleet().zones(["a", ""]), Some("the name of a zone is empty")),
            (fleet().zones(["a b"]), Some("zone \"a b\"")),
            (fleet().capacity("cpu", "lots"), Some("\"lots\" is no quantity of cpu")),
            (fleet().capacity("cpu", "-1"), Some("the capacity of cpu is negative")),
            (fleet().capacity("my gpu", "1"), Some("resource \"my gpu\"")),
            (fleet().capacity("cpu", "1500m").capacity("memory", "1.5Gi"), None),
            (
                fleet().capacity("pods", "1.5"),
                Some("the capacity of pods must be an integer"),
            ),
            (
                fleet().capacity("example.com/gpu", "500m"),
                Some("the capacity of example.com/gpu must be an integer"),
            ),
        ] {
            let found = nodes.wrong();
            let is_as_expected = match (&found, wrong) {
                (Some(found), Some(wrong)) => found.starts_with(wrong),
                (found, wrong) => found.as_deref() == wrong,
            };
            assert!(is_as_expected, "{nodes:?}: {found:?}");
        }
    }

    /// `(ready, memory pressure, cpu)` of a node's status; nothing when it is unchanged.
    #[test]
    fn what_nodes_post() {
        let check = |metadata: Value, status: Value, expected: Option<(bool, bool, &str)>| {
            let node = json!({ "metadata": metadata, "status": status });
            let node: Node = serde_json::from_value(node).expect("a node");
            let posted = fleet().status(&node, Minor::default(), Timestamp::UNIX_EPOCH);
            let holds = |status: &NodeStatus, type_: &str| {
                let mut all = status.conditions.iter().flatten();
                all.any(|one| one.type_ == type_ && one.status == "True")
            };
            let found = posted.as_ref().map(|status| {
                let cpu = status
                    .allocatable
                    .as_ref()
                    .map(|room| room["cpu"].0.as_str())
                    .unwrap_or_default();
                (holds(status, "Ready"), holds(status, "MemoryPressure"), cpu)
            });
            assert_eq!(found, expected, "{node:?}");
            if let Some(status) = posted {
                let again = Node {
                    status: Some(status),
                    ..node
                };
                assert_eq!(
                    fleet().status(&again, Minor::default(), Timestamp::MAX),
                    None,
                    "it is said once"
                );
            }
        };
        let annotated = |key: &str, value: &str| json!({ "annotations": { key: value } });
        check(json!({}), json!({}), Some((true, false, "4")));
        check(
            json!({}),
            json!({ "capacity": { "cpu": "2" } }),
            Some((true, false, "2")),
        );
        check(annotated(STATE, "not-ready"), json!({}), Some((false, false, "4")));
        check(annotated(PRESSURE, "disk, memory"), json!({}), Some((true, true, "4")));
    }
}
