//! The structural rules: every place has a type, and combinators only restrict values.

use serde_json::{Map, Value};

use super::{flag, has, list, object, text};
use crate::budget;
use crate::error::FieldError;
use crate::path::FieldPath;
use crate::schema::Pattern;

type Schema = Map<String, Value>;

/// Where a schema stands in the core.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// The errors in the form of a schema.
pub(super) fn check(root: &Schema, at: &FieldPath) -> Vec<FieldError> {
    let mut form = Form {
        errors: Vec::new(),
        uncovered: Vec::new(),
    };
    form.core(root, Level::Root, at);
    // Whether combinators name only fields of the core is checked when each of them may stand where it does.
    if form.errors.is_empty() {
        form.errors = form.uncovered;
    }
    // Upstream tells them in the order of their texts.
    form.errors.sort_by_cached_key(ToString::to_string);
    form.errors
}

struct Form {
    errors: Vec<FieldError>,
    /// Where a combinator names a field that the core does not have.
    uncovered: Vec<FieldError>,
}

impl Form {
    fn forbidden(&mut self, at: FieldPath, detail: &str) {
        self.errors.push(FieldError::forbidden(&at, detail));
    }

    fn required(&mut self, at: FieldPath, detail: &str) {
        self.errors.push(FieldError::required(&at, detail));
    }

    fn uncover(&mut self, core_at: FieldPath, at: &FieldPath) {
        let detail = format!("because it is defined in {at}");
        self.uncovered.push(FieldError::required(&core_at, detail));
    }

    fn core(&mut self, schema: &Schema, level: Level, at: &FieldPath) {
        budget::spend(32);
        for (name, property) in object(schema, "properties").into_iter().flatten() {
            if let Some(property) = property.as_object() {
                self.core(property, Level::Field, &at.key("properties").map_key(name));
            }
        }
        if let Some(items) = object(schema, "items") {
            self.core(items, Level::Item, &at.key("items"));
        }
        if let Some(values) = object(schema, "additionalProperties") {
            self.core(values, Level::Field, &at.key("additionalProperties"));
        }
        if level == Level::Root && has(schema, "additionalProperties") {
            self.forbidden(at.key("additionalProperties"), "must not be used at the root");
        }
        if text(schema, "type") == "array" && !has(schema, "items") {
            self.required(at.key("items"), "must be specified");
        }
        self.pattern(schema, at);
        self.extensions(schema, at);
        self.type_(schema, level, at);
        self.embedded(schema, level, at);
        self.combinators(schema, level, at);
    }

    fn pattern(&mut self, schema: &Schema, at: &FieldPath) {
        let pattern = text(schema, "pattern");
        if !pattern.is_empty()
            && let Err(error) = Pattern::new(pattern).check()
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.errors
                .push(FieldError::invalid(at.key("pattern"), pattern, detail));
        }
    }

    fn extensions(&mut self, schema: &Schema, at: &FieldPath) {
        if !flag(schema, "x-kubernetes-int-or-string") {
            return;
        }
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.errors.push(FieldError::invalid(at.key(key), true, detail));
            }
        }
    }

    fn type_(&mut self, schema: &Schema, level: Level, at: &FieldPath) {
        let embedded = flag(schema, "x-kubernetes-embedded-resource");
        let free = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
        let at = at.key("type");
        let type_ = text(schema, "type");
        if embedded && type_ != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match type_ {
                "" => self.required(at.clone(), detail),
                other => self.errors.push(FieldError::invalid(&at, other, detail)),
            }
        } else if type_.is_empty() && !free {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Field => "must not be empty for specified object fields",
                Level::Item => "must not be empty for specified array items",
            };
            self.required(at.clone(), detail);
        }
        if level == Level::Root && !matches!(type_, "" | "object") {
            let detail = "must be object at the root";
            self.errors.push(FieldError::invalid(&at, type_, detail));
        }
    }

    fn embedded(&mut self, schema: &Schema, level: Level, at: &FieldPath) {
        let embedded = flag(schema, "x-kubernetes-embedded-resource");
        let properties = object(schema, "properties").filter(|properties| !properties.is_empty());
        if embedded {
            if has(schema, "additionalProperties") {
                let detail = "must not be used if x-kubernetes-embedded-resource is set";
                self.forbidden(at.key("additionalProperties"), detail);
            }
            if properties.is_none() && !flag(schema, "x-kubernetes-preserve-unknown-fields") {
                let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
                self.required(at.key("properties"), detail);
            }
        }
        if (embedded || level == Level::Root)
            && let Some(properties) = properties
        {
            self.metadata(properties, level, &at.key("properties"));
        }
    }

    /// The schema of a resource may restrict its names; the other fields of all resources are known. Whatever that of an
    /// embedded one says is accepted (`validateStructuralMetadataInvariants`).
    fn metadata(&mut self, properties: &Schema, level: Level, at: &FieldPath) {
        for key in ["kind", "apiVersion"] {
            if let Some(schema) = object(properties, key)
                && text(schema, "type") != "string"
            {
                self.errors.push(FieldError::invalid(
                    at.map_key(key).key("type"),
                    text(schema, "type"),
                    "must be string",
                ));
            }
        }
        let Some(metadata) = object(properties, "metadata") else {
            return;
        };
        let at = at.map_key("metadata");
        if text(metadata, "type") != "object" {
            self.errors.push(FieldError::invalid(
                at.key("type"),
                text(metadata, "type"),
                "must be object",
            ));
        }
        if level != Level::Root {
            return;
        }
        let other_words = metadata
            .keys()
            .any(|key| !matches!(key.as_str(), "type" | "properties") && has(metadata, key));
        let other_fields = object(metadata, "properties").is_some_and(|properties| {
            properties
                .keys()
                .any(|key| !matches!(key.as_str(), "name" | "generateName"))
        });
        if other_words || other_fields {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbidden(at, detail);
        }
    }

    fn combinators(&mut self, core: &Schema, level: Level, at: &FieldPath) {
        // An int-or-string may say so in these words, with the extension or without.
        let first_of_all = list(core, "allOf").first().and_then(Value::as_object);
        let pair_in_all = first_of_all.is_some_and(|first| is_pair_of_types(list(first, "anyOf")));
        for key in ["allOf", "anyOf", "oneOf"] {
            for (i, nested) in list(core, key).iter().enumerate() {
                let Some(nested) = nested.as_object() else { continue };
                let here = at.key(key).index(i);
                if key == "allOf" && i == 0 && pair_in_all {
                    self.nested(&without_any_of(nested), &here);
                } else if key != "anyOf" || !is_pair_of_types(list(core, key)) {
                    self.nested(nested, &here);
                }
                self.covered_at_root(level, nested, core, &here, at);
            }
        }
        if let Some(nested) = object(core, "not") {
            self.nested(nested, &at.key("not"));
            self.covered_at_root(level, nested, core, &at.key("not"), at);
        }
    }

    /// Upstream asks only of the combinators at the root (`validateStructuralCompleteness`).
    fn covered_at_root(&mut self, level: Level, nested: &Schema, core: &Schema, at: &FieldPath, core_at: &FieldPath) {
        if level == Level::Root {
            self.covered(nested, core, at, core_at);
        }
    }

    /// A schema in a combinator restricts values, and does not define their types.
    fn nested(&mut self, schema: &Schema, at: &FieldPath) {
        budget::spend(16);
        self.pattern(schema, at);
        for key in ["type", "title", "description"] {
            if !text(schema, key).is_empty() {
                self.forbidden(at.key(key), "must be empty to be structural");
            }
        }
        for key in [
            "default",
            "additionalProperties",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ] {
            // That there are no further properties is as if nothing was said of them.
            if has(schema, key) && (key != "additionalProperties" || schema[key] != Value::Bool(false)) {
                self.forbidden(at.key(key), "must be undefined to be structural");
            }
        }
        for key in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
            if !list(schema, key).is_empty() {
                self.forbidden(at.key(key), "must be empty to be structural");
            }
        }
        for key in [
            "nullable",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ] {
            if flag(schema, key) {
                self.forbidden(at.key(key), "must be false to be structural");
            }
        }
        if object(schema, "properties").is_some_and(|properties| properties.contains_key("metadata")) {
            let at = at.key("properties").map_key("metadata");
            self.forbidden(at, "must not be specified in a nested context");
        }
        for (nested, at) in inner(schema, at) {
            self.nested(nested, &at);
        }
    }

    /// A field or the items in a combinator must also be defined in the core.
    fn covered(&mut self, nested: &Schema, core: &Schema, at: &FieldPath, core_at: &FieldPath) {
        for (name, property) in object(nested, "properties").into_iter().flatten() {
            let Some(property) = property.as_object() else { continue };
            let (at, core_at) = (
                at.key("properties").map_key(name),
                core_at.key("properties").map_key(name),
            );
            let values = object(core, "additionalProperties");
            match object(core, "properties")
                .and_then(|properties| object(properties, name))
                .or(values)
            {
                Some(core) => self.covered(property, core, &at, &core_at),
                None => self.uncover(core_at, &at),
            }
        }
        if let Some(items) = object(nested, "items") {
            let (at, core_at) = (at.key("items"), core_at.key("items"));
            match object(core, "items") {
                Some(core) => self.covered(items, core, &at, &core_at),
                None => self.uncover(core_at, &at),
            }
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (i, nested) in list(nested, key).iter().enumerate() {
                if let Some(nested) = nested.as_object() {
                    self.covered(nested, core, &at.key(key).index(i), core_at);
                }
            }
        }
        if let Some(not) = object(nested, "not") {
            self.covered(not, core, &at.key("not"), core_at);
        }
    }
}

/// The schemas inside a nested one.
fn inner<'a>(schema: &'a Schema, at: &FieldPath) -> Vec<(&'a Schema, FieldPath)> {
    let mut found = Vec::new();
    let mut add = |value: &'a Value, at: FieldPath| {
        if let Some(schema) = value.as_object() {
            found.push((schema, at));
        }
    };
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        add(property, at.key("properties").map_key(name));
    }
    for key in ["items", "not"] {
        if let Some(value) = schema.get(key) {
            add(value, at.key(key));
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, value) in list(schema, key).iter().enumerate() {
            add(value, at.key(key).index(i));
        }
    }
    found
}

/// Whether these branches are `[{type: integer}, {type: string}]`, exactly so: the types of an int-or-string, which a
/// core may have in its `anyOf` (`isIntOrStringAnyOfPattern`) or in the one of its first `allOf`
/// (`isIntOrStringAllOfPattern`).
fn is_pair_of_types(branches: &[Value]) -> bool {
    let of = |value: &Value, type_: &str| {
        value
            .as_object()
            .is_some_and(|map| text(map, "type") == type_ && map.keys().all(|key| key == "type" || !has(map, key)))
    };
    matches!(branches, [first, second] if of(first, "integer") && of(second, "string"))
}

fn without_any_of(schema: &Schema) -> Schema {
    let words = schema.iter().filter(|(word, _)| *word != "anyOf");
    words.map(|(word, value)| (word.clone(), value.clone())).collect()
}
