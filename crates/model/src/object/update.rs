//! The metadata of an object that replaces another: the fields it keeps, and its errors.
//!
//! kube-apiserver checks the metadata several times: before every update, and then again in most kinds, in some of
//! them as if the object were new. Each check reports its errors, and the answer lists them all. How often a kind checks
//! them is in its strategy ([`MetadataChecks`](crate::MetadataChecks)).

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use serde_json::{Value, json};

use super::{
    finalizers, is_terminating, metadata, metadata_mut, unqualified_finalizers, validate_common, validate_identity,
};
use crate::{Minor, NameRule, Resource};

/// Carries over the fields that an update may not change or may leave out (the counterpart of `rest.BeforeUpdate`). The
/// namespace is the request's to check.
pub fn keep_system_fields(new: &mut Value, old: &Value, namespaced: bool) {
    let old_metadata = old.get("metadata").unwrap_or(&Value::Null);
    let metadata = metadata_mut(new);
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(time) = old_metadata.get(field) {
            metadata.insert(field.to_owned(), time.clone());
        }
    }
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if metadata.get(field).is_none_or(|value| value.is_null() || value == "") {
            match old_metadata.get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
    }
    match old_metadata.get("generation") {
        Some(generation) => metadata.insert("generation".to_owned(), generation.clone()),
        None => metadata.remove("generation"),
    };
    // `selfLink` is gone from the API: the value of an old client is dropped.
    if !namespaced {
        metadata.remove("namespace");
    }
}

/// The errors in the metadata of a changed object, once for each time that upstream checks it; `of_status` when only
/// `/status` is written.
pub fn validate_update(
    new: &Value,
    old: &Value,
    resource: &Resource,
    of_status: bool,
    minor: Minor,
) -> Vec<FieldError> {
    let checks = if of_status {
        resource.strategy.status_metadata_checks
    } else {
        resource.strategy.metadata_checks
    };
    let common = validate_common(new, minor);
    let changed = validate_changed(new, old);
    let unqualified = unqualified_finalizers(new, resource);
    let mut errors = validate_identity(new, NameRule::PathSegment, resource.namespaced);
    // Nearly always nothing is wrong, and another check finds nothing.
    let mut report = |found: [&[FieldError]; 3]| found.iter().for_each(|found| errors.extend_from_slice(found));
    report([&common, &common, &changed]);
    if checks.update {
        report([&common, &changed, &unqualified]);
    }
    if checks.create > 0 {
        let identity = validate_identity(new, resource.strategy.names, resource.namespaced);
        for _ in 0..checks.create {
            report([&identity, &common, &unqualified]);
        }
    }
    errors
}

/// The fields that an object keeps for its whole life, or from when they are set.
const LASTING: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Immutable fields, and new finalizers of an object that is being deleted.
fn validate_changed(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if is_terminating(old) {
        let known: BTreeSet<&str> = finalizers(old).into_iter().collect();
        let added: BTreeSet<&str> = finalizers(new)
            .into_iter()
            .filter(|finalizer| !known.contains(*finalizer))
            .collect();
        if !added.is_empty() {
            let listed: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            let message = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                listed.join(", ")
            );
            errors.push(FieldError::forbidden(metadata("finalizers"), message));
        }
    }
    let [news, olds] = [new, old].map(|object| object.get("metadata").and_then(Value::as_object));
    let [lasting, lasted] = [news, olds].map(|known| {
        let fields = known.into_iter().flatten();
        fields.filter(|(field, _)| LASTING.contains(&field.as_str()))
    });
    if lasting.eq(lasted) {
        return errors;
    }
    for name in LASTING {
        let [now, before] = [news, olds].map(|known| known.and_then(|known| known.get(name)).unwrap_or(&Value::Null));
        if now != before {
            let shown = match name {
                "name" | "namespace" | "uid" if now.is_null() => json!(""),
                _ => now.clone(),
            };
            errors.push(FieldError::invalid(metadata(name), shown, "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_keeps_what_the_server_sets() {
        let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t", "generation": 3, "deletionTimestamp": "d"}});
        let mut new = json!({"metadata": {
            "name": "a", "namespace": "n", "generation": 9, "deletionTimestamp": "later", "creationTimestamp": "before"
        }});
        keep_system_fields(&mut new, &old, true);
        assert_eq!(new["metadata"], old["metadata"]);
        assert_eq!(validate_changed(&new, &old), []);
        new["metadata"]["uid"] = json!("other");
        new["metadata"]["finalizers"] = json!(["example.org/x"]);
        let texts: Vec<String> = validate_changed(&new, &old).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.org/x\"}",
                "metadata.uid: Invalid value: \"other\": field is immutable",
            ]
        );
    }
}
