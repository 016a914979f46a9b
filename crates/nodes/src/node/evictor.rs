//! Evicts pods of simulated nodes that are short of something: one at a time, as a kubelet does
//! (`managerImpl.synchronize`), as long as the node is short of it.
//!
//! `eviction` decides which pod goes, and makes the message. The kubelet ends a pod's processes when it sees the new
//! status. Invariant: a critical pod stays, and a node that is silent or not ready evicts nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::ListParams;
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_objects::api::core::v1::{Node, Pod};

use super::container::ContainerContext;
use super::eviction::{self, Pressure};
use super::fleet::{self, State};
use super::life::{self, Place};
use kubewright_objects::disruption_target;
use kubewright_objects::usage::Meter;
use kubewright_objects::{meta, node};

/// How often a node looks (`evictionMonitoringPeriod`).
const PERIOD: Duration = Duration::from_secs(10);

/// Evicts pods of nodes that are short of something.
pub(crate) struct Evictor {
    meter: Arc<dyn Meter>,
    /// When each node has evicted last.
    last: Mutex<BTreeMap<String, Timestamp>>,
}

/// The evictions as a controller of nodes.
pub(crate) fn controller(meter: Arc<dyn Meter>) -> Controller {
    let last = Mutex::default();
    Controller::of(Evictor { meter, last }).named("node-eviction")
}

impl Evictor {
    fn last(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the node waits until it looks again.
    fn wait(&self, node: &str, now: Timestamp) -> Duration {
        let since = self.last().get(node).map(|last| now.duration_since(*last));
        let since = since.map(|since| Duration::try_from(since).unwrap_or_default());
        since.map_or(Duration::ZERO, |since| PERIOD.saturating_sub(since))
    }

    async fn evict(&self, ctx: &Context, node: &Node, pod: &Pod, short: Pressure) -> Result<()> {
        let resource = short.resource();
        ctx.event(
            node,
            EventType::Warning,
            "EvictionThresholdMet",
            format!("Attempting to reclaim {resource}"),
        );
        let message = eviction::message(pod, short, |container| self.meter.used(pod, resource, Some(container)));
        ctx.event(pod, EventType::Warning, eviction::REASON, &message);
        let host = fleet::address(node);
        let scene = ContainerContext::clear(pod, ctx.now());
        let place = Place::of("", &host);
        let mut status = life::evicted(&scene, &place, eviction::REASON, &message);
        let target = disruption_target::condition(pod, ctx, "True", Some(("TerminationByKubelet", &message)));
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != target.type_);
        conditions.push(target);
        let mut next = pod.clone();
        next.status = Some(status);
        match ctx.client().update_status(&next).await {
            // Another client has changed or removed it: it is looked at again.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.last().insert(meta::name(&node.metadata).to_owned(), ctx.now());
                Ok(())
            }
        }
    }
}

impl Reconciler for Evictor {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
        let name = meta::name(&node.metadata);
        let acts = node::is_simulated(&node) && fleet::state(&node) == State::Ready && node::is_ready(&node);
        let short = Pressure::of(&node);
        if !acts || short.is_empty() || meta::is_deleting(&node.metadata) {
            self.last().remove(name);
            return Ok(Action::await_change());
        }
        let wait = self.wait(name, ctx.now());
        if !wait.is_zero() {
            return Ok(Action::requeue_after(wait));
        }
        // Only nodes in trouble come here: their pods are asked for, and no index of all pods is kept for them.
        let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let pods = ctx.client().list_live::<Pod>(None, &of_node).await?;
        for short in short {
            let used = |pod: &Pod| self.meter.used(pod, short.resource(), None).unwrap_or(0);
            if let Some(pod) = eviction::next(pods.iter().map(AsRef::as_ref), short, used) {
                self.evict(&ctx, &node, pod, short).await?;
                break;
            }
        }
        Ok(Action::requeue_after(PERIOD))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.last().remove(request.name());
        Ok(Action::await_change())
    }
}
