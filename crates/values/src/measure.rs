//! The size of a value: for code that copies, compares or prints a client's data, and charges it to the [`budget`].
//!
//! Not here: the limits of one request.

use std::fmt::{self, Write};

use serde_json::Value;

use crate::budget;

/// The memory of a value by itself.
const VALUE: usize = 32;
/// The memory of the first entries of a map: maps are made in nodes of so many bytes, and the smallest has one.
const NODE: usize = 640;
/// How many entries a node has room for when its map grows.
const ENTRIES: usize = 6;
/// The memory of a text beside its bytes.
const TEXT: usize = 16;

/// About how many bytes of memory a value takes. It is walked over.
///
/// ```
/// use kubewright_values::measure;
/// use serde_json::json;
/// assert!(measure::held(&json!("abc")) < 100);
/// // A map of one entry takes far more than it has on the wire.
/// assert!(measure::held(&json!({"a": 1})) > 600);
/// ```
pub fn held(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => VALUE,
        Value::String(text) => VALUE + text_held(text.len()),
        Value::Array(items) => {
            budget::spend(1 + items.len());
            VALUE + items.iter().map(held).sum::<usize>()
        }
        Value::Object(fields) => {
            budget::spend(1 + fields.len());
            let entries = fields.iter().map(|(key, value)| text_held(key.len()) + held(value));
            VALUE + map_held(fields.len()) + entries.sum::<usize>()
        }
    }
}

/// The memory of a map of so many entries, without the entries' contents.
pub fn map_held(entries: usize) -> usize {
    entries.div_ceil(ENTRIES) * NODE
}

/// The memory of a text of so many bytes.
pub fn text_held(bytes: usize) -> usize {
    bytes + TEXT
}

/// Counts a field that a document adds to a map which has so many: maps grow node by node.
pub fn count_field(there: usize) {
    let node = if there.is_multiple_of(ENTRIES) { NODE } else { 0 };
    budget::produce(TEXT + node);
}

/// Counts an item that a document adds to a list, with its share of the room that a growing list has.
pub fn count_item() {
    budget::produce(VALUE + VALUE / 2);
}

/// A copy of a value. The client sent it once, so the copy is charged.
pub fn copy(value: &Value) -> Value {
    budget::produce(held(value));
    value.clone()
}

/// Whether two values are equal, as `==` has it; compared values are counted, by the container.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            budget::spend(1 + left.len());
            left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
            budget::spend(1 + left.len());
            let mut entries = left.iter().zip(right);
            entries.all(|((key, left), (other, right))| same_text(key, other) && same(left, right))
        }
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
        (Value::String(left), Value::String(right)) => same_text(left, right),
        (left, right) => left == right,
    }
}

fn same_text(left: &str, right: &str) -> bool {
    const SHORT: usize = 64;
    if left.len() == right.len() && left.len() > SHORT {
        budget::spend_on_text(left.len());
    }
    left == right
}

/// The displayed text of something, such as a value as JSON: the text is counted while it grows.
pub fn shown(value: &impl fmt::Display) -> String {
    let mut text = Counted(String::new());
    // Writing into a text cannot fail.
    let _ = write!(text, "{value}");
    text.0
}

struct Counted(String);

impl Write for Counted {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        budget::spend_on_text(part.len());
        budget::produce(part.len());
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::budget::{Exhausted, Limits, within};

    fn some_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!(1.0)), Just(json!("x"))];
        leaf.prop_recursive(3, 20, 3, |inner| {
            prop_oneof![
                prop::collection::btree_map("[ab]", inner.clone(), 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            ]
        })
    }

    proptest! {
        #[test]
        fn equality_and_texts_are_those_of_values(left in some_value(), right in some_value()) {
            prop_assert_eq!(same(&left, &right), left == right);
            prop_assert!(same(&left, &left.clone()));
            prop_assert_eq!(shown(&left), left.to_string());
        }
    }

    #[test]
    fn what_is_looked_at_is_counted() {
        let list = json!(vec![json!({"a": "x".repeat(320)}); 100]);
        let check = |limits: Limits, work: &dyn Fn(), expected: Result<(), Exhausted>| {
            assert_eq!(within(limits, work), expected);
        };
        let limits = |steps, bytes| Limits { steps, bytes };
        check(limits(1500, 0), &|| assert!(same(&list, &list)), Ok(()));
        check(limits(1000, 0), &|| assert!(same(&list, &list)), Err(Exhausted::Steps));
        check(limits(1500, 200_000), &|| drop(copy(&list)), Ok(()));
        check(limits(1500, 30_000), &|| drop(copy(&list)), Err(Exhausted::Bytes));
        check(limits(10_000, 40_000), &|| drop(shown(&list)), Ok(()));
        check(limits(10_000, 30_000), &|| drop(shown(&list)), Err(Exhausted::Bytes));
    }
}
