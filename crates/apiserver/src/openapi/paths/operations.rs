//! The operations of a path: their names, parameters and answers.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kubewright_schema::budget;
use serde_json::{Map, Value, json};

use crate::model::{Resource, Verbs};

/// Media types of answers about built-in kinds.
pub(crate) const BUILTIN_TYPES: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];

pub(super) const WATCH_TYPES: &[&str] = &[
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];

/// The same of custom kinds.
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];

pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];

pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

pub(super) const PATCH: &[&str] = &["dryRun", "patchFieldManager", "fieldValidation", "force"];

pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// The group in one word: `rbac.authorization.k8s.io` is `RbacAuthorization` (or `rbacAuthorization`), the core group
/// `Core`.
pub(crate) fn camel(group: &str, capital: bool) -> String {
    let group = if group.is_empty() {
        "core"
    } else {
        group.strip_suffix(".k8s.io").unwrap_or(group)
    };
    let mut word = String::new();
    let mut upper = capital;
    for character in group.chars() {
        match character {
            '.' | '-' => upper = true,
            _ if upper => {
                word.push(character.to_ascii_uppercase());
                upper = false;
            }
            _ => word.push(character),
        }
    }
    word
}

pub(super) fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + characters.as_str())
        .unwrap_or_default()
}

pub(crate) fn parameter(name: &str) -> Value {
    // name, type, description
    static DATA: LazyLock<BTreeMap<String, (String, String)>> = LazyLock::new(|| {
        budget::unlimited(|| {
            serde_json::from_str(include_str!("../../../data/parameters.json"))
                .expect("the committed parameters are well formed: a test reads them")
        })
    });
    let shown = if name == "patchFieldManager" {
        "fieldManager"
    } else {
        name
    };
    let (type_, description) = DATA
        .get(name)
        .map_or(("string", ""), |(type_, description)| (type_, description));
    json!({"name": shown, "in": "query", "description": description, "schema": {"type": type_, "uniqueItems": true}})
}

pub(crate) fn path_parameter(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "path", "description": description, "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

/// Answers of an operation: codes with words, all with one schema, and 401.
pub(crate) fn responses(codes: &[(&str, &str)], schema: &Value, types: &[&str]) -> Value {
    let content: Map<String, Value> = types
        .iter()
        .map(|type_| ((*type_).to_owned(), json!({"schema": schema})))
        .collect();
    let mut all: Map<String, Value> = codes
        .iter()
        .map(|(code, words)| ((*code).to_owned(), json!({"description": words, "content": content})))
        .collect();
    all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(all)
}

/// The names in an operation, and its kind.
pub(crate) struct Names<'a> {
    pub(in crate::openapi) tag: String,
    /// `AppsV1`
    pub(in crate::openapi) prefix: String,
    /// `NamespacedDeployment` or `Node`
    pub(in crate::openapi) noun: String,
    pub(in crate::openapi) row: &'a Resource,
}

impl<'a> Names<'a> {
    pub(super) fn of(row: &'a Resource) -> Self {
        Names {
            tag: format!("{}_{}", camel(&row.group, false), row.version),
            prefix: format!("{}{}", camel(&row.group, true), capital(&row.version)),
            noun: format!("{}{}", if row.namespaced { "Namespaced" } else { "" }, row.kind),
            row,
        }
    }

    pub(in crate::openapi) fn operation(
        &self,
        verb: &str,
        suffix: &str,
        action: &str,
        description: &str,
        parameters: &[&str],
        responses: Value,
    ) -> Value {
        let kind = json!({"group": self.row.group, "version": self.row.version, "kind": self.row.kind});
        let mut operation = json!({
            "tags": [self.tag],
            "description": description,
            "operationId": format!("{verb}{}{}{suffix}", self.prefix, self.noun),
            "responses": responses,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.iter().map(|name| parameter(name)).collect();
        }
        operation
    }
}

pub(super) fn body(operation: &mut Value, types: &[&str], schema: &Value, required: bool) {
    let content: Map<String, Value> = types
        .iter()
        .map(|type_| ((*type_).to_owned(), json!({"schema": schema})))
        .collect();
    operation["requestBody"] = json!({"content": content});
    if required {
        operation["requestBody"]["required"] = true.into();
    }
}

/// `a Pod`, `an Event`, `Endpoints`.
pub(super) fn with_article(kind: &str) -> String {
    let plural = kind.ends_with('s') && !kind.ends_with("ss");
    match kind.chars().next() {
        _ if plural => kind.to_owned(),
        Some('A' | 'E' | 'I' | 'O' | 'U') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

/// Media types of answers about a kind.
pub(super) fn answer_types(row: &Resource) -> &'static [&'static str] {
    if row.custom.is_some() {
        CUSTOM_TYPES
    } else {
        BUILTIN_TYPES
    }
}

/// Media types of lists, which may be watched.
pub(super) fn watch_types(row: &Resource) -> &'static [&'static str] {
    if row.custom.is_some() {
        CUSTOM_TYPES
    } else {
        WATCH_TYPES
    }
}

pub(super) fn list_words(row: &Resource) -> &'static str {
    if row.verbs == Verbs::ReadOnly || row.custom.is_some() {
        "list"
    } else {
        "list or watch"
    }
}

pub(super) fn body_types(row: &Resource) -> &'static [&'static str] {
    if row.custom.is_some() {
        &["application/json", "application/yaml"]
    } else {
        &["*/*"]
    }
}

pub(super) fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    format!("{}{rest}", first.to_ascii_uppercase())
}
