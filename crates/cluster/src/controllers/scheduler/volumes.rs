//! The volumes of a pod that is to be placed: which of its claims hold it up, and which nodes their volumes allow.
//!
//! Invariant: a claim that waits for its first pod is told the node before the pod is bound, and the pod is bound after the claim
//! (`VolumeBinding`). Not here: volumes that fit a claim on one node only are not looked for before the node is chosen.

use std::sync::Arc;

use kubewright::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kubewright::k8s_openapi::api::storage::v1::StorageClass;
use kubewright::kube::api::Patch;
use kubewright::{Context, Result};
use serde_json::json;

use super::fit;
use crate::controllers::volumes::{self, binding};
use crate::objects::meta;

/// What a pod's claims mean for its place.
#[derive(Default)]
pub(super) struct Volumes {
    /// Those that are bound.
    bound: Vec<Arc<PersistentVolume>>,
    /// Claims that wait for a node.
    unplaced: Vec<Arc<PersistentVolumeClaim>>,
}

impl Volumes {
    /// Looks at the claims of a pod; or why no node will do.
    pub(super) async fn of(pod: &Pod, ctx: &Context) -> Result<std::result::Result<Volumes, String>> {
        let (client, namespace) = (ctx.client(), pod.metadata.namespace.as_deref());
        let mut found = Volumes::default();
        for name in volumes::claims_of(pod).into_values() {
            let claim = client.get::<PersistentVolumeClaim>(namespace, &name).await?;
            let Some(claim) = claim else {
                return Ok(Err(format!("persistentvolumeclaim \"{name}\" not found")));
            };
            if meta::is_deleting(&claim.metadata) {
                return Ok(Err(format!("persistentvolumeclaim \"{name}\" is being deleted")));
            }
            if binding::is_bound(&claim) {
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
                if let Some(volume) = client.get::<PersistentVolume>(None, volume.unwrap_or_default()).await? {
                    found.bound.push(volume);
                }
                continue;
            }
            let class = client.get::<StorageClass>(None, binding::class(&claim)).await?;
            if !class.as_deref().is_some_and(binding::waits) {
                return Ok(Err("pod has unbound immediate PersistentVolumeClaims".to_owned()));
            }
            found.unplaced.push(claim);
        }
        Ok(Ok(found))
    }

    /// Why a node will not do.
    pub(super) fn refusal(&self, node: &Node) -> Option<&'static str> {
        let fits = |volume: &Arc<PersistentVolume>| {
            let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
            let required = affinity.and_then(|affinity| affinity.required.as_ref());
            required.is_none_or(|required| fit::selects(required, node))
        };
        (!self.bound.iter().all(fits)).then_some("node(s) didn't match PersistentVolume's node affinity")
    }

    /// Tells the claims that wait which node it is. `false` when the pod may be bound, because none waits.
    pub(super) async fn place(&self, node: &str, ctx: &Context) -> Result<bool> {
        for claim in &self.unplaced {
            if meta::annotation(&claim.metadata, binding::SELECTED_NODE) == Some(node) {
                continue;
            }
            let patch =
                json!({ "metadata": { "uid": claim.metadata.uid, "annotations": { binding::SELECTED_NODE: node } } });
            let (namespace, name) = (claim.metadata.namespace.as_deref(), meta::name(&claim.metadata));
            ctx.client()
                .patch::<PersistentVolumeClaim, _>(namespace, name, &Patch::Merge(patch))
                .await?;
        }
        Ok(!self.unplaced.is_empty())
    }
}
