//! Tells a client what of its object will have no effect, because nothing in this cluster acts on it (yet): a user should
//! not wait for the address of a LoadBalancer that nobody gives.
//!
//! A cluster without controllers warns about nothing: its user wants an API server alone. Nor does a controller that
//! exists and was left out by name: that was the user's choice. A pod that a controller makes is told of at its template.
//!
//! Not here: what a pod of processes asks for and does not get (events `NotEnforced` of `kubewright-nodes`).

mod rows;

use kubewright_apiserver::model::Resource;
use serde_json::Value;

use rows::{NO_ADDRESSES, ROWS, Row};

/// Where the kinds that make pods have their template.
const TEMPLATES: &[(&str, &str, &[&str])] = &[
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
];

/// The warnings about an object that is written.
pub(crate) fn advice(resource: &Resource, object: &Value) -> Vec<String> {
    warnings(&resource.group, &resource.plural, object)
}

/// The same where Services get addresses.
pub(crate) fn beside_addresses(resource: &Resource, object: &Value) -> Vec<String> {
    let mut warnings = advice(resource, object);
    warnings.retain(|warning| warning != NO_ADDRESSES);
    warnings
}

fn warnings(group: &str, plural: &str, object: &Value) -> Vec<String> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_told = owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
    let of_template = TEMPLATES.iter().find(|(of, kind, _)| (*of, *kind) == (group, plural));
    let (group, plural, way) = match of_template {
        _ if is_told => return Vec::new(),
        Some((_, _, way)) => ("", "pods", *way),
        None => (group, plural, [].as_slice()),
    };
    let rows = ROWS.iter().filter(|row| (row.group, row.plural) == (group, plural));
    let Some(start) = way.iter().try_fold(object, |at, name| at.get(name)) else {
        return Vec::new();
    };
    let acts_not = rows.filter(|row| leads(start, row.path, row));
    acts_not.map(|row| row.text.to_owned()).collect()
}

/// Whether the path leads to something that the row is about.
fn leads(at: &Value, path: &[&str], row: &Row) -> bool {
    let Some((name, rest)) = path.split_first() else {
        let is_one = |text: &str| row.values.contains(&text);
        return row.values.is_empty() || at.as_str().is_some_and(is_one);
    };
    let is_there = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match at {
        Value::Array(items) if *name == "*" => items.iter().any(|item| leads(item, rest, row)),
        Value::Object(fields) => {
            let mut found = name.split('|').filter_map(|name| fields.get(name));
            found.any(|value| is_there(value) && leads(value, rest, row))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_effect_is_told() {
        let check = |group: &str, plural: &str, object: Value, expected: &[&str]| {
            let found = warnings(group, plural, &object);
            let begins = found.len() == expected.len()
                && found
                    .iter()
                    .zip(expected)
                    .all(|(found, expected)| found.starts_with(expected));
            assert!(begins, "{plural} {object}: {found:?}");
        };
        let service = |spec: Value| json!({ "spec": spec });
        check(
            "",
            "services",
            service(json!({ "type": "ClusterIP", "externalIPs": [] })),
            &[],
        );
        check(
            "",
            "services",
            service(json!({ "type": "LoadBalancer" })),
            &["spec.type"],
        );
        let both =
            json!({ "sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"], "internalTrafficPolicy": "Cluster" });
        check(
            "",
            "services",
            service(both),
            &["spec.externalIPs", "spec.sessionAffinity"],
        );
        check(
            "example.com",
            "services",
            service(json!({ "type": "LoadBalancer" })),
            &[],
        );
        check(
            "networking.k8s.io",
            "ingresses",
            json!({}),
            &["this cluster has no ingress"],
        );
        let pod = |volume: Value| json!({ "spec": { "volumes": [{ "name": "a", "emptyDir": {} }, volume] } });
        check("", "pods", pod(json!({ "name": "b", "secret": {} })), &[]);
        let remote = pod(json!({ "name": "b", "nfs": { "server": "s", "path": "/" } }));
        check("", "pods", remote.clone(), &["spec.volumes"]);
        check(
            "apps",
            "deployments",
            json!({ "spec": { "template": remote } }),
            &["spec.volumes"],
        );
        let jobs = json!({ "spec": { "jobTemplate": { "spec": { "template": remote } } } });
        check("batch", "cronjobs", jobs, &["spec.volumes"]);
        let mut made = remote.clone();
        made["metadata"]["ownerReferences"] = json!([{ "controller": true }]);
        check("", "pods", made, &[]);
        check("apps", "deployments", json!({}), &[]);
    }
}
