//! The DaemonSet controller: a pod on each node that the template fits.
//!
//! A reconcile finds the revisions (`history`), decides about each node (`placement`, `plan`), makes and deletes pods,
//! and writes the status. A step of an update is taken only when no node lacks a pod or has one too many.
//!
//! Invariants: a set under deletion makes and deletes nothing, and its status is not written; a pod that fails again
//! and again on a node is replaced there ever more slowly. Not here: binding, which is the scheduler's.

mod failures;
mod placement;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubewright::{Action, Context, Controller, Event, EventType, Reconciler, Request, Result};
use kubewright_objects::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use kubewright_objects::api::core::v1::{Node, Pod};

use self::failures::Failures;
use self::plan::{Changes, View};
use super::claim::{self, Selectors};
use super::history;
use super::pace::Pace;
use super::pod_control::{self, BURST};
use kubewright_objects::{NodeView, PodView, meta, pods};

/// Knows all selectors, to find a DaemonSet for an orphaned pod, and the nodes that let pods fail, which no object
/// says.
#[derive(Default)]
pub(crate) struct DaemonSetReconciler {
    selectors: Selectors,
    failures: Failures,
    pace: Pace,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    let reconciler = DaemonSetReconciler::default();
    let selectors = reconciler.selectors.clone();
    Controller::of(reconciler)
        .named("daemonset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(move |pod| selectors.for_orphan(&pod.metadata))
        .watches_all_of::<Node>()
        .with_predicate(matters)
        .concurrency(5)
}

/// Whether a DaemonSet may want something else after this: a heartbeat changes no field of a node that it looks at.
fn matters(event: &Event<Node>) -> bool {
    match event {
        Event::Modified { old, new } => old.metadata.labels != new.metadata.labels || old.spec != new.spec,
        Event::Added { .. } | Event::Deleted { .. } => true,
    }
}

impl Reconciler for DaemonSetReconciler {
    type Object = DaemonSet;

    async fn reconcile(&self, set: Arc<DaemonSet>, ctx: Context) -> Result<Action> {
        let Some(spec) = set.spec.as_ref() else {
            return Ok(Action::await_change());
        };
        let selector = meta::selector(&format!("DaemonSet {}", ctx.request()), &spec.selector)?;
        if selector.selects_all() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            ctx.event(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::await_change());
        }
        if meta::is_deleting(&set.metadata) {
            return Ok(Action::await_change());
        }
        self.selectors.remember(ctx.request(), &selector);
        if let Some(rest) = self.pace.rest(ctx.request(), ctx.now()) {
            return Ok(Action::requeue_after(rest));
        }
        let mut revisions = claim::all(&ctx, &*set, &selector, |_: &ControllerRevision| true).await?;
        history::sort(&mut revisions);
        let mut collisions = set
            .status
            .as_ref()
            .and_then(|status| status.collision_count)
            .unwrap_or(0);
        let label = history::POD_LABEL;
        let current = history::present(&ctx, &*set, &spec.template, label, &mut collisions, &mut revisions).await;
        let current = match current {
            // Its revisions went before it.
            Err(error) if super::is_namespace_going(&error) => return Ok(Action::await_change()),
            current => current?,
        };
        let fits = |pod: &PodView| meta::fits(&selector, &pod.0.metadata);
        let pods = claim::views(&ctx, &*set, &selector, fits, |_| true).await?;
        let nodes = ctx.client().views::<Node, NodeView>(None).await?;
        self.pace.looked(ctx.request(), ctx.now(), pods.len());
        let sync = Sync {
            ctx: &ctx,
            set: &set,
            nodes: &nodes,
            hash: hash(&current),
        };
        let (acted, wait) = sync.act(&pods, &self.failures).await;
        let pods = claim::owned_views(&ctx, &*set, fits).await?;
        sync.write_status(&pods, collisions).await?;
        acted?;
        forget(&ctx, spec, &current, &revisions, &pods).await?;
        let min_ready = spec.min_ready_seconds.unwrap_or(0);
        let available = pods::next_availability(pods.iter().map(|pod| &pod.0), min_ready, ctx.now());
        let again = [wait, available].into_iter().flatten().min();
        // A little later than the moment: stored times are whole seconds, the clock is not.
        Ok(again.map_or_else(Action::await_change, |wait| {
            Action::requeue_after(wait.saturating_add(Duration::from_millis(10)))
        }))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selectors.forget(&request);
        self.failures.forget(&request);
        self.pace.forget(&request);
        Ok(Action::await_change())
    }
}

/// The hash that pods of the revision carry; the name of one that has none, as Kubernetes takes it.
fn hash(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(history::POD_LABEL));
    hash.map_or_else(|| meta::name(&revision.metadata), String::as_str)
}

/// Old revisions beyond the limit, but for those that pods are of.
async fn forget(
    ctx: &Context,
    spec: &DaemonSetSpec,
    current: &ControllerRevision,
    revisions: &[Arc<ControllerRevision>],
    pods: &[Arc<PodView>],
) -> Result<()> {
    let hashes: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.0.metadata.labels.as_ref()?.get(history::POD_LABEL))
        .map(String::as_str)
        .collect();
    let of_pods = revisions.iter().filter(|revision| hashes.contains(hash(revision)));
    let mut live: BTreeSet<&str> = of_pods.map(|revision| meta::name(&revision.metadata)).collect();
    live.insert(meta::name(&current.metadata));
    // Old revisions in use count towards the limit, other than with StatefulSets.
    let in_use = i32::try_from(live.len().saturating_sub(1)).unwrap_or(i32::MAX);
    let limit = spec.revision_history_limit.unwrap_or(10).saturating_sub(in_use).max(0);
    for revision in history::to_forget(revisions, &live, limit) {
        ctx.client().delete(revision).await?;
    }
    Ok(())
}

/// One reconcile of one DaemonSet.
struct Sync<'a> {
    ctx: &'a Context,
    set: &'a DaemonSet,
    nodes: &'a [Arc<NodeView>],
    hash: &'a str,
}

impl<'a> Sync<'a> {
    fn view<'b>(&'b self, pods: &'b [Arc<PodView>]) -> View<'b> {
        let nodes: Vec<&Node> = self.nodes.iter().map(|node| &node.node).collect();
        let pods: Vec<&Pod> = pods.iter().map(|pod| &pod.0).collect();
        View::of(self.set, &nodes, &pods, self.hash, self.ctx.now())
    }

    /// Makes and deletes pods, and says when a node may be tried again.
    async fn act(&self, pods: &[Arc<PodView>], failures: &Failures) -> (Result<()>, Option<Duration>) {
        let view = self.view(pods);
        let mut wait: Option<Duration> = None;
        let changes = view.manage(|node| match failures.wait(self.ctx.request(), node, self.ctx.now()) {
            None => true,
            Some(left) => {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
                false
            }
        });
        self.say_finished(&changes);
        let changes = if changes.is_empty() { view.roll() } else { changes };
        (self.make(changes).await, wait)
    }

    fn say_finished(&self, changes: &Changes<'_>) {
        for pod in &changes.delete {
            let (kind, reason, what, then) = match pods::phase(pod) {
                "Failed" => (EventType::Warning, "FailedDaemonPod", "failed", "kill"),
                "Succeeded" => (EventType::Normal, "SucceededDaemonPod", "succeeded", "delete"),
                _ => continue,
            };
            let (namespace, name) = (
                self.ctx.request().namespace().unwrap_or_default(),
                meta::name(&pod.metadata),
            );
            let node = placement::node_of(pod).unwrap_or_default();
            let message = format!("Found {what} daemon pod {namespace}/{name} on node {node}, will try to {then} it");
            self.ctx.event(self.set, kind, reason, message);
        }
    }

    async fn make(&self, changes: Changes<'_>) -> Result<()> {
        let nodes = changes.create.iter().take(BURST);
        let new: Vec<Pod> = nodes.map(|node| placement::pod(self.set, self.hash, node)).collect();
        let created = pod_control::create(self.ctx, self.set, &new).await;
        let burst = changes.delete.len().min(BURST);
        let deleted = pod_control::delete(self.ctx, self.set, &changes.delete[..burst]).await;
        created.and(deleted)
    }

    async fn write_status(&self, pods: &[Arc<PodView>], collisions: i32) -> Result<()> {
        let status = self.view(pods).status(collisions);
        if self.set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let written = DaemonSet {
            status: Some(status),
            ..self.set.clone()
        };
        match self.ctx.client().update_status(&written).await {
            // Gone meanwhile: there is nothing to write to.
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
