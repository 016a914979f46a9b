//! Kubebuilder's markers that are rules of their own, said with `#[schemars(extend("…" = …))]`: `exactlyOneOf`,
//! `atMostOneOf`, `atLeastOneOf` (lists of field names), `immutable`, and `items:…` for the items of a list.
//!
//! Not here: keywords that a schema says anyhow (`structural.rs`).

use serde_json::{Value, json};

use super::merge::both;
use super::structural::{Node, Writer, properties};

/// The markers among the keywords.
pub(super) const MARKERS: &[&str] = &["atLeastOneOf", "atMostOneOf", "exactlyOneOf", "immutable"];

/// The prefix of a marker about the items of a list.
pub(super) const ITEMS: &str = "items:";

impl Writer {
    /// kubebuilder's `validation:items:…`: `extend("items:enum" = […])` is about the items of a list.
    pub(super) fn item_words(&mut self, raw: &Node, at: &str, node: &mut Node) {
        let mut items = Node::new();
        for (word, value) in raw {
            if let Some(word) = word.strip_prefix(ITEMS) {
                self.word(word, value, raw, &format!("{at}[]"), &mut items, &mut false);
            }
        }
        if items.is_empty() {
            return;
        }
        match node.get_mut("items").and_then(Value::as_object_mut) {
            Some(known) => both(known, items),
            None => self.report(
                at,
                "keyword",
                false,
                "a word about items (`items:…`) stands on something that is no list",
            ),
        }
    }

    /// Kubebuilder's markers that are rules.
    pub(super) fn markers(&mut self, raw: &Node, node: &mut Node, at: &str) {
        for (word, least, most) in [
            ("exactlyOneOf", " == 1", "exactly one of the fields in [{}] must be set"),
            ("atMostOneOf", " <= 1", "at most one of the fields in [{}] may be set"),
            ("atLeastOneOf", "", "at least one of the fields in [{}] must be set"),
        ] {
            let Some(value) = raw.get(word) else { continue };
            let groups: Vec<&Value> = match value.as_array() {
                Some(groups) if groups.iter().all(Value::is_array) => groups.iter().collect(),
                _ => vec![value],
            };
            for group in groups {
                let names: Vec<&str> = group
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                if names.is_empty() {
                    self.report(at, "keyword", false, format!("`{word}` takes a list of field names"));
                    continue;
                }
                for name in &names {
                    if !properties(node).any(|(known, _)| known == name) {
                        let known: Vec<&str> = properties(node).map(|(name, _)| name.as_str()).collect();
                        let why = format!(
                            "`{word}` names the field `{name}`, which is not there (there are: {})",
                            known.join(", ")
                        );
                        self.report(at, "unknown-field", false, why);
                    }
                }
                let rule = if least.is_empty() {
                    let has: Vec<String> = names.iter().map(|name| format!("has(self.{})", in_cel(name))).collect();
                    has.join("||")
                } else {
                    let has: Vec<String> = names
                        .iter()
                        .map(|name| format!("(has(self.{})?1:0)", in_cel(name)))
                        .collect();
                    format!("{}{least}", has.join("+"))
                };
                add_rule(
                    node,
                    json!({"rule": rule, "message": most.replace("{}", &names.join(" "))}),
                );
            }
        }
        if raw.get("immutable") == Some(&Value::Bool(true)) {
            add_rule(
                node,
                json!({"rule": "self == oldSelf", "message": "field is immutable"}),
            );
        }
        // A rule on a field is not checked when the field goes: that is for a rule on its parent.
        for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let names = node.get("required").and_then(Value::as_array);
            let required = names.is_some_and(|names| names.iter().any(|other| other == name));
            if property.get("immutable") == Some(&Value::Bool(true)) && !required {
                let field = in_cel(name);
                let rule = format!("!has(oldSelf.{field}) || has(self.{field})");
                add_rule(
                    node,
                    json!({"rule": rule, "message": format!("field {name} is immutable once set")}),
                );
            }
        }
    }
}

fn add_rule(node: &mut Node, rule: Value) {
    let rules = node.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Some(rules) = rules.as_array_mut()
        && !rules.contains(&rule)
    {
        rules.push(rule);
    }
}

/// The name of a field in a CEL rule: a name that is no identifier, or a word of CEL, is escaped.
fn in_cel(name: &str) -> String {
    const WORDS: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if WORDS.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
