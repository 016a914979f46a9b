//! The objects that came of the operator and may be deleted by somebody else: those that it made, and the pods of these.
//!
//! Left out is what nobody would make again, or not before the deletion ends: pods that have done their work, claims in
//! use, what waits for somebody's cleanup, and what has no owner, because no event of it leads to one.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_cluster::ApiServer;
use serde_json::Value;

use super::log::{Made, Named};

/// Those that are there: what was `made`, in that order, then what has an owner of a kind that no controller of the
/// cluster serves, and a pod of each controller.
pub(super) fn children(api: &ApiServer, made: &[Made]) -> Vec<Made> {
    let mut places: BTreeMap<Named, String> = BTreeMap::new();
    let (mut others, mut owned) = (BTreeSet::new(), BTreeSet::new());
    let mut with_a_pod = BTreeSet::new();
    let kinds = api.kinds();
    for row in kinds
        .resources()
        .iter()
        .filter(|row| row.version == row.storage_version)
    {
        if ["events", "leases"].contains(&&*row.plural) {
            continue;
        }
        for (_, entry) in api.entries(&row.store) {
            let stored = entry.object();
            let object = stored.value();
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let named = (row.store.to_string(), text("namespace"), text("name"));
            if is_past(&row.kind, object) {
                continue;
            }
            let prefix = match &*row.group {
                "" => format!("/api/{}", row.version),
                group => format!("/apis/{group}/{}", row.version),
            };
            let path = match named.1.as_str() {
                "" => format!("{prefix}/{}/{}", row.plural, named.2),
                namespace => format!("{prefix}/namespaces/{namespace}/{}/{}", row.plural, named.2),
            };
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let mut owners = owners.map(|owner| (owner["apiVersion"].as_str().unwrap_or_default(), &owner["uid"]));
            let is_child = match &*row.kind {
                "Pod" => owners.any(|(of, uid)| of == "apps/v1" && with_a_pod.insert(uid.to_string())),
                _ => owners.any(|(of, _)| is_custom(of)),
            };
            if is_child {
                others.insert(named.clone());
            }
            if !object["metadata"]["ownerReferences"].is_null() {
                owned.insert(named.clone());
            }
            places.insert(named, path);
        }
    }
    let made = made.iter().map(|made| made.named.clone());
    let made: Vec<Named> = made.filter(|named| owned.contains(named)).collect();
    others.retain(|other| !made.contains(other));
    let all = made.into_iter().chain(others);
    all.filter_map(|named| {
        let path = places.get(&named)?.clone();
        Some(Made { named, path })
    })
    .collect()
}

/// The uids of all objects, without those that controllers replace in any case when a template changes.
pub(super) fn identities(api: &ApiServer) -> BTreeMap<Named, String> {
    const REPLACED: [&str; 7] = [
        "pods",
        "replicasets.apps",
        "controllerrevisions.apps",
        "endpoints",
        "endpointslices.discovery.k8s.io",
        "events",
        "leases.coordination.k8s.io",
    ];
    let mut all = BTreeMap::new();
    let rows = api.kinds().resources();
    let rows = rows.iter().filter(|row| !REPLACED.contains(&&*row.store));
    for store in rows.map(|row| row.store.to_string()).collect::<BTreeSet<_>>() {
        for (_, entry) in api.entries(&store) {
            let stored = entry.object();
            let text = |field: &str| {
                stored.value()["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            all.insert((store.clone(), text("namespace"), text("name")), text("uid"));
        }
    }
    all
}

/// Whether a version is of a group that is not Kubernetes' own.
fn is_custom(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Whether nobody makes it again when it is deleted, or it cannot go.
fn is_past(kind: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let is_held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let is_over = kind == "Pod" && matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    is_held || is_over || !metadata["deletionTimestamp"].is_null()
}
