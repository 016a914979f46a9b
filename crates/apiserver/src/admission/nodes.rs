//! TaintNodesByCondition: a new node gets no pods until somebody who watches over nodes says that it is ready.
//!
//! Not here: who takes the taint away (the node lifecycle controller; in the cluster, whoever plays the node).

use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, Session};
use crate::env::BoxFuture;
use crate::kinds::check::ensure;
use crate::status::Status;

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
    ) -> BoxFuture<'a, Result<(), Status>> {
        let resource = &attributes.resource;
        let is_new = attributes.operation == Operation::Create && attributes.subresource.is_empty();
        if is_new && resource.group.is_empty() && resource.plural == "nodes" {
            taint(object);
        }
        Box::pin(std::future::ready(Ok(())))
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
