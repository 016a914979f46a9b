//! Simulated nodes and their kubelets: pods that are bound to them pass through the states that a kubelet writes, and
//! no container is started.
//!
//! `fleet` says which nodes there are, `keeper` keeps them. The annotations of a container's pod say how it behaves
//! (`behaviour`), those of the pod itself or of all with certain labels (`rules`), or stages do (`crate::stages`); from this
//! follow the life of a container (`container`) and that of a pod (`life`); `needs` finds the objects that a pod lacks.
//! A node that is short of something evicts pods (`evictor`, decided in `eviction`). Where the cluster was started so,
//! the containers of a pod really run (`running`, `live`; as what: `processes`).
//!
//! Invariants: nodes that another program simulates are left alone, and so are their pods. Fields of a pod's status
//! that other clients write stay until the simulation has another value for them. A silent node does nothing.

mod addresses;
mod admission;
mod behaviour;
mod container;
mod ephemeral;
mod eviction;
mod evictor;
mod fleet;
mod keeper;
mod lease;
mod life;
mod live;
mod metrics;
mod needs;
mod resize;
mod rules;
mod running;
mod runtime;
mod simulated;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::kube::api::DeleteParams;
use kubewright::kube::core::{DynamicObject, PartialObjectMeta};
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result, Scope, Watch, api_resource};
use kubewright_objects::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use kubewright_objects::api::batch::v1::Job;
use kubewright_objects::api::core::v1::{ConfigMap, Namespace, Node, Pod, PodStatus, Secret};
use tokio::time::Instant;

use self::addresses::Addresses;
use self::container::{ContainerContext, Observations};
pub(crate) use self::evictor::controller as evictor;
pub use self::fleet::Nodes;
use self::fleet::State;
pub(crate) use self::fleet::ip;
pub(crate) use self::keeper::{controller as keeper, register};
use self::life::Place;
pub(crate) use self::metrics::register as register_metrics;
pub use self::rules::{Behaviours, command_result};
pub(crate) use self::running::register_classes;
use self::simulated::Simulated;
use crate::processes::{self, Processes};
use crate::stages::{self, Player, Progress};
use kubewright_objects::{Waiting, pods};
use kubewright_objects::{meta, node};

/// The index of pods by the node that they are bound to, whether it is known yet or not.
const ON_NODE: &str = "kubelet/node";

/// How long things take on a node.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// From binding to Ready.
    pub(crate) start: Duration,
    /// From the request to delete to the end.
    pub(crate) stop: Duration,
}

/// The kubelets of all simulated nodes.
pub(crate) struct Kubelet {
    pace: Pace,
    behaviours: Behaviours,
    stages: Arc<Player>,
    memory: Mutex<Memory>,
    addresses: Mutex<Addresses>,
    /// Runs pods that are processes.
    processes: Option<Processes>,
    /// Pods that wait for a Secret or a ConfigMap.
    held_up: Waiting,
    /// Pods that wait for room to grow.
    cramped: Waiting,
}

#[derive(Default)]
struct Memory {
    pods: BTreeMap<Request, OfPod>,
    /// The images that a node has.
    images: BTreeSet<(String, String)>,
}

/// The memory of a pod; it may be forgotten at any time.
#[derive(Default)]
struct OfPod {
    uid: String,
    /// When it starts, and when its end is over.
    start: Option<Instant>,
    end: Option<Instant>,
    /// The digest of the last written status (`life::mark`).
    mark: Option<String>,
    /// The failures of probes that were told.
    failing: Vec<(String, String)>,
    /// The annotations without an effect of which it was told.
    misunderstood: Vec<String>,
}

/// The kubelets as a controller of pods.
pub(crate) fn kubelet(
    pace: Pace,
    behaviours: Behaviours,
    stages: Arc<Player>,
    processes: Option<Processes>,
) -> Controller {
    let changed = stages.waker("v1", "Pod");
    let woken = processes.as_ref().map(Processes::source);
    let kubelet = Kubelet {
        processes,
        pace,
        behaviours,
        stages,
        memory: Mutex::default(),
        addresses: Mutex::default(),
        held_up: Waiting::default(),
        cramped: Waiting::default(),
    };
    let (for_secret, for_map) = (kubelet.held_up.clone(), kubelet.held_up.clone());
    let for_room = kubelet.cramped.clone();
    let controller = Controller::of(kubelet).named("kubelet").source(changed.source());
    let controller = match woken {
        Some(woken) => controller.source(woken),
        None => controller,
    };
    controller
        // A pod can be bound before its node is known, and a node that was silent begins to talk again.
        .source(Watch::<Node>::new().by_index(pods::node_names, node::names))
        .indexes(ON_NODE, pods::node_names)
        .watches::<Pod>(move |_| for_room.all())
        // What pods and those who made them are told to be (`rules.rs`).
        .reads::<Namespace>(Scope::all())
        .reads::<ReplicaSet>(Scope::all())
        .reads::<StatefulSet>(Scope::all())
        .reads::<DaemonSet>(Scope::all())
        .reads::<Job>(Scope::all())
        .watches::<Secret>(move |secret| near(&for_secret, secret.metadata.namespace.as_deref()))
        // There are many, and few pods wait for one: nothing of them is kept but the metadata, as the garbage collector
        // keeps them.
        .source(
            Watch::<PartialObjectMeta<DynamicObject>>::dynamic(&api_resource::<ConfigMap>())
                .map(move |map| near(&for_map, map.metadata.namespace.as_deref())),
        )
        .concurrency(4)
}

/// The waiting pods of this namespace.
fn near(waiting: &Waiting, namespace: Option<&str>) -> Vec<Request> {
    let mut all = waiting.all();
    all.retain(|request| request.namespace() == namespace);
    all
}

impl Kubelet {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing under this lock can panic half way through a change.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the memory of a pod.
    fn with<T>(&self, pod: &Pod, look: impl FnOnce(&mut OfPod) -> T) -> T {
        let mut memory = self.memory();
        let of_pod = memory.pods.entry(Request::of(pod)).or_default();
        if of_pod.uid != meta::uid(&pod.metadata) {
            *of_pod = OfPod {
                uid: meta::uid(&pod.metadata).to_owned(),
                ..OfPod::default()
            };
        }
        look(of_pod)
    }

    /// The processes of a pod that is not simulated.
    fn processes_of(&self, pod: &Pod) -> Option<&Processes> {
        self.processes.as_ref().filter(|processes| processes.runs(pod))
    }

    /// The address of a pod, which it keeps. Before the first is given, those are learned that pods have from an
    /// earlier life of the cluster.
    async fn address(&self, ctx: &Context, pod: &Pod) -> Result<String> {
        let present = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        if let Some(ip) = present {
            self.addresses().take(ctx.request(), &ip);
            return Ok(ip);
        }
        if !self.addresses().learned {
            let all = ctx.client().list::<Pod>(None).await?;
            let mut addresses = self.addresses();
            for pod in &all {
                if let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()) {
                    addresses.take(&Request::of(&**pod), ip);
                }
            }
            addresses.learned = true;
        }
        let loopback = self.processes_of(pod).map(Processes::network);
        Ok(self.addresses().give(ctx.request(), loopback))
    }

    /// The obstacles to a start: by container; and whether a volume cannot be mounted, which keeps all of them.
    async fn obstacles(
        &self,
        ctx: &Context,
        pod: &Pod,
    ) -> Result<(BTreeMap<String, (String, String)>, Option<String>)> {
        let mut obstacles = BTreeMap::new();
        // Before the Secrets are read: one that comes afterwards finds the pod among those that wait.
        self.held_up.insert(ctx.request());
        let unmet = needs::unmet(pod, ctx.client()).await?;
        if unmet.is_empty() {
            self.held_up.remove(ctx.request());
        }
        let mut mount = None;
        for (need, why) in unmet {
            match need.place {
                needs::Place::Container(name) => {
                    obstacles
                        .entry(name)
                        .or_insert(("CreateContainerConfigError".to_owned(), why));
                }
                needs::Place::Volume(name) => {
                    mount.get_or_insert(format!("MountVolume.SetUp failed for volume \"{name}\" : {why}"));
                }
            }
        }
        let spec = pod.spec.iter();
        for container in spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers)) {
            if let Some(why) = needs::breaks_non_root(pod, container) {
                let config = || ("CreateContainerConfigError".to_owned(), why);
                obstacles.entry(container.name.clone()).or_insert_with(config);
            }
            let image = container.image.as_deref().unwrap_or_default();
            let why = match self.processes_of(pod) {
                Some(processes) => processes.cannot_pull(image),
                None => (!behaviour::can_pull(image)).then(|| NO_SUCH_REGISTRY.to_owned()),
            };
            if let Some(why) = why {
                let message = format!("Back-off pulling image \"{image}\": {PULL_FAILED}{why}");
                obstacles.insert(container.name.clone(), ("ImagePullBackOff".to_owned(), message));
            }
        }
        Ok((obstacles, mount))
    }

    /// Takes a pod as far as it comes by now.
    async fn go_on(&self, ctx: &Context, pod: &Pod, node: &Node) -> Result<Action> {
        let (obstacles, mount) = self.obstacles(ctx, pod).await?;
        let ip = match mount {
            Some(_) => String::new(),
            None => self.address(ctx, pod).await?,
        };
        let (name, host) = (meta::name(&node.metadata).to_owned(), fleet::address(node));
        let has_image = |image: &str| self.memory().images.contains(&(name.clone(), image.to_owned()));
        let mut notes = Observations::default();
        let resized = self.resized(ctx, pod, node, &mut notes).await?;
        let scene = ContainerContext {
            pod: resized.as_ref().unwrap_or(pod),
            now: ctx.now(),
            obstacles: &obstacles,
            runtime: &Simulated { has_image: &has_image },
        };
        let place = Place {
            ip: &ip,
            host: &host,
            unmounted: mount.is_some(),
        };
        let status = life::go_on(&scene, &place, &mut notes);
        let mark = life::mark(pod, &status);
        if self.with(pod, |of_pod| of_pod.mark.as_ref() != Some(&mark)) {
            hindrances(ctx, pod, &status, mount.as_deref());
            write(ctx, pod, status).await?;
            self.with(pod, |of_pod| of_pod.mark = Some(mark));
        }
        self.tell(ctx, pod, &name, notes.events, notes.pulled, notes.failing);
        Ok(notes.again.map_or_else(Action::await_change, Action::requeue_after))
    }

    /// Sends the events, and remembers the messages and pulled images.
    fn tell(
        &self,
        ctx: &Context,
        pod: &Pod,
        node: &str,
        events: Vec<container::PodEvent>,
        pulled: Vec<String>,
        failing: Vec<(String, String)>,
    ) {
        let before = self.with(pod, |of_pod| std::mem::replace(&mut of_pod.failing, failing.clone()));
        for (_, why) in failing.iter().filter(|one| !before.contains(one)) {
            ctx.event(pod, EventType::Warning, "Unhealthy", why);
        }
        for (kind, reason, message) in events {
            ctx.event(pod, kind, reason, message);
        }
        self.memory()
            .images
            .extend(pulled.into_iter().map(|image| (node.to_owned(), image)));
    }

    /// Tells of annotations that say nothing, when they are new.
    fn tell_misunderstood(&self, ctx: &Context, pod: &Pod) {
        let found = behaviour::misunderstood(pod);
        let before = self.with(pod, |of_pod| {
            std::mem::replace(&mut of_pod.misunderstood, found.clone())
        });
        for warning in found.iter().filter(|warning| !before.contains(warning)) {
            ctx.event(pod, EventType::Warning, "Misunderstood", warning);
        }
    }

    /// What the stages do with a pod; nothing when none fits it, and none has played for it.
    async fn staged(&self, ctx: &Context, pod: &Pod, node: &Node) -> Result<Option<Action>> {
        if !self.stages.is_for("v1", "Pod") {
            return Ok(None);
        }
        let (name, host) = (meta::name(&node.metadata), fleet::address(node));
        let ip = self.address(ctx, pod).await?;
        let place = stages::Place {
            node: Some(name),
            node_ip: &|other| if other == name { host.clone() } else { fleet::ip(other) },
            pod_ip: &|| ip.clone(),
        };
        let seen = serde_json::to_value(pod)?;
        Ok(
            match self.stages.advance(ctx, &api_resource::<Pod>(), &seen, &place).await? {
                Progress::Wait(wait) => Some(Action::requeue_after(wait)),
                Progress::Done => Some(Action::await_change()),
                // A pod of which a stage has said the status is the stages' from then on; but one that is deleted ends as others
                // do, unless a stage plays that, too.
                Progress::Free { staged } => (staged && !meta::is_deleting(&pod.metadata)).then(Action::await_change),
            },
        )
    }

    /// Ends a pod that is deleted: its containers are told, and when the last has ended or the grace is over, it goes.
    async fn finish(&self, ctx: &Context, pod: &Pod, node: &Node) -> Result<Action> {
        let now = Instant::now();
        let (is_new, end) = self.with(pod, |of_pod| {
            let is_new = of_pod.end.is_none();
            (is_new, *of_pod.end.get_or_insert(now + self.pace.stop))
        });
        let is_over = pods::is_finished(pod);
        let running = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        for container in running.filter(|_| is_new && !is_over && pods::phase(pod) == "Running") {
            ctx.event(
                pod,
                EventType::Normal,
                "Killing",
                format!("Stopping container {}", container.name),
            );
        }
        let takes = if is_over {
            Duration::ZERO
        } else {
            life::ends_in(pod, ctx.now())
        };
        let wait = end.saturating_duration_since(now).max(takes);
        if !wait.is_zero() {
            return Ok(Action::requeue_after(wait));
        }
        // As a kubelet does: a watch sees that the pod has ended and is not ready, and only then that it goes.
        if !is_over && pods::phase(pod) == "Running" {
            let host = fleet::address(node);
            let scene = ContainerContext::clear(pod, ctx.now());
            let place = Place::of("", &host);
            let status = life::ended(&scene, &place);
            match write(ctx, pod, status).await {
                // Another client removed it at once.
                Err(error) if error.is_not_found() => return Ok(Action::await_change()),
                written => written?,
            }
        }
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        ctx.client().delete_with(pod, at_once).await?;
        Ok(Action::await_change())
    }
}

/// Stands before the reason why an image cannot be pulled.
const PULL_FAILED: &str = "ErrImagePull: ";
const NO_SUCH_REGISTRY: &str = "registries under .invalid do not exist";

/// Reports the obstacles of a pod, when they are new.
fn hindrances(ctx: &Context, pod: &Pod, next: &PodStatus, mount: Option<&str>) {
    let waits = |status: Option<&PodStatus>| -> BTreeMap<String, (String, String)> {
        let init = status
            .into_iter()
            .flat_map(|status| status.init_container_statuses.iter().flatten());
        let main = status
            .into_iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let waiting = init.chain(main).filter_map(|one| {
            let waiting = one.state.as_ref()?.waiting.as_ref()?;
            Some((
                one.name.clone(),
                (waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()),
            ))
        });
        waiting.collect()
    };
    let before = waits(pod.status.as_ref());
    if let Some(mount) = mount {
        ctx.event(pod, EventType::Warning, "FailedMount", mount);
    }
    for (name, (reason, message)) in waits(Some(next)) {
        if before.get(&name) == Some(&(reason.clone(), message.clone())) {
            continue;
        }
        match reason.as_str() {
            "CreateContainerConfigError" => ctx.event(pod, EventType::Warning, "Failed", format!("Error: {message}")),
            "ImagePullBackOff" => {
                let why = message.split_once(PULL_FAILED).map_or("", |(_, why)| why);
                cannot_pull(ctx, pod, &name, why);
            }
            _ => {}
        }
    }
}

/// The image of a container cannot be pulled.
fn cannot_pull(ctx: &Context, pod: &Pod, name: &str, why: &str) {
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let image = all
        .find(|container| container.name == name)
        .and_then(|container| container.image.as_deref());
    let image = image.unwrap_or_default();
    let pulling = format!("Pulling image \"{image}\"");
    let failed = format!("Failed to pull image \"{image}\": {why}");
    let back_off = format!("Back-off pulling image \"{image}\"");
    for (kind, reason, message) in [
        (EventType::Normal, "Pulling", pulling.as_str()),
        (EventType::Warning, "Failed", &failed),
        (EventType::Warning, "Failed", "Error: ErrImagePull"),
        (EventType::Normal, "BackOff", &back_off),
        (EventType::Warning, "Failed", "Error: ImagePullBackOff"),
    ] {
        ctx.event(pod, kind, reason, message);
    }
}

async fn write(ctx: &Context, pod: &Pod, status: PodStatus) -> Result<()> {
    if pod.status.as_ref() != Some(&status) {
        let mut next = pod.clone();
        next.status = Some(status);
        ctx.client().update_status(&next).await?;
    }
    Ok(())
}

impl Reconciler for Kubelet {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let Some(name) = pods::node_of(&pod) else {
            return Ok(Action::await_change());
        };
        let Some(node) = ctx
            .client()
            .get::<Node>(None, name)
            .await?
            .filter(|node| node::is_simulated(node))
        else {
            return Ok(Action::await_change());
        };
        if fleet::state(&node) == State::Silent {
            return Ok(Action::await_change());
        }
        if self.refuse(&ctx, &pod, &node).await? {
            return Ok(Action::await_change());
        }
        if let Some(processes) = self.processes_of(&pod) {
            return gone_is_fine(self.run(processes, &ctx, &pod, &node).await);
        }
        if processes::class(&pod) == Some(processes::CLASS) {
            // Of a cluster that was started so before.
            let why = "Failed to create pod sandbox: no runtime for \"process\" is configured: start the cluster with --runtime process";
            ctx.event(&*pod, EventType::Warning, "FailedCreatePodSandBox", why);
            return Ok(Action::await_change());
        }
        if let Some(action) = self.staged(&ctx, &pod, &node).await? {
            return Ok(action);
        }
        let pod = rules::told(pod, &node, &self.behaviours, ctx.client()).await?;
        if meta::is_deleting(&pod.metadata) {
            return gone_is_fine(self.finish(&ctx, &pod, &node).await);
        }
        self.tell_misunderstood(&ctx, &pod);
        let word = format!("{}{}", behaviour::PREFIX, behaviour::HANDS_OFF);
        let is_ours = meta::annotation(&pod.metadata, &word) != Some("true");
        if !is_ours || pods::is_finished(&pod) {
            return Ok(Action::await_change());
        }
        if !node::is_ready(&node) {
            // Changes of its pods meanwhile are put right when it is ready again.
            self.with(&pod, |of_pod| of_pod.mark = None);
            return Ok(Action::await_change());
        }
        if pods::phase(&pod) == "Pending" {
            let now = Instant::now();
            let start = self.with(&pod, |of_pod| *of_pod.start.get_or_insert(now + self.pace.start));
            let wait = start.saturating_duration_since(now);
            if !wait.is_zero() {
                return Ok(Action::requeue_after(wait));
            }
        }
        gone_is_fine(self.go_on(&ctx, &pod, &node).await)
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.held_up.remove(&request);
        self.cramped.remove(&request);
        let known = self.memory().pods.remove(&request);
        if let (Some(processes), Some(known)) = (&self.processes, known) {
            processes.forget(&known.uid);
        }
        self.addresses().give_back(&request);
        self.stages.forget("Pod", &request);
        Ok(Action::await_change())
    }
}

fn gone_is_fine(done: Result<Action>) -> Result<Action> {
    match done {
        Err(error) if error.is_not_found() => Ok(Action::await_change()),
        done => done,
    }
}
