//! The plugins for nodes. TaintNodesByCondition: a new node gets no pods until a controller says that it is ready.
//! PodTopologyLabels: a pod has the zone and the region of its node as labels.
//!
//! Not here: the removal of the taint (the node lifecycle controller does it; in the cluster, the simulated kubelet).

use serde_json::{Value, json};

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::model::object;
use crate::values::{ensure, get};

/// The taint of a node that is not ready (`node.kubernetes.io/not-ready`).
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints new nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaintNodes;

impl Admission for TaintNodes {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        let is_new = attributes.operation == Operation::Create && attributes.subresource.is_empty();
        if is_new && resource.group.is_empty() && resource.plural == "nodes" {
            taint(object);
        }
        Admitted::YES
    }
}

fn taint(node: &mut Value) {
    let Some(spec) = node.as_object_mut().and_then(|node| ensure(node, "spec")) else {
        return;
    };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    let Some(taints) = taints.as_array_mut() else { return };
    let has = taints
        .iter()
        .any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !has {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// The labels of a node that its pods get.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Copies zone and region of a node to the pods that are put on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopologyLabels;

impl Admission for TopologyLabels {
    fn mutate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        if attributes.operation == Operation::Create && resource.group.is_empty() && resource.plural == "pods" {
            let node = match attributes.subresource.as_str() {
                "" => get(object, &["spec", "nodeName"]),
                // The labels of a binding are copied to the pod.
                "binding" if get(object, &["target", "kind"]) == "Node" => get(object, &["target", "name"]),
                _ => &Value::Null,
            };
            let node = node.as_str().and_then(|name| session.storage().get("nodes", name));
            if let Some(node) = node {
                copy_topology(object, node.value());
            }
        }
        Admitted::YES
    }
}

fn copy_topology(object: &mut Value, node: &Value) {
    for key in TOPOLOGY {
        let value = get(node, &["metadata", "labels", key]);
        if !value.is_null()
            && let Some(labels) = ensure(object::metadata_mut(object), "labels")
        {
            labels.insert(key.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_tainted_once() {
        let mut node = json!({"spec": {"taints": [{"key": "own", "effect": "NoExecute"}]}});
        taint(&mut node);
        taint(&mut node);
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "own", "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}])
        );
    }
}
