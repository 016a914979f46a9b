//! The seam between a storage and the code that makes its changes survive the end of the process.
//!
//! A storage does every change in memory and at once; a [`Journal`] is told of it, in order, and says later up to which
//! revision the changes are safe. Between the two no client may learn of a change: readers and writers wait for
//! [`Settled`], watches get only safe changes. So the journal may gather changes and write them together, and a crash
//! takes back nothing that a client has seen.
//!
//! When the journal fails, the storage takes back everything that is not safe, and refuses writes until the journal
//! works again. The revisions that were taken back are never given out again by this process: a writer that saw one of
//! them cannot mistake another object for it.
//!
//! Not here: files (see the journals of the shells).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Change, StorageError, StoredObject};

/// A change of one store.
#[derive(Clone, Debug)]
pub struct Record {
    /// The store, such as `deployments.apps`.
    pub store: Arc<str>,
    /// The change, with the states before and after it.
    pub change: Arc<Change>,
}

/// The outcome of a journal's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All changes up to this revision are safe.
    Durable(u64),
    /// The records that are not safe yet are lost, for this reason. No record comes until [`Outcome::Recovered`].
    Failed(String),
    /// The journal works again.
    Recovered,
}

/// The function that is called with each outcome; the storage sets it.
pub type Listener = Box<dyn Fn(Outcome) + Send + Sync>;

/// Writes changes down so that they survive the process.
pub trait Journal: Send + Sync + 'static {
    /// Sets the listener for outcomes; called once, before the first record. The listener must not be called from
    /// within [`Journal::append`].
    fn start(&self, listener: Listener);

    /// Takes a change, in order of revision. Called under the storage's lock: it must not wait for anything.
    fn append(&self, record: Record);
}

/// The contents of a storage after a restart.
#[derive(Debug, Default)]
pub struct Restored {
    /// The latest revision.
    pub revision: u64,
    /// Store, key and object.
    pub objects: Vec<(Arc<str>, Arc<str>, StoredObject)>,
    /// The latest changes, in their order: each that led from the revision `floor` to `revision`. Empty when none is
    /// known.
    pub past: Vec<PastChange>,
    /// Revisions before it are compacted: a watch from there answers 410. The latest one when `past` is empty.
    pub floor: u64,
}

impl Restored {
    /// The oldest revision that is known.
    pub(super) fn oldest(&self) -> u64 {
        match self.past.is_empty() {
            true => self.revision,
            false => self.floor,
        }
    }
}

/// A change that was made before a restart.
#[derive(Debug)]
pub struct PastChange {
    /// The store, such as `deployments.apps`.
    pub store: Arc<str>,
    /// The key of the object.
    pub key: Arc<str>,
    /// The object before; none when it was new.
    pub before: Option<Arc<StoredObject>>,
    /// The object after. For a delete the last state, with the revision of the delete.
    pub after: Arc<StoredObject>,
    /// Whether it was deleted.
    pub deleted: bool,
}

/// How far a journal has come, and the waiters for it.
#[derive(Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    durable: u64,
    /// Revisions that were taken back, from the first to the last, and why; the latest [`MAX_LOST`] times.
    lost: Vec<(u64, u64, Arc<str>)>,
    waiting: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

/// A request does not wait so long that this many failures come between.
const MAX_LOST: usize = 64;

impl Progress {
    pub(super) fn at(revision: u64) -> Progress {
        Progress(Mutex::new(State {
            durable: revision,
            ..State::default()
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to `revision` is safe; returns the tasks that waited for it.
    pub(super) fn advance(&self, revision: u64) -> Vec<Waker> {
        let mut state = self.state();
        state.durable = state.durable.max(revision);
        let later = state.waiting.split_off(&(revision.saturating_add(1), 0));
        std::mem::replace(&mut state.waiting, later).into_values().collect()
    }

    /// Everything after the safe revision and up to `last` was taken back; returns the tasks that waited.
    pub(super) fn lose(&self, last: u64, why: Arc<str>) -> Vec<Waker> {
        let mut state = self.state();
        let first = state.durable + 1;
        if state.lost.len() >= MAX_LOST {
            state.lost.remove(0);
        }
        state.lost.push((first, last, why));
        std::mem::take(&mut state.waiting).into_values().collect()
    }

    /// The outcome of a revision; `None` while it waits.
    fn settled(&self, revision: u64) -> Option<Result<(), StorageError>> {
        let state = self.state();
        let lost = state
            .lost
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&revision));
        match lost {
            Some((_, _, why)) => Some(Err(StorageError::Unavailable(why.to_string()))),
            None => (state.durable >= revision).then_some(Ok(())),
        }
    }

    /// A future that is ready once `revision` is safe; `None` when it is safe already.
    pub(super) fn settle(self: &Arc<Progress>, revision: u64) -> Option<Settled> {
        if matches!(self.settled(revision), Some(Ok(()))) {
            return None;
        }
        let mut state = self.state();
        state.next += 1;
        let ticket = (revision, state.next);
        drop(state);
        Some(Settled {
            progress: self.clone(),
            ticket,
        })
    }
}

/// Waits until a revision is safe, or was taken back ([`StorageError::Unavailable`]).
pub struct Settled {
    progress: Arc<Progress>,
    /// The revision, and a number that distinguishes the tasks that wait for the same one.
    ticket: (u64, u64),
}

impl std::fmt::Debug for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Settled").field(&self.ticket.0).finish()
    }
}

impl Future for Settled {
    type Output = Result<(), StorageError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // First the waker, then the look: an outcome between the two finds the waker.
        self.progress.state().waiting.insert(self.ticket, cx.waker().clone());
        match self.progress.settled(self.ticket.0) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        self.progress.state().waiting.remove(&self.ticket);
    }
}
