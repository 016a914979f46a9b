//! Small questions about metadata that several controllers ask: the controller of this object, whether it is being
//! deleted, whether its labels fit.
//!
//! Pure. Invariant: a controller reference is recognised by uid alone, never by name, because names are reused.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::core::{Selector, SelectorExt};
use kubewright::{Error, Object, Result};

/// The reference of the one owner that controls the object (`controller: true`).
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true))
}

/// The uid of the object, empty for one that was never stored.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// The name of the object, empty for one that has none yet.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Whether deletion was asked for.
pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// When the object was stored; one that was not is younger than any other.
pub fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The labels, empty when there are none.
pub fn labels(meta: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    meta.labels.as_ref().unwrap_or(&NONE)
}

/// A controller reference to an owner (`metav1.NewControllerRef`): it controls, and blocks the owner's foreground
/// deletion.
pub fn controller_reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name(owner).to_owned(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// [`controller_reference`] with the kind of the owner's type.
pub fn reference_to<K: Object>(owner: &K) -> OwnerReference {
    controller_reference(&K::api_version(&()), &K::kind(&()), owner.meta())
}

/// A selector that can be asked, from the one in a spec.
///
/// # Errors
/// Terminal when the selector is malformed: only a change of the object can cure that.
pub fn selector(of: &str, selector: &LabelSelector) -> Result<Selector> {
    Selector::try_from(selector.clone()).map_err(|error| {
        Error::terminal(format!(
            "spec.selector of {of} cannot be used: {error}; correct the operator or its values"
        ))
    })
}

/// Whether the labels of an object fit. An empty selector fits nothing here, as in the workload controllers of
/// Kubernetes: a selector that was left out must never adopt a whole namespace.
pub fn fits(selector: &Selector, meta: &ObjectMeta) -> bool {
    fits_labels(selector, labels(meta))
}

/// Whether these labels fit, as [`fits`] looks at them.
pub fn fits_labels(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    !selector.selects_all() && selector.matches(labels)
}

/// A time as the API stores it: whole seconds. A time that is compared with stored times must lose the rest first.
pub fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_controlling_owner_counts() {
        let owner = |uid: &str, controller| OwnerReference {
            uid: uid.to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let check = |owners: Vec<OwnerReference>, expected: Option<&str>| {
            let meta = ObjectMeta {
                owner_references: Some(owners),
                ..ObjectMeta::default()
            };
            assert_eq!(controller_of(&meta).map(|owner| owner.uid.as_str()), expected);
        };
        check(vec![], None);
        check(vec![owner("a", None)], None);
        check(vec![owner("a", Some(false)), owner("b", Some(true))], Some("b"));
    }

    #[test]
    fn an_empty_selector_fits_nothing() {
        let empty = selector("ReplicaSet x", &LabelSelector::default()).expect("an empty selector is well-formed");
        assert!(!fits(&empty, &ObjectMeta::default()));
    }

    #[test]
    fn times_are_whole_seconds() {
        let precise: Timestamp = "2026-01-01T00:00:00.75Z".parse().expect("a time");
        assert_eq!(time(precise).0.to_string(), "2026-01-01T00:00:00Z");
    }
}
