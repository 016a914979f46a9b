//! Every key of a controller: for a change that concerns all of its objects, or of which nobody knows whom it concerns.
//!
//! The handler of an informer only asks; a task adds the keys. Invariants: changes that ask before the task has run are
//! one request, with the causes of all, so that a first list of N objects does not add M keys N times; after a panic
//! the keys come later each time, until there was none for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright_engine::backoff::Exponential;
use kubewright_engine::queue::Priority;
use prometheus_client::metrics::counter::Counter;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::key_queue::KeyQueue;
use crate::cache::Keys;
use crate::cause::{Cause, Causes};
use crate::client::Client;
use crate::panic_place::end_with_place;
use crate::queue::Queue;

/// How long every key waits after the first panic, and after many in a row.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// After so long without a panic the next one is the first again.
const QUIET: Duration = Duration::from_secs(600);

/// Wakes every key of a controller. Cheap to clone.
#[derive(Clone)]
pub(super) struct AllKeys {
    /// One item, which stands for all keys.
    requests: Queue<(), Causes>,
    panics: Arc<Mutex<Streak>>,
}

#[derive(Default)]
struct Streak {
    failures: u32,
    last: Option<Instant>,
}

impl AllKeys {
    /// Starts the task, which ends with `tasks`.
    pub(super) fn start(own: Keys, queue: KeyQueue, tasks: &mut JoinSet<()>) -> AllKeys {
        let all = AllKeys {
            requests: Queue::new(Box::new(Exponential::default())),
            panics: Arc::default(),
        };
        let requests = all.requests.clone();
        tasks.spawn(async move {
            while let Some(work) = requests.next().await {
                for key in own.all() {
                    queue.add(key, work.priority, work.causes.clone());
                }
                requests.done(work.token);
            }
        });
        all
    }

    pub(super) fn wake(&self, priority: Priority, cause: Cause) {
        self.requests.add((), priority, Causes::of(cause));
    }

    /// Some key is meant, and a panic has hidden which.
    pub(super) fn wake_after_panic(&self, cause: Cause) {
        let delay = {
            let mut streak = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let waits = self.requests.depth().1 > 0;
            if streak.last.is_none_or(|last| now.duration_since(last) > QUIET) {
                streak.failures = 0;
            } else if !waits {
                streak.failures = streak.failures.saturating_add(1);
            }
            streak.last = Some(now);
            LONGEST.min(FIRST.saturating_mul(2_u32.saturating_pow(streak.failures)))
        };
        self.requests.add_after((), delay, Priority::LOW, Causes::of(cause));
    }
}

/// Catches the panics of an operator's functions in sources and indexes, and counts them: the change that they were
/// called for must still lead to a reconcile.
#[derive(Clone)]
pub(super) struct Panics {
    controller: Arc<str>,
    counter: Counter,
}

impl Panics {
    pub(super) fn of(controller: &Arc<str>, client: &Client) -> Panics {
        Panics {
            controller: controller.clone(),
            counter: client.cache().metrics().source_panics(controller),
        }
    }

    /// The answer of the function, or the cause that stands for its panic.
    pub(super) fn catch<T>(&self, what: &str, kind: &str, function: impl FnOnce() -> T) -> Result<T, Cause> {
        // Events are shared and immutable, and what the function holds is its own business.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(function)).map_err(|payload| {
            let error = end_with_place(payload);
            self.counter.inc();
            tracing::error!(controller = %self.controller, error, "the {what} of {kind} panicked; the keys that it may concern are reconciled");
            Cause::requested(format!("the {what} of {kind} panicked: {error}"))
        })
    }
}
