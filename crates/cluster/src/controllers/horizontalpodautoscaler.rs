//! HorizontalPodAutoscalers, as far as that goes without metrics: the target is kept between `minReplicas` and `maxReplicas`, and the
//! conditions say what is known (`reconcileAutoscaler`).
//!
//! Not here: metrics. Nothing measures pods that do not run, so that the condition ScalingActive says that there are none.

use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::api::autoscaling::v1::Scale;
use kubewright::k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};
use kubewright::kube::api::{Api, GroupVersionKind, Patch, PatchParams};
use kubewright::kube::core::DynamicObject;
use kubewright::{Action, Context, Controller, EventType, Reconciler, Result};
use serde_json::json;

use super::{meta, plain};

/// How often targets are looked at (`--horizontal-pod-autoscaler-sync-period`).
const PERIOD: Duration = Duration::from_secs(15);

/// Keeps targets within their bounds.
pub(crate) struct Autoscaler;

/// The controller of autoscalers.
pub(crate) fn controller() -> Controller {
    Controller::of(Autoscaler).named("horizontal-pod-autoscaler")
}

/// A condition: type, status, reason and message.
type Said = (&'static str, bool, &'static str, String);

/// The size that the bounds ask for, and why; none when the present one is allowed, or zero, which turns scaling off.
fn bounded(present: i32, least: i32, most: i32) -> Option<(i32, &'static str)> {
    match present {
        0 => None,
        _ if present > most => Some((most, "Current number of replicas above Spec.MaxReplicas")),
        _ if present < least => Some((least, "Current number of replicas below Spec.MinReplicas")),
        _ => None,
    }
}

/// What is said of the metrics.
fn of_metrics(present: i32) -> Said {
    match present {
        0 => (
            "ScalingActive",
            false,
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero".to_owned(),
        ),
        _ => (
            "ScalingActive",
            false,
            "FailedGetResourceMetric",
            "the HPA was unable to compute the replica count: this cluster has no metrics".to_owned(),
        ),
    }
}

impl Reconciler for Autoscaler {
    type Object = HorizontalPodAutoscaler;

    async fn reconcile(&self, scaler: Arc<HorizontalPodAutoscaler>, ctx: Context) -> Result<Action> {
        let spec = &scaler.spec;
        let target = &spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, &target.kind);
        let kube = ctx.client().kube().clone();
        let found = match kubewright::kube::discovery::pinned_kind(&kube, &kind).await {
            Ok((resource, _)) => {
                let namespace = ctx.request().namespace().unwrap_or_default();
                let api: Api<DynamicObject> = Api::namespaced_with(kube, namespace, &resource);
                api.get_scale(&target.name).await.map(|scale| (api, scale))
            }
            Err(error) => Err(error),
        };
        let (api, scale) = match found {
            Ok(found) => found,
            Err(error) => {
                let why = plain(&error.into());
                ctx.event(&*scaler, EventType::Warning, "FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                return say(
                    &scaler,
                    None,
                    &[("AbleToScale", false, "FailedGetScale", message)],
                    &ctx,
                )
                .await;
            }
        };
        let present = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let able = "the HPA controller was able to get the target's current scale".to_owned();
        let mut said: Vec<Said> = vec![("AbleToScale", true, "SucceededGetScale", able)];
        let mut desired = present;
        match bounded(present, spec.min_replicas.unwrap_or(1), spec.max_replicas) {
            Some((size, why)) => {
                let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
                let _: Scale = api.patch_scale(&target.name, &PatchParams::default(), &patch).await?;
                let message = format!("New size: {size}; reason: {why}");
                ctx.event(&*scaler, EventType::Normal, "SuccessfulRescale", &message);
                let message = format!("the HPA controller was able to update the target scale to {size}");
                said = vec![("AbleToScale", true, "SucceededRescale", message)];
                desired = size;
            }
            None => said.push(of_metrics(present)),
        }
        let observed = scale.status.as_ref().map_or(present, |status| status.replicas);
        say(&scaler, Some((observed, desired)), &said, &ctx).await
    }
}

/// Writes the status, when it differs.
async fn say(
    scaler: &HorizontalPodAutoscaler,
    sizes: Option<(i32, i32)>,
    said: &[Said],
    ctx: &Context,
) -> Result<Action> {
    let mut status: HorizontalPodAutoscalerStatus = scaler.status.clone().unwrap_or_default();
    if let Some((current, desired)) = sizes {
        if desired != status.desired_replicas && status.desired_replicas != 0 {
            status.last_scale_time = Some(meta::time(ctx.now()));
        }
        (status.current_replicas, status.desired_replicas) = (Some(current), desired);
    }
    let conditions = status.conditions.get_or_insert_default();
    for (kind, holds, reason, message) in said {
        let text = if *holds { "True" } else { "False" };
        let present = conditions.iter().position(|condition| condition.type_ == *kind);
        let since = present
            .map(|present| &conditions[present])
            .filter(|present| present.status == text);
        let since = since.and_then(|since| since.last_transition_time.clone());
        let next = HorizontalPodAutoscalerCondition {
            type_: (*kind).to_owned(),
            status: text.to_owned(),
            reason: Some((*reason).to_owned()),
            message: Some(message.clone()),
            last_transition_time: Some(since.unwrap_or_else(|| meta::time(ctx.now()))),
        };
        match present {
            Some(present) => conditions[present] = next,
            None => conditions.push(next),
        }
    }
    if scaler.status.as_ref() != Some(&status) {
        let mut next = scaler.clone();
        next.status = Some(status);
        match ctx.client().update_status(&next).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(Action::requeue_after(PERIOD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_bounds() {
        let check = |present: i32, expected: Option<i32>| {
            assert_eq!(bounded(present, 2, 5).map(|(size, _)| size), expected, "{present}");
        };
        check(0, None);
        check(1, Some(2));
        check(2, None);
        check(5, None);
        check(9, Some(5));
    }
}
