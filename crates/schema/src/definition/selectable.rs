//! The fields that custom resources may be selected by.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::check::{At, Errors};
use crate::error::FieldError;
use crate::schema::{SchemaRef, Type};
use crate::structural::formless;

/// How many fields there may be.
const MAX: usize = 8;

/// `ValidateCustomResourceSelectableFields`.
pub(super) fn check(errors: &mut Errors, at: &At<'_>, schema: &Value) {
    const TYPES: &str = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                         formats are allowed.";
    let formless = formless(schema);
    if let (Some(why), Some(place)) = (formless, at.path.as_str().strip_suffix("selectableFields")) {
        let field = format!("{place}schema.openAPIV3Schema");
        errors.push(FieldError::invalid(field, Value::from(""), why));
    }
    let parsed = SchemaRef::from_crd(schema).ok().filter(|_| formless.is_none());
    let mut seen = BTreeSet::new();
    for field in at.items() {
        let path = field.key("jsonPath");
        if path.text().is_empty() {
            errors.required(&path, "");
            continue;
        }
        let (names, found) = match target(parsed.as_ref(), path.text()) {
            Ok(target) => target,
            Err(why) => {
                errors.invalid(&path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if names.first().is_some_and(|name| *name == "metadata") {
            errors.invalid(&path, "must not point to fields in metadata");
        }
        let type_ = found.and_then(|found| found.type_);
        if !matches!(type_, Some(Type::String | Type::Boolean | Type::Integer)) {
            errors.invalid(&path, TYPES);
        }
        if !seen.insert(names) {
            errors.duplicate(&path);
        }
    }
    if seen.len() > MAX {
        errors.push(FieldError::too_many(at.path.to_string(), seen.len(), MAX));
    }
}

/// The names on the way to a field and the schema of the field, which is none when any value may be there
/// (`ValidFieldPath`, without items in brackets).
fn target<'s, 'p>(root: Option<&'s SchemaRef>, path: &'p str) -> Result<(Vec<&'p str>, Option<&'s SchemaRef>), String> {
    const UNKNOWN: &str = "does not refer to a valid field";
    let (mut at, mut names, mut rest) = (root, Vec::new(), path);
    while !rest.is_empty() {
        let (token, after) = rest.split_at(token_end(rest));
        match token {
            "." => {}
            "[" => return Err("array notation is not allowed".to_owned()),
            other => return Err(format!("expected [ or . but got: {other}")),
        }
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let (name, after) = after.split_at(token_end(after));
        let schema = at.ok_or(UNKNOWN)?;
        at = if !schema.properties.is_empty() {
            Some(schema.properties.get(name).ok_or(UNKNOWN)?)
        } else if schema.additional_properties.is_some() || schema.additional_properties_allowed.is_some() {
            schema.additional_properties.as_ref()
        } else {
            return Err(UNKNOWN.to_owned());
        };
        names.push(name);
        rest = after;
    }
    Ok((names, at))
}

/// The end of the first token: a delimiter, a text in quotes, or a name.
fn token_end(text: &str) -> usize {
    if text.starts_with(['.', '[', ']']) {
        return 1;
    }
    if text.starts_with('\'') {
        let mut before = '\'';
        for (index, character) in text.char_indices().skip(1) {
            if character == '\'' && before != '\\' {
                return index + 1;
            }
            before = character;
        }
        return text.len();
    }
    text.find(['.', '[', ']']).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As kube-apiserver 1.36 answers.
    #[test]
    fn paths() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "closed": {"type": "object", "additionalProperties": false}}},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}});
        let check = |paths: &[&str], expected: &[&str]| {
            let fields: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
            let fields = Value::from(fields);
            let mut errors = Errors::default();
            super::check(&mut errors, &At::root(&fields), &schema);
            let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), expected.len(), "{found:#?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected), "{found} is not {expected}");
            }
        };
        let (types, unknown) = (
            "must point to a field of type",
            "is an invalid path: does not refer to a valid field",
        );
        check(&[".spec.a", ".spec.map.x", ".spec.map.y"], &[]);
        check(&[".spec.a", ".spec.a"], &["[1].jsonPath: Duplicate value: \".spec.a\""]);
        check(&[".spec.list", ".spec.map", ".spec.closed.x"], &[types; 3]);
        check(&[".spec.zz", "..a", ".spec.a.b", ".spec.closed.x.y"], &[unknown; 4]);
        check(&[".spec", ".spec"], &[types, types, "Duplicate value"]);
        check(&[".metadata.name"], &["must not point to fields in metadata"]);
        check(&[".", ".spec."], &["unexpected end of JSON path"; 2]);
        check(&[".spec.list[0]", "['spec'].a"], &["array notation is not allowed"; 2]);
        check(
            &[".spec.a]", "spec"],
            &["expected [ or . but got: ]", "expected [ or . but got: spec"],
        );
        check(&[""], &["Required value"]);
        let many: Vec<String> = (0..9).map(|number| format!(".spec.map.{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&many, &["Too many: 9: must have at most 8 items"]);
    }
}
