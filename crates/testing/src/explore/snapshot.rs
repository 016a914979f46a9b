//! The contents of a cluster, in a form that is equal for runs that did the same.
//!
//! Left out: uids, revisions, times, owners of fields, values that the server or a simulated node numbers by itself
//! (addresses, ids of containers), and the end of generated names. Everything else counts.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::{self, api::Request};
use serde_json::Value;

use super::log::Named;
use super::seam::TOUCHED;
use crate::cluster::TestCluster;
use crate::error::{Error, Result};

/// Kinds that are no part of the state: events and heartbeats.
const LEFT_OUT: [&str; 2] = ["events", "leases"];

/// All objects of a cluster, without what differs between any two runs; see [`TestCluster::snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Sorted by their texts.
    pub(super) objects: Vec<(String, Named)>,
}

impl TestCluster {
    /// All objects of the cluster but events and Leases, in a form that is equal for runs that did the same: without
    /// uids, revisions, times, owners of fields, addresses, and the end of generated names.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::of(self, &listed(self).await?, plain).await
    }
}

impl Snapshot {
    /// As [`TestCluster::snapshot`], and without what counts how often something was written: an operator that needed
    /// one write more is none the worse.
    /// The kinds are those of these paths, which [`listed`] finds.
    pub(super) async fn lenient(cluster: &TestCluster, paths: &[String]) -> Result<Snapshot> {
        Snapshot::of(cluster, paths, |object, names| {
            uncounted(object);
            plain(object, names);
        })
        .await
    }

    async fn of(
        cluster: &TestCluster,
        paths: &[String],
        reduce: impl Fn(&mut Value, &BTreeMap<String, String>),
    ) -> Result<Snapshot> {
        let mut objects = Vec::new();
        for path in paths {
            let list = get(cluster, path).await?;
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
                objects.push((resource_of(path), object));
            }
        }
        let names: BTreeMap<String, String> = objects.iter().filter_map(|(_, object)| generated(object)).collect();
        let mut texts: Vec<(String, Named)> = objects
            .into_iter()
            .map(|(resource, mut object)| {
                reduce(&mut object, &names);
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                let named = (resource, text("namespace"), text("name"));
                (object.to_string(), named)
            })
            .collect();
        texts.sort();
        Ok(Snapshot { objects: texts })
    }

    /// The objects as JSON texts, sorted.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().map(|(text, _)| text.as_str())
    }

    /// The objects that only one of two snapshots has: a line for each, `-1` what is missing in `found`, `+1` what is
    /// more there; empty when they are equal.
    #[must_use]
    pub fn differences(&self, found: &Snapshot) -> String {
        let mut count: BTreeMap<&str, i64> = BTreeMap::new();
        for (text, _) in &self.objects {
            *count.entry(text).or_default() -= 1;
        }
        for (text, _) in &found.objects {
            *count.entry(text).or_default() += 1;
        }
        let differing = count.into_iter().filter(|(_, count)| *count != 0);
        differing.map(|(text, count)| format!("{count:+} {text}\n")).collect()
    }

    /// The objects that are there. Those whose names were made up alike are numbered.
    pub(super) fn names(&self) -> BTreeSet<(&Named, usize)> {
        let mut names = BTreeSet::new();
        for (_, named) in &self.objects {
            let number = (1..).find(|number| !names.contains(&(named, *number)));
            names.extend(number.map(|number| (named, number)));
        }
        names
    }

    /// Whether there is an object of this name.
    pub(super) fn has(&self, named: &Named) -> bool {
        self.text(named).is_some()
    }

    /// The text of an object.
    pub(super) fn text(&self, of: &Named) -> Option<&str> {
        let found = self.objects.iter().find(|(_, named)| named == of);
        found.map(|(text, _)| text.as_str())
    }
}

/// `deployments.apps` for `/apis/apps/v1/deployments`.
fn resource_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [_, "apis", group, _, resource] => format!("{resource}.{group}"),
        [.., resource] => (*resource).to_owned(),
        [] => String::new(),
    }
}

/// Removes what counts writes, and what the intruder left.
fn uncounted(object: &mut Value) {
    let generation = object["metadata"]["generation"].clone();
    if let Some(observed) = object.pointer_mut("/status/observedGeneration") {
        // Whether it is the present one does not depend on their number.
        *observed = Value::from(*observed == generation);
    }
    for conditions in object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(observed) = conditions.get_mut("observedGeneration") {
            *observed = Value::from(*observed == generation);
        }
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(TOUCHED);
            annotations.remove("deployment.kubernetes.io/revision");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    if object["kind"] == "ControllerRevision" {
        object["revision"] = Value::Null;
    }
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

/// The paths of all kinds that can be listed, out of discovery. Finding them costs as much as listing them.
pub(super) async fn listed(cluster: &TestCluster) -> Result<Vec<String>> {
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
