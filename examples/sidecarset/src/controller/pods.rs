//! The relation of a pod to a SidecarSet: whether it belongs to it, is of its latest revision, and runs the containers
//! of its spec. Pure.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use sidecarset_api::v1alpha1::{SidecarSet, SidecarSetStatus};

use crate::sidecar::hash::Hashes;
use crate::sidecar::{inject, record, selecting};

/// The annotation with what the sidecars ran before they were upgraded in place.
pub const INPLACE_UPDATE_STATE: &str = "kruise.io/sidecarset-inplace-update-state";

/// The images of a pod's sidecars before the last upgrade by one set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateState {
    /// The ControllerRevision to which they were upgraded.
    pub revision: String,
    /// When.
    pub update_timestamp: Time,
    /// By the name of the container.
    #[serde(default)]
    pub last_container_statuses: BTreeMap<String, LastStatus>,
}

/// The image of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastStatus {
    /// The id of its image.
    #[serde(rename = "imageID")]
    pub image_id: String,
}

/// Whether the pod has the containers of the set, and the set still means it (`getMatchingPods`).
pub fn belongs(set: &SidecarSet, pod: &Pod) -> bool {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let has = |name: &str| {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.any(|container| container.name == name)
    };
    inject::is_active(pod)
        && selecting::selects_pod(set, pod)
        && record::injected(pod).iter().any(|injected| injected == name)
        && set.spec.containers.iter().all(|sidecar| has(&sidecar.container.name))
}

/// Whether the pod is of the latest revision.
pub fn is_updated(set: &SidecarSet, hashes: &Hashes, pod: &Pod) -> bool {
    own_hashes(set, pod).is_some_and(|own| own.full == hashes.full)
}

/// Whether only images separate the pod from the latest revision.
pub fn is_upgradable(set: &SidecarSet, hashes: &Hashes, pod: &Pod) -> bool {
    own_hashes(set, pod).is_some_and(|own| own.without_image == hashes.without_image)
}

fn own_hashes(set: &SidecarSet, pod: &Pod) -> Option<Hashes> {
    record::hashes(pod, set.metadata.name.as_deref().unwrap_or_default())
}

/// Whether the pod runs and says that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut conditions = status.conditions.iter().flatten();
    status.phase.as_deref() == Some("Running")
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The status of a container.
pub fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let mut statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    statuses.find(|status| status.name == name)
}

/// Whether the kubelet has done what the spec says of the set's containers (`isPodSidecarConsistent`): an image named
/// by its digest runs, or the id of the image has changed since the last upgrade, or the name of the image is the
/// wanted one already.
pub fn is_consistent(set: &SidecarSet, pod: &Pod) -> bool {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let last = record::map_of::<UpdateState>(pod, INPLACE_UPDATE_STATE).remove(name);
    set.spec.containers.iter().all(|sidecar| {
        let name = &sidecar.container.name;
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let wanted = containers
            .find(|container| container.name == *name)
            .and_then(|one| one.image.as_deref());
        let (Some(wanted), Some(status)) = (wanted, container_status(pod, name)) else {
            return false;
        };
        if let Some((_, digest)) = wanted.split_once('@') {
            return status.image_id.ends_with(digest);
        }
        let before = last.as_ref().and_then(|state| state.last_container_statuses.get(name));
        status.image == wanted || before.is_some_and(|before| before.image_id != status.image_id)
    })
}

/// Whether one of the set's containers cannot start, such as for an image that is not there: only another image helps.
pub fn is_stuck(set: &SidecarSet, pod: &Pod) -> bool {
    set.spec.containers.iter().any(|sidecar| {
        let status = container_status(pod, &sidecar.container.name);
        let state = status.and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.waiting.is_some())
    })
}

/// The status of the set with these pods.
pub fn status(set: &SidecarSet, hashes: &Hashes, pods: &[&Pod], revision: &str) -> SidecarSetStatus {
    let count = |holds: &dyn Fn(&Pod) -> bool| {
        let number = pods.iter().filter(|pod| holds(pod)).count();
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    let ready = |pod: &Pod| is_consistent(set, pod) && is_ready(pod);
    SidecarSetStatus {
        observed_generation: set.metadata.generation.unwrap_or_default(),
        matched_pods: count(&|_| true),
        updated_pods: count(&|pod| is_updated(set, hashes, pod)),
        ready_pods: count(&ready),
        updated_ready_pods: count(&|pod| is_updated(set, hashes, pod) && ready(pod)),
        latest_revision: Some(revision.to_owned()),
        collision_count: set.status.as_ref().and_then(|status| status.collision_count),
    }
}
