//! A chart's `values.schema.json` as the schema of a kind's spec.
//!
//! Both are JSON Schema, and neither allows what the other does. What a CustomResourceDefinition cannot say is left
//! open: Helm checks the values by the chart's own schema in any case. Invariants: values that Helm takes are taken
//! here; the schema is structural. A field is required only in items of lists, because the chart's defaults are merged
//! into everything else, and the chart's defaults stay the chart's.

use serde_json::{Map, Value, json};

/// How deep references are followed.
const MAX_DEPTH: usize = 32;
/// Keywords that mean the same in both.
const SAME: &[&str] = &[
    "description",
    "title",
    "enum",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];

/// The schema of the spec.
#[must_use]
pub fn of_values(schema: &Value) -> Value {
    let mut spec = converted(schema, schema, false, 0);
    if spec.get("type").is_none_or(|kind| kind != "object") {
        spec = open();
    }
    spec
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn any() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

fn converted(schema: &Value, root: &Value, in_list: bool, depth: usize) -> Value {
    let Some(fields) = schema.as_object() else { return any() };
    if depth > MAX_DEPTH {
        return any();
    }
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or_else(any, |target| converted(target, root, in_list, depth + 1));
    }
    let (kind, nullable) = kind_of(fields);
    let Some(kind) = kind else {
        let mut any = any();
        if let Some(text) = fields.get("description").filter(|text| text.is_string()) {
            any["description"] = text.clone();
        }
        return any;
    };
    let mut out = Map::new();
    for (name, value) in fields {
        if SAME.contains(&name.as_str()) && fits(name, value) {
            out.insert(name.clone(), value.clone());
        }
    }
    out.insert("type".to_owned(), json!(kind));
    if nullable {
        out.insert("nullable".to_owned(), json!(true));
        // An enum that allows null names it.
        if let Some(Value::Array(values)) = out.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
    for (strict, plain) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match fields.get(strict) {
            Some(Value::Bool(true)) => drop(out.insert(strict.to_owned(), json!(true))),
            Some(limit @ Value::Number(_)) => {
                out.insert(plain.to_owned(), limit.clone());
                out.insert(strict.to_owned(), json!(true));
            }
            _ => {}
        }
    }
    // Lookaround and references are of another kind of expressions.
    let pattern = fields.get("pattern").and_then(Value::as_str);
    if let Some(pattern) = pattern.filter(|pattern| !pattern.contains("(?") && !pattern.contains("\\u")) {
        out.insert("pattern".to_owned(), json!(pattern));
    }
    match kind {
        "object" => object(fields, root, in_list, depth, &mut out),
        "array" => {
            let items = fields
                .get("items")
                .map_or_else(any, |items| converted(items, root, true, depth + 1));
            out.insert("items".to_owned(), items);
        }
        _ => {}
    }
    Value::Object(out)
}

fn object(fields: &Map<String, Value>, root: &Value, in_list: bool, depth: usize, out: &mut Map<String, Value>) {
    let properties = fields.get("properties").and_then(Value::as_object);
    let additional = fields.get("additionalProperties");
    let of_map = additional.filter(|it| it.is_object());
    match (properties, of_map) {
        (None, Some(values)) => {
            out.insert(
                "additionalProperties".to_owned(),
                converted(values, root, in_list, depth + 1),
            );
            return;
        }
        (Some(properties), _) => {
            let properties: Map<String, Value> = properties
                .iter()
                .map(|(name, schema)| (name.clone(), converted(schema, root, in_list, depth + 1)))
                .collect();
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        (None, None) => {}
    }
    // A field that the schema forbids would be taken away in silence; kept, Helm says what is wrong with it.
    out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    if let Some(required) = fields
        .get("required")
        .filter(|required| in_list && fits("required", required))
    {
        out.insert("required".to_owned(), required.clone());
    }
}

/// Whether the value of a keyword is one that a definition takes.
fn fits(keyword: &str, value: &Value) -> bool {
    match keyword {
        "description" | "title" => value.is_string(),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "required" => value
            .as_array()
            .is_some_and(|names| !names.is_empty() && names.iter().all(Value::is_string)),
        "minimum" | "maximum" | "multipleOf" => value.is_number(),
        _ => value.is_u64(),
    }
}

/// The one type of a value, and whether it may be null. None when there is none, or several.
fn kind_of(fields: &Map<String, Value>) -> (Option<&str>, bool) {
    // A choice may allow more than stands beside it says.
    match fields.get("type") {
        Some(Value::String(kind)) => (Some(kind.as_str()).filter(|kind| *kind != "null"), false),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            let nullable = kinds.contains(&"null");
            let rest: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
            match rest[..] {
                [kind] => (Some(kind), nullable),
                _ => (None, nullable),
            }
        }
        _ if fields.contains_key("properties") => (Some("object"), false),
        _ => (None, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_values_is_one_of_a_kind() {
        let check = |schema: Value, expected: Value| assert_eq!(of_values(&schema), expected, "{schema}");
        let keep = "x-kubernetes-preserve-unknown-fields";
        check(json!(true), json!({"type": "object", keep: true}));
        check(json!({"type": "string"}), json!({"type": "object", keep: true}));
        check(
            json!({
                "$schema": "http://json-schema.org/schema#",
                "type": "object",
                "required": ["a"],
                "definitions": {"port": {"type": "integer", "minimum": 1, "default": 80}, "self": {"$ref": "#/definitions/self"}},
                "additionalProperties": false,
                "properties": {
                    "a": {"type": ["string", "null"], "enum": ["x"], "default": "x"},
                    "b": {"type": ["string", "integer"], "description": "either"},
                    "port": {"$ref": "#/definitions/port"},
                    "self": {"$ref": "#/definitions/self"},
                    "size": {"type": "number", "exclusiveMinimum": 0},
                    "name": {"type": "string", "pattern": "^a+$"},
                    "far": {"type": "string", "pattern": "^(?!a)"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "list": {"type": "array", "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}},
                    "some": {"anyOf": [{"type": "string"}]},
                },
            }),
            json!({
                "type": "object",
                keep: true,
                "properties": {
                    "a": {"type": "string", "nullable": true, "enum": ["x", null]},
                    "b": {keep: true, "description": "either"},
                    "port": {"type": "integer", "minimum": 1},
                    "self": {keep: true},
                    "size": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                    "name": {"type": "string", "pattern": "^a+$"},
                    "far": {"type": "string"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "list": {"type": "array", "items": {"type": "object", keep: true, "required": ["n"], "properties": {"n": {"type": "string"}}}},
                    "some": {keep: true},
                },
            }),
        );
    }
}
