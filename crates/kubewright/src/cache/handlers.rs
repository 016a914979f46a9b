//! A handler with a task of its own, so that it may be slow.
//!
//! The informer puts events into the handler's mailbox, where the engine folds them by key; the task takes them out.
//! The handler runs on a thread for blocking work: one that waits holds up no other task, also in a runtime of a single
//! thread. Where the time is a test's it runs on the task's thread, since that time does not wait for others; there a
//! handler may not wait for another task.
//!
//! Invariants: SI5 a handler is synced when it has returned for everything of the first list, or of the snapshot that
//! it joined with; SI6 when the removal returns, the handler is not called again; SI7 the waiting changes are bounded
//! by the keys, and a panic is reported and affects no other handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::dispatch::mailbox::{Mail, Mailbox, Mark};
use kubewright_engine::dispatch::{Handler, HandlerPanic, end_of_panic, notify};
use kubewright_engine::{Event, HandlerId, Meta};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use super::store::KubeMeta;
use crate::form::Cached;

/// After so many keys the task looks whether the handler is synced, and lets others use the thread.
const BATCH: usize = 256;

/// One handler and its waiting changes.
pub(super) struct Subscriber {
    resource: String,
    handler: Handler<dyn Cached>,
    inbox: Mutex<Inbox>,
    /// Held while the handler runs.
    running: Mutex<()>,
    wake: Notify,
    /// It runs on the task's thread.
    inline: bool,
}

#[derive(Default)]
struct Inbox {
    mailbox: Mailbox<dyn Cached>,
    /// The end of the changes that the handler must have been told of to be synced; not known before the first list is
    /// complete.
    mark: Option<Mark>,
    synced: bool,
    /// It joined after the first list, so that the informer's own sync does not wait for it.
    late: bool,
    closed: bool,
}

/// The outcome of some calls of the handler.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) panics: Vec<HandlerPanic>,
    /// More waits.
    more: bool,
}

impl Subscriber {
    pub(super) fn new(resource: &str, handler: Handler<dyn Cached>, inline: bool) -> Subscriber {
        Subscriber {
            resource: resource.to_owned(),
            handler,
            inbox: Mutex::default(),
            running: Mutex::new(()),
            wake: Notify::new(),
            inline,
        }
    }

    // No code of a user runs under this lock.
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event into the mailbox.
    pub(super) fn put(&self, event: &Event<dyn Cached>) {
        let key = match event {
            Event::Deleted { key, .. } => Some(key.clone()),
            other => KubeMeta::key(&**other.object()),
        };
        // The store holds no object without a name.
        let Some(key) = key else { return };
        let spent = {
            let mut inbox = self.inbox();
            if inbox.closed {
                return;
            }
            inbox.mailbox.put(key, event.clone())
        };
        drop_guarded(&self.resource, spent);
        self.wake.notify_one();
    }

    /// Everything that the handler is to be synced with is in the mailbox. The first call counts.
    pub(super) fn mark(&self, late: bool) {
        let mut inbox = self.inbox();
        if inbox.mark.is_none() {
            inbox.mark = Some(inbox.mailbox.mark());
            inbox.late = late;
            inbox.settle();
        }
    }

    pub(super) fn synced(&self) -> bool {
        self.inbox().synced
    }

    /// Whether the informer's sync does not wait for this handler, or need not any more.
    pub(super) fn lets_sync(&self) -> bool {
        let inbox = self.inbox();
        inbox.synced || inbox.late
    }

    /// When this returns the handler is not called again, and a call that was under way has returned. In a runtime of one
    /// thread the latter is not waited for: the handler may itself wait for a task, which only this thread can run.
    pub(super) fn close(&self) {
        let dropped = {
            let mut inbox = self.inbox();
            inbox.closed = true;
            std::mem::take(&mut inbox.mailbox)
        };
        self.wake.notify_one();
        let alone = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        if !alone {
            drop(self.running.lock());
        }
        self.drop_mailbox(dropped);
    }

    /// As [`Subscriber::close`], without waiting for a call that is under way.
    pub(super) fn abandon(&self) {
        self.inbox().closed = true;
        self.wake.notify_one();
    }

    fn drop_mailbox(&self, mut mailbox: Mailbox<dyn Cached>) {
        while let Some(mail) = mailbox.take() {
            drop_guarded(&self.resource, [Some(mail.first), mail.then].into_iter().flatten());
        }
    }

    /// Tells the handler some of the waiting changes.
    fn run_batch(&self, id: HandlerId) -> Batch {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = Batch::default();
        for _ in 0..BATCH {
            let Some(mail) = self.take() else { return batch };
            for event in [Some(mail.first), mail.then].into_iter().flatten() {
                batch.panics.extend(notify(id, &self.handler, &event));
                drop_guarded(&self.resource, [event]);
            }
            let mut inbox = self.inbox();
            inbox.mailbox.done();
            inbox.settle();
        }
        batch.more = true;
        batch
    }

    fn take(&self) -> Option<Mail<dyn Cached>> {
        let mut inbox = self.inbox();
        if inbox.closed { None } else { inbox.mailbox.take() }
    }

    /// The task of the handler, until the subscriber is closed. `after` is called after every batch.
    pub(super) async fn serve(self: Arc<Subscriber>, id: HandlerId, after: impl Fn(Batch)) {
        let mut more = false;
        loop {
            if !more {
                self.wake.notified().await;
            }
            let batch = if self.inline {
                self.run_batch(id)
            } else {
                let subscriber = self.clone();
                // It fails when the runtime shuts down.
                let Ok(batch) = tokio::task::spawn_blocking(move || subscriber.run_batch(id)).await else {
                    return;
                };
                batch
            };
            more = batch.more;
            after(batch);
            if self.inbox().closed {
                let left = std::mem::take(&mut self.inbox().mailbox);
                return self.drop_mailbox(left);
            }
        }
    }
}

impl Inbox {
    fn settle(&mut self) {
        self.synced |= self.mark.is_some_and(|mark| self.mailbox.passed(mark));
    }
}

/// A dropped value may be the last to hold an object, whose `Drop` is the user's.
pub(super) fn drop_guarded<T>(resource: &str, all: impl IntoIterator<Item = T>) {
    for one in all {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(one))) {
            let error = end_of_panic(payload);
            tracing::error!(resource, error, "the Drop of an object panicked");
        }
    }
}
