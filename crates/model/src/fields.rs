//! Rules of single fields without decisions: the field, its rule, and the function of Kubernetes that has it.
//!
//! A strategy lists them ([`Strategy::fields`](super::Strategy::fields)); they are reported after the errors of its
//! functions. A rule about several fields, or about a part of a list, is code of the kind.

use kubewright_schema::error::FieldError;
use serde_json::Value;

use crate::values::{At, Errors};

/// A rule of one field.
#[derive(Clone, Copy, Debug)]
pub struct FieldRule {
    /// The names on the way to the field.
    pub path: &'static [&'static str],
    /// The rule for the field.
    pub must: Must,
    /// The function of Kubernetes that has the rule.
    pub from: &'static str,
}

/// The rules that a field may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    /// It is not below 0 (`ValidateNonnegativeField`).
    NotBeNegative,
    /// No update changes it (`ValidateImmutableField`).
    NotChange,
    /// There is something: a text, a list or a map that is not empty, anything else (`field.Required`).
    BeGiven,
    /// It is one of these words, if it is a text that is not empty (`field.NotSupported`).
    BeEmptyOrOneOf(&'static [&'static str]),
    /// It is one of these words, and an empty text is told to be missing.
    BeOneOf(&'static [&'static str]),
    /// It is one of these words where it is given at all; an empty text is no exception.
    BeAbsentOrOneOf(&'static [&'static str]),
    /// It has at most so many entries (`field.TooMany`).
    HaveAtMost(usize),
}

/// The field at this path must be so; `from` is the function of Kubernetes that has the rule.
pub const fn rule(path: &'static [&'static str], must: Must, from: &'static str) -> FieldRule {
    FieldRule { path, must, from }
}

/// The field is not negative.
pub const fn not_negative(path: &'static [&'static str], from: &'static str) -> FieldRule {
    rule(path, Must::NotBeNegative, from)
}

/// No update changes the field.
pub const fn fixed(path: &'static [&'static str], from: &'static str) -> FieldRule {
    rule(path, Must::NotChange, from)
}

/// The errors that the rules find in a new object, or in one that was another before.
pub(super) fn errors(rules: &[FieldRule], new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let before = old.map(At::root);
    check_fields(&mut errors, rules, &At::root(new), before.as_ref());
    errors.into_vec()
}

/// Adds the errors of the rules in a part of an object, to whose fields their paths lead. Code of a kind asks this
/// where the order of errors, or a place in a list, matters.
pub fn check_fields(errors: &mut Errors, rules: &[FieldRule], at: &At<'_>, old: Option<&At<'_>>) {
    for rule in rules {
        let field = at.keys(rule.path);
        match (rule.must, old) {
            (Must::NotBeNegative, _) => errors.non_negative(&field),
            (Must::NotChange, Some(old)) => errors.immutable(&field, &old.keys(rule.path)),
            (Must::NotChange, None) => {}
            (Must::BeGiven, _) if is_missing(field.value) => errors.required(&field, ""),
            (Must::BeGiven, _) => {}
            (Must::BeEmptyOrOneOf(words), _) => errors.one_of(&field, words, false),
            (Must::BeOneOf(words), _) => errors.one_of(&field, words, true),
            (Must::BeAbsentOrOneOf(words), _) => errors.one_of_all(&field, words),
            (Must::HaveAtMost(most), _) if field.len() > most => {
                errors.push(FieldError::too_many(field.path.to_string(), field.len(), most));
            }
            (Must::HaveAtMost(_), _) => {}
        }
    }
}

fn is_missing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WORDS: &[&str] = &["A", "B"];
    const RULES: [FieldRule; 7] = [
        not_negative(&["spec", "number"], "f"),
        fixed(&["spec", "type"], "f"),
        rule(&["spec", "name"], Must::BeGiven, "f"),
        rule(&["spec", "may"], Must::BeEmptyOrOneOf(WORDS), "f"),
        rule(&["spec", "must"], Must::BeOneOf(WORDS), "f"),
        rule(&["spec", "absent"], Must::BeAbsentOrOneOf(WORDS), "f"),
        rule(&["spec", "list"], Must::HaveAtMost(1), "f"),
    ];

    #[test]
    fn rules_are_held_against_objects() {
        let check = |new: Value, old: Option<Value>, expected: &[&str]| {
            let mut spec = json!({"name": "x", "must": "A"});
            spec.as_object_mut()
                .expect("it is one")
                .extend(new.as_object().expect("an object").clone());
            let new = json!({"spec": spec});
            let old = old.map(|old| json!({"spec": old}));
            let found = errors(&RULES, &new, old.as_ref());
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{new} {old:?}");
        };
        check(json!({"number": 0, "type": 1}), None, &[]);
        let negative = "spec.number: Invalid value: -1: must be greater than or equal to 0";
        check(json!({"number": -1}), None, &[negative]);
        check(json!({}), None, &[]);
        let changed = "spec.type: Invalid value: 2: field is immutable";
        check(
            json!({"number": -1, "type": 2}),
            Some(json!({"type": 1})),
            &[negative, changed],
        );
        check(json!({"type": 1}), Some(json!({"type": 1})), &[]);
        let missing = "spec.name: Required value";
        for nothing in [json!(null), json!(""), json!([]), json!({})] {
            check(json!({"name": nothing}), None, &[missing]);
        }
        check(json!({"name": false}), None, &[]);
        let word = |field: &str, word: &str| {
            format!("spec.{field}: Unsupported value: \"{word}\": supported values: \"A\", \"B\"")
        };
        check(json!({"may": "C"}), None, &[&word("may", "C")]);
        check(json!({"may": ""}), None, &[]);
        check(json!({"must": "C"}), None, &[&word("must", "C")]);
        check(json!({"must": ""}), None, &["spec.must: Required value"]);
        check(json!({"absent": ""}), None, &[&word("absent", "")]);
        check(json!({"absent": null}), None, &[]);
        check(json!({"list": [1]}), None, &[]);
        let many = "spec.list: Too many: 2: must have at most 1 item";
        check(json!({"list": [1, 2]}), None, &[many]);
    }
}
