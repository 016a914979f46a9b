//! The effects of silent or unready nodes (Kubernetes' node lifecycle controller): conditions of silent nodes, taints
//! that follow from conditions, pods that are not ready because their node is not; and the annotation of the TTL
//! controller.
//!
//! Invariant: a kubelet's own status is changed only when the kubelet has fallen silent.
//!
//! Not here: the eviction of pods (`taint_eviction`).

mod health;
mod taints;
mod zones;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use kubewright::{Action, Context, Controller, Error, EventType, Reconciler, Request, Result, Scope, Waker};
use kubewright_objects::api::coordination::v1::Lease;
use kubewright_objects::api::core::v1::{Node, Pod};
use serde_json::json;

use self::health::NodeHealth;
use self::zones::{Effects, Permit, Zones};
use kubewright_objects::{disruption_target, pods};
use kubewright_objects::{meta, node};

const NAME: &str = "node-lifecycle-controller";
/// The index of pods by the node that they are bound to.
const ON_NODE: &str = "node-lifecycle/node";
/// How many pods of a node are marked at the same time.
const MARKED_AT_ONCE: usize = 8;
/// Where kubelets renew their leases.
const LEASES: &str = "kube-node-lease";
/// For how long a kubelet may keep Secrets and ConfigMaps; by the number of nodes, of which there are few here.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Labels of nodes by their old names and by those that hold.
const OLD_LABELS: [(&str, &str); 2] = [
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
];

/// Looks after nodes.
pub(crate) struct NodeLifecycle {
    /// Whether simulated nodes renew Leases; without, they are heard unless they were told to be silent.
    heartbeats: bool,
    memory: Mutex<BTreeMap<Request, Memory>>,
    zones: Mutex<Zones>,
    /// Wakes nodes that wait for others.
    waker: Waker,
}

struct Memory {
    heard: NodeHealth,
    /// It is heard without Leases.
    lives: bool,
    ready: bool,
    /// Whether the pods of a node that is not ready were marked so. A controller that has just started cannot know, and
    /// does it again.
    marked: bool,
}

/// The controller of all nodes.
pub(crate) fn controller(heartbeats: bool) -> Controller {
    let lifecycle = NodeLifecycle {
        heartbeats,
        memory: Mutex::default(),
        zones: Mutex::default(),
        waker: Waker::new(),
    };
    let woken = lifecycle.waker.source();
    Controller::of(lifecycle)
        .named(NAME)
        .indexes(ON_NODE, pods::node_names)
        .reads::<Lease>(Scope::namespace(LEASES))
        .source(woken)
}

impl NodeLifecycle {
    fn memory(&self) -> MutexGuard<'_, BTreeMap<Request, Memory>> {
        // Nothing under this lock can panic half way through a change.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the node as it is now, and answers its last sign of life, whether it was ready before and is not any
    /// more, and whether its pods are to be marked.
    fn look(&self, request: &Request, node: &Node, lease: Option<&Lease>, ctx: &Context) -> (NodeHealth, bool, bool) {
        let condition = node::ready(node);
        let ready = condition.is_some_and(|ready| ready.status == "True");
        // A kubelet that says itself that it is not ready looks after its pods itself; a simulated one does not.
        let is_simulated = node::is_silent(node).is_some();
        let silent =
            condition.is_some_and(|ready| ready.status == "Unknown" || (is_simulated && ready.status != "True"));
        let mut memory = self.memory();
        let before = memory.get(request);
        let lives = self.is_heard(node);
        // A node without Leases was heard until it was told to be silent, which is now.
        let last = before.filter(|before| !lives && !before.lives);
        let heard = health::hear(last.map(|last| &last.heard), node, lease, ctx.now());
        let fell = before.is_some_and(|before| before.ready) && silent;
        let marked = !ready && before.is_some_and(|before| before.marked);
        let next = Memory {
            heard: heard.clone(),
            lives,
            ready,
            marked,
        };
        memory.insert(request.clone(), next);
        (heard, fell, silent && !marked)
    }

    fn zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_heard(&self, node: &Node) -> bool {
        !self.heartbeats && node::is_silent(node) == Some(false)
    }

    /// Remembers the node in its zone, and what this changes for others.
    async fn see(&self, node: &Node, ctx: &Context) -> Result<()> {
        // After a start a zone is judged by all of its nodes, and not by the first that comes.
        let is_first = self.zones().is_empty();
        let all = match is_first {
            true => ctx.client().list::<Node>(None).await?,
            false => vec![],
        };
        let effects = {
            let mut zones = self.zones();
            all.iter().for_each(|other| drop(zones.see(other)));
            let seen = zones.see(node);
            let judged = zones.judge(ctx.now());
            Effects {
                next: seen.next,
                ..judged
            }
        };
        self.pass_on(effects, ctx).await;
        Ok(())
    }

    async fn pass_on(&self, effects: Effects, ctx: &Context) {
        if effects.recovered {
            for memory in self.memory().values_mut() {
                memory.heard.again(ctx.now());
            }
        }
        if effects.all {
            self.waker.wake_all("a zone changed its state").await;
        }
        self.wake(effects.next).await;
    }

    async fn wake(&self, next: Option<String>) {
        if let Some(name) = next {
            self.waker
                .wake(Request::new(None, &name), "it is the next of its zone")
                .await;
        }
    }

    /// Whether the pods of a node that is not ready may leave it, and when to ask again.
    async fn permit(&self, node: &Node, ctx: &Context) -> (bool, Option<Duration>) {
        let name = ctx.request().name();
        let is_lost = node::ready(node).is_some_and(|ready| matches!(ready.status.as_str(), "False" | "Unknown"));
        let (permit, next) = match is_lost {
            true => self.zones().permit(name, taints::is_left(node), ctx.now()),
            false => (Permit::Waits, self.zones().release(name)),
        };
        self.wake(next).await;
        match permit {
            Permit::Granted => (true, None),
            Permit::In(left) => (false, Some(left)),
            Permit::Waits => (false, None),
        }
    }

    fn remember_marked(&self, request: &Request) {
        if let Some(memory) = self.memory().get_mut(request) {
            memory.marked = true;
        }
    }
}

impl Reconciler for NodeLifecycle {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
        let lease = ctx.client().get::<Lease>(Some(LEASES), ctx.request().name()).await?;
        let (heard, fell, to_mark) = self.look(ctx.request(), &node, lease.as_deref(), &ctx);
        if fell {
            let message = format!("Node {} status is now: NodeNotReady", ctx.request().name());
            ctx.event(&*node, EventType::Normal, "NodeNotReady", &message);
        }
        if to_mark {
            mark_pods(&ctx, ctx.request().name()).await?;
            self.remember_marked(ctx.request());
        }
        self.see(&node, &ctx).await?;
        let (leave, wait) = self.permit(&node, &ctx).await;
        if self.is_heard(&node) {
            follow(&node, leave, &ctx).await?;
            return Ok(wait.map_or_else(Action::await_change, Action::requeue_after));
        }
        let left = health::left(&heard, &node, ctx.now());
        if left.is_zero()
            && let Some(conditions) = health::silenced(&node, ctx.now())
        {
            let mut silent = (*node).clone();
            silent.status.get_or_insert_default().conditions = Some(conditions);
            // The change of the node leads back here, to its taints.
            return match ctx.client().update_status(&silent).await {
                Err(error) if !is_passed(&error) => Err(error),
                _ => Ok(Action::await_change()),
            };
        }
        follow(&node, leave, &ctx).await?;
        // It may be heard again by its lease alone, which is not watched.
        let look = if left.is_zero() { node::RENEW } else { left };
        Ok(Action::requeue_after(wait.map_or(look, |wait| wait.min(look))))
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        self.memory().remove(&request);
        let effects = {
            let mut zones = self.zones();
            let next = zones.forget(request.name()).next;
            let judged = zones.judge(ctx.now());
            Effects { next, ..judged }
        };
        self.pass_on(effects, &ctx).await;
        Ok(Action::await_change())
    }
}

/// The node is gone, or has changed meanwhile: that leads back here by itself. Kubelets write their nodes often.
fn is_passed(error: &Error) -> bool {
    error.is_not_found() || error.is_conflict()
}

/// Labels under the names of before Kubernetes 1.14 that differ from the present ones (`reconcileNodeLabels`).
fn old_labels(node: &Node) -> BTreeMap<String, String> {
    let label = |name: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let stale = OLD_LABELS.iter().filter_map(|(old, new)| {
        let value = label(new).filter(|value| label(old) != Some(*value))?;
        Some(((*old).to_owned(), value.clone()))
    });
    stale.collect()
}

/// Writes the taints, the annotation and the old labels, when they differ. `leave`: pods may leave a node that is not
/// ready.
async fn follow(node: &Node, leave: bool, ctx: &Context) -> Result<()> {
    let taints = taints::taints(node, leave, &meta::time(ctx.now()));
    let present = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let labels = old_labels(node);
    if taints == present && labels.is_empty() && meta::annotation(&node.metadata, TTL) == Some("0") {
        return Ok(());
    }
    let mut changed = node.clone();
    changed.metadata.labels.get_or_insert_default().extend(labels);
    changed.spec.get_or_insert_default().taints = Some(taints).filter(|taints| !taints.is_empty());
    let annotations = changed.metadata.annotations.get_or_insert_default();
    annotations.insert(TTL.to_owned(), "0".to_owned());
    match ctx.client().update(&changed).await {
        Err(error) if !is_passed(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Pods of a node that is not ready are not ready either (`MarkPodsNotReady`; for missed ones, `processPod`).
async fn mark_pods(ctx: &Context, node: &str) -> Result<()> {
    let pods = ctx.client().list_by_index::<Pod>(None, ON_NODE, node).await?;
    let ready: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| pods::is_ready(pod)).collect();
    for some in ready.chunks(MARKED_AT_ONCE) {
        try_join_all(some.iter().map(|pod| mark(ctx, pod))).await?;
    }
    Ok(())
}

async fn mark(ctx: &Context, pod: &Pod) -> Result<()> {
    let Some(mut ready) = pods::condition(pod, "Ready").cloned() else {
        return Ok(());
    };
    ready.status = "False".to_owned();
    ready.last_transition_time = Some(meta::time(ctx.now()));
    ready.observed_generation = pod.metadata.generation;
    if disruption_target::write(ctx, pod, &ready, json!({})).await? {
        ctx.event(pod, EventType::Warning, "NodeNotReady", "Node is not ready");
    }
    Ok(())
}
