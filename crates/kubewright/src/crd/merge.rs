//! Two schemas together: a field's own keywords with those of its type, and the parts of an `allOf`.
//!
//! Rules add up; a schema's own keywords (texts, defaults, extensions) are written once.

use serde_json::{Value, json};

use super::structural::Node;

/// Keywords whose values are ANDed when two of them meet.
const VALIDATIONS: &[&str] = &[
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
];

/// Two schemas that both hold. The second one's own keywords (texts, defaults, extensions) win; rules add up.
pub(super) fn both(node: &mut Node, other: Node) {
    for (word, value) in other {
        match node.get_mut(&word) {
            None => {
                node.insert(word, value);
            }
            Some(known) if *known == value => {}
            Some(known) => match word.as_str() {
                "required" | "x-kubernetes-validations" => {
                    if let (Some(known), Value::Array(more)) = (known.as_array_mut(), value) {
                        known.extend(more);
                        if word == "required" {
                            known.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                            known.dedup();
                        }
                    }
                }
                "enum" => {
                    if let (Some(known), Value::Array(other)) = (known.as_array_mut(), value) {
                        known.retain(|one| other.contains(one));
                    }
                }
                "properties" => {
                    if let (Some(known), Value::Object(more)) = (known.as_object_mut(), value) {
                        for (name, property) in more {
                            match (known.get_mut(&name).and_then(Value::as_object_mut), property) {
                                (Some(one), Value::Object(two)) => both(one, two),
                                (_, property) => {
                                    known.insert(name, property);
                                }
                            }
                        }
                    }
                }
                "allOf" => {
                    if let (Some(known), Value::Array(more)) = (known.as_array_mut(), value) {
                        known.extend(more);
                    }
                }
                "oneOf" | "anyOf" | "not" => {
                    let moved = json!([{ word.as_str(): value }]);
                    both(node, Node::from_iter([("allOf".to_owned(), moved)]));
                }
                rule if VALIDATIONS.contains(&rule) && rule != "format" => {
                    let first = known.clone();
                    node.remove(rule);
                    add_both(node, rule, first, value);
                }
                _ => *known = value,
            },
        }
    }
}

/// As [`both`], but the own keywords of `node` win: a field's over those of its type.
pub(super) fn under(node: &mut Node, other: Node) {
    let own = std::mem::replace(node, other);
    both(node, own);
}

/// The same rule twice, with different values.
fn add_both(node: &mut Node, rule: &str, first: Value, second: Value) {
    let all = node.entry("allOf").or_insert_with(|| json!([{}, {}]));
    if let Some(all) = all.as_array_mut() {
        if all.len() < 2 {
            all.push(json!({}));
        }
        all[0][rule] = first;
        all[1][rule] = second;
    }
}

/// Whether this only restricts: it has no type and no shape of its own.
pub(super) fn is_rule(item: &Value) -> bool {
    let Some(item) = item.as_object() else { return false };
    !item.is_empty()
        && item.keys().all(|word| {
            matches!(
                word.as_str(),
                "required" | "not" | "enum" | "properties" | "anyOf" | "oneOf" | "allOf"
            ) || VALIDATIONS.contains(&word.as_str())
        })
        && item
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .all(|(_, property)| is_rule(property))
        && !(item.contains_key("enum") && item.len() == 1)
}
