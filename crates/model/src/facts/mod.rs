//! Facts about single kinds that are needed outside their own rules: those that admission, authorization, quotas and
//! the first objects of a cluster ask for, and those on which the rules and the pipeline must agree.
//!
//! A kind's rules may use all of it. Not here: rules, defaults, rows (crate `kinds`).

pub mod additions;
pub mod amounts;
pub mod definitions;
pub mod der;
pub mod expression;
pub mod needs;
pub mod pem;
pub mod pods;
pub mod references;
pub mod signing_request;
pub mod subject;

use serde_json::{Value, json};

use crate::values::child;

/// The levels of priority and the rules that every kube-apiserver has: kind, name and spec of each.
pub static FLOW_CONTROL: &str = include_str!("../../data/flowcontrol.json");

/// The classes that every cluster has, with their values.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// The condition of an APIService that this server serves itself.
pub fn locally_available(now: &str) -> Value {
    json!({"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available"})
}

/// How often the template of a DaemonSet changed stands in this annotation, for clients from before there were
/// ControllerRevisions.
pub const TEMPLATE_COUNT: &str = "deprecated.daemonset.template.generation";

/// Takes the count out of the metadata of a DaemonSet.
pub fn forget_template_count(metadata: &mut Value) {
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    if let Some(annotations) = child(metadata, "annotations") {
        annotations.remove(TEMPLATE_COUNT);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Resources that ask about users and their rights, with their groups: nothing is stored, and neither policies nor,
/// since Kubernetes 1.37, webhooks may keep them from an answer (`exclusion.Excluded`).
pub const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];
