//! The metadata of objects: reading it, the fields that the server sets, its errors.
//!
//! Invariants: `uid`, `creationTimestamp`, `deletionTimestamp` and `deletionGracePeriodSeconds` come from the server
//! alone; an update does not change them. `resourceVersion` is never set here (the API server's storage does).

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::path::FieldPath;
use kubewright_schema::{budget, names};
use serde_json::{Map, Value, json};

use crate::env::{self, Env};
use crate::{Minor, NameRule, Resource};

pub mod conditions;
mod update;

pub use update::{keep_system_fields, validate_update};

/// The finalizer of `propagationPolicy: Foreground`.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// The finalizer of `propagationPolicy: Orphan`.
pub const ORPHAN: &str = "orphan";
/// Longest name that `generateName` makes, and how much of it is random (apimachinery's `SimpleNameGenerator`).
const MAX_GENERATED_NAME: usize = 63;
const RANDOM_SUFFIX: usize = 5;

/// A string of the metadata; empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.labels`, or null.
pub fn labels(object: &Value) -> &Value {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"))
        .unwrap_or(&Value::Null)
}

/// `metadata.generation`; 0 when absent.
pub fn generation(object: &Value) -> i64 {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_terminating(object: &Value) -> bool {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("deletionTimestamp"))
        .is_some_and(|time| !time.is_null())
}

/// `metadata.deletionGracePeriodSeconds`.
pub fn grace_period(object: &Value) -> Option<i64> {
    object.get("metadata")?.get("deletionGracePeriodSeconds")?.as_i64()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object
        .get("metadata")
        .and_then(|metadata| metadata.get("finalizers"))
        .and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Gives an object the `resourceVersion` of the present one.
pub fn keep_version(object: &mut Value, present: &Value) {
    let version = text(present, "resourceVersion").to_owned();
    metadata_mut(object).insert("resourceVersion".to_owned(), version.into());
}

/// Replaces `metadata.finalizers`; an empty list is absent.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}

/// The metadata for writing; made when it is absent or no object.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().expect("it was just made an object");
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".to_owned(), json!({}));
    }
    let metadata = map.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.expect("it is there, and an object")
}

/// Drops the fields that only the server may set, before admission sees a new object.
pub fn wipe_system_fields(object: &mut Value) {
    let metadata = metadata_mut(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(field);
    }
}

/// Gives a new object its uid and time, and a name if it asks for a generated one.
pub fn fill_system_fields(object: &mut Value, env: &dyn Env) {
    let uid = env::uuid(env);
    let now = env::rfc3339(env.now());
    let generated = generated_name(object, env);
    let metadata = metadata_mut(object);
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    if let Some(name) = generated {
        metadata.insert("name".to_owned(), json!(name));
    }
}

/// Whether a new object leaves its name to the server (`generateName`).
pub fn is_to_be_named(object: &Value) -> bool {
    name(object).is_empty() && !text(object, "generateName").is_empty()
}

fn generated_name(object: &Value, env: &dyn Env) -> Option<String> {
    if !is_to_be_named(object) {
        return None;
    }
    let base = text(object, "generateName");
    let mut end = base.len().min(MAX_GENERATED_NAME - RANDOM_SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    Some(format!("{}{}", &base[..end], env::name_suffix(env, RANDOM_SUFFIX)))
}

/// Drops owner references that came before; the warning about it, which tells whether plugins have had the object
/// (`admitted`).
pub fn dedup_owners(object: &mut Value, admitted: bool) -> Option<String> {
    let metadata = object.get_mut("metadata")?;
    let owners = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    if owners.len() < 2 {
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut duplicates = Vec::new();
    owners.retain(|owner| {
        let text = owner.to_string();
        budget::spend_on_text(text.len());
        let first = seen.insert(text);
        if !first {
            duplicates.push(owner.get("uid").and_then(Value::as_str).unwrap_or("").to_owned());
        }
        first
    });
    (!duplicates.is_empty()).then(|| {
        let when = if admitted {
            " after mutating admission happens"
        } else {
            ""
        };
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such \
             requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// Warnings about finalizers without a domain, which only custom resources may have unsaid.
pub fn finalizer_warnings(object: &Value, old: Option<&Value>, resource: &Resource) -> Vec<String> {
    if resource.custom.is_none() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = old.map(finalizers).into_iter().flatten().collect();
    finalizers(object)
        .into_iter()
        .filter(|finalizer| !finalizer.contains('/') && ![ORPHAN, FOREGROUND_DELETION, "kubernetes"].contains(finalizer))
        .filter(|finalizer| !known.contains(*finalizer))
        .map(|finalizer| {
            let with_path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{with_path} to avoid accidental conflicts \
                 with other finalizer writers"
            )
        })
        .collect()
}

/// The errors in the metadata of a new object.
pub fn validate(object: &Value, resource: &Resource, minor: Minor) -> Vec<FieldError> {
    let mut errors = validate_identity(object, resource.strategy.names, resource.namespaced);
    errors.extend(validate_common(object, minor));
    errors.extend(unqualified_finalizers(object, resource));
    errors
}

/// Where a field of the metadata is. Asked for only when something is wrong with it: most objects are as they should
/// be.
fn metadata(field: &str) -> FieldPath {
    FieldPath::new(["metadata.", field].concat())
}

/// The errors in name, namespace and generation, where names follow this rule.
fn validate_identity(object: &Value, names: NameRule, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name_of = |name: &str| check_name(names, name);
    let known = object.get("metadata").and_then(Value::as_object);
    let value = |field: &str| known.and_then(|known| known.get(field));
    let text = |field: &str| value(field).and_then(Value::as_str).unwrap_or("");
    let (generate, name, namespace) = (text("generateName"), text("name"), text("namespace"));
    if !generate.is_empty() {
        // A prefix may end with a dash: the suffix follows.
        let prefix = generate
            .strip_suffix('-')
            .filter(|base| !base.is_empty())
            .map_or_else(|| generate.to_owned(), |base| format!("{base}a"));
        for message in name_of(&prefix) {
            errors.push(FieldError::invalid(metadata("generateName"), json!(generate), message));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            metadata("name"),
            "name or generateName is required",
        ));
    } else {
        for message in name_of(name) {
            errors.push(FieldError::invalid(metadata("name"), json!(name), message));
        }
    }
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required(metadata("namespace"), ""));
        } else {
            for message in kubewright_schema::names::dns1123_label(namespace) {
                errors.push(FieldError::invalid(metadata("namespace"), json!(namespace), message));
            }
        }
    }
    let generation = value("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation < 0 {
        let message = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(metadata("generation"), json!(generation), message));
    }
    errors
}

/// Most built-in kinds take Kubernetes' own finalizers, and others only with the domain of their owner.
fn unqualified_finalizers(object: &Value, resource: &Resource) -> Vec<FieldError> {
    if resource.strategy.any_finalizer {
        return Vec::new();
    }
    let odd = |name: &str| !name.contains('/') && !["kubernetes", ORPHAN, FOREGROUND_DELETION].contains(&name);
    let found = finalizers(object).into_iter().enumerate().filter(|(_, name)| odd(name));
    found
        .map(|(index, name)| {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(metadata("finalizers").index(index), json!(name), message)
        })
        .collect()
}

/// Labels, annotations, owners and finalizers: checked on create and on update.
fn validate_common(object: &Value, minor: Minor) -> Vec<FieldError> {
    type Check = fn(&Value, &FieldPath) -> Vec<FieldError>;
    let checks: [(&str, Check); 4] = [
        ("labels", names::labels),
        ("annotations", names::annotations),
        (
            "ownerReferences",
            if minor >= Minor::V37 {
                declared_owners
            } else {
                validate_owners
            },
        ),
        ("managedFields", validate_managers),
    ];
    let known = object.get("metadata").and_then(Value::as_object);
    let mut errors = Vec::new();
    for (field, check) in checks {
        if let Some(value) = known.and_then(|known| known.get(field)) {
            errors.extend(check(value, &metadata(field)));
        }
    }
    let list = finalizers(object);
    for finalizer in &list {
        errors.extend(names::finalizer_name(finalizer, &metadata("finalizers")));
    }
    if list.contains(&ORPHAN) && list.contains(&FOREGROUND_DELETION) {
        let message = format!("finalizer {ORPHAN} and {FOREGROUND_DELETION} cannot be both set");
        errors.push(FieldError::invalid(metadata("finalizers"), json!(list), message));
    }
    errors
}

/// The errors in the metadata of an object within another. It need not have a name.
pub fn validate_embedded(object: &Value, at: &FieldPath, minor: Minor) -> Vec<FieldError> {
    let Some(metadata) = object.get("metadata").filter(|metadata| metadata.is_object()) else {
        return Vec::new();
    };
    let mut named = json!({ "metadata": metadata });
    if name(&named).is_empty() {
        metadata_mut(&mut named).insert("name".to_owned(), json!("fakename"));
    }
    let mut errors = validate_identity(&named, NameRule::PathSegment, !namespace(&named).is_empty());
    errors.extend(validate_common(&named, minor));
    for error in &mut errors {
        error.field = format!("{at}.{}", error.field);
    }
    errors
}

/// The names in the entries of `managedFields`. Their other fields were checked when they were read.
fn validate_managers(entries: &Value, at: &FieldPath) -> Vec<FieldError> {
    const MAX_MANAGER: usize = 128;
    const MAX_SUBRESOURCE: usize = 256;
    let mut errors = Vec::new();
    for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("");
        let path = |key: &str| at.index(index).key(key).to_string();
        let manager = text("manager");
        if manager.len() > MAX_MANAGER {
            errors.push(FieldError::too_long(path("manager"), MAX_MANAGER));
        }
        for (place, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
            let message = format!("invalid character U+{:04X} (at position {place})", c as u32);
            errors.push(FieldError::invalid(path("manager"), json!(manager), message));
        }
        if text("subresource").len() > MAX_SUBRESOURCE {
            errors.push(FieldError::too_long(path("subresource"), MAX_SUBRESOURCE));
        }
    }
    errors
}

fn text_of<'a>(owner: &'a Value, name: &str) -> &'a str {
    owner.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Whether the field of an owner means something: a group alone has no version, and nor has a text with more slashes
/// than one.
fn is_said(owner: &Value, name: &str) -> bool {
    match text_of(owner, name).split_once('/') {
        Some((_, version)) if name == "apiVersion" => !version.is_empty() && !version.contains('/'),
        _ => !text_of(owner, name).is_empty(),
    }
}

fn validate_owners(owners: &Value, at: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for owner in owners.as_array().into_iter().flatten() {
        for (name, message) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if !is_said(owner, name) {
                let value = json!(text_of(owner, name));
                errors.push(FieldError::invalid(at.key(name).to_string(), value, message));
            }
        }
        errors.extend(banned_owner(owner, at));
    }
    errors.extend(second_controller(owners, at));
    errors
}

/// The same where the rules are declared with the type.
fn declared_owners(owners: &Value, at: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, owner) in owners.as_array().into_iter().flatten().enumerate() {
        let at = at.index(index);
        for name in ["apiVersion", "kind", "name", "uid"] {
            let path = || at.key(name).to_string();
            match text_of(owner, name) {
                "" => errors.push(FieldError::required(path(), "must not be empty")),
                value if !is_said(owner, name) => {
                    let message = "must be <group>/<version> or <version>";
                    errors.push(FieldError::invalid(path(), json!(value), message));
                }
                _ => {}
            }
        }
        errors.extend(banned_owner(owner, &at));
    }
    errors.extend(second_controller(owners, at));
    errors
}

fn banned_owner(owner: &Value, at: &FieldPath) -> Option<FieldError> {
    let is_banned = text_of(owner, "apiVersion") == "v1" && text_of(owner, "kind") == "Event";
    let message = "/v1, Kind=Event is disallowed from being an owner";
    is_banned.then(|| FieldError::invalid(at.to_string(), owner.clone(), message))
}

/// Each controller but the first.
fn second_controller(owners: &Value, at: &FieldPath) -> Vec<FieldError> {
    let mut controllers = owners.as_array().into_iter().flatten();
    let mut next = || controllers.find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let Some(first) = next() else { return Vec::new() };
    let name = |owner| format!("{}/{}", text_of(owner, "kind"), text_of(owner, "name"));
    let mut errors = Vec::new();
    while let Some(other) = next() {
        let message = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            name(first),
            name(other)
        );
        errors.push(FieldError::invalid(at.to_string(), owners.clone(), message));
    }
    errors
}

fn check_name(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => names::dns1123_subdomain(name),
        NameRule::SubdomainInBytes => names::dns1123_subdomain_in_bytes(name),
        NameRule::Label => names::dns1123_label(name),
        NameRule::Label1035 => names::dns1035_label(name),
        // A name without a rule of its own must be a segment of a path (`rest.BeforeCreate`): no request could name the
        // object otherwise.
        NameRule::PathSegment | NameRule::Any | NameRule::Given => names::path_segment_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeEnv, Shared};

    #[test]
    fn every_name_can_be_asked_for() {
        let check = |rule: NameRule, name: &str, right: bool| {
            assert_eq!(check_name(rule, name).is_empty(), right, "{name:?} by {rule:?}");
        };
        for rule in [NameRule::PathSegment, NameRule::Any, NameRule::Given] {
            check(rule, "A b:c", true);
            for name in [".", "..", "a/b", "200%"] {
                check(rule, name, false);
            }
        }
    }

    #[test]
    fn a_long_base_is_cut_for_the_generated_name() {
        let mut object = json!({"metadata": {"generateName": "x".repeat(70)}});
        fill_system_fields(&mut object, &Shared(FakeEnv::new()));
        assert_eq!(name(&object).len(), 63);
        assert!(name(&object).starts_with(&"x".repeat(58)));
        assert_eq!(text(&object, "creationTimestamp"), "2026-09-21T14:13:20Z");
    }

    #[test]
    fn the_same_owner_again_is_one() {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner, owner]}});
        let warning = dedup_owners(&mut object, false).expect("a warning");
        assert!(warning.ends_with("duplicate UID(s) observed: 1, 1"), "{warning}");
        assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
    }
}
