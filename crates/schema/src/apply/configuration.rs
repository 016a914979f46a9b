//! Merging an apply configuration without a field manager, as a mutating admission policy does.

use serde_json::Value;

use super::set::{field, shown};
use super::shape::{Form, Shape};
use super::{ObjectType, check, merge};
use crate::schema::{ListType, MapType, Schema, Type};
use crate::{budget, measure};

/// The object with the configuration merged into it, as server-side apply merges, but without owners: nothing is
/// removed.
///
/// Both carry `apiVersion` and `kind`. Atomic lists, maps and structs may not be in the configuration: it cannot be
/// told whether it adds to them or replaces them.
///
/// ```
/// use kubewright_schema::apply::{ObjectType, merge_configuration};
/// use kubewright_schema::catalog;
/// use serde_json::json;
///
/// let kind = ObjectType::built_in(catalog::for_kind("", "v1", "Pod").expect("built in"));
/// let pod = json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
/// let merged = merge_configuration(&kind, &pod, &json!({"spec": {"containers": [{"name": "b", "image": "j"}]}}))?;
/// assert_eq!(merged["spec"]["containers"][1]["name"], "b");
/// let refused = merge_configuration(&kind, &pod, &json!({"spec": {"nodeSelector": {"a": "b"}}}));
/// assert_eq!(
///     refused.unwrap_err(),
///     "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector"
/// );
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// The parts that do not fit the schema of the kind, and atomic parts, in the words of the server.
pub fn merge_configuration(kind: &ObjectType, live: &Value, configuration: &Value) -> Result<Value, String> {
    let shape = kind.shape();
    let mut errors = check::check(configuration, shape);
    nulls(configuration, shape, "", &mut errors);
    if !errors.is_empty() {
        let why = check::joined(&errors);
        return Err(format!("failed to convert patch object to typed object: {why}"));
    }
    let mut found = Vec::new();
    atomics(configuration, shape, "", &mut found);
    if !found.is_empty() {
        let paths = found.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"
        ));
    }
    Ok(merge::merge(live, configuration, shape))
}

/// A null that an expression constructs is a value of its own, which fits no type.
fn nulls(value: &Value, shape: Shape<'_>, path: &str, errors: &mut Vec<String>) {
    budget::spend_on_text(path.len());
    match value {
        Value::Null => {
            let expected = match schema_of(shape).and_then(|schema| schema.type_) {
                Some(Type::Object) => "map, got &{NULL_VALUE}",
                Some(Type::Array) => "list, got &{NULL_VALUE}",
                Some(Type::Boolean) => "boolean, got &{NULL_VALUE}",
                Some(Type::Integer | Type::Number) => "numeric (int or float), got structpb.NullValue",
                Some(Type::String) => "string, got &value.valueUnstructured{Value:0}",
                None => return,
            };
            budget::produce(path.len());
            errors.push(format!("{path}: expected {expected}"));
        }
        Value::Object(map) => {
            for (key, below) in map {
                let part = shape.part_or_nothing(key);
                nulls(below, part.shape, &format!("{path}{}", shown(&field(key))), errors);
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                nulls(item, shape.items(), &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

/// The paths of the atomic lists and maps. Entries of maps are not looked into, as upstream: only declared fields and
/// items are.
fn atomics(value: &Value, shape: Shape<'_>, path: &str, found: &mut Vec<String>) {
    budget::spend_on_text(path.len());
    match value {
        Value::Object(map) => {
            if is_atomic_map(shape) {
                budget::produce(measure::text_held(path.len()));
                found.push(path.to_owned());
            }
            for (key, below) in map {
                if let Some(part) = shape.part(key).filter(|part| part.declared) {
                    atomics(below, part.shape, &format!("{path}{}", shown(&field(key))), found);
                }
            }
        }
        Value::Array(list) => {
            if is_atomic_list(shape, value) {
                budget::produce(measure::text_held(path.len()));
                found.push(path.to_owned());
            }
            for (index, item) in list.iter().enumerate() {
                atomics(item, shape.items(), &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn schema_of(shape: Shape<'_>) -> Option<&Schema> {
    match shape {
        Shape::Schema(schema) => Some(schema.get()),
        _ => None,
    }
}

/// Scalars that are written as objects (quantities, times) are leaves, but neither maps nor structs.
fn is_atomic_map(shape: Shape<'_>) -> bool {
    schema_of(shape).is_some_and(|schema| {
        schema.type_ == Some(Type::Object)
            && (schema.map_type == Some(MapType::Atomic)
                || (schema.name.is_some() && schema.is_free_form() && !schema.preserve_unknown_fields))
    })
}

fn is_atomic_list(shape: Shape<'_>, value: &Value) -> bool {
    match schema_of(shape) {
        Some(schema) if schema.type_ == Some(Type::Array) => {
            matches!(schema.list_type, None | Some(ListType::Atomic))
        }
        // Where the schema says nothing, lists are atomic.
        _ => matches!(shape, Shape::Deduced) && matches!(shape.form([Some(value), None]), Form::Leaf),
    }
}
