//! Mappings that take their time: from changed objects to keys, beside the informer.
//!
//! An inline handler only puts each change into a queue of changed objects; workers take the states that wait of one
//! object and ask the function about each. The engine's `states` says which must be asked.
//!
//! Invariants: R3 no state is lost by any failure: a failed state goes back into the queue with a growing delay; a
//! function that hangs is dropped at its deadline; one object that fails holds up no other.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubewright_engine::backoff::Exponential;
use kubewright_engine::queue::{Merge, Priority, Work};
use kubewright_engine::states::States;
use kubewright_engine::{Event, Meta, ObjectKey};
use tokio::task::JoinSet;

use super::sources::KeyQueue;
use crate::cache::{Keys, KubeMeta};
use crate::cause::{Cause, Causes};
use crate::client::Client;
use crate::error::{Error, Result, end_of_panic, text_of};
use crate::form::Cached;
use crate::queue::Queue;
use crate::request::Request;

/// From a state to keys, with a look at the world.
pub(super) type LookUp = Arc<dyn Fn(Arc<dyn Cached>, Client) -> BoxFuture<'static, Result<Vec<Request>>> + Send + Sync>;

/// How many objects of one source are mapped at a time.
const AT_A_TIME: usize = 4;
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
        for _ in 0..AT_A_TIME {
            tasks.spawn(mapper.clone().work());
        }
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
        while let Some(work) = self.queue.next().await {
            let token = work.token;
            self.map_all(work).await;
            self.queue.done(token);
        }
    }

    async fn map_all(&self, work: Work<ObjectKey, PendingStates>) {
        let PendingStates { states, causes } = work.causes;
        let (mut keys, mut failed) = (Vec::new(), Vec::new());
        for state in states.kept() {
            match self.map_one(state.clone()).await {
                Ok(found) => {
                    keys.extend(found);
                    failed.push(false);
                }
                Err(error) => failed.push(self.report(&work.item, &error)),
            }
        }
        if states.overflown() {
            tracing::warn!(source = self.source, object = %Request::from(&work.item),
                "the object changed more often than states are kept while its mapping waited; every key is woken");
            keys.extend(self.own.all());
        }
        keys.sort();
        keys.dedup();
        for key in keys {
            self.keys.add(key, work.priority, causes.clone());
        }
        match states.left(&failed) {
            None => self.error.set(None),
            Some(states) => {
                self.queue.add_rate_limited(work.item, PendingStates { states, causes });
            }
        }
    }

    async fn map_one(&self, state: Arc<dyn Cached>) -> Result<Vec<Request>> {
        let (map, client) = (self.map.clone(), self.client.clone());
        let mapping = AssertUnwindSafe(async move { map(state, client).await }).catch_unwind();
        match tokio::time::timeout(DEADLINE, mapping).await {
            Ok(Ok(result)) => result,
            Ok(Err(payload)) => Err(Error::Panic {
                what: format!("the mapping of {}", self.source),
                message: end_of_panic(payload),
            }),
            Err(_) => Err(Error::retry(format!(
                "the mapping was dropped because it took longer than {DEADLINE:?}"
            ))),
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
