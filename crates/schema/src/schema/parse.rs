//! From the JSON text of a schema to a [`Schema`]: definitions of the catalog, and the schemas of CRDs.
//!
//! Both go through one reader. It notes words of the wrong type as field errors and leaves them out: for the catalog,
//! which is generated and tested, the errors are dropped; for a CRD they are the answer.

use std::collections::BTreeMap;

use kubewright_values::Minor;
use serde_json::{Map, Value};

use super::special::Special;
use super::{GroupVersionKind, ListType, MapType, Pattern, Schema, SchemaRef, Type};
use crate::budget;
use crate::error::FieldError;
use crate::path::FieldPath;

/// Where a `$ref` of a built-in definition points.
const REFERENCE: &str = "#/components/schemas/";

/// Reads a definition of the catalog.
pub(crate) fn definition(name: &'static str, minor: Minor, text: &Value) -> Schema {
    let mut reader = Reader {
        errors: Vec::new(),
        built_in: Some(minor),
    };
    let mut schema = reader.schema(text, &FieldPath::root());
    schema.name = Some(name);
    schema.special = Special::named(name);
    schema
}

/// Reads the schema of a CRD.
pub(super) fn crd(text: &Value, at: &FieldPath) -> Result<Schema, Vec<FieldError>> {
    let mut reader = Reader {
        errors: Vec::new(),
        built_in: None,
    };
    let schema = reader.schema(text, at);
    if reader.errors.is_empty() {
        Ok(schema)
    } else {
        Err(reader.errors)
    }
}

struct Reader {
    errors: Vec<FieldError>,
    /// Only built-in definitions may refer to each other: to those of the same version.
    built_in: Option<Minor>,
}

impl Reader {
    fn wrong(&mut self, at: &FieldPath, value: &Value, expected: &str) {
        self.errors.push(FieldError::type_invalid(
            at,
            value.clone(),
            format!("must be {expected}"),
        ));
    }

    /// The value of `key`, read by `read`; absent and null are none.
    fn get<'a, T>(
        &mut self,
        from: &'a Map<String, Value>,
        at: &FieldPath,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = from.get(key).filter(|value| !value.is_null())?;
        let found = read(value);
        if found.is_none() {
            self.wrong(&at.key(key), value, expected);
        }
        found
    }

    fn string<'a>(&mut self, from: &'a Map<String, Value>, at: &FieldPath, key: &str) -> Option<&'a str> {
        self.get(from, at, key, "a string", Value::as_str)
    }

    fn flag(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> bool {
        self.get(from, at, key, "a boolean", Value::as_bool).unwrap_or(false)
    }

    fn number(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> Option<f64> {
        self.get(from, at, key, "a number", Value::as_f64)
    }

    fn integer(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> Option<i64> {
        self.get(from, at, key, "an integer", |value| {
            // JSON from Go may print a whole number as a float.
            value
                .as_i64()
                .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
        })
    }

    fn list<'a>(&mut self, from: &'a Map<String, Value>, at: &FieldPath, key: &str) -> &'a [Value] {
        self.get(from, at, key, "a list", Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    fn strings(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> Vec<String> {
        let mut strings = Vec::new();
        for (i, value) in self.list(from, at, key).iter().enumerate() {
            match value.as_str() {
                Some(text) => strings.push(text.to_owned()),
                None => self.wrong(&at.key(key).index(i), value, "a string"),
            }
        }
        strings
    }

    fn reference(&mut self, value: &Value, at: &FieldPath) -> SchemaRef {
        if let Some(minor) = self.built_in
            && let Some(found) = self.named(value, minor, at)
        {
            return found;
        }
        SchemaRef::new(self.schema(value, at))
    }

    /// `{$ref}`, or `{allOf: [{$ref}]}` with words of its own, as kube-apiserver writes it.
    fn named(&mut self, value: &Value, minor: Minor, at: &FieldPath) -> Option<SchemaRef> {
        let target = |value: &Value| {
            let name = value.get("$ref")?.as_str()?.strip_prefix(REFERENCE)?;
            super::catalog::of(minor).static_name(name)
        };
        if let Some(name) = target(value) {
            return Some(SchemaRef::named(name, minor, None));
        }
        let [only] = value.get("allOf")?.as_array()?.as_slice() else {
            return None;
        };
        let name = target(only)?;
        let mut own = value.as_object()?.clone();
        own.remove("allOf");
        let overlay = self.schema(&Value::Object(own), at);
        Some(SchemaRef::named(name, minor, Some(Box::new(overlay))))
    }

    fn child(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> Option<SchemaRef> {
        let value = from.get(key).filter(|value| !value.is_null())?;
        Some(self.reference(value, &at.key(key)))
    }

    fn children(&mut self, from: &Map<String, Value>, at: &FieldPath, key: &str) -> Vec<SchemaRef> {
        let list = self.list(from, at, key);
        list.iter()
            .enumerate()
            .map(|(i, value)| self.reference(value, &at.key(key).index(i)))
            .collect()
    }

    fn properties(&mut self, from: &Map<String, Value>, at: &FieldPath) -> BTreeMap<String, SchemaRef> {
        let map = self.get(from, at, "properties", "an object", Value::as_object);
        let below = at.key("properties");
        // Fields that stand next to each other are often of one type, and schemas are large.
        let mut latest: Option<(&Value, SchemaRef)> = None;
        let mut properties = Vec::new();
        for (name, value) in map.into_iter().flatten() {
            let mistakes = self.errors.len();
            let read = match latest.take().filter(|(same, _)| *same == value) {
                Some((_, read)) => read,
                None => self.reference(value, &below.map_key(name)),
            };
            // Of mistakes each field is told by itself.
            latest = (self.errors.len() == mistakes).then(|| (value, read.clone()));
            properties.push((name.clone(), read));
        }
        properties.into_iter().collect()
    }

    /// `x-kubernetes-patch-strategy` is one string with commas.
    fn strategies(&mut self, from: &Map<String, Value>, at: &FieldPath) -> Vec<String> {
        let text = self.string(from, at, "x-kubernetes-patch-strategy").unwrap_or_default();
        text.split(',')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn gvks(&mut self, from: &Map<String, Value>, at: &FieldPath) -> Vec<GroupVersionKind> {
        let key = "x-kubernetes-group-version-kind";
        let part = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.list(from, at, key)
            .iter()
            .map(|gvk| GroupVersionKind {
                group: part(gvk, "group"),
                version: part(gvk, "version"),
                kind: part(gvk, "kind"),
            })
            .collect()
    }

    fn schema(&mut self, value: &Value, at: &FieldPath) -> Schema {
        let Some(from) = value.as_object() else {
            self.wrong(at, value, "an object");
            return Schema::default();
        };
        // Each word is asked for.
        budget::spend(32);
        let format = self.string(from, at, "format");
        let additional = from.get("additionalProperties").filter(|value| !value.is_null());
        Schema {
            go: std::sync::OnceLock::new(),
            enum_texts: std::sync::OnceLock::new(),
            name: None,
            special: None,
            type_: self
                .get(from, at, "type", "a type of OpenAPI v3", |v| {
                    v.as_str().map(Type::parse)
                })
                .flatten(),
            properties: self.properties(from, at),
            additional_properties: additional
                .filter(|value| !value.is_boolean())
                .map(|value| self.reference(value, &at.key("additionalProperties"))),
            additional_properties_allowed: additional.and_then(Value::as_bool),
            items: self.child(from, at, "items"),
            required: self.strings(from, at, "required"),
            nullable: self.flag(from, at, "nullable"),
            format: format.map(Into::into),
            enum_: self.list(from, at, "enum").to_vec(),
            minimum: self.number(from, at, "minimum"),
            exclusive_minimum: self.flag(from, at, "exclusiveMinimum"),
            maximum: self.number(from, at, "maximum"),
            exclusive_maximum: self.flag(from, at, "exclusiveMaximum"),
            multiple_of: self.number(from, at, "multipleOf"),
            min_length: self.integer(from, at, "minLength"),
            max_length: self.integer(from, at, "maxLength"),
            pattern: self
                .string(from, at, "pattern")
                .filter(|text| !text.is_empty())
                .map(Pattern::new),
            min_items: self.integer(from, at, "minItems"),
            max_items: self.integer(from, at, "maxItems"),
            unique_items: self.flag(from, at, "uniqueItems"),
            min_properties: self.integer(from, at, "minProperties"),
            max_properties: self.integer(from, at, "maxProperties"),
            default: from.get("default").filter(|value| !value.is_null()).cloned(),
            description: self.string(from, at, "description").map(Into::into),
            title: self.string(from, at, "title").map(Into::into),
            all_of: self.children(from, at, "allOf"),
            any_of: self.children(from, at, "anyOf"),
            one_of: self.children(from, at, "oneOf"),
            not: self.child(from, at, "not"),
            int_or_string: self.flag(from, at, "x-kubernetes-int-or-string") || format == Some("int-or-string"),
            preserve_unknown_fields: self.flag(from, at, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: self.flag(from, at, "x-kubernetes-embedded-resource"),
            list_type: self.list_type(from, at),
            list_map_keys: self.strings(from, at, "x-kubernetes-list-map-keys"),
            map_type: self.map_type(from, at),
            validations: self.list(from, at, "x-kubernetes-validations").to_vec(),
            patch_merge_key: self.string(from, at, "x-kubernetes-patch-merge-key").map(str::to_owned),
            patch_strategy: self.strategies(from, at),
            gvks: self.gvks(from, at),
        }
    }

    fn list_type(&mut self, from: &Map<String, Value>, at: &FieldPath) -> Option<ListType> {
        Some(match self.string(from, at, "x-kubernetes-list-type")? {
            "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            "map" => ListType::Map,
            // Refused in words when the CRD is written; without a meaning here.
            _ => return None,
        })
    }

    fn map_type(&mut self, from: &Map<String, Value>, at: &FieldPath) -> Option<MapType> {
        Some(match self.string(from, at, "x-kubernetes-map-type")? {
            "atomic" => MapType::Atomic,
            "granular" => MapType::Granular,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Neighbours of the same words share a schema; each mistake is told of by itself.
    #[test]
    fn neighbours_are_read_as_if_each_were_alone() {
        let (text, wrong) = (json!({"type": "string", "maxLength": 3}), json!({"minimum": "no"}));
        let properties = json!({"a": text, "b": text, "c": {"type": "integer"}, "d": text});
        let schema = SchemaRef::from_crd(&json!({ "properties": properties })).expect("a schema");
        for (name, of) in &schema.properties {
            let alone = SchemaRef::from_crd(&properties[name]).expect("a schema");
            assert_eq!(format!("{of:?}"), format!("{alone:?}"), "{name}");
        }
        assert!(schema.properties["a"].same(&schema.properties["b"]));
        assert!(!schema.properties["a"].same(&schema.properties["c"]));
        let wrong = json!({"properties": {"a": wrong, "b": wrong, "c": text, "d": wrong}});
        let errors = SchemaRef::from_crd(&wrong).expect_err("three mistakes");
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let wanted = ["a", "b", "d"].map(|name| format!("properties[{name}].minimum"));
        assert_eq!(fields, wanted);
    }
}
