//! The errors of Kubernetes for a patched built-in object that does not fit its Go type.
//!
//! A strategic merge patch is applied to a tree of plain values, which is then read into the Go type by reflection
//! (`DefaultUnstructuredConverter`), not by a JSON decoder: its words are others than those of [`super::type_check`].
//!
//! Not here: unknown fields, which [`super::prune`] finds.

use serde_json::Value;

use super::types::{base64_check, special_check};
use crate::schema::go::canonical_bytes;
use crate::schema::go::names::part;
use crate::schema::special::{Special, special};
use crate::schema::{SchemaRef, Type};

/// Checks that `value` can be moved into the Go type of `schema`. Of several mistakes one is reported.
///
/// # Errors
/// The converter's text, such as `unrecognized type: int32` for a text where a number belongs.
///
/// ```
/// use kubewright_schema::{catalog, structural::convert_check};
/// use serde_json::json;
///
/// let schema = catalog::for_kind("apps", "v1", "Deployment").unwrap();
/// assert_eq!(convert_check(&json!({"spec": {"replicas": "many"}}), &schema), Err("unrecognized type: int32".to_owned()));
/// assert_eq!(convert_check(&json!({"spec": {"replicas": 3}}), &schema), Ok(()));
/// ```
pub fn convert_check(value: &Value, schema: &SchemaRef) -> Result<(), String> {
    check(value, schema, None)
}

/// `named` is the Go name of a type that the schema does not tell.
fn check(value: &Value, schema: &SchemaRef, named: Option<&str>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    if let Some(special) = special(schema) {
        return match special {
            Special::Free => Ok(()),
            // Types with a reader of their own are given the JSON.
            _ => Ok(special_check(value, special)?),
        };
    }
    match (schema.type_, value) {
        (None, _) => Ok(()),
        (Some(Type::Object), Value::Object(map)) => {
            let go = schema.go();
            map.iter().try_for_each(
                |(key, value)| match (schema.properties.get(key), &schema.additional_properties) {
                    (Some(property), _) => check(value, property, go.type_of(key)),
                    (None, Some(values)) => check(value, values, named.and_then(part)),
                    (None, None) => Ok(()),
                },
            )
        }
        (Some(Type::Object), other) => {
            let what = if schema.additional_properties.is_some() {
                "map from"
            } else {
                "struct from:"
            };
            Err(format!("cannot restore {what} {}", kind_of(other)))
        }
        (Some(Type::Array), Value::Array(list)) => {
            let Some(items) = &schema.items else { return Ok(()) };
            list.iter()
                .try_for_each(|item| check(item, items, named.and_then(part)))
        }
        (Some(Type::Array), other) => Err(format!("cannot restore slice from {}", kind_of(other))),
        (Some(Type::String), Value::String(text)) if schema.format.as_deref() == Some("byte") => {
            base64_check(text).map_err(|why| format!("error decoding from json: {why}"))
        }
        (Some(Type::String), Value::String(_)) | (Some(Type::Boolean), Value::Bool(_)) => Ok(()),
        (Some(Type::String), other) if schema.format.as_deref() == Some("byte") => {
            Err(format!("cannot restore slice from {}", kind_of(other)))
        }
        (Some(Type::Number), Value::Number(_)) => Ok(()),
        (Some(Type::Integer), Value::Number(number)) if number.as_f64().is_some_and(|n| n.fract() == 0.0) => Ok(()),
        // Go converts these pairs in principle, and Kubernetes refuses a conversion that would change the value.
        (Some(Type::String), Value::Number(number)) if !number.is_f64() => {
            Err(format!("cannot convert int64 to {}", named.unwrap_or("string")))
        }
        (Some(Type::Integer), Value::Number(_)) => Err(format!(
            "cannot convert float64 to {}",
            schema.format.as_deref().unwrap_or("int64")
        )),
        (Some(Type::String), _) => Err("unrecognized type: string".to_owned()),
        (Some(Type::Boolean), _) => Err("unrecognized type: bool".to_owned()),
        (Some(Type::Number), _) => Err("unrecognized type: float64".to_owned()),
        (Some(Type::Integer), _) => Err(format!(
            "unrecognized type: {}",
            schema.format.as_deref().unwrap_or("int64")
        )),
    }
}

/// Moves a value that [`convert_check`] finds fit: numbers become those that the Go type holds, without a fraction and
/// cut to its size, as reflection sets them.
pub fn convert(value: &mut Value, schema: &SchemaRef) {
    if special(schema).is_some() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key).or(schema.additional_properties.as_ref()) {
                    convert(value, property);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| convert(item, items));
            }
        }
        Value::String(text) if schema.format.as_deref() == Some("byte") => canonical_bytes(text),
        Value::Number(number) if schema.type_ == Some(Type::Integer) => {
            let whole = number.as_i64().or_else(|| number.as_f64().map(cut));
            *value = match (whole, schema.format.as_deref()) {
                #[allow(clippy::cast_possible_truncation, reason = "Go's SetInt keeps the lower bits")]
                (Some(whole), Some("int32")) => Value::from(whole as i32),
                (Some(whole), _) => Value::from(whole),
                (None, _) => return,
            };
        }
        _ => {}
    }
}

/// A float as the nearest `int64`.
#[allow(clippy::cast_possible_truncation, reason = "what does not fit is cut, as in Go")]
fn cut(float: f64) -> i64 {
    float as i64
}

/// The Go kind of a value out of JSON.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::catalog;

    #[test]
    fn what_does_not_fit_is_told_in_the_converters_words() {
        #[track_caller]
        fn check(spec: Value, wanted: &str) {
            let schema = catalog::for_kind("apps", "v1", "Deployment").expect("a built-in kind");
            let told = convert_check(&json!({ "spec": spec }), &schema)
                .err()
                .unwrap_or_default();
            assert_eq!(told, wanted);
        }
        check(json!({"replicas": 2, "paused": true, "strategy": null}), "");
        check(json!({"replicas": "many"}), "unrecognized type: int32");
        check(json!({"paused": "yes"}), "unrecognized type: bool");
        check(json!({"strategy": "Recreate"}), "cannot restore struct from: string");
        check(
            json!({"strategy": {"type": 1}}),
            "cannot convert int64 to v1.DeploymentStrategyType",
        );
        check(
            json!({"template": {"spec": {"hostname": 1}}}),
            "cannot convert int64 to string",
        );
        check(
            json!({"template": {"spec": {"containers": [{"securityContext": {"capabilities": {"add": [1]}}}]}}}),
            "cannot convert int64 to v1.Capability",
        );
        check(json!({"strategy": {"type": true}}), "unrecognized type: string");
        check(json!({"replicas": 1.5}), "cannot convert float64 to int32");
        check(
            json!({"selector": {"matchLabels": []}}),
            "cannot restore map from slice",
        );
        check(
            json!({"template": {"spec": {"containers": {}}}}),
            "cannot restore slice from map",
        );
        check(
            json!({"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
    }
}
