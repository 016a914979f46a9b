//! Schemas of version 3 as version 2 can say them.
//!
//! Two steps. [`reduce`] takes out of the schema of a definition the keywords on which kubectl's old reader breaks;
//! kube-apiserver does it to custom kinds alone. [`convert`] is for every schema: other words for the same, and no
//! keyword that the language lacks.

use serde_json::{Map, Value};

use crate::openapi::schemas::PREFIX;

/// Where version 2 has the schemas of a document.
pub(super) const DEFINITIONS: &str = "#/definitions/";

fn is_true(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// Removes from a structural schema all that has no meaning in version 2: junctors, null as a value, fields of objects
/// that keep unknown ones.
pub(in crate::openapi) fn reduce(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for junctor in ["allOf", "anyOf", "oneOf", "not"] {
        object.remove(junctor);
    }
    let (nullable, open) = (
        is_true(object, "nullable"),
        is_true(object, "x-kubernetes-preserve-unknown-fields"),
    );
    if nullable || open {
        object.remove("items");
        object.remove("properties");
    }
    let type_ = object.get("type").and_then(Value::as_str);
    // A list whose items have no schema is no list to kubectl.
    let untyped =
        nullable || (open && type_ == Some("object")) || (type_ == Some("array") && !object.contains_key("items"));
    if untyped {
        object.remove("type");
    }
    object.remove("nullable");
    require_less(object);
    children(object).for_each(reduce);
}

/// A field that may be null is not required: to be null it would have to be present, which version 2 cannot say.
fn require_less(schema: &mut Map<String, Value>) {
    let may_be_null = |schema: &Value| schema.get("nullable") == Some(&Value::Bool(true));
    let Some(Value::Array(mut required)) = schema.remove("required") else {
        return;
    };
    if let Some(properties) = schema.get("properties") {
        required.retain(|name| {
            let property = name.as_str().and_then(|name| properties.get(name));
            !property.is_some_and(may_be_null)
        });
    }
    if schema.get("additionalProperties").is_some_and(may_be_null) {
        required.clear();
    }
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}

/// Says a schema in the words of version 2.
pub(super) fn convert(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    // Defaults are published in version 3 alone.
    for keyword in ["default", "nullable", "anyOf", "not"] {
        object.remove(keyword);
    }
    // Of several types, the string is the one that can hold all values.
    if object.remove("oneOf").is_some() {
        object.insert("type".to_owned(), "string".into());
    }
    // Here words may stand beside a reference, which need not be wrapped.
    if let Some(Value::Array(mut all)) = object.remove("allOf")
        && let Some(Value::Object(only)) = all.pop()
        && all.is_empty()
    {
        object.extend(only);
    }
    if let Some(Value::String(reference)) = object.get_mut("$ref") {
        *reference = reference.replacen(PREFIX, DEFINITIONS, 1);
    }
    children(object).for_each(convert);
}

/// The schemas right below a schema.
fn children(schema: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    schema
        .iter_mut()
        .flat_map(|(keyword, value)| -> Box<dyn Iterator<Item = &mut Value> + '_> {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => Box::new(properties.values_mut()),
                ("items" | "additionalProperties", inner) => Box::new(std::iter::once(inner)),
                _ => Box::new(std::iter::empty()),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The shapes of a recorded document: schemas as definitions have them, and kube-apiserver's conversion of them.
    #[test]
    fn shapes() {
        #[track_caller]
        fn check(mut schema: Value, want: Value) {
            let text = schema.to_string();
            reduce(&mut schema);
            convert(&mut schema);
            assert_eq!(schema, want, "{text}");
        }
        let open = "x-kubernetes-preserve-unknown-fields";
        check(
            json!({"type": "string", "default": "x", "enum": ["x", ""], "maxLength": 3}),
            json!({"type": "string", "enum": ["x", ""], "maxLength": 3}),
        );
        check(
            json!({"type": "string", "nullable": true, "pattern": "a"}),
            json!({"pattern": "a"}),
        );
        check(
            json!({"type": "object", "nullable": true, "description": "d", "properties": {"x": {"type": "string"}}}),
            json!({"description": "d"}),
        );
        check(json!({"type": "string", "nullable": false}), json!({"type": "string"}));
        check(
            json!({"type": "object", open: true, "properties": {"p": {"type": "string"}}}),
            json!({open: true}),
        );
        check(
            json!({"type": "array", open: true, "items": {"type": "string"}}),
            json!({open: true}),
        );
        check(
            json!({"type": "string", open: true}),
            json!({"type": "string", open: true}),
        );
        check(
            json!({"type": "array", "items": {"type": "string", "nullable": true, "default": "x"}}),
            json!({"type": "array", "items": {}}),
        );
        check(
            json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "integer"}}}),
            json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "integer"}}}),
        );
        check(
            json!({"type": "object", "required": ["a"], "properties": {"a": {"nullable": true}}}),
            json!({"type": "object", "properties": {"a": {}}}),
        );
        check(
            json!({"type": "object", "required": ["a"], "additionalProperties": {"type": "string", "nullable": true}}),
            json!({"type": "object", "additionalProperties": {}}),
        );
        check(
            json!({"type": "object", "additionalProperties": true}),
            json!({"type": "object", "additionalProperties": true}),
        );
        check(
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "allOf": [{"pattern": "a"}]}),
            json!({"x-kubernetes-int-or-string": true}),
        );
        check(
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["c"]}}),
            json!({"type": "object"}),
        );
        // Fields may be called as keywords are.
        check(
            json!({"type": "object", "default": {}, "properties": {"default": {"type": "string"}, "$ref": {"type": "string"}, "not": {"type": "boolean"}}}),
            json!({"type": "object", "properties": {"default": {"type": "string"}, "$ref": {"type": "string"}, "not": {"type": "boolean"}}}),
        );
    }

    #[test]
    fn words() {
        #[track_caller]
        fn check(mut schema: Value, want: Value) {
            convert(&mut schema);
            assert_eq!(schema, want);
        }
        check(
            json!({"description": "d", "default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.A"}]}),
            json!({"description": "d", "$ref": "#/definitions/io.k8s.A"}),
        );
        check(
            json!({"type": "array", "items": {"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.A"}]}}),
            json!({"type": "array", "items": {"$ref": "#/definitions/io.k8s.A"}}),
        );
        check(
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"format": "int-or-string", "type": "string"}),
        );
    }
}
