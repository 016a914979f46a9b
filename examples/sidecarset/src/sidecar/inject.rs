//! How the containers of SidecarSets come into a pod that is created.
//!
//! Invariants: injecting twice is injecting once; the pod's own containers, volumes and secrets stay, except that a
//! container of the name of a sidecar is replaced where it stands.

use kubewright::k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sidecarset_api::v1alpha1::{PodInjectPolicy, SidecarSet};

use super::{hash, record, source};

/// Puts the containers of the sets into the pod, with the volumes and secrets that they need, and writes down that it
/// has them.
///
/// # Errors
/// When the record cannot be written as JSON.
pub fn inject(pod: &mut Pod, sets: &[&SidecarSet], now: &Time) -> Result<(), serde_json::Error> {
    if sets.is_empty() {
        return Ok(());
    }
    let own = source::own_containers(pod);
    let before = pod.clone();
    let spec = pod.spec.get_or_insert_default();
    put_containers(spec, sets, &before, &own);
    put_init_containers(spec, sets, &before, &own);
    for set in sets {
        put_volumes(spec, set);
        put_secrets(spec, set);
    }
    for set in sets {
        record::write(pod, set, &hash::of(&set.spec), &hash::revision(set), now.clone())?;
    }
    record::list(pod, sets.iter().filter_map(|set| set.metadata.name.clone()));
    Ok(())
}

/// Whether a pod of this phase and age may still be injected: it has not ended and is not being deleted.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn put_containers(spec: &mut PodSpec, sets: &[&SidecarSet], pod: &Pod, own: &[Container]) {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for sidecar in sets.iter().flat_map(|set| &set.spec.containers) {
        let container = source::complete(sidecar, pod, own);
        match spec
            .containers
            .iter_mut()
            .find(|present| present.name == container.name)
        {
            Some(present) => *present = container,
            None if sidecar.pod_inject_policy == Some(PodInjectPolicy::After) => last.push(container),
            None => first.push(container),
        }
    }
    first.append(&mut spec.containers);
    first.append(&mut last);
    spec.containers = first;
}

fn put_init_containers(spec: &mut PodSpec, sets: &[&SidecarSet], pod: &Pod, own: &[Container]) {
    let sidecars = sets.iter().flat_map(|set| &set.spec.init_containers);
    let mut made: Vec<Container> = sidecars.map(|sidecar| source::complete(sidecar, pod, own)).collect();
    made.sort_by(|a, b| a.name.cmp(&b.name));
    for container in made {
        let present = spec.init_containers.get_or_insert_default();
        match present.iter_mut().find(|present| present.name == container.name) {
            Some(present) => *present = container,
            None => present.push(container),
        }
    }
}

/// Adds the volumes that an injected container mounts, unless the pod has one of that name.
fn put_volumes(spec: &mut PodSpec, set: &SidecarSet) {
    let sidecars = set.spec.containers.iter().chain(&set.spec.init_containers);
    let mounted: Vec<&str> = sidecars
        .flat_map(|sidecar| sidecar.container.volume_mounts.iter().flatten())
        .map(|mount| mount.name.as_str())
        .collect();
    let needed = set
        .spec
        .volumes
        .iter()
        .filter(|volume| mounted.contains(&volume.name.as_str()));
    for volume in needed {
        let present: &mut Vec<Volume> = spec.volumes.get_or_insert_default();
        if !present.iter().any(|present| present.name == volume.name) {
            present.push(volume.clone());
        }
    }
}

fn put_secrets(spec: &mut PodSpec, set: &SidecarSet) {
    for secret in &set.spec.image_pull_secrets {
        let present = spec.image_pull_secrets.get_or_insert_default();
        if !present.contains(secret) {
            present.push(secret.clone());
        }
    }
}

#[cfg(test)]
#[path = "inject_tests.rs"]
mod tests;
