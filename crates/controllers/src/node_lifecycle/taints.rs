//! The taints of a node that follow from its state: it gets no new pods while it is not ready, cannot be heard, lacks
//! memory, disk, processes or its network, or is cordoned; and while it is not ready or cannot be heard, its pods
//! leave.
//!
//! Pure. Invariant: only taints with the keys of [`CONDITIONS`] and [`UNSCHEDULABLE`] are touched, and of the effect
//! `NoExecute` only those of the condition Ready. Admission taints every new node as not ready; a node that reports
//! nothing yet loses that taint, as upstream.

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewright_objects::api::core::v1::{Node, Taint};

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
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

/// The taints that a node is to have: its own, and those that follow from its state. `leave` says whether its pods may
/// leave it while it is not ready, and `now` when they begin to.
pub(super) fn taints(node: &Node, leave: bool, now: &Time) -> Vec<Taint> {
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
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, _, key) in CONDITIONS.iter().filter(|(kind, status, _)| says(kind, status)) {
        wanted.push((key, NO_SCHEDULE));
        if leave && *kind == "Ready" {
            wanted.push((key, NO_EXECUTE));
        }
    }
    if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let present = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|taint| !is_ours(taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: (effect == NO_EXECUTE).then(|| now.clone()),
                ..Taint::default()
            });
        }
    }
    taints
}

/// Whether a node has a taint by which pods leave it while it is not ready.
pub(super) fn is_left(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.effect == NO_EXECUTE && is_ours(taint))
}

/// Whether the taint follows from the node's state.
fn is_ours(taint: &Taint) -> bool {
    let of_condition = |of: &str| {
        CONDITIONS
            .iter()
            .any(|(kind, _, key)| *key == taint.key && (of.is_empty() || *kind == of))
    };
    match taint.effect.as_str() {
        NO_SCHEDULE => taint.key == UNSCHEDULABLE || of_condition(""),
        NO_EXECUTE => of_condition("Ready"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kubewright::k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: &Value, conditions: &Value, want: &[&str]) {
        check_when(true, spec, conditions, want);
    }

    fn check_when(leave: bool, spec: &Value, conditions: &Value, want: &[&str]) {
        let node = json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}});
        let node: Node = serde_json::from_value(node).expect("a node");
        let found: Vec<String> = taints(&node, leave, &Time(Timestamp::UNIX_EPOCH))
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
        let leaving = "node.kubernetes.io/not-ready:NoExecute";
        check(&not_ready(), &json!([]), &[own]);
        check(&not_ready(), &json!([ready("True")]), &[own]);
        check(&not_ready(), &json!([ready("False")]), &[own, tainted, leaving]);
        check(&json!({}), &json!([ready("False")]), &[tainted, leaving]);
        check_when(false, &json!({}), &json!([ready("False")]), &[tainted]);
        let both = json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]});
        check(&both, &json!([ready("False")]), &[tainted, leaving]);
        check_when(false, &both, &json!([ready("False")]), &[tainted]);
        check(
            &not_ready(),
            &json!([ready("Unknown")]),
            &[
                own,
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute",
            ],
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
