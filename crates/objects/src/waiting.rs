//! Requests that wait for an object of another kind.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::Request;

/// Keys that wait for an object of another kind: the answer to a `watches` of that kind. Cheap to clone.
#[derive(Clone, Default)]
pub struct Waiting(Arc<Mutex<BTreeSet<Request>>>);

impl Waiting {
    fn set(&self) -> MutexGuard<'_, BTreeSet<Request>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether it is new.
    pub fn insert(&self, request: &Request) -> bool {
        self.set().insert(request.clone())
    }

    /// Answers whether it was there.
    pub fn remove(&self, request: &Request) -> bool {
        self.set().remove(request)
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.set().len()
    }

    /// All that wait.
    pub fn all(&self) -> Vec<Request> {
        self.set().iter().cloned().collect()
    }
}
