//! Which objects are being read from the API server: readers that wait for the same answer ask for it once.
//!
//! Invariant: a read ends with its [`PendingRead`], answered or not, and readers look again then; one that still needs
//! an answer asks for it itself. Not here: the effect of the answer, which the engine's receipts decide.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::ObjectKey;

use super::SharedStore;

/// The keys that the API server is being asked about.
#[derive(Default)]
pub(in crate::cache) struct PendingReads(Mutex<BTreeSet<ObjectKey>>);

impl PendingReads {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this object is being asked about.
    pub(in crate::cache) fn has(&self, key: &ObjectKey) -> bool {
        self.keys().contains(key)
    }
}

/// A read that is under way, until this is dropped.
#[must_use]
pub(crate) struct PendingRead {
    store: Arc<SharedStore>,
    keys: Vec<ObjectKey>,
}

impl SharedStore {
    /// The API server is asked about these objects from now on.
    pub(in crate::cache) fn begin_read(self: &Arc<Self>, keys: &[ObjectKey]) -> PendingRead {
        let store = self.clone();
        let mut asked = store.pending_reads.keys();
        // A key that is being asked about already ends with that read.
        let keys = keys
            .iter()
            .filter(|key| asked.insert((*key).clone()))
            .cloned()
            .collect();
        drop(asked);
        PendingRead { store, keys }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let mut asked = self.store.pending_reads.keys();
        for key in &self.keys {
            asked.remove(key);
        }
        drop(asked);
        self.store.changed();
    }
}
