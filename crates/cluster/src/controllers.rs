//! The controllers of a cluster: those of `kubewright-controllers` and the nodes of `kubewright-nodes`, under their names
//! and with one set of settings.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubewright::{Clock, Entropy, Operator};
use kubewright_apiserver::{Minor, ServiceRange};
pub use kubewright_controllers::{CertificateSource, Collected, RootCa, SecretToken, TokenSource};
pub use kubewright_nodes::{Behaviours, Nodes, Processes, Stages};

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
    "ephemeral-volume",
    "service-cidr",
    "service-lb",
    "validatingadmissionpolicy-status",
    "storage-version-migrator",
    "service-proxy",
];

/// The ClusterRole with the rights that all of them together need, as YAML.
pub const ROLE: &str = include_str!("../data/controllers-role.yaml");

/// The settings of the built-in controllers.
#[derive(Clone)]
pub struct Settings {
    /// The version of Kubernetes of the cluster. [`Cluster`](crate::Cluster) sets that which it serves.
    pub minor: Minor,
    /// The certificate of the cluster's authority (PEM), for the ConfigMap `kube-root-ca.crt` of every namespace. It is
    /// asked for when a namespace is looked at. `None`: the ConfigMap is not made.
    pub root_ca: RootCa,
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
    /// Makes random numbers.
    pub entropy: Entropy,
    /// Whether simulated nodes renew their Leases every ten seconds, as kubelets do, and fall silent when they do not.
    /// Without, a node is silent when it is told to be (annotation `kubewright.dev/node: silent`).
    pub heartbeats: bool,
    /// How pods with certain labels behave.
    pub behaviours: Behaviours,
    /// The stages of objects, in kwok's vocabulary.
    pub stages: Stages,
    /// Whether the definition of stages is installed, so that they can be objects.
    pub stage_objects: bool,
    /// Runs pods that are processes; `None`: all pods are simulated.
    pub processes: Option<Processes>,
    /// How long a pod on a simulated node takes from being bound to being Ready, if nothing else says so. Default no
    /// time at all, as in kwok: a watch sees it Pending, then bound, then Running all the same.
    pub pod_start: Duration,
    /// How long a pod on a simulated node takes from being deleted to being gone.
    pub pod_stop: Duration,
    /// The kinds that the garbage collector watches. `None`: all that are served.
    pub collected: Option<Collected>,
    /// The addresses of Services of type LoadBalancer (`--load-balancer-range`). `None`: they get none.
    pub load_balancer_range: Option<ServiceRange>,
}

impl Default for Settings {
    fn default() -> Settings {
        let of_controllers = kubewright_controllers::Settings::default();
        Settings {
            minor: Minor::default(),
            root_ca: of_controllers.root_ca,
            service_account_token: of_controllers.service_account_token,
            certificates: of_controllers.certificates,
            clock: of_controllers.clock,
            entropy: Entropy::default(),
            heartbeats: of_controllers.heartbeats,
            schedulers: of_controllers.schedulers,
            nodes: Nodes::default(),
            behaviours: Behaviours::default(),
            stages: Stages::default(),
            stage_objects: false,
            processes: None,
            pod_start: Duration::ZERO,
            pod_stop: Duration::from_millis(50),
            collected: None,
            load_balancer_range: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("nodes", &self.nodes)
            .field("schedulers", &self.schedulers)
            .field("heartbeats", &self.heartbeats)
            .field("pod_start", &self.pod_start)
            .field("pod_stop", &self.pod_stop)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn of_controllers(&self) -> kubewright_controllers::Settings {
        kubewright_controllers::Settings {
            minor: self.minor,
            root_ca: self.root_ca.clone(),
            service_account_token: self.service_account_token.clone(),
            certificates: self.certificates.clone(),
            schedulers: self.schedulers.clone(),
            clock: self.clock.clone(),
            heartbeats: self.heartbeats,
            meter: kubewright_nodes::meter(self.processes.clone()),
            collected: self.collected.clone(),
            load_balancer_range: self.load_balancer_range,
        }
    }

    fn of_nodes(&self) -> kubewright_nodes::Settings {
        kubewright_nodes::Settings {
            minor: self.minor,
            nodes: self.nodes.clone(),
            heartbeats: self.heartbeats,
            behaviours: self.behaviours.clone(),
            stages: self.stages.clone(),
            stage_objects: self.stage_objects,
            entropy: self.entropy.clone(),
            processes: self.processes.clone(),
            pod_start: self.pod_start,
            pod_stop: self.pod_stop,
        }
    }
}

/// Adds one of [`NAMES`] to an operator. A name that is not among them adds nothing.
///
/// ```
/// use kubewright::Operator;
/// use kubewright_cluster::controllers::{self, NAMES, Settings};
///
/// fn controller_manager() -> Operator {
///     let settings = Settings::default();
///     let operator = Operator::new("kube-controller-manager");
///     NAMES.iter().fold(operator, |operator, name| controllers::add(operator, name, &settings))
/// }
/// ```
pub fn add(operator: Operator, name: &str, settings: &Settings) -> Operator {
    let operator = kubewright_controllers::add(operator, name, &settings.of_controllers());
    kubewright_nodes::add(operator, name, &settings.of_nodes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_has_its_place() {
        let all: BTreeSet<_> = NAMES.iter().collect();
        let added: BTreeSet<_> = kubewright_controllers::NAMES
            .iter()
            .chain(kubewright_nodes::NAMES)
            .collect();
        assert_eq!(all, added);
    }
}
