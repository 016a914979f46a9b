//! Plugins that add to objects what all of their kind have: DefaultTolerationSeconds (pods stay on an unreachable node for five minutes)
//! and StorageObjectInUseProtection (finalizers of what volumes are made of). Not here: what a class says (`classes`).

use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::kinds::pods;
use crate::model::Resource;
use crate::model::object;
use crate::values::{ensure, get};

/// Adds tolerations to pods that are created or changed (DefaultTolerationSeconds), and keeps the priority that Priority found for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerations;

impl Admission for Tolerations {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.subresource.is_empty() {
            tolerate(&attributes.resource, object, old);
        }
        Admitted::YES
    }
}

/// What [`Tolerations`] makes of a new object, or of one that was `old`.
pub(crate) fn tolerate(resource: &Resource, object: &mut Value, old: Option<&Value>) {
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

/// Gives new claims, volumes and their classes the finalizers that keep them while they are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageProtection;

impl Admission for StorageProtection {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if attributes.operation == Operation::Create && attributes.subresource.is_empty() {
            protect(&attributes.resource, object);
        }
        Admitted::YES
    }
}

/// What [`StorageProtection`] makes of a new object.
pub(crate) fn protect(resource: &Resource, object: &mut Value) {
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
