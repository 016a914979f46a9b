//! The scheduler's writes: a pod is bound, is told why it waits and for which node, or takes the place of others. The
//! events of a pod are in the name of the scheduler that it asked for.
//!
//! Not here: which of these becomes of it.

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Action, Context, EventType, Result};
use kubewright_objects::api::core::v1::{Binding, ObjectReference, Pod, PodCondition};
use serde_json::json;

use super::{DEFAULT, TRY_AGAIN, preempt};
use kubewright_objects::meta;
use kubewright_objects::{disruption_target, pods};

/// The nomination of a waiting pod.
#[derive(Clone, Copy)]
pub(super) enum Nomination<'a> {
    Keep,
    Clear,
    For(&'a str),
}

/// The scheduler that a pod asks for; the events of its placing are told in this name.
pub(super) fn asked(pod: &Pod) -> &str {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT)
}

/// Takes a victim away, and says why (`PreemptPod`).
pub(super) async fn take_away(ctx: &Context, pod: &Pod, victim: &Pod, node: &str) -> Result<()> {
    let message = format!("{}: preempting to accommodate a higher priority pod", asked(pod));
    let condition = disruption_target::condition(victim, ctx, "True", Some((preempt::REASON, &message)));
    if disruption_target::write(ctx, victim, &condition, json!({})).await? && ctx.client().delete(victim).await? {
        let message = format!("Preempted by pod {} on node {node}", meta::uid(&pod.metadata));
        ctx.event_as(asked(pod), victim, EventType::Normal, "Preempted", message);
    }
    Ok(())
}

/// Says for which node the pod waits until its volumes are there (KEP-5278).
pub(super) async fn expect(ctx: &Context, pod: &Pod, node: &str) -> Result<Action> {
    let status = pod.status.as_ref();
    if status.and_then(|status| status.nominated_node_name.as_deref()) != Some(node) {
        disruption_target::patch_status(ctx, pod, json!({ "nominatedNodeName": node })).await?;
    }
    Ok(Action::requeue_after(TRY_AGAIN))
}

/// Binds the pod; `false` when it is gone.
pub(super) async fn bind(ctx: &Context, pod: &Pod, node: &str) -> Result<bool> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), meta::name(&pod.metadata));
    let binding = Binding {
        // The uid makes it this pod, not a later one of the same name.
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let answer = ctx
        .client()
        // The cache has the pod on its node: no reader of pods gains by waiting for the result of the binding.
        .without_receipts()
        .create_subresource::<Pod, _, serde_json::Value>(namespace, name, "binding", &binding)
        .await;
    match answer {
        Ok(_) => {
            let message = format!("Successfully assigned {} to {node}", ctx.request());
            ctx.event_as(asked(pod), pod, EventType::Normal, "Scheduled", &message);
            Ok(true)
        }
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says in the pod's condition and in an event why it waits, and for which node it is nominated
/// (`handleSchedulingFailure`).
pub(super) async fn wait(ctx: &Context, pod: &Pod, why: &str, nomination: Nomination<'_>) -> Result<Action> {
    let present = pods::condition(pod, "PodScheduled");
    let said = present.is_some_and(|present| present.status == "False" && present.message.as_deref() == Some(why));
    let nominated = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_deref());
    let wanted = match nomination {
        Nomination::Keep => nominated,
        Nomination::Clear => None,
        Nomination::For(node) => Some(node),
    };
    if !said || nominated != wanted {
        let since = present
            .filter(|present| present.status == "False")
            .and_then(|present| present.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            message: Some(why.to_owned()),
            last_transition_time: Some(since.unwrap_or_else(|| meta::time(ctx.now()))),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        };
        let mut status = json!({ "conditions": [condition] });
        if nominated != wanted {
            status["nominatedNodeName"] = json!(wanted);
        }
        if !disruption_target::patch_status(ctx, pod, status).await? {
            return Ok(Action::await_change());
        }
    }
    ctx.event_as(asked(pod), pod, EventType::Warning, "FailedScheduling", why);
    Ok(Action::requeue_after(TRY_AGAIN))
}
