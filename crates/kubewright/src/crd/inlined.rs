//! The same type once more, with every type put in place of its name.
//!
//! `schemars` writes `#[schemars(length(max = 5))]` only where it knows that the value is a string or a list, and of a
//! field whose type has a schema of its own it sees no more than a `$ref`: the rule would vanish without a word. In the
//! inlined schema it is there, but the rule of the type is gone, since the field's took its place. Both together give
//! the rules: a rule of the inlined schema that the type does not have is the field's.

use serde_json::{Map, Value};

use super::structural::Node;

/// The rules that `schemars` writes for a known type only.
const RULES: &[&str] = &[
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
];

/// A whole object's schema without references.
pub(super) struct Inlined(pub(super) Value);

impl Inlined {
    /// The rules at a path such as `spec.rules[].ports.*`.
    pub(super) fn rules(&self, at: &str) -> Map<String, Value> {
        let rules = self.find(at).and_then(Value::as_object).into_iter().flatten();
        rules
            .filter(|(word, _)| RULES.contains(&word.as_str()))
            .map(|(word, value)| (word.clone(), value.clone()))
            .collect()
    }

    fn find(&self, at: &str) -> Option<&Value> {
        let mut found = &self.0;
        for part in at.split('.').filter(|part| !part.is_empty()) {
            let name = part.trim_end_matches("[]");
            found = match found.get("properties").and_then(|properties| properties.get(name)) {
                Some(property) => property,
                None if name == "*" => found.get("additionalProperties")?,
                None => return None,
            };
            for _ in 0..part.matches("[]").count() {
                found = found.get("items")?;
            }
        }
        Some(found)
    }
}

/// Whether a schema has a rule already, alone or among several of the same name.
pub(super) fn says(node: &Node, word: &str, value: &Value) -> bool {
    let all = node.get("allOf").and_then(Value::as_array).into_iter().flatten();
    node.get(word) == Some(value) || all.into_iter().any(|part| part.get(word) == Some(value))
}
