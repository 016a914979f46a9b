//! The queue of one watcher, bounded in changes and in bytes. A full one is cleared and marked as overrun (store-W11).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::{Change, Delivery, begins_with};

/// Room for so many changes is kept for the next ones. Of many watchers most are idle again after a burst, which all of
/// them saw.
const KEPT: usize = 16;

pub(super) struct Subscriber {
    prefix: Box<str>,
    /// Changes up to this revision are not wanted (a watch that starts in the future).
    after: u64,
    limit: usize,
    limit_bytes: usize,
    /// How many watched the store at the latest change.
    company: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    overrun: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Subscriber {
    /// A watcher of keys with `prefix` that gets the `backlog` first. The backlog does not count against it: it had no
    /// chance to read it yet.
    pub(super) fn new(
        prefix: &str,
        after: u64,
        backlog: VecDeque<Arc<Change>>,
        limit: usize,
        limit_bytes: usize,
    ) -> Arc<Subscriber> {
        let bytes = backlog.iter().map(|change| change.size()).sum();
        Arc::new(Subscriber {
            prefix: prefix.into(),
            after,
            limit: limit + backlog.len(),
            limit_bytes: limit_bytes + bytes,
            company: AtomicUsize::new(1),
            queue: Mutex::new(Queue {
                changes: backlog,
                bytes,
                ..Queue::default()
            }),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("no code panics while it holds a watcher's queue")
    }

    pub(super) fn after(&self) -> u64 {
        self.after
    }

    pub(super) fn wants(&self, change: &Change) -> bool {
        change.revision > self.after && begins_with(&change.key, &self.prefix)
    }

    /// See [`super::ChangeStream::company`].
    pub(super) fn company(&self) -> usize {
        self.company.load(Ordering::Relaxed)
    }

    /// Queues a change that so many watch; the waker of a reader that waits is left in `wake`.
    pub(super) fn push(&self, change: &Arc<Change>, company: usize, wake: &mut Vec<Waker>) {
        self.company.store(company, Ordering::Relaxed);
        let mut queue = self.queue();
        if queue.overrun || queue.closed {
            return;
        }
        // One change fits always, however large it is: a reader that keeps up is never cut off.
        let full = queue.bytes + change.size() > self.limit_bytes && !queue.changes.is_empty();
        if queue.changes.len() >= self.limit || full {
            // The rest of the queue would end in a gap, so it is not worth keeping.
            drop(queue);
            return self.cut_off(wake);
        }
        queue.bytes += change.size();
        queue.changes.push_back(change.clone());
        wake.extend(queue.waker.take());
    }

    /// Ends the watch: its queue has a gap.
    pub(super) fn cut_off(&self, wake: &mut Vec<Waker>) {
        let mut queue = self.queue();
        queue.changes = VecDeque::new();
        queue.bytes = 0;
        queue.overrun = true;
        wake.extend(queue.waker.take());
    }

    pub(super) fn close(&self, wake: &mut Vec<Waker>) {
        let mut queue = self.queue();
        queue.closed = true;
        wake.extend(queue.waker.take());
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Delivery> {
        let mut queue = self.queue();
        if queue.overrun {
            return Poll::Ready(Delivery::Overrun);
        }
        if let Some(change) = queue.changes.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(change.size());
            if queue.changes.is_empty() && queue.changes.capacity() > KEPT {
                queue.changes = VecDeque::new();
            }
            return Poll::Ready(Delivery::Change(change));
        }
        if queue.closed {
            return Poll::Ready(Delivery::Closed);
        }
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether everything that was pushed has been read.
    pub(super) fn is_settled(&self) -> bool {
        let queue = self.queue();
        queue.changes.is_empty() && !queue.overrun && !queue.closed
    }

    /// Bytes of the objects that wait.
    pub(super) fn bytes(&self) -> usize {
        self.queue().bytes
    }
}
