//! Making and deleting the pods of a workload, with the events that say so (`controller.RealPodControl` and
//! `slowStartBatch` of Kubernetes).
//!
//! Invariants: pods are made in batches of 1, 2, 4, 8 …, so that a quota that refuses one is not asked about hundreds;
//! a refused batch ends the making; in a namespace that is going away a refusal is no failure.
//!
//! Not here: the pods of a StatefulSet, which have names, an order and events of their own.

use futures::future::join_all;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Context, Error, EventType, Object, Result};
use kubewright_objects::api::core::v1::{Pod, PodTemplateSpec};

use super::plain;
use kubewright_objects::meta;

/// How many pods one reconcile creates or deletes at most; the next reconcile does the rest.
pub(crate) const BURST: usize = 500;

/// A pod of the template that the owner controls (`GetPodFromTemplate`).
pub(crate) fn from_template<O: Object>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let of_template = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(owner.meta()))),
            namespace: owner.meta().namespace.clone(),
            labels: of_template.labels,
            annotations: of_template.annotations,
            finalizers: of_template.finalizers,
            owner_references: Some(vec![meta::reference_to(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Makes these pods.
///
/// # Errors
/// The first refusal; pods made before stay.
pub(crate) async fn create<O: Object>(ctx: &Context, owner: &O, pods: &[Pod]) -> Result<()> {
    let (mut rest, mut batch) = (pods, 1);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(batch));
        let results = join_all(now.iter().map(|pod| ctx.client().create(pod))).await;
        let mut failed = None;
        for result in results {
            match result {
                Ok(pod) => {
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    ctx.event(owner, EventType::Normal, "SuccessfulCreate", message);
                }
                // Everything in the namespace is about to go, the owner too.
                Err(error) if super::is_namespace_going(&error) => return Ok(()),
                Err(error) => {
                    let message = format!("Error creating: {}", plain(&error));
                    ctx.event(owner, EventType::Warning, "FailedCreate", message);
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        (rest, batch) = (later, batch.saturating_mul(2));
    }
    Ok(())
}

/// Deletes these pods, all at once.
///
/// # Errors
/// The first refusal; the others are deleted all the same.
pub(crate) async fn delete<O: Object>(ctx: &Context, owner: &O, pods: &[&Pod]) -> Result<()> {
    let results = join_all(pods.iter().map(|pod| ctx.client().delete(*pod))).await;
    let mut failed: Option<Error> = None;
    for (pod, result) in std::iter::zip(pods, results) {
        match result {
            Ok(_) => {
                let message = format!("Deleted pod: {}", meta::name(&pod.metadata));
                ctx.event(owner, EventType::Normal, "SuccessfulDelete", message);
            }
            Err(error) => {
                let message = format!("Error deleting: {}", plain(&error));
                ctx.event(owner, EventType::Warning, "FailedDelete", message);
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
