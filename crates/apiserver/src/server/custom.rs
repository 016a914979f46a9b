//! The errors in a custom resource, by the rules of its definition.
//!
//! Schema, scale and rules in this order; rules are not run on a value that does not fit the schema. A change is not
//! refused for mistakes in parts that it leaves alone. A write to `/status` is held against the schema of the status
//! and all rules.

use kubewright_schema::error::{FieldError, Reason};
use kubewright_schema::go;
use kubewright_schema::path::FieldPath;
use kubewright_schema::rules::Patterns;
use kubewright_schema::structural;
use serde_json::{Value, json};

use super::write::Part;
use crate::model::{Custom, Minor, Resource, ScalePaths, Subresource};

/// The errors, and the words about parts that did not change. `others` are the errors found before.
pub(super) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    part: Part,
    others: &[FieldError],
    patterns: &Patterns,
    minor: Minor,
) -> (Vec<FieldError>, Vec<String>) {
    let Some(custom) = &resource.custom else {
        return (Vec::new(), Vec::new());
    };
    let mut errors = schema(resource, object, old, part);
    if part != Part::Status {
        errors.extend(super::embedded::validate(object, &resource.schema, minor));
    }
    let scale = resource.subresources.iter().find_map(|subresource| match subresource {
        Subresource::Scale(paths) => Some(paths),
        _ => None,
    });
    if let Some(paths) = scale {
        self::scale(object, paths, part, &mut errors);
    }
    rules(custom, resource, object, old, errors, others, patterns)
}

/// Said beside errors that keep the rules of a definition from being asked.
pub(super) fn unchecked() -> FieldError {
    let why = "some validation rules were not checked because the object was invalid; \
               correct the existing errors to complete validation";
    FieldError::invalid("<nil>", Value::Null, why)
}

fn schema(resource: &Resource, object: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
    if part == Part::Status {
        let at = FieldPath::new("status");
        return match (object.get("status"), resource.schema.properties.get("status")) {
            (Some(status), Some(schema)) => match old.and_then(|old| old.get("status")) {
                Some(old) => structural::validate_update(status, old, schema, &at),
                None => structural::validate(status, schema, &at),
            },
            _ => Vec::new(),
        };
    }
    match old {
        Some(old) => structural::validate_update(object, old, &resource.schema, &FieldPath::root()),
        None => structural::validate(object, &resource.schema, &FieldPath::root()),
    }
}

fn rules(
    custom: &Custom,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    mut errors: Vec<FieldError>,
    others: &[FieldError],
    patterns: &Patterns,
) -> (Vec<FieldError>, Vec<String>) {
    let Some(validator) = custom.rules(&resource.schema) else {
        return (errors, Vec::new());
    };
    let blocks = |error: &FieldError| {
        matches!(
            error.reason,
            Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
        )
    };
    if errors.iter().chain(others).any(blocks) {
        errors.push(unchecked());
        return (errors, Vec::new());
    }
    let outcome = validator.validate(object, old, patterns);
    errors.extend(outcome.errors);
    (errors, outcome.ratcheted.iter().map(FieldError::to_string).collect())
}

/// The numbers of the scale subresource must be numbers.
fn scale(object: &Value, paths: &ScalePaths, part: Part, errors: &mut Vec<FieldError>) {
    if part != Part::Status {
        replicas(object, &paths.spec_replicas, errors);
    }
    replicas(object, &paths.status_replicas, errors);
    if let Some(path) = &paths.selector
        && let Err(why) = nested(object, path, "string", Value::is_string)
    {
        errors.push(FieldError::invalid(path.to_string(), "", why));
    }
}

fn replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let is_integer = |value: &Value| value.is_i64();
    let (number, why) = match nested(object, path, "int64", is_integer) {
        Err(why) => (0, why),
        Ok(found) => match found.and_then(Value::as_i64).unwrap_or(0) {
            number if number < 0 => (number, "should be a non-negative integer".to_owned()),
            number if number > i64::from(i32::MAX) => (number, format!("should be less than or equal to {}", i32::MAX)),
            _ => return,
        },
    };
    errors.push(FieldError::invalid(path, json!(number), why));
}

/// The value at a dotted path; none when it is not there.
///
/// # Errors
/// On the way there is something that is no object, or the value is of another type, in the words of Go's accessors.
fn nested<'a>(
    object: &'a Value,
    path: &str,
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let (mut value, mut walked) = (object, String::new());
    for name in path.trim_start_matches('.').split('.') {
        walked.push('.');
        walked.push_str(name);
        let found = match value {
            Value::Object(map) => map.get(name),
            Value::Null => None,
            other => return Err(of_type(&walked, other, "map[string]interface{}")),
        };
        match found {
            Some(found) => value = found,
            None => return Ok(None),
        }
    }
    if fits(value) {
        Ok(Some(value))
    } else {
        Err(of_type(&walked, value, wanted))
    }
}

fn of_type(path: &str, value: &Value, wanted: &str) -> String {
    let type_name = go::type_name(value);
    format!(
        "{path} accessor error: {} is of the type {type_name}, expected {wanted}",
        go::text(value)
    )
}
