//! One simulated node, and its kubelet: pods that are bound to it become Running and Ready a moment later, pods that are deleted go.
//!
//! Invariants: it plays only for the node that it made itself (known by name and label); a Node of that name which somebody else made is left
//! alone, and so are its pods. A pod is started once; what others write into its status afterwards stays.
//! The node is kept: its Lease is renewed, and it is registered again when somebody deletes it.
//! How a pod behaves is decided in `behaviour`; what it lacks is found in `needs`.
//! Not here: probes, several nodes.

mod behaviour;
mod lease;
mod needs;
mod simulate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::api::coordination::v1::Lease;
use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Container, Node, Pod, PodStatus, Secret};
use kubewright::kube::api::DeleteParams;
use kubewright::{
    Action, Client, Clock, Context, Controller, EventType, Reconciler, Request, Result, Scope, Stop, SystemClock,
};
use tokio::time::Instant;

use self::behaviour::Next;
use self::needs::{Need, Place};
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
    /// Pods that wait for a Secret or a ConfigMap.
    held_up: Waiting,
}

#[derive(Default)]
struct Memory {
    /// When what is to happen to a pod happens: by uid and whether it is its end.
    due: BTreeMap<(String, bool), Instant>,
    /// By the key of the pod, so that a pod that is gone can be forgotten.
    uids: BTreeMap<Request, String>,
    next_ip: u32,
    learned: bool,
    /// The addresses that pods have, so that none has two owners.
    taken: BTreeSet<String>,
    ips: BTreeMap<Request, String>,
}

impl Memory {
    fn take(&mut self, request: &Request, ip: String) {
        if let Some(before) = self.ips.insert(request.clone(), ip.clone()) {
            self.taken.remove(&before);
        }
        self.taken.insert(ip);
    }
}

/// The kubelet as a controller of pods.
pub(crate) fn kubelet(node: &str, pace: Pace) -> Controller {
    let kubelet = Kubelet {
        node: Arc::from(node),
        pace,
        memory: Mutex::default(),
        bound: Waiting::default(),
        held_up: Waiting::default(),
    };
    let (name, bound) = (kubelet.node.clone(), kubelet.bound.clone());
    let (for_secret, for_map) = (kubelet.held_up.clone(), kubelet.held_up.clone());
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
        .watches::<Secret>(move |secret| near(&for_secret, secret.metadata.namespace.as_deref()))
        .watches::<ConfigMap>(move |map| near(&for_map, map.metadata.namespace.as_deref()))
        .concurrency(4)
}

/// Those that wait in this namespace.
fn near(waiting: &Waiting, namespace: Option<&str>) -> Vec<Request> {
    let mut all = waiting.all();
    all.retain(|request| request.namespace() == namespace);
    all
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

    /// Remembers the address that a pod has.
    fn remember(&self, pod: &Pod) {
        let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else {
            return;
        };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.take(&Request::of(pod), ip);
    }

    /// Before the first address is given: those that pods have from an earlier life of the cluster.
    async fn learn_addresses(&self, ctx: &Context) -> Result<()> {
        let learned = || self.memory.lock().unwrap_or_else(PoisonError::into_inner).learned;
        if !learned() {
            let all = ctx.client().list::<Pod>(None).await?;
            all.iter().for_each(|pod| self.remember(pod));
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).learned = true;
        }
        Ok(())
    }

    /// An address that no pod has.
    fn address(&self, request: &Request) -> String {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let ip = simulate::pod_ip(memory.next_ip);
            memory.next_ip = memory.next_ip.wrapping_add(1);
            if !memory.taken.contains(&ip) || memory.taken.len() > 65_000 {
                memory.take(request, ip.clone());
                return ip;
            }
        }
    }

    /// Starts the containers, as far as they can be; or says what holds them up.
    async fn start(&self, ctx: &Context, pod: &Pod) -> Result<Action> {
        self.held_up.insert(ctx.request());
        if let Some((need, why)) = needs::unmet(pod, ctx.client()).await? {
            return lacks(ctx, pod, &need, &why).await;
        }
        if let Some(container) = behaviour::unpullable(pod) {
            return cannot_pull(ctx, pod, container).await;
        }
        self.held_up.remove(ctx.request());
        let before = pod.status.as_ref();
        let present = before.and_then(|status| status.pod_ip.clone());
        let ip = match present {
            Some(ip) => ip,
            None => {
                self.learn_addresses(ctx).await?;
                self.address(ctx.request())
            }
        };
        let written = write(ctx, pod, simulate::running(pod, &ip, ctx.now())).await?;
        if pods::phase(pod) == "Pending" {
            let spec = pod.spec.iter();
            let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
            for container in containers {
                let image = container.image.as_deref().unwrap_or_default();
                let pulled =
                    format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
                ctx.event(pod, EventType::Normal, "Pulled", pulled);
                ctx.event(pod, EventType::Normal, "Created", "Container created");
                ctx.event(pod, EventType::Normal, "Started", "Container started");
            }
        }
        Ok(written)
    }

    /// What becomes of a pod that runs.
    async fn go_on(&self, ctx: &Context, pod: &Pod) -> Result<Action> {
        match behaviour::next(pod, ctx.now()) {
            // What others write into the status stays, unless a gate says otherwise.
            Next::Stays if behaviour::has_gates(pod) && behaviour::gates_open(pod) != pods::is_ready(pod) => {
                self.start(ctx, pod).await
            }
            Next::Stays => Ok(Action::await_change()),
            Next::Wait(wait) => Ok(Action::requeue_after(wait)),
            Next::Restarts => self.start(ctx, pod).await,
            Next::Ends(code) => write(ctx, pod, simulate::ended(pod, code, true, ctx.now())).await,
            Next::Crashes(code) => {
                for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                    let message = format!(
                        "Back-off restarting failed container {} in pod {}_{}({})",
                        container.name,
                        meta::name(&pod.metadata),
                        ctx.request().namespace().unwrap_or_default(),
                        meta::uid(&pod.metadata)
                    );
                    ctx.event(pod, EventType::Warning, "BackOff", message);
                }
                // The change of the pod leads back here, to the end of the back-off.
                write(ctx, pod, simulate::ended(pod, code, false, ctx.now())).await
            }
        }
    }
}

async fn write(ctx: &Context, pod: &Pod, status: PodStatus) -> Result<Action> {
    if pod.status.as_ref() != Some(&status) {
        let mut next = pod.clone();
        next.status = Some(status);
        ctx.client().update_status(&next).await?;
    }
    Ok(Action::await_change())
}

/// A Secret or a ConfigMap is missing: said once, and again when it is another.
async fn lacks(ctx: &Context, pod: &Pod, need: &Need, why: &str) -> Result<Action> {
    let status = match &need.place {
        Place::Container(name) => simulate::held_up(pod, Some(name), "CreateContainerConfigError", why, ctx.now()),
        Place::Volume(_) => simulate::held_up(pod, None, "ContainerCreating", "", ctx.now()),
    };
    let (reason, message) = match &need.place {
        Place::Container(_) => ("Failed", format!("Error: {why}")),
        Place::Volume(name) => (
            "FailedMount",
            format!("MountVolume.SetUp failed for volume \"{name}\" : {why}"),
        ),
    };
    if pod.status.as_ref() != Some(&status) {
        ctx.event(pod, EventType::Warning, reason, message);
    }
    write(ctx, pod, status).await
}

/// The image of a container cannot be pulled.
async fn cannot_pull(ctx: &Context, pod: &Pod, container: &Container) -> Result<Action> {
    let image = container.image.as_deref().unwrap_or_default();
    let why = "registries under .invalid do not exist";
    let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {why}");
    let status = simulate::held_up(pod, Some(&container.name), "ImagePullBackOff", &message, ctx.now());
    if pod.status.as_ref() != Some(&status) {
        let events = [
            (EventType::Normal, "Pulling", format!("Pulling image \"{image}\"")),
            (
                EventType::Warning,
                "Failed",
                format!("Failed to pull image \"{image}\": {why}"),
            ),
            (EventType::Warning, "Failed", "Error: ErrImagePull".to_owned()),
            (
                EventType::Normal,
                "BackOff",
                format!("Back-off pulling image \"{image}\""),
            ),
            (EventType::Warning, "Failed", "Error: ImagePullBackOff".to_owned()),
        ];
        for (kind, reason, message) in events {
            ctx.event(pod, kind, reason, message);
        }
    }
    write(ctx, pod, status).await
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
        self.remember(&pod);
        let is_end = meta::is_deleting(&pod.metadata);
        if !is_end && pods::phase(&pod) == "Running" {
            return gone_is_fine(self.go_on(&ctx, &pod).await);
        }
        if !is_end && pods::phase(&pod) != "Pending" {
            return Ok(Action::await_change());
        }
        let wait = self.wait(&pod, is_end);
        if !wait.is_zero() {
            return Ok(Action::requeue_after(wait));
        }
        if !is_end {
            return gone_is_fine(self.start(&ctx, &pod).await);
        }
        if pods::phase(&pod) == "Running" {
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                ctx.event(
                    &*pod,
                    EventType::Normal,
                    "Killing",
                    format!("Stopping container {}", container.name),
                );
            }
        }
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        ctx.client().delete_with(&*pod, at_once).await?;
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.bound.remove(&request);
        self.held_up.remove(&request);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uid) = memory.uids.remove(&request) {
            memory.due.retain(|(other, _), _| *other != uid);
        }
        if let Some(ip) = memory.ips.remove(&request) {
            memory.taken.remove(&ip);
        }
        Ok(Action::await_change())
    }
}

fn gone_is_fine(done: Result<Action>) -> Result<Action> {
    match done {
        Err(error) if error.is_not_found() => Ok(Action::await_change()),
        done => done,
    }
}
