//! Objects within custom resources (`x-kubernetes-embedded-resource`): they are objects of some kind themselves, with
//! metadata like any.
//!
//! Not here: that they say their `apiVersion` and `kind` at all, which the schema's validation asks.

use kubewright_schema::error::FieldError;
use kubewright_schema::path::FieldPath;
use kubewright_schema::schema::SchemaRef;
use kubewright_schema::{catalog, names, structural};
use serde_json::{Map, Value, json};

use crate::model::{Minor, object};

/// Whether there is an object within.
fn holds(value: &Value, schema: &SchemaRef) -> bool {
    match value {
        Value::Object(_) if schema.embedded_resource => true,
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| schema.field(key).is_some_and(|known| holds(value, known))),
        Value::Array(list) => {
            let items = schema.items.as_ref();
            items.is_some_and(|items| list.iter().any(|item| holds(item, items)))
        }
        _ => false,
    }
}

/// Calls `see` for each object within another, with where it is.
fn visit(
    value: &mut Value,
    schema: &SchemaRef,
    at: &FieldPath,
    see: &mut dyn FnMut(&mut Map<String, Value>, &FieldPath),
) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                see(map, at);
            }
            for (key, value) in map {
                let known = schema.properties.get(key);
                match (known, &schema.additional_properties) {
                    (Some(known), _) => visit(value, known, &at.key(key), see),
                    (None, Some(values)) => visit(value, values, &at.map_key(key), see),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter_mut().enumerate() {
                    visit(item, items, &at.index(index), see);
                }
            }
        }
        _ => {}
    }
}

/// Reads the `apiVersion`, `kind` and metadata of each, as those of an object.
///
/// # Errors
/// The values that do not fit, as Go's decoder reports them.
pub(crate) fn settle(object: &mut Value, schema: &SchemaRef) -> Result<(), String> {
    let mut errors = Vec::new();
    if !holds(object, schema) {
        return Ok(());
    }
    visit(object, schema, &FieldPath::root(), &mut |map, at| {
        for key in ["apiVersion", "kind"] {
            if let Some(value) = map.get(key).filter(|value| !value.is_string()) {
                errors.push(FieldError::invalid(at.key(key), value.clone(), "must be a string"));
            }
        }
        let Some(metadata) = map.get_mut("metadata").filter(|metadata| !metadata.is_null()) else {
            return;
        };
        match structural::type_check(metadata, catalog::object_meta(), "ObjectMeta") {
            Ok(()) => structural::go_normalize_read(metadata, catalog::object_meta()),
            Err(why) => errors.push(FieldError::invalid(at.key("metadata"), metadata.clone(), why)),
        }
    });
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.to_string()),
        many => {
            let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
            Err(format!("[{}]", texts.join(", ")))
        }
    }
}

/// Drops the parts of `apiVersion`, `kind` and metadata that are none: objects that were written before a schema said
/// that there are objects within (`schemaobjectmeta.Coerce` with `DropInvalidFields`).
pub(crate) fn drop_malformed(object: &mut Value, schema: &SchemaRef) {
    if !holds(object, schema) {
        return;
    }
    visit(object, schema, &FieldPath::root(), &mut |map, _| {
        for key in ["apiVersion", "kind"] {
            if map.get(key).is_some_and(|value| !value.is_string()) {
                map.remove(key);
            }
        }
        let Some(metadata) = map.get_mut("metadata").filter(|metadata| !metadata.is_null()) else {
            return;
        };
        let fits = |metadata: &Value| structural::type_check(metadata, catalog::object_meta(), "ObjectMeta").is_ok();
        if !fits(metadata)
            && let Value::Object(fields) = &mut *metadata
        {
            fields.retain(|field, value| fits(&json!({ field: value })));
        }
        if fits(metadata) {
            structural::go_normalize_read(metadata, catalog::object_meta());
        }
    });
}

/// The errors in the `apiVersion`, `kind` and metadata of each embedded object.
pub(crate) fn validate(object: &Value, schema: &SchemaRef, minor: Minor) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !holds(object, schema) {
        return errors;
    }
    visit(&mut object.clone(), schema, &FieldPath::root(), &mut |map, at| {
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        match text("apiVersion") {
            Some("") => errors.push(FieldError::invalid(
                at.key("apiVersion"),
                json!(""),
                "must not be empty",
            )),
            Some(version) if version.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {version}");
                errors.push(FieldError::invalid(at.key("apiVersion"), json!(version), why));
            }
            _ => {}
        }
        if let Some(kind) = text("kind") {
            let wrong = names::dns1035_label(&kind.to_lowercase());
            let why = match (kind, wrong.is_empty()) {
                ("", _) => Some("must not be empty".to_owned()),
                (_, true) => None,
                (_, false) => Some(format!(
                    "may have mixed case, but should otherwise match: {}",
                    wrong.join(",")
                )),
            };
            errors.extend(why.map(|why| FieldError::invalid(at.key("kind"), json!(kind), why)));
        }
        errors.extend(object::validate_embedded(&Value::Object(map.clone()), at, minor));
    });
    errors
}
