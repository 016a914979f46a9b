//! One simulated node, and its kubelet: pods that are bound to it become Running and Ready a moment later, pods that are deleted go.
//!
//! Invariants: it plays only for the node that it made itself (known by name and label); a Node of that name which somebody else made is left
//! alone, and so are its pods. A pod is started once; what others write into its status afterwards stays.
//! The node is kept: its Lease is renewed, and it is registered again when somebody deletes it.
//! Not here: containers that fail or end, probes.

mod lease;
mod simulate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::api::coordination::v1::Lease;
use kubewright::k8s_openapi::api::core::v1::{Node, Pod};
use kubewright::kube::api::DeleteParams;
use kubewright::{Action, Client, Clock, Context, Controller, Reconciler, Request, Result, Scope, Stop, SystemClock};
use tokio::time::Instant;

use super::{Waiting, meta, pods};

/// How often a node's Lease is renewed (`nodeLeaseDurationSeconds` / 4).
pub(crate) const RENEW: Duration = Duration::from_secs(10);

/// How long things take on the node.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// From binding to Ready.
    pub(crate) start: Duration,
    /// From the request to delete to the end.
    pub(crate) stop: Duration,
}

/// The kubelet of one node.
pub(crate) struct Kubelet {
    node: Arc<str>,
    pace: Pace,
    memory: Mutex<Memory>,
    /// Pods that were bound to the node, whether it is known yet or not.
    bound: Waiting,
}

#[derive(Default)]
struct Memory {
    /// When what is to happen to a pod happens: by uid and whether it is its end.
    due: BTreeMap<(String, bool), Instant>,
    /// By the key of the pod, so that a pod that is gone can be forgotten.
    uids: BTreeMap<Request, String>,
    next_ip: u32,
}

/// The kubelet as a controller of pods.
pub(crate) fn kubelet(node: &str, pace: Pace) -> Controller {
    let kubelet = Kubelet {
        node: Arc::from(node),
        pace,
        memory: Mutex::default(),
        bound: Waiting::default(),
    };
    let (name, bound) = (kubelet.node.clone(), kubelet.bound.clone());
    Controller::of(kubelet)
        .named("kubelet")
        // A pod can be bound before its node is known.
        .watches::<Node>(move |node| {
            if meta::name(&node.metadata) == &*name {
                bound.all()
            } else {
                vec![]
            }
        })
        .concurrency(4)
}

fn is_bound_to(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

/// Keeps the node: registers it, also again when somebody has deleted it, and renews its Lease.
pub(crate) struct Keeper {
    node: Arc<str>,
}

/// The controller of the node that is kept.
pub(crate) fn keeper(node: &str) -> Controller {
    Controller::of(Keeper { node: Arc::from(node) })
        .named("node-keeper")
        .within(Scope::all().fields(format!("metadata.name={node}")))
}

impl Reconciler for Keeper {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
        if !is_simulated(&node) {
            return Ok(Action::await_change());
        }
        let namespace = lease::NAMESPACE;
        let present = ctx.client().get::<Lease>(Some(namespace), &self.node).await?;
        let due = present
            .as_deref()
            .map_or(Duration::ZERO, |present| lease::due(present, ctx.now()));
        if !due.is_zero() {
            return Ok(Action::requeue_after(due));
        }
        let next = lease::renewed(present.as_deref(), &node, ctx.now());
        let written = match present {
            Some(_) => ctx.client().update(&next).await,
            None => ctx.client().create(&next).await,
        };
        match written {
            Err(error) if !error.is_not_found() && !error.is_already_exists() => Err(error),
            _ => Ok(Action::requeue_after(RENEW)),
        }
    }

    async fn deleted(&self, _: Request, ctx: Context) -> Result<Action> {
        register(self.node.clone(), ctx.client().clone(), ctx.stop().clone()).await?;
        Ok(Action::await_change())
    }
}

/// Registers the node, as a kubelet does when it starts. Others may write the node meanwhile, and are not in the way.
pub(crate) async fn register(node: Arc<str>, client: Client, _stop: Stop) -> Result<()> {
    match client.create(&simulate::node(&node)).await {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    loop {
        let Some(there) = client.live::<Node>(None, &node).await? else {
            return Ok(());
        };
        if !is_simulated(&there) {
            tracing::warn!(node = %node, "a Node of this name exists and is not simulated; its pods are left alone");
            return Ok(());
        }
        match report(&client, &node, there).await {
            Err(error) if error.is_conflict() => {}
            Err(error) if error.is_not_found() => return Ok(()),
            done => return done,
        }
    }
}

/// Says that the node is ready, and takes the taint of new nodes away: without a node lifecycle controller nobody else does.
async fn report(client: &Client, name: &str, mut node: Node) -> Result<()> {
    node.status = Some(simulate::node_status(name, SystemClock.now()));
    let mut ready = (*client.update_status(&node).await?).clone();
    let Some(taints) = ready.spec.as_mut().and_then(|spec| spec.taints.as_mut()) else {
        return Ok(());
    };
    let before = taints.len();
    taints.retain(|taint| taint.key != simulate::NOT_READY);
    if taints.len() < before {
        client.update(&ready).await?;
    }
    Ok(())
}

fn is_simulated(node: &Node) -> bool {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(simulate::SIMULATED))
        .is_some_and(|value| value == "true")
}

impl Kubelet {
    /// How long until it is time; the clock starts when it is first asked.
    fn wait(&self, pod: &Pod, is_end: bool) -> Duration {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = meta::uid(&pod.metadata).to_owned();
        memory.uids.insert(Request::of(pod), uid.clone());
        let delay = if is_end { self.pace.stop } else { self.pace.start };
        let due = *memory
            .due
            .entry((uid, is_end))
            .or_insert_with(|| Instant::now() + delay);
        due.saturating_duration_since(Instant::now())
    }

    /// An address that no pod has.
    fn address(&self, taken: &BTreeSet<&str>) -> String {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let ip = simulate::pod_ip(memory.next_ip);
            memory.next_ip = memory.next_ip.wrapping_add(1);
            if !taken.contains(ip.as_str()) || taken.len() > 65_000 {
                return ip;
            }
        }
    }

    async fn start(&self, ctx: &Context, pod: &Pod) -> Result<()> {
        let all = ctx.client().list::<Pod>(None).await?;
        let taken = all
            .iter()
            .filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref())
            .collect();
        let present = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let ip = present.unwrap_or_else(|| self.address(&taken));
        let mut started = pod.clone();
        started.status = Some(simulate::running(pod, &ip, ctx.now()));
        ctx.client().update_status(&started).await?;
        Ok(())
    }
}

impl Reconciler for Kubelet {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        if !is_bound_to(&pod, &self.node) {
            return Ok(Action::await_change());
        }
        self.bound.insert(ctx.request());
        let node = ctx.client().get::<Node>(None, &self.node).await?;
        if !node.is_some_and(|node| is_simulated(&node)) {
            return Ok(Action::await_change());
        }
        let is_end = meta::is_deleting(&pod.metadata);
        let begins = pods::phase(&pod) == "Pending";
        let waits_for_gate = pods::phase(&pod) == "Running" && !pods::is_ready(&pod) && has_gates(&pod);
        if !is_end && !begins && !waits_for_gate {
            return Ok(Action::await_change());
        }
        let wait = if waits_for_gate && !is_end {
            Duration::ZERO
        } else {
            self.wait(&pod, is_end)
        };
        if !wait.is_zero() {
            return Ok(Action::requeue_after(wait));
        }
        let done = if is_end {
            ctx.client()
                .delete_with(
                    &*pod,
                    DeleteParams {
                        grace_period_seconds: Some(0),
                        ..DeleteParams::default()
                    },
                )
                .await
                .map(drop)
        } else {
            self.start(&ctx, &pod).await
        };
        match done {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Action::await_change()),
        }
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.bound.remove(&request);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uid) = memory.uids.remove(&request) {
            memory.due.retain(|(other, _), _| *other != uid);
        }
        Ok(Action::await_change())
    }
}

/// Whether readiness depends on conditions that others write.
fn has_gates(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty())
}
