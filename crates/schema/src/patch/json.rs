//! JSON patch (RFC 6902) with the habits of the library that the API server uses: negative indexes count from the end, `replace` of a
//! missing field of an object sets it, an index such as `01` is read as 1.
//!
//! Invariants: at most [`MAX_OPERATIONS`]; what `copy` adds is bounded, for a copy of a copy doubles; the result nests no deeper than
//! what the decoder would take.

use std::fmt;

use serde_json::{Map, Value};

use crate::decode::MAX_DEPTH;

/// More operations are refused.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes of JSON `copy` may add in one patch: as many as a request may have.
const MAX_COPIED: usize = 3 << 20;

/// How many values may be visited to see how deep moved ones are. Only a document near [`MAX_DEPTH`] needs any.
const MAX_VISITED: usize = 5_000_000;

/// Why a JSON patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonPatchError {
    /// The patch is not a list of objects; the text is Go's.
    NotAList(String),
    /// There are so many operations, more than [`MAX_OPERATIONS`].
    TooMany(usize),
    /// The value at this path is not the one that `test` expects.
    TestFailed(String),
    /// There is nothing at this path, or it cannot be reached.
    Missing(String),
    /// An operation is malformed.
    BadOp(String),
    /// The patch makes the document larger or deeper than any request could.
    TooLarge(String),
}

impl fmt::Display for JsonPatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAList(text) | Self::BadOp(text) | Self::TooLarge(text) => f.write_str(text),
            Self::TooMany(count) => {
                write!(
                    f,
                    "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
                )
            }
            Self::TestFailed(path) => write!(f, "testing value {path} failed: test failed"),
            Self::Missing(path) => write!(f, "doc is missing path: \"{path}\": missing value"),
        }
    }
}

impl std::error::Error for JsonPatchError {}

/// The document with the operations applied, all of them or, on an error, none.
///
/// ```
/// use kubewright_schema::patch::json;
/// use serde_json::json;
/// let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/l/-", "value": "y"}]);
/// let patched = json::apply(&json!({"a": 1, "l": ["x"]}), &patch)?;
/// assert_eq!(patched, json!({"a": 1, "l": ["x", "y"]}));
/// # Ok::<(), json::JsonPatchError>(())
/// ```
///
/// # Errors
/// [`JsonPatchError`] of the first operation that does not apply.
pub fn apply(doc: &Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let operations = operations(patch)?;
    let mut patching = Patching {
        depth: depth(doc),
        doc: doc.clone(),
        copied: 0,
        visited: 0,
    };
    for operation in operations {
        patching.operation(operation)?;
    }
    Ok(patching.doc)
}

/// The fields of operations that mean nothing, as strict field validation names them: `json patch unknown field "[0].odd"`.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for field in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(field.as_str(), "op" | "path" | "from" | "value") {
                unknown.push(format!("json patch unknown field \"[{index}].{field}\""));
            }
        }
    }
    unknown
}

fn operations(patch: &Value) -> Result<Vec<&Map<String, Value>>, JsonPatchError> {
    let not = |value: &Value, of: &str| {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        JsonPatchError::NotAList(format!("json: cannot unmarshal {found} into Go value of type {of}"))
    };
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => return Err(not(other, "[]handlers.jsonPatchOp")),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooMany(operations.len()));
    }
    operations
        .iter()
        .map(|operation| {
            operation
                .as_object()
                .ok_or_else(|| not(operation, "handlers.jsonPatchOp"))
        })
        .collect()
}

/// A path without its escapes.
struct Pointer {
    written: String,
    parents: Vec<String>,
    last: String,
}

impl Pointer {
    fn parse(written: &str) -> Result<Self, JsonPatchError> {
        // What is before the first slash is not looked at; without a slash the path leads nowhere.
        let mut parts = written
            .split('/')
            .skip(1)
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect::<Vec<_>>();
        let last = parts.pop().ok_or_else(|| JsonPatchError::Missing(written.to_owned()))?;
        Ok(Self {
            written: written.to_owned(),
            parents: parts,
            last,
        })
    }

    fn missing(&self) -> JsonPatchError {
        JsonPatchError::Missing(self.written.clone())
    }
}

/// An index into a list of so many items, counted from the end when negative.
fn index(written: &str, count: usize) -> Option<usize> {
    let index: i64 = written.parse().ok()?;
    let from_end = if index < 0 { i64::try_from(count).ok()? } else { 0 };
    usize::try_from(index.checked_add(from_end)?)
        .ok()
        .filter(|index| *index < count)
}

struct Patching {
    doc: Value,
    /// The document nests no deeper than this.
    depth: usize,
    copied: usize,
    visited: usize,
}

impl Patching {
    fn operation(&mut self, operation: &Map<String, Value>) -> Result<(), JsonPatchError> {
        let text = |field: &str| {
            let found = operation.get(field).and_then(Value::as_str);
            found.ok_or_else(|| JsonPatchError::BadOp(format!("operation is missing its {field}")))
        };
        let value = || operation.get("value").cloned().unwrap_or_default();
        match operation.get("op").and_then(Value::as_str).unwrap_or_default() {
            "add" => self.add(&Pointer::parse(text("path")?)?, value()),
            "remove" => self.remove(&Pointer::parse(text("path")?)?).map(drop),
            "replace" => self.replace(text("path")?, value()),
            "move" => {
                let from = Pointer::parse(text("from")?)?;
                let moved = self.remove(&from)?;
                let to = Pointer::parse(text("path")?)?;
                let deep = self.depth.saturating_sub(from.parents.len() + 1);
                self.insert(&to, moved, deep)
            }
            "copy" => self.copy(&Pointer::parse(text("from")?)?, &Pointer::parse(text("path")?)?),
            "test" => self.test(text("path")?, operation.get("value").unwrap_or(&Value::Null)),
            other => Err(JsonPatchError::BadOp(format!("Unexpected kind: {other}"))),
        }
    }

    /// What holds the value that the path names.
    fn parent(&mut self, pointer: &Pointer) -> Result<&mut Value, JsonPatchError> {
        let mut at = &mut self.doc;
        for part in &pointer.parents {
            at = match at {
                Value::Object(fields) => fields.get_mut(part),
                Value::Array(items) => match index(part, items.len()) {
                    Some(index) => items.get_mut(index),
                    None => None,
                },
                _ => None,
            }
            .ok_or_else(|| pointer.missing())?;
        }
        if at.is_object() || at.is_array() {
            Ok(at)
        } else {
            Err(pointer.missing())
        }
    }

    /// The value itself. A field that an object does not have is none, an item that a list does not have an error.
    fn get(&mut self, pointer: &Pointer) -> Result<Option<&Value>, JsonPatchError> {
        match self.parent(pointer)? {
            Value::Object(fields) => Ok(fields.get(&pointer.last)),
            Value::Array(items) => match index(&pointer.last, items.len()) {
                Some(index) => Ok(items.get(index)),
                None => Err(pointer.missing()),
            },
            _ => Err(pointer.missing()),
        }
    }

    fn add(&mut self, pointer: &Pointer, value: Value) -> Result<(), JsonPatchError> {
        let deep = depth(&value);
        self.insert(pointer, value, deep)
    }

    /// Adds a value that nests no deeper than `deep`.
    fn insert(&mut self, pointer: &Pointer, value: Value, deep: usize) -> Result<(), JsonPatchError> {
        self.grow(pointer, &value, deep)?;
        match self.parent(pointer)? {
            Value::Object(fields) => {
                fields.insert(pointer.last.clone(), value);
            }
            Value::Array(items) if pointer.last == "-" => items.push(value),
            Value::Array(items) => {
                let index = index(&pointer.last, items.len() + 1).ok_or_else(|| pointer.missing())?;
                items.insert(index, value);
            }
            _ => return Err(pointer.missing()),
        }
        Ok(())
    }

    /// Keeps the bound on the depth. Only where the bound is not enough is the value measured, so that moving costs next to nothing.
    fn grow(&mut self, pointer: &Pointer, value: &Value, deep: usize) -> Result<(), JsonPatchError> {
        let above = pointer.parents.len() + 1;
        let mut deep = deep;
        if above + deep > MAX_DEPTH {
            self.visited += count(value);
            if self.visited > MAX_VISITED {
                return Err(JsonPatchError::TooLarge(
                    "the patch moves too much at too great a depth".to_owned(),
                ));
            }
            deep = depth(value);
        }
        if above + deep > MAX_DEPTH {
            return Err(JsonPatchError::TooLarge(format!(
                "the patch nests values more than {MAX_DEPTH} deep"
            )));
        }
        self.depth = self.depth.max(above + deep);
        Ok(())
    }

    fn remove(&mut self, pointer: &Pointer) -> Result<Value, JsonPatchError> {
        match self.parent(pointer)? {
            Value::Object(fields) => fields.remove(&pointer.last),
            Value::Array(items) => index(&pointer.last, items.len()).map(|index| items.remove(index)),
            _ => None,
        }
        .ok_or_else(|| pointer.missing())
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), JsonPatchError> {
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(JsonPatchError::BadOp(
                    "replace operation value must be object or array".to_owned(),
                ));
            }
            self.depth = depth(&value);
            self.doc = value;
            return Ok(());
        }
        let pointer = Pointer::parse(path)?;
        self.grow(&pointer, &value, depth(&value))?;
        match self.parent(&pointer)? {
            Value::Object(fields) => {
                fields.insert(pointer.last, value);
            }
            Value::Array(items) => match index(&pointer.last, items.len()) {
                Some(index) => items[index] = value,
                None => return Err(pointer.missing()),
            },
            _ => return Err(pointer.missing()),
        }
        Ok(())
    }

    fn copy(&mut self, from: &Pointer, to: &Pointer) -> Result<(), JsonPatchError> {
        let copied = self.copied;
        let value = self.get(from)?;
        let size = copied + value.map_or(0, size);
        if size > MAX_COPIED {
            return Err(JsonPatchError::TooLarge(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {size}, exceeding the limit {MAX_COPIED}"
            )));
        }
        let value = value.cloned().unwrap_or_default();
        self.copied = size;
        self.add(to, value)
    }

    fn test(&mut self, path: &str, expected: &Value) -> Result<(), JsonPatchError> {
        let found = if path.is_empty() {
            Some(&self.doc)
        } else {
            self.get(&Pointer::parse(path)?)?
        };
        // A missing field equals null.
        if equal(found.unwrap_or(&Value::Null), expected) {
            Ok(())
        } else {
            Err(JsonPatchError::TestFailed(path.to_owned()))
        }
    }
}

/// Equality of values; numbers are compared as numbers.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| equal(left, right)))
        }
        _ => left == right,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// About how many bytes the value has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields
                .iter()
                .map(|(key, value)| key.len() + size(value) + 4)
                .sum::<usize>()
        }
        Value::String(text) => text.len() + 2,
        Value::Number(_) | Value::Bool(_) | Value::Null => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn doc() -> Value {
        json!({"data": {"a": "1", "d~e/f": "x"}, "metadata": {"finalizers": ["a", "b", "c"]}, "n": 1})
    }

    #[test]
    fn operations_apply() {
        let check = |patch: Value, path: &str, expected: Option<Value>| {
            let patched = apply(&doc(), &patch).unwrap_or_else(|error| panic!("{patch}: {error}"));
            assert_eq!(patched.pointer(path), expected.as_ref(), "{patch}");
        };
        let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
        check(op("add", "/data/b", json!("2")), "/data/b", Some(json!("2")));
        check(op("add", "/data/a", json!("2")), "/data/a", Some(json!("2")));
        check(json!([{"op": "add", "path": "/data/b"}]), "/data/b", Some(Value::Null));
        check(op("replace", "/data/zz", json!("2")), "/data/zz", Some(json!("2")));
        check(
            op("replace", "/data/d~0e~1f", json!("y")),
            "/data/d~0e~1f",
            Some(json!("y")),
        );
        check(op("remove", "/data/a", Value::Null), "/data/a", None);
        check(op("replace", "", json!({"x": 1})), "", Some(json!({"x": 1})));
        check(op("test", "/n", json!(1.0)), "/n", Some(json!(1)));
        check(op("test", "/data/zz", Value::Null), "/n", Some(json!(1)));
        check(op("test", "", doc()), "/n", Some(json!(1)));
        let list = "/metadata/finalizers";
        check(
            op("add", "/metadata/finalizers/-", json!("d")),
            list,
            Some(json!(["a", "b", "c", "d"])),
        );
        check(
            op("add", "/metadata/finalizers/3", json!("d")),
            list,
            Some(json!(["a", "b", "c", "d"])),
        );
        check(
            op("add", "/metadata/finalizers/0", json!("d")),
            list,
            Some(json!(["d", "a", "b", "c"])),
        );
        check(
            op("add", "/metadata/finalizers/-1", json!("d")),
            list,
            Some(json!(["a", "b", "c", "d"])),
        );
        check(
            op("replace", "/metadata/finalizers/01", json!("d")),
            list,
            Some(json!(["a", "d", "c"])),
        );
        check(
            op("remove", "/metadata/finalizers/-1", Value::Null),
            list,
            Some(json!(["a", "b"])),
        );
        check(
            json!([{"op": "copy", "from": "/data/a", "path": "/data/b"}]),
            "/data",
            Some(json!({"a": "1", "b": "1", "d~e/f": "x"})),
        );
        check(
            json!([{"op": "move", "from": "/data/a", "path": "/data/b"}]),
            "/data",
            Some(json!({"b": "1", "d~e/f": "x"})),
        );
        check(json!([]), "", Some(doc()));
    }

    #[test]
    fn what_does_not_apply() {
        use JsonPatchError::{BadOp, Missing, TestFailed};
        let check = |operation: Value, expected: JsonPatchError| {
            let patch = json!([{"op": "add", "path": "/data/first", "value": "1"}, operation]);
            assert_eq!(apply(&doc(), &patch), Err(expected), "{patch}");
        };
        let missing = |path: &str| Missing(path.to_owned());
        check(
            json!({"op": "test", "path": "/data/a", "value": "2"}),
            TestFailed("/data/a".into()),
        );
        check(
            json!({"op": "test", "path": "/data/zz", "value": "2"}),
            TestFailed("/data/zz".into()),
        );
        check(json!({"op": "remove", "path": "/data/zz"}), missing("/data/zz"));
        check(
            json!({"op": "add", "path": "/spec/x/y", "value": "2"}),
            missing("/spec/x/y"),
        );
        check(json!({"op": "add", "path": "/n/x", "value": "2"}), missing("/n/x"));
        check(json!({"op": "add", "path": "data", "value": {}}), missing("data"));
        check(json!({"op": "add", "path": "", "value": {}}), missing(""));
        check(
            json!({"op": "add", "path": "/metadata/finalizers/9", "value": "z"}),
            missing("/metadata/finalizers/9"),
        );
        check(
            json!({"op": "replace", "path": "/metadata/finalizers/3", "value": "z"}),
            missing("/metadata/finalizers/3"),
        );
        check(
            json!({"op": "remove", "path": "/metadata/finalizers/-4"}),
            missing("/metadata/finalizers/-4"),
        );
        check(
            json!({"op": "remove", "path": "/metadata/finalizers/x"}),
            missing("/metadata/finalizers/x"),
        );
        check(
            json!({"op": "frob", "path": "/data/a"}),
            BadOp("Unexpected kind: frob".into()),
        );
        check(json!({"path": "/data/a"}), BadOp("Unexpected kind: ".into()));
        check(
            json!({"op": "add", "value": "1"}),
            BadOp("operation is missing its path".into()),
        );
        check(
            json!({"op": "move", "path": "/a"}),
            BadOp("operation is missing its from".into()),
        );
        check(
            json!({"op": "replace", "path": "", "value": 1}),
            BadOp("replace operation value must be object or array".into()),
        );
    }

    #[test]
    fn what_is_no_patch() {
        let check = |patch: Value, text: &str| {
            assert_eq!(
                apply(&doc(), &patch).map_err(|error| error.to_string()),
                Err(text.to_owned())
            );
        };
        check(
            json!({"x": 1}),
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        );
        check(
            json!([1]),
            "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        );
        let test = json!({"op": "test", "path": "/n", "value": 1});
        assert_eq!(apply(&doc(), &Value::from(vec![test.clone(); 10_000])), Ok(doc()));
        check(
            Value::from(vec![test; 10_001]),
            "The allowed maximum operations in a JSON patch is 10000, got 10001",
        );
    }

    #[test]
    fn growth_is_bounded() {
        let repeat = |operations: Value, times: usize| {
            let operations = operations.as_array().cloned().unwrap_or_default();
            Value::from_iter(std::iter::repeat_n(operations, times).flatten())
        };
        let check = |patch: Value| {
            let result = apply(&json!({"a": {"s": "x".repeat(1000)}}), &patch);
            assert!(matches!(result, Err(JsonPatchError::TooLarge(_))));
        };
        check(repeat(json!([{"op": "copy", "from": "/a", "path": "/a/b"}]), 100));
        // One level deeper each time, without a copy.
        check(repeat(
            json!([
                {"op": "add", "path": "/b", "value": {}},
                {"op": "move", "from": "/a", "path": "/b/a"},
                {"op": "move", "from": "/b", "path": "/a"},
            ]),
            600,
        ));
    }

    #[test]
    fn unknown_fields_are_told() {
        let patch = json!([{"op": "add", "path": "/a", "value": {"odd": 1}}, {"op": "remove", "path": "/a", "odd": 1}]);
        assert_eq!(unknown_fields(&patch), [r#"json patch unknown field "[1].odd""#]);
    }
}
