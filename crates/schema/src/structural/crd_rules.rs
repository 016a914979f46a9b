//! Whether the schema of a CRD may be used: its words are allowed, it is structural, its defaults are valid.
//!
//! Three passes, as upstream has them: the words of each schema ([`words`]), the structural rules ([`form`]) unless a
//! word stands there that has no structural form, and the defaults once the form is right.
//!
//! The passes read the JSON as it was written, since half of their work is about words that a [`Schema`](crate::Schema)
//! has no place for.
//!
//! Rules in CEL come last: [`rules::check`] compiles them.
//!
//! Not here: the ratcheting of a CRD that was invalid before.

mod form;
mod words;

use serde_json::{Map, Value, json};

use super::validate::{self, validate_default};
use super::{PruneOptions, prune};
use crate::error::{FieldError, quote};
use crate::path::FieldPath;
use crate::rules::{self, Patterns};
use crate::schema::SchemaRef;
use crate::{Minor, budget};

/// The errors in the `openAPIV3Schema` of a CRD that is being written; empty when there are none.
///
/// `at` is where the schema stands: `spec.validation.openAPIV3Schema` for a CRD whose versions all have the same
/// schema, `spec.versions[0].schema.openAPIV3Schema` otherwise.
///
/// ```
/// use kubewright_schema::{path::FieldPath, structural::check_crd_schema};
/// use serde_json::json;
///
/// let at = FieldPath::new("spec.validation.openAPIV3Schema");
/// let errors = check_crd_schema(&json!({"properties": {}}), &at);
/// assert_eq!(errors[0].to_string(), "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root");
/// ```
pub fn check_crd_schema(schema: &Value, at: &FieldPath) -> Vec<FieldError> {
    check_crd_schema_update(schema, at, false, Minor::OLDEST)
}

/// As [`check_crd_schema`], for a definition that is changed. A schema that is `unchanged` may have rules that are too
/// expensive by themselves, as an older server may have allowed them.
pub fn check_crd_schema_update(schema: &Value, at: &FieldPath, unchanged: bool, minor: Minor) -> Vec<FieldError> {
    let Some(root) = schema.as_object() else {
        return vec![FieldError::type_invalid(at, schema.clone(), "must be an object")];
    };
    let mut words = words::Words::default();
    words.check(root, at);
    // Rules are looked at when the schema is structural and its defaults are valid.
    let formless = formless(schema);
    let mut has_form = words.has_form && formless.is_none();
    let mut errors = Vec::new();
    if let Some(why) = formless.filter(|_| words.errors.is_empty()) {
        errors.push(FieldError::invalid(at, json!(""), why));
    }
    if has_form {
        errors = form::check(root, at);
        if errors.is_empty() {
            defaults(root, at, &mut errors, &Patterns::of(minor));
        }
        has_form = errors.is_empty();
    }
    errors.extend(words.errors);
    match SchemaRef::from_crd(schema) {
        Ok(parsed) if has_form => errors.extend(rules::check(&parsed, at, &errors, unchanged, minor)),
        Err(wrong) if errors.is_empty() => errors.extend(wrong.into_iter().map(|error| FieldError {
            field: format!("{at}.{}", error.field),
            ..error
        })),
        _ => {}
    }
    errors
}

/// Why no structural schema can be made of this one (`NewStructural`).
pub(crate) fn formless(schema: &Value) -> Option<&'static str> {
    const TEXTS: [(&str, &str); 3] = [
        ("id", "OpenAPIV3Schema 'id' is not supported"),
        ("$schema", "OpenAPIV3Schema 'schema' is not supported"),
        ("$ref", "OpenAPIV3Schema '$ref' is not supported"),
    ];
    const MAPS: [(&str, &str); 4] = [
        (
            "patternProperties",
            "OpenAPIV3Schema 'patternProperties' is not supported",
        ),
        ("dependencies", "OpenAPIV3Schema 'dependencies' is not supported"),
        ("additionalItems", "OpenAPIV3Schema 'additionalItems' is not supported"),
        ("definitions", "OpenAPIV3Schema 'definitions' is not supported"),
    ];
    let words = schema.as_object()?;
    budget::spend(32);
    let said = |word: &str| match words.get(word) {
        Some(Value::Object(map)) => word == "additionalItems" || !map.is_empty(),
        value => word == "additionalItems" && value.is_some_and(|value| !value.is_null()),
    };
    let texts = TEXTS.iter().find(|(word, _)| !text(words, word).is_empty());
    if let Some((_, why)) = texts.or_else(|| MAPS.iter().find(|(word, _)| said(word))) {
        return Some(*why);
    }
    let each = |word: &str| list(words, word).iter().find_map(formless);
    let one = |word: &str| words.get(word).and_then(formless);
    let conditions = one("not").or_else(|| ["allOf", "anyOf", "oneOf"].into_iter().find_map(each));
    if conditions.is_some() {
        return conditions;
    }
    if words.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined");
    }
    if words.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array");
    }
    let properties = object(words, "properties").into_iter().flat_map(Map::values);
    one("items")
        .or_else(|| properties.into_iter().find_map(formless))
        .or_else(|| one("additionalProperties"))
}

/// The word as an object with something in it.
fn object<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    schema.get(key).and_then(Value::as_object)
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Whether the word is there; null is absent to Go.
fn has(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| !value.is_null())
}

/// The schemas below this one whose defaults are checked: properties and items. Upstream does not look below
/// `additionalProperties`.
fn below<'a>(schema: &'a Map<String, Value>, at: &FieldPath) -> Vec<(&'a Map<String, Value>, FieldPath)> {
    let mut found = Vec::new();
    let properties = object(schema, "properties").into_iter().flatten();
    for (name, property) in properties {
        if let Some(property) = property.as_object() {
            found.push((property, at.key("properties").map_key(name)));
        }
    }
    if let Some(items) = object(schema, "items") {
        found.push((items, at.key("items")));
    }
    found
}

/// The types that a schema may have.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Each default must be a value that the server would store: valid, and without unknown fields.
fn defaults(schema: &Map<String, Value>, at: &FieldPath, errors: &mut Vec<FieldError>, patterns: &Patterns) {
    for (below, at) in below(schema, at) {
        defaults(below, &at, errors, patterns);
    }
    let Some(value) = schema.get("default").filter(|value| !value.is_null()) else {
        return;
    };
    // It is read once more, and the default held against it three times.
    budget::spend(200);
    let at = at.key("default");
    let expected = text(schema, "type");
    if !expected.is_empty() && !TYPES.contains(&expected) {
        let (found, _) = validate::type_of(value);
        let detail = format!(" in body must be of type {expected}: {}", quote(found));
        return errors.push(FieldError::type_invalid(&at, found, detail));
    }
    // A schema that cannot be read has errors of its own already.
    let Ok(parsed) = SchemaRef::from_crd(&Value::Object(schema.clone())) else {
        return;
    };
    if !prune(&mut value.clone(), &parsed, PruneOptions::CUSTOM_VALUE).is_empty() {
        errors.push(FieldError::invalid(&at, value.clone(), "must not have unknown fields"));
    }
    let mut wrong = validate_default(value, &parsed, &at);
    if wrong.is_empty() {
        errors.extend(rules::check_default(&parsed, value, &at, patterns));
    }
    // The path of an item is put together as that of a field.
    let items = format!("{at}[");
    for error in &mut wrong {
        if let Some(rest) = error.field.strip_prefix(&items) {
            error.field = format!("{at}.[{rest}");
        }
    }
    errors.extend(wrong);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROOT: &str = "spec.validation.openAPIV3Schema";

    /// Errors without the common start of their path, in any order.
    fn check(schema: Value, expected: &[&str]) {
        let mut errors: Vec<String> = check_crd_schema(&schema, &FieldPath::new(ROOT))
            .iter()
            .map(|error| {
                error
                    .to_string()
                    .trim_start_matches(ROOT)
                    .trim_start_matches('.')
                    .to_owned()
            })
            .collect();
        let mut expected = expected.to_vec();
        errors.sort();
        expected.sort_unstable();
        assert_eq!(errors, expected, "{schema}");
    }

    fn properties(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    /// As kube-apiserver 1.36 answers.
    #[test]
    fn below_the_root() {
        let map = |values: Value| properties(json!({"m": {"type": "object", "additionalProperties": values}}));
        check(map(json!({"type": "string", "maxLength": 1, "default": "aaa"})), &[]);
        check(
            map(json!({"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string", "default": 1}}})),
            &[],
        );
        for word in ["allOf", "anyOf", "oneOf"] {
            let mut field = json!({"type": "object", "properties": {"b": {"type": "string"}}});
            field[word] = json!([{"properties": {"x": {"enum": ["a"]}}}]);
            check(properties(json!({"a": field})), &[]);
        }
        check(
            properties(json!({"a": {"type": "string", "not": {"properties": {"x": {"enum": ["a"]}}}}})),
            &[],
        );
    }

    /// As kube-apiserver 1.36 answers.
    #[test]
    fn bounds_of_defaults() {
        let field = |schema: Value| properties(json!({"a": schema}));
        let said = |what: &str| format!("properties[a].default: Invalid value: {what}");
        let bound = |word: &str, form: &str| said(&format!("\"\": {word} value must be of type integer {form} in "));
        let whole = "(default format)";
        check(
            field(json!({"type": "integer", "default": 1, "maximum": 5.5})),
            &[&bound("Maximum boundary", whole)],
        );
        check(
            field(json!({"type": "integer", "default": 1, "multipleOf": 0.5})),
            &[&bound("MultipleOf", whole)],
        );
        check(
            field(json!({"type": "integer", "default": -1, "minimum": 1.5, "format": "int64"})),
            &[
                &bound("Minimum boundary", "with format int64"),
                &said("-1:  in body should be greater than or equal to 1.5"),
            ],
        );
        check(field(json!({"type": "number", "default": 5, "maximum": 5.5})), &[]);
        check(field(json!({"x-kubernetes-int-or-string": true, "default": true})), &[]);
        check(
            field(json!({"type": "string", "maxLength": 1, "default": "abc"})),
            &["properties[a].default: Too long: may not be more than 1 byte"],
        );
    }

    /// As kube-apiserver 1.37 answers.
    #[test]
    fn one_kind_of_mistake_hides_others() {
        let default = json!({"type": "integer", "maximum": 1, "default": 2});
        let kept = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false});
        let bad = json!({"type": "string", "pattern": "("});
        // Without a structural schema neither its form nor its defaults are looked at.
        check(
            properties(json!({"a": kept, "b": default, "c": bad, "d": {"type": "array"}, "e": {}})),
            &["properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        );
        check(
            properties(json!({"a": {"type": "object", "patternProperties": {"x": {}}}, "c": bad})),
            &["properties[a].patternProperties: Forbidden: patternProperties is not supported"],
        );
        // A pattern is a matter of form, so that defaults wait for it.
        check(
            properties(json!({"b": default, "c": bad, "d": {"type": "string", "anyOf": [{"pattern": "("}]}})),
            &[
                "properties[c].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
                "properties[d].anyOf[0].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
            ],
        );
        check(
            properties(json!({"b": {"type": "string", "anyOf": [{"additionalProperties": false}]}})),
            &[],
        );
    }

    /// As kube-apiserver 1.37 answers.
    #[test]
    fn metadata_has_no_defaults() {
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
        check(
            properties(json!({"apiVersion": {"type": "string", "default": "v1"},
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}})),
            &[
                "properties[apiVersion].default: Forbidden: must not be set in top-level apiVersion",
                "properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
            ],
        );
        let labels = json!({"type": "object", "additionalProperties": {"type": "string", "default": "x"}});
        let mut holder = embedded.clone();
        holder["properties"] =
            json!({"metadata": {"type": "object", "properties": {"labels": labels, "more": embedded}}});
        check(
            properties(json!({"a": holder})),
            &[
                "properties[a].properties[metadata].properties[labels].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata",
                "properties[a].properties[metadata].properties[more].x-kubernetes-embedded-resource: Forbidden: must not be used inside of resource meta",
            ],
        );
    }

    /// As kube-apiserver 1.37 answers.
    #[test]
    fn lists_in_defaults() {
        let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "default": ["a", "a"]});
        check(properties(json!({"a": set})), &[]);
        let rule = json!([{"rule": "self != 'a'"}]);
        let items = json!({"type": "string", "maxLength": 1, "x-kubernetes-validations": rule});
        let list = |default: Value| {
            properties(json!({"a": {"type": "array", "items": items, "default": default, "maxItems": 9}}))
        };
        check(
            list(json!(["a"])),
            &["properties[a].default[0]: Invalid value: \"a\": failed rule: self != 'a'"],
        );
        check(
            list(json!(["bb"])),
            &["properties[a].default.[0]: Too long: may not be more than 1 byte"],
        );
    }

    #[test]
    fn good_schemas() {
        check(json!({"type": "object"}), &[]);
        check(
            properties(
                json!({"metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}}),
            ),
            &[],
        );
        check(properties(json!({"a": {"type": "string", "default": null}})), &[]);
        check(
            properties(json!({
                "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "q": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minimum": 1}]},
                "r": {"x-kubernetes-preserve-unknown-fields": true},
                "without": {"x-kubernetes-preserve-unknown-fields": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "typed": {"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "first": {"type": "string", "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a"}]},
                "both": {"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}],
                         "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
                "holder": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                    "apiVersion": {"type": "string"},
                    "metadata": {"type": "object", "description": "labels", "required": ["labels"],
                                 "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "d"],
                      "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "d": {"type": "string", "default": "x"}}}},
                "o": {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"properties": {"a": {"minLength": 2}}}]},
            })),
            &[],
        );
    }

    /// Texts as recorded from kube-apiserver 1.36.
    #[test]
    fn recorded_words() {
        check(
            properties(
                json!({"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
                "b": {"type": "object", "patternProperties": {"x": {"type": "string"}}}, "c": {"$ref": "#/x"},
                "d": {"type": "object", "additionalProperties": false}}),
            ),
            &[
                "properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
                "properties[b].patternProperties: Forbidden: patternProperties is not supported",
                "properties[c].$ref: Forbidden: $ref is not supported",
            ],
        );
        check(
            properties(json!({"a": {"type": "text"}})),
            &[
                r#"properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        );
        check(
            properties(
                json!({"a": {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}}}),
            ),
            &[
                "properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        );
        check(
            properties(
                json!({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"},
                "b": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
                "c": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"]},
                "d": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}}),
            ),
            &[
                r#"properties[d].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
                "properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
                r#"properties[b].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#,
                r#"properties[c].x-kubernetes-list-map-keys: Invalid value: ["k","k"]: must not contain duplicate entries"#,
                "properties[c].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "properties[c].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        );
        check(
            properties(
                json!({"a": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}, "x-kubernetes-list-type": "set"},
                "b": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}, "x-kubernetes-list-type": "set"},
                "c": {"type": "object", "x-kubernetes-map-type": "loose"}}),
            ),
            &[
                "properties[b].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
                r#"properties[c].x-kubernetes-map-type: Unsupported value: "loose": supported values: "atomic", "granular""#,
            ],
        );
        let errors = check_crd_schema(
            &properties(json!({"a": {"type": "string", "pattern": "("}})),
            &FieldPath::new(ROOT),
        );
        assert_eq!(
            errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(),
            [format!("{ROOT}.properties[a].pattern")]
        );
        let rules = json!([{"rule": "self >"}, {"rule": ""}, {"rule": "self > 1", "message": "a\nb"},
            {"rule": "self > 1", "reason": "Odd"}, {"rule": "self > 1", "fieldPath": ".b"}]);
        let errors = check_crd_schema(
            &properties(json!({"a": {"type": "integer", "x-kubernetes-validations": rules}})),
            &FieldPath::root(),
        );
        let fields: Vec<_> = errors
            .iter()
            .map(|error| (error.cause_reason(), error.field.as_str()))
            .collect();
        assert_eq!(
            fields,
            [
                ("FieldValueRequired", "properties[a].x-kubernetes-validations[1].rule"),
                ("FieldValueInvalid", "properties[a].x-kubernetes-validations[2].message"),
                (
                    "FieldValueNotSupported",
                    "properties[a].x-kubernetes-validations[3].reason"
                ),
                (
                    "FieldValueInvalid",
                    "properties[a].x-kubernetes-validations[4].fieldPath"
                ),
            ]
        );
    }

    #[test]
    fn recorded_form() {
        check(
            json!({"type": "array", "items": {"type": "string"}}),
            &[r#"type: Invalid value: "array": must be object at the root"#],
        );
        check(
            json!({"properties": {"spec": {"properties": {"a": {"type": "string"}}}}}),
            &[
                "properties[spec].type: Required value: must not be empty for specified object fields",
                "type: Required value: must not be empty at the root",
            ],
        );
        check(
            properties(json!({"a": {"properties": {"b": {"description": "x"}}}, "c": {"type": "array"}})),
            &[
                "properties[a].properties[b].type: Required value: must not be empty for specified object fields",
                "properties[a].type: Required value: must not be empty for specified object fields",
                "properties[c].items: Required value: must be specified",
            ],
        );
        check(
            properties(
                json!({"a": {"type": "string", "anyOf": [{"type": "string", "description": "x", "default": "y"}]}}),
            ),
            &[
                "properties[a].anyOf[0].default: Forbidden: must be undefined to be structural",
                "properties[a].anyOf[0].description: Forbidden: must be empty to be structural",
                "properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
            ],
        );
        check(
            properties(json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}})),
            &[
                "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        );
        check(
            properties(json!({"a": {"type": "string", "x-kubernetes-int-or-string": true},
                "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}})),
            &[
                "properties[b].anyOf[0].type: Forbidden: must be empty to be structural",
                "properties[b].anyOf[1].type: Forbidden: must be empty to be structural",
            ],
        );
        check(
            properties(
                json!({"a": {"type": "string", "allOf": [{"minLength": 1}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
                "b": {"type": "string", "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}], "type": "string"}]},
                "c": {"type": "object", "x-kubernetes-embedded-resource": true,
                      "properties": {"metadata": {"type": "string"}}}}),
            ),
            &[
                "properties[a].allOf[1].anyOf[0].type: Forbidden: must be empty to be structural",
                "properties[a].allOf[1].anyOf[1].type: Forbidden: must be empty to be structural",
                "properties[b].allOf[0].type: Forbidden: must be empty to be structural",
                r#"properties[c].properties[metadata].type: Invalid value: "string": must be object"#,
            ],
        );
        check(
            properties(json!({"a": {"type": "object", "x-kubernetes-embedded-resource": true},
                "b": {"type": "string", "x-kubernetes-embedded-resource": true}})),
            &[
                "properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                "properties[b].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                r#"properties[b].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true"#,
            ],
        );
        check(
            json!({"type": "object", "anyOf": [{"properties": {"x": {"minimum": 1}}}]}),
            &[&format!(
                "properties[x]: Required value: because it is defined in {ROOT}.anyOf[0].properties[x]"
            )],
        );
    }

    #[test]
    fn recorded_defaults() {
        check(
            properties(
                json!({"a": {"type": "string", "default": 5}, "b": {"type": "integer", "maximum": 3, "default": 4},
                "c": {"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}},
                "e": {"type": "string", "enum": ["p"], "default": "q"}}),
            ),
            &[
                "properties[b].default: Invalid value: 4:  in body should be less than or equal to 3",
                r#"properties[c].default: Invalid value: {"y":1}: must not have unknown fields"#,
                r#"properties[e].default: Unsupported value: "q": supported values: "p""#,
                r#"properties[a].default: Invalid value: "integer":  in body must be of type string: "integer""#,
            ],
        );
        check(
            properties(
                json!({"a": {"type": "strin", "default": 5}, "b": {"type": "array", "items": {"type": "object"},
                "x-kubernetes-list-type": "bag", "x-kubernetes-list-map-keys": ["k"]}}),
            ),
            &[
                r#"properties[a].default: Invalid value: "integer":  in body must be of type strin: "integer""#,
                r#"properties[a].type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                r#"properties[b].x-kubernetes-list-type: Invalid value: "bag": must be map if x-kubernetes-list-map-keys is non-empty"#,
                r#"properties[b].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
            ],
        );
    }
}
