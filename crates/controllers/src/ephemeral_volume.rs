//! The claims of generic ephemeral volumes (Kubernetes' ephemeral volume controller): each is made from the template in
//! the pod's volume, belongs to the pod, and goes with it by garbage collection.
//!
//! Invariant: a claim of the right name that was not made for the pod is never used, and never changed.

use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Action, Context, Controller, Event, EventType, Reconciler, Request, Result};
use kubewright_objects::api::core::v1::{PersistentVolumeClaim, Pod, Volume};

use kubewright_objects::{meta, pods};

/// Makes the claims of pods.
pub(crate) struct EphemeralVolumes;

/// The controller of pods with ephemeral volumes.
pub(crate) fn controller() -> Controller {
    Controller::of(EphemeralVolumes)
        .named("ephemeral_volume")
        .with_predicate(|event: &Event<Pod>| {
            // The volumes of a pod never change.
            matches!(event, Event::Added { .. }) && pods::claims(event.object()).any(|claim| claim.is_ephemeral)
        })
        .with_predicate(|event: &Event<PersistentVolumeClaim>| matches!(event, Event::Deleted { .. }))
        // A claim that somebody deleted is made again.
        .watches::<PersistentVolumeClaim>(|claim| {
            let owner = meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod");
            let pod = owner.map(|owner| Request::new(claim.metadata.namespace.as_deref(), &owner.name));
            pod.into_iter().collect()
        })
}

impl Reconciler for EphemeralVolumes {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        if meta::is_deleting(&pod.metadata) {
            return Ok(Action::await_change());
        }
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes.filter(|volume| volume.ephemeral.is_some()) {
            if let Some(why) = make(&pod, volume, &ctx).await? {
                let why = format!("ephemeral volume {}: {why}", volume.name);
                ctx.event(&*pod, EventType::Warning, "FailedBinding", &why);
                return Err(kubewright::Error::retry(why));
            }
        }
        Ok(Action::await_change())
    }
}

/// Makes the claim of a volume, if it is not there; or why it cannot be used (`handleVolume`).
async fn make(pod: &Pod, volume: &Volume, ctx: &Context) -> Result<Option<String>> {
    let Some(claim) = claim(pod, volume) else {
        return Ok(None);
    };
    let (namespace, name) = (pod.metadata.namespace.as_deref(), meta::name(&claim.metadata));
    if let Some(present) = ctx.client().get::<PersistentVolumeClaim>(namespace, name).await? {
        return Ok(pods::not_made_for(pod, &present));
    }
    match ctx.client().create(&claim).await {
        Err(error) if !super::is_namespace_going(&error) => {
            Ok(Some(format!("create PVC {name}: {}", super::plain(&error))))
        }
        _ => Ok(None),
    }
}

fn claim(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let from = template.metadata.clone().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(pods::claim_of(pod, volume)?.name),
            namespace: pod.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            owner_references: Some(vec![meta::controller_reference("v1", "Pod", &pod.metadata)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_from_a_template() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": { "containers": [], "volumes": [{ "name": "v", "ephemeral": { "volumeClaimTemplate": {
                "metadata": { "labels": { "a": "b" } }, "spec": { "accessModes": ["ReadWriteOnce"] } } } }] },
        }))
        .expect("a pod");
        let volume = &pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.as_ref())
            .expect("volumes")[0];
        let expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "p-v", "namespace": "n", "labels": { "a": "b" }, "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": true }] },
            "spec": { "accessModes": ["ReadWriteOnce"] },
        });
        let made = claim(&pod, volume).expect("a claim");
        assert_eq!(serde_json::to_value(&made).expect("a value"), expected);
        assert_eq!(pods::not_made_for(&pod, &made), None);
        let foreign = PersistentVolumeClaim {
            metadata: ObjectMeta {
                owner_references: None,
                ..made.metadata
            },
            ..made
        };
        let expected = "PVC n/p-v was not created for pod n/p (pod is not owner)";
        assert_eq!(pods::not_made_for(&pod, &foreign).as_deref(), Some(expected));
    }
}
