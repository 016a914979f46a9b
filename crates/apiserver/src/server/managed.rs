//! `metadata.managedFields`: the field manager for which a write is entered. The effect of a write on the fields is
//! decided in `kubewright_schema::apply`.
//!
//! Invariants: entries change before admission, so that fields set by webhooks and the server stay unowned; entries
//! that cannot be read never fail a write; a write of the server itself (a binding, a delete) leaves the entries alone.

use crate::model::form::object_type;
use std::collections::BTreeSet;

use http::HeaderMap;
use kubewright_schema::apply::{self, ManagedFields, Manager, ObjectType, Operation};
use kubewright_schema::catalog;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::{Map, Value};

use super::write::Part;
use crate::model::Resource;
use crate::model::object;
use crate::values::get;

/// Longest name of a manager, in bytes.
const MAX_NAME: usize = 128;
const KEY: &str = "managedFields";

/// How a write is entered in `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The entries stay as they are.
    Untouched,
    /// The changed fields belong to this manager.
    Update(String),
    /// The written object has the entries itself (apply, scale).
    Given,
}

impl Tracking {
    /// The name of the manager, if there is one.
    pub(crate) fn manager(&self) -> &str {
        match self {
            Tracking::Update(name) => name,
            Tracking::Untouched | Tracking::Given => "",
        }
    }
}

/// `fieldManager`, or the beginning of the User-Agent.
pub(crate) fn manager_name(field_manager: &str, headers: &HeaderMap) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let agent = headers
        .get(http::header::USER_AGENT)
        .map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let agent = agent.unwrap_or_default();
    let mut name = String::new();
    for c in agent
        .split('/')
        .next()
        .unwrap_or("")
        .chars()
        .filter(|c| !c.is_control())
    {
        if name.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        name.push(c);
    }
    name
}

/// How the fields of a kind are looked at by a write to a subresource.
pub(crate) fn type_written(resource: &Resource, subresource: &str) -> ObjectType {
    let kind = object_type(resource);
    let reset = resource.strategy.reset.iter().find(|(part, _)| *part == subresource);
    match reset {
        Some((_, fields)) => kind.with_reset(fields),
        None => kind,
    }
}

pub(crate) fn entries(object: &Value) -> Option<&Value> {
    object.get("metadata").and_then(|metadata| metadata.get(KEY))
}

/// The versions in which entries were written.
pub(crate) fn versions(entries: Option<&Value>) -> BTreeSet<&str> {
    let entries = entries.and_then(Value::as_array).into_iter().flatten();
    let versions = entries.filter_map(|entry| entry.get("apiVersion").and_then(Value::as_str));
    versions.filter(|version| !version.is_empty()).collect()
}

/// A copy of an object without the entries, which are often the larger part of it.
pub(crate) fn without(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let copied = fields.iter().map(|(field, value)| match value {
        Value::Object(metadata) if field == "metadata" => {
            let kept = metadata.iter().filter(|(field, _)| *field != KEY);
            let kept = kept.map(|(field, value)| (field.clone(), value.clone()));
            (field.clone(), Value::Object(kept.collect()))
        }
        other => (field.clone(), other.clone()),
    });
    Value::Object(copied.collect())
}

/// The entries of an object; none where they cannot be read.
pub(crate) fn decode(object: &Value) -> ManagedFields {
    decode_entries(entries(object))
}

/// The same of entries by themselves.
pub(crate) fn decode_entries(entries: Option<&Value>) -> ManagedFields {
    ManagedFields::decode(entries).unwrap_or_default()
}

/// Takes the written entries of an object out of it.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove(KEY)
}

/// Puts them back.
pub(crate) fn put_if_any(object: &mut Value, entries: Option<Value>) {
    if entries.is_some() {
        put(object, entries);
    }
}

/// Replaces the entries of an object.
pub(crate) fn set(object: &mut Value, managed: ManagedFields) {
    put(object, managed.encode());
}

/// Replaces the written entries of an object, or takes them away.
pub(crate) fn put(object: &mut Value, entries: Option<Value>) {
    let metadata = object::metadata_mut(object);
    match entries {
        Some(entries) => metadata.insert(KEY.to_owned(), entries),
        None => metadata.remove(KEY),
    };
}

/// Puts the entries back that an object had before a plugin changed it, should the plugin have left some that cannot be
/// read; answers the warning that the client gets.
pub(crate) fn check_admitted(object: &mut Value, before: &Value) -> Option<String> {
    let before = entries(before);
    if entries(object) == before {
        return None;
    }
    let why = ManagedFields::decode(entries(object)).err()?;
    put(object, before.cloned());
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission \
         controller; please fix your requests: {why}"
    ))
}

/// Enters a create.
pub(crate) fn track_create(
    resource: &Resource,
    tracking: &Tracking,
    object: &mut Value,
    now: &str,
    views: &apply::Views,
) {
    match tracking {
        Tracking::Given => {}
        Tracking::Untouched => put(object, None),
        Tracking::Update(name) => {
            let claimed = object::metadata_mut(object).remove(KEY);
            let mut managed = ManagedFields::decode(claimed.as_ref()).unwrap_or_default();
            let version = resource.api_version();
            let manager = Manager::new(name, Operation::Update, &version, "");
            // The status that a create ignores stays unowned, too.
            let status = resource.has_status().then(|| ("status".to_owned(), None));
            let kept = exchange(object, status.into_iter().collect());
            apply::update_seen(
                &type_written(resource, ""),
                &Value::Null,
                object,
                &mut managed,
                &manager,
                &version,
                now,
                views,
            );
            exchange(object, kept);
            set(object, managed);
        }
    }
}

/// Enters a create of an object that is answered and never stored, at this subresource.
pub(crate) fn track_virtual(resource: &Resource, manager: &str, subresource: &str, object: &mut Value, now: &str) {
    object::metadata_mut(object).remove(KEY);
    let mut managed = ManagedFields::default();
    let version = resource.api_version();
    let manager = Manager::new(manager, Operation::Update, &version, subresource);
    apply::update(
        &object_type(resource),
        &Value::Null,
        object,
        &mut managed,
        &manager,
        &version,
        now,
    );
    set(object, managed);
}

/// The fields beside metadata, spec and status in which a write to the status of a custom resource differs. They are
/// not stored, yet upstream counts them as written.
pub(crate) fn beside_status(resource: &Resource, part: Part, new: &Value, old: &Value) -> Vec<(String, Option<Value>)> {
    let (Part::Status, Some(_), Some(new), Some(old)) = (part, &resource.custom, new.as_object(), old.as_object())
    else {
        return Vec::new();
    };
    let keys = new.keys().chain(old.keys().filter(|key| !new.contains_key(*key)));
    keys.filter(|key| !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()))
        .filter(|key| new.get(*key) != old.get(*key))
        .map(|key| (key.clone(), new.get(key).cloned()))
        .collect()
}

/// Fields of an object and their values; without a value they are absent.
pub(crate) type Fields = Vec<(String, Option<Value>)>;

/// Puts values of top-level fields in, and gives back those that were there.
pub(crate) fn exchange(object: &mut Value, fields: Fields) -> Fields {
    let Some(map) = object.as_object_mut() else {
        return Vec::new();
    };
    let swapped = fields.into_iter().map(|(key, value)| {
        let before = match value {
            Some(value) => map.insert(key.clone(), value),
            None => map.remove(&key),
        };
        (key, before)
    });
    swapped.collect()
}

/// Enters a document that was posted to a subresource. It is not stored: plugins see it.
pub(crate) fn track_posted(kind: &GroupVersionKind, subresource: &str, manager: &str, document: &mut Value, now: &str) {
    put(document, None);
    let Some(schema) = catalog::for_kind(&kind.group, &kind.version, &kind.kind) else {
        return;
    };
    let version = document
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let manager = Manager::new(manager, Operation::Update, &version, subresource);
    let mut managed = ManagedFields::default();
    let shape = ObjectType::built_in(schema);
    apply::update(&shape, &Value::Null, document, &mut managed, &manager, &version, now);
    set(document, managed);
}

/// Enters an update of a part; `claimed` are the entries that the client sent, `beside` is the result of
/// [`beside_status`].
#[expect(clippy::too_many_arguments, reason = "a write is that many things, each once")]
pub(crate) fn track_update(
    resource: &Resource,
    tracking: &Tracking,
    part: Part,
    claimed: Option<Value>,
    beside: Vec<(String, Option<Value>)>,
    new: &mut Value,
    old: &Value,
    now: &str,
    views: &apply::Views,
) {
    let present = entries(old);
    let name = match tracking {
        Tracking::Given => return put(new, claimed),
        Tracking::Untouched => return put(new, present.cloned()),
        Tracking::Update(name) => name,
    };
    let subresource = part.subresource();
    // A subresource cannot hand ownership around, and a client that knows nothing of it must not lose it.
    let mut given = None;
    if let (true, Some(claimed)) = (subresource.is_empty(), claimed)
        && Some(&claimed) != present
    {
        if apply::is_reset(&claimed) {
            return put(new, None);
        }
        given = ManagedFields::decode(Some(&claimed))
            .ok()
            .filter(|managed| !managed.entries.is_empty());
    }
    let replaced = given.is_some();
    let mut managed = given.unwrap_or_else(|| decode(old));
    let version = resource.api_version();
    let manager = Manager::new(name, Operation::Update, &version, subresource);
    object::metadata_mut(new).remove(KEY);
    let kept = exchange(new, beside);
    let kind = type_written(resource, subresource);
    let changed = apply::update_seen(&kind, old, new, &mut managed, &manager, &version, now, views);
    exchange(new, kept);
    // Of entries that look alike only one was read: the others are gone with any write.
    let lost = present.and_then(Value::as_array).map_or(0, Vec::len) > managed.entries.len();
    if changed || replaced || lost {
        set(new, managed);
    } else {
        put(new, present.cloned());
    }
}

/// Puts the present entries back when a write changed nothing but their times, so that it is no write.
pub(crate) fn keep_times(new: &mut Value, old: &Value) {
    if entries(new) == entries(old) {
        return;
    }
    let same = |key: &str| new.get(key) == old.get(key);
    let fields = |object: &Value| object.as_object().map_or(0, serde_json::Map::len);
    let unchanged = fields(new) == fields(old)
        && new
            .as_object()
            .is_some_and(|map| map.keys().filter(|key| *key != "metadata").all(|key| same(key)))
        && same_metadata(new, old);
    if unchanged && same_but_times(entries(new), entries(old)) {
        put(new, entries(old).cloned());
    }
}

fn same_metadata(new: &Value, old: &Value) -> bool {
    let none = Map::new();
    let of = |object| Value::as_object(get(object, &["metadata"])).unwrap_or(&none);
    same_beside(of(new), of(old), &[KEY, "resourceVersion"])
}

/// Whether entries are the same but for when they were written.
fn same_but_times(new: Option<&Value>, old: Option<&Value>) -> bool {
    let list = |entries| Option::and_then(entries, Value::as_array).map_or(&[][..], Vec::as_slice);
    let (new, old): (&[Value], &[Value]) = (list(new), list(old));
    let same = |(new, old): (&Value, &Value)| match (new, old) {
        (Value::Object(new), Value::Object(old)) => same_beside(new, old, &["time"]),
        (new, old) => new == old,
    };
    new.len() == old.len() && new.iter().zip(old).all(same)
}

/// Whether two maps are the same but for some of their fields. Entries are large, and are not copied for that.
fn same_beside(new: &Map<String, Value>, old: &Map<String, Value>, fields: &[&str]) -> bool {
    let kept = |(field, _): &(&String, &Value)| !fields.contains(&field.as_str());
    new.iter().filter(kept).eq(old.iter().filter(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_have_names() {
        for (field_manager, agent, want) in [
            ("m", "kubectl/v1.36", "m"),
            ("", "kubectl/v1.36 (linux/amd64)", "kubectl"),
            ("", "curl", "curl"),
            ("", "", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::USER_AGENT, agent.parse().expect("a header"));
            assert_eq!(manager_name(field_manager, &headers), want);
        }
        let mut headers = HeaderMap::new();
        headers.insert(http::header::USER_AGENT, "x".repeat(200).parse().expect("a header"));
        assert_eq!(manager_name("", &headers).len(), MAX_NAME);
    }
}
