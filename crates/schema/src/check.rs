//! How rules look at an object: a value with its field path, and a list of errors.
//!
//! Rules read through [`At`], which answers absent fields with `null`, and write into [`Errors`]; so a rule never
//! panics on a shape that it does not expect, and every error has its path for free.

pub mod webhook;

use serde_json::Value;

use crate::budget;
use crate::error::{FieldError, Reason, quote};
use crate::path::FieldPath;

/// A value and where it is. Absent is `null`.
#[derive(Clone, Debug)]
pub struct At<'a> {
    /// The value; `null` when absent.
    pub value: &'a Value,
    /// Where it is.
    pub path: FieldPath,
}

impl<'a> At<'a> {
    /// A whole object.
    pub fn root(value: &'a Value) -> Self {
        At {
            value,
            path: FieldPath::root(),
        }
    }

    /// The value at another place: for rules that Kubernetes reports under a path of its own.
    pub fn moved(&self, path: FieldPath) -> Self {
        At {
            value: self.value,
            path,
        }
    }

    /// A field.
    pub fn key(&self, name: &str) -> At<'a> {
        At {
            value: self.value.get(name).unwrap_or(&Value::Null),
            path: self.path.key(name),
        }
    }

    /// Whether a field is there. Of most fields nothing else is asked, so their paths are not made.
    pub fn has(&self, name: &str) -> bool {
        budget::spend(2);
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a field is a list or a map with something in it.
    pub fn has_some(&self, name: &str) -> bool {
        budget::spend(2);
        match self.value.get(name) {
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            _ => false,
        }
    }

    /// Whether there is a field other than these. Most items of a long list have only a few common fields: one pass
    /// over those is cheaper than a lookup of each field that an item might have.
    pub fn has_beyond(&self, names: &[&str]) -> bool {
        let Some(map) = self.value.as_object() else {
            return false;
        };
        budget::spend(map.len());
        map.keys().any(|key| !names.contains(&key.as_str()))
    }

    /// The text of a field, as [`At::has`] looks at it.
    pub fn text_of(&self, name: &str) -> &'a str {
        budget::spend(2);
        self.value.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A field below a field: `at.keys(&["spec", "template"])`.
    pub fn keys(&self, names: &[&str]) -> At<'a> {
        names.iter().fold(self.clone(), |at, name| at.key(name))
    }

    /// The items of a list; none for anything else.
    pub fn items(&self) -> impl Iterator<Item = At<'a>> + use<'a> {
        let path = self.path.clone();
        let list: &'a [Value] = self.value.as_array().map_or(&[], Vec::as_slice);
        list.iter().enumerate().map(move |(index, value)| At {
            value,
            path: path.index(index),
        })
    }

    /// The items of a list that have a field. The paths of the others are not made.
    pub fn items_with(&self, name: &'static str) -> impl Iterator<Item = At<'a>> + use<'a> {
        let list: &'a [Value] = self.value.as_array().map_or(&[], Vec::as_slice);
        budget::spend(2 * list.len());
        let path = self.path.clone();
        let with = move |(_, value): &(usize, &'a Value)| value.get(name).is_some_and(|value| !value.is_null());
        list.iter().enumerate().filter(with).map(move |(index, value)| At {
            value,
            path: path.index(index),
        })
    }

    /// The entries of a map, with paths such as `limits[cpu]`; none for anything else.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, At<'a>)> + use<'a> {
        let path = self.path.clone();
        self.value
            .as_object()
            .into_iter()
            .flat_map(|map| map.iter())
            .map(move |(key, value)| {
                (
                    key.as_str(),
                    At {
                        value,
                        path: path.map_key(key),
                    },
                )
            })
    }

    /// Whether there is something.
    pub fn present(&self) -> bool {
        !self.value.is_null()
    }

    /// The text; empty when absent or something else.
    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or("")
    }

    /// The whole number, if it is one.
    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Whether it is `true`.
    pub fn is_true(&self) -> bool {
        self.value.as_bool() == Some(true)
    }

    /// How many items or entries; 0 for anything else.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// Whether there are no items or entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The errors in an object.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// All errors, in the order of the rules.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Adds errors.
    pub fn extend(&mut self, errors: Vec<FieldError>) {
        self.0.extend(errors);
    }

    /// `Required value`.
    pub fn required(&mut self, at: &At<'_>, detail: &str) {
        self.push(FieldError::required(at.path.to_string(), detail));
    }

    /// `Invalid value`, showing the value.
    pub fn invalid(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.refuse(Reason::Invalid, at, Some(at.value.clone()), detail.into());
    }

    /// `Invalid value`, showing another value.
    pub fn invalid_value(&mut self, at: &At<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.refuse(Reason::Invalid, at, Some(value.into()), detail.into());
    }

    fn refuse(&mut self, reason: Reason, at: &At<'_>, bad_value: Option<Value>, detail: String) {
        let error = FieldError {
            reason,
            field: at.path.to_string(),
            bad_value,
            detail,
        };
        self.push(error.counted());
    }

    /// `Forbidden`.
    pub fn forbidden(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.refuse(Reason::Forbidden, at, None, detail.into());
    }

    /// `Duplicate value`.
    pub fn duplicate(&mut self, at: &At<'_>) {
        self.push(FieldError::duplicate(at.path.to_string(), at.value.clone()));
    }

    /// `Not found`.
    pub fn not_found(&mut self, at: &At<'_>) {
        self.push(FieldError::not_found(at.path.to_string(), at.value.clone()));
    }

    /// `Unsupported value` with the supported ones in the order given (the order in Kubernetes' text).
    pub fn unsupported(&mut self, at: &At<'_>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.refuse(Reason::NotSupported, at, Some(at.text().into()), detail);
    }

    /// One error for each message.
    pub fn messages(&mut self, at: &At<'_>, messages: Vec<String>) {
        for message in messages {
            self.invalid(at, message);
        }
    }

    /// The text must be one of these; an empty text is `Required` when `required`, else unchecked.
    pub fn one_of(&mut self, at: &At<'_>, supported: &[&str], required: bool) {
        if at.text().is_empty() {
            if required {
                self.required(at, "");
            }
        } else if !supported.contains(&at.text()) {
            self.unsupported(at, supported);
        }
    }

    /// [`Errors::one_of`] of a field, whose path is made where something is wrong.
    pub fn field_of(&mut self, at: &At<'_>, field: &str, supported: &[&str], required: bool) {
        let text = at.text_of(field);
        let fits = if text.is_empty() {
            !required
        } else {
            supported.contains(&text)
        };
        if !fits {
            self.one_of(&at.key(field), supported, required);
        }
    }

    /// The text, where there is one, must be one of these; an empty one is no exception.
    pub fn one_of_all(&mut self, at: &At<'_>, supported: &[&str]) {
        if at.present() && !supported.contains(&at.text()) {
            self.unsupported(at, supported);
        }
    }

    /// The number must not be below 0.
    pub fn non_negative(&mut self, at: &At<'_>) {
        if at.int().is_some_and(|value| value < 0) {
            self.invalid(at, "must be greater than or equal to 0");
        }
    }

    /// A field that may not change: reported at the new value (`ValidateImmutableField`).
    pub fn immutable(&mut self, new: &At<'_>, old: &At<'_>) {
        if new.value != old.value && !semantically_equal(new.value, old.value) {
            self.invalid(new, "field is immutable");
        }
    }
}

/// The fields of Go that are maps: an empty one is none, while an empty struct is something.
const MAPS: [&str; 8] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "overhead",
    "requests",
    "unverifiedUserAnnotations",
];

/// Whether both are the same to Go's `equality.Semantic`, for which an empty list or map is none.
pub fn semantically_equal(a: &Value, b: &Value) -> bool {
    budget::spend(1);
    let is_none = |key: &str, value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && MAPS.contains(&key),
        value => value.is_null(),
    };
    match (a, b) {
        (Value::Object(some), Value::Object(other)) => {
            let fits = |(key, value): (&String, &Value)| {
                let other = other.get(key).unwrap_or(&Value::Null);
                (is_none(key, value) && is_none(key, other)) || semantically_equal(value, other)
            };
            let is_left = |(key, value): (&String, &Value)| some.contains_key(key) || is_none(key, value);
            some.iter().all(fits) && other.iter().all(is_left)
        }
        (Value::Array(some), Value::Array(other)) if some.len() == other.len() => {
            some.iter().zip(other).all(|(a, b)| semantically_equal(a, b))
        }
        _ => a == b || (is_none("", a) && is_none("", b)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_asked_for_without_their_paths() {
        let pod = json!({"list": [{"name": "a"}, {"name": "b", "ports": [1]}, {"name": "c", "ports": null}, 7]});
        let list = At::root(&pod).key("list");
        let check = |item: usize, beyond: bool, some: bool| {
            let item = At::root(&list.value[item]);
            assert_eq!(
                (item.has_beyond(&["name"]), item.has_some("ports")),
                (beyond, some),
                "{item:?}"
            );
        };
        check(0, false, false);
        check(1, true, true);
        // A null counts as one more field: the rules look at it themselves.
        check(2, true, false);
        check(3, false, false);
        let with: Vec<String> = list.items_with("ports").map(|item| item.path.to_string()).collect();
        assert_eq!(with, ["list[1]"]);
    }

    #[test]
    fn an_empty_list_is_no_change() {
        let check = |new: Value, old: Value, changed: bool| {
            let mut errors = Errors::default();
            errors.immutable(&At::root(&new), &At::root(&old));
            assert_eq!(errors.into_vec().len(), usize::from(changed), "{new} for {old}");
        };
        check(json!({"a": {"b": [], "c": 1}}), json!({"a": {"c": 1}}), false);
        check(json!({"a": [{"b": null}]}), json!({"a": [{"b": []}], "c": []}), false);
        check(json!([]), json!(null), false);
        check(json!({"a": {}}), json!({}), true);
        check(json!({"a": [1]}), json!({"a": []}), true);
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), true);
        check(json!({"a": ""}), json!({}), true);
    }
}
