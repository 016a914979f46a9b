//! The built-in controllers: the work of kube-controller-manager and kube-scheduler, as operators on the `kubewright`
//! crate.
//!
//! Each is written with the public API alone, as a user would write an operator. Each keeps its decisions (pure
//! functions, tested with tables) apart from its writes. Their conditions, reasons, messages, events and annotations
//! are those of Kubernetes.
//!
//! # Where to change what
//!
//! | name | file | what |
//! |---|---|---|
//! | `namespace` | `namespace/` | empties namespaces that are deleted |
//! | `garbage-collector` | `garbage_collector/` | owner references: background, foreground, orphan |
//! | `serviceaccount` | `serviceaccount.rs`, `token.rs`, `trust_bundle.rs` | the account `default`, the ConfigMap `kube-root-ca.crt`, tokens in Secrets, from 1.37 on the ClusterTrustBundle |
//! | `replicaset` | `replicaset/` | as many pods as wished |
//! | `replicationcontroller` | `replicaset/kinds.rs` | the same, for the older kind |
//! | `deployment` | `deployment/` | rollouts |
//! | `job` | `job/` | pods that run to their end; finished Jobs go after their time |
//! | `cronjob` | `cronjob/` | Jobs at certain times |
//! | `statefulset` | `statefulset/` | pods with names, an order and claims |
//! | `daemonset` | `daemonset/` | a pod on each node |
//! | `scheduler` | `scheduler/` | gives pods a node |
//! | `node-lifecycle` | `node_lifecycle/` | nodes that fall silent, and taints of nodes that follow from their conditions |
//! | `taint-eviction` | `taint_eviction.rs` | pods leave nodes with taints that they do not tolerate |
//! | `pod-garbage-collector` | `podgc.rs` | pods that no other controller removes |
//! | `volume-protection` | `protection.rs` | claims, volumes and VolumeAttributesClasses in use are not taken away |
//! | `resourcequota` | `resourcequota.rs` | what a namespace uses of its quotas |
//! | `endpoints` | `endpoints/` | EndpointSlices and Endpoints of Services, mirrors of Endpoints made by hand |
//! | `disruption` | `disruption/` | what PodDisruptionBudgets allow |
//! | `persistentvolume-binder` | `volumes/` | claims and volumes, a provisioner that simulates, the default StorageClass |
//! | `certificatesigningrequest` | `certificates.rs` | approves the requests of kubelets, signs, and removes old requests |
//! | `horizontalpodautoscaler` | `horizontalpodautoscaler/` | makes targets as large as their pods need; what pods use is what the metrics API says |
//! | `resourceclaim` | `resourceclaim/` | claims to devices: made from templates for pods, reserved, and cleaned up |
//! | `ephemeral-volume` | `ephemeral_volume.rs` | claims of pods, made from templates in their volumes |
//! | `service-cidr` | `service_cidr.rs` | ServiceCIDRs are ready, and stay while Services have their addresses |
//! | `service-lb` | `service_lb.rs` | addresses of Services of type LoadBalancer, from a range |
//! | `validatingadmissionpolicy-status` | `policy_status.rs` | whether the expressions of policies fit the kinds that they are about |
//! | `storage-version-migrator` | `migration.rs` | objects are written again, in the version in which they are stored now (from 1.37 on) |
//! | `clusterrole-aggregation` | `clusterrole_aggregation.rs` | ClusterRoles that gather the rules of others: view, edit, admin |
//!
//! Shared: `claim` (adoption), `pod_control` (making and deleting pods), `history` (ControllerRevisions), `selecting`
//! (what selects a pod), `intstr`; `kubewright-objects` has what the nodes read with, too. Metrics that users set for
//! autoscalers are in [`metrics`]. What a quota counts is decided in `kubewright_model::quota`, what a certificate
//! request says in `kubewright_model::facts::signing_request`.
//!
//! The tests of each decision are beside it; `crates/cluster/tests/it/as_upstream` has scenarios recorded from the real
//! controllers, `crates/testing/tests/it/controllers` plays each through the faults of the explorer.
//!
//! Invariants: a controller needs the runtime and nothing of the server, so that it runs against any API server; what
//! it cannot know by itself (a certificate, a token, the usage of pods) is handed in by [`Settings`]. Not here: the
//! nodes and their kubelets (`kubewright-nodes`), who runs the controllers (`kubewright-cluster`).

mod certificates;
mod claim;
mod clusterrole_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod ephemeral_volume;
mod garbage_collector;
mod history;
mod horizontalpodautoscaler;
mod intstr;
mod job;
pub mod metrics;
mod migration;
mod namespace;
mod node_lifecycle;
mod pace;
mod pod_control;
mod podgc;
mod policy_status;
mod protection;
mod replicaset;
mod resourceclaim;
mod resourcequota;
mod scheduler;
mod selecting;
mod service_cidr;
mod service_lb;
mod serviceaccount;
mod statefulset;
mod taint_eviction;
mod token;
mod trust_bundle;
mod unstructured;
mod volumes;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubewright::{Clock, Error, Operator, SystemClock};
use kubewright_model::facts::signing_request::SigningRequest;
use kubewright_model::{Minor, ServiceRange};
use kubewright_objects::usage::{Annotated, Meter};

/// The names of these controllers, as `--controllers` takes them.
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
    "ephemeral-volume",
    "service-cidr",
    "service-lb",
    "validatingadmissionpolicy-status",
    "storage-version-migrator",
];

/// Where the certificate of the cluster's authority comes from (PEM); `None` when there is none to publish.
pub type RootCa = Arc<dyn Fn() -> Option<String> + Send + Sync>;

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

/// Makes a certificate (PEM) of a request for these usages and this time, or says why not. It is given the request as it
/// was checked, and reads no text again.
pub type CertificateSource = Arc<dyn Fn(&SigningRequest, &[String], Duration) -> Result<String, String> + Send + Sync>;

/// The settings of the controllers.
#[derive(Clone)]
pub struct Settings {
    /// The version of Kubernetes of the cluster.
    pub minor: Minor,
    /// The certificate of the cluster's authority (PEM), for the ConfigMap `kube-root-ca.crt` of every namespace. It is
    /// asked for when a namespace is looked at. `None`: the ConfigMap is not made.
    pub root_ca: RootCa,
    /// Signs the tokens of Secrets of type `kubernetes.io/service-account-token`. `None`: they get none.
    pub service_account_token: TokenSource,
    /// Signs the requests of CertificateSigningRequests. `None`: there is no authority, and nothing is signed.
    pub certificates: Option<CertificateSource>,
    /// The names that the scheduler goes by: it places the pods that ask for one of them in `spec.schedulerName`, and
    /// leaves all others alone.
    pub schedulers: BTreeSet<String>,
    /// Tells the time of day.
    pub clock: Arc<dyn Clock>,
    /// Whether nodes renew their Leases every ten seconds, and fall silent when they do not. Without, a node is silent
    /// when it is told to be (annotation `kubewright.dev/node: silent`).
    pub heartbeats: bool,
    /// Tells autoscalers what pods use.
    pub meter: Arc<dyn Meter>,
    /// The kinds that the garbage collector watches, and whether they have namespaces. `None`: all that discovery knows.
    pub collected: Option<Collected>,
    /// The addresses of Services of type LoadBalancer. `None`: they get none.
    pub load_balancer_range: Option<ServiceRange>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            minor: Minor::default(),
            root_ca: Arc::new(|| None),
            service_account_token: Arc::new(|_| None),
            certificates: None,
            schedulers: BTreeSet::from([scheduler::DEFAULT.to_owned()]),
            clock: Arc::new(SystemClock),
            heartbeats: true,
            meter: Arc::new(Annotated),
            collected: None,
            load_balancer_range: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("schedulers", &self.schedulers)
            .field("heartbeats", &self.heartbeats)
            .finish_non_exhaustive()
    }
}

pub use garbage_collector::Given as Collected;

/// Adds one of [`NAMES`] to an operator. A name that is not among them adds nothing.
///
/// ```
/// use kubewright::Operator;
/// use kubewright_controllers::{NAMES, Settings, add};
///
/// fn controller_manager() -> Operator {
///     let settings = Settings::default();
///     let operator = Operator::new("kube-controller-manager");
///     NAMES.iter().fold(operator, |operator, name| add(operator, name, &settings))
/// }
/// ```
pub fn add(operator: Operator, name: &str, settings: &Settings) -> Operator {
    let has_later_kinds = settings.minor >= Minor::V37;
    match name {
        "namespace" => operator.controller(namespace::controller()),
        "garbage-collector" => {
            let (clock, given) = (settings.clock.clone(), settings.collected.clone());
            operator.runnable("garbage-collector-controller", move |client, stop| {
                garbage_collector::run(client, clock.clone(), given.clone(), stop)
            })
        }
        "serviceaccount" => {
            let root_ca = || settings.root_ca.clone();
            let operator = operator
                .controller(serviceaccount::accounts())
                .controller(serviceaccount::root_ca(root_ca()))
                .controller(token::controller(settings.service_account_token.clone(), root_ca()));
            match has_later_kinds {
                true => operator.controller(trust_bundle::controller(root_ca())),
                false => operator,
            }
        }
        "replicaset" => operator.controller(replicaset::controller()),
        "replicationcontroller" => operator.controller(replicaset::replication_controller()),
        "deployment" => operator.controller(deployment::controller()),
        "cronjob" => operator.controller(cronjob::controller()),
        "job" => operator
            .controller(job::controller())
            .controller(job::ttl::controller()),
        "statefulset" => operator.controller(statefulset::controller(settings.minor)),
        "daemonset" => operator.controller(daemonset::controller()),
        "scheduler" => operator.controller(scheduler::controller(&settings.schedulers, settings.minor)),
        "volume-protection" => operator
            .controller(protection::claims(settings.minor))
            .controller(protection::volumes())
            .controller(protection::classes()),
        "resourcequota" => operator.controller(resourcequota::controller()),
        "node-lifecycle" => operator.controller(node_lifecycle::controller(settings.heartbeats)),
        "endpoints" => operator
            .controller(endpoints::slices())
            .controller(endpoints::legacy())
            .controller(endpoints::mirrors()),
        "persistentvolume-binder" => operator
            .controller(volumes::claims())
            .controller(volumes::volumes())
            .runnable("default-storage-class", volumes::default_class),
        "certificatesigningrequest" => {
            let operator = operator.controller(certificates::controller(settings.certificates.clone()));
            match has_later_kinds {
                true => operator.controller(certificates::pod_requests()),
                false => operator,
            }
        }
        "horizontalpodautoscaler" => operator.controller(horizontalpodautoscaler::controller(
            settings.meter.clone(),
            settings.minor,
        )),
        "taint-eviction" => operator.controller(taint_eviction::controller()),
        "pod-garbage-collector" => operator.controller(podgc::controller()),
        "disruption" => operator
            .controller(disruption::budgets())
            .controller(disruption::stale()),
        "resourceclaim" => operator
            .controller(resourceclaim::pods())
            .controller(resourceclaim::claims()),
        "ephemeral-volume" => operator.controller(ephemeral_volume::controller()),
        "service-cidr" => operator.controller(service_cidr::controller()),
        "service-lb" => match settings.load_balancer_range {
            Some(range) => operator.controller(service_lb::controller(range)),
            None => operator,
        },
        "validatingadmissionpolicy-status" => operator.controller(policy_status::controller(settings.minor)),
        "storage-version-migrator" if has_later_kinds => operator.controller(migration::controller()),
        "clusterrole-aggregation" => operator.controller(clusterrole_aggregation::controller()),
        _ => operator,
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
