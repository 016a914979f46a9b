//! Which objects the API server is being asked about: readers that wait for the same answer ask for it once.
//!
//! Invariant: a question ends with its [`Asking`], answered or not, and readers look again then; one that still needs
//! an answer asks for it itself. Not here: the effect of the answer, which the engine's receipts decide.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::ObjectKey;

use super::{Core, Shared};

/// The keys of all questions that are on their way.
#[derive(Default)]
pub(super) struct Questions(Mutex<BTreeSet<ObjectKey>>);

impl Questions {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this object is being asked about.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.keys().contains(key)
    }
}

/// A question, which ends when this is dropped.
#[must_use]
pub(crate) struct Asking {
    core: Arc<Core>,
    keys: Vec<ObjectKey>,
}

impl Shared {
    /// The API server is asked about these objects from now on.
    pub(crate) fn asking(&self, keys: &[ObjectKey]) -> Asking {
        let core = self.core().clone();
        let mut asked = core.questions.keys();
        // A key that is being asked about already ends with that question.
        let keys = keys
            .iter()
            .filter(|key| asked.insert((*key).clone()))
            .cloned()
            .collect();
        drop(asked);
        Asking { core, keys }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut asked = self.core.questions.keys();
        for key in &self.keys {
            asked.remove(key);
        }
        drop(asked);
        self.core.changed();
    }
}
