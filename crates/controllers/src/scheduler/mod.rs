//! The scheduler: gives pods without a node one of the nodes that are there.
//!
//! It takes the pods that name it (`spec.schedulerName`: `default-scheduler`, unless it was given other names or more
//! of them), asks the nodes (`filters`, `fit`, `sample`), and binds to the one that is preferred (`prefer`), and of
//! several to the one with the fewest pods (kube-scheduler takes any of them). The used resources of each node are kept in a
//! `cache`, so that no pod is placed by listing all of them. A pod that fits no node gets the condition PodScheduled
//! and an event, and is looked at again when a node changes, when another pod goes, and from time to time.
//!
//! Pods that wait are placed by priority (`queue`). One may take the place of lower ones (`preempt`): they are deleted,
//! and it is nominated for their node, so that none of a lower priority takes the room meanwhile.
//!
//! Invariant: one pod is placed at a time, and the next placement sees this one (the client reads its own writes), so
//! that no node gets more pods than it has room for.

mod cache;
mod constraint;
mod default_selector;
mod devices;
mod filters;
pub(crate) mod fit;
mod groups;
mod neighbours;
mod pod_info;
mod preempt;
mod prefer;
mod queue;
mod sample;
mod term;
mod volumes;
mod writes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::{Action, Context, Controller, Reconciler, Request, Result};
use kubewright_model::Minor;
use kubewright_objects::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kubewright_objects::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

use self::cache::Cache;
use self::devices::Devices;
use self::filters::{Filters, Surroundings};
use self::fit::Refusal;
use self::pod_info::PodInfo;
use self::preempt::{Candidate, Ineligible};
use self::prefer::Choice;
use self::queue::SchedulingQueue;
use self::term::{Namespaces, Terms};
use self::volumes::Volumes;
use self::writes::{Nomination, asked, bind, expect, take_away, wait};
use crate::volumes::binding;
use kubewright_objects::meta;
use kubewright_objects::{NodeView, Waiting, disruption_target, pods};

/// The name that pods ask for when they ask for none, and that signs events.
pub(crate) const DEFAULT: &str = "default-scheduler";

/// How long a pod that fits no node waits when no watched object changes.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// How long a pod steps back for a more important one, which is in the queue already.
const STEP: Duration = Duration::from_millis(5);

/// Remembers the waiting pods, and the used resources.
#[derive(Default)]
pub(crate) struct Scheduler {
    /// Its names: it places the pods with these. All of them know of each other's, as the profiles of one
    /// kube-scheduler do.
    names: BTreeSet<String>,
    minor: Minor,
    waiting: Waiting,
    /// Those of them that may fit when another pod has been placed.
    beside: Waiting,
    /// Those of them that may fit when a volume comes.
    unbound: Waiting,
    /// All waiting pods, in order.
    queue: SchedulingQueue,
    /// None until all pods have been entered once.
    cache: Mutex<Option<Cache>>,
    default_selector: default_selector::OwnerSelectors,
    /// The uids of pods that were bound and are not seen so yet (`AssumePod`).
    assumed: Mutex<BTreeMap<Request, String>>,
    /// The node with which the next pod begins (`nextStartNodeIndex`).
    start: AtomicUsize,
    /// Pods for which others have given way, and where.
    nominated: Mutex<BTreeMap<Request, (Arc<Pod>, String)>>,
}

/// Why a pod has no node, as it is told.
enum Nowhere {
    /// It waits.
    Waits(String),
    /// It waits for pods that go already, as it was told.
    Patient,
    /// It waits, and is nominated for no node.
    Hopeless(String),
    /// These give way to it.
    Preempts(Candidate, String),
}

/// The controller, ready to be added to a manager: a scheduler of these names.
pub(crate) fn controller(names: &BTreeSet<String>, minor: Minor) -> Controller {
    let scheduler = Scheduler {
        names: names.clone(),
        minor,
        ..Scheduler::default()
    };
    let waiting = || scheduler.waiting.clone();
    let (for_node, for_room, for_claim) = (waiting(), waiting(), waiting());
    let (beside, unbound) = (scheduler.beside.clone(), scheduler.unbound.clone());
    Controller::of(scheduler)
        .named(DEFAULT)
        // A node has come or changed: waiting pods may fit now.
        .watches::<Node>(move |_| for_node.all())
        .indexes(default_selector::INDEX, default_selector::index_keys)
        .indexes(volumes::INDEX, binding::index_keys)
        // A claim of a waiting pod has found its volume.
        .watches::<PersistentVolumeClaim>(move |_| for_claim.all())
        // A volume that no claim has yet.
        .watches::<PersistentVolume>(move |volume| {
            let free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
            if free { unbound.all() } else { vec![] }
        })
        // A bound pod is going or finished: there is room for another.
        .watches::<Pod>(move |pod| match is_bound(pod) {
            true if !pods::is_active(pod) => for_room.all(),
            true => beside.all(),
            false => vec![],
        })
        // One at a time: two placements that do not see each other could overfill a node.
        .concurrency(1)
}

fn is_bound(pod: &Pod) -> bool {
    pods::node_of(pod).is_some()
}

impl Scheduler {
    /// A pod that waits for us: not bound, alive, and not for another scheduler or held back by a gate.
    fn is_ours(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let is_free = spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty);
        self.names.contains(asked(pod)) && !is_bound(pod) && pods::is_active(pod) && is_free
    }

    fn cache(&self) -> MutexGuard<'_, Option<Cache>> {
        // Nothing under this lock can panic half way through a change.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn assumed(&self) -> MutexGuard<'_, BTreeMap<Request, String>> {
        // Nothing under this lock can panic half way through a change.
        self.assumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a state of the pod from before it was bound. The one after leads back here.
    fn is_placed(&self, request: &Request, pod: &Pod) -> bool {
        let uid = meta::uid(&pod.metadata);
        !is_bound(pod) && self.assumed().get(request).is_some_and(|placed| placed == uid)
    }

    fn forget(&self, request: &Request) {
        self.assumed().remove(request);
        self.waiting.remove(request);
        self.beside.remove(request);
        self.unbound.remove(request);
        self.queue.leave(request);
        self.nominated().remove(request);
    }

    /// Enters the pod; the first time all of them, because keys come in no order, and a pod must not be placed before
    /// those that were.
    async fn enter(&self, pod: &Arc<Pod>, ctx: &Context) -> Result<()> {
        if self.cache().is_none() {
            let all = ctx.client().list::<Pod>(None).await?;
            let mut first = Cache::default();
            for pod in &all {
                first.enter(pod);
                if self.is_ours(pod) {
                    self.nominate(&Request::of(&**pod), pod);
                }
            }
            self.cache().get_or_insert(first);
        }
        if let Some(cache) = self.cache().as_mut() {
            cache.enter(pod);
        }
        Ok(())
    }

    fn nominated(&self) -> MutexGuard<'_, BTreeMap<Request, (Arc<Pod>, String)>> {
        // Nothing under this lock can panic half way through a change.
        self.nominated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers for which node a pod is nominated, as it says itself.
    fn nominate(&self, request: &Request, pod: &Arc<Pod>) {
        let node = pod
            .status
            .as_ref()
            .and_then(|status| status.nominated_node_name.clone());
        match node.filter(|node| !node.is_empty()) {
            Some(node) => self.nominated().insert(request.clone(), (pod.clone(), node)),
            None => self.nominated().remove(request),
        };
    }

    /// Does something with the used resources, while the nominated pods that a pod must not displace count on their
    /// nodes as well (`addGENominatedPods`).
    fn with_nominated<T>(&self, request: &Request, pod: &Pod, run: impl FnOnce(&mut Cache) -> T) -> T {
        let (mut guard, mut empty) = (self.cache(), Cache::default());
        let cache = guard.as_mut().unwrap_or(&mut empty);
        let mut added = vec![];
        for (other, (pod_of, node)) in &*self.nominated() {
            let is_above = preempt::priority(pod_of) >= preempt::priority(pod);
            if other != request && is_above && !cache.knows(other) {
                cache.place(other, pod_of, node);
                added.push(other.clone());
            }
        }
        let done = run(cache);
        for other in &added {
            cache.remove(other);
        }
        done
    }

    /// The node for a pod, or why each refuses. The one for which it is nominated comes first
    /// (`evaluateNominatedNode`).
    fn choose<'a>(
        &self,
        request: &Request,
        pod: &Pod,
        around: &Surroundings<'a>,
    ) -> std::result::Result<&'a str, Vec<(&'a NodeView, Refusal)>> {
        let nominated = self.nominated().get(request).map(|(_, node)| node.clone());
        let (start, enough) = (self.start.load(Ordering::Relaxed), sample::enough(around.nodes.len()));
        self.with_nominated(request, pod, |cache| {
            let filters = Filters::new(pod, around, cache);
            let named = around
                .nodes
                .iter()
                .find(|node| Some(node.name()) == nominated.as_deref());
            if let Some(node) = named.filter(|node| filters.ask(node).is_ok()) {
                return Ok(node.name());
            }
            let (mut refusals, mut feasible, mut seen) = (vec![], vec![], 0_usize);
            let mut order = sample::order(around.nodes, start);
            order.sort_by_key(|node| filters.passes_over(node));
            for node in order {
                if filters.passes_over(node) && !feasible.is_empty() {
                    break;
                }
                seen = seen.saturating_add(1);
                match filters.ask(node) {
                    Err(why) => refusals.push((node, why)),
                    Ok(taken) => feasible.push((node, taken)),
                }
                if feasible.len() == enough {
                    break;
                }
            }
            let next = start.saturating_add(seen).checked_rem(around.nodes.len());
            self.start.store(next.unwrap_or(0), Ordering::Relaxed);
            let choice = Choice {
                pod,
                default_selector: around.default_selector,
                nodes: &feasible,
                all: &filters.all,
                cache,
                namespaces: around.namespaces,
                volumes: (self.minor >= Minor::V37 && around.volumes.waits()).then_some(around.volumes),
            };
            let scores = choice.scores();
            let best = feasible
                .iter()
                .zip(scores)
                .min_by_key(|((_, taken), score)| (Reverse(*score), taken.pods.len()));
            best.map(|((node, _), _)| node.name()).ok_or(refusals)
        })
    }

    /// Whether a pod waits until a more important one has been placed that would fit as well.
    fn steps_back(&self, request: &Request, pod: &Pod, around: &Surroundings<'_>) -> bool {
        // A pod whose volumes or namespaces would have to be read is not waited for.
        let is_plain = |pod: &Pod| {
            pods::claims(pod).next().is_none()
                && super::resourceclaim::plan::entries(pod).is_empty()
                && !Terms::of_pod(pod).asks_namespaces()
        };
        let above = self.queue.above(request, pod);
        let (volumes, devices) = (Volumes::default(), Devices::default());
        let around = Surroundings {
            volumes: &volumes,
            devices: &devices,
            ..*around
        };
        let fits = |other: &Request, of: &Pod| {
            self.with_nominated(other, of, |cache| {
                let filters = Filters::new(of, &around, cache);
                filters.all.iter().any(|node| filters.ask(node).is_ok())
            })
        };
        let mut above = above.iter().filter(|(_, other)| is_plain(other));
        above.any(|(other, of)| fits(other, of)) && self.queue.step_back(request)
    }

    /// Whether a pod of a lower priority runs on one of these nodes.
    fn has_lower<'a>(&self, pod: &Pod, mut nodes: impl Iterator<Item = &'a NodeView>) -> bool {
        let guard = self.cache();
        let Some(cache) = guard.as_ref() else { return false };
        let is_lower = |other: &Arc<PodInfo>| other.priority() < preempt::priority(pod);
        nodes.any(|node| cache.on(node.name()).pods.values().any(is_lower))
    }

    /// Finds the victims for a pod that every node refuses; or the message for it.
    async fn make_room(
        &self,
        ctx: &Context,
        pod: &Pod,
        around: &Surroundings<'_>,
        refusals: Vec<(&NodeView, Refusal)>,
    ) -> Result<Nowhere> {
        let reasons = refusals.iter().map(|(_, refusal)| refusal.reasons.as_slice());
        let why = fit::available(refusals.len(), reasons);
        if refusals.is_empty() {
            return Ok(Nowhere::Waits(why));
        }
        let ineligible = self
            .cache()
            .as_ref()
            .and_then(|cache| preempt::ineligible(pod, &refusals, cache));
        match ineligible {
            // kube-scheduler does not even look at the pod before they have gone.
            Some(Ineligible::UntilGone) => return Ok(Nowhere::Patient),
            Some(Ineligible::For(reason)) => {
                let claims = devices::said(pod);
                return Ok(Nowhere::Waits(format!("{why} {claims}, preemption: {reason}")));
            }
            None => {}
        }
        let full = || {
            let full = refusals.iter().filter(|(_, refusal)| refusal.is_full);
            full.map(|(node, _)| *node)
        };
        let (mut candidates, mut helpless) = (vec![], vec![]);
        if self.has_lower(pod, full()) {
            let budgets = ctx.client().list::<PodDisruptionBudget>(None).await?;
            self.with_nominated(ctx.request(), pod, |cache| {
                for node in full() {
                    let asks = |left: &Cache| Filters::new(pod, around, left).ask(node).err();
                    match preempt::victims(pod, node.name(), cache, &budgets, asks) {
                        Ok(candidate) => candidates.push(candidate),
                        Err(reasons) => helpless.push(reasons),
                    }
                }
            });
        } else {
            helpless.extend(full().map(|_| vec![preempt::NOBODY.to_owned()]));
        }
        let refusals: Vec<&Refusal> = refusals.iter().map(|(_, refusal)| refusal).collect();
        Ok(match preempt::best(candidates) {
            Some(candidate) => Nowhere::Preempts(candidate, why),
            None => Nowhere::Hopeless(fit::nowhere(&refusals, &helpless, devices::said(pod))),
        })
    }

    /// Nominates the pod for the node and takes the victims away (`prepareCandidate`).
    ///
    /// The nomination comes first: a nominated pod that finds its victims still there begins anew.
    async fn preempt(&self, ctx: &Context, pod: &Arc<Pod>, candidate: &Candidate, why: &str) -> Result<Action> {
        let node = &candidate.node;
        self.nominated()
            .insert(ctx.request().clone(), (pod.clone(), node.clone()));
        let waits = wait(ctx, pod, why, Nomination::For(node)).await?;
        let is_lower =
            |(other, at): &(Arc<Pod>, String)| at == node && preempt::priority(other) < preempt::priority(pod);
        let lower: Vec<_> = self.nominated().values().filter(|one| is_lower(one)).cloned().collect();
        for (other, _) in lower {
            // It may find another node sooner than room on this one.
            disruption_target::patch_status(ctx, &other, json!({ "nominatedNodeName": null })).await?;
        }
        for (request, known) in candidate.victims.iter().filter(|(_, victim)| !victim.is_deleting) {
            let there = ctx.client().get::<Pod>(request.namespace(), request.name()).await?;
            if let Some(victim) = there.filter(|there| meta::uid(&there.metadata) == known.uid) {
                take_away(ctx, pod, &victim, node).await?;
            }
        }
        // The victims that go lead back here.
        Ok(waits)
    }
}

impl Reconciler for Scheduler {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        if self.is_placed(ctx.request(), &pod) {
            return Ok(Action::await_change());
        }
        self.enter(&pod, &ctx).await?;
        if !self.is_ours(&pod) {
            self.forget(ctx.request());
            return Ok(Action::await_change());
        }
        // Before the nodes are read: a node that changes afterwards finds the pod among the waiting ones.
        self.waiting.insert(ctx.request());
        self.queue.enter(ctx.request(), &pod);
        if neighbours::looks_around(&pod) {
            self.beside.insert(ctx.request());
        }
        self.nominate(ctx.request(), &pod);
        let mut nodes = ctx.client().views::<Node, NodeView>(None).await?;
        nodes.retain(|node| !meta::is_deleting(&node.node.metadata));
        // Likewise before the volumes are.
        if pods::claims(&pod).next().is_some() {
            self.unbound.insert(ctx.request());
        }
        let volumes = match Volumes::of(&pod, &ctx).await? {
            Ok(volumes) => volumes,
            Err(why) => {
                let why = fit::nowhere_because(&why, nodes.len());
                return wait(&ctx, &pod, &why, Nomination::Keep).await;
            }
        };
        if !volumes.waits() {
            self.unbound.remove(ctx.request());
        }
        let Some(devices) = Devices::of(&pod, &ctx).await? else {
            return Ok(Action::requeue_after(TRY_AGAIN));
        };
        let mut namespaces = Namespaces::new();
        let is_asked = |cache: &Cache| cache.affinity.asks_namespaces();
        if Terms::of_pod(&pod).asks_namespaces() || self.cache().as_ref().is_some_and(is_asked) {
            for namespace in ctx.client().list::<Namespace>(None).await? {
                let name = meta::name(&namespace.metadata).to_owned();
                namespaces.insert(name, meta::labels(&namespace.metadata).clone());
            }
        }
        let default_selector = match nodes.len() {
            0 | 1 => None,
            _ => default_selector::of(&pod, &self.default_selector, &ctx).await?,
        };
        let around = Surroundings {
            volumes: &volumes,
            devices: &devices,
            namespaces: &namespaces,
            nodes: &nodes,
            default_selector: default_selector.as_ref(),
        };
        let refusals = match self.choose(ctx.request(), &pod, &around) {
            Ok(_) if self.steps_back(ctx.request(), &pod, &around) => return Ok(Action::requeue_after(STEP)),
            // The claims that become bound lead back here.
            Ok(node) if volumes.place(node, &nodes, &ctx).await? => {
                return expect(&ctx, &pod, node).await;
            }
            Ok(node) => {
                // It counts from now on: whether a binding of unknown outcome took place is seen in the pod.
                if let Some(cache) = self.cache().as_mut() {
                    cache.place(ctx.request(), &pod, node);
                }
                self.nominated().remove(ctx.request());
                if bind(&ctx, &pod, node).await? {
                    // It waits no longer: what makes room for others must not lead to it again.
                    self.forget(ctx.request());
                    let uid = meta::uid(&pod.metadata).to_owned();
                    self.assumed().insert(ctx.request().clone(), uid);
                }
                return Ok(Action::await_change());
            }
            Err(refusals) => refusals,
        };
        match self.make_room(&ctx, &pod, &around, refusals).await? {
            Nowhere::Patient => Ok(Action::requeue_after(TRY_AGAIN)),
            Nowhere::Waits(why) => wait(&ctx, &pod, &why, Nomination::Keep).await,
            Nowhere::Hopeless(why) => wait(&ctx, &pod, &why, Nomination::Clear).await,
            Nowhere::Preempts(candidate, why) => self.preempt(&ctx, &pod, &candidate, &why).await,
        }
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.forget(&request);
        if let Some(cache) = self.cache().as_mut() {
            cache.remove(&request);
        }
        Ok(Action::await_change())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_this_scheduler() {
        let check = |names: &[&str], spec: serde_json::Value, phase: &str, expected: bool| {
            let scheduler = Scheduler {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Scheduler::default()
            };
            let mut whole = json!({ "containers": [] });
            whole
                .as_object_mut()
                .expect("an object")
                .extend(spec.as_object().expect("an object").clone());
            let pod: Pod =
                serde_json::from_value(json!({ "spec": whole, "status": { "phase": phase } })).expect("a pod");
            assert_eq!(scheduler.is_ours(&pod), expected, "{names:?} {spec} {phase}");
        };
        let usual = &[DEFAULT];
        check(usual, json!({}), "Pending", true);
        check(usual, json!({ "schedulerName": "" }), "Pending", true);
        check(usual, json!({ "schedulerName": DEFAULT }), "Pending", true);
        check(usual, json!({ "schedulerName": "nobody" }), "Pending", false);
        check(usual, json!({ "nodeName": "n" }), "Pending", false);
        check(
            usual,
            json!({ "schedulingGates": [{ "name": "wait" }] }),
            "Pending",
            false,
        );
        check(usual, json!({}), "Failed", false);
        check(&["mine"], json!({}), "Pending", false);
        check(&["mine"], json!({ "schedulerName": "mine" }), "Pending", true);
        check(&[DEFAULT, "mine"], json!({ "schedulerName": "mine" }), "Pending", true);
        check(&[DEFAULT, "mine"], json!({}), "Pending", true);
    }
}
