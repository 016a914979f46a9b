//! PodDisruptionBudgets: how many pods may be evicted now. The eviction itself is the API server's, which charges the
//! budget.
//!
//! How many pods are expected is asked of their owners: Deployment, ReplicaSet, StatefulSet, ReplicationController, and
//! any other kind with a scale (`getExpectedScale`). Beside it, conditions `DisruptionTarget` that came to nothing are
//! taken back after two minutes.
//!
//! Invariant: the status is written only onto the version that was seen, because the API server counts evictions down
//! in the same place.

mod budget;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright::kube::api::{Api, GroupVersionKind};
use kubewright::kube::core::{DynamicObject, Selector};
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_objects::api::apps::v1::{Deployment, ReplicaSet};
use kubewright_objects::api::core::v1::Pod;
use kubewright_objects::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use serde_json::json;

use super::pace::Pace;
use super::selecting::{self, Selecting};
use kubewright_objects::disruption_target::{self, DISRUPTION_TARGET};
use kubewright_objects::{PodView, meta, pods};

/// How long a pod may be a target without being deleted (`stalePodDisruptionTimeout`).
const STALE: Duration = Duration::from_secs(120);

/// Budgets.
#[derive(Default)]
pub(crate) struct Budgets {
    selecting: Selecting,
    pace: Pace,
}

/// The controller of budgets.
pub(crate) fn budgets() -> Controller {
    let budgets = Budgets::default();
    let selecting = budgets.selecting.clone();
    Controller::of(budgets)
        // Its events are signed with this name, as upstream.
        .named("controllermanager")
        .watches::<Pod>(move |pod| selecting.of(&pod.metadata))
}

impl Reconciler for Budgets {
    type Object = PodDisruptionBudget;

    async fn reconcile(&self, budget: Arc<PodDisruptionBudget>, ctx: Context) -> Result<Action> {
        if let Some(rest) = self.pace.rest(ctx.request(), ctx.now()) {
            return Ok(Action::requeue_after(rest));
        }
        let pods = self.selected(&budget, &ctx).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &pod.0).collect();
        self.pace.looked(ctx.request(), ctx.now(), pods.len());
        if pods.is_empty() {
            ctx.event(&*budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let expected = match expected(&budget, &pods, &ctx).await? {
            Ok(expected) => expected,
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                ctx.event(
                    &*budget,
                    EventType::Warning,
                    "CalculateExpectedPodCountFailed",
                    &message,
                );
                return write(&budget, budget::failed(&budget, &why, ctx.now()), &ctx, None).await;
            }
        };
        let outcome = budget::outcome(&budget, &pods, expected, ctx.now());
        for pod in &pods {
            if outcome.not_deleted.iter().any(|name| name == meta::name(&pod.metadata)) {
                let (namespace, name) = (ctx.request().namespace().unwrap_or_default(), ctx.request().name());
                let message = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
                ctx.event(*pod, EventType::Warning, "NotDeleted", &message);
            }
        }
        write(&budget, outcome.status, &ctx, outcome.recheck).await
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selecting.forget(&request);
        self.pace.forget(&request);
        Ok(Action::await_change())
    }
}

impl Budgets {
    /// The pods that a budget covers. Without a selector it covers none; an empty selector covers all of the namespace.
    async fn selected(&self, budget: &PodDisruptionBudget, ctx: &Context) -> Result<Vec<Arc<PodView>>> {
        let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
            self.selecting.forget(ctx.request());
            return Ok(vec![]);
        };
        let selector: Selector = meta::selector(&format!("PodDisruptionBudget {}", ctx.request()), selector)?;
        self.selecting.remember(ctx.request(), &selector);
        ctx.client()
            .views_matching::<Pod, PodView>(ctx.request().namespace(), &selector)
            .await
    }
}

async fn write(
    budget: &PodDisruptionBudget,
    status: PodDisruptionBudgetStatus,
    ctx: &Context,
    again: Option<Duration>,
) -> Result<Action> {
    if budget.status.as_ref() != Some(&status) {
        let mut next = budget.clone();
        next.status = Some(status);
        match ctx.client().update_status(&next).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(again.map_or(Action::await_change(), Action::requeue_after))
}

/// How many pods there should be, or why that cannot be told.
async fn expected(budget: &PodDisruptionBudget, pods: &[&Pod], ctx: &Context) -> Result<Result<i32, String>> {
    let asks = budget.spec.as_ref().is_some_and(budget::asks_owners);
    if !asks {
        return Ok(Ok(i32::try_from(pods.len()).unwrap_or(i32::MAX)));
    }
    let (mut scales, mut unmanaged) = (BTreeMap::<&str, i32>::new(), false);
    for pod in pods {
        let Some(owner) = meta::controller_of(&pod.metadata) else {
            unmanaged = true;
            continue;
        };
        if scales.contains_key(owner.uid.as_str()) {
            continue;
        }
        match scale(owner, ctx).await? {
            Scale::Of(scale) => scales.insert(&owner.uid, scale),
            Scale::Lacking(why) => return Ok(Err(why)),
            Scale::Gone => {
                return Ok(Err(format!(
                    "found no controllers for pod \"{}\"",
                    meta::name(&pod.metadata)
                )));
            }
        };
    }
    if unmanaged {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be \
             calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" \
             field of the PDB to an integer value.",
            selecting::go_text(&selector.unwrap_or_default())
        );
        ctx.event(budget, EventType::Warning, "UnmanagedPods", &message);
    }
    Ok(Ok(scales
        .values()
        .fold(0, |sum: i32, scale| sum.saturating_add(*scale))))
}

/// How many pods the owner of a pod wants.
enum Scale {
    Of(i32),
    /// There is no such owner.
    Gone,
    /// Owners of this kind have no scale: the message.
    Lacking(String),
}

impl From<Option<i32>> for Scale {
    fn from(replicas: Option<i32>) -> Scale {
        replicas.map_or(Scale::Gone, Scale::Of)
    }
}

async fn scale(owner: &OwnerReference, ctx: &Context) -> Result<Scale> {
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    if owner.kind != "ReplicaSet" || !owner.api_version.starts_with("apps/") {
        return scale_subresource(owner, ctx).await;
    }
    let Some(set) = client.get::<ReplicaSet>(namespace, &owner.name).await? else {
        return Ok(Scale::Gone);
    };
    if set.metadata.uid.as_deref() != Some(&owner.uid) {
        return Ok(Scale::Gone);
    }
    // A ReplicaSet of a Deployment has its share only; the Deployment knows the whole.
    if let Some(above) = meta::controller_of(&set.metadata).filter(|above| above.kind == "Deployment")
        && let Some(deployment) = client.get::<Deployment>(namespace, &above.name).await?
        && deployment.metadata.uid.as_deref() == Some(&above.uid)
    {
        return Ok(deployment.spec.as_ref().and_then(|spec| spec.replicas).into());
    }
    Ok(set.spec.as_ref().and_then(|spec| spec.replicas).into())
}

/// The scale of any kind that has one.
async fn scale_subresource(owner: &OwnerReference, ctx: &Context) -> Result<Scale> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    let kube = ctx.client().kube().clone();
    // A kind that cannot be found is no controller; upstream answers so, too.
    let Ok((resource, offers)) = kubewright::kube::discovery::pinned_kind(&kube, &kind).await else {
        return Ok(Scale::Gone);
    };
    let has_scale = offers.subresources.iter().any(|(offered, _)| offered.plural == "scale");
    if !has_scale {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!(
            "{}{dot}{group} does not implement the scale subresource",
            resource.plural
        );
        return Ok(Scale::Lacking(message));
    }
    let namespace = ctx.request().namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(kube, namespace, &resource);
    match api.get_scale(&owner.name).await {
        Ok(scale) => Ok(scale.spec.and_then(|spec| spec.replicas).into()),
        Err(kubewright::kube::Error::Api(status)) if status.code == 404 => Ok(Scale::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Pods that were to be disrupted and were not.
pub(crate) struct Stale;

/// The controller that takes back conditions which came to nothing.
pub(crate) fn stale() -> Controller {
    Controller::of(Stale).named("stale-disruption-controller")
}

impl Reconciler for Stale {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let target = pods::condition(&pod, DISRUPTION_TARGET).filter(|condition| condition.status == "True");
        let Some(target) = target.filter(|target| target.reason.as_deref() != Some("TerminationByKubelet")) else {
            return Ok(Action::await_change());
        };
        if !pods::is_active(&pod) {
            return Ok(Action::await_change());
        }
        let age = target.last_transition_time.as_ref().map_or(STALE, |time| {
            Duration::try_from(ctx.now().duration_since(time.0)).unwrap_or_default()
        });
        if age < STALE {
            return Ok(Action::requeue_after(STALE.saturating_sub(age)));
        }
        let condition = disruption_target::condition(&pod, &ctx, "False", None);
        disruption_target::write(&ctx, &pod, &condition, json!({})).await?;
        Ok(Action::await_change())
    }
}
