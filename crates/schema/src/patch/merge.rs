//! JSON merge patch (RFC 7386): the patch looks like the object, `null` takes a field away, a list replaces a list.

use serde_json::{Map, Value};

use crate::{budget, measure};

/// The document with the patch applied.
///
/// ```
/// use kubewright_schema::patch::merge;
/// use serde_json::json;
/// let patched = merge::apply(&json!({"a": 1, "b": {"c": 2, "d": 3}}), &json!({"a": null, "b": {"d": 4}}));
/// assert_eq!(patched, json!({"b": {"c": 2, "d": 4}}));
/// ```
pub fn apply(doc: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut merged = doc.as_object().cloned().unwrap_or_default();
    merge(&mut merged, patch);
    Value::Object(merged)
}

fn merge(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match (change, fields.get_mut(key)) {
            (Value::Null, _) => drop(fields.remove(key)),
            (Value::Object(change), Some(Value::Object(inner))) => merge(inner, change),
            // A value that replaces an object is taken as it stands.
            (change, Some(present @ Value::Object(_))) => *present = change.clone(),
            (change, _) => drop(fields.insert(key.clone(), pruned(change))),
        }
    }
}

/// A new part of the document, in which nulls of objects say nothing. The patch is there beside it, as large again.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            budget::spend(1 + fields.len());
            budget::produce(measure::map_held(fields.len()));
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), pruned(value))).collect()
        }
        Value::Array(items) => {
            budget::spend(1 + items.len());
            items.iter().map(pruned).collect()
        }
        other => other.clone(),
    }
}

/// The smallest merge patch that turns `from` into `to`; an empty object when nothing changes. A `null` inside `to`
/// cannot be said by a merge patch: it takes the field away.
///
/// ```
/// use kubewright_schema::patch::merge;
/// use serde_json::json;
/// let change = merge::diff(&json!({"a": 1, "b": 2}), &json!({"b": 3}));
/// assert_eq!(change, json!({"a": null, "b": 3}));
/// ```
pub fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let gone = from
        .keys()
        .filter(|key| !to.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter_map(|(key, value)| match from.get(key) {
        Some(before) if before == value => None,
        Some(before @ Value::Object(_)) if value.is_object() => Some((key.clone(), diff(before, value))),
        _ => Some((key.clone(), value.clone())),
    });
    gone.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Exhausted, Limits, within};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_made_beside_the_patch_is_counted() {
        let patch = json!({"a": vec![json!({"b": 1}); 100]});
        let check = |bytes, expected| {
            let limits = Limits { steps: 1_000, bytes };
            assert_eq!(within(limits, || drop(apply(&json!({}), &patch))), expected);
        };
        check(100_000, Ok(()));
        check(50_000, Err(Exhausted::Bytes));
    }

    /// The table of RFC 7386, appendix A.
    #[test]
    fn the_table_of_the_rfc() {
        let check = |doc: Value, patch: Value, result: Value| assert_eq!(apply(&doc, &patch), result, "{doc} {patch}");
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        );
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a": "b"}), json!(["c"]), json!(["c"]));
        check(json!({"a": "foo"}), Value::Null, Value::Null);
        check(json!({"a": "foo"}), json!("bar"), json!("bar"));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!(2)), Just(json!([1])), Just(json!([null]))];
        let any = leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|fields| fields.into_iter().collect())
        });
        prop::collection::btree_map("[abc]", any, 0..3).prop_map(|fields| fields.into_iter().collect())
    }

    fn patch() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), Just(json!(1)), Just(json!([1]))];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|fields| fields.into_iter().collect())
        })
    }

    proptest! {
        #[test]
        fn twice_is_once(doc in object(), patch in patch()) {
            let once = apply(&doc, &patch);
            prop_assert_eq!(apply(&once, &patch), once);
        }

        #[test]
        fn nothing_changes_nothing(doc in object()) {
            prop_assert_eq!(apply(&doc, &json!({})), doc.clone());
            prop_assert_eq!(diff(&doc, &doc), json!({}));
        }

        #[test]
        fn the_difference_leads_there(from in object(), to in object()) {
            prop_assert_eq!(apply(&from, &diff(&from, &to)), to);
        }
    }
}
