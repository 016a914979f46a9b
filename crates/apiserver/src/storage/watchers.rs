//! The watchers of one store, and the changes that wait for them.
//!
//! Watchers of the same prefix share a [`Log`]. A change is appended to it once, however many read it, and wakes only
//! those that have read everything before it: a write costs the same for ten thousand busy watchers as for one. The
//! logs of a change are found by its key, so watchers of other prefixes cost a write nothing.
//!
//! Invariants:
//! - a change stays in its log until every watcher has taken it, or has been cut off;
//! - a watcher that is more changes or bytes behind than its log may hold is cut off; it never misses a change silently
//!   (store-W11). One change always fits, however large it is: a reader that keeps up is never cut off;
//! - the lock of a log is the last one that is taken, and no foreign code runs under it but the clone of a waker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::history::Backlog;
use super::{Change, Delivery};

/// How many changes, and about how many bytes, a watcher takes out of its log at a time.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 * 1024;

/// The largest capacity that an empty queue keeps. After a burst all watchers have larger queues, and most are idle
/// again.
const KEPT: usize = 4;

/// Logs without watchers are dropped when there are twice as many logs as after the last sweep, but at least this many.
const FEW_LOGS: usize = 16;

/// How much may wait for one watcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) changes: usize,
    pub(super) bytes: usize,
}

/// The watchers of one store.
#[derive(Default)]
pub(super) struct Watchers {
    /// By prefix.
    logs: BTreeMap<Box<str>, Arc<Log>>,
    /// The lengths of the prefixes: only prefixes of a key with these lengths can have a log.
    lengths: BTreeSet<usize>,
    sweep_at: usize,
}

impl Watchers {
    /// A watcher of keys with `prefix` that gets changes after the revision `after`.
    pub(super) fn subscribe(&mut self, prefix: &str, after: u64, limits: Limits) -> Subscriber {
        self.sweep();
        let log = match self.logs.get(prefix) {
            Some(log) => log.clone(),
            None => {
                let log = Arc::new(Log::new(limits));
                self.logs.insert(prefix.into(), log.clone());
                self.lengths.insert(prefix.len());
                log
            }
        };
        let cursor = log.lock().sit(after);
        Subscriber {
            log,
            cursor,
            after,
            backlog: None,
            taken: VecDeque::new(),
        }
    }

    /// Drops logs that have no watchers any more, from time to time.
    fn sweep(&mut self) {
        if self.logs.len() < self.sweep_at.max(FEW_LOGS) {
            return;
        }
        self.logs.retain(|_, log| log.watchers() > 0);
        self.lengths = self.logs.keys().map(|prefix| prefix.len()).collect();
        self.sweep_at = 2 * self.logs.len();
    }

    /// Hands a change to the watchers of its key. The wakers of those that wait are left in `wake`.
    pub(super) fn publish(&self, change: &Arc<Change>, wake: &mut Vec<Waker>) {
        let lengths = self.lengths.iter().take_while(|length| **length <= change.key.len());
        let prefixes = lengths.filter_map(|length| change.key.get(..*length));
        let logs: Vec<&Arc<Log>> = prefixes.filter_map(|prefix| self.logs.get(prefix)).collect();
        let company = logs.iter().map(|log| log.watchers()).sum();
        for log in logs {
            log.push(change, company, wake);
        }
    }

    /// Ends the watches that began after a revision: what they began with was taken back.
    pub(super) fn cut_off_after(&self, revision: u64, wake: &mut Vec<Waker>) {
        for log in self.logs.values() {
            log.cut_off_after(revision, wake);
        }
    }

    /// Ends all watches, behind the changes that wait for them.
    pub(super) fn close(&mut self, wake: &mut Vec<Waker>) {
        for log in std::mem::take(self).logs.values() {
            log.close(wake);
        }
    }

    /// How many watchers there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.logs.values().map(|log| log.watchers()).sum()
    }

    /// Bytes of the changes that wait in logs; a change that waits for two is counted twice. What a watcher has taken
    /// out of its log (at most [`BATCH_BYTES`] and one change) is not counted, nor is its backlog.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.logs.values().map(|log| log.lock().waiting_bytes()).sum()
    }
}

/// The changes that wait for the watchers of one prefix.
struct Log {
    limits: Limits,
    /// How many watchers got the latest change, those of other prefixes included.
    company: AtomicUsize,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    /// Oldest first.
    entries: VecDeque<Waiting>,
    /// The number of the first entry; they are numbered in the order in which they came.
    first: u64,
    /// Bytes of all entries.
    bytes: usize,
    /// How many watchers have taken everything.
    caught_up: usize,
    /// The watchers, by their cursors.
    cursors: Vec<Cursor>,
    free: Vec<usize>,
    /// The cursors whose watchers are to be woken by the next change.
    sleeping: Vec<usize>,
    closed: bool,
}

struct Waiting {
    change: Arc<Change>,
    /// How many watchers take this next.
    readers: usize,
}

/// One watcher, as its log sees it.
struct Cursor {
    state: Position,
    /// The watch began after this revision.
    after: u64,
    waker: Option<Waker>,
    /// Whether the cursor is among the sleeping ones.
    listed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// The number of the entry that is taken next.
    Next(u64),
    CutOff,
    /// No watcher sits here.
    Vacant,
}

/// The answer of a log to a watcher that asks for more.
enum NextBatch {
    Taken,
    Overrun,
    Closed,
    Nothing,
}

impl Log {
    fn new(limits: Limits) -> Log {
        Log {
            limits,
            company: AtomicUsize::new(1),
            contents: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents
            .lock()
            .expect("no code panics while it holds the log of a watcher")
    }

    /// How many watch here.
    fn watchers(&self) -> usize {
        let contents = self.lock();
        contents.cursors.len() - contents.free.len()
    }

    fn leave(&self, cursor: usize) {
        let mut contents = self.lock();
        contents.advance(cursor, Position::Vacant);
        let waker = contents.cursors[cursor].waker.take();
        contents.vacate(cursor);
        drop(contents);
        drop(waker);
    }

    fn push(&self, change: &Arc<Change>, company: usize, wake: &mut Vec<Waker>) {
        self.company.store(company, Ordering::Relaxed);
        let mut contents = self.lock();
        let readers = std::mem::take(&mut contents.caught_up);
        contents.bytes += change.size();
        contents.entries.push_back(Waiting {
            change: change.clone(),
            readers,
        });
        // Watchers that have not taken the oldest changes lose them: they are cut off.
        while contents.entries.len() > self.limits.changes
            || (contents.bytes > self.limits.bytes && contents.entries.len() > 1)
        {
            contents.drop_first();
        }
        contents.drop_taken();
        contents.wake(wake);
    }

    fn cut_off_after(&self, revision: u64, wake: &mut Vec<Waker>) {
        let mut contents = self.lock();
        for at in 0..contents.cursors.len() {
            let cursor = &contents.cursors[at];
            if cursor.state == Position::Vacant || cursor.after <= revision {
                continue;
            }
            contents.advance(at, Position::CutOff);
            wake.extend(contents.cursors[at].waker.take());
        }
    }

    fn close(&self, wake: &mut Vec<Waker>) {
        let mut contents = self.lock();
        contents.closed = true;
        contents.wake(wake);
    }

    /// Moves the next changes of a watcher to `into`. When there are none, the watcher is woken by the next one.
    fn take(&self, cursor: usize, into: &mut VecDeque<Arc<Change>>, cx: &mut Context<'_>) -> NextBatch {
        let mut contents = self.lock();
        let Some(next) = contents.next_of(cursor) else {
            return NextBatch::Overrun;
        };
        let from = contents.index(next);
        let (mut count, mut bytes) = (0, 0);
        for waiting in contents.entries.iter().skip(from).take(BATCH) {
            if bytes > BATCH_BYTES {
                break;
            }
            bytes += waiting.change.size();
            count += 1;
            into.push_back(waiting.change.clone());
        }
        if count > 0 {
            contents.advance(cursor, Position::Next(next + count));
            return NextBatch::Taken;
        }
        if contents.closed {
            return NextBatch::Closed;
        }
        let earlier = contents.sleep(cursor, cx.waker());
        drop(contents);
        drop(earlier);
        NextBatch::Nothing
    }

    fn is_caught_up(&self, cursor: usize) -> bool {
        let contents = self.lock();
        !contents.closed && contents.next_of(cursor) == Some(contents.end())
    }
}

impl Contents {
    /// The number of the next change.
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn sit(&mut self, after: u64) -> usize {
        let cursor = Cursor {
            state: Position::Next(self.end()),
            after,
            waker: None,
            listed: false,
        };
        self.caught_up += 1;
        match self.free.pop() {
            Some(at) => {
                // Its number may still be among the sleeping ones.
                let listed = self.cursors[at].listed;
                self.cursors[at] = Cursor { listed, ..cursor };
                at
            }
            None => {
                self.cursors.push(cursor);
                self.cursors.len() - 1
            }
        }
    }

    /// Gives a cursor back. When all are free, so is their memory: thousands may have watched at the same time.
    fn vacate(&mut self, cursor: usize) {
        self.free.push(cursor);
        if self.free.len() == self.cursors.len() {
            self.cursors = Vec::new();
            self.free = Vec::new();
            self.sleeping = Vec::new();
        }
    }

    /// The number of the change that a watcher takes next; none if it was cut off.
    fn next_of(&self, cursor: usize) -> Option<u64> {
        match self.cursors[cursor].state {
            Position::Next(next) if next >= self.first => Some(next),
            _ => None,
        }
    }

    /// The index of a change in `entries`; of the next change, which is not there yet, their length.
    fn index(&self, number: u64) -> usize {
        usize::try_from(number - self.first).unwrap_or(usize::MAX)
    }

    /// How many watchers take this change next.
    fn readers(&mut self, number: u64) -> &mut usize {
        let at = self.index(number);
        match self.entries.get_mut(at) {
            Some(waiting) => &mut waiting.readers,
            None => &mut self.caught_up,
        }
    }

    /// Moves a watcher on, and drops the changes that every watcher has taken.
    fn advance(&mut self, cursor: usize, to: Position) {
        if let Some(now) = self.next_of(cursor) {
            *self.readers(now) -= 1;
        }
        if let Position::Next(next) = to {
            *self.readers(next) += 1;
        }
        self.cursors[cursor].state = to;
        self.drop_taken();
    }

    fn drop_taken(&mut self) {
        while self.entries.front().is_some_and(|first| first.readers == 0) {
            self.drop_first();
        }
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        }
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.first += 1;
            self.bytes -= first.change.size();
        }
    }

    /// Registers a watcher to be woken by the next change. The caller drops its earlier waker without the lock: it may
    /// be the last reference to a task.
    fn sleep(&mut self, at: usize, waker: &Waker) -> Option<Waker> {
        let cursor = &mut self.cursors[at];
        if !cursor.listed {
            cursor.listed = true;
            self.sleeping.push(at);
        }
        match &cursor.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => cursor.waker.replace(waker.clone()),
        }
    }

    fn wake(&mut self, wake: &mut Vec<Waker>) {
        for at in self.sleeping.drain(..) {
            let cursor = &mut self.cursors[at];
            cursor.listed = false;
            wake.extend(cursor.waker.take());
        }
    }

    fn waiting_bytes(&self) -> usize {
        let (mut behind, mut waiting) = (0, 0);
        for entry in self.entries.iter().rev() {
            behind += entry.change.size();
            waiting += behind * entry.readers;
        }
        waiting
    }
}

/// One watcher of a store. Dropping it unsubscribes.
pub(super) struct Subscriber {
    log: Arc<Log>,
    cursor: usize,
    after: u64,
    /// What it gets first; none when that was read.
    backlog: Option<Backlog>,
    /// Taken out of the backlog or the log, and not read yet.
    taken: VecDeque<Arc<Change>>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.log.leave(self.cursor);
    }
}

impl Subscriber {
    pub(super) fn after(&self) -> u64 {
        self.after
    }

    /// Puts changes from before its beginning in front. They do not count against it: it had no chance to read them yet.
    pub(super) fn begin_with(&mut self, backlog: Backlog) {
        debug_assert!(self.taken.is_empty(), "nothing is read before the backlog");
        self.backlog = Some(backlog);
        self.read_on();
    }

    /// Takes the next changes out of the backlog; answers whether there are any.
    fn read_on(&mut self) -> bool {
        let Some(backlog) = &mut self.backlog else { return false };
        self.taken = backlog.next(BATCH);
        if backlog.is_done() {
            self.backlog = None;
        }
        !self.taken.is_empty()
    }

    /// See [`super::ChangeStream::company`].
    pub(super) fn company(&self) -> usize {
        self.log.company.load(Ordering::Relaxed)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Delivery> {
        loop {
            while let Some(change) = self.taken.pop_front() {
                // A watch may start in the future.
                if change.revision > self.after {
                    return Poll::Ready(Delivery::Change(change));
                }
            }
            if self.read_on() {
                continue;
            }
            if self.taken.capacity() > KEPT {
                self.taken = VecDeque::new();
            }
            match self.log.take(self.cursor, &mut self.taken, cx) {
                NextBatch::Taken => {}
                NextBatch::Overrun => return Poll::Ready(Delivery::Overrun),
                NextBatch::Closed => return Poll::Ready(Delivery::Closed),
                NextBatch::Nothing => return Poll::Pending,
            }
        }
    }

    /// Whether everything that was pushed has been read.
    pub(super) fn is_settled(&self) -> bool {
        self.backlog.is_none() && self.taken.is_empty() && self.log.is_caught_up(self.cursor)
    }
}

#[cfg(test)]
mod tests;
