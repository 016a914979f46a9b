//! The workloads of a policy: found, restarted, followed until all of their pods are new.
//!
//! A restart is what `kubectl rollout restart` does: a new annotation in the pod template. Beside it stands which value
//! of which policy it was for, so that an operator that died in between finds that it has done it.

use kubewright::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kubewright::kube::api::Patch;
use kubewright::prelude::*;
use serde_json::json;

use autorebooter_api::v1alpha1::{RestartedTarget, Target, TargetKind};

/// `kubectl rollout restart` writes it.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Policy and value that a target was restarted for.
pub const VALUE_HASH: &str = "autoreboot.my.domain/value-hash";

/// The reason of a restart.
pub(super) struct Order {
    /// The policy and the hash of the value.
    pub(super) mark: String,
    /// The message of the target's event.
    pub(super) message: String,
}

/// A workload that is there.
pub(super) struct Found {
    pub(super) uid: String,
    /// Why not all of its pods are new, if they are not.
    pub(super) lacks: Option<String>,
    mark: Option<String>,
}

/// A workload that a policy may name.
trait Workload: Object {
    fn mark(&self) -> Option<String>;
    /// Why not all pods are new.
    fn lacks(&self) -> Option<String>;
}

/// The mark in a pod template.
macro_rules! mark {
    ($workload:expr) => {{
        let template = $workload.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let annotations = template.and_then(|template| template.annotations.as_ref());
        annotations.and_then(|all| all.get(VALUE_HASH)).cloned()
    }};
}

/// The words of `kubectl rollout status`, in short.
fn progress(is_observed: bool, wanted: i32, updated: i32, available: i32) -> Option<String> {
    match (is_observed, updated >= wanted, available >= wanted) {
        (false, ..) => Some("its controller has not seen it yet".to_owned()),
        (_, false, _) => Some(format!("{updated} of {wanted} pods are new")),
        (_, _, false) => Some(format!("{available} of {wanted} pods are available")),
        _ => None,
    }
}

impl Workload for Deployment {
    fn mark(&self) -> Option<String> {
        mark!(self)
    }

    fn lacks(&self) -> Option<String> {
        let (spec, status) = (self.spec.as_ref()?, self.status.clone().unwrap_or_default());
        if spec.paused == Some(true) {
            return Some("paused".to_owned());
        }
        let (wanted, updated) = (spec.replicas.unwrap_or(1), status.updated_replicas.unwrap_or(0));
        let old = status.replicas.unwrap_or(0).saturating_sub(updated);
        let is_observed = status.observed_generation >= self.metadata.generation;
        progress(is_observed, wanted, updated, status.available_replicas.unwrap_or(0))
            .or_else(|| (old > 0).then(|| format!("{old} old pods are left")))
    }
}

impl Workload for StatefulSet {
    fn mark(&self) -> Option<String> {
        mark!(self)
    }

    fn lacks(&self) -> Option<String> {
        let (spec, status) = (self.spec.as_ref()?, self.status.clone().unwrap_or_default());
        if on_delete(
            spec.update_strategy
                .as_ref()
                .and_then(|strategy| strategy.type_.as_ref()),
        ) {
            return Some("OnDelete: its pods keep running until somebody deletes them".to_owned());
        }
        let wanted = spec.replicas.unwrap_or(1);
        let is_observed = status.observed_generation >= self.metadata.generation;
        let updated = match status.current_revision == status.update_revision {
            true => status.replicas,
            false => status.updated_replicas.unwrap_or(0),
        };
        progress(is_observed, wanted, updated, status.ready_replicas.unwrap_or(0))
    }
}

impl Workload for DaemonSet {
    fn mark(&self) -> Option<String> {
        mark!(self)
    }

    fn lacks(&self) -> Option<String> {
        let (spec, status) = (self.spec.as_ref()?, self.status.clone().unwrap_or_default());
        if on_delete(
            spec.update_strategy
                .as_ref()
                .and_then(|strategy| strategy.type_.as_ref()),
        ) {
            return Some("OnDelete: its pods keep running until somebody deletes them".to_owned());
        }
        let is_observed = status.observed_generation >= self.metadata.generation;
        let (updated, available) = (status.updated_number_scheduled, status.number_available);
        progress(
            is_observed,
            status.desired_number_scheduled,
            updated.unwrap_or(0),
            available.unwrap_or(0),
        )
    }
}

fn on_delete(strategy: Option<&String>) -> bool {
    strategy.is_some_and(|strategy| strategy == "OnDelete")
}

/// Looks for a target.
pub(super) async fn find(target: &Target, ctx: &Context) -> Result<Option<Found>> {
    match target.kind {
        TargetKind::Deployment => find_as::<Deployment>(&target.name, ctx).await,
        TargetKind::StatefulSet => find_as::<StatefulSet>(&target.name, ctx).await,
        TargetKind::DaemonSet => find_as::<DaemonSet>(&target.name, ctx).await,
    }
}

async fn find_as<K: Workload>(name: &str, ctx: &Context) -> Result<Option<Found>> {
    let found = ctx.client().get::<K>(ctx.request().namespace(), name).await?;
    Ok(found
        .filter(|found| found.meta().deletion_timestamp.is_none())
        .map(|found| Found {
            uid: found.uid().unwrap_or_default(),
            lacks: found.lacks(),
            mark: found.mark(),
        }))
}

/// Restarts a target, unless it was restarted for this value before.
pub(super) async fn restart(target: &Target, found: &Found, order: &Order, ctx: &Context) -> Result<()> {
    if found.mark.as_ref() == Some(&order.mark) {
        return Ok(());
    }
    match target.kind {
        TargetKind::Deployment => restart_as::<Deployment>(target, order, ctx).await,
        TargetKind::StatefulSet => restart_as::<StatefulSet>(target, order, ctx).await,
        TargetKind::DaemonSet => restart_as::<DaemonSet>(target, order, ctx).await,
    }
}

async fn restart_as<K: Workload>(target: &Target, order: &Order, ctx: &Context) -> Result<()> {
    let annotations = json!({RESTARTED_AT: ctx.now().to_string(), VALUE_HASH: order.mark});
    let template = json!({"metadata": {"annotations": annotations}});
    let patch = Patch::Merge(json!({"spec": {"template": template}}));
    let namespace = ctx.request().namespace();
    let restarted = ctx.client().patch::<K, _>(namespace, &target.name, &patch).await?;
    ctx.event(
        &*restarted,
        EventType::Normal,
        "RestartedByPolicy",
        order.message.clone(),
    );
    Ok(())
}

/// The entry of a restarted target in the status.
pub(super) fn restarted(target: &Target, found: &Found) -> RestartedTarget {
    RestartedTarget {
        kind: target.kind,
        name: target.name.clone(),
        uid: found.uid.clone(),
        // The found state is the one before the restart; the next reconcile knows more, except about states that cannot
        // change by themselves.
        rolled_out: false,
        message: found
            .lacks
            .clone()
            .filter(|lacks| lacks == "paused" || lacks.starts_with("OnDelete")),
    }
}
