//! The difference between two JSON documents as a JSON patch (RFC 6902): add, remove and replace.
//!
//! Invariant: applied to the first document it gives the second (W2), and it touches no equal part. Arrays are compared
//! from both ends, so that one item put in or taken out is one operation.

use serde_json::{Map, Value};

/// One step of a patch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
}

/// The steps from one document to the other, below a path; none when they are equal.
pub(super) fn walk(path: &str, from: &Value, to: &Value, out: &mut Vec<Operation>) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(from), Value::Object(to)) => {
            for key in from.keys().filter(|key| !to.contains_key(*key)) {
                out.push(Operation::Remove { path: child(path, key) });
            }
            for (key, value) in to {
                let path = child(path, key);
                match from.get(key) {
                    Some(old) => walk(&path, old, value, out),
                    None => out.push(Operation::Add {
                        path,
                        value: value.clone(),
                    }),
                }
            }
        }
        (Value::Array(from), Value::Array(to)) => arrays(path, from, to, out),
        _ => out.push(Operation::Replace {
            path: path.to_owned(),
            value: to.clone(),
        }),
    }
}

fn arrays(path: &str, from: &[Value], to: &[Value], out: &mut Vec<Operation>) {
    let shorter = from.len().min(to.len());
    let head = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let tail = from
        .iter()
        .rev()
        .zip(to.iter().rev())
        .take(shorter - head)
        .take_while(|(a, b)| a == b)
        .count();
    let (old, new) = (&from[head..from.len() - tail], &to[head..to.len() - tail]);
    let common = old.len().min(new.len());
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        walk(&format!("{path}/{}", head + index), old, new, out);
    }
    // From the end, so that the indices before it stay right.
    for index in (common..old.len()).rev() {
        out.push(Operation::Remove {
            path: format!("{path}/{}", head + index),
        });
    }
    for (index, value) in new.iter().enumerate().skip(common) {
        out.push(Operation::Add {
            path: format!("{path}/{}", head + index),
            value: value.clone(),
        });
    }
}

/// The path of a member.
pub(super) fn child(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl From<Operation> for Value {
    fn from(operation: Operation) -> Value {
        let (op, path, value) = match operation {
            Operation::Add { path, value } => ("add", path, Some(value)),
            Operation::Remove { path } => ("remove", path, None),
            Operation::Replace { path, value } => ("replace", path, Some(value)),
        };
        let mut fields = Map::new();
        fields.insert("op".to_owned(), Value::from(op));
        fields.insert("path".to_owned(), Value::String(path));
        fields.extend(value.map(|value| ("value".to_owned(), value)));
        Value::Object(fields)
    }
}

/// The document with these steps done, which [`walk`] found for it.
pub(super) fn applied(mut document: Value, steps: &[Operation]) -> Value {
    for step in steps {
        // What was found for this document fits it.
        let _ = apply(&mut document, step);
    }
    document
}

/// Does one step; nothing when it does not fit.
fn apply(document: &mut Value, step: &Operation) -> Option<()> {
    let (Operation::Add { path, .. } | Operation::Remove { path } | Operation::Replace { path, .. }) = step;
    let Some((parent, last)) = path.rsplit_once('/') else {
        if let Operation::Replace { value, .. } = step {
            document.clone_from(value);
        }
        return Some(());
    };
    let last = last.replace("~1", "/").replace("~0", "~");
    match (document.pointer_mut(parent)?, step) {
        (Value::Object(map), Operation::Remove { .. }) => drop(map.remove(&last)?),
        (Value::Object(map), Operation::Add { value, .. } | Operation::Replace { value, .. }) => {
            map.insert(last, value.clone());
        }
        (Value::Array(list), step) => {
            let index: usize = last.parse().ok()?;
            match step {
                Operation::Remove { .. } if index < list.len() => drop(list.remove(index)),
                Operation::Add { value, .. } if index <= list.len() => list.insert(index, value.clone()),
                Operation::Replace { value, .. } => list.get_mut(index)?.clone_from(value),
                Operation::Add { .. } | Operation::Remove { .. } => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn diff(from: &Value, to: &Value) -> Vec<Operation> {
        let mut operations = Vec::new();
        walk("", from, to, &mut operations);
        operations
    }

    pub(in crate::webhook) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_i32).prop_map(Value::from),
            "[a/~]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab/~]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// W2: for any two documents.
        #[test]
        fn w2_a_difference_applied_gives_the_other_document(from in any_json(), to in any_json()) {
            let operations = diff(&from, &to);
            prop_assert_eq!(operations.is_empty(), from == to);
            prop_assert_eq!(applied(from, &operations), to);
        }
    }

    #[test]
    fn differences_are_small() {
        let check = |from: Value, to: Value, expected: Value| {
            let found: Vec<Value> = diff(&from, &to).into_iter().map(Value::from).collect();
            assert_eq!(Value::Array(found), expected, "{from} -> {to}");
        };
        check(json!({"a": 1}), json!({"a": 1}), json!([]));
        check(
            json!({"a": {"b/c": 1, "d": 2}}),
            json!({"a": {"b/c": 2, "e~": 3}}),
            json!([
                {"op": "remove", "path": "/a/d"},
                {"op": "replace", "path": "/a/b~1c", "value": 2},
                {"op": "add", "path": "/a/e~0", "value": 3},
            ]),
        );
        check(
            json!([1, 2, 3]),
            json!([0, 1, 2, 3]),
            json!([{"op": "add", "path": "/0", "value": 0}]),
        );
        check(json!([1, 2, 3]), json!([1, 3]), json!([{"op": "remove", "path": "/1"}]));
        check(
            json!([{"n": "a", "v": 1}]),
            json!([{"n": "a", "v": 2}, {"n": "b"}]),
            json!([
                {"op": "replace", "path": "/0/v", "value": 2},
                {"op": "add", "path": "/1", "value": {"n": "b"}},
            ]),
        );
    }
}
