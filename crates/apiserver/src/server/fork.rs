//! Servers that begin with the objects and the history of another one.
//!
//! Tests of faults play one workload thousands of times from the same moments. A fork costs some pointers, whatever the
//! server holds: objects, history and compiled kinds are shared. Invariant: a fork point never changes, and neither
//! server sees a write of the other.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::ApiServer;
use crate::registry::Snapshot;
use crate::registry::definitions::Definitions;
use crate::storage::{Change, Delivery, Entry, ListRequest, Storage};

/// A server at one moment; [`Parts::of_fork`](super::Parts::of_fork) makes servers that go on from there.
#[derive(Clone)]
pub struct ForkPoint {
    /// No server writes to it.
    pub(super) storage: Arc<dyn Storage>,
    pub(super) derived: Derived,
}

/// What a server makes of stored definitions.
#[derive(Clone)]
pub(super) struct Derived {
    pub(super) kinds: Arc<Snapshot>,
    pub(super) definitions: Definitions,
}

impl std::fmt::Debug for ForkPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForkPoint({})", self.storage.revision())
    }
}

impl ApiServer {
    /// This server now; `None` when its storage cannot be forked.
    pub fn fork_point(&self) -> Option<ForkPoint> {
        // Held so that storage and definitions are of one moment.
        let definitions = self.inner.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ForkPoint {
            storage: self.inner.storage.fork()?,
            derived: Derived {
                kinds: self.inner.registry.snapshot(),
                definitions: definitions.clone(),
            },
        })
    }

    /// The objects of a store (see [`Resource::store`](crate::model::Resource::store)) as they are kept, in the order of
    /// their keys. For tests that compare whole clusters.
    pub fn entries(&self, store: &str) -> Vec<(Arc<str>, Arc<Entry>)> {
        let listed = self.inner.storage.entries(store, &ListRequest::default());
        listed.map(|listed| listed.items).unwrap_or_default()
    }

    /// The changes of a store after a revision, in their order. Empty when they are not kept any more.
    pub fn changes_after(&self, store: &str, revision: u64) -> Vec<Arc<Change>> {
        let Ok(mut stream) = self.inner.storage.watch(store, "", revision) else {
            return Vec::new();
        };
        let mut waiting = Context::from_waker(Waker::noop());
        let next = || match stream.poll_next(&mut waiting) {
            Poll::Ready(Delivery::Change(change)) => Some(change),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    /// A number that differs whenever a store was written since it was read.
    pub fn changes(&self, store: &str) -> u64 {
        self.inner.storage.changes(store)
    }
}
