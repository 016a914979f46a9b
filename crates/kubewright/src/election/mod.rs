//! Leader election: of several replicas of an operator, one acts. And elections of several Leases, for `sharding/`.
//!
//! The engine's `sharding` decides, by an `election` for each Lease; `elections.rs` obeys, `request.rs` does the
//! requests, `watch.rs` follows the Leases, `lease.rs` reads and writes them, `leader.rs` names the one of a leader. The guarded work holds what `src/term.rs` has. Invariants, beside the engine's LE1–LE7:
//! M1 guarded work runs only within a term; M4 and LE3 a Lease is given back only when everything that worked
//! in the term has ended, and taken again only then, or when others could have taken it as well; LE9 a term is told of
//! before its work begins, its end before the next one; LE8 fields of the Lease that are not the election's stay as they
//! are.
//!
//! Not here: which parts are guarded, see `manager/guarded.rs`.

pub(crate) mod elections;
mod leader;
pub(crate) mod lease;
pub(crate) mod request;
pub(crate) mod watch;

use std::time::Duration;

pub(crate) use self::leader::stand;
use crate::clock::Entropy;
use crate::error::{Error, Result};
use kubewright_engine::election::Settings;

/// How the replicas of an operator agree on the one that acts: by a Lease, as client-go's `leaderelection` does, so
/// that replicas in Go and in Rust understand each other.
///
/// Every replica keeps its caches warm and serves probes and webhooks. Controllers and runnables run on the leader
/// alone. A replica that cannot renew its Lease in time stops them and stands for election again; the process goes on.
/// The Lease is given back at the end, so that a rollout costs no waiting.
///
/// The operator needs the verbs `get`, `create` and `update` on `leases` of `coordination.k8s.io` in the namespace of
/// the Lease, and `list` and `watch` to notice at once that a leader is gone. The role `leader-election-role` in a
/// project's `config/rbac` has them.
///
/// ```
/// use kubewright::{LeaderElection, Manager, Result};
///
/// fn manager(client: kubewright::kube::Client) -> Result<Manager> {
///     Manager::builder(client).name("mirror").leader_election(LeaderElection::new("mirror.example.com")).build()
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LeaderElection {
    name: String,
    namespace: Option<String>,
    identity: Option<String>,
    settings: Settings,
}

impl LeaderElection {
    /// An election by the Lease of this name (`LeaderElectionID`): the same for all replicas of an operator, and of no
    /// other operator in the namespace.
    pub fn new(name: impl Into<String>) -> LeaderElection {
        LeaderElection {
            name: name.into(),
            namespace: None,
            identity: None,
            settings: Settings::default(),
        }
    }

    /// The namespace of the Lease. The default is the client's own: the one that the pod runs in, or that of the
    /// kubeconfig's context.
    pub fn namespace(mut self, namespace: impl Into<String>) -> LeaderElection {
        self.namespace = Some(namespace.into());
        self
    }

    /// The name of this replica in the Lease. No two replicas may have the same. The default is the host's name, which
    /// in a pod is the pod's, and a random number.
    pub fn identity(mut self, identity: impl Into<String>) -> LeaderElection {
        self.identity = Some(identity.into());
        self
    }

    /// How long the other replicas wait for a leader that they do not hear of (`LeaseDuration`), in whole seconds. The
    /// default is 15 seconds.
    pub fn lease_duration(mut self, duration: Duration) -> LeaderElection {
        self.settings.lease = duration;
        self
    }

    /// How long a leader goes on without a renewal that succeeded (`RenewDeadline`). It must be shorter than the lease:
    /// in the difference the leader's work comes to its end before another's begins. The default is 10 seconds.
    pub fn renew_deadline(mut self, deadline: Duration) -> LeaderElection {
        self.settings.renew = deadline;
        self
    }

    /// How long after a renewal, or a failure, the next request is sent (`RetryPeriod`). The default is 2 seconds.
    pub fn retry_period(mut self, period: Duration) -> LeaderElection {
        self.settings.retry = period;
        self
    }

    /// Whether the parts fit together.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: &str| {
            Err(Error::Configuration(format!(
                "leader election by Lease {:?}: {why}",
                self.name
            )))
        };
        if self.name.is_empty() {
            return wrong("a Lease needs a name; give it to LeaderElection::new");
        }
        if self.identity.as_ref().is_some_and(String::is_empty) {
            return wrong("the identity is empty, and an empty holder means that nothing leads");
        }
        self.settings.check().or_else(|why| wrong(&why))
    }
}

/// The host's name and a random number, as client-go's users build it.
pub(crate) fn identity(entropy: &Entropy) -> String {
    format!("{}_{:016x}", host_name(), entropy.draw())
}

/// The host's name, which in a pod is the pod's.
pub(crate) fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match kernel.trim() {
        "" => "kubewright".to_owned(),
        name => name.to_owned(),
    }
}
