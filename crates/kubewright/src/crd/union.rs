//! Enums with data, as Kubernetes can say them: one shape that has the fields of all variants, and rules for each
//! variant.
//!
//! A structural schema has its types, properties and words in one place; `oneOf` and `anyOf` may only restrict. So the
//! variants are taken apart: keywords of shape go into [`Union::common`], differing ones that only restrict become a
//! branch. Variants whose shapes contradict each other (a text here, an object there) cannot be told in one schema:
//! that is an error with the place.

use serde_json::{Map, Value, json};

use super::structural::{Node, join, properties};

/// The part that all variants share, and the part of each; no branches when they restrict nothing.
pub(super) struct Union {
    pub(super) common: Node,
    pub(super) branches: Vec<Node>,
}

/// Why variants do not fit together.
pub(super) struct Wrong {
    /// The field below the enum; empty for the enum itself.
    pub(super) at: String,
    pub(super) why: String,
}

/// Words about a value that are no rule: the first variant that has one says it, if no other says something else.
const WORDS: &[&str] = &["default", "description", "example", "externalDocs", "title"];

pub(super) fn of(variants: Vec<Node>) -> Result<Union, Wrong> {
    let (common, branches) = merge(&variants, "")?;
    let says_something = branches.iter().any(|branch| !branch.is_empty());
    // Plain values: the list of all of them is the rule.
    let plain = branches.iter().all(|branch| branch.keys().all(|word| word == "enum")) && common.contains_key("enum");
    Ok(Union {
        common,
        branches: if says_something && !plain { branches } else { Vec::new() },
    })
}

fn merge(variants: &[Node], at: &str) -> Result<(Node, Vec<Node>), Wrong> {
    let mut common = Node::new();
    let mut branches = vec![Node::new(); variants.len()];
    shape(variants, at, &mut common)?;
    let mut words: Vec<&String> = variants.iter().flat_map(Map::keys).collect();
    words.sort();
    words.dedup();
    for word in words {
        let values: Vec<Option<&Value>> = variants.iter().map(|variant| variant.get(word)).collect();
        let first = values.iter().flatten().next().copied();
        let same = values.iter().all(|value| *value == first);
        match word.as_str() {
            "type" | "format" | "x-kubernetes-int-or-string" => {}
            "properties" => fields(variants, at, &mut common, &mut branches)?,
            "items" | "additionalProperties" => {
                let below: Vec<Node> = values
                    .iter()
                    .flatten()
                    .filter_map(|value| value.as_object().cloned())
                    .collect();
                let (merged, rules) = merge(&below, &format!("{at}[]"))?;
                common.insert(word.clone(), Value::Object(merged));
                // The owner of each list: rules of items stay with their variant, however many others there are.
                let mut rules = rules.into_iter();
                for (branch, value) in branches.iter_mut().zip(&values) {
                    if let (Some(rule), true) = (value.and_then(|_| rules.next()), value.is_some())
                        && !rule.is_empty()
                    {
                        branch.insert(word.clone(), Value::Object(rule));
                    }
                }
            }
            "description" if at.is_empty() => {}
            word if WORDS.contains(&word) => {
                if let Some(first) = first
                    && values.iter().flatten().all(|value| *value == first)
                {
                    common.insert(word.to_owned(), first.clone());
                }
            }
            _ if same => {
                if let Some(first) = first {
                    common.insert(word.clone(), first.clone());
                }
            }
            "enum" => {
                if values.iter().all(Option::is_some) {
                    let mut all: Vec<Value> = Vec::new();
                    for value in values.iter().flatten().filter_map(|value| value.as_array()).flatten() {
                        if !all.contains(value) {
                            all.push(value.clone());
                        }
                    }
                    common.insert(word.clone(), Value::Array(all));
                }
                to_branches(word, &values, &mut branches);
            }
            // To know more than one variant's fields is to keep them all.
            "x-kubernetes-preserve-unknown-fields" | "nullable" => {
                common.insert(word.clone(), json!(true));
            }
            word if word.starts_with("x-kube") => {
                if word.starts_with("x-kubernetes-validations") {
                    return Err(Wrong {
                        at: at.to_owned(),
                        why: "variants have different CEL rules: put the rule on the enum, and ask in it which variant there is".to_owned(),
                    });
                }
            }
            word => to_branches(word, &values, &mut branches),
        }
    }
    Ok((common, branches))
}

fn to_branches(word: &str, values: &[Option<&Value>], branches: &mut [Node]) {
    for (branch, value) in branches.iter_mut().zip(values) {
        if let Some(value) = value {
            branch.insert(word.to_owned(), (*value).clone());
        }
    }
}

/// The one type that all variants have.
fn shape(variants: &[Node], at: &str, common: &mut Node) -> Result<(), Wrong> {
    let mut types: Vec<&str> = variants
        .iter()
        .map(|variant| match variant.get("type").and_then(Value::as_str) {
            Some(kind) => kind,
            None if variant.contains_key("x-kubernetes-int-or-string") => "integer or string",
            None => "anything",
        })
        .collect();
    types.sort_unstable();
    types.dedup();
    match types.as_slice() {
        ["anything"] => {}
        ["integer", "string"]
        | ["integer or string"]
        | ["integer", "integer or string"]
        | ["integer or string", "string"] => {
            common.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        }
        ["integer", "number"] => {
            common.insert("type".to_owned(), json!("number"));
        }
        [one] => {
            common.insert("type".to_owned(), json!(one));
            let formats: Vec<Option<&Value>> = variants.iter().map(|variant| variant.get("format")).collect();
            if let Some(first) = formats[0]
                && formats.iter().all(|format| *format == Some(first))
            {
                common.insert("format".to_owned(), first.clone());
            }
        }
        several => {
            return Err(Wrong {
                at: at.to_owned(),
                why: format!(
                    "variants are of different types ({}), and a structural schema has one type for a value",
                    several.join(", ")
                ),
            });
        }
    }
    Ok(())
}

/// The fields of all variants together.
fn fields(variants: &[Node], at: &str, common: &mut Node, branches: &mut [Node]) -> Result<(), Wrong> {
    let mut names: Vec<&String> = variants.iter().flat_map(properties).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let mut merged = Map::new();
    for name in names {
        let who: Vec<(usize, Node)> = variants
            .iter()
            .enumerate()
            .filter_map(|(index, variant)| {
                let property = variant.get("properties")?.get(name)?.as_object()?;
                Some((index, property.clone()))
            })
            .collect();
        let of: Vec<Node> = who.iter().map(|(_, node)| node.clone()).collect();
        let (property, rules) = merge(&of, &join(at, name))?;
        merged.insert(name.clone(), Value::Object(property));
        for ((index, _), rule) in who.iter().zip(rules) {
            if !rule.is_empty() {
                let below = branches[*index].entry("properties").or_insert_with(|| json!({}));
                below[name.as_str()] = Value::Object(rule);
            }
        }
    }
    common.insert("properties".to_owned(), Value::Object(merged));
    Ok(())
}
