//! The root of a version's schema, which may say less than the schemas below it.

use serde_json::Value;

use crate::check::{At, Errors};

/// Words that stand before the type in upstream's struct, which it goes through until the first mistake.
const BEFORE_TYPE: [&str; 3] = ["id", "$schema", "$ref"];
/// The other words that the root may not have beside a status: the schema of the status is taken out of it.
const BESIDE_STATUS: [&str; 19] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "enum",
    "maxProperties",
    "minProperties",
    "not",
    "nullable",
    "oneOf",
    "patternProperties",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const ONLY: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern \
    MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are \
    allowed at the root of the schema if the status subresource is enabled";

/// The errors in the root of a schema (`ValidateCustomResourceDefinitionValidation`); `status`: whether the version has
/// that subresource.
pub(super) fn check(errors: &mut Errors, schema: &At<'_>, status: bool) {
    if status {
        beside_status(errors, schema);
    }
    if schema.key("nullable").is_true() {
        errors.forbidden(&schema.key("nullable"), "nullable cannot be true at the root");
    }
}

fn beside_status(errors: &mut Errors, schema: &At<'_>) {
    let says = |word: &&str| match schema.key(word).value {
        // Go has pointers for these two: an empty text is one.
        Value::String(_) if matches!(*word, "x-kubernetes-list-type" | "x-kubernetes-map-type") => true,
        value => is_said(value),
    };
    let type_ = schema.key("type");
    if BEFORE_TYPE.iter().any(says) {
        errors.invalid(schema, ONLY);
    } else if !matches!(type_.text(), "" | "object") {
        errors.invalid(
            &type_,
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        );
    } else if BESIDE_STATUS.iter().any(says) {
        errors.invalid(schema, ONLY);
    }
}

/// Whether a word says something to Go: an empty list does, an empty text does not.
fn is_said(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}
