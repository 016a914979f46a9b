//! What field managers have applied to an object, as far as `metadata.managedFields` says it.
//!
//! Caches leave managedFields out, which are up to half of an object. Of those that the managers of this process have
//! applied they keep the fields, so that a process that starts anew knows which of its applies would change nothing.
//! Invariant: [`AppliedFields::hold`] answers `true` only when the server would make no change of the apply: the fields
//! are exactly those of the configuration, and the values are there. In doubt it answers `false`, and the apply is sent.
//!
//! Not here: which fields there are in a configuration of a kind, which only the server knows; it says so in the keys
//! (`k:{"name":"a"}`) of what was applied before.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The configuration that a manager has applied.
#[derive(Debug)]
pub(crate) struct AppliedFields {
    manager: Box<str>,
    api_version: Box<str>,
    /// `fieldsV1`.
    fields: Box<str>,
}

/// An entry of managedFields (`ManagedFieldsEntry`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    fields_v1: Map<String, Value>,
}

/// What these managers have applied, out of the text of managedFields. Nothing of a text that cannot be read: then
/// everything is applied again.
pub(crate) fn applied_by(managers: &BTreeSet<String>, managed_fields: &[u8]) -> Option<Box<[AppliedFields]>> {
    // As most objects: none of these has applied anything to it. Not looked for in `"manager":"NAME"`, which may have
    // blanks.
    let is_named = |manager: &String| {
        serde_json::to_vec(manager).is_ok_and(|quoted| memchr::memmem::find(managed_fields, &quoted).is_some())
    };
    if memchr::memmem::find(managed_fields, b"\"Apply\"").is_none() || !managers.iter().any(is_named) {
        return None;
    }
    let entries: Vec<Entry> = serde_json::from_slice(managed_fields).ok()?;
    let ours =
        |entry: &Entry| entry.operation == "Apply" && entry.subresource.is_empty() && managers.contains(&entry.manager);
    let kept: Box<[AppliedFields]> = entries
        .into_iter()
        .filter(ours)
        .map(|entry| AppliedFields {
            manager: entry.manager.into(),
            api_version: entry.api_version.into(),
            fields: Value::Object(entry.fields_v1).to_string().into(),
        })
        .collect();
    (!kept.is_empty()).then_some(kept)
}

impl AppliedFields {
    /// Whether this manager need not apply `wanted` to an object that is `present`.
    pub(crate) fn hold(all: &[AppliedFields], manager: &str, wanted: &Value, present: &Value) -> bool {
        let version = wanted["apiVersion"].as_str().unwrap_or_default();
        let ours = all
            .iter()
            .find(|applied| *applied.manager == *manager && *applied.api_version == *version);
        let Some(fields) = ours.and_then(|ours| serde_json::from_str(&ours.fields).ok()) else {
            return false;
        };
        let mut wanted = wanted.clone();
        unmanaged(&mut wanted);
        holds(&fields, &wanted, present)
    }
}

/// Takes out what is in no set of fields (`NewStripMetaManager` of apimachinery).
fn unmanaged(wanted: &mut Value) {
    let Some(wanted) = wanted.as_object_mut() else { return };
    wanted.remove("apiVersion");
    wanted.remove("kind");
    let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("name");
    metadata.remove("namespace");
    if metadata.is_empty() {
        wanted.remove("metadata");
    }
}

/// Whether these are the fields of a configuration, with the values that are present.
fn holds(fields: &Value, wanted: &Value, present: &Value) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    // The element itself is owned as well, which says nothing of its fields.
    let parts = || fields.iter().filter(|(part, _)| *part != ".");
    match (wanted, present) {
        // As a whole. Of an object without a field nothing is asked but that it is there.
        _ if parts().next().is_none() => {
            let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
            wanted == present || is_empty(wanted) && present.is_object()
        }
        (Value::Object(wanted), Value::Object(present)) => {
            parts().count() == wanted.len()
                && parts().all(|(part, fields)| {
                    let name = part.strip_prefix("f:");
                    let found = name.and_then(|name| Some((wanted.get(name)?, present.get(name)?)));
                    found.is_some_and(|(wanted, present)| holds(fields, wanted, present))
                })
        }
        (Value::Array(wanted), Value::Array(present)) => {
            let mut at = 0;
            parts().count() == wanted.len()
                && wanted.iter().all(|item| {
                    // The server keeps the order of what is applied, so that another order would be a change.
                    let rest = present.get(at..).unwrap_or_default();
                    let found = rest
                        .iter()
                        .position(|present| parts().any(|(part, fields)| is_item(part, fields, item, present)));
                    at += found.map_or(0, |found| found + 1);
                    found.is_some()
                })
        }
        _ => false,
    }
}

/// Whether a wanted item of a list is the present one, which the part of a set of fields names: by its value, or by its
/// keys, of which the wanted one may leave out those that have a default.
fn is_item(part: &str, fields: &Value, wanted: &Value, present: &Value) -> bool {
    if let Some(value) = part.strip_prefix("v:") {
        return wanted == present && serde_json::from_str::<Value>(value).is_ok_and(|value| value == *wanted);
    }
    let keys = part.strip_prefix("k:");
    let Some(keys) = keys.and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok()) else {
        return false;
    };
    let named = |(key, value): (&String, &Value)| {
        present.get(key).unwrap_or(value) == value && wanted.get(key).unwrap_or(value) == value
    };
    keys.iter().all(named) && holds(fields, wanted, present)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(fields: &Value, wanted: &Value, present: &Value, expected: bool) {
        let mut wanted = wanted.clone();
        unmanaged(&mut wanted);
        assert_eq!(
            holds(fields, &wanted, present),
            expected,
            "{fields}: {wanted} of {present}"
        );
    }

    #[test]
    fn an_apply_is_spared_only_when_its_fields_are_ours_and_its_values_are_there() {
        let fields = json!({ "f:metadata": { "f:labels": { "f:app": {} } }, "f:spec": { "f:replicas": {} } });
        let wanted =
            json!({ "kind": "D", "metadata": { "name": "x", "labels": { "app": "a" } }, "spec": { "replicas": 2 } });
        let present = json!({ "metadata": { "name": "x", "labels": { "app": "a", "their": "s" } }, "spec": { "replicas": 2, "paused": false } });
        check(&fields, &wanted, &present, true);
        // Another value, a further field, one that is no longer wanted, and one that another manager set alike.
        let with = |at: &str, value: Value| {
            let mut changed = wanted.clone();
            *changed.pointer_mut(at).expect("it is there") = value;
            changed
        };
        check(&fields, &with("/spec/replicas", json!(3)), &present, false);
        check(
            &fields,
            &with("/spec", json!({ "replicas": 2, "paused": false })),
            &present,
            false,
        );
        check(&fields, &with("/spec", json!({})), &present, false);
        check(
            &fields,
            &with("/metadata/labels", json!({ "their": "s" })),
            &present,
            false,
        );
        check(&json!({ "f:spec": { "f:replicas": {} } }), &wanted, &present, false);
        check(
            &fields,
            &wanted,
            &json!({ "metadata": { "labels": { "app": "a" } } }),
            false,
        );
        // Metadata that say nothing but the name are in no set.
        check(
            &json!({ "f:data": { "f:a": {} } }),
            &json!({ "metadata": { "name": "x" }, "data": { "a": "1" } }),
            &json!({ "data": { "a": "1" } }),
            true,
        );
    }

    #[test]
    fn lists_are_compared_as_the_server_merges_them() {
        let fields = json!({ "f:c": { "k:{\"name\":\"a\"}": { ".": {}, "f:image": {}, "f:name": {}, "f:ports": {
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } } } } });
        let item = |image: &str| json!({ "name": "a", "image": image, "ports": [{ "containerPort": 80 }] });
        let present = json!({ "c": [
            { "name": "sidecar", "image": "s" },
            { "name": "a", "image": "i", "pull": "Always", "ports": [{ "containerPort": 80, "protocol": "TCP" }] },
        ] });
        check(&fields, &json!({ "c": [item("i")] }), &present, true);
        check(&fields, &json!({ "c": [item("j")] }), &present, false);
        check(
            &fields,
            &json!({ "c": [item("i"), { "name": "sidecar" }] }),
            &present,
            false,
        );
        check(&fields, &json!({ "c": [] }), &present, false);
        check(
            &fields,
            &json!({ "c": [item("i")] }),
            &json!({ "c": [{ "name": "a", "image": "i" }] }),
            false,
        );
        let set = json!({ "f:s": { "v:\"a\"": {}, "v:\"b\"": {} } });
        check(
            &set,
            &json!({ "s": ["a", "b"] }),
            &json!({ "s": ["x", "a", "b"] }),
            true,
        );
        check(&set, &json!({ "s": ["b", "a"] }), &json!({ "s": ["a", "b"] }), false);
        check(&set, &json!({ "s": ["a"] }), &json!({ "s": ["a", "b"] }), false);
        check(&set, &json!({ "s": ["a", "a"] }), &json!({ "s": ["a", "b"] }), false);
        // A list that is one value.
        let atomic = json!({ "f:args": {} });
        check(
            &atomic,
            &json!({ "args": ["a", "b"] }),
            &json!({ "args": ["a", "b"] }),
            true,
        );
        check(
            &atomic,
            &json!({ "args": ["a", "b"] }),
            &json!({ "args": ["b", "a"] }),
            false,
        );
        // An object without fields, which got defaults, and one that is a value.
        check(
            &json!({ "f:strategy": {} }),
            &json!({ "strategy": {} }),
            &json!({ "strategy": { "type": "R" } }),
            true,
        );
        check(
            &json!({ "f:selector": {} }),
            &json!({ "selector": { "a": "1" } }),
            &json!({ "selector": { "a": "1", "b": "2" } }),
            false,
        );
    }

    #[test]
    fn only_what_our_managers_applied_is_kept() {
        let text = json!([
            { "manager": "ours", "operation": "Apply", "apiVersion": "v1", "fieldsV1": { "f:data": { "f:a": {} } } },
            { "manager": "ours", "operation": "Update", "apiVersion": "v1", "fieldsV1": { "f:data": { "f:b": {} } } },
            { "manager": "ours", "operation": "Apply", "apiVersion": "v1", "subresource": "status", "fieldsV1": { "f:status": {} } },
            { "manager": "theirs", "operation": "Apply", "apiVersion": "v1", "fieldsV1": { "f:data": { "f:c": {} } } },
        ]);
        let kept = |names: &[&str]| {
            applied_by(
                &names.iter().map(|name| (*name).to_owned()).collect(),
                text.to_string().as_bytes(),
            )
        };
        let ours = kept(&["ours", "absent"]).expect("one");
        assert_eq!(ours.len(), 1);
        assert!(kept(&["absent"]).is_none() && kept(&[]).is_none());
        let hold = |manager: &str, version: &str, value: &str| {
            let wanted = json!({ "apiVersion": version, "metadata": { "name": "x" }, "data": { "a": value } });
            AppliedFields::hold(
                &ours,
                manager,
                &wanted,
                &json!({ "data": { "a": "1", "b": "2", "c": "3" } }),
            )
        };
        assert!(hold("ours", "v1", "1"));
        assert!(!hold("ours", "v1", "2") && !hold("ours", "v2", "1") && !hold("theirs", "v1", "1"));
    }
}
