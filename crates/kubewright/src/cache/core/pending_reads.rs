//! Which objects are being read from the API server: readers that wait for the same answer ask for it once.
//!
//! Invariant: a read ends with its [`PendingRead`], answered or not, and readers look again then; one that still needs
//! an answer asks for it itself. Not here: the effect of the answer, which the engine's receipts decide.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::ObjectKey;

use super::{Core, SharedInformer};

/// The keys that the API server is being asked about.
#[derive(Default)]
pub(super) struct PendingReads(Mutex<BTreeSet<ObjectKey>>);

impl PendingReads {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this object is being asked about.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.keys().contains(key)
    }
}

/// A read that is under way, until this is dropped.
#[must_use]
pub(crate) struct PendingRead {
    core: Arc<Core>,
    keys: Vec<ObjectKey>,
}

impl SharedInformer {
    /// The API server is asked about these objects from now on.
    pub(crate) fn begin_read(&self, keys: &[ObjectKey]) -> PendingRead {
        let core = self.core().clone();
        let mut asked = core.pending_reads.keys();
        // A key that is being asked about already ends with that read.
        let keys = keys
            .iter()
            .filter(|key| asked.insert((*key).clone()))
            .cloned()
            .collect();
        drop(asked);
        PendingRead { core, keys }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let mut asked = self.core.pending_reads.keys();
        for key in &self.keys {
            asked.remove(key);
        }
        drop(asked);
        self.core.changed();
    }
}
