//! Sharding: the replicas of an operator divide its objects among themselves, for operators that need more than one
//! process.
//!
//! The engine's `sharding` decides which replica works on which keys; `sharder.rs` names its Leases, whose elections run
//! in `election/`; controllers use `shards.rs`. Invariants, beside the engine's SH1–SH5: SH6 all replicas agree on the number
//! of shards, which a Lease keeps, before any of them works; SH7 a key that is added to a queue belongs to a shard that
//! is held, and a replica that gains a shard looks at all its keys; SH8 a reconcile holds its shard's term, is dropped
//! when that ends, and writes nothing afterwards.
//!
//! Not here: what is sharded, see `controller/control_loop.rs`.

mod sharder;
mod shards;

use std::time::Duration;

pub(crate) use self::sharder::Sharder;
pub(crate) use self::shards::{Generation, Shards};
use crate::error::{Error, Result};
use kubewright_engine::election::Settings;

/// The greatest number of shards: each is a Lease that is renewed.
const MOST: usize = 256;

/// How the replicas of an operator share its objects out: every object belongs to a shard, by its namespace and name,
/// and every shard to one replica at a time.
///
/// Each shard has a Lease, as [`LeaderElection`](crate::LeaderElection) has one, and each replica another, by which the
/// others see that it lives. A replica that comes is given its share, those of one that ends or crashes are taken by
/// the others; all have the same number, or one more. A shard changes hands in order: its running reconciles are waited
/// for, 30 seconds at most, its Lease is given back, another replica takes it and looks at every object of it once. At
/// no time do two replicas work on one object. [`Context::term`](crate::Context::term) is the fencing token of the
/// object's shard.
///
/// It is for controllers. Every replica watches everything, as it must to take over in a moment: the work is shared,
/// not the cache. Runnables are not shared out; a manager with some needs a [`LeaderElection`](crate::LeaderElection)
/// beside it. A key that a [`Waker`](crate::Waker) wakes is worked on only where its shard is, so wake it on all
/// replicas.
///
/// The operator needs the verbs `get`, `list`, `watch`, `create`, `update` and `delete` on `leases` of
/// `coordination.k8s.io` in the namespace of the Leases. The role `leader-election-role` in a project's `config/rbac`
/// has them.
///
/// ```
/// use kubewright::{Manager, Result, Sharding};
///
/// fn manager(client: kubewright::kube::Client) -> Result<Manager> {
///     Manager::builder(client).name("mirror").sharding(Sharding::new("mirror.example.com", 16)).build()
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Sharding {
    name: String,
    shards: usize,
    namespace: Option<String>,
    identity: Option<String>,
    settings: Settings,
}

impl Sharding {
    /// So many shards, up to 256, by Leases whose names begin with this one: the same for all replicas of an operator,
    /// and of no other operator in the namespace. Take a few times as many as there will ever be replicas; each is a
    /// Lease that is renewed every two seconds.
    ///
    /// The number counts when the Lease `<name>-shards` is made, by the first replica ever. Later ones take its number
    /// and log a warning when they were given another: a key must not belong to two shards. To change it, end all
    /// replicas, delete that Lease, and start them again.
    pub fn new(name: impl Into<String>, shards: usize) -> Sharding {
        Sharding {
            name: name.into(),
            shards,
            namespace: None,
            identity: None,
            settings: Settings::default(),
        }
    }

    /// The namespace of the Leases. The default is the client's own: the one that the pod runs in, or that of the
    /// kubeconfig's context.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Sharding {
        self.namespace = Some(namespace.into());
        self
    }

    /// The name of this replica in the Leases. No two replicas may have the same. The default is the host's name, which
    /// in a pod is the pod's, and a random number.
    pub fn identity(mut self, identity: impl Into<String>) -> Sharding {
        self.identity = Some(identity.into());
        self
    }

    /// How long the other replicas wait for one that they do not hear of, in whole seconds. The default is 15 seconds.
    pub fn lease_duration(mut self, duration: Duration) -> Sharding {
        self.settings.lease = duration;
        self
    }

    /// How long a replica works on a shard without a renewal that succeeded. It must be shorter than the lease: in the
    /// difference the work comes to its end before another's begins. The default is 10 seconds.
    pub fn renew_deadline(mut self, deadline: Duration) -> Sharding {
        self.settings.renew = deadline;
        self
    }

    /// How long after a renewal, or a failure, the next request is sent. The default is 2 seconds.
    pub fn retry_period(mut self, period: Duration) -> Sharding {
        self.settings.retry = period;
        self
    }

    /// With another number of shards.
    pub(crate) fn into_shards(mut self, shards: usize) -> Sharding {
        self.shards = shards;
        self
    }

    /// Whether the parts fit together.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: String| {
            Err(Error::Configuration(format!(
                "sharding by Leases {:?}: {why}",
                self.name
            )))
        };
        if !is_label(&self.name) {
            return wrong(
                "their name is a label's value, too: at most 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
                    .to_owned(),
            );
        }
        if !(1..=MOST).contains(&self.shards) {
            return wrong(format!("{} shards; there can be 1 to {MOST}", self.shards));
        }
        if self.identity.as_ref().is_some_and(String::is_empty) {
            return wrong("the identity is empty, and an empty holder means that nobody works on a shard".to_owned());
        }
        self.settings.check().or_else(wrong)
    }
}

/// Whether a text is a label's value and, with more behind it, the name of an object.
fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<u8>| byte.is_some_and(plain);
    let bytes = text.as_bytes();
    text.len() <= 63
        && ends(bytes.first().copied())
        && ends(bytes.last().copied())
        && bytes.iter().all(|byte| plain(*byte) || [b'-', b'.'].contains(byte))
}
