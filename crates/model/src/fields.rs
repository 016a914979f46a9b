//! Rules of single fields that decide nothing: which field, what it must be, and the function of Kubernetes that says
//! so.
//!
//! A strategy lists them ([`Strategy::fields`](super::Strategy::fields)); they are told after the errors of its
//! functions. What looks at several fields, or at a part of a list, is code of the kind.

use kubewright_schema::error::FieldError;
use serde_json::Value;

use crate::values::{At, Errors};

/// A rule of one field.
#[derive(Clone, Copy, Debug)]
pub struct FieldRule {
    /// The names on the way to the field.
    pub path: &'static [&'static str],
    /// What holds for it.
    pub must: Must,
    /// The function of Kubernetes that has the rule.
    pub from: &'static str,
}

/// What must hold for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    /// It is not below 0 (`ValidateNonnegativeField`).
    NotBeNegative,
    /// No update changes it (`ValidateImmutableField`).
    NotChange,
}

/// The field is not negative.
pub const fn not_negative(path: &'static [&'static str], from: &'static str) -> FieldRule {
    FieldRule {
        path,
        must: Must::NotBeNegative,
        from,
    }
}

/// No update changes the field.
pub const fn fixed(path: &'static [&'static str], from: &'static str) -> FieldRule {
    FieldRule {
        path,
        must: Must::NotChange,
        from,
    }
}

/// What the rules say of a new object, or of one that was another before.
pub(super) fn errors(rules: &[FieldRule], new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for rule in rules {
        let at = At::root(new).keys(rule.path);
        match (rule.must, old) {
            (Must::NotBeNegative, _) => errors.non_negative(&at),
            (Must::NotChange, Some(old)) => errors.immutable(&at, &At::root(old).keys(rule.path)),
            (Must::NotChange, None) => {}
        }
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: [FieldRule; 2] = [not_negative(&["spec", "number"], "f"), fixed(&["spec", "type"], "f")];

    #[test]
    fn rules_are_held_against_objects() {
        let check = |new: Value, old: Option<Value>, expected: &[&str]| {
            let new = json!({"spec": new});
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
    }
}
