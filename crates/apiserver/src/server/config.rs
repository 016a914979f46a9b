//! The settings of a server, and the parts that do IO for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubewright_runlog::Recorder;
use serde_json::Value;

use super::fork::{Derived, ForkPoint};
use crate::audit::AuditLog;
use crate::authentication::{Authenticator, NoSigner, Signer, StaticTokens};
use crate::authorization::{self, Authorizer};
use crate::forward::Forwarder;
use crate::meter::Meter;
use crate::model::Resource;
use crate::outbound::{NoOutbound, Outbound};
use crate::registry::Kinds;
use crate::storage::{Bounds, MemoryStorage, Storage};
use crate::{Env, Minor, ServiceRange};

/// Warnings about an object that is written, of surroundings that will not act on all of it. What was said of an object
/// before a change is not said again.
pub type Advice = fn(&Resource, &Value) -> Vec<String>;

/// The settings of a server. `Config::default()` is right for a test cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version of Kubernetes whose API is served; that of the kinds. Default [`Minor::default`].
    pub minor: Minor,
    /// How many changes of one kind are kept for watches that start in the past and for reads of older versions; older
    /// ones answer 410. Default: any number.
    pub history: usize,
    /// The limit in bytes for the changes of all kinds together, regardless of their number. Default 64 MiB.
    pub history_bytes: usize,
    /// How many events may wait for one watcher before it is cut off. Default 4096.
    pub watch_buffer: usize,
    /// How many watches may be open at the same time, of which a user gets a share ([`crate::shares`]); more are
    /// answered with 429. No more requests, and 2000 at most, are under way to other API servers, which are shared in the
    /// same way. Default 20000.
    pub max_watches: usize,
    /// How many requests are answered at the same time, as far as priority levels limit them
    /// (`--max-requests-inflight` and `--max-mutating-requests-inflight` together); zero: none is limited
    /// (`--enable-priority-and-fairness=false`). Default 600.
    pub max_requests: u64,
    /// How long an ordinary request may take (`--request-timeout`); a watch or another stream takes as long as its client
    /// wants. Default one minute.
    pub request_timeout: Duration,
    /// How often a watch that asked for bookmarks gets one. Default one minute.
    pub bookmark_interval: Duration,
    /// How long Events stay after their last write (`--event-ttl`), when the shell polls
    /// [`ApiServer::expire_events`](super::ApiServer::expire_events); zero: for ever. Default one hour.
    pub event_ttl: Duration,
    /// How long changes are kept at least for watches that start in the past and for reads of older versions, unless
    /// `history` or `history_bytes` is reached (`--etcd-compaction-interval`); zero: for ever. Default five minutes.
    pub compaction_interval: Duration,
    /// The issuer of service account tokens (the first `--service-account-issuer`).
    pub issuer: String,
    /// Further issuers whose tokens are believed, as after a change of the issuer (the other
    /// `--service-account-issuer`). Default none.
    pub further_issuers: Vec<String>,
    /// The audiences of the server (`--api-audiences`). Default: the issuers.
    pub audiences: Vec<String>,
    /// Users that authenticate with a token (`--token-auth-file`). Default: none.
    pub static_tokens: StaticTokens,
    /// Whether new pods get their service account and its token (the admission plugin `ServiceAccount`). It needs a
    /// controller that makes the account `default` of every namespace: without it no pod can be created there. Default
    /// no.
    pub service_account_admission: bool,
    /// Whether requests without credentials are answered as those of `system:anonymous` (`--anonymous-auth`). Default
    /// yes.
    pub anonymous: bool,
    /// The authorizers (`--authorization-mode`), in this order. Default RBAC.
    pub authorization: Vec<authorization::Mode>,
    /// The admission plugins that do not run (`--disable-admission-plugins`), of
    /// [`SEPARABLE_PLUGINS`](crate::SEPARABLE_PLUGINS). Default none.
    pub disabled_plugins: BTreeSet<String>,
    /// The admission plugins that run besides the usual ones (`--enable-admission-plugins`), of
    /// [`OPTIONAL_PLUGINS`](crate::OPTIONAL_PLUGINS). Default none.
    pub enabled_plugins: BTreeSet<String>,
    /// The addresses that Services get. Default `10.0.0.0/24`, as kube-apiserver.
    pub service_range: ServiceRange,
    /// Whether Endpoints and EndpointSlices may hold loopback addresses, as pods have them that are processes of this
    /// machine. Default no: kube-apiserver refuses them.
    pub loopback_endpoints: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            minor: Minor::default(),
            history: usize::MAX,
            history_bytes: Bounds::default().history_bytes,
            watch_buffer: 4096,
            max_watches: 20_000,
            max_requests: 600,
            request_timeout: Duration::from_secs(60),
            bookmark_interval: Duration::from_secs(60),
            event_ttl: Duration::from_secs(3600),
            compaction_interval: Duration::from_secs(300),
            service_range: ServiceRange::default(),
            loopback_endpoints: false,
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            further_issuers: Vec::new(),
            audiences: Vec::new(),
            static_tokens: StaticTokens::default(),
            service_account_admission: false,
            anonymous: true,
            authorization: vec![authorization::Mode::Rbac],
            disabled_plugins: BTreeSet::new(),
            enabled_plugins: BTreeSet::new(),
        }
    }
}

impl Config {
    /// The authenticator of these settings.
    pub(super) fn authenticator(
        &self,
        signer: Arc<dyn Signer>,
        storage: Arc<dyn Storage>,
        env: Arc<dyn Env>,
    ) -> Authenticator {
        Authenticator::new(self.static_tokens.clone(), &self.issuer, signer, storage, env)
            .anonymous(self.anonymous)
            .believing(&self.further_issuers, &self.audiences)
    }

    /// How a storage for this server writes objects down, and its memory limits besides them.
    pub fn bounds(&self, kinds: &Kinds) -> Bounds {
        Bounds {
            history: self.history,
            history_bytes: self.history_bytes,
            buffer: self.watch_buffer,
            order: kinds.order_of_store(),
            ..Bounds::default()
        }
    }
}

/// The parts of a server. [`Parts::new`] is right for a test cluster; change the parts that are to be different.
pub struct Parts {
    /// The built-in kinds.
    pub kinds: Arc<Kinds>,
    /// Time, entropy, timers.
    pub env: Arc<dyn Env>,
    /// Sizes and limits.
    pub config: Config,
    /// Where objects live.
    pub storage: Arc<dyn Storage>,
    /// The authorizer; `None`: `system:masters` may do everything, other users what the stored roles and bindings give
    /// them ([`authorization::standard`]).
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// How webhooks are called.
    pub outbound: Arc<dyn Outbound>,
    /// How the servers behind APIServices are reached; `None`: none of them is available.
    pub forwarder: Option<Arc<dyn Forwarder>>,
    /// The key that tokens of service accounts are signed with.
    pub signer: Arc<dyn Signer>,
    /// The audit log, if one is kept.
    pub audit: Option<AuditLog>,
    /// The run log, if one is kept.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Measures the usage of pods; with it `metrics.k8s.io` is served.
    pub meter: Option<Arc<dyn Meter>>,
    /// Warns of what nothing will act on; `None`: only of what kube-apiserver itself warns.
    pub advice: Option<Advice>,
    /// What another server has made of the same objects.
    pub(super) derived: Option<Derived>,
}

impl Parts {
    /// Empty storage in memory, RBAC, no way to call webhooks, no tokens, no audit log, no run log, no metrics.
    pub fn new(kinds: Arc<Kinds>, env: Arc<dyn Env>, config: Config) -> Parts {
        debug_assert_eq!(config.minor, kinds.minor(), "a server has the kinds of its version");
        Parts {
            storage: Arc::new(MemoryStorage::bounded(config.bounds(&kinds))),
            authorizer: None,
            outbound: Arc::new(NoOutbound),
            forwarder: None,
            signer: Arc::new(NoSigner),
            audit: None,
            recorder: None,
            meter: None,
            advice: None,
            derived: None,
            kinds,
            env,
            config,
        }
    }

    /// The same with the objects and the history of another server at one moment. Kinds and configuration are those of
    /// that server, or the first objects of a cluster may be missing.
    #[must_use]
    pub fn of_fork(self, point: &ForkPoint) -> Parts {
        Parts {
            storage: point.storage.fork().unwrap_or_else(|| point.storage.clone()),
            derived: Some(point.derived.clone()),
            ..self
        }
    }

    /// The same with all built-in kinds.
    #[cfg(test)]
    pub(crate) fn of_tests(env: Arc<dyn Env>, config: Config) -> Parts {
        Parts::new(Kinds::of_tests(config.minor), env, config)
    }
}
