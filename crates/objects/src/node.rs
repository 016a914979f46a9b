//! The labels of a Node, readings of its status, and which Nodes are simulated.
//!
//! A Node is simulated when it has the label `kubewright.dev/simulated: "true"`, or the annotation `kwok.x-k8s.io/node:
//! fake` as kwok has it, whichever client created it.

use std::time::Duration;

use crate::api::core::v1::{Node, NodeCondition};

use crate::meta;

/// The value under which [`pods::node_names`](crate::pods::node_names) files the pods of a node.
pub fn names(node: &Node) -> Vec<String> {
    vec![meta::name(&node.metadata).to_owned()]
}

/// The label of the zone (`corev1.LabelTopologyZone`).
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The labels of the region and the zone of a node, each by its old and its present name.
const REGIONS: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];
const ZONES: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", ZONE];
/// The label of the host name (`corev1.LabelHostname`).
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of a node that exists in the API only. A user who sees it need not look for a machine.
pub const SIMULATED: &str = "kubewright.dev/simulated";
/// The annotation of kwok's nodes.
const KWOK: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// The annotation that says how a simulated node is.
pub const STATE: &str = "kubewright.dev/node";
/// How often a node's Lease is renewed (`nodeLeaseDurationSeconds` / 4).
pub const RENEW: Duration = Duration::from_secs(10);

/// Region and zone of a node (`GetZoneKey`); both are empty where it has no such labels.
pub fn zone_key(node: &Node) -> (&str, &str) {
    let labels = meta::labels(&node.metadata);
    let of = |keys: [&str; 2]| keys.iter().find_map(|key| labels.get(*key)).map_or("", String::as_str);
    (of(REGIONS), of(ZONES))
}

/// The condition Ready.
pub fn ready(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == "Ready")
}

/// Whether the condition Ready is True.
pub fn is_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == "True")
}

/// Whether only the simulation acts as the kubelet of a node.
pub fn is_simulated(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(SIMULATED));
    label.is_some_and(|value| value == "true") || meta::annotation(&node.metadata, KWOK.0) == Some(KWOK.1)
}

/// Whether a node was told to fall silent.
pub fn is_told_silent(node: &Node) -> bool {
    meta::annotation(&node.metadata, STATE) == Some("silent")
}

/// Whether a simulated node has fallen silent because it was told to; of other nodes nothing.
pub fn is_silent(node: &Node) -> Option<bool> {
    is_simulated(node).then(|| is_told_silent(node))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn nodes_that_are_simulated() {
        let check = |metadata: Value, expected: bool| {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).expect("a node");
            assert_eq!(is_simulated(&node), expected, "{node:?}");
        };
        check(json!({}), false);
        check(json!({ "labels": { SIMULATED: "false" } }), false);
        check(json!({ "labels": { SIMULATED: "true" } }), true);
        check(json!({ "annotations": { KWOK.0: KWOK.1 } }), true);
    }
}
