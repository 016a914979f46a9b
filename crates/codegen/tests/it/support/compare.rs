//! Kubernetes objects compared by meaning, with a list of differences that are meant.
//!
//! The same are: any order of objects and keys; any order where Kubernetes gives none; null, an empty list and nothing;
//! whole floats and integers; the version annotation of a generator; roles that allow the same, however their rules are
//! put together. Descriptions inside schemas do not count.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};

/// Lists without an order.
const SETS: [&str; 17] = [
    "required",
    "enum",
    "verbs",
    "apiGroups",
    "resources",
    "resourceNames",
    "nonResourceURLs",
    "shortNames",
    "categories",
    "operations",
    "apiVersions",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "policyTypes",
    "args",
    "drop",
    "dnsNames",
];

/// Lists whose items have names.
const NAMED: [&str; 8] = [
    "rules",
    "webhooks",
    "versions",
    "env",
    "volumes",
    "volumeMounts",
    "ports",
    "containers",
];

/// Fields that are the same empty and absent.
const EMPTY: [&str; 6] = [
    "labels",
    "annotations",
    "resources",
    "securityContext",
    "limits",
    "requests",
];

/// A difference that is meant. `project`, `rendering`, `object` (`Kind/name`) and `path` (a JSON pointer) may have `*`.
#[derive(Debug, Deserialize)]
pub(crate) struct Allowed {
    /// The project; any when left out.
    #[serde(default)]
    pub(crate) project: Option<String>,
    pub(crate) rendering: String,
    pub(crate) object: String,
    pub(crate) path: String,
    /// Our value there; any value when left out.
    #[serde(default, deserialize_with = "present")]
    pub(crate) actual: Option<Value>,
    pub(crate) reason: String,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// One difference: the object, the path, the expected and the present value (null: nothing).
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) expected: Value,
    pub(crate) actual: Value,
}

impl Allowed {
    pub(crate) fn covers(&self, project: &str, rendering: &str, difference: &Difference) -> bool {
        self.project.as_ref().is_none_or(|pattern| fits(pattern, project))
            && fits(&self.rendering, rendering)
            && fits(&self.object, &difference.object)
            && fits(&self.path, &difference.path)
            && self.actual.as_ref().is_none_or(|actual| *actual == difference.actual)
    }
}

/// Whether the text matches the pattern; `*` is any part.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| fits(after, &rest[at..]))
        }),
    }
}

/// All differences between two lists of objects.
pub(crate) fn differences(expected: &[Value], actual: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    for object in expected {
        match actual.iter().find(|other| identity(other) == identity(object)) {
            Some(other) => diff(&normal(object), &normal(other), "", &title(object), &mut found),
            None => found.push(difference(
                &title(object),
                "",
                Value::from("present"),
                Value::from("absent"),
            )),
        }
    }
    for object in actual {
        if !expected.iter().any(|other| identity(other) == identity(object)) {
            found.push(difference(
                &title(object),
                "",
                Value::from("absent"),
                Value::from("present"),
            ));
        }
    }
    found
}

fn difference(object: &str, path: &str, expected: Value, actual: Value) -> Difference {
    Difference {
        object: object.to_owned(),
        path: path.to_owned(),
        expected,
        actual,
    }
}

fn identity(object: &Value) -> [&Value; 4] {
    let metadata = &object["metadata"];
    [
        &object["apiVersion"],
        &object["kind"],
        &metadata["namespace"],
        &metadata["name"],
    ]
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The normal form, in which equivalent values are equal.
pub(crate) fn normal(value: &Value) -> Value {
    let kind = value["kind"].as_str().unwrap_or_default();
    match (kind, value["rules"].as_array()) {
        ("ClusterRole" | "Role", Some(rules)) => {
            let mut role = value.clone();
            role["rules"] = grants(rules);
            canonical(&role, "", false)
        }
        _ => canonical(value, "", false),
    }
}

/// The rights of rules, resource by resource: `apps/deployments` or a URL, with the names that it is limited to, and
/// its verbs.
fn grants(rules: &[Value]) -> Value {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let items = rule[key].as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        let mut on = texts(rule, "nonResourceURLs");
        for group in texts(rule, "apiGroups") {
            on.extend(
                texts(rule, "resources")
                    .iter()
                    .map(|resource| format!("{group}/{resource}")),
            );
        }
        let names = texts(rule, "resourceNames");
        for mut on in on {
            if !names.is_empty() {
                on.push_str(&format!(" {names:?}"));
            }
            granted.entry(on).or_default().extend(texts(rule, "verbs"));
        }
    }
    granted
        .into_iter()
        .map(|(on, verbs)| (on, verbs.into_iter().collect::<Value>()))
        .collect::<Map<String, Value>>()
        .into()
}

fn canonical(value: &Value, key: &str, in_schema: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let mut result = Map::new();
            for (name, inner) in fields {
                if name == "controller-gen.kubebuilder.io/version"
                    || in_schema && name == "description" && inner.is_string()
                {
                    continue;
                }
                let schema = in_schema || name == "openAPIV3Schema";
                let value = match inner {
                    // Below `properties` stand names of fields, not words of schemas.
                    Value::Object(properties) if schema && name == "properties" => Value::Object(
                        properties
                            .iter()
                            .map(|(name, inner)| (name.clone(), canonical(inner, "", true)))
                            .collect(),
                    ),
                    inner => canonical(inner, name, schema),
                };
                let nothing = match &value {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => fields.is_empty() && EMPTY.contains(&name.as_str()),
                    _ => false,
                };
                if !nothing || name == "default" {
                    result.insert(name.clone(), value);
                }
            }
            Value::Object(result)
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| canonical(item, "", in_schema)).collect();
            if SETS.contains(&key) {
                items.sort_by_key(Value::to_string);
            } else if NAMED.contains(&key) && items.iter().all(Value::is_object) {
                items.sort_by_key(|item| (item["name"].to_string(), item.to_string()));
            }
            Value::Array(items)
        }
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
            Some(float) if number.is_f64() && float.fract() == 0.0 => Value::from(float as i64),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

fn diff(expected: &Value, actual: &Value, at: &str, object: &str, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                let null = Value::Null;
                diff(
                    a.get(name).unwrap_or(&null),
                    b.get(name).unwrap_or(&null),
                    &path,
                    object,
                    found,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                diff(a, b, &format!("{at}/{index}"), object, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(difference(object, at, a.clone(), b.clone())),
    }
}
