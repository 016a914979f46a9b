//! The contents of a cluster, in a form that is equal for runs that did the same.
//!
//! Left out: uids, revisions, times, owners of fields, values that the server or a simulated node numbers by itself
//! (addresses, ids of containers), and the end of generated names. Everything else counts.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::{self, api::Request};
use kubewright_testing::{Error, Result, TestCluster};
use serde_json::Value;

/// Kinds that are no part of the state: events and heartbeats.
const LEFT_OUT: [&str; 2] = ["events", "leases"];

/// All objects of the cluster, sorted.
pub(crate) async fn of(cluster: &TestCluster) -> Result<Vec<String>> {
    let mut objects = Vec::new();
    for path in listed(cluster).await? {
        let list = get(cluster, &path).await?;
        let kind = list["kind"]
            .as_str()
            .unwrap_or_default()
            .trim_end_matches("List")
            .to_owned();
        for mut object in list["items"].as_array().cloned().unwrap_or_default() {
            object["kind"] = Value::from(kind.clone());
            if kind == "Secret" {
                keys_only(&mut object["data"]);
            }
            objects.push(object);
        }
    }
    let names: BTreeMap<String, String> = objects.iter().filter_map(generated).collect();
    let mut texts: Vec<String> = objects
        .into_iter()
        .map(|mut object| {
            plain(&mut object, &names);
            object.to_string()
        })
        .collect();
    texts.sort();
    Ok(texts)
}

/// The objects that only one of two snapshots has.
pub(crate) fn differences(expected: &[String], found: &[String]) -> String {
    let mut count: BTreeMap<&str, i64> = BTreeMap::new();
    for text in expected {
        *count.entry(text).or_default() -= 1;
    }
    for text in found {
        *count.entry(text).or_default() += 1;
    }
    let differing = count.into_iter().filter(|(_, count)| *count != 0);
    differing.map(|(text, count)| format!("{count:+} {text}\n")).collect()
}

async fn get(cluster: &TestCluster, path: &str) -> Result<Value> {
    let request = Request::new(path).list(&kube::api::ListParams::default());
    let failed = |source| Error::Api {
        attempted: format!("get {path}"),
        source,
    };
    let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    cluster.kube().request(request).await.map_err(failed)
}

/// The paths of all kinds that can be listed, out of discovery.
async fn listed(cluster: &TestCluster) -> Result<Vec<String>> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in get(cluster, "/apis").await?["groups"].as_array().into_iter().flatten() {
        let version = group["preferredVersion"]["groupVersion"]
            .as_str()
            .expect("a preferred version");
        versions.push(format!("/apis/{version}"));
    }
    let mut paths = Vec::new();
    for version in versions {
        for resource in get(cluster, &version).await?["resources"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let name = resource["name"].as_str().unwrap_or_default();
            let lists = resource["verbs"]
                .as_array()
                .is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            if lists && !LEFT_OUT.contains(&name) {
                paths.push(format!("{version}/{name}"));
            }
        }
    }
    Ok(paths)
}

/// The name of an object whose end the server made up, and its replacement.
fn generated(object: &Value) -> Option<(String, String)> {
    let (name, stem) = (
        object["metadata"]["name"].as_str()?,
        object["metadata"]["generateName"].as_str()?,
    );
    Some((name.to_owned(), format!("{stem}*")))
}

/// Tokens and certificates are of the run; that they are there is not.
fn keys_only(data: &mut Value) {
    for value in data.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        *value = Value::Null;
    }
}

/// Removes, or replaces with a word, the values that differ between any two runs.
fn plain(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for key in [
                "uid",
                "resourceVersion",
                "managedFields",
                "containerID",
                "clusterIP",
                "clusterIPs",
                // A controller that ends loses these times in Kubernetes as well: it remembers, or writes them after
                // the change itself.
                "lastScaleTime",
                "endpoints.kubernetes.io/last-change-trigger-time",
            ] {
                fields.remove(key);
            }
            // Of a slice it counts writes, and how many pods come together in one is a matter of chance.
            if fields.contains_key("addressType")
                && let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.remove("generation");
            }
            for field in fields.values_mut() {
                plain(field, names);
            }
            fields.retain(|key, value| key != "annotations" || *value != Value::Object(serde_json::Map::new()));
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                plain(item, names);
            }
            // Of equal pods the one that comes first is a matter of chance.
            if items.iter().all(Value::is_object) {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => {
            if let Some(name) = names.get(text) {
                text.clone_from(name);
            } else if let Some(word) = word(text) {
                word.clone_into(text);
            }
        }
        _ => {}
    }
}

fn word(text: &str) -> Option<&'static str> {
    // The name of a volume that was made for a claim, also at the end of its path.
    let of_volume = text.rsplit('/').next().and_then(|name| name.strip_prefix("pvc-"));
    let bare = of_volume.unwrap_or(text);
    let is_uid = bare.len() == 36 && bare.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    match text {
        _ if text.parse::<Timestamp>().is_ok() => Some("<time>"),
        _ if text.parse::<std::net::IpAddr>().is_ok() => Some("<address>"),
        _ if is_uid && of_volume.is_some() => Some("pvc-<uid>"),
        _ if is_uid => Some("<uid>"),
        _ if text.starts_with("kube-api-access-") => Some("kube-api-access-*"),
        _ if text.starts_with("-----BEGIN CERTIFICATE-----") => Some("<certificate>"),
        _ => None,
    }
}
