//! Which volume a claim gets, and the form of both when they belong together.
//!
//! Pure, but for [`candidates`]. Upstream: `FindMatchingVolume`, `checkVolumeSatisfyClaim`, `GetBindVolumeToClaim`,
//! `bindClaimToVolume`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::{Selector, SelectorExt as _};
use kubewright::{Context, Result};
use kubewright_objects::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
};
use kubewright_objects::api::storage::v1::StorageClass;

use kubewright_objects::meta;
use kubewright_objects::quantity::milli;

/// The provisioner that makes volumes which exist in the API only.
pub(super) const SIMULATED: &str = "kubewright.dev/simulated";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: the provisioner that made it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: the provisioner that is to make its volume.
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same under its old name, which provisioners may still look for.
pub(super) const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: the node that the scheduler has chosen for its first pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(super) const STORAGE: &str = "storage";

/// The class of a claim; the annotation is older than the field.
pub(crate) fn class(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    meta::annotation(&claim.metadata, "volume.beta.kubernetes.io/storage-class")
        .or(spec)
        .unwrap_or_default()
}

/// Whether volumes of this class wait for a pod.
pub(crate) fn waits(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether claim and volume have found each other, on both sides.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    meta::annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// Whether the volume is kept for this claim, by name or by uid.
pub(crate) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (uid.is_empty() || uid == meta::uid(&claim.metadata))
    })
}

/// The values of an index of volumes: those that are kept for a claim by its key, the others by their class.
pub(crate) fn index_keys(volume: &PersistentVolume) -> Vec<String> {
    let spec = volume.spec.as_ref();
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
    let reference = spec.and_then(|spec| spec.claim_ref.as_ref());
    vec![reference.map_or_else(
        || class.unwrap_or_default().to_owned(),
        |of| {
            format!(
                "{}/{}",
                of.namespace.as_deref().unwrap_or_default(),
                of.name.as_deref().unwrap_or_default()
            )
        },
    )]
}

/// The volumes that may be for a claim, by an index with [`index_keys`]: thousands may be there for others.
pub(crate) async fn candidates(
    claim: &PersistentVolumeClaim,
    index: &str,
    ctx: &Context,
) -> Result<Vec<Arc<PersistentVolume>>> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let kept = format!("{namespace}/{}", meta::name(&claim.metadata));
    let mut found = ctx
        .client()
        .list_by_index::<PersistentVolume>(None, index, &kept)
        .await?;
    found.extend(
        ctx.client()
            .list_by_index::<PersistentVolume>(None, index, class(claim))
            .await?,
    );
    Ok(found)
}

fn size(
    amounts: Option<&BTreeMap<String, kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> i128 {
    amounts.and_then(|amounts| milli(amounts.get(STORAGE)?)).unwrap_or(0)
}

pub(crate) fn capacity(volume: &PersistentVolume) -> i128 {
    size(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
}

pub(crate) fn requested(spec: &PersistentVolumeClaimSpec) -> i128 {
    size(
        spec.resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref()),
    )
}

fn same_mode(claim: &PersistentVolumeClaimSpec, volume: &PersistentVolumeSpec) -> bool {
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    mode(&claim.volume_mode) == mode(&volume.volume_mode)
}

fn has_modes(claim: &PersistentVolumeClaimSpec, volume: &PersistentVolumeSpec) -> bool {
    let offered = volume.access_modes.as_deref().unwrap_or_default();
    claim.access_modes.iter().flatten().all(|mode| offered.contains(mode))
}

/// The volume for a claim: one that is kept for it, or else the smallest that fits. With `delayed`, only the first.
pub(crate) fn best<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [&'a PersistentVolume],
    delayed: bool,
) -> Option<&'a PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let selector: Option<Selector> = spec.selector.clone().and_then(|selector| selector.try_into().ok());
    // A selector that cannot be read selects nothing.
    let unreadable = spec.selector.is_some() && selector.is_none();
    let fits = |volume: &&&PersistentVolume| {
        let of = volume.spec.as_ref();
        !meta::is_deleting(&volume.metadata)
            && capacity(volume) >= requested(spec)
            && of.is_some_and(|of| {
                same_mode(spec, of)
                    && of.volume_attributes_class_name.as_deref().unwrap_or_default()
                        == spec.volume_attributes_class_name.as_deref().unwrap_or_default()
            })
    };
    let free = |volume: &&&PersistentVolume| {
        let of = volume.spec.as_ref();
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let labels = meta::labels(&volume.metadata);
        of.is_some_and(|of| {
            of.claim_ref.is_none()
                && of.storage_class_name.as_deref().unwrap_or_default() == class(claim)
                && has_modes(spec, of)
        }) && phase == Some("Available")
            && !unreadable
            && selector.as_ref().is_none_or(|selector| selector.matches(labels))
    };
    if let Some(kept) = volumes.iter().filter(fits).find(|volume| is_for(volume, claim)) {
        return Some(kept);
    }
    let free = volumes.iter().filter(fits).filter(free).filter(|_| !delayed);
    free.min_by_key(|volume| capacity(volume)).copied()
}

/// Why a volume that a claim names does not fit it.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let (Some(spec), Some(of)) = (claim.spec.as_ref(), volume.spec.as_ref()) else {
        return Some("requested PV is too small");
    };
    if meta::is_deleting(&volume.metadata) {
        return Some("the volume is marked for deletion");
    }
    if capacity(volume) < requested(spec) {
        return Some("requested PV is too small");
    }
    if of.storage_class_name.as_deref().unwrap_or_default() != class(claim) {
        return Some("storageClassName does not match");
    }
    if !same_mode(spec, of) {
        return Some("incompatible volumeMode");
    }
    (!has_modes(spec, of)).then_some("incompatible accessMode")
}

/// The volume with its reference to the claim; none when it has it already.
pub(crate) fn volume_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let present = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if is_for(volume, claim) && present.is_some_and(|present| present.uid == claim.metadata.uid) {
        return None;
    }
    let mut next = volume.clone();
    if !is_for(volume, claim) {
        annotate(&mut next.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    next.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    });
    Some(next)
}

/// The claim with the name of its volume; none when it has it already.
pub(super) fn claim_for(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let mut next = claim.clone();
    let spec = next.spec.get_or_insert_default();
    if spec.volume_name.as_deref().unwrap_or_default().is_empty() {
        spec.volume_name = volume.metadata.name.clone();
        annotate(&mut next.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    annotate(&mut next.metadata, BIND_COMPLETED, "yes");
    (next != *claim).then_some(next)
}

/// The claim with the status of one that is bound; none when it has it already.
pub(super) fn status_for(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let mut next = claim.clone();
    let (status, of) = (next.status.get_or_insert_default(), volume.spec.as_ref());
    if status.phase.as_deref() != Some("Bound") {
        // Later sizes are those of a resize: `expand`.
        status.capacity = of.and_then(|of| of.capacity.clone());
    }
    status.phase = Some("Bound".to_owned());
    status.access_modes = of.and_then(|of| of.access_modes.clone());
    (next != *claim).then_some(next)
}

/// The volume that the simulated provisioner makes for a claim.
pub(super) fn provisioned(claim: &PersistentVolumeClaim, of: &StorageClass) -> PersistentVolume {
    let name = format!("pvc-{}", meta::uid(&claim.metadata));
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec
        .resources
        .and_then(|resources| resources.requests)
        .unwrap_or_default();
    let capacity = requests.into_iter().filter(|(name, _)| name == STORAGE).collect();
    PersistentVolume {
        metadata: ObjectMeta {
            annotations: Some([(PROVISIONED_BY.to_owned(), of.provisioner.clone())].into()),
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(capacity),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                ..ObjectReference::default()
            }),
            // A path that does not exist: nothing is ever written there.
            host_path: Some(HostPathVolumeSource {
                path: format!("/simulated/{name}"),
                ..HostPathVolumeSource::default()
            }),
            mount_options: of.mount_options.clone(),
            persistent_volume_reclaim_policy: Some(of.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned())),
            storage_class_name: of.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

pub(super) fn annotate(metadata: &mut ObjectMeta, key: &str, value: &str) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let claim = json!({ "metadata": { "name": "data", "namespace": "a", "uid": "1" }, "spec": spec });
        serde_json::from_value(claim).expect("a claim")
    }

    /// `name size words`: `kept` for the claim, `other` for another, `taken` (not available), `rwx`, `fast` (another
    /// class), `block`.
    fn volume(text: &str) -> PersistentVolume {
        let mut words = text.split(' ');
        let (name, size) = (words.next().expect("a name"), words.next().expect("a size"));
        let has = |word: &str| text.split(' ').any(|there| there == word);
        let reference = |name: &str| json!({ "name": name, "namespace": "a" });
        let for_whom = if has("kept") {
            reference("data")
        } else {
            reference("other")
        };
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "disk": name } },
            "spec": {
                "capacity": { "storage": size }, "accessModes": [if has("rwx") { "ReadWriteMany" } else { "ReadWriteOnce" }],
                "storageClassName": has("fast").then_some("fast"), "volumeMode": has("block").then_some("Block"),
                "claimRef": (has("kept") || has("other")).then_some(for_whom),
            },
            "status": { "phase": if has("taken") { "Released" } else { "Available" } },
        }))
        .expect("a volume")
    }

    #[test]
    fn the_smallest_that_fits() {
        let check = |spec: Value, volumes: &[&str], delayed: bool, expected: Option<&str>| {
            let volumes: Vec<PersistentVolume> = volumes.iter().map(|text| volume(text)).collect();
            let volumes: Vec<&PersistentVolume> = volumes.iter().collect();
            let claim = claim(spec);
            let found = best(&claim, &volumes, delayed).map(|volume| meta::name(&volume.metadata));
            assert_eq!(found, expected, "{claim:?}");
        };
        let one = || json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        check(one(), &["big 10Gi", "small 2Gi", "tiny 1Mi"], false, Some("small"));
        check(one(), &["big 10Gi"], true, None);
        check(one(), &["small 2Gi", "mine 10Gi kept"], true, Some("mine"));
        check(
            one(),
            &["a 2Gi other", "b 2Gi taken", "c 2Gi rwx", "d 2Gi fast", "e 2Gi block"],
            false,
            None,
        );
        let mut selecting = one();
        selecting["selector"] = json!({ "matchLabels": { "disk": "big" } });
        check(selecting, &["big 10Gi", "small 2Gi"], false, Some("big"));
        let mut fast = one();
        fast["storageClassName"] = json!("fast");
        check(fast, &["small 2Gi", "quick 3Gi fast"], false, Some("quick"));
    }

    #[test]
    fn both_sides_are_bound() {
        let (claim, volume) = (claim(json!({})), volume("v 2Gi"));
        let bound = volume_for(&volume, &claim).expect("a change");
        assert_eq!(meta::annotation(&bound.metadata, BOUND_BY_CONTROLLER), Some("yes"));
        assert_eq!(volume_for(&bound, &claim), None);
        // A volume that was kept for the claim by hand is not the controller's choice.
        let kept = volume_for(&super::tests::volume("v 2Gi kept"), &claim).expect("a change");
        assert_eq!(meta::annotation(&kept.metadata, BOUND_BY_CONTROLLER), None);
        let named = claim_for(&claim, &bound).expect("a change");
        assert!(is_bound(&named));
        assert_eq!(claim_for(&named, &bound), None);
        let done = status_for(&named, &bound).expect("a change");
        assert_eq!(status_for(&done, &bound), None);
    }
}
