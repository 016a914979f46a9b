//! A pod's record of the SidecarSets that were injected into it: three annotations, whose form is OpenKruise's.
//!
//! Invariant: an annotation that cannot be read counts as absent. People can write annotations, and a pod must not stop
//! the operator.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sidecarset_api::v1alpha1::SidecarSet;

use super::hash::{HASH, HASH_WITHOUT_IMAGE, Hashes};

/// The annotation of a pod with the names of the sets, sorted, with commas between them.
pub const INJECTED: &str = "kruise.io/sidecarset-injected-list";

/// The record of one set. A pod has a map of them, by the name of the set, in each of the two annotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Since when.
    pub update_timestamp: Time,
    /// The hash of the set.
    pub hash: String,
    /// The name of the set.
    pub sidecar_set_name: String,
    /// The names of the injected containers.
    #[serde(default)]
    pub sidecar_list: Vec<String>,
    /// The ControllerRevision; only beside the full hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_revision: Option<String>,
}

/// The map in an annotation of a pod.
pub fn map_of<T: DeserializeOwned>(pod: &Pod, annotation: &str) -> BTreeMap<String, T> {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The names of the sets that the pod was injected by.
pub fn injected(pod: &Pod) -> Vec<String> {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(INJECTED));
    let names = text.iter().flat_map(|text| text.split(','));
    names
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The hashes that the pod has of a set.
pub fn hashes(pod: &Pod, set: &str) -> Option<Hashes> {
    let hash = |annotation| map_of::<Record>(pod, annotation).remove(set).map(|record| record.hash);
    Some(Hashes {
        full: hash(HASH)?,
        without_image: hash(HASH_WITHOUT_IMAGE)?,
    })
}

/// Writes down that the pod has the containers of a set in this revision. A record that says so already stays as it is,
/// so that writing twice is writing once.
pub fn write(
    pod: &mut Pod,
    set: &SidecarSet,
    hashes: &Hashes,
    revision: &str,
    now: Time,
) -> Result<(), serde_json::Error> {
    let name = set.metadata.name.clone().unwrap_or_default();
    let containers = set.spec.containers.iter().map(|one| one.container.name.clone());
    let sidecar_list: Vec<String> = containers.collect();
    for (annotation, hash, revision) in [
        (HASH, &hashes.full, Some(revision.to_owned())),
        (HASH_WITHOUT_IMAGE, &hashes.without_image, None),
    ] {
        let mut records = map_of::<Record>(pod, annotation);
        let mut record = Record {
            update_timestamp: now.clone(),
            hash: hash.clone(),
            sidecar_set_name: name.clone(),
            sidecar_list: sidecar_list.clone(),
            controller_revision: revision,
        };
        if let Some(before) = records.get(&name) {
            let at = std::mem::replace(&mut record.update_timestamp, before.update_timestamp.clone());
            if record != *before {
                record.update_timestamp = at;
            }
        }
        records.insert(name.clone(), record);
        annotate(pod, annotation, serde_json::to_string(&records)?);
    }
    Ok(())
}

/// Adds the names of sets to those that the pod was injected by.
pub fn list(pod: &mut Pod, sets: impl IntoIterator<Item = String>) {
    let mut names = injected(pod);
    names.extend(sets);
    names.sort();
    names.dedup();
    annotate(pod, INJECTED, names.join(","));
}

/// Sets an annotation of a pod.
pub fn annotate(pod: &mut Pod, annotation: &str, value: String) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.to_owned(), value);
}
