//! The condition `DisruptionTarget` of a pod: it is about to be disrupted, with the reason.

use crate::api::core::v1::{Pod, PodCondition};
use kubewright::kube::api::Patch;
use kubewright::{Context, Result};
use serde_json::{Value, json};

use crate::{meta, pods};

/// The type of the condition.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The condition with this reason and message, as it is to be now.
pub fn condition(pod: &Pod, ctx: &Context, status: &str, because: Option<(&str, &str)>) -> PodCondition {
    let present = pods::condition(pod, DISRUPTION_TARGET).filter(|present| present.status == status);
    let since = present.and_then(|present| present.last_transition_time.clone());
    PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: status.to_owned(),
        reason: because.map(|(reason, _)| reason.to_owned()),
        message: because.map(|(_, message)| message.to_owned()),
        last_transition_time: Some(since.unwrap_or_else(|| meta::time(ctx.now()))),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// Writes the condition, and the other changes of the status with it. `false` when the pod is gone.
pub async fn write(ctx: &Context, pod: &Pod, condition: &PodCondition, mut status: Value) -> Result<bool> {
    status["conditions"] = json!([condition]);
    patch_status(ctx, pod, status).await
}

/// Changes the status of exactly this pod; conditions are merged by type, so that those of others stay. `false` when
/// the pod is gone.
pub async fn patch_status(ctx: &Context, pod: &Pod, status: Value) -> Result<bool> {
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.metadata.uid }, "status": status }));
    let (namespace, name) = (pod.metadata.namespace.as_deref(), meta::name(&pod.metadata));
    match ctx.client().patch_status::<Pod, _>(namespace, name, &patch).await {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Ok(true),
    }
}
