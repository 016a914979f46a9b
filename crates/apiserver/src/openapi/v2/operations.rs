//! Paths of version 3 in the form of version 2: bodies are parameters, media types stand beside the schemas, parameters
//! are shared.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Map, Value, json};

use super::definitions;
use super::definitions::DEFINITIONS;

/// The order in which media types are listed, which version 3 loses; others come after them.
const ORDER: [&str; 10] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The order of the fields of a parameter, which the name of a shared one depends on.
const FIELDS: [&str; 7] = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];

/// Parameters that operations refer to, by the name of the reference.
#[derive(Default)]
pub(super) struct Shared {
    parameters: BTreeMap<String, Value>,
    /// The references by the names of the parameters: each kind has the same ones, with long descriptions to hash.
    by_name: BTreeMap<String, Vec<String>>,
}

impl Shared {
    pub(super) fn into_parameters(self) -> impl Iterator<Item = (String, Value)> {
        self.parameters.into_iter()
    }

    /// The parameter as it stands in an operation: a reference where it is shared.
    fn refer(&mut self, parameter: Value) -> Value {
        if !is_shared(&parameter) {
            return parameter;
        }
        let own = parameter["name"].as_str().unwrap_or("");
        let mut known = self.by_name.get(own).into_iter().flatten();
        if let Some(name) = known.find(|name| self.parameters.get(*name) == Some(&parameter)) {
            return reference_to(name);
        }
        let name = format!("{own}-{}", short_hash(&go_text(&parameter)));
        self.by_name.entry(own.to_owned()).or_default().push(name.clone());
        let reference = reference_to(&name);
        self.parameters.entry(name).or_insert(parameter);
        reference
    }
}

fn reference_to(name: &str) -> Value {
    json!({"$ref": format!("#/parameters/{name}")})
}

/// Parameters that differ from kind to kind are not shared, and neither are those that old versions of kubectl look for
/// in the operation itself.
fn is_shared(parameter: &Value) -> bool {
    let name = parameter["name"].as_str().unwrap_or("");
    match parameter["in"].as_str().unwrap_or("") {
        "body" => {
            let schema = parameter["schema"]["$ref"].as_str().unwrap_or("");
            let schema = schema.strip_prefix(DEFINITIONS);
            schema.is_some_and(|schema| schema.starts_with("io.k8s.apimachinery"))
        }
        "query" => !["name", "fieldValidation", "dryRun"].contains(&name),
        _ => name != "name",
    }
}

/// The JSON text as Go writes it.
fn go_text(parameter: &Value) -> String {
    let fields = FIELDS.iter().filter_map(|field| Some((field, parameter.get(field)?)));
    let fields: Vec<String> = fields.map(|(field, value)| format!("\"{field}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// The first six bytes of the FNV-1 hash with 64 bits, in letters that a reference may hold.
fn short_hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    URL_SAFE.encode(&hash.to_be_bytes()[..6])
}

/// Converts the operations of a path.
pub(super) fn convert(item: &mut Value, shared: &mut Shared) {
    let Some(item) = item.as_object_mut() else { return };
    for (name, value) in item {
        match value {
            Value::Array(common) if name == "parameters" => {
                *common = parameters(std::mem::take(common), None, shared);
            }
            Value::Object(operation) => self::operation(operation, shared),
            _ => {}
        }
    }
}

fn operation(operation: &mut Map<String, Value>, shared: &mut Shared) {
    let mut produced = BTreeSet::new();
    if let Some(Value::Object(answers)) = operation.get_mut("responses") {
        for answer in answers.values_mut().filter_map(Value::as_object_mut) {
            produced.extend(content(answer));
        }
    }
    let produces = ordered(produced);
    let body = operation.remove("requestBody").and_then(|mut body| {
        let content = content(body.as_object_mut()?);
        Some((ordered(content), body))
    });
    let (consumes, body) = match body {
        Some((consumes, body)) => (consumes, Some(body)),
        None => (without_body(operation, &produces), None),
    };
    let given = match operation.remove("parameters") {
        Some(Value::Array(given)) => given,
        _ => Vec::new(),
    };
    let parameters = parameters(given, body, shared);
    if !parameters.is_empty() {
        operation.insert("parameters".to_owned(), parameters.into());
    }
    if !consumes.is_empty() {
        operation.insert("consumes".to_owned(), consumes.into());
    }
    operation.insert("produces".to_owned(), produces.into());
    operation.insert("schemes".to_owned(), json!(["https"]));
}

/// Puts the schema, which is the same in all media types, in the place of the content, and gives the media types.
fn content(holder: &mut Map<String, Value>) -> Vec<String> {
    let Some(Value::Object(content)) = holder.remove("content") else {
        return Vec::new();
    };
    let types = content.keys().cloned().collect();
    let schema = content
        .into_iter()
        .next()
        .and_then(|(_, mut media)| media.as_object_mut()?.remove("schema"));
    if let Some(mut schema) = schema {
        definitions::convert(&mut schema);
        holder.insert("schema".to_owned(), schema);
    }
    types
}

fn ordered(types: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut types: Vec<String> = types.into_iter().collect();
    let rank = |type_: &String| ORDER.iter().position(|known| known == type_).unwrap_or(ORDER.len());
    types.sort_by_key(rank);
    types
}

/// The media types that an operation without a body lists as consumed; version 3 does not have them. Built-in kinds
/// list any type, custom kinds and discovery those that they produce. An operation that answers with no object of the
/// API lists none.
fn without_body(operation: &Map<String, Value>, produces: &[String]) -> Vec<String> {
    let is_object = operation
        .get("responses")
        .is_some_and(|answers| answers["200"]["schema"].get("$ref").is_some());
    let is_of_kind = operation.contains_key("x-kubernetes-action");
    let is_custom = produces == ["application/json", "application/yaml"];
    match (is_of_kind, is_custom, is_object) {
        (true, false, _) => vec!["*/*".to_owned()],
        (true, true, _) | (false, _, true) => produces.to_vec(),
        (false, _, false) => Vec::new(),
    }
}

/// The parameters with the body among them, by name.
fn parameters(given: Vec<Value>, body: Option<Value>, shared: &mut Shared) -> Vec<Value> {
    let mut all: Vec<Value> = given.into_iter().map(parameter).collect();
    if let Some(mut body) = body {
        body["name"] = "body".into();
        body["in"] = "body".into();
        all.push(body);
    }
    all.sort_by(|a, b| (a["name"].as_str(), a["in"].as_str()).cmp(&(b["name"].as_str(), b["in"].as_str())));
    all.into_iter().map(|parameter| shared.refer(parameter)).collect()
}

/// A parameter with its type beside its name.
fn parameter(mut parameter: Value) -> Value {
    if let Some(object) = parameter.as_object_mut()
        && let Some(Value::Object(schema)) = object.remove("schema")
    {
        object.extend(schema);
        // Nothing is said by saying nothing.
        object.retain(|field, value| field != "description" || *value != "");
    }
    parameter
}
