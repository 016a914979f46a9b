//! Carries a change of a typed object over to the object as it was sent.
//!
//! A Rust type may be older than the API: unknown fields are not in the typed object, neither before nor after the
//! change. So the difference between the two typed states is taken, and only that is done to the raw object.
//!
//! Invariants: a part that did not change between the typed states stays as it was sent, byte for byte; an unknown
//! field stays unless its parent was removed. Items of lists are matched by their names, or by being equal; where that
//! is ambiguous, the new item replaces the old one as a whole rather than taking over fields of another.

use serde_json::{Map, Value};

use super::json_patch::{self, Operation};

/// The fields that identify an item in the lists of Kubernetes' own types and by convention elsewhere.
const NAMES: &[&str] = &[
    "name",
    "key",
    "type",
    "id",
    "uid",
    "containerPort",
    "port",
    "mountPath",
    "devicePath",
    "ip",
];

/// The raw object with everything done to it that happened between `before` and `after`.
pub(crate) fn onto(raw: &Value, before: &Value, after: &Value) -> Value {
    match (raw, before, after) {
        _ if before == after => raw.clone(),
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => Value::Object(maps(raw, before, after)),
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            Value::Array(lists(raw, before, after))
        }
        _ => after.clone(),
    }
}

/// The operations that give the same raw object as [`onto`], without writing it anew: most of an object stays as it is.
pub(crate) fn changes(raw: &Value, before: &Value, after: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    walk("", raw, before, after, &mut operations);
    operations
}

fn walk(path: &str, raw: &Value, before: &Value, after: &Value, out: &mut Vec<Operation>) {
    match (raw, before, after) {
        _ if before == after => {}
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            for key in before
                .keys()
                .filter(|key| !after.contains_key(*key) && raw.contains_key(*key))
            {
                out.push(Operation::Remove {
                    path: json_patch::child(path, key),
                });
            }
            // Fields that a type leaves out because they are empty.
            let nothing = Value::Object(Map::new());
            for (key, new) in after {
                let (path, old) = (json_patch::child(path, key), before.get(key));
                match raw.get(key) {
                    Some(raw) => walk(&path, raw, old.unwrap_or(&nothing), new, out),
                    None if old == Some(new) => {}
                    None => out.push(Operation::Add {
                        path,
                        value: new.clone(),
                    }),
                }
            }
        }
        _ => json_patch::walk(path, raw, &onto(raw, before, after), out),
    }
}

fn maps(raw: &Map<String, Value>, before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = raw.clone();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        merged.remove(key);
    }
    let nothing = Value::Object(Map::new());
    for (key, new) in after {
        let old = before.get(key);
        if old == Some(new) {
            continue;
        }
        // A type may leave out an empty value: then it was there, and is still known to be an empty map.
        let old = old.unwrap_or(&nothing);
        let value = match raw.get(key) {
            Some(raw) => onto(raw, old, new),
            None => new.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

fn lists(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let partners = partners(before, after);
    after
        .iter()
        .zip(partners)
        .map(|(new, partner)| match partner {
            Some(index) => onto(&raw[index], &before[index], new),
            None => new.clone(),
        })
        .collect()
}

/// For each new item the index of the old one that it was, if that is certain.
fn partners(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    if let Some(name) = NAMES
        .iter()
        .find(|name| names_all(before, name) && names_all(after, name))
    {
        return after
            .iter()
            .map(|new| before.iter().position(|old| old[name] == new[name]))
            .collect();
    }
    let mut free: Vec<bool> = vec![true; before.len()];
    let mut partners: Vec<Option<usize>> = vec![None; after.len()];
    // The same item at the same place first, then the same item elsewhere.
    for index in 0..before.len().min(after.len()) {
        if before[index] == after[index] {
            (partners[index], free[index]) = (Some(index), false);
        }
    }
    for (new, partner) in after.iter().zip(&mut partners).filter(|(_, partner)| partner.is_none()) {
        if let Some(index) = (0..before.len()).find(|index| free[*index] && before[*index] == *new) {
            (*partner, free[index]) = (Some(index), false);
        }
    }
    // As many as before, and each place either kept or free on both sides: the items were changed where they stood.
    if before.len() == after.len() {
        for index in 0..after.len() {
            if partners[index].is_none() && free[index] {
                (partners[index], free[index]) = (Some(index), false);
            }
        }
    }
    partners
}

/// Whether every item is a map in which `name` is there and differs from the others'.
fn names_all(items: &[Value], name: &str) -> bool {
    let names: Option<Vec<&Value>> = items
        .iter()
        .map(|item| item.get(name).filter(|value| value.is_string() || value.is_number()))
        .collect();
    names.is_some_and(|names| {
        names
            .iter()
            .enumerate()
            .all(|(index, name)| !names[..index].contains(name))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::json_patch::applied;
    use super::super::json_patch::tests::any_json;
    use super::*;

    #[test]
    fn w2_what_the_type_does_not_know_stays() {
        let check = |what: &str, raw: Value, before: Value, after: Value, expected: Value| {
            assert_eq!(onto(&raw, &before, &after), expected, "{what}");
        };
        check(
            "unknown fields beside and below a change",
            json!({"spec": {"size": 1, "new": {"x": 1}}, "extra": true}),
            json!({"spec": {"size": 1}}),
            json!({"spec": {"size": 2}}),
            json!({"spec": {"size": 2, "new": {"x": 1}}, "extra": true}),
        );
        check(
            "a default of the type that was not sent is not written down",
            json!({"spec": {}}),
            json!({"spec": {"size": 0, "title": ""}}),
            json!({"spec": {"size": 3, "title": ""}}),
            json!({"spec": {"size": 3}}),
        );
        check(
            "an empty map that the type leaves out",
            json!({"labels": {}, "other": null}),
            json!({}),
            json!({"labels": {"a": "b"}, "other": 1}),
            json!({"labels": {"a": "b"}, "other": 1}),
        );
        check(
            "a field that was taken away",
            json!({"spec": {"mode": {"x": 1}, "unknown": 1}}),
            json!({"spec": {"mode": {}}}),
            json!({"spec": {}}),
            json!({"spec": {"unknown": 1}}),
        );
        check(
            "items with names keep what is theirs when one is put before them",
            json!([{"name": "a", "new": 1}, {"name": "b", "new": 2}]),
            json!([{"name": "a"}, {"name": "b"}]),
            json!([{"name": "sidecar"}, {"name": "b", "image": "x"}, {"name": "a"}]),
            json!([{"name": "sidecar"}, {"name": "b", "image": "x", "new": 2}, {"name": "a", "new": 1}]),
        );
        check(
            "items without names: kept ones are recognised, a changed one stays in its place",
            json!([{"x": 1, "new": 1}, {"x": 2, "new": 2}]),
            json!([{"x": 1}, {"x": 2}]),
            json!([{"x": 1}, {"x": 3}]),
            json!([{"x": 1, "new": 1}, {"x": 3, "new": 2}]),
        );
        check(
            "items without names: what is not certain takes over nothing",
            json!([{"x": 1, "new": 1}, {"x": 2, "new": 2}]),
            json!([{"x": 1}, {"x": 2}]),
            json!([{"x": 9}]),
            json!([{"x": 9}]),
        );
    }

    proptest! {
        /// The steps lead to the same object.
        #[test]
        fn w2_changes_are_what_is_merged(raw in any_json(), before in any_json(), after in any_json()) {
            prop_assert_eq!(applied(raw.clone(), &changes(&raw, &before, &after)), onto(&raw, &before, &after));
        }

        /// For a type that knows everything the result is the typed object.
        #[test]
        fn w2_without_unknown_fields_the_change_is_exact(before in any_json(), after in any_json()) {
            prop_assert_eq!(onto(&before, &before, &after), after);
        }
    }
}
