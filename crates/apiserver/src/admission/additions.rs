//! Plugins that make the same additions to all objects of a kind: DefaultTolerationSeconds (pods stay on an unreachable
//! node for five minutes) and StorageObjectInUseProtection (finalizers of claims and volumes). Not here: the values of
//! a class (`classes`).

use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::model::facts::additions::{protect, tolerate};

/// Adds tolerations to pods that are created or changed (DefaultTolerationSeconds), and keeps the priority that
/// Priority found for them.
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
