//! The labels of a Node, and readings of its status.

use kubewright::k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The label of the zone (`corev1.LabelTopologyZone`).
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of the host name (`corev1.LabelHostname`).
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The condition Ready.
pub(crate) fn ready(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == "Ready")
}

/// Whether the condition Ready is True.
pub(crate) fn is_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == "True")
}
