//! The queue of a controller, as its sources fill it.
//!
//! Invariants: SH7 keys of other replicas' shards do not enter; a key names its cluster; on a replica that does not lead
//! keys are queued without their causes, and those of cached objects not at all: each is looked at when it leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubewright_engine::queue::{Merge, Priority};

use crate::cache::Keys;
use crate::cause::{Causes, Room};
use crate::queue::Queue;
use crate::request::Request;
use crate::sharding::Shards;

impl Merge for Causes {
    fn merge(&mut self, later: Causes) {
        for cause in later.into_vec() {
            self.push(cause);
        }
    }
}

/// The queue of a controller, for its sources. Keys of other replicas' shards do not enter (SH7).
#[derive(Clone)]
pub(crate) struct KeyQueue {
    pub(crate) inner: Queue<Request, Causes>,
    /// The cluster of its keys, unless they name one.
    pub(crate) cluster: Option<Arc<str>>,
    pub(crate) shards: Option<Shards>,
    pub(crate) standby: Standby,
    /// The keys of the cached objects, all of which a replica looks at when its term begins. `None` where predicates choose
    /// among the objects: there each key waits.
    pub(super) cached: Option<Keys>,
    /// For the states that the causes of its keys keep.
    pub(crate) room: Room,
}

/// Whether another replica leads. What is queued meanwhile stays for as long as the other one leads.
#[derive(Clone, Default)]
pub(crate) struct Standby(Arc<AtomicBool>);

impl Standby {
    pub(crate) fn set(&self, is_standby: bool) {
        self.0.store(is_standby, Ordering::Relaxed);
    }

    pub(super) fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl KeyQueue {
    /// The same queue, for keys of a cluster.
    pub(super) fn in_cluster(&self, cluster: Option<Arc<str>>, cached: Option<Keys>) -> KeyQueue {
        KeyQueue {
            cluster,
            cached,
            ..self.clone()
        }
    }

    /// Whether the key need not wait, because another replica leads and this one looks at it when its term begins.
    pub(super) fn comes_back(&self, request: &Request) -> bool {
        self.standby.is() && self.cached.as_ref().is_some_and(|keys| keys.has(request))
    }

    /// The key, which names its cluster.
    fn placed(&self, mut request: Request) -> Request {
        if request.cluster.is_none() {
            request.cluster.clone_from(&self.cluster);
        }
        request
    }

    /// Whether the key, which names its cluster, is worked on by this replica.
    fn holds(&self, request: &Request) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.holds(request))
    }

    /// Whether the key is worked on by this replica; only then it is added.
    pub(crate) fn add(&self, request: Request, priority: Priority, mut causes: Causes) -> bool {
        let request = self.placed(request);
        let is_held = self.holds(&request);
        if self.standby.is() {
            causes.forget();
        }
        if is_held && !(causes.are_seen() && self.comes_back(&request)) {
            self.inner.add(request, priority, causes);
        }
        is_held
    }

    /// As [`KeyQueue::add`], not before the delay is over.
    pub(super) fn add_after(&self, request: Request, delay: Duration, priority: Priority, mut causes: Causes) {
        if self.standby.is() {
            causes.forget();
        }
        let request = self.placed(request);
        if self.holds(&request) && !self.comes_back(&request) {
            self.inner.add_after(request, delay, priority, causes);
        }
    }

    /// As [`KeyQueue::add`], after the key's own backoff.
    pub(super) fn add_rate_limited(&self, request: Request, causes: Causes) {
        let request = self.placed(request);
        if self.holds(&request) {
            self.inner.add_rate_limited(request, causes);
        }
    }
}
