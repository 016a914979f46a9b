//! What authorizers know of the stored objects: derived from some stores, and brought up to date before each answer.
//!
//! An index subscribes to its stores when it is first asked. So an answer follows from every write that ended before the question, and
//! costs microseconds. When too much changed at once everything is read again.
//!
//! Invariant: what is indexed can be thrown away and rebuilt from storage.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use kubewright_schema::budget;
use serde_json::Value;

use crate::storage::{ChangeStream, Delivery, Storage};

/// Something that follows from the objects of some stores.
pub(super) trait Index: Default + Send {
    /// Which of the stores.
    type Store: Copy + Send + 'static;
    /// The stores, in the order in which they are read.
    const STORES: &'static [Self::Store];

    /// How storage calls it.
    fn name(store: Self::Store) -> &'static str;

    /// Takes in what is stored at `key` now; `None`: nothing.
    fn apply(&mut self, store: Self::Store, key: &str, value: Option<&Value>);
}

/// An index and where its changes come from.
struct State<I: Index> {
    index: I,
    changes: Vec<(I::Store, Box<dyn ChangeStream>)>,
}

impl<I: Index> State<I> {
    fn start(storage: &dyn Storage) -> State<I> {
        let mut state = State {
            index: I::default(),
            changes: Vec::new(),
        };
        for &store in I::STORES {
            let (listed, changes) = storage.list_and_watch(I::name(store), "");
            for (key, object) in &listed.items {
                state.index.apply(store, key, Some(object.value()));
            }
            state.changes.push((store, changes));
        }
        state
    }

    /// Takes in what changed; whether that was possible.
    fn catch_up(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        for (store, changes) in &mut self.changes {
            loop {
                match changes.poll_next(&mut context) {
                    Poll::Pending => break,
                    Poll::Ready(Delivery::Change(change)) => {
                        let value = (!change.deleted).then(|| change.after.value());
                        self.index.apply(*store, &change.key, value);
                    }
                    Poll::Ready(Delivery::Overrun | Delivery::Closed) => return false,
                }
            }
        }
        true
    }
}

/// An index of a storage.
pub(super) struct Followed<I: Index> {
    storage: Arc<dyn Storage>,
    state: Mutex<Option<State<I>>>,
}

impl<I: Index> Followed<I> {
    /// Of what is in `storage`, now and later. Nothing is read before the first question.
    pub(super) fn new(storage: Arc<dyn Storage>) -> Followed<I> {
        Followed {
            storage,
            state: Mutex::new(None),
        }
    }

    /// Looks at the index as it is now.
    pub(super) fn with<T>(&self, look: impl FnOnce(&I) -> T) -> T {
        let mut slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let current = slot
            .take()
            .and_then(|mut state| budget::unlimited(|| state.catch_up()).then_some(state));
        // A storage that has ended its watches is read again for every question: right, if slow, and only while it shuts down.
        let state = current.unwrap_or_else(|| budget::unlimited(|| State::start(&*self.storage)));
        // Whoever looks may be cancelled: what is known is kept.
        look(&slot.insert(state).index)
    }

    /// Reads everything again, for tests of the index.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
