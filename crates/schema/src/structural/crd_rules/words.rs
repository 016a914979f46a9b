//! The words of each schema of a CRD by themselves: which are allowed, with which values, beside which others.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{flag, has, list, object, text};
use crate::budget;
use crate::error::{FieldError, Reason};
use crate::path::FieldPath;
use crate::rules;
use crate::schema::{SchemaRef, Type};

type Schema = Map<String, Value>;

/// Words of JSON Schema that CRDs may not use and that have no structural form.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
];

/// Reasons that a CEL rule may give.
const REASONS: &[&str] = &[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

pub(super) struct Words {
    pub(super) errors: Vec<FieldError>,
    /// Whether a structural schema can be made of it.
    pub(super) has_form: bool,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            errors: Vec::new(),
            has_form: true,
        }
    }
}

/// What may be said where a schema stands.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Why there may be no default.
    no_default: Option<&'static str>,
    /// Whether it describes the metadata, kind or version of a resource.
    in_metadata: bool,
}

impl Place {
    /// That of a property; `root`: of the whole schema.
    fn property(self, schema: &Schema, root: bool, name: &str) -> Self {
        let no_default = match name {
            "metadata" => "must not be set in top-level metadata",
            "kind" => "must not be set in top-level kind",
            "apiVersion" => "must not be set in top-level apiVersion",
            _ => return self,
        };
        Self {
            no_default: if root { Some(no_default) } else { self.no_default },
            in_metadata: self.in_metadata || root || flag(schema, "x-kubernetes-embedded-resource"),
        }
    }

    /// That of the values of a map.
    fn values(self) -> Self {
        // Without the value it would not be known what to prune.
        const IN_METADATA: &str = "must not be set inside additionalProperties applying to object metadata";
        Self {
            no_default: if self.in_metadata {
                Some(IN_METADATA)
            } else {
                self.no_default
            },
            ..self
        }
    }
}

impl Words {
    fn forbidden(&mut self, at: &FieldPath, key: &str, detail: &str) {
        self.errors.push(FieldError::forbidden(at.key(key), detail));
    }

    fn invalid(&mut self, at: FieldPath, value: Value, detail: &str) {
        self.errors.push(FieldError::invalid(&at, value, detail));
    }

    fn required(&mut self, at: FieldPath, detail: &str) {
        self.errors.push(FieldError::required(&at, detail));
    }

    /// A value outside a list, named in the order that upstream names it.
    fn unsupported(&mut self, at: FieldPath, value: &str, supported: &[&str]) {
        let supported: Vec<_> = supported.iter().map(|word| format!("{word:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        let error = FieldError {
            reason: Reason::NotSupported,
            field: at.into(),
            bad_value: Some(value.into()),
            detail,
        };
        self.errors.push(error.counted());
    }

    /// Checks a whole schema.
    pub(super) fn check(&mut self, root: &Schema, at: &FieldPath) {
        self.level(root, at, Place::default(), true);
    }

    /// Checks a schema and all below it.
    fn level(&mut self, schema: &Schema, at: &FieldPath, place: Place, root: bool) {
        // Each word is asked for.
        budget::spend(32);
        if let Some(detail) = place.no_default.filter(|_| has(schema, "default")) {
            self.forbidden(at, "default", detail);
        }
        if place.in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
            let detail = "must not be used inside of resource meta";
            self.forbidden(at, "x-kubernetes-embedded-resource", detail);
        }
        self.not_supported(schema, at);
        self.type_(schema, at);
        self.additional(schema, at);
        self.extensions(schema, at);
        self.rules(schema, at);
        for (name, property) in object(schema, "properties").into_iter().flatten() {
            let below = place.property(schema, root, name);
            self.maybe(property, &at.key("properties").map_key(name), below);
        }
        if let Some(values) = object(schema, "additionalProperties") {
            self.level(values, &at.key("additionalProperties"), place.values(), false);
        }
        for key in ["items", "not"] {
            if let Some(schema) = object(schema, key) {
                self.level(schema, &at.key(key), place, false);
            }
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (i, schema) in list(schema, key).iter().enumerate() {
                self.maybe(schema, &at.key(key).index(i), place);
            }
        }
    }

    fn maybe(&mut self, schema: &Value, at: &FieldPath, place: Place) {
        match schema.as_object() {
            Some(schema) => self.level(schema, at, place, false),
            None => {
                self.has_form = false;
                self.errors
                    .push(FieldError::type_invalid(at, schema.clone(), "must be an object"));
            }
        }
    }

    fn not_supported(&mut self, schema: &Schema, at: &FieldPath) {
        for (word, detail) in UNSUPPORTED {
            let empty = match schema.get(*word) {
                None | Some(Value::Null) => true,
                // An empty map of dependencies is one to Go, and so is an empty reference.
                Some(Value::Object(map)) => map.is_empty() && !matches!(*word, "additionalItems" | "dependencies"),
                Some(Value::String(text)) => text.is_empty() && *word != "$ref",
                Some(_) => false,
            };
            if !empty {
                self.has_form = false;
                self.forbidden(at, word, detail);
            }
        }
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(at, "uniqueItems", detail);
        }
        if schema.get("items").is_some_and(Value::is_array) {
            self.has_form = false;
            self.forbidden(at, "items", "items must be a schema object and not an array");
        }
    }

    fn type_(&mut self, schema: &Schema, at: &FieldPath) {
        match text(schema, "type") {
            "" => {}
            "null" => self.forbidden(at, "type", "type cannot be set to null, use nullable as an alternative"),
            word if Type::parse(word).is_none() => {
                self.unsupported(at.key("type"), word, &super::TYPES);
            }
            _ => {}
        }
    }

    fn additional(&mut self, schema: &Schema, at: &FieldPath) {
        let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) else {
            return;
        };
        if object(schema, "properties").is_some_and(|given| !given.is_empty()) && additional != &Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.forbidden(at, "additionalProperties", detail);
        }
    }

    fn extensions(&mut self, schema: &Schema, at: &FieldPath) {
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            self.has_form = false;
            self.invalid(
                at.key("x-kubernetes-preserve-unknown-fields"),
                false.into(),
                "must be true or undefined",
            );
        }
        let map_type = text(schema, "x-kubernetes-map-type");
        if has(schema, "x-kubernetes-map-type") {
            if text(schema, "type") != "object" {
                self.of_type(schema, at, "must be object if x-kubernetes-map-type is specified");
            }
            if !matches!(map_type, "atomic" | "granular") {
                self.unsupported(at.key("x-kubernetes-map-type"), map_type, &["atomic", "granular"]);
            }
        }
        self.list_type(schema, at);
    }

    /// The type is another than an extension needs.
    fn of_type(&mut self, schema: &Schema, at: &FieldPath, detail: &str) {
        match text(schema, "type") {
            "" => self.required(at.key("type"), detail),
            type_ => self.invalid(at.key("type"), type_.into(), detail),
        }
    }

    fn list_type(&mut self, schema: &Schema, at: &FieldPath) {
        let list_type = text(schema, "x-kubernetes-list-type");
        let keys = list(schema, "x-kubernetes-list-map-keys");
        let given = has(schema, "x-kubernetes-list-type");
        if given && text(schema, "type") != "array" {
            self.of_type(schema, at, "must be array if x-kubernetes-list-type is specified");
        }
        if !keys.is_empty() && list_type != "map" {
            let (here, detail) = (
                at.key("x-kubernetes-list-type"),
                "must be map if x-kubernetes-list-map-keys is non-empty",
            );
            match given {
                true => self.invalid(here, list_type.into(), detail),
                false => self.required(here, detail),
            }
        }
        match list_type {
            _ if !given => {}
            "atomic" => {}
            "set" if keys.is_empty() => self.set(schema, at),
            "set" => {}
            "map" => self.map(schema, keys, at),
            other => self.unsupported(at.key("x-kubernetes-list-type"), other, &["atomic", "set", "map"]),
        }
    }

    fn set(&mut self, schema: &Schema, at: &FieldPath) {
        let Some(items) = object(schema, "items") else { return };
        let at = at.key("items");
        let value = |key: &str| items.get(key).cloned().unwrap_or_default();
        if flag(items, "nullable") {
            self.forbidden(&at, "nullable", "cannot be nullable when x-kubernetes-list-type is set");
        }
        match text(items, "type") {
            "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                // The value is that of the other word, as upstream shows it.
                self.invalid(at.key("x-kubernetes-map-type"), value("x-kubernetes-list-type"), detail);
            }
            "array" if !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic") => {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                self.invalid(
                    at.key("x-kubernetes-list-type"),
                    value("x-kubernetes-list-type"),
                    detail,
                );
            }
            _ => {}
        }
    }

    fn map(&mut self, schema: &Schema, keys: &[Value], at: &FieldPath) {
        let here = at.key("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.required(here.clone(), "must not be empty if x-kubernetes-list-type is map");
        }
        let Some(items) = object(schema, "items") else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            return self.required(at.key("items"), detail);
        };
        let at = at.key("items");
        if flag(items, "nullable") {
            self.forbidden(&at, "nullable", "cannot be nullable when x-kubernetes-list-type is map");
        }
        if text(items, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return self.invalid(at.key("type"), text(items, "type").into(), detail);
        }
        let names: BTreeSet<_> = keys.iter().filter_map(Value::as_str).collect();
        if names.len() < keys.len() {
            self.invalid(here.clone(), keys.to_vec().into(), "must not contain duplicate entries");
        }
        let required = list(items, "required");
        // Once for each mention, as upstream says it.
        for name in keys.iter().filter_map(Value::as_str) {
            let Some(property) = object(items, "properties").and_then(|properties| object(properties, name)) else {
                let detail = "entries must all be names of item properties";
                self.invalid(here.clone(), keys.to_vec().into(), detail);
                continue;
            };
            let at = at.key("properties").map_key(name);
            if matches!(text(property, "type"), "object" | "array") {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                // The type is that of the items, as upstream shows it.
                self.invalid(at.key("type"), text(items, "type").into(), detail);
            }
            if flag(property, "nullable") {
                self.forbidden(
                    &at,
                    "nullable",
                    "cannot be nullable when it is a key of the parent array's x-kubernetes-list-map-keys",
                );
            }
            budget::spend(required.len());
            if !has(property, "default") && !required.iter().any(|required| required == name) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.required(at.key("default"), detail);
            }
        }
    }

    /// The errors of CEL rules that show without parsing them.
    fn rules(&mut self, schema: &Schema, at: &FieldPath) {
        // A schema that cannot be read has other mistakes.
        let parsed = OnceCell::new();
        let is_field_path = |path: &str| {
            let parsed = parsed.get_or_init(|| SchemaRef::from_crd(&Value::Object(schema.clone())).ok());
            parsed
                .as_ref()
                .is_none_or(|schema| rules::follow(path, schema).is_some())
        };
        for (i, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
            let Some(rule) = rule.as_object() else { continue };
            let at = at.key("x-kubernetes-validations").index(i);
            self.rule_message(rule, &at);
            let expression = text(rule, "messageExpression");
            if !expression.is_empty() && expression.trim().is_empty() {
                self.required(
                    at.key("messageExpression"),
                    "messageExpression must be non-empty if specified",
                );
            }
            let reason = text(rule, "reason");
            if has(rule, "reason") && !REASONS.contains(&reason) {
                self.unsupported(at.key("reason"), reason, REASONS);
            }
            let path = text(rule, "fieldPath");
            if path.is_empty() {
                continue;
            }
            let here = at.key("fieldPath");
            if path.trim().is_empty() {
                self.invalid(here.clone(), path.into(), "must be non-empty if specified");
            }
            if path.contains(['\n', '\r']) {
                self.invalid(here.clone(), path.into(), "must not contain line breaks");
            }
            if !is_field_path(path) {
                self.invalid(here, path.into(), "must be a valid path");
            }
        }
    }

    fn rule_message(&mut self, rule: &Map<String, Value>, at: &FieldPath) {
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let breaks = |text: &str| text.trim().contains(['\n', '\r']);
        if expression.is_empty() {
            self.required(at.key("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            self.invalid(at.key("message"), message.into(), "must be non-empty if specified");
        } else if breaks(message) {
            self.invalid(at.key("message"), message.into(), "must not contain line breaks");
        } else if breaks(expression) && message.is_empty() {
            self.required(
                at.key("message"),
                "message must be specified if rule contains line breaks",
            );
        }
    }
}
