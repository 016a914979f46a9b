//! Wake-ups from outside of the cluster: a database, a queue, an HTTP hook.
//!
//! A [`Waker`] is given to the listener there, and its source to a controller. A woken key goes into the controller's
//! work queue like every other: each key once, worked on by one worker, on the replica that leads.
//!
//! Invariants: at most as many wake-ups as its capacity wait (in the waker, or in a queue); one counts until a worker
//! has taken its key. Keys woken while no controller runs wait for the next one, such as after a restart.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::queue::Priority;
use tokio::sync::Semaphore;

use crate::cache::Keys;
use crate::cause::{Cause, Causes};
use crate::controller::{KeyQueue, Source};
use crate::request::Request;

/// Wakes the keys of a controller from outside. Cheap to clone; may be used before the manager runs, and after it was
/// started anew.
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// use kubewright::{Client, Controller, Operator, Request, Result, Stop, Waker, Woken};
/// # use std::sync::Arc;
/// # use kubewright::{Action, Context, Reconciler};
/// # struct Mirror;
/// # impl Reconciler for Mirror {
/// #     type Object = ConfigMap;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
/// # }
/// # async fn next_row() -> String { std::future::pending().await }
/// fn operator() -> Operator {
///     let waker = Waker::new();
///     Operator::new("mirror")
///         .controller(Controller::of(Mirror).source(waker.source()))
///         .runnable_on_every_replica("database", move |_: Client, stop: Stop| {
///             let waker = waker.clone();
///             async move {
///                 loop {
///                     let row = tokio::select! {
///                         () = stop.requested() => return Ok(()),
///                         row = next_row() => row,
///                     };
///                     // It waits for room, for instance on a replica that does not lead; the stop must end that, too.
///                     tokio::select! {
///                         () = stop.requested() => return Ok(()),
///                         woken = waker.wake(Request::new("default", &row), "its row changed") => {
///                             if woken == Woken::Elsewhere {
///                                 tracing::debug!(row, "another replica works on it, and hears of it by itself");
///                             }
///                         }
///                     }
///                 }
///             }
///         })
/// }
/// ```
#[derive(Clone)]
pub struct Waker(Arc<Inner>);

struct Inner {
    room: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: Vec<Connection>,
    /// Keys that were woken while there was no queue.
    waiting: Vec<WakeUp>,
    next: u64,
}

/// A running controller that this waker wakes.
struct Connection {
    number: u64,
    queue: KeyQueue,
    own: Keys,
}

/// One wake-up: a key or, without one, all.
struct WakeUp(Option<Request>, Cause);

/// Where a woken key is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// On this replica: the key is in the queue of a controller, or waits for the first controller to run.
    Here,
    /// With [`Sharding`](crate::Sharding) on another replica, or on none yet: the key's shard is not held here, so it was
    /// not woken. A listener runs on every replica therefore, and tells every replica of every change; one that is told
    /// of each change once only must pass it on, such as by an annotation of the object.
    Elsewhere,
}

/// There is no room for another wake-up; see [`Waker::try_wake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("as many wake-ups wait as there may; none of their keys has been taken by a worker yet")]
pub struct WakerFull;

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waker(room for {} more)", self.0.room.available_permits())
    }
}

impl Default for Waker {
    fn default() -> Waker {
        Waker::new()
    }
}

impl Waker {
    /// A waker with room for 1024 wake-ups (the buffer of controller-runtime's `source.Channel`).
    pub fn new() -> Waker {
        Waker::with_capacity(1024)
    }

    /// A waker with room for so many wake-ups that no worker has taken yet.
    pub fn with_capacity(capacity: usize) -> Waker {
        Waker(Arc::new(Inner {
            room: Arc::new(Semaphore::new(capacity.clamp(1, Semaphore::MAX_PERMITS))),
            state: Mutex::default(),
        }))
    }

    /// Wakes a key; the reason is among the causes of its reconcile. Waits while there is no room. The same key woken
    /// again for the same reason, before a worker has taken it, takes no room.
    ///
    /// The object need not exist: then the reconciler is told that it does not ([`crate::Reconciler::deleted`]).
    ///
    /// Answers whether the key is worked on here; see [`Woken`].
    pub async fn wake(&self, request: Request, reason: impl Into<String>) -> Woken {
        self.wake_when_possible(Some(request), reason.into()).await
    }

    /// Wakes every object of the controller's kind; with sharding those that are worked on here. Waits while there is no
    /// room.
    pub async fn wake_all(&self, reason: impl Into<String>) {
        self.wake_when_possible(None, reason.into()).await;
    }

    /// As [`Waker::wake`], without waiting.
    ///
    /// # Errors
    /// [`WakerFull`] when there is no room, as on a replica that has not led for long. Every replica that begins to
    /// lead looks at every object: only the reason is lost.
    pub fn try_wake(&self, request: Request, reason: impl Into<String>) -> Result<Woken, WakerFull> {
        let place = self.0.room.clone().try_acquire_owned().map_err(|_| WakerFull)?;
        Ok(self.put(WakeUp(Some(request), Cause::reserved(reason.into(), Arc::new(place)))))
    }

    /// The source that leads from here to the reconciles of a controller. Each of several controllers is woken; keys
    /// that were woken before any of them ran are for the first.
    pub fn source(&self) -> Source {
        Source::woken(self.clone())
    }

    async fn wake_when_possible(&self, request: Option<Request>, reason: String) -> Woken {
        // The semaphore is never closed.
        let Ok(place) = self.0.room.clone().acquire_owned().await else {
            return std::future::pending().await;
        };
        self.put(WakeUp(request, Cause::reserved(reason, Arc::new(place))))
    }

    fn put(&self, wake_up: WakeUp) -> Woken {
        let mut state = self.state();
        if state.connections.is_empty() {
            state.waiting.push(wake_up);
            return Woken::Here;
        }
        let mut woken = Woken::Elsewhere;
        for connection in &state.connections {
            if connection.put(&wake_up) {
                woken = Woken::Here;
            }
        }
        woken
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code of a user runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on woken keys go there, until [`Waker::disconnect`] with the number that is answered.
    pub(crate) fn connect(&self, queue: KeyQueue, own: Keys) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let connection = Connection { number, queue, own };
        for wake_up in std::mem::take(&mut state.waiting) {
            connection.put(&wake_up);
        }
        state.connections.push(connection);
        number
    }

    pub(crate) fn disconnect(&self, number: u64) {
        self.state()
            .connections
            .retain(|connection| connection.number != number);
    }
}

impl Connection {
    /// Whether the key is worked on here.
    fn put(&self, WakeUp(request, cause): &WakeUp) -> bool {
        let add = |request: Request| self.queue.add(request, Priority::NORMAL, Causes::of(cause.clone()));
        match request {
            Some(request) => add(request.clone()),
            None => {
                self.own.all().into_iter().map(add).for_each(drop);
                true
            }
        }
    }
}
