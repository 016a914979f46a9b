//! The fields in which two texts of an object differ.
//!
//! An object changes in a field or two. Parts that are written alike are not read: every change of every object passes
//! here, for the cause of the reconcile that it leads to. Invariant: the answer is that of [`changes_between`].

use serde_json::{Map, Value};

use super::cut;
use crate::diff::{FieldChange, changes_between};

/// The fields that differ between two texts of objects. Parts that are written alike are not read.
pub(crate) fn changes_between_texts(before: &str, after: &str) -> Vec<FieldChange> {
    match differing(before.as_bytes(), after.as_bytes(), DEPTH) {
        Some((before, after)) => changes_between(&before, &after),
        None => Vec::new(),
    }
}

/// So deep members are told apart by their texts; most changes are in one field of the status.
const DEPTH: usize = 4;

/// Both values, without the members of objects that are equal; `None` when there is no difference.
fn differing(before: &[u8], after: &[u8], depth: usize) -> Option<(Value, Value)> {
    if before == after {
        return None;
    }
    let whole = || {
        let read = |text| serde_json::from_slice(text).unwrap_or_default();
        Some((read(before), read(after)))
    };
    let (Some(old), Some(new)) = (cut::members(before), cut::members(after)) else {
        return whole();
    };
    if depth == 0 {
        return whole();
    }
    let (mut left, mut right) = (Map::new(), Map::new());
    for member in &old {
        let name: String = serde_json::from_slice(member.name).unwrap_or_default();
        match new.iter().find(|other| other.name == member.name) {
            None => drop(left.insert(name, serde_json::from_slice(member.value).unwrap_or_default())),
            Some(other) => {
                if let Some((before, after)) = differing(member.value, other.value, depth - 1) {
                    left.insert(name.clone(), before);
                    right.insert(name, after);
                }
            }
        }
    }
    for member in new
        .iter()
        .filter(|member| old.iter().all(|other| other.name != member.name))
    {
        let name: String = serde_json::from_slice(member.name).unwrap_or_default();
        right.insert(name, serde_json::from_slice(member.value).unwrap_or_default());
    }
    Some((left.into(), right.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Two texts differ as their values do.
    #[test]
    fn texts_are_compared_as_their_values_are() {
        let check = |before: Value, after: Value| {
            let found = changes_between_texts(&before.to_string(), &after.to_string());
            assert_eq!(found, changes_between(&before, &after), "{before} {after}");
        };
        let deep = |last: Value| json!({"a": {"b": {"c": {"d": {"e": {"f": last, "g": 1}}}}, "h": 2}});
        check(json!({"a": 1}), json!({"a": 1}));
        check(deep(json!(1)), deep(json!(2)));
        check(deep(json!({})), json!({"a": {"b": 1}}));
        check(
            json!({"a": [1, {"b": 2}], "c": 3}),
            json!({"a": [1, {"b": 3}], "d": {"e": 4}}),
        );
        check(json!({"a": "}\"{"}), json!({"a": "\"}", "b": null}));
        check(json!([1]), json!({"a": 1}));
    }
}
