//! What other API servers tell of themselves, in the form of this server's own discovery.
//!
//! Nothing is believed of its form: each field is read for itself, and what is not of its type is left out. So nothing
//! that a server tells can spoil the documents in which it stands beside others.

use serde_json::{Map, Value, json};

/// The list of an `APIResourceList` in the aggregated form (`ConvertGroupVersionIntoToDiscovery`); none if it is no such
/// document.
pub(super) fn aggregated(document: &Value) -> Option<Value> {
    if document.get("kind") != Some(&json!("APIResourceList")) {
        return None;
    }
    let told = document.get("resources").and_then(Value::as_array)?;
    let mut list: Vec<Value> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for one in told {
        let name = text(one, "name");
        let (resource, subresource) = match name.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (name, None),
        };
        if resource.is_empty() {
            continue;
        }
        let place = *places.entry(resource.to_owned()).or_insert_with(|| {
            // A subresource may stand before its resource, or without one.
            let nothing = json!({"group": "", "version": "", "kind": ""});
            let entry = json!({"resource": resource, "responseKind": nothing, "scope": scope(one),
                "singularResource": "", "verbs": []});
            list.push(entry);
            list.len().saturating_sub(1)
        });
        let Some(entry) = list.get_mut(place).and_then(Value::as_object_mut) else {
            continue;
        };
        match subresource {
            None => fill(entry, one),
            Some(subresource) => {
                let subresources = entry.entry("subresources").or_insert_with(|| json!([]));
                if let Some(subresources) = subresources.as_array_mut() {
                    subresources.push(json!({"subresource": subresource, "responseKind": kind(one),
                        "verbs": texts(one, "verbs")}));
                }
            }
        }
    }
    Some(list.into())
}

fn fill(entry: &mut Map<String, Value>, one: &Value) {
    entry.insert("responseKind".to_owned(), kind(one));
    entry.insert("scope".to_owned(), scope(one).into());
    entry.insert("singularResource".to_owned(), text(one, "singularName").into());
    entry.insert("verbs".to_owned(), texts(one, "verbs").into());
    for field in ["shortNames", "categories"] {
        let texts = texts(one, field);
        if !texts.is_empty() {
            entry.insert(field.to_owned(), texts.into());
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

fn texts(value: &Value, field: &str) -> Vec<Value> {
    let list = value.get(field).and_then(Value::as_array).into_iter().flatten();
    list.filter(|text| text.is_string()).cloned().collect()
}

fn kind(one: &Value) -> Value {
    json!({"group": text(one, "group"), "version": text(one, "version"), "kind": text(one, "kind")})
}

fn scope(one: &Value) -> &'static str {
    match one.get("namespaced") {
        Some(Value::Bool(true)) => "Namespaced",
        _ => "Cluster",
    }
}

/// The hash of the document of a group version, out of the index of OpenAPI v3.
pub(super) fn openapi_hash(index: &Value, path: &str) -> Option<String> {
    let entry = index.get("paths")?.get(path.trim_start_matches('/'))?;
    let url = entry.get("serverRelativeURL")?.as_str()?;
    let (_, hash) = url.split_once("?hash=")?;
    let is_hash = !hash.is_empty() && hash.len() <= 256 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_hash.then(|| hash.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_told_in_the_aggregated_form() {
        let check = |document: Value, expected: Value| {
            let found = aggregated(&document).unwrap_or_default();
            assert_eq!(found, expected, "{document}");
        };
        let of =
            |resources: Value| json!({"kind": "APIResourceList", "groupVersion": "m.io/v1", "resources": resources});
        let kind = |kind: &str| json!({"group": "", "version": "", "kind": kind});
        check(
            of(json!([
                {"name": "ws", "singularName": "w", "namespaced": true, "kind": "W", "verbs": ["get", "list"],
                    "shortNames": ["x"]},
                {"name": "ws/status", "singularName": "", "namespaced": true, "kind": "W", "verbs": ["get"]},
            ])),
            json!([{"resource": "ws", "responseKind": kind("W"), "scope": "Namespaced", "singularResource": "w",
                "verbs": ["get", "list"], "shortNames": ["x"],
                "subresources": [{"subresource": "status", "responseKind": kind("W"), "verbs": ["get"]}]}]),
        );
        // As adapters of metrics do it.
        check(
            of(json!([{"name": "pods/load", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]}])),
            json!([{"resource": "pods", "responseKind": kind(""), "scope": "Namespaced", "singularResource": "",
                "verbs": [],
                "subresources": [{"subresource": "load", "responseKind": kind("MetricValueList"), "verbs": ["get"]}]}]),
        );
        // Garbage.
        check(json!({"kind": "Status"}), Value::Null);
        check(json!([1]), Value::Null);
        check(of(json!("none")), Value::Null);
        let nothing = json!({"resource": "a", "responseKind": kind(""), "scope": "Cluster", "singularResource": "",
            "verbs": []});
        check(
            of(
                json!([7, {"name": 7}, {"name": "/x"}, {"name": "a", "verbs": {"get": 1}, "shortNames": [1], "kind": {}}]),
            ),
            json!([nothing]),
        );
    }

    #[test]
    fn only_a_hash_is_taken_from_an_index() {
        let check = |url: &str, expected: Option<&str>| {
            let index = json!({"paths": {"apis/m.io/v1": {"serverRelativeURL": url}}});
            assert_eq!(openapi_hash(&index, "/apis/m.io/v1").as_deref(), expected, "{url}");
        };
        check("/openapi/v3/apis/m.io/v1?hash=AB12", Some("AB12"));
        check("https://evil/?hash=AB12", Some("AB12"));
        check("/openapi/v3/apis/m.io/v1?hash=a&b", None);
        check("/openapi/v3/apis/m.io/v1?hash=", None);
        check("/openapi/v3/apis/m.io/v1", None);
        assert_eq!(openapi_hash(&Value::Null, "/apis/m.io/v1"), None);
    }
}
