//! Handlers of users, each with a task and a backlog of its own: a slow one holds up neither the informer nor the others, and what waits for it is
//! bounded by the number of objects (`kubewright_engine::backlog`).
//!
//! Invariants: SI6 when [`Shared::remove_handler`] returns, no further call begins; SI7 a panic is logged and loses one event of one handler; the
//! task ends with the informer. Not here: handlers of the runtime itself, which only hand keys over and run inline.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::backlog::Backlog;
use kubewright_engine::dispatch::{Handler, end_of_panic};
use kubewright_engine::{Event, HandlerId, Meta};
use tokio::sync::Notify;

use super::core::Shared;
use super::store::KubeMeta;
use crate::form::Cached;

struct Line {
    name: String,
    backlog: Mutex<Backlog<dyn Cached>>,
    woken: Notify,
    closed: AtomicBool,
}

/// Held by the dispatcher; dropping it ends the task.
struct Feed(Arc<Line>);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.woken.notify_one();
    }
}

impl Shared {
    /// Adds a handler that may be slow. Call it inside a tokio runtime.
    pub(crate) fn add_slow_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        let line = Arc::new(Line {
            name: self.name().to_owned(),
            backlog: Mutex::default(),
            woken: Notify::new(),
            closed: AtomicBool::new(false),
        });
        let feed = Feed(line.clone());
        let id = self.add_handler(Arc::new(move |event| feed.0.push(event)));
        tokio::spawn(line.serve(handler));
        id
    }
}

impl Line {
    // A panic under this lock is a defect of ours; states of users are dropped outside of it.
    fn backlog(&self) -> MutexGuard<'_, Backlog<dyn Cached>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: &Event<dyn Cached>) {
        let key = match event {
            Event::Deleted { key, .. } => Some(key.clone()),
            Event::Added { object, .. } | Event::Modified { new: object, .. } => KubeMeta::key(&**object),
        };
        // The store keeps nothing without a name.
        let Some(key) = key else { return };
        let dropped = self.backlog().push(&key, event.clone());
        self.woken.notify_one();
        drop(dropped);
    }

    async fn serve(self: Arc<Self>, handler: Handler<dyn Cached>) {
        loop {
            let next = self.backlog().pop();
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            let Some(event) = next else {
                self.woken.notified().await;
                continue;
            };
            let told = catch_unwind(AssertUnwindSafe(|| {
                handler(&event);
                drop(event); // perhaps the last to hold an old state, whose `Drop` is the user's
            }));
            if let Err(payload) = told {
                let error = end_of_panic(payload);
                tracing::error!(
                    resource = self.name,
                    error,
                    "an event handler panicked; the event is lost for this handler only"
                );
            }
            // A handler with much to do must not starve the other tasks.
            tokio::task::consume_budget().await;
        }
    }
}
