//! Strategic merge patches as kustomize applies them: like Kubernetes', but items that a patch adds to a list come
//! first.
//!
//! Which lists merge comes from the schema of the kind; kinds that are not Kubernetes' own have none, so their lists
//! are replaced. The directives `$patch: delete`, `replace` and `merge` are understood, others refused.

use kubewright_schema::schema::{Schema, SchemaRef};
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";

/// Applies `patch` to `target`; `false` when the patch deletes the object itself.
///
/// # Errors
/// When the patch has a directive that is not known here, in words.
pub(super) fn apply(target: &mut Value, patch: &Value, schema: Option<&SchemaRef>) -> Result<bool, String> {
    match merge(Some(std::mem::take(target)), patch, schema.map(SchemaRef::get))? {
        Some(merged) => {
            *target = merged;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// The merged value; none when the patch removes it.
fn merge(target: Option<Value>, patch: &Value, schema: Option<&Schema>) -> Result<Option<Value>, String> {
    match (target, patch) {
        (_, Value::Null) => Ok(None),
        (target, Value::Object(patch)) => {
            let fields = match target {
                Some(Value::Object(fields)) => fields,
                _ => Map::new(),
            };
            merge_map(fields, patch, schema)
        }
        (Some(Value::Array(items)), Value::Array(patch)) => merge_list(items, patch, schema),
        (_, Value::Array(patch)) => merge_list(Vec::new(), patch, schema),
        (_, other) => Ok(Some(other.clone())),
    }
}

fn merge_map(
    mut fields: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<Option<Value>, String> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("delete") => return Ok(None),
        Some("replace") => fields.clear(),
        None | Some("merge") => {}
        Some(other) => return Err(format!("the patch has the directive {DIRECTIVE}: {other}")),
    }
    for (key, value) in patch.iter().filter(|(key, _)| *key != DIRECTIVE) {
        if key.starts_with('$') {
            return Err(format!("the patch has the directive {key}"));
        }
        let inner = schema.and_then(|schema| schema.properties.get(key).or(schema.additional_properties.as_ref()));
        match merge(fields.remove(key), value, inner.map(SchemaRef::get))? {
            Some(merged) => fields.insert(key.clone(), merged),
            None => None,
        };
    }
    Ok(Some(Value::Object(fields)))
}

fn merge_list(items: Vec<Value>, patch: &[Value], schema: Option<&Schema>) -> Result<Option<Value>, String> {
    let replaces = |item: &Value| item.get(DIRECTIVE).is_some_and(|directive| directive == "replace");
    let merges = schema.is_some_and(|schema| schema.patch_strategy.iter().any(|word| word == "merge"));
    if !merges || patch.iter().any(replaces) {
        let kept = patch.iter().filter(|item| !replaces(item));
        return Ok(Some(Value::Array(kept.cloned().collect())));
    }
    let inner = schema.and_then(|schema| schema.items.as_ref()).map(SchemaRef::get);
    let keys = schema.map(merge_keys).unwrap_or_default();
    let mut rest = items;
    let mut merged = Vec::new();
    for item in patch {
        match rest.iter().position(|old| is_same_item(old, item, &keys)) {
            // Items that several fields tell apart (ports) stay where they are.
            Some(at) if keys.len() > 1 => {
                let old = rest.remove(at);
                if let Some(new) = merge(Some(old), item, inner)? {
                    rest.insert(at, new);
                }
            }
            at => {
                let old = at.map(|at| rest.remove(at));
                merged.extend(merge(old, item, inner)?);
            }
        }
    }
    merged.append(&mut rest);
    Ok(Some(Value::Array(merged)))
}

/// The fields that tell the items of a list apart, the most important first; none for a list of words.
fn merge_keys(schema: &Schema) -> Vec<String> {
    let mut keys: Vec<String> = schema.patch_merge_key.iter().map(ToString::to_string).collect();
    for key in &schema.list_map_keys {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

fn is_same_item(old: &Value, new: &Value, keys: &[String]) -> bool {
    let Some((first, others)) = keys.split_first() else {
        return old == new;
    };
    // A key that one of them leaves out has its default, as the protocol of a port.
    old.get(first) == new.get(first)
        && others.iter().all(|key| match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => old == new,
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use kubewright_schema::catalog;
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_merge_by_the_keys_of_their_kind() {
        let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let schema = catalog::for_kind("apps", "v1", "Deployment");
        let check = |target: Value, patch: Value, after: Value| {
            let mut target = pod(target);
            assert!(apply(&mut target, &pod(patch), schema.as_ref()).unwrap());
            assert_eq!(target, pod(after));
        };
        check(
            json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}]}),
            json!({"containers": [{"name": "new"}, {"name": "a", "args": ["y"]}]}),
            json!({"containers": [{"name": "new"}, {"name": "a", "image": "1", "args": ["y"]}]}),
        );
        check(
            json!({"containers": [{"name": "a"}, {"name": "b"}], "hostNetwork": true}),
            json!({"containers": [{"name": "a", "$patch": "delete"}], "hostNetwork": null}),
            json!({"containers": [{"name": "b"}]}),
        );
        let mut whole = json!({"a": 1});
        assert!(!apply(&mut whole, &json!({"$patch": "delete"}), None).unwrap());
        assert!(apply(&mut whole, &json!({"$setElementOrder/a": []}), None).is_err());
    }
}
