//! Taints of nodes that follow from what is known about them (a part of Kubernetes' node lifecycle controller): a node gets no new pods
//! while it is not ready, cannot be heard, lacks memory, disk, processes or its network, or is cordoned; and gets them again afterwards.
//!
//! Admission taints every new node as not ready. A node that reports nothing yet loses that taint, as upstream: nothing is known against it.
//!
//! Invariant: only `NoSchedule` taints with the keys of [`CONDITIONS`] and [`UNSCHEDULABLE`] are touched.
//!
//! Not here: `NoExecute` taints and the eviction of pods; heartbeats, so that a node that falls silent stays as it last said.

use std::sync::Arc;

use kubewright::k8s_openapi::api::core::v1::{Node, Taint};
use kubewright::{Action, Context, Controller, Reconciler, Result};

const NAME: &str = "node-lifecycle-controller";
const NO_SCHEDULE: &str = "NoSchedule";
/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, its status, and the taint that follows.
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// Keeps the taints of nodes.
pub(crate) struct NodeTaints;

/// The controller of all nodes.
pub(crate) fn controller() -> Controller {
    Controller::of(NodeTaints).named(NAME)
}

impl Reconciler for NodeTaints {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
        let taints = taints(&node);
        let present = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        if taints == present {
            return Ok(Action::await_change());
        }
        let mut changed = (*node).clone();
        changed.spec.get_or_insert_default().taints = Some(taints).filter(|taints| !taints.is_empty());
        match ctx.client().update(&changed).await {
            Err(error) if error.is_not_found() => Ok(Action::await_change()),
            written => written.map(|_| Action::await_change()),
        }
    }
}

/// The taints that a node is to have: its own, and those that follow from its state.
fn taints(node: &Node) -> Vec<Taint> {
    let spec = node.spec.as_ref();
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let says = |kind: &str, status: &str| {
        conditions
            .iter()
            .any(|condition| condition.type_ == kind && condition.status == status)
    };
    let mut wanted: Vec<&str> = CONDITIONS
        .iter()
        .filter(|(kind, status, _)| says(kind, status))
        .map(|(_, _, key)| *key)
        .collect();
    if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push(UNSCHEDULABLE);
    }
    let ours = |taint: &Taint| {
        let known = taint.key == UNSCHEDULABLE || CONDITIONS.iter().any(|(_, _, key)| *key == taint.key);
        known && taint.effect == NO_SCHEDULE
    };
    let present = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|taint| !ours(taint) || wanted.contains(&taint.key.as_str()))
        .cloned()
        .collect();
    for key in wanted {
        if !taints.iter().any(|taint| ours(taint) && taint.key == key) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: NO_SCHEDULE.to_owned(),
                ..Taint::default()
            });
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: &Value, conditions: &Value, want: &[&str]) {
        let node = json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}});
        let node: Node = serde_json::from_value(node).expect("a node");
        let found: Vec<String> = taints(&node)
            .iter()
            .map(|taint| format!("{}:{}", taint.key, taint.effect))
            .collect();
        assert_eq!(found, want, "{node:?}");
    }

    #[test]
    fn taints_follow_conditions() {
        let not_ready = || json!({"taints": [{"key": "own", "effect": "NoExecute"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let (own, tainted) = ("own:NoExecute", "node.kubernetes.io/not-ready:NoSchedule");
        check(&not_ready(), &json!([]), &[own]);
        check(&not_ready(), &json!([ready("True")]), &[own]);
        check(&not_ready(), &json!([ready("False")]), &[own, tainted]);
        check(&json!({}), &json!([ready("False")]), &[tainted]);
        check(
            &not_ready(),
            &json!([ready("Unknown")]),
            &[own, "node.kubernetes.io/unreachable:NoSchedule"],
        );
        check(
            &json!({"unschedulable": true}),
            &json!([ready("True"), {"type": "DiskPressure", "status": "True"}]),
            &[
                "node.kubernetes.io/disk-pressure:NoSchedule",
                "node.kubernetes.io/unschedulable:NoSchedule",
            ],
        );
    }
}
