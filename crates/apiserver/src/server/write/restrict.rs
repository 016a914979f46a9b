//! The fields of an object that a write to one part may change (the reset of fields in upstream's strategies).

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::Part;
use crate::model::{Resource, StatusMetadata, object};
use crate::server::managed::{self, Fields};

/// Fields from the client that a write may not change: set apart while the written fields are determined.
#[derive(Default)]
pub(super) struct ResetFields {
    /// The whole object as it was sent, where nearly nothing of it may be written.
    whole: Option<Value>,
    fields: Fields,
    metadata: Fields,
}

impl ResetFields {
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_none() && self.fields.is_empty() && self.metadata.is_empty()
    }

    /// Puts the client's fields back into the object, but not its `managedFields`.
    pub(super) fn put_back(self, object: &mut Value) {
        if let Some(whole) = self.whole {
            let entries = managed::entries(object).cloned();
            *object = whole;
            managed::put(object, entries);
        }
        if let (false, Some(metadata)) = (self.metadata.is_empty(), object.get_mut("metadata")) {
            managed::exchange(metadata, self.metadata);
        }
        managed::exchange(object, self.fields);
    }
}

/// Restores old values of fields in a map; answers the replaced ones. Nearly all of them are equal, and an equal value
/// is not copied.
fn put_back<'f>(
    new: &mut Map<String, Value>,
    old: &Map<String, Value>,
    fields: impl IntoIterator<Item = &'f str>,
) -> Fields {
    let mut reset = Fields::new();
    for field in fields {
        let was = match (old.get(field), new.get_mut(field)) {
            (None, None) => continue,
            (Some(value), Some(present)) if present == value => continue,
            (Some(value), Some(present)) => Some(std::mem::replace(present, value.clone())),
            (Some(value), None) => new.insert(field.to_owned(), value.clone()),
            (None, Some(_)) => new.remove(field),
        };
        reset.push((field.to_owned(), was));
    }
    reset
}

/// Restores a map, except for some of its fields.
fn put_all_back(new: &mut Map<String, Value>, old: &Map<String, Value>, written: &[&str]) -> Fields {
    let strange = |field: &&String| !written.contains(&field.as_str()) && !old.contains_key(*field);
    let strange: Vec<String> = new.keys().filter(strange).cloned().collect();
    let kept = old.keys().map(String::as_str).filter(|field| !written.contains(field));
    put_back(new, old, strange.iter().map(String::as_str).chain(kept))
}

/// The fields of an object that a write to this part reaches.
pub(in crate::server) fn reached<'o>(resource: &Resource, object: &'o Value, part: Part) -> Cow<'o, Value> {
    match part {
        Part::Main if !resource.has_status() || object.get("status").is_none() => Cow::Borrowed(object),
        Part::Main | Part::Status => {
            let mut object = object.clone();
            restrict(resource, &mut object, &json!({"metadata": {}}), part);
            Cow::Owned(object)
        }
        _ => Cow::Borrowed(object),
    }
}

/// The same where the sent object is not needed any more.
pub(super) fn restrict_for_good(resource: &Resource, new: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Of(portion) => (portion.restrict)(new, old),
        _ => drop(restrict(resource, new, old, part)),
    }
}

/// Puts back the fields that a write to this part may not change. [`managed`] handles their ownership.
pub(super) fn restrict(resource: &Resource, new: &mut Value, old: &Value, part: Part) -> ResetFields {
    let none = Map::new();
    let before = old.as_object().unwrap_or(&none);
    let mut reset = ResetFields::default();
    match part {
        Part::Main => {
            if let (true, Some(map)) = (resource.has_status(), new.as_object_mut()) {
                reset.fields = put_back(map, before, ["status"]);
            }
        }
        Part::Status => {
            let metadata = before.get("metadata").and_then(Value::as_object).unwrap_or(&none);
            let written = object::metadata_mut(new);
            reset.metadata = match resource.strategy.status_metadata {
                StatusMetadata::Kept => put_all_back(written, metadata, &["managedFields"]),
                StatusMetadata::WrittenBut(kept) => put_back(written, metadata, kept.iter().copied()),
            };
            if let Some(map) = new.as_object_mut() {
                reset.fields = put_all_back(map, before, &["metadata", "status"]);
            }
        }
        Part::Of(portion) => {
            let whole = new.clone();
            (portion.restrict)(new, old);
            reset.whole = Some(whole);
        }
        Part::Whole | Part::Raw => {}
    }
    reset
}
