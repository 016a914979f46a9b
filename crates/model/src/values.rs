//! Small functions over JSON values: absent, `null` and Go's zero value are the same to them where they are the same to
//! Go.
//!
//! Rules read through [`At`], which answers absent fields with `null`, and write into [`Errors`].

use kubewright_schema::{budget, measure};
use serde_json::map::Entry;
use serde_json::{Map, Value};

pub use kubewright_schema::check::{At, Errors};

/// A JSON object.
pub type Object = Map<String, Value>;

/// The object below `key` if there is one.
pub fn child<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The object below `key`, made when absent or `null`; none when something else is there.
pub fn ensure<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let there = map.len();
    let slot = match map.entry(key) {
        Entry::Occupied(present) => present.into_mut(),
        Entry::Vacant(absent) => {
            measure::count_field(there);
            absent.insert(Value::Null)
        }
    };
    if slot.is_null() {
        *slot = Value::Object(Object::new());
    }
    slot.as_object_mut()
}

/// The objects in the list below `key`.
pub fn each<'a>(map: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> + use<'a> {
    map.get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Whether `key` is absent or `null`.
pub fn absent(map: &Object, key: &str) -> bool {
    map.get(key).is_none_or(Value::is_null)
}

/// A default is made, not sent: where there is one for each of many items, it may be the larger part of an object.
fn put(map: &mut Object, key: &str, value: Value) {
    measure::count_field(map.len());
    map.insert(key.to_owned(), value);
}

/// Sets `key` when it is absent or `null` (a nil pointer).
pub fn fill(map: &mut Object, key: &str, value: impl Into<Value>) {
    if absent(map, key) {
        put(map, key, value.into());
    }
}

/// Sets `key` when it is absent, `null` or the empty text.
pub fn fill_text(map: &mut Object, key: &str, value: &str) {
    if map.get(key).is_none_or(|present| present.is_null() || present == "") {
        put(map, key, value.into());
    }
}

/// Sets `key` when it is absent, `null` or 0.
pub fn fill_number(map: &mut Object, key: &str, value: i64) {
    if map.get(key).is_none_or(|present| present.is_null() || *present == 0) {
        put(map, key, value.into());
    }
}

/// The text below `key`, empty when there is none.
pub fn text<'a>(map: &'a Object, key: &str) -> &'a str {
    budget::spend(2);
    map.get(key).and_then(Value::as_str).unwrap_or("")
}

/// The value at a path of keys; `null` when absent.
pub fn get<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    budget::spend(2 * keys.len());
    keys.iter()
        .fold(value, |value, key| value.get(key).unwrap_or(&Value::Null))
}

/// Takes `key` of `old` into `new`, or removes it when `old` has none: for a field that a client may not change in this
/// request.
pub fn keep(new: &mut Value, old: &Value, key: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// The list at a path of keys; empty when there is none.
pub fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    get(value, path).as_array().map_or(&[], Vec::as_slice)
}
