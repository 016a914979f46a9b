//! JSON patch (RFC 6902) with the habits of the library that the API server uses: negative indexes count from the end,
//! `replace` of a missing field of an object sets it, an index such as `01` is read as 1.
//!
//! Invariants: at most [`MAX_OPERATIONS`]; the values that `copy` adds are bounded, because a copy of a copy doubles;
//! the result nests no deeper than the decoder would take; the cost of an operation is the length of its path and its
//! value, wherever in a list it works (`tree`).

mod tree;

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use self::tree::{Holder, Tree, depth};
use crate::budget;
use crate::decode::MAX_DEPTH;
use crate::error::quote;
use crate::go::TypeMismatch;
use crate::measure;

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
    /// There is nothing at a path, or it cannot be reached; the text says where.
    Missing(String),
    /// An operation is malformed.
    BadOp(String),
    /// The patch makes the document larger or deeper than any request could.
    TooLarge(String),
}

impl fmt::Display for JsonPatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAList(text) | Self::Missing(text) | Self::BadOp(text) | Self::TooLarge(text) => f.write_str(text),
            Self::TooMany(count) => {
                write!(
                    f,
                    "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
                )
            }
            Self::TestFailed(path) => write!(f, "testing value {path} failed: test failed"),
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
    static NULL: Value = Value::Null;
    let operations = operations(patch)?;
    let mut patching = Patching::of(doc);
    for operation in operations {
        let value = operation.get("value").unwrap_or(&NULL);
        patching.operation(operation, value.into())?;
    }
    Ok(patching.doc.close())
}

/// [`apply`] of a patch that is done with then: its values, which may be large, become part of the document.
///
/// # Errors
/// As [`apply`].
pub fn apply_taking(doc: &Value, patch: Value) -> Result<Value, JsonPatchError> {
    operations(&patch)?;
    let mut patching = Patching::of(doc);
    let operations = match patch {
        Value::Array(operations) => operations,
        _ => Vec::new(),
    };
    for operation in operations {
        let mut operation = match operation {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let value = operation.remove("value").unwrap_or_default();
        patching.operation(&operation, value.into())?;
    }
    Ok(patching.doc.close())
}

/// The fields of operations that mean nothing, as strict field validation names them: `json patch unknown field
/// "[0].odd"`.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for field in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(field.as_str(), "op" | "path" | "from" | "value") {
                let text = format!("json patch unknown field \"[{index}].{field}\"");
                budget::produce(measure::text_held(text.len()));
                unknown.push(text);
            }
        }
    }
    unknown
}

fn operations(patch: &Value) -> Result<Vec<&Map<String, Value>>, JsonPatchError> {
    let not = |value: &Value, of: &str| JsonPatchError::NotAList(TypeMismatch::new(value, of).to_string());
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
            // Go leaves the struct as it is.
            static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
            if operation.is_null() {
                return Ok(&*NOTHING);
            }
            let fields = operation
                .as_object()
                .ok_or_else(|| not(operation, "handlers.jsonPatchOp"))?;
            for field in ["op", "path", "from"] {
                if let Some(other) = fields.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                    let why = TypeMismatch::new(other, "string").in_field("jsonPatchOp", field);
                    return Err(JsonPatchError::NotAList(why.to_string()));
                }
            }
            Ok(fields)
        })
        .collect()
}

/// A key as it stands in a JSON pointer (RFC 6901).
///
/// ```
/// use kubewright_schema::patch::json::{escape, unescape};
///
/// assert_eq!(escape("a/b~"), "a~1b~0");
/// assert_eq!(unescape("a~1b~0"), "a/b~");
/// ```
pub fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    }
}

/// The key that a part of a JSON pointer stands for.
pub fn unescape(part: &str) -> Cow<'_, str> {
    if part.contains('~') {
        Cow::Owned(part.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(part)
    }
}

/// A path without its escapes. A path without a slash names nothing; the text before the first slash is ignored.
struct Pointer {
    written: String,
    parents: Vec<String>,
    last: Option<String>,
}

impl Pointer {
    fn parse(written: &str) -> Self {
        budget::spend_on_text(written.len());
        let mut parents: Vec<String> = written
            .split('/')
            .skip(1)
            .map(|part| unescape(part).into_owned())
            .collect();
        let last = parents.pop();
        Self {
            written: written.to_owned(),
            parents,
            last,
        }
    }
}

/// Why a text is no index into a list, in the library's words.
enum BadIndex {
    NotANumber(String),
    OutOfRange(String),
}

impl From<BadIndex> for String {
    fn from(why: BadIndex) -> String {
        match why {
            BadIndex::NotANumber(why) | BadIndex::OutOfRange(why) => why,
        }
    }
}

/// An index into a list of so many items, counted from the end when negative.
fn index(written: &str, count: usize) -> Result<usize, BadIndex> {
    let wrong = |why: &str| BadIndex::NotANumber(format!("strconv.Atoi: parsing {}: {why}", quote(written)));
    let index: i64 = match written.parse() {
        Ok(index) => index,
        Err(_)
            if written
                .trim_start_matches(['+', '-'])
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                && written.len() > 18 =>
        {
            return Err(wrong("value out of range"));
        }
        Err(_) => return Err(wrong("invalid syntax")),
    };
    let from_end = if index < 0 {
        i64::try_from(count).unwrap_or(i64::MAX)
    } else {
        0
    };
    index
        .checked_add(from_end)
        .and_then(|index| usize::try_from(index).ok())
        .filter(|index| *index < count)
        .ok_or_else(|| {
            let why = format!("Unable to access invalid index: {index}: invalid index referenced");
            BadIndex::OutOfRange(why)
        })
}

fn missing(text: String) -> JsonPatchError {
    JsonPatchError::Missing(text)
}

struct Patching<'v> {
    doc: Tree<'v>,
    /// The document nests no deeper than this.
    depth: usize,
    copied: usize,
    visited: usize,
}

impl<'v> Patching<'v> {
    fn of(doc: &'v Value) -> Self {
        Patching {
            depth: depth(doc),
            doc: doc.into(),
            copied: 0,
            visited: 0,
        }
    }

    /// Runs an operation with this value.
    fn operation(&mut self, operation: &Map<String, Value>, value: Tree<'v>) -> Result<(), JsonPatchError> {
        let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
        let text = |field: &str| {
            let found = operation.get(field).and_then(Value::as_str);
            found.map(Pointer::parse).ok_or_else(|| {
                // Where only the path can be missing, the library does not say which field it is.
                let which = match (kind, field) {
                    ("add" | "remove", _) | ("copy", "path") => String::new(),
                    _ => format!("operation, missing {field} field: "),
                };
                JsonPatchError::BadOp(format!(
                    "{kind} operation failed to decode {field}: {which}missing value"
                ))
            })
        };
        match kind {
            "add" => self.add(&text("path")?, value),
            "remove" => self.remove(&text("path")?),
            "replace" => self.replace(&text("path")?, value),
            "move" => self.relocate(&text("from")?, || text("path")),
            "copy" => self.copy(&text("from")?, || text("path")),
            "test" => match value {
                Tree::Shown(value) => self.test(&text("path")?, value),
                other => self.test(&text("path")?, &other.close()),
            },
            other => Err(JsonPatchError::BadOp(format!("Unexpected kind: {other}"))),
        }
    }

    /// The container of the value that the path names, and its key in there.
    fn parent<'p>(&mut self, pointer: &'p Pointer) -> Option<(Holder<'_, 'v>, &'p str)> {
        let last = pointer.last.as_deref()?;
        let mut at = &mut self.doc;
        for part in &pointer.parents {
            at = at.open()?.get(part)?;
        }
        Some((at.open()?, last))
    }

    fn add(&mut self, pointer: &Pointer, value: Tree<'v>) -> Result<(), JsonPatchError> {
        let path = &pointer.written;
        let gone = || {
            missing(format!(
                "add operation does not apply: doc is missing path: \"{path}\": missing value"
            ))
        };
        let deep = value.depth();
        self.insert(pointer, value, deep, gone, |why| {
            missing(format!("error in add for path: '{path}': {why}"))
        })
    }

    /// Adds a value that nests no deeper than `deep`.
    fn insert(
        &mut self,
        pointer: &Pointer,
        value: Tree<'v>,
        deep: usize,
        gone: impl Fn() -> JsonPatchError,
        refused: impl Fn(String) -> JsonPatchError,
    ) -> Result<(), JsonPatchError> {
        self.grow(pointer, &value, deep)?;
        match self.parent(pointer).ok_or_else(gone)? {
            (Holder::Fields(fields), last) => {
                fields.insert(last.to_owned(), value);
            }
            (Holder::Items(items), last) => {
                let end = items.len();
                let index = if last == "-" { Ok(end) } else { index(last, end + 1) };
                let index = index.map_err(|why| match why {
                    BadIndex::NotANumber(why) => {
                        refused(format!("value was not a proper array index: '{last}': {why}"))
                    }
                    BadIndex::OutOfRange(why) => refused(why),
                })?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    /// Keeps the bound on the depth. Only where the bound is not enough is the value measured, so that moving costs
    /// next to nothing.
    fn grow(&mut self, pointer: &Pointer, value: &Tree<'v>, deep: usize) -> Result<(), JsonPatchError> {
        let above = pointer.parents.len() + 1;
        let mut deep = deep;
        if above + deep > MAX_DEPTH {
            self.visited += value.count();
            if self.visited > MAX_VISITED {
                return Err(JsonPatchError::TooLarge(
                    "the patch moves too much at too great a depth".to_owned(),
                ));
            }
            deep = value.depth();
        }
        if above + deep > MAX_DEPTH {
            return Err(JsonPatchError::TooLarge(format!(
                "the patch nests values more than {MAX_DEPTH} deep"
            )));
        }
        self.depth = self.depth.max(above + deep);
        Ok(())
    }

    fn remove(&mut self, pointer: &Pointer) -> Result<(), JsonPatchError> {
        let path = &pointer.written;
        let holder = self.parent(pointer).ok_or_else(|| {
            missing(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            ))
        })?;
        take(holder).map_err(|why| missing(format!("error in remove for path: '{path}': {why}")))?;
        Ok(())
    }

    fn relocate(
        &mut self,
        from: &Pointer,
        to: impl Fn() -> Result<Pointer, JsonPatchError>,
    ) -> Result<(), JsonPatchError> {
        let holder = self.parent(from).ok_or_else(|| {
            let path = &from.written;
            missing(format!(
                "move operation does not apply: doc is missing from path: {path}: missing value"
            ))
        })?;
        let key = holder.1;
        let moved = take(holder).map_err(|why| missing(format!("error in move for path: '{key}': {why}")))?;
        let to = to()?;
        let path = &to.written;
        let deep = self.depth.saturating_sub(from.parents.len() + 1);
        let gone = || {
            missing(format!(
                "move operation does not apply: doc is missing destination path: {path}: missing value"
            ))
        };
        self.insert(&to, moved, deep, gone, |why| {
            missing(format!("error in move for path: '{path}': {why}"))
        })
    }

    fn replace(&mut self, pointer: &Pointer, value: Tree<'v>) -> Result<(), JsonPatchError> {
        let path = &pointer.written;
        if path.is_empty() {
            // Scalars hold nothing.
            if value.depth() == 0 {
                return Err(JsonPatchError::BadOp(
                    "replace operation value must be object or array: %!w(<nil>)".to_owned(),
                ));
            }
            self.depth = value.depth();
            self.doc = value;
            return Ok(());
        }
        let deep = value.depth();
        self.grow(pointer, &value, deep)?;
        let gone = |what: &str| {
            missing(format!(
                "replace operation does not apply: doc is missing {what}: {path}: missing value"
            ))
        };
        match self.parent(pointer).ok_or_else(|| gone("path"))? {
            (Holder::Fields(fields), last) => {
                fields.insert(last.to_owned(), value);
            }
            (Holder::Items(items), last) => {
                let index = index(last, items.len()).map_err(|_| gone("key"))?;
                *items.get(index).ok_or_else(|| gone("key"))? = value;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &Pointer, to: impl Fn() -> Result<Pointer, JsonPatchError>) -> Result<(), JsonPatchError> {
        let copied = self.copied;
        let path = &from.written;
        let value = match self.parent(from) {
            None => {
                let text = format!("copy operation does not apply: doc is missing from path: {path}: missing value");
                return Err(missing(text));
            }
            Some((holder, last)) => holder
                .find(last)
                .map_err(|why| missing(format!("error in copy for from: '{path}': {why}")))?,
        };
        let size = copied + value.as_deref().map_or(0, Tree::size);
        if size > MAX_COPIED {
            return Err(JsonPatchError::TooLarge(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {size}, exceeding the limit {MAX_COPIED}"
            )));
        }
        let value = value.map(|value| value.to_value()).unwrap_or_default();
        // Small on the wire is not small in memory.
        budget::produce(measure::held(&value));
        self.copied = size;
        let to = to()?;
        let path = &to.written;
        let gone = || {
            missing(format!(
                "copy operation does not apply: doc is missing destination path: {path}: missing value"
            ))
        };
        let deep = depth(&value);
        self.insert(&to, value.into(), deep, gone, |why| {
            missing(format!("error while adding value during copy: {why}"))
        })
    }

    fn test(&mut self, pointer: &Pointer, expected: &Value) -> Result<(), JsonPatchError> {
        let path = &pointer.written;
        let found = if path.is_empty() {
            Some(&mut self.doc)
        } else {
            match self.parent(pointer) {
                None => {
                    let text = format!("test operation does not apply: is missing path: {path}: missing value");
                    return Err(missing(text));
                }
                Some((holder, last)) => holder
                    .find(last)
                    .map_err(|why| missing(format!("error in test for path: '{path}': {why}")))?,
            }
        };
        // A missing field equals null.
        // Numbers are the same when they are written the same: 1 is not 1.0.
        if found.map_or(expected.is_null(), |found| found.is(expected)) {
            Ok(())
        } else {
            Err(JsonPatchError::TestFailed(path.clone()))
        }
    }
}

/// Takes a value out of its container.
fn take<'v>((holder, key): (Holder<'_, 'v>, &str)) -> Result<Tree<'v>, String> {
    match holder {
        Holder::Fields(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Holder::Items(items) => {
            let index = index(key, items.len())?;
            items
                .remove(index)
                .ok_or_else(|| format!("Unable to access invalid index: {index}"))
        }
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
        check(op("test", "/n", json!(1)), "/n", Some(json!(1)));
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
        let check = |operation: Value, expected: &str| {
            let patch = json!([{"op": "add", "path": "/data/first", "value": "1"}, operation]);
            let found = apply(&doc(), &patch).map_err(|error| error.to_string());
            assert_eq!(found, Err(expected.to_owned()), "{patch}");
        };
        let op = |op: &str, path: &str| json!({"op": op, "path": path, "value": "2"});
        let from = |op: &str, from: &str, path: &str| json!({"op": op, "from": from, "path": path});
        check(op("test", "/data/a"), "testing value /data/a failed: test failed");
        check(op("test", "/data/zz"), "testing value /data/zz failed: test failed");
        check(
            op("test", "/x/y"),
            "test operation does not apply: is missing path: /x/y: missing value",
        );
        let gone = "error in remove for path: '/data/zz': Unable to remove nonexistent key: zz: missing value";
        check(op("remove", "/data/zz"), gone);
        let gone = |path: &str| format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
        for path in ["/spec/x/y", "/n/x", "data", ""] {
            check(op("add", path), &gone(path));
        }
        let list = "/metadata/finalizers";
        let wrong = "Unable to access invalid index: 9: invalid index referenced";
        check(
            op("add", &format!("{list}/9")),
            &format!("error in add for path: '{list}/9': {wrong}"),
        );
        let wrong = "value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax";
        check(
            op("add", &format!("{list}/x")),
            &format!("error in add for path: '{list}/x': {wrong}"),
        );
        let wrong = "replace operation does not apply: doc is missing";
        check(
            op("replace", &format!("{list}/3")),
            &format!("{wrong} key: {list}/3: missing value"),
        );
        check(op("replace", "/x/y"), &format!("{wrong} path: /x/y: missing value"));
        let wrong = "Unable to access invalid index: -4: invalid index referenced";
        check(
            op("remove", &format!("{list}/-4")),
            &format!("error in remove for path: '{list}/-4': {wrong}"),
        );
        let wrong = "strconv.Atoi: parsing \"x\": invalid syntax";
        check(
            op("remove", &format!("{list}/x")),
            &format!("error in remove for path: '{list}/x': {wrong}"),
        );
        let wrong = "error in move for path: 'zz': Unable to remove nonexistent key: zz: missing value";
        check(from("move", "/data/zz", "/x"), wrong);
        let wrong = "does not apply: doc is missing destination path: /x/y: missing value";
        check(from("move", "/data/a", "/x/y"), &format!("move operation {wrong}"));
        check(from("copy", "/data/a", "/x/y"), &format!("copy operation {wrong}"));
        check(op("frob", "/data/a"), "Unexpected kind: frob");
        check(json!({"path": "/data/a"}), "Unexpected kind: unknown");
        check(Value::Null, "Unexpected kind: unknown");
        check(
            json!({"op": "add", "value": "1"}),
            "add operation failed to decode path: missing value",
        );
        let wrong = "failed to decode from: operation, missing from field: missing value";
        check(op("move", "/a"), &format!("move operation {wrong}"));
        let wrong = "replace operation value must be object or array: %!w(<nil>)";
        check(json!({"op": "replace", "path": "", "value": 1}), wrong);
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
        check(
            json!([{"op": 5}]),
            "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
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
