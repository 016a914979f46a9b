//! Mappings that take their time: from changed objects to keys, beside the informer.
//!
//! An inline handler only puts each change into a queue of changed objects; workers take the states that wait of one
//! object and ask the function about each. The engine's `states` says which must be asked.
//!
//! Invariants: R3 no state is lost by any failure, not even by a panic around the function: a failed state goes back
//! into the queue with a growing delay; a function that hangs is dropped at its deadline; one object that fails or takes
//! long holds up no other, as long as fewer than [`OUTSTANDING`] do.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubewright_engine::backoff::Exponential;
use kubewright_engine::queue::{Merge, Priority, Token, Work};
use kubewright_engine::states::States;
use kubewright_engine::{Event, Meta, ObjectKey};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::key_queue::KeyQueue;
use crate::cache::{Keys, KubeMeta};
use crate::cause::{Cause, Causes};
use crate::client::Client;
use crate::error::{Error, Result, text_of};
use crate::form::Cached;
use crate::panic_place::end_with_place;
use crate::queue::Queue;
use crate::request::Request;

/// From a state to keys, with a look at the world.
pub(super) type LookUp = Arc<dyn Fn(Arc<dyn Cached>, Client) -> BoxFuture<'static, Result<Vec<Request>>> + Send + Sync>;

/// How many objects of one source are mapped at a time, without those that take long.
const AT_A_TIME: usize = 4;
/// After so long a mapping makes room for another one.
const LONG: Duration = Duration::from_secs(1);
/// How many are mapped at a time in any case.
pub(super) const OUTSTANDING: usize = 256;
/// How long the mapping of one state may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between attempts for one object.
const BACKOFF: Exponential = Exponential {
    base: Duration::from_millis(100),
    max: Duration::from_secs(60),
};

/// The waiting states of one object, and their causes.
struct PendingStates {
    states: States<dyn Cached>,
    causes: Causes,
}

impl Merge for PendingStates {
    fn merge(&mut self, mut later: PendingStates) {
        if later.states.since() < self.states.since() {
            std::mem::swap(self, &mut later);
        }
        self.states.merge(later.states);
        self.causes.merge(later.causes);
    }
}

/// Why a source fails now, if it does.
#[derive(Clone, Default)]
pub(crate) struct SourceError(Arc<Mutex<Option<String>>>);

impl SourceError {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, error: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// One mapping at work.
pub(super) struct Mapper {
    queue: Queue<ObjectKey, PendingStates>,
    source: String,
    map: LookUp,
    client: Client,
    keys: KeyQueue,
    /// Of the controller's own kind.
    own: Keys,
    error: SourceError,
}

impl Mapper {
    /// Starts the workers in `tasks`; they end with it.
    pub(super) fn start(
        source: &str,
        map: LookUp,
        client: Client,
        keys: KeyQueue,
        own: Keys,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Mapper> {
        let mapper = Arc::new(Mapper {
            queue: Queue::new(Box::new(BACKOFF)),
            source: source.to_owned(),
            map,
            client,
            keys,
            own,
            error: SourceError::default(),
        });
        tasks.spawn(mapper.clone().work());
        mapper
    }

    pub(super) fn last_error(&self) -> SourceError {
        self.error.clone()
    }

    /// The end that the handler of the informer fills. It holds neither the mapping nor an informer.
    pub(super) fn sender(&self) -> ChangeSender {
        ChangeSender {
            queue: self.queue.clone(),
            changes: AtomicU64::new(0),
        }
    }

    async fn work(self: Arc<Self>) {
        let (room, outstanding) = (
            Arc::new(Semaphore::new(AT_A_TIME)),
            Arc::new(Semaphore::new(OUTSTANDING)),
        );
        // The mappings end with this task.
        let mut mappings = JoinSet::new();
        loop {
            // The semaphores are never closed.
            let (Ok(one), Ok(slot)) = (
                outstanding.clone().acquire_owned().await,
                room.clone().acquire_owned().await,
            ) else {
                return;
            };
            let work = tokio::select! {
                biased;
                Some(_) = mappings.join_next() => continue,
                work = self.queue.next() => work,
            };
            let Some(work) = work else { return };
            let mapper = self.clone();
            mappings.spawn(async move {
                let _one = one;
                let mut mapping = pin!(mapper.map_whole(work));
                if tokio::time::timeout(LONG, &mut mapping).await.is_err() {
                    drop(slot);
                    mapping.await;
                }
            });
        }
    }

    /// Maps the states that wait of one object. Whatever happens on the way, none is lost, and the object is free again.
    async fn map_whole(&self, work: Work<ObjectKey, PendingStates>) {
        let mut taken = TakenStates {
            queue: &self.queue,
            work: Some((work.item, work.causes)),
            token: work.token,
        };
        let Some((key, pending)) = &taken.work else { return };
        let mapping = AssertUnwindSafe(self.map_all(key, pending, work.priority)).catch_unwind();
        match mapping.await {
            Ok(left) => {
                let key = key.clone();
                taken.work = left.map(|states| (key, states));
            }
            // Beside the function itself: the `Drop` of its future, of its error or of an object.
            Err(payload) => {
                let error = Error::Panic {
                    what: format!("code around the mapping of {}", self.source),
                    message: end_with_place(payload),
                };
                self.report(key, &error);
            }
        }
    }

    /// The states that must be mapped again.
    async fn map_all(&self, key: &ObjectKey, pending: &PendingStates, priority: Priority) -> Option<PendingStates> {
        let PendingStates { states, causes } = pending;
        let (mut keys, mut failed) = (Vec::new(), Vec::new());
        for state in states.kept() {
            match self.map_one(state.clone()).await {
                Ok(found) => {
                    keys.extend(found);
                    failed.push(false);
                }
                Err(error) => failed.push(self.report(key, &error)),
            }
        }
        if states.overflown() {
            tracing::warn!(source = self.source, object = %Request::from(key),
                "the object changed more often than states are kept while its mapping waited; every key is woken");
            keys.extend(self.own.all());
        }
        keys.sort();
        keys.dedup();
        for key in keys {
            self.keys.add(key, priority, causes.clone());
        }
        let left = states.clone().left(&failed);
        if left.is_none() {
            self.error.set(None);
        }
        let causes = causes.clone();
        left.map(|states| PendingStates { states, causes })
    }

    async fn map_one(&self, state: Arc<dyn Cached>) -> Result<Vec<Request>> {
        let (map, client) = (self.map.clone(), self.client.clone());
        // The mapping is dropped in there as well.
        let mapping = async move { tokio::time::timeout(DEADLINE, map(state, client)).await };
        match AssertUnwindSafe(mapping).catch_unwind().await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::retry(format!(
                "the mapping was dropped because it took longer than {DEADLINE:?}"
            ))),
            Err(payload) => Err(Error::Panic {
                what: format!("the mapping of {}", self.source),
                message: end_with_place(payload),
            }),
        }
    }

    /// Whether it is tried again.
    fn report(&self, key: &ObjectKey, error: &Error) -> bool {
        let (object, text) = (Request::from(key), text_of(error));
        if error.is_terminal() {
            tracing::error!(source = self.source, %object, error = text, "a mapping to keys failed for good; this state wakes nothing");
            return false;
        }
        tracing::warn!(source = self.source, %object, error = text, "a mapping to keys failed; it is repeated");
        self.error.set(Some(format!("its mapping of {object} fails: {text}")));
        true
    }
}

/// The states that a mapping has. What is left of them when it ends goes back into the queue, and the object is free
/// again, also when the mapping panics.
struct TakenStates<'a> {
    queue: &'a Queue<ObjectKey, PendingStates>,
    work: Option<(ObjectKey, PendingStates)>,
    token: Token,
}

impl Drop for TakenStates<'_> {
    fn drop(&mut self) {
        if let Some((key, states)) = self.work.take() {
            self.queue.add_rate_limited(key, states);
        }
        self.queue.done(self.token);
    }
}

/// Where changes go in.
pub(super) struct ChangeSender {
    queue: Queue<ObjectKey, PendingStates>,
    changes: AtomicU64,
}

impl ChangeSender {
    pub(super) fn put(&self, event: &Event<dyn Cached>, priority: Priority, cause: Cause) {
        let key = match event {
            Event::Deleted { key, .. } => Some(key.clone()),
            other => KubeMeta::key(&**other.object()),
        };
        // The store holds no object without a name.
        let Some(key) = key else { return };
        // Handlers of one informer run one at a time, so that the numbers are in the order of the changes.
        let number = self.changes.fetch_add(1, Ordering::Relaxed);
        let states = States::of(event, number);
        let causes = Causes::of(cause);
        self.queue.add(key, priority, PendingStates { states, causes });
    }
}
