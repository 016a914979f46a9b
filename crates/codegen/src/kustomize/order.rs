//! The order in which objects come out: dependencies come first.

use super::object::{Id, Object};

/// The kinds before all others, in this order.
const FIRST: &[&str] = &[
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// The kinds after all others: they would get in the way of the others.
const LAST: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Sorts as `kustomize build` does when nothing else is said.
pub(super) fn sort(objects: &mut [Object]) {
    objects.sort_by_cached_key(|object| {
        let id = object.id();
        (rank(&id.kind), key(&id))
    });
}

fn rank(kind: &str) -> usize {
    let at = |kinds: &[&str]| kinds.iter().position(|other| *other == kind);
    match (at(FIRST), at(LAST)) {
        (Some(first), _) => first,
        (None, Some(last)) => FIRST.len() + 1 + last,
        (None, None) => FIRST.len(),
    }
}

/// An empty field counts as a word that sorts behind all names.
fn key(id: &Id) -> (String, String) {
    let or = |text: &str, instead: &str| {
        if text.is_empty() {
            instead.to_owned()
        } else {
            text.to_owned()
        }
    };
    let kind = format!(
        "{}_{}_{}",
        or(&id.group, "~G"),
        or(&id.version, "~V"),
        or(&id.kind, "~K")
    );
    let name = format!("{}|{}", or(&id.namespace, "~X"), or(&id.name, "~N"));
    (kind, name)
}
