//! The built-in controllers: the work of kube-controller-manager, kube-scheduler and a kubelet, as operators on the
//! `kubewright` crate.
//!
//! Each is written with the public API alone, as a user would write an operator. Each keeps its decisions (pure
//! functions, tested with tables) apart from its writes. Their conditions, reasons, messages, events and annotations
//! are those of Kubernetes.
//!
//! | name | file | what |
//! |---|---|---|
//! | `namespace` | `namespace/` | empties namespaces that are deleted |
//! | `garbage-collector` | `garbage_collector/` | owner references: background, foreground, orphan |
//! | `serviceaccount` | `serviceaccount.rs`, `token.rs` | the account `default`, the ConfigMap `kube-root-ca.crt`, tokens in Secrets |
//! | `replicaset` | `replicaset/` | as many pods as wished |
//! | `replicationcontroller` | `replicaset/kinds.rs` | the same, for the older kind |
//! | `deployment` | `deployment/` | rollouts |
//! | `job` | `job/` | pods that run to their end; finished Jobs go after their time |
//! | `cronjob` | `cronjob/` | Jobs at certain times |
//! | `statefulset` | `statefulset/` | pods with names, an order and claims |
//! | `daemonset` | `daemonset/` | a pod on each node |
//! | `scheduler` | `scheduler/` | gives pods a node |
//! | `node` | `node/` | simulated nodes and their kubelets |
//! | `node-lifecycle` | `node_lifecycle/` | nodes that fall silent, and taints of nodes that follow from their conditions |
//! | `taint-eviction` | `taint_eviction.rs` | pods leave nodes with taints that they do not tolerate |
//! | `pod-garbage-collector` | `podgc.rs` | pods that no other controller removes |
//! | `volume-protection` | `protection.rs` | claims, volumes and VolumeAttributesClasses in use are not taken away |
//! | `resourcequota` | `resourcequota.rs` | what a namespace uses of its quotas |
//! | `endpoints` | `endpoints/` | EndpointSlices and Endpoints of Services, mirrors of Endpoints made by hand |
//! | `service-proxy` | `service_proxy.rs` | where pods are processes: connections to Services reach their endpoints |
//! | `disruption` | `disruption/` | what PodDisruptionBudgets allow |
//! | `persistentvolume-binder` | `volumes/` | claims and volumes, a provisioner that simulates, the default StorageClass |
//! | `certificatesigningrequest` | `certificates.rs` | approves the requests of kubelets, signs, and removes old requests |
//! | `horizontalpodautoscaler` | `horizontalpodautoscaler/` | makes targets as large as their pods need; what pods use is what the metrics API says |
//! | `resourceclaim` | `resourceclaim/` | claims to devices: made from templates for pods, reserved, and cleaned up |
//! | `clusterrole-aggregation` | `clusterrole_aggregation.rs` | ClusterRoles that gather the rules of others: view, edit, admin |
//!
//! Shared: `claim` (adoption), `pod_control` (making and deleting pods), `history` (ControllerRevisions), `pods`,
//! `selecting` (what selects a pod), `intstr`; and `objects` outside, which processes read with, too.

mod bound;
mod certificates;
mod claim;
mod clusterrole_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod disruption_target;
mod endpoints;
mod garbage_collector;
mod history;
mod horizontalpodautoscaler;
mod intstr;
mod job;
mod namespace;
mod node;
mod node_lifecycle;
mod pod_control;
mod podgc;
mod pods;
mod protection;
mod replicaset;
mod resourceclaim;
mod resourcequota;
mod scheduler;
mod selecting;
mod service_proxy;
mod serviceaccount;
mod statefulset;
mod taint_eviction;
mod token;
mod tolerations;
mod unstructured;
mod volumes;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::{Clock, Error, ManagerBuilder, Request, SystemClock};

pub use self::node::{Behaviours, Nodes, Stages};
use crate::meter::Meter;
pub use crate::processes::Processes;

/// The names of the built-in controllers, as `--controllers` takes them.
pub const NAMES: &[&str] = &[
    "namespace",
    "garbage-collector",
    "serviceaccount",
    "replicaset",
    "replicationcontroller",
    "deployment",
    "job",
    "cronjob",
    "statefulset",
    "daemonset",
    "scheduler",
    "node",
    "node-lifecycle",
    "volume-protection",
    "resourcequota",
    "clusterrole-aggregation",
    "endpoints",
    "disruption",
    "taint-eviction",
    "pod-garbage-collector",
    "persistentvolume-binder",
    "certificatesigningrequest",
    "horizontalpodautoscaler",
    "resourceclaim",
    "service-proxy",
];

/// The ClusterRole with the rights that all of them together need, as YAML.
pub const ROLE: &str = include_str!("../../data/controllers-role.yaml");

/// Where the certificate of the cluster's authority comes from (PEM); `None` when there is none to publish.
pub(crate) type RootCa = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A token that a Secret of type `kubernetes.io/service-account-token` lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretToken<'a> {
    /// Namespace of both.
    pub namespace: &'a str,
    /// Name of the service account.
    pub account: &'a str,
    /// Its uid.
    pub account_uid: &'a str,
    /// Name of the Secret.
    pub secret: &'a str,
}

/// Where signed tokens come from; `None` when there is no key.
pub type TokenSource = Arc<dyn Fn(&SecretToken<'_>) -> Option<String> + Send + Sync>;

/// Makes a certificate (PEM) of a request (PEM) for these usages and this time, or says why not.
pub type CertificateSource = Arc<dyn Fn(&[u8], &[String], Duration) -> Result<String, String> + Send + Sync>;

/// The settings of the built-in controllers.
#[derive(Clone)]
pub struct Settings {
    /// The certificate of the cluster's authority (PEM), for the ConfigMap `kube-root-ca.crt` of every namespace. It is
    /// asked for when a namespace is looked at. `None`: the ConfigMap is not made.
    pub root_ca: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// Signs the tokens of Secrets of type `kubernetes.io/service-account-token`. `None`: they get none.
    pub service_account_token: TokenSource,
    /// Signs the requests of CertificateSigningRequests. `None`: there is no authority, and nothing is signed.
    pub certificates: Option<CertificateSource>,
    /// The simulated nodes that the cluster has from its start.
    pub nodes: Nodes,
    /// The names that the scheduler goes by: it places the pods that ask for one of them in `spec.schedulerName`, and
    /// leaves all others alone.
    pub schedulers: BTreeSet<String>,
    /// Tells the time of day.
    pub clock: Arc<dyn Clock>,
    /// Whether simulated nodes renew their Leases every ten seconds, as kubelets do, and fall silent when they do not.
    /// Without, a node is silent when it is told to be (annotation `kubewright.dev/node: silent`).
    pub heartbeats: bool,
    /// How pods with certain labels behave.
    pub behaviours: Behaviours,
    /// The stages of pods, in kwok's vocabulary.
    pub stages: Stages,
    /// Runs pods that are processes; `None`: all pods are simulated.
    pub processes: Option<Processes>,
    /// How long a pod on a simulated node takes from being bound to being Ready, if nothing else says so. Default no
    /// time at all, as in kwok: a watch sees it Pending, then bound, then Running all the same.
    pub pod_start: Duration,
    /// How long a pod on a simulated node takes from being deleted to being gone.
    pub pod_stop: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            root_ca: Arc::new(|| None),
            service_account_token: Arc::new(|_| None),
            certificates: None,
            clock: Arc::new(SystemClock),
            heartbeats: true,
            schedulers: BTreeSet::from([scheduler::DEFAULT.to_owned()]),
            nodes: Nodes::default(),
            behaviours: Behaviours::default(),
            stages: Stages::default(),
            processes: None,
            pod_start: Duration::ZERO,
            pod_stop: Duration::from_millis(50),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings {
            root_ca: _,
            service_account_token: _,
            certificates: _,
            clock: _,
            heartbeats,
            behaviours: _,
            stages: _,
            processes: _,
            nodes,
            schedulers,
            pod_start,
            pod_stop,
        } = self;
        f.debug_struct("Settings")
            .field("nodes", nodes)
            .field("schedulers", schedulers)
            .field("heartbeats", heartbeats)
            .field("pod_start", pod_start)
            .field("pod_stop", pod_stop)
            .finish_non_exhaustive()
    }
}

/// Adds one of [`NAMES`] to a manager. A name that is not among them adds nothing.
///
/// ```
/// use kubewright::{Manager, kube};
/// use kubewright_cluster::controllers::{self, NAMES, Settings};
///
/// fn manager(client: kube::Client) -> kubewright::Result<Manager> {
///     let settings = Settings::default();
///     let manager = Manager::builder(client).name("kube-controller-manager");
///     NAMES.iter().fold(manager, |manager, name| controllers::add(manager, name, &settings)).build()
/// }
/// ```
pub fn add(manager: ManagerBuilder, name: &str, settings: &Settings) -> ManagerBuilder {
    match name {
        "namespace" => manager.add(namespace::controller()),
        "garbage-collector" => {
            let clock = settings.clock.clone();
            manager.runnable("garbage-collector-controller", move |client, stop| {
                garbage_collector::run(client, clock.clone(), stop)
            })
        }
        "serviceaccount" => manager
            .add(serviceaccount::accounts())
            .add(serviceaccount::root_ca(settings.root_ca.clone()))
            .add(token::controller(
                settings.service_account_token.clone(),
                settings.root_ca.clone(),
            )),
        "replicaset" => manager.add(replicaset::controller()),
        "replicationcontroller" => manager.add(replicaset::replication_controller()),
        "deployment" => manager.add(deployment::controller()),
        "cronjob" => manager.add(cronjob::controller()),
        "job" => manager.add(job::controller()).add(job::ttl::controller()),
        "statefulset" => manager.add(statefulset::controller()),
        "daemonset" => manager.add(daemonset::controller()),
        "scheduler" => manager.add(scheduler::controller(&settings.schedulers)),
        "node" => {
            let pace = node::Pace {
                start: settings.pod_start,
                stop: settings.pod_stop,
            };
            let nodes = Arc::new(settings.nodes.clone());
            let manager = match &settings.processes {
                Some(_) => manager.runnable("runtime-classes", |client, _| node::register_classes(client)),
                None => manager,
            };
            manager
                .add(node::kubelet(
                    pace,
                    settings.behaviours.clone(),
                    settings.stages.clone(),
                    settings.processes.clone(),
                ))
                .add(node::keeper(nodes.clone(), settings.heartbeats))
                .add(node::evictor(Meter::new(settings.processes.clone())))
                .runnable("node", move |client, _| node::register(nodes.clone(), client))
                .runnable("metrics", |client, _| node::register_metrics(client))
        }
        "volume-protection" => manager
            .add(protection::claims())
            .add(protection::volumes())
            .add(protection::classes()),
        "resourcequota" => manager.add(resourcequota::controller()),
        "node-lifecycle" => manager.add(node_lifecycle::controller(settings.heartbeats)),
        "endpoints" => manager
            .add(endpoints::slices())
            .add(endpoints::legacy())
            .add(endpoints::mirrors()),
        "persistentvolume-binder" => manager
            .add(volumes::claims())
            .add(volumes::volumes())
            .runnable("default-storage-class", volumes::default_class),
        "certificatesigningrequest" => manager.add(certificates::controller(settings.certificates.clone())),
        "horizontalpodautoscaler" => manager.add(horizontalpodautoscaler::controller(Meter::new(
            settings.processes.clone(),
        ))),
        "taint-eviction" => manager.add(taint_eviction::controller()),
        "pod-garbage-collector" => manager.add(podgc::controller()),
        "service-proxy" => match &settings.processes {
            Some(processes) => manager.add(service_proxy::controller(processes.clone())),
            None => manager,
        },
        "disruption" => manager.add(disruption::budgets()).add(disruption::stale()),
        "resourceclaim" => manager.add(resourceclaim::pods()).add(resourceclaim::claims()),
        "clusterrole-aggregation" => manager.add(clusterrole_aggregation::controller()),
        _ => manager,
    }
}

/// Keys that wait for an object of another kind: the answer to a `watches` of that kind. Cheap to clone.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<BTreeSet<Request>>>);

impl Waiting {
    fn set(&self) -> MutexGuard<'_, BTreeSet<Request>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether it is new.
    fn insert(&self, request: &Request) -> bool {
        self.set().insert(request.clone())
    }

    /// Answers whether it was there.
    fn remove(&self, request: &Request) -> bool {
        self.set().remove(request)
    }

    fn all(&self) -> Vec<Request> {
        self.set().iter().cloned().collect()
    }
}

/// The API server refuses to create anything in a namespace that is being deleted, or gone: not a failure, there is
/// nothing left to do.
fn is_namespace_going(error: &Error) -> bool {
    let details = error.status().and_then(|status| status.details.as_ref());
    details.is_some_and(|details| {
        let gone = error.is_not_found() && details.kind == "namespaces";
        gone || details
            .causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    })
}

/// The API server's own sentence, as conditions and events quote it; of other errors the whole text.
fn plain(error: &Error) -> String {
    match error.status() {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => error.to_string(),
    }
}
