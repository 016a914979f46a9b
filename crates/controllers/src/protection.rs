//! Volumes, claims and VolumeAttributesClasses that are in use are not taken away: the finalizers
//! `kubernetes.io/pvc-protection`, `kubernetes.io/pv-protection` and `kubernetes.io/vac-protection`.
//!
//! The API server puts the finalizers on; these controllers take them off once the object is being deleted and nothing
//! uses it. A class without its finalizer gets it here, too. A claim is in use while a pod that names it is bound to a
//! node, also when that pod has finished; a pod that no node has taken yet does not hold it. A volume is in use while
//! it is bound to a claim, a class while a claim or a volume names it (vacprotection).
//!
//! From Kubernetes 1.37 on the condition `Unused` of a bound claim says whether a pod names it, and since when.
//!
//! Invariant: a claim goes only after the API server itself has said that no pod uses it: the cache may not have seen
//! the newest pod.
//!
//! Not here: binding claims to volumes, and making volumes.

use std::sync::Arc;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{ApiResource, ListParams, ObjectMeta};
use kubewright::{Action, Context, Controller, Object, Reconciler, Request, Result};
use kubewright_objects::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod};
use kubewright_objects::api::storage::v1::VolumeAttributesClass;

use super::unstructured::UnstructuredApi;
use kubewright_model::Minor;
use kubewright_objects::{meta, pods};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const UNUSED: &str = "Unused";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// Lets claims go that nothing uses, and says since when nothing does.
pub(crate) struct ClaimProtection {
    /// Whether bound claims have the condition `Unused`.
    says_unused: bool,
}

/// The controller of claims.
pub(crate) fn claims(minor: Minor) -> Controller {
    let says_unused = minor >= Minor::V37;
    Controller::of(ClaimProtection { says_unused })
        .named("persistentvolumeclaim-protection-controller")
        .watches::<Pod>(|pod| {
            let namespace = pod.metadata.namespace.as_deref();
            pods::claims(pod)
                .map(|claim| Request::new(namespace, &claim.name))
                .collect()
        })
}

impl Reconciler for ClaimProtection {
    type Object = PersistentVolumeClaim;

    async fn reconcile(&self, claim: Arc<PersistentVolumeClaim>, ctx: Context) -> Result<Action> {
        if self.says_unused && !meta::is_deleting(&claim.metadata) {
            say_unused(&claim, &ctx).await?;
        }
        if !is_held(&claim.metadata, CLAIM_FINALIZER) {
            return Ok(Action::await_change());
        }
        if !is_used(&claim, &ctx).await? {
            release(&*claim, CLAIM_FINALIZER, &ctx).await?;
        }
        Ok(Action::await_change())
    }
}

/// Notes in a bound claim whether a pod that is not over names it.
async fn say_unused(claim: &PersistentVolumeClaim, ctx: &Context) -> Result<()> {
    let name = meta::name(&claim.metadata);
    let pods = ctx.client().list::<Pod>(claim.metadata.namespace.as_deref()).await?;
    let names_it = |pod: &Pod| !pods::is_finished(pod) && pods::claims(pod).any(|used| used.name == name);
    if let Some(claim) = with_unused(claim, pods.iter().any(|pod| names_it(pod)), ctx.now()) {
        ctx.client().update_status(&claim).await?;
    }
    Ok(())
}

/// The claim with the condition, if it is bound and says something else (`updateUnusedCondition`).
fn with_unused(claim: &PersistentVolumeClaim, is_used: bool, now: Timestamp) -> Option<PersistentVolumeClaim> {
    let (word, reason, message) = match is_used {
        true => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
        false => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
    };
    let mut claim = claim.clone();
    let status = claim.status.as_mut();
    let status = status.filter(|status| status.phase.as_deref() == Some("Bound"))?;
    let conditions = status.conditions.get_or_insert_default();
    let present = conditions.iter().position(|condition| condition.type_ == UNUSED);
    if present.is_some_and(|present| conditions[present].status == word) {
        return None;
    }
    let next = PersistentVolumeClaimCondition {
        type_: UNUSED.to_owned(),
        status: word.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(meta::time(now)),
        ..PersistentVolumeClaimCondition::default()
    };
    match present {
        Some(present) => conditions[present] = next,
        None => conditions.push(next),
    }
    Some(claim)
}

/// Whether a pod uses the claim, as the cache says or, when it knows of none, the API server.
async fn is_used(claim: &PersistentVolumeClaim, ctx: &Context) -> Result<bool> {
    let (namespace, name) = (
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        meta::name(&claim.metadata),
    );
    let cached = ctx.client().list::<Pod>(Some(namespace)).await?;
    if cached.iter().any(|pod| uses(pod, name)) {
        return Ok(true);
    }
    let pods = UnstructuredApi::new(ctx.client().kube(), &ApiResource::erase::<Pod>(&()), namespace);
    let live = pods.list(&ListParams::default()).await?;
    for mut pod in live.items {
        // Neither is needed, and both have times that a type may not hold.
        pod["status"].take();
        pod["metadata"]["managedFields"].take();
        if uses(&serde_json::from_value(pod)?, name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets volumes go that no claim holds.
pub(crate) struct VolumeProtection;

/// The controller of volumes.
pub(crate) fn volumes() -> Controller {
    Controller::of(VolumeProtection).named("persistentvolume-protection-controller")
}

impl Reconciler for VolumeProtection {
    type Object = PersistentVolume;

    async fn reconcile(&self, volume: Arc<PersistentVolume>, ctx: Context) -> Result<Action> {
        let bound = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        if is_held(&volume.metadata, VOLUME_FINALIZER) && !bound {
            release(&*volume, VOLUME_FINALIZER, &ctx).await?;
        }
        Ok(Action::await_change())
    }
}

/// Lets VolumeAttributesClasses go that no claim and no volume names.
pub(crate) struct ClassProtection;

/// The controller of VolumeAttributesClasses.
pub(crate) fn classes() -> Controller {
    fn request(class: &str) -> Request {
        Request::new(None, class)
    }
    Controller::of(ClassProtection)
        .named("volumeattributesclass-protection-controller")
        .watches::<PersistentVolumeClaim>(|claim| classes_of_claim(claim).map(request).collect())
        .watches::<PersistentVolume>(|volume| class_of_volume(volume).map(request).collect())
}

impl Reconciler for ClassProtection {
    type Object = VolumeAttributesClass;

    async fn reconcile(&self, class: Arc<VolumeAttributesClass>, ctx: Context) -> Result<Action> {
        match (
            meta::is_deleting(&class.metadata),
            has(&class.metadata, CLASS_FINALIZER),
        ) {
            (true, true) if !is_named(meta::name(&class.metadata), &ctx).await? => {
                release(&*class, CLASS_FINALIZER, &ctx).await?;
            }
            (false, false) => {
                let mut protected = (*class).clone();
                let finalizers = protected.metadata.finalizers.get_or_insert_default();
                finalizers.push(CLASS_FINALIZER.to_owned());
                ctx.client().update(&protected).await?;
            }
            _ => {}
        }
        Ok(Action::await_change())
    }
}

/// Whether a claim or a volume names the class.
async fn is_named(class: &str, ctx: &Context) -> Result<bool> {
    let volumes = ctx.client().list::<PersistentVolume>(None).await?;
    let claims = ctx.client().list::<PersistentVolumeClaim>(None).await?;
    let by_volume = volumes.iter().flat_map(|volume| class_of_volume(volume));
    let mut names = by_volume.chain(claims.iter().flat_map(|claim| classes_of_claim(claim)));
    Ok(names.any(|name| name == class))
}

/// The classes that a claim has, wants, or is being changed to (`getPVCReferencedVACNames`).
fn classes_of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let wanted = claim
        .spec
        .iter()
        .filter_map(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.iter();
    let present = status.flat_map(|status| {
        let target = status.modify_volume_status.as_ref();
        let target = target.and_then(|modify| modify.target_volume_attributes_class_name.as_deref());
        [status.current_volume_attributes_class_name.as_deref(), target]
    });
    wanted.chain(present.flatten()).filter(|name| !name.is_empty())
}

/// The class of a volume.
fn class_of_volume(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    let named = volume
        .spec
        .iter()
        .filter_map(|spec| spec.volume_attributes_class_name.as_deref());
    named.filter(|name| !name.is_empty())
}

/// Whether the object is being deleted and waits for this finalizer.
fn is_held(metadata: &ObjectMeta, finalizer: &str) -> bool {
    meta::is_deleting(metadata) && has(metadata, finalizer)
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|held| held == finalizer)
}

/// Takes the finalizer off the object.
async fn release<K: Object>(object: &K, finalizer: &str, ctx: &Context) -> Result<()> {
    let mut released = object.clone();
    if let Some(finalizers) = &mut released.meta_mut().finalizers {
        finalizers.retain(|held| held != finalizer);
    }
    ctx.client().update(&released).await?;
    Ok(())
}

/// A pod that its kubelet is done with, or that was deleted by force, lets its ephemeral claims go before it is gone
/// itself.
fn uses(pod: &Pod, claim: &str) -> bool {
    let bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()));
    let shut_down = meta::is_deleting(&pod.metadata) && pod.metadata.deletion_grace_period_seconds == Some(0);
    bound && pods::claims(pod).any(|used| used.name == claim && !(used.is_ephemeral && shut_down))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_claim_says_since_when_no_pod_names_it() {
        let check = |phase: &str, said: Option<&str>, is_used: bool, expected: Option<&str>| {
            let other = json!({"type": "Resizing", "status": "True"});
            let said = said.map(|said| json!({"type": UNUSED, "status": said}));
            let conditions: Vec<_> = [Some(other), said].into_iter().flatten().collect();
            let claim =
                serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase, "conditions": conditions}}));
            let next = with_unused(&claim.expect("a claim"), is_used, Timestamp::UNIX_EPOCH);
            let found = next.map(|claim| {
                let conditions = claim.status.and_then(|status| status.conditions).unwrap_or_default();
                assert_eq!(conditions[0].type_, "Resizing");
                assert_eq!(conditions.len(), 2);
                conditions[1].status.clone()
            });
            assert_eq!(found.as_deref(), expected, "{phase} {is_used}");
        };
        check("Pending", None, false, None);
        check("Bound", None, false, Some("True"));
        check("Bound", None, true, Some("False"));
        check("Bound", Some("True"), true, Some("False"));
        check("Bound", Some("False"), false, Some("True"));
        check("Bound", Some("True"), false, None);
        check("Bound", Some("False"), true, None);
    }

    #[test]
    fn a_claim_is_used_by_pods_that_a_node_has_taken() {
        let check = |node: Option<&str>, grace: Option<i64>, phase: &str, claim: &str, expected: bool| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {
                    "name": "p", "deletionGracePeriodSeconds": grace,
                    "deletionTimestamp": grace.map(|_| "2026-01-01T00:00:00Z"),
                },
                "spec": {
                    "nodeName": node, "containers": [],
                    "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}],
                },
                "status": {"phase": phase},
            }))
            .expect("a pod");
            assert_eq!(uses(&pod, claim), expected, "{node:?} {grace:?} {phase} {claim}");
        };
        check(Some("n"), None, "Running", "data", true);
        check(Some("n"), None, "Pending", "p-e", true);
        check(Some("n"), None, "Succeeded", "data", true);
        check(Some("n"), None, "Failed", "p-e", true);
        check(Some("n"), Some(30), "Running", "p-e", true);
        check(Some("n"), Some(0), "Running", "p-e", false);
        check(Some("n"), Some(0), "Running", "data", true);
        check(None, None, "Pending", "data", false);
        check(Some("n"), None, "Running", "other", false);
    }
}
