//! The end of a Database, and the objects that it leaves.

use database_api::v1alpha1::{Database, DeletionPolicy};
use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kubewright::kube::api::{DeleteParams, Patch};
use kubewright::prelude::*;
use serde_json::json;

use crate::database::shape::Shape;

// ANCHOR: deletion
/// Ends a Database: its claims, which have no owner, and its Secrets, which go with it unless a client prevents that.
/// Everything else goes by itself.
pub(super) async fn clean_up(database: &Database, ctx: &Context) -> Result<Cleanup> {
    let shape = Shape::of(database);
    let namespace = ctx.request().namespace();
    let secrets = [shape.credentials(), shape.operator()];
    if database.spec.deletion_policy.unwrap_or_default() == DeletionPolicy::Delete {
        // The server first: it holds the claim.
        ctx.client()
            .delete_named::<StatefulSet>(namespace, &shape.name, DeleteParams::foreground())
            .await?;
        for claim in [shape.claim(), shape.backups()] {
            ctx.client()
                .delete_named::<PersistentVolumeClaim>(namespace, &claim, DeleteParams::default())
                .await?;
        }
        return Ok(Cleanup::Done);
    }
    let mut kept = Vec::new();
    for name in secrets {
        let Some(secret) = ctx.client().get::<Secret>(namespace, &name).await? else {
            continue;
        };
        if secret
            .metadata
            .owner_references
            .as_ref()
            .is_some_and(|owners| !owners.is_empty())
        {
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
            ctx.client().patch::<Secret, _>(namespace, &name, &patch).await?;
        }
        kept.push(format!("Secret {name}"));
    }
    for claim in [shape.claim(), shape.backups()] {
        let there = ctx.client().get::<PersistentVolumeClaim>(namespace, &claim).await?;
        if there.is_some() {
            kept.push(format!("PersistentVolumeClaim {claim}"));
        }
    }
    let message = format!("deletionPolicy is Retain, so these are kept: {}", kept.join(", "));
    ctx.event(database, EventType::Normal, "Retained", message);
    Ok(Cleanup::Done)
}
// ANCHOR_END: deletion
