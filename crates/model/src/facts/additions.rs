//! The additions of admission to every object of a kind: tolerations of pods, finalizers of claims and volumes.

use serde_json::Value;

use super::pods;
use crate::values::{ensure, get};
use crate::{Resource, object};

/// Adds the tolerations of DefaultTolerationSeconds to a new object, or to one that was `old`.
pub fn tolerate(resource: &Resource, object: &mut Value, old: Option<&Value>) {
    if !resource.group.is_empty() || resource.plural != "pods" {
        return;
    }
    let Some(spec) = object.as_object_mut().and_then(|pod| ensure(pod, "spec")) else {
        return;
    };
    pods::tolerate(spec);
    for field in ["priority", "preemptionPolicy"] {
        let found = old.map_or(&Value::Null, |old| get(old, &["spec", field]));
        if !found.is_null() && spec.get(field).is_none_or(Value::is_null) {
            spec.insert(field.to_owned(), found.clone());
        }
    }
}

/// The finalizers of new objects, by kind.
const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

/// Adds the finalizer of StorageObjectInUseProtection to a new object.
pub fn protect(resource: &Resource, object: &mut Value) {
    let of_kind = |row: &&(&str, &str, &str)| row.0 == resource.group && row.1 == resource.plural;
    let Some((_, _, finalizer)) = FINALIZERS.iter().find(of_kind) else {
        return;
    };
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push((*finalizer).to_owned());
        object::set_finalizers(object, finalizers);
    }
}
