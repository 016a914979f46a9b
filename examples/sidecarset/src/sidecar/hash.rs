//! The state of a SidecarSet, in a few letters: whether a pod has the latest containers, and whether only images
//! separate it from them.
//!
//! The values are not those of OpenKruise, whose Go structs are hashed in Go's own encoding; the meaning is the same.

use kubewright::k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sidecarset_api::v1alpha1::{SidecarContainer, SidecarSet, SidecarSetSpec};

/// The annotation with the hash of the containers, of a SidecarSet and, as a record per set, of a pod.
pub const HASH: &str = "kruise.io/sidecarset-hash";
/// The annotation with the hash of the containers without their images.
pub const HASH_WITHOUT_IMAGE: &str = "kruise.io/sidecarset-hash-without-image";

/// How many hexadecimal digits a hash has.
const DIGITS: usize = 40;
/// How many of them the name of a ControllerRevision has.
const REVISION_DIGITS: usize = 10;

/// The two hashes of a SidecarSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Of the containers.
    pub full: String,
    /// Of the containers without their images: what can be upgraded in place has the same.
    pub without_image: String,
}

/// The hashes of what a SidecarSet injects and may upgrade: its containers, and its init containers if one of them is a
/// sidecar by Kubernetes' own meaning (`restartPolicy: Always`).
pub fn of(spec: &SidecarSetSpec) -> Hashes {
    Hashes {
        full: hashed(spec, |_| {}),
        without_image: hashed(spec, |container| container.image = None),
    }
}

/// The data of a SidecarSet's ControllerRevision: everything that is injected, as a patch that brings it back.
pub fn revision_data(spec: &SidecarSetSpec) -> Value {
    json!({"spec": {
        "$patch": "replace",
        "containers": spec.containers,
        "initContainers": spec.init_containers,
        "volumes": spec.volumes,
        "imagePullSecrets": spec.image_pull_secrets,
    }})
}

/// The name of the ControllerRevision of the present spec. It follows from the spec and from how often names were
/// taken, so that the webhook, which injects, and the controller, which writes the revision, find the same without
/// asking each other.
pub fn revision(set: &SidecarSet) -> String {
    let collisions = set
        .status
        .as_ref()
        .and_then(|status| status.collision_count)
        .unwrap_or(0);
    let mut hash = digest(&json!([revision_data(&set.spec), collisions]));
    hash.truncate(REVISION_DIGITS);
    format!("{}-{hash}", set.metadata.name.as_deref().unwrap_or_default())
}

/// A hash of any JSON.
pub fn digest(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    let mut hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(DIGITS);
    hex
}

fn hashed(spec: &SidecarSetSpec, change: impl Fn(&mut Container)) -> String {
    let changed = |containers: &[SidecarContainer]| -> Vec<SidecarContainer> {
        let mut containers = containers.to_vec();
        containers.iter_mut().for_each(|one| change(&mut one.container));
        containers
    };
    let mut hashed = json!({ "containers": changed(&spec.containers) });
    if spec.init_containers.iter().any(is_native_sidecar) {
        hashed["initContainers"] = json!(changed(&spec.init_containers));
    }
    digest(&hashed)
}

/// Whether an init container goes on running beside the pod's containers.
pub fn is_native_sidecar(container: &SidecarContainer) -> bool {
    container.container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_changes_one_hash_and_anything_else_both() {
        let hashes = |spec: Value| of(&serde_json::from_value(spec).expect("a spec"));
        let container =
            |image: &str, value: &str| json!({"name": "c", "image": image, "env": [{"name": "A", "value": value}]});
        let base = hashes(json!({"containers": [container("v1", "1")]}));
        let check = |spec: Value, same: bool, same_without_image: bool| {
            let other = hashes(spec.clone());
            let equal = (other.full == base.full, other.without_image == base.without_image);
            assert_eq!(equal, (same, same_without_image), "{spec}");
        };
        check(json!({"containers": [container("v1", "1")]}), true, true);
        check(json!({"containers": [container("v2", "1")]}), false, true);
        check(json!({"containers": [container("v1", "2")]}), false, false);
        let once = json!([{"name": "i", "image": "v1"}]);
        check(
            json!({"containers": [container("v1", "1")], "initContainers": once}),
            true,
            true,
        );
        let native = json!([{"name": "i", "image": "v1", "restartPolicy": "Always"}]);
        check(
            json!({"containers": [container("v1", "1")], "initContainers": native}),
            false,
            false,
        );
        check(
            json!({"containers": [container("v1", "1")], "updateStrategy": {"paused": true}}),
            true,
            true,
        );
    }
}
