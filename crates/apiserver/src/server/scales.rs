//! What a Scale is: the kind that `/scale` of every kind shows, with its schema and its columns.

use std::sync::{Arc, LazyLock};

use kubewright_schema::error::FieldError;
use kubewright_schema::{catalog, structural};
use serde_json::{Value, json};

use crate::kinds::check::get;
use crate::registry::{Cell, Column, Registry, Resource, ScalePaths, Subresource};
use crate::table;

const REPLICAS: &str = "replicas is the desired number of instances for the scaled object.";
const OBSERVED: &str = "replicas is the actual number of observed instances of the scaled object.";

fn number(object: &Value, part: &str) -> Value {
    get(object, &[part, "replicas"]).as_i64().unwrap_or(0).into()
}

/// The row of `autoscaling/v1` Scale, which no path of its own serves.
pub(super) fn row() -> Arc<Resource> {
    static ROW: LazyLock<Arc<Resource>> = LazyLock::new(|| {
        let autoscaler = Registry::new().lookup("autoscaling", "v1", "horizontalpodautoscalers");
        let mut row = (*autoscaler.expect("the group has a kind")).clone();
        row.kind = "Scale".into();
        row.list_kind = "ScaleList".into();
        row.plural = "scales".into();
        row.singular = "scale".into();
        row.conversion = None;
        row.subresources = Vec::new();
        row.schema = catalog::for_kind("autoscaling", "v1", "Scale").expect("the catalog has the kind Scale");
        let age = row.columns.pop().expect("an autoscaler shows its age");
        let column = |name: &'static str, type_: &'static str, description: &'static str, cell: Cell| Column {
            name: name.into(),
            type_: type_.into(),
            format: "".into(),
            description: description.into(),
            priority: 0,
            cell,
        };
        row.columns = vec![
            column("Name", "string", table::NAME_DESCRIPTION, Cell::Name),
            column(
                "Desired",
                "integer",
                REPLICAS,
                Cell::With(|object, _| number(object, "spec")),
            ),
            column(
                "Available",
                "integer",
                OBSERVED,
                Cell::With(|object, _| number(object, "status")),
            ),
            age,
        ];
        Arc::new(row)
    });
    Arc::clone(&ROW)
}

/// Whether Go could read it; the error is Go's.
pub(super) fn check(scale: &Value) -> Result<(), String> {
    structural::type_check(scale, &row().schema, "Scale")
}

/// What stands at the paths of a custom kind's scale and is no number or no text; `status_only`: for a write to the status.
pub(super) fn path_errors(resource: &Resource, object: &Value, status_only: bool) -> Vec<FieldError> {
    let scale = resource.subresources.iter().find_map(|subresource| match subresource {
        Subresource::Scale(paths) => Some(paths),
        _ => None,
    });
    let (Some(paths), Some(_)) = (scale, &resource.custom) else {
        return Vec::new();
    };
    let ScalePaths {
        spec_replicas,
        status_replicas,
        selector,
    } = paths;
    let mut errors = Vec::new();
    if !status_only {
        errors.extend(replicas_error(object, spec_replicas));
    }
    errors.extend(replicas_error(object, status_replicas));
    if let Some(path) = selector {
        let wrong = match at_path(object, path) {
            Ok(Value::Null | Value::String(_)) => None,
            Ok(other) => Some(accessor_error(path, other, "string")),
            Err(why) => Some(why),
        };
        errors.extend(wrong.map(|why| FieldError::invalid(path.to_string(), "", why)));
    }
    errors
}

fn replicas_error(object: &Value, path: &str) -> Option<FieldError> {
    let why = match at_path(object, path) {
        Ok(Value::Null) => return None,
        Ok(value) => match value.as_i64() {
            Some(count) if count < 0 => {
                return Some(FieldError::invalid(path, count, "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                return Some(FieldError::invalid(path, count, why));
            }
            Some(_) => return None,
            None => accessor_error(path, value, "int64"),
        },
        Err(why) => why,
    };
    Some(FieldError::invalid(path, json!(0), why))
}

/// The value at a dotted path, null where there is none; the error says what stands in the way.
fn at_path<'a>(object: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut at = object;
    let mut walked = String::new();
    for key in path.split('.').filter(|key| !key.is_empty()) {
        walked.push('.');
        walked.push_str(key);
        at = match at {
            Value::Null => return Ok(at),
            Value::Object(map) => map.get(key).unwrap_or(&Value::Null),
            other => return Err(accessor_error(&walked, other, "map[string]interface{}")),
        };
    }
    Ok(at)
}

/// Go's words for a value of another type than was asked for.
fn accessor_error(path: &str, value: &Value, expected: &str) -> String {
    let type_ = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!(
        "{path} accessor error: {} is of the type {type_}, expected {expected}",
        shown(value)
    )
}

/// A value as Go's `%v` prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", shown(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_named() {
        let check = |object: Value, want: Option<&str>| {
            let error = replicas_error(&object, ".spec.size").map(|error| error.to_string());
            assert_eq!(error.as_deref(), want, "{object}");
        };
        check(json!({}), None);
        check(json!({"spec": {"size": 3}}), None);
        check(
            json!({"spec": {"size": "two"}}),
            Some(".spec.size: Invalid value: 0: .spec.size accessor error: two is of the type string, expected int64"),
        );
        check(
            json!({"spec": "str"}),
            Some(
                ".spec.size: Invalid value: 0: .spec.size accessor error: str is of the type string, expected map[string]interface{}",
            ),
        );
        check(
            json!({"spec": {"size": -1}}),
            Some(".spec.size: Invalid value: -1: should be a non-negative integer"),
        );
    }

    #[test]
    fn a_scale_has_columns() {
        let names: Vec<String> = row().columns.iter().map(|column| column.name.to_string()).collect();
        assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    }
}
