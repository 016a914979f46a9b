//! The claim of a Database: it grows when the spec does. The StatefulSet, whose template cannot be changed, keeps the
//! size that it began with.

use database_api::v1alpha1::Database;
use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubewright::k8s_openapi::api::storage::v1::StorageClass;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::kube::api::Patch;
use kubewright::prelude::*;
use serde_json::json;

use super::status::Said;
use crate::database::shape::Shape;
use crate::database::validation::bytes;

/// The size that is wanted.
fn wanted(database: &Database) -> Quantity {
    let storage = database.spec.storage.as_ref();
    storage.map_or_else(|| Quantity("1Gi".to_owned()), |storage| storage.size.clone())
}

/// The size in the StatefulSet: the one that it has, or the one that is wanted.
pub(super) async fn first_size(database: &Database, shape: &Shape, ctx: &Context) -> Result<Quantity> {
    let known = ctx
        .client()
        .get::<StatefulSet>(ctx.request().namespace(), &shape.name)
        .await?;
    let template = known
        .as_ref()
        .and_then(|set| set.spec.as_ref()?.volume_claim_templates.as_ref()?.first());
    let size = template.and_then(|claim| {
        claim
            .spec
            .as_ref()?
            .resources
            .as_ref()?
            .requests
            .as_ref()?
            .get("storage")
    });
    Ok(size.cloned().unwrap_or_else(|| wanted(database)))
}

/// Lets the claim grow, and says how it fares (`StorageReady`).
pub(super) async fn grow(database: &Database, shape: &Shape, ctx: &Context) -> Result<Said> {
    let namespace = ctx.request().namespace();
    let says = |is_ready: bool, reason, message: String| Ok(Said::new(is_ready, reason, message));
    let Some(claim) = ctx
        .client()
        .get::<PersistentVolumeClaim>(namespace, &shape.claim())
        .await?
    else {
        return says(
            false,
            "ClaimMissing",
            format!("the claim {} is not there yet", shape.claim()),
        );
    };
    let size = wanted(database);
    let spec = claim.spec.clone().unwrap_or_default();
    let asked = spec
        .resources
        .and_then(|resources| resources.requests?.get("storage").cloned());
    if asked.as_ref().and_then(bytes) < bytes(&size) {
        let class = spec.storage_class_name.unwrap_or_default();
        let found = ctx.client().live::<StorageClass>(None, &class).await?;
        if found.and_then(|class| class.allow_volume_expansion) != Some(true) {
            let why = format!(
                "the storage class {class:?} does not let claims grow: {} stays as it is",
                shape.claim()
            );
            return says(false, "ExpansionNotSupported", why);
        }
        let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        ctx.client()
            .patch::<PersistentVolumeClaim, _>(namespace, &shape.claim(), &patch)
            .await?;
        return says(false, "Progressing", format!("the claim grows to {}", size.0));
    }
    let status = claim.status.clone().unwrap_or_default();
    let room = status.capacity.and_then(|capacity| capacity.get("storage").cloned());
    match (status.phase.as_deref(), room.as_ref().and_then(bytes)) {
        (Some("Bound"), Some(room)) if Some(room) >= bytes(&size) => {
            says(true, "Bound", format!("{} of storage are there", size.0))
        }
        (Some("Bound"), _) => says(false, "Progressing", format!("the claim grows to {}", size.0)),
        _ => says(false, "Pending", format!("the claim {} is not bound", shape.claim())),
    }
}
