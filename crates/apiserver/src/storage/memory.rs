//! Objects in memory, and in a journal when there is one.
//!
//! Each store is an ordered map and a bounded history of its latest changes. The history serves watches that start in
//! the past and reads of older revisions: the state at revision *r* is the present one with every later change undone.
//! One lock guards everything, so that a revision, the map and what subscribers get can never disagree; nothing slow
//! happens under it: texts are encoded before it is taken and read after it is released, and who lists takes a copy of
//! the map, which shares its memory, and walks over that without the lock.
//!
//! With a journal (see [`super::journal`]) a change is present at once, and *pending* until the journal says that it is
//! safe: only then do watchers get it. Without one nothing is ever pending.
//!
//! Invariants: see [`super`]. Memory is bounded except for the objects themselves: the history of all stores together,
//! the queues of watchers, and the objects that are kept open for further reads.

mod recent;
mod state;

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};

use kubewright_runlog::Recorder;
use kubewright_schema::protobuf::order::Order;
use serde_json::Value;

use super::history::Forgotten;
use super::journal::{Journal, Outcome, Progress, Record, Restored, Settled};
use super::stored::{Entry, Prepared};
use super::watchers::{Limits, Subscriber};
use super::{
    Change, ChangeStream, Delivery, ListRequest, Listed, SizeLimit, Storage, StorageError, StoredObject, same_content,
};
use recent::{RECENT_BYTES, Recent};
use state::{Moment, State, Store};

/// The storage of a server: everything in memory.
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

/// How a storage writes objects down, and its memory limits besides them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Changes that are kept of every store, for watches from the past. Default: any number.
    pub history: usize,
    /// Bytes of changes that are kept of all stores together; the largest history gives first. Default 64 MiB.
    pub history_bytes: usize,
    /// Changes that may wait for one watcher. Default 4096.
    pub buffer: usize,
    /// Bytes of changes that may wait for one watcher. Default 16 MiB.
    pub buffer_bytes: usize,
    /// The order in which the objects of a store are written down. Default: keys are sorted.
    pub order: fn(store: &str) -> Order,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            history: usize::MAX,
            history_bytes: 64 * 1024 * 1024,
            buffer: 4096,
            buffer_bytes: 16 * 1024 * 1024,
            order: |_| Order::SORTED,
        }
    }
}

/// The contents of a storage, in bytes of JSON text with the overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects that exist.
    pub objects: usize,
    /// Their texts.
    pub object_bytes: usize,
    /// Changes in the history of all stores.
    pub changes: usize,
    /// The most bytes that the changes hold.
    pub change_bytes: usize,
    /// The bytes that wait in the queues of watchers; a change that waits for two is counted twice.
    pub waiting_bytes: usize,
    /// Objects that are kept open.
    pub open_bytes: usize,
}

const NO_PANIC: &str = "no code panics while it holds the storage lock";

struct Shared {
    state: RwLock<State>,
    recent: Mutex<Recent>,
    bounds: Bounds,
    journal: Option<Arc<dyn Journal>>,
    progress: Arc<Progress>,
}

impl MemoryStorage {
    /// An empty storage that keeps the latest `history` changes of every store and up to `buffer` changes for each
    /// watcher; the other bounds are those of [`Bounds::default`].
    pub fn new(history: usize, buffer: usize) -> MemoryStorage {
        MemoryStorage::bounded(Bounds {
            history,
            buffer,
            ..Bounds::default()
        })
    }

    /// An empty storage with these bounds.
    pub fn bounded(bounds: Bounds) -> MemoryStorage {
        MemoryStorage::build(bounds, Restored::default(), None)
    }

    /// A storage that goes on where a journal has ended, and tells it of every change.
    pub fn journaled(bounds: Bounds, restored: Restored, journal: Arc<dyn Journal>) -> MemoryStorage {
        MemoryStorage::build(bounds, restored, Some(journal))
    }

    fn build(bounds: Bounds, restored: Restored, journal: Option<Arc<dyn Journal>>) -> MemoryStorage {
        // A client that asks for "0" wants any revision, so none of ours may be that.
        let revision = restored.revision.max(1);
        let floor = journal.as_ref().map_or(0, |_| restored.oldest().clamp(1, revision));
        let mut state = State::at(revision, floor);
        for (store, key, object) in restored.objects {
            state.store(&store).objects.insert(key, Entry::of(&Arc::new(object)));
        }
        let bounds = Bounds {
            history: bounds.history.max(1),
            buffer: bounds.buffer.max(1),
            ..bounds
        };
        let past = restored.past.into_iter();
        past.for_each(|change| state.recall(change, &bounds));
        let shared = Arc::new(Shared::new(state, bounds, journal));
        if let Some(journal) = &shared.journal {
            // The journal must not keep the storage alive that keeps it alive.
            let listener = Arc::downgrade(&shared);
            journal.start(Box::new(move |outcome| {
                if let Some(shared) = listener.upgrade() {
                    shared.hear(outcome);
                }
            }));
        }
        MemoryStorage { shared }
    }

    /// The present usage. Looks at every object: for tests and reports.
    pub fn usage(&self) -> Usage {
        let state = self.shared.read();
        let mut usage = Usage {
            open_bytes: self.shared.recent().bytes,
            ..Usage::default()
        };
        for store in state.stores.values() {
            usage.objects += store.objects.len();
            usage.object_bytes += store.objects.values().map(|entry| entry.encoded().len()).sum::<usize>();
            usage.changes += store.history.len();
            usage.change_bytes += store.history.bytes();
            usage.waiting_bytes += store.watchers.waiting_bytes();
        }
        usage
    }
}

impl Shared {
    fn new(state: State, bounds: Bounds, journal: Option<Arc<dyn Journal>>) -> Shared {
        Shared {
            progress: Arc::new(Progress::at(state.revision)),
            state: RwLock::new(state),
            recent: Mutex::default(),
            bounds,
            journal,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect(NO_PANIC)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect(NO_PANIC)
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an object that is asked for alone, and keeps it open for a while.
    fn open(&self, entry: &Entry) -> Arc<StoredObject> {
        let (object, new) = entry.open();
        if new {
            self.recent().add(object.clone());
        }
        object
    }

    /// Opens the objects of a list; only those of a short one stay open, or one list would drive out all others.
    fn open_all(&self, listed: Listed<Arc<Entry>>) -> Listed {
        let lengths = listed.items.iter().map(|(_, entry)| entry.encoded().len());
        let short = lengths.sum::<usize>() <= RECENT_BYTES / 2;
        opened(listed, |entry| if short { self.open(entry) } else { entry.object() })
    }

    /// Does a change: gives it its revision, and tells the journal or, when there is none, the watchers.
    fn commit(
        &self,
        mut state: RwLockWriteGuard<'_, State>,
        store: &str,
        key: Arc<str>,
        prepared: Prepared,
        deleted: bool,
    ) -> Result<Arc<StoredObject>, StorageError> {
        if let Some(why) = &state.broken {
            return Err(StorageError::Unavailable(why.to_string()));
        }
        state.given += 1;
        state.revision = state.given;
        let after = Arc::new(prepared.finish(state.revision));
        let entry = Entry::of(&after);
        let (name, place) = state.named_store(store);
        place.changes += 1;
        let before = if deleted {
            place.objects.remove(&key)
        } else {
            place.objects.insert(key.clone(), entry.clone())
        };
        let was = before.as_ref().map(|before| before.fresh());
        let change = Arc::new(Change::new(key, was, entry.fresh(), deleted));
        state.remember(&name, &change, before, entry, &self.bounds);
        let record = Record { store: name, change };
        let wake = match &self.journal {
            None => {
                state.published = state.revision;
                state.publish(&record)
            }
            Some(journal) => {
                state.pending.push_back(record.clone());
                journal.append(record);
                Vec::new()
            }
        };
        drop(state);
        wake_all(wake);
        // An object that was not read yet, as the server's own roles at its start, is not requested next.
        if !deleted && after.is_read() {
            self.recent().add(after.clone());
        }
        Ok(after)
    }

    /// Takes in the outcome of pending changes.
    fn hear(&self, outcome: Outcome) {
        let mut state = self.write();
        let mut wake = Vec::new();
        match outcome {
            Outcome::Durable(revision) => {
                while state
                    .pending
                    .front()
                    .is_some_and(|record| record.change.revision <= revision)
                {
                    if let Some(record) = state.pending.pop_front() {
                        wake.extend(state.publish(&record));
                    }
                }
                state.published = state.published.max(revision.min(state.revision));
                wake.extend(self.progress.advance(revision));
            }
            Outcome::Failed(why) => {
                let why: Arc<str> = why.into();
                state.take_back(&mut wake);
                state.broken = Some(why.clone());
                let last = state.given;
                wake.extend(self.progress.lose(last, why));
            }
            Outcome::Recovered => state.broken = None,
        }
        drop(state);
        wake_all(wake);
    }

    /// A watch of the changes of keys with `prefix` from now on, but for those up to the revision `after`.
    fn subscribe(self: &Arc<Shared>, store: &mut Store, prefix: &str, after: u64) -> MemoryStream {
        let limits = Limits {
            changes: self.bounds.buffer,
            bytes: self.bounds.buffer_bytes,
        };
        MemoryStream {
            shared: self.clone(),
            subscriber: store.watchers.subscribe(prefix, after, limits),
        }
    }
}

/// A list with its objects open.
fn opened(listed: Listed<Arc<Entry>>, open: impl Fn(&Entry) -> Arc<StoredObject>) -> Listed {
    let items = listed.items.into_iter().map(|(key, entry)| (key, open(&entry)));
    Listed {
        revision: listed.revision,
        items: items.collect(),
        rest: listed.rest,
    }
}

/// Where a list begins.
fn start_of(request: &ListRequest) -> Bound<&str> {
    match request.after.as_deref() {
        Some(after) if after >= request.prefix.as_str() => Bound::Excluded(after),
        _ => Bound::Included(&request.prefix),
    }
}

/// The first text behind all that begin with this one: its last character that has a successor becomes that. So the end
/// of a range is known without reading its keys.
fn after_all_with(prefix: &str) -> Bound<String> {
    let mut characters = prefix.chars();
    while let Some(last) = characters.next_back() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            return Bound::Excluded(format!("{}{next}", characters.as_str()));
        }
    }
    Bound::Unbounded
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

fn check_revision(key: &str, current: u64, expected: u64) -> Result<(), StorageError> {
    if current == expected {
        return Ok(());
    }
    let key = key.to_owned();
    Err(StorageError::Conflict { key, expected, current })
}

/// Whether the prepared object may be stored in the place of the present one.
fn fitting(prepared: Prepared, present: Option<&[u8]>) -> Result<Prepared, StorageError> {
    if prepared.fits(present) {
        Ok(prepared)
    } else {
        Err(StorageError::TooDeep {
            depth: prepared.depth(),
        })
    }
}

impl MemoryStorage {
    /// What a write expects to find.
    fn expect(&self, store: &str, key: &str, expected: u64) -> Result<Arc<Entry>, StorageError> {
        let state = self.shared.read();
        let present = state.stores.get(store).and_then(|store| store.objects.get(key));
        let present = present.ok_or_else(|| StorageError::NotFound(key.to_owned()))?.clone();
        check_revision(key, present.revision(), expected)?;
        Ok(present)
    }

    fn order(&self, store: &str) -> Order {
        (self.shared.bounds.order)(store)
    }

    fn add(&self, store: &str, key: &str, prepared: Prepared) -> Result<Arc<StoredObject>, StorageError> {
        let mut state = self.shared.write();
        if state.store(store).objects.contains_key(key) {
            return Err(StorageError::AlreadyExists(key.to_owned()));
        }
        self.shared.commit(state, store, key.into(), prepared, false)
    }

    /// Replaces or removes the object at `key`, if it is still at `expected`.
    fn swap(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        prepared: Prepared,
        deleted: bool,
    ) -> Result<Arc<StoredObject>, StorageError> {
        let state = self.shared.write();
        let present = state
            .stores
            .get(store)
            .and_then(|store| store.objects.get_key_value(key))
            .map(|(key, entry)| (key.clone(), entry.revision()));
        let Some((key, revision)) = present else {
            return Err(StorageError::NotFound(key.to_owned()));
        };
        check_revision(&key, revision, expected)?;
        self.shared.commit(state, store, key, prepared, deleted)
    }
}

impl Storage for MemoryStorage {
    fn record(&self, to: Arc<dyn Recorder>) {
        self.shared.write().recorder.get_or_insert(to);
    }

    fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>> {
        let entry = self.shared.read().stores.get(store)?.objects.get(key)?.clone();
        Some(self.shared.open(&entry))
    }

    fn create_up_to(
        &self,
        store: &str,
        key: &str,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        self.add(
            store,
            key,
            fitting(Prepared::up_to(value, self.order(store), limit, 0)?, None)?,
        )
    }

    fn create_text(&self, store: &str, key: &str, text: String) -> Result<Arc<StoredObject>, StorageError> {
        self.add(store, key, fitting(Prepared::of_text(text), None)?)
    }

    fn update_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        let entry = self.expect(store, key, expected)?;
        let present = self.shared.open(&entry);
        if same_content(present.value(), &value) {
            return Ok(present);
        }
        drop(present);
        self.replace_up_to(store, key, expected, value, limit)
    }

    fn replace_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        let present = self.expect(store, key, expected)?;
        let present = present.encoded();
        // An object that is too large already may become smaller step by step.
        let prepared = Prepared::up_to(value, self.order(store), limit, present.len())?;
        self.swap(store, key, expected, fitting(prepared, Some(present))?, false)
    }

    fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
        let last = self.expect(store, key, expected)?.object().into_value();
        let last = Prepared::new(last, self.order(store));
        self.swap(store, key, expected, last, true)
    }

    fn entries(&self, store: &str, request: &ListRequest) -> Result<Listed<Arc<Entry>>, StorageError> {
        let state = self.shared.read();
        let now = state.revision;
        let revision = request.at.unwrap_or(now);
        if revision > now {
            return Err(StorageError::Future {
                asked: revision,
                current: now,
            });
        }
        let place = state.stores.get(store);
        let oldest = place.map_or(state.floor, |store| store.history.compacted());
        if revision < oldest {
            return Err(StorageError::Compacted {
                asked: revision,
                oldest,
            });
        }
        let moment = place.map_or_else(|| Moment::empty(revision), |store| store.at(revision, now));
        drop(state);
        Ok(moment.list(request))
    }

    fn count(&self, store: &str, prefix: &str) -> usize {
        let state = self.shared.read();
        state.stores.get(store).map_or(0, |store| store.present(prefix))
    }

    fn text_length(&self, store: &str, key: &str) -> usize {
        let state = self.shared.read();
        let entry = state.stores.get(store).and_then(|store| store.objects.get(key));
        entry.map_or(0, |entry| entry.encoded().len())
    }

    fn list(&self, store: &str, request: &ListRequest) -> Result<Listed, StorageError> {
        let listed = self.entries(store, request)?;
        Ok(self.shared.open_all(listed))
    }

    fn changes(&self, store: &str) -> u64 {
        let state = self.shared.read();
        state.stores.get(store).map_or(0, |store| store.changes)
    }

    fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError> {
        let mut state = self.shared.write();
        let published = state.published;
        let store = state.store(store);
        if after < store.history.compacted() {
            return Err(StorageError::Compacted {
                asked: after,
                oldest: store.history.compacted(),
            });
        }
        let mut stream = self.shared.subscribe(store, prefix, after);
        let history = store.history.clone();
        drop(state);
        stream.subscriber.begin_with(history.between(after, published, prefix));
        Ok(Box::new(stream))
    }

    fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>) {
        let mut state = self.shared.write();
        let revision = state.revision;
        let store = state.store(store);
        let changes = self.shared.subscribe(store, prefix, revision);
        let request = ListRequest {
            prefix: prefix.to_owned(),
            ..ListRequest::default()
        };
        let moment = store.at(revision, revision);
        drop(state);
        // A follower of a store reads each object once.
        (opened(moment.list(&request), Entry::object), Box::new(changes))
    }

    fn settle(&self, revision: u64) -> Option<Settled> {
        self.shared.journal.as_ref()?;
        self.shared.progress.settle(revision)
    }

    fn trouble(&self) -> Option<String> {
        self.shared.read().broken.as_deref().map(str::to_owned)
    }

    fn compact(&self, revision: u64, most: usize) -> bool {
        let mut state = self.shared.write();
        let forgotten = state.forget(revision, most);
        drop(state);
        forgotten.iter().map(Forgotten::len).sum::<usize>() < most
    }

    fn close_watches(&self) {
        let mut wake = Vec::new();
        let mut state = self.shared.write();
        for store in state.stores.values_mut() {
            store.watchers.close(&mut wake);
        }
        drop(state);
        wake_all(wake);
    }

    fn fork(&self) -> Option<Arc<dyn Storage>> {
        let shared = Shared::new(self.shared.read().fork(), self.shared.bounds, None);
        Some(Arc::new(MemoryStorage { shared: shared.into() }))
    }
}

struct MemoryStream {
    shared: Arc<Shared>,
    subscriber: Subscriber,
}

impl ChangeStream for MemoryStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Delivery> {
        self.subscriber.poll(cx)
    }

    fn progress(&self) -> Option<u64> {
        // Under the read lock no write can be between its revision and its delivery.
        let state = self.shared.read();
        let settled = self.subscriber.is_settled();
        settled.then_some(state.published.max(self.subscriber.after()))
    }

    fn company(&self) -> usize {
        self.subscriber.company()
    }
}

#[cfg(test)]
mod tests;
