//! One JSON Schema (2020-12, as `schemars` writes it) into the structural form of Kubernetes.
//!
//! A schema becomes a [`Node`]: references are resolved, keywords that Kubernetes does not know are said in its words
//! or reported, `null` is taken out, enums with data become one object (`union.rs`). Besides JSON Schema's keywords and
//! `x-kubernetes-*`, `root:…` on a spec is a keyword of the whole kind; kubebuilder's markers are in `markers.rs`,
//! merging schemas in `merge.rs`.
//!
//! Absent and `null` are one thing for an optional field, as in Go: the API server drops such a `null`. Only who says
//! `extend("nullable" = true)` gets a `null` that is kept. Items of lists and values of maps may be `null` when their
//! type is an `Option`.

mod known;

use serde_json::{Map, Value, json};

use super::inlined::{Inlined, says};
use super::markers::{ITEMS, MARKERS};
use super::merge::{both, is_rule, under};
use super::{Problem, TYPE, union};
use known::{KUBERNETES, anything, number, well_known};

/// A schema in structural form.
pub(super) type Node = Map<String, Value>;

/// Where a schema stands: an optional property is absent, an item is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Property,
    Item,
}

/// Keywords that are kept as they are (`JSONSchemaProps`, without those that hold schemas).
const KEPT: &[&str] = &[
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
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
    "not",
    "nullable",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Keywords of JSON Schema without a meaning for Kubernetes that may go: annotations, and constraints that always hold
/// or cannot be expressed.
const DROPPED: &[&str] = &[
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
    "propertyNames",
    "readOnly",
    "unevaluatedProperties",
    "writeOnly",
];

/// Keywords that schemars says of a type unasked, and that `null` takes away.
const TAKEN_BY_NULL: &[&str] = &["description", "format", "maximum", "minimum", "title"];

/// The prefix of a marker about the whole kind; it stands on the spec.
const ROOT: &str = "root:";

/// The schema of a whole object, and its problems.
pub(super) fn root(raw: &Value, inlined: Value) -> (Value, Vec<Problem>) {
    let mut writer = Writer {
        inlined: Inlined(inlined),
        definitions: raw.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default(),
        open: Vec::new(),
        problems: Vec::new(),
    };
    let mut node = writer.node(raw, "", Position::Property);
    // The keywords that schemars adds to every root, and the fields that every object has.
    const IMPLIED: [&str; 3] = ["apiVersion", "kind", "metadata"];
    node.remove("title");
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        for implied in IMPLIED {
            properties.remove(implied);
        }
    }
    leave_out(&mut node, &IMPLIED.map(str::to_owned));
    // Nothing can be written on the root that kube derives: the spec says it.
    let mut moved = Node::new();
    let spec = node
        .get_mut("properties")
        .and_then(|properties| properties.get_mut("spec"));
    if let Some(Value::Object(spec)) = spec {
        for (word, value) in std::mem::take(spec) {
            match word.strip_prefix(ROOT) {
                Some(word) => moved.insert(word.to_owned(), value),
                None => spec.insert(word, value),
            };
        }
    }
    node.extend(moved);
    // A default makes a field present: a client may leave it out.
    let defaulted: Vec<String> = properties(&node)
        .filter(|(_, property)| property.get("default").is_some())
        .map(|(name, _)| name.clone())
        .collect();
    leave_out(&mut node, &defaulted);
    (Value::Object(node), writer.problems)
}

/// Takes names out of `required`.
fn leave_out(node: &mut Node, names: &[String]) {
    if let Some(Value::Array(required)) = node.get_mut("required") {
        required.retain(|name| !names.iter().any(|other| name == other));
        if required.is_empty() {
            node.remove("required");
        }
    }
}

/// Whether a kind's spec stands here, its own or one within a template.
fn is_spec(at: &str) -> bool {
    at == "spec" || at.ends_with(".spec")
}

pub(super) fn properties(node: &Node) -> impl Iterator<Item = (&String, &Value)> {
    node.get("properties").and_then(Value::as_object).into_iter().flatten()
}

pub(super) struct Writer {
    inlined: Inlined,
    definitions: Map<String, Value>,
    /// The definitions that are being written.
    open: Vec<String>,
    problems: Vec<Problem>,
}

impl Writer {
    pub(super) fn report(&mut self, at: &str, what: &'static str, warning: bool, why: impl Into<String>) {
        let problem = Problem {
            at: at.to_owned(),
            what,
            why: why.into(),
            warning,
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn node(&mut self, raw: &Value, at: &str, position: Position) -> Node {
        let raw = match raw {
            Value::Bool(true) => return anything(),
            Value::Object(raw) => raw,
            _ => {
                self.report(at, "type", false, "no value is allowed here, so nothing can be stored");
                return anything();
            }
        };
        let mut node = self.referred(raw, at, position);
        let mut own = Node::new();
        let mut null = false;
        for (word, value) in raw {
            self.word(word, value, raw, at, &mut own, &mut null);
        }
        if own.contains_key("x-kubernetes-struct-type") {
            let value = own.remove("x-kubernetes-struct-type").unwrap_or_default();
            own.insert("x-kubernetes-map-type".to_owned(), value);
        }
        self.one_type(&mut own, &mut null, at);
        // Of a choice, the part that has the type says it.
        if !["allOf", "anyOf", "oneOf"].iter().any(|word| raw.contains_key(*word)) {
            self.told_of_reference(&node, &mut own, at);
        }
        let adds = !own.is_empty();
        both(&mut node, own);
        self.item_words(raw, at, &mut node);
        for word in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = raw.get(word) {
                self.combined(word, list, &mut node, &mut null, at, position);
            }
        }
        // An `Option` of a type says nothing of its own beside the choice between the type and `null`, but for these.
        let marked = MARKERS.iter().any(|word| raw.contains_key(*word));
        if adds || marked || raw.contains_key("$ref") {
            self.markers(raw, &mut node, at);
        }
        self.finish(&mut node, at);
        if null && position == Position::Item {
            node.insert("nullable".to_owned(), Value::Bool(true));
        }
        node
    }

    /// Rules on a field that stand beside a `$ref` only where every type is put in place: see [`Inlined`].
    fn told_of_reference(&mut self, node: &Node, own: &mut Node, at: &str) {
        if self.open.iter().any(|name| name.starts_with(KUBERNETES)) {
            return;
        }
        for (word, value) in self.inlined.rules(at) {
            let mut added = Node::new();
            self.word(&word, &value, &Node::new(), at, &mut added, &mut false);
            for (word, value) in added {
                if !says(node, &word, &value) && !own.contains_key(&word) {
                    own.insert(word, value);
                }
            }
        }
    }

    /// The target of `$ref`.
    fn referred(&mut self, raw: &Node, at: &str, position: Position) -> Node {
        let Some(target) = raw.get("$ref").and_then(Value::as_str) else {
            return Node::new();
        };
        let name = target.rsplit('/').next().unwrap_or_default();
        let name = name.replace("~1", "/").replace("~0", "~");
        if target == "#" || self.open.contains(&name) {
            self.report(
                at,
                "recursive",
                false,
                format!(
                    "the type contains itself (through {})",
                    if name == "#" { "the root" } else { &name }
                ),
            );
            return anything();
        }
        let Some(definition) = self.definitions.get(&name).cloned() else {
            self.report(
                at,
                "type",
                false,
                format!("the schema refers to {target}, which is nowhere"),
            );
            return anything();
        };
        self.open.push(name.clone());
        let mut node = self.node(&definition, at, position);
        self.open.pop();
        if name.starts_with(KUBERNETES) {
            well_known(&mut node, &name);
            node.insert(TYPE.to_owned(), Value::String(name));
        }
        node
    }

    /// One keyword.
    pub(super) fn word(&mut self, word: &str, value: &Value, raw: &Node, at: &str, node: &mut Node, null: &mut bool) {
        match word {
            // `extend("minimum" = null)` takes the type's own keyword away.
            _ if value.is_null() && TAKEN_BY_NULL.contains(&word) => {}
            "$ref" | "allOf" | "anyOf" | "oneOf" => {}
            "properties" => {
                let mut properties = Map::new();
                for (name, property) in value.as_object().into_iter().flatten() {
                    let below = self.node(property, &join(at, name), Position::Property);
                    properties.insert(name.clone(), Value::Object(below));
                }
                node.insert(word.to_owned(), Value::Object(properties));
            }
            "required" => {
                let mut names: Vec<Value> = value.as_array().cloned().unwrap_or_default();
                names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                names.dedup();
                if !names.is_empty() {
                    node.insert(word.to_owned(), Value::Array(names));
                }
            }
            "items" => {
                let below = self.node(value, &format!("{at}[]"), Position::Item);
                if raw["items"].get("format").and_then(Value::as_str) == Some("uint8") {
                    self.report(
                        at,
                        "bytes",
                        true,
                        "bytes are a list of numbers on the wire, one for each",
                    );
                }
                node.insert(word.to_owned(), Value::Object(below));
            }
            "prefixItems" => self.tuple(value, raw, at, node),
            "additionalProperties" => self.map_values(value, raw, at, node),
            "patternProperties" => {
                // Keys that are numbers. On the wire they are text, and Kubernetes has no rule for the text of a key.
                let values = value.as_object().into_iter().flatten().next();
                if let Some((_, values)) = values {
                    let below = self.node(values, &format!("{at}.*"), Position::Item);
                    node.insert("additionalProperties".to_owned(), Value::Object(below));
                }
            }
            "const" => {
                node.insert("enum".to_owned(), json!([value]));
            }
            "examples" => {
                if let Some(first) = value.as_array().and_then(|list| list.first()) {
                    node.insert("example".to_owned(), first.clone());
                }
            }
            "default" if value.is_null() => {}
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() => {
                let bound = if word == "exclusiveMinimum" {
                    "minimum"
                } else {
                    "maximum"
                };
                node.insert(bound.to_owned(), number(value));
                node.insert(word.to_owned(), Value::Bool(true));
            }
            "minimum" | "maximum" | "multipleOf" => {
                node.entry(word).or_insert_with(|| number(value));
            }
            "type" => {
                let mut types: Vec<Value> = match value {
                    Value::Array(types) => types.clone(),
                    one => vec![one.clone()],
                };
                *null |= types.iter().any(|one| one == "null");
                types.retain(|one| one != "null");
                match <[Value; 1]>::try_from(types) {
                    Ok([one]) => {
                        node.insert(word.to_owned(), one);
                    }
                    Err(several) if several.is_empty() => node.extend(anything()),
                    Err(several) => {
                        node.insert("type".to_owned(), Value::Array(several));
                    }
                }
            }
            "x-kubernetes-struct-type" => {
                node.insert(word.to_owned(), value.clone());
            }
            _ if KEPT.contains(&word) => {
                node.insert(word.to_owned(), value.clone());
            }
            _ if DROPPED.contains(&word) || MARKERS.contains(&word) || word.starts_with(ITEMS) => {}
            _ if is_spec(at) && word.strip_prefix(ROOT).is_some_and(|word| KEPT.contains(&word)) => {
                // In a template, it is said of another kind.
                if at == "spec" {
                    node.insert(word.to_owned(), value.clone());
                }
            }
            _ => self.unknown(word, at),
        }
    }

    fn unknown(&mut self, word: &str, at: &str) {
        let mut known: Vec<&str> = KEPT.iter().chain(MARKERS).copied().collect();
        let distance = |other: &str| strsim::levenshtein(&word.to_ascii_lowercase(), &other.to_ascii_lowercase());
        known.sort_by_key(|other| distance(other));
        let near = known.first().filter(|other| distance(other) <= 2);
        let meant = near.map_or(String::new(), |other| format!("; did you mean `{other}`?"));
        self.report(
            at,
            "keyword",
            false,
            format!("`{word}` is no keyword of a CustomResourceDefinition's schema{meant}"),
        );
    }

    fn tuple(&mut self, value: &Value, raw: &Node, at: &str, node: &mut Node) {
        let items: Vec<Node> = value
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| self.node(item, &format!("{at}[]"), Position::Item))
            .collect();
        let fixed = raw.get("minItems") == raw.get("maxItems");
        match items.split_first() {
            Some((first, rest)) if fixed && rest.iter().all(|other| other == first) => {
                node.insert("items".to_owned(), Value::Object(first.clone()));
            }
            _ => {
                node.insert("items".to_owned(), Value::Object(anything()));
                self.report(
                    at,
                    "tuple",
                    false,
                    "a tuple of different types is a list whose items differ, which a structural schema cannot say",
                );
            }
        }
    }

    fn map_values(&mut self, value: &Value, raw: &Node, at: &str, node: &mut Node) {
        let fields = raw
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty());
        match value {
            Value::Bool(false) => {}
            _ if fields => {
                // A map that is flattened into a struct.
                if value.is_object() {
                    self.report(
                        at,
                        "flatten",
                        true,
                        "a map is flattened beside fields: its values are kept, but no rule about them is checked",
                    );
                }
                node.insert("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true));
            }
            _ => {
                let below = self.node(value, &format!("{at}.*"), Position::Item);
                node.insert("additionalProperties".to_owned(), Value::Object(below));
            }
        }
    }

    /// `allOf`, `anyOf`, `oneOf`: wrappers, optional types, and enums with data.
    fn combined(&mut self, word: &str, list: &[Value], node: &mut Node, null: &mut bool, at: &str, position: Position) {
        let is_null = |item: &&Value| {
            let only = |word: &str, value: Value| item.get(word) == Some(&value);
            only("type", json!("null")) || only("enum", json!([null])) || only("const", Value::Null)
        };
        let rest: Vec<&Value> = list.iter().filter(|item| !is_null(item)).collect();
        *null |= rest.len() < list.len() && word != "allOf";
        if rest.iter().all(|item| is_rule(item)) && !rest.is_empty() {
            // Rules that the user wrote by hand.
            node.insert(word.to_owned(), json!(rest));
            return;
        }
        let nodes: Vec<Node> = rest.iter().map(|item| self.node(item, at, position)).collect();
        if word == "allOf" || nodes.len() == 1 {
            for other in nodes {
                under(node, other);
            }
            return;
        }
        match union::of(nodes) {
            Ok(union) => {
                under(node, union.common);
                if !union.branches.is_empty() {
                    let branches: Vec<Value> = union.branches.into_iter().map(Value::Object).collect();
                    if node.contains_key(word) {
                        let all = node.entry("allOf").or_insert_with(|| json!([]));
                        if let Some(all) = all.as_array_mut() {
                            all.push(json!({ word: branches }));
                        }
                    } else {
                        node.insert(word.to_owned(), Value::Array(branches));
                    }
                }
            }
            Err(wrong) => {
                let at = if wrong.at.is_empty() {
                    at.to_owned()
                } else {
                    join(at, &wrong.at)
                };
                self.report(&at, "union", false, wrong.why);
                node.extend(anything());
            }
        }
    }

    /// The type is one word; a `null` in it is out of the enum too.
    fn one_type(&mut self, node: &mut Node, null: &mut bool, at: &str) {
        if let Some(Value::Array(values)) = node.get_mut("enum") {
            let before = values.len();
            values.retain(|value| !value.is_null());
            *null |= values.len() < before;
        }
        let Some(Value::Array(types)) = node.get("type") else {
            return;
        };
        let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        match types.as_slice() {
            ["integer", "string"] | ["string", "integer"] => {
                node.remove("type");
                node.insert("x-kubernetes-int-or-string".to_owned(), Value::Bool(true));
            }
            _ => {
                let why = format!("a value may be of several types here ({})", types.join(", "));
                node.remove("type");
                node.extend(anything());
                self.report(at, "union", false, why);
            }
        }
    }

    /// Implied keywords are added, and those that Kubernetes does not take are expressed otherwise.
    fn finish(&mut self, node: &mut Node, at: &str) {
        if node.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            node.remove("type");
            node.remove("format");
            node.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
        }
        let preserves = node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        if !node.contains_key("type") && !node.contains_key("x-kubernetes-int-or-string") && !preserves {
            let object = ["properties", "additionalProperties"]
                .iter()
                .any(|word| node.contains_key(*word));
            let values = node.get("enum").and_then(Value::as_array);
            let all = |is: fn(&Value) -> bool| values.is_some_and(|values| !values.is_empty() && values.iter().all(is));
            let found = if object {
                Some("object")
            } else if node.contains_key("items") {
                Some("array")
            } else if all(Value::is_string) {
                Some("string")
            } else if all(|value| value.is_i64() || value.is_u64()) {
                Some("integer")
            } else {
                None
            };
            match found {
                Some(found) => {
                    node.insert("type".to_owned(), json!(found));
                }
                // A schema that says nothing allows everything: so everything is kept.
                None => node.extend(anything()),
            }
        }
        self.format(node);
        if node.remove("uniqueItems") == Some(Value::Bool(true)) {
            let item = node
                .get("items")
                .and_then(|items| items.get("type"))
                .and_then(Value::as_str);
            if matches!(item, Some("string" | "integer" | "boolean" | "number")) {
                node.entry("x-kubernetes-list-type").or_insert_with(|| json!("set"));
            } else {
                self.report(
                    at,
                    "set",
                    true,
                    "a set of objects or lists: Kubernetes knows sets of plain values only, so doubles are not refused",
                );
            }
        }
        if node.get("externalDocs").is_some_and(|docs| !docs.is_object()) {
            node.remove("externalDocs");
        }
    }

    /// Formats of Rust's own integers, in the words that Kubernetes knows.
    fn format(&mut self, node: &mut Node) {
        let Some(format) = node.get("format").and_then(Value::as_str) else {
            return;
        };
        let known = match format {
            "int8" | "int16" | "uint8" | "uint16" => Some("int32"),
            "uint32" | "uint64" | "uint" | "int" | "int128" | "uint128" => Some("int64"),
            "partial-date-time" | "ip" | "char" => None,
            _ => return,
        };
        match known {
            Some(known) => node.insert("format".to_owned(), json!(known)),
            None => node.remove("format"),
        };
    }
}

pub(super) fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}
