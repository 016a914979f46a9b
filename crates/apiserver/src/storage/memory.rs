//! Objects in memory.
//!
//! Each store is an ordered map and a bounded log of its latest changes. The log serves watches that start in the past and reads of
//! older revisions: the state at revision *r* is the present one with every later change undone. One lock guards everything, so
//! that a revision, the map and what subscribers get can never disagree; nothing slow happens under it.
//!
//! Invariants: see [`super`]. A subscriber's queue is bounded; a full one is cleared and marked as overrun.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::task::{Context, Poll, Waker};

use serde_json::Value;

use super::{Change, ChangeStream, Delivery, ListRequest, Listed, Storage, StorageError, StoredObject, same_content};

/// The storage of a server that keeps nothing when it ends.
pub struct MemoryStorage {
    state: Arc<RwLock<State>>,
    history: usize,
    buffer: usize,
}

struct State {
    revision: u64,
    stores: BTreeMap<Box<str>, Store>,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<Arc<str>, Arc<StoredObject>>,
    /// The latest changes, oldest first.
    log: VecDeque<Arc<Change>>,
    /// Changes up to this revision are no longer in the log.
    compacted: u64,
    subscribers: Vec<Weak<Subscriber>>,
}

struct Subscriber {
    prefix: Box<str>,
    /// Changes up to this revision are not wanted (a watch that starts in the future).
    after: u64,
    limit: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<Arc<Change>>,
    overrun: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl MemoryStorage {
    /// An empty storage that keeps the latest `history` changes of every store and up to `buffer` changes for each watcher.
    pub fn new(history: usize, buffer: usize) -> MemoryStorage {
        MemoryStorage {
            state: Arc::new(RwLock::new(State {
                revision: 1,
                stores: BTreeMap::new(),
            })),
            history: history.max(1),
            buffer: buffer.max(1),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state
            .read()
            .expect("no code panics while it holds the storage lock")
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state
            .write()
            .expect("no code panics while it holds the storage lock")
    }
}

impl Subscriber {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("no code panics while it holds a watcher's queue")
    }

    fn wants(&self, change: &Change) -> bool {
        change.revision > self.after && change.key.starts_with(&*self.prefix)
    }

    /// Queues a change; the waker of a reader that waits is left in `wake`.
    fn push(&self, change: &Arc<Change>, wake: &mut Vec<Waker>) {
        let mut queue = self.queue();
        if queue.overrun || queue.closed {
            return;
        }
        if queue.changes.len() >= self.limit {
            // Whatever is left would end in a gap, so nothing of it is worth keeping.
            queue.changes = VecDeque::new();
            queue.overrun = true;
        } else {
            queue.changes.push_back(change.clone());
        }
        wake.extend(queue.waker.take());
    }
}

impl State {
    /// Records a change in the log and hands it to the subscribers.
    fn publish(&mut self, store: &str, change: Change, history: usize) -> Vec<Waker> {
        let mut wake = Vec::new();
        let change = Arc::new(change);
        let Some(store) = self.stores.get_mut(store) else {
            return wake;
        };
        store.log.push_back(change.clone());
        while store.log.len() > history {
            if let Some(dropped) = store.log.pop_front() {
                store.compacted = dropped.revision;
            }
        }
        store.subscribers.retain(|subscriber| {
            let Some(subscriber) = subscriber.upgrade() else {
                return false;
            };
            if subscriber.wants(&change) {
                subscriber.push(&change, &mut wake);
            }
            true
        });
        wake
    }

    fn store(&mut self, name: &str) -> &mut Store {
        if !self.stores.contains_key(name) {
            self.stores.insert(name.into(), Store::default());
        }
        self.stores.get_mut(name).expect("the store was just inserted")
    }

    fn subscribe(&mut self, store: &str, subscriber: &Arc<Subscriber>) {
        let subscribers = &mut self.store(store).subscribers;
        subscribers.retain(|other| other.strong_count() > 0);
        subscribers.push(Arc::downgrade(subscriber));
    }
}

impl Store {
    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<StoredObject>)> {
        use std::ops::Bound;
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// What the objects were that changed after `revision`: the state before the first later change of each key.
    fn undo(&self, revision: u64) -> BTreeMap<Arc<str>, Option<Arc<StoredObject>>> {
        let mut before = BTreeMap::new();
        for change in self.log.iter().rev().take_while(|change| change.revision > revision) {
            before.insert(change.key.clone(), change.before.clone());
        }
        before
    }

    fn list(&self, request: &ListRequest, revision: u64, now: u64) -> Vec<(Arc<str>, Arc<StoredObject>)> {
        let after = request.after.as_deref();
        let present = self
            .range(&request.prefix, after)
            .map(|(key, object)| (key.clone(), object.clone()));
        if revision >= now {
            return present.collect();
        }
        let before = self.undo(revision);
        let mut items: BTreeMap<Arc<str>, Arc<StoredObject>> =
            present.filter(|(key, _)| !before.contains_key(key)).collect();
        for (key, object) in before {
            let wanted = key.starts_with(&*request.prefix) && after.is_none_or(|after| &*key > after);
            if let (true, Some(object)) = (wanted, object) {
                items.insert(key, object);
            }
        }
        items.into_iter().collect()
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

fn check_revision(key: &str, current: &StoredObject, expected: u64) -> Result<(), StorageError> {
    if current.revision() == expected {
        return Ok(());
    }
    Err(StorageError::Conflict {
        key: key.to_owned(),
        expected,
        current: current.revision(),
    })
}

impl Storage for MemoryStorage {
    fn revision(&self) -> u64 {
        self.read().revision
    }

    fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>> {
        self.read().stores.get(store)?.objects.get(key).cloned()
    }

    fn create(&self, store: &str, key: &str, value: Value) -> Result<Arc<StoredObject>, StorageError> {
        let mut state = self.write();
        if state.store(store).objects.contains_key(key) {
            return Err(StorageError::AlreadyExists(key.to_owned()));
        }
        state.revision += 1;
        let revision = state.revision;
        let key: Arc<str> = key.into();
        let after = Arc::new(StoredObject::new(revision, value));
        state.store(store).objects.insert(key.clone(), after.clone());
        let change = Change::new(key, None, after.clone(), false);
        let wake = state.publish(store, change, self.history);
        drop(state);
        wake_all(wake);
        Ok(after)
    }

    fn update(&self, store: &str, key: &str, expected: u64, value: Value) -> Result<Arc<StoredObject>, StorageError> {
        let mut state = self.write();
        let Some((key, before)) = state
            .stores
            .get(store)
            .and_then(|store| store.objects.get_key_value(key))
            .map(|(k, v)| (k.clone(), v.clone()))
        else {
            return Err(StorageError::NotFound(key.to_owned()));
        };
        check_revision(&key, &before, expected)?;
        if same_content(before.value(), &value) {
            return Ok(before);
        }
        state.revision += 1;
        let revision = state.revision;
        let after = Arc::new(StoredObject::new(revision, value));
        state.store(store).objects.insert(key.clone(), after.clone());
        let change = Change::new(key, Some(before), after.clone(), false);
        let wake = state.publish(store, change, self.history);
        drop(state);
        wake_all(wake);
        Ok(after)
    }

    fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
        let mut state = self.write();
        let Some(before) = state
            .stores
            .get(store)
            .and_then(|store| store.objects.get(key))
            .cloned()
        else {
            return Err(StorageError::NotFound(key.to_owned()));
        };
        check_revision(key, &before, expected)?;
        state.revision += 1;
        let revision = state.revision;
        state.store(store).objects.remove(key);
        let after = Arc::new(StoredObject::new(revision, before.value().clone()));
        let change = Change::new(key.into(), Some(before), after.clone(), true);
        let wake = state.publish(store, change, self.history);
        drop(state);
        wake_all(wake);
        Ok(after)
    }

    fn list(&self, store: &str, request: &ListRequest) -> Result<Listed, StorageError> {
        let state = self.read();
        let now = state.revision;
        let revision = request.at.unwrap_or(now);
        if revision > now {
            return Err(StorageError::Future {
                asked: revision,
                current: now,
            });
        }
        let Some(store) = state.stores.get(store) else {
            return Ok(Listed {
                revision,
                items: Vec::new(),
            });
        };
        if revision < store.compacted {
            return Err(StorageError::Compacted {
                asked: revision,
                oldest: store.compacted,
            });
        }
        Ok(Listed {
            revision,
            items: store.list(request, revision, now),
        })
    }

    fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError> {
        let mut state = self.write();
        let log = state.store(store);
        if after < log.compacted {
            return Err(StorageError::Compacted {
                asked: after,
                oldest: log.compacted,
            });
        }
        let backlog: VecDeque<Arc<Change>> = log
            .log
            .iter()
            .skip(log.log.partition_point(|change| change.revision <= after))
            .filter(|change| change.key.starts_with(prefix))
            .cloned()
            .collect();
        // The backlog does not count against the reader: it had no chance to read it yet.
        let subscriber = Arc::new(Subscriber {
            prefix: prefix.into(),
            after,
            limit: self.buffer + backlog.len(),
            queue: Mutex::new(Queue {
                changes: backlog,
                ..Queue::default()
            }),
        });
        state.subscribe(store, &subscriber);
        Ok(Box::new(MemoryStream {
            state: self.state.clone(),
            subscriber,
        }))
    }

    fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>) {
        let mut state = self.write();
        let revision = state.revision;
        let subscriber = Arc::new(Subscriber {
            prefix: prefix.into(),
            after: revision,
            limit: self.buffer,
            queue: Mutex::default(),
        });
        state.subscribe(store, &subscriber);
        let request = ListRequest {
            prefix: prefix.to_owned(),
            ..ListRequest::default()
        };
        let items = state.store(store).list(&request, revision, revision);
        drop(state);
        (
            Listed { revision, items },
            Box::new(MemoryStream {
                state: self.state.clone(),
                subscriber,
            }),
        )
    }

    fn close_watches(&self) {
        let mut wake = Vec::new();
        let mut state = self.write();
        for store in state.stores.values_mut() {
            for subscriber in store
                .subscribers
                .drain(..)
                .filter_map(|subscriber| subscriber.upgrade())
            {
                let mut queue = subscriber.queue();
                queue.closed = true;
                wake.extend(queue.waker.take());
            }
        }
        drop(state);
        wake_all(wake);
    }
}

struct MemoryStream {
    state: Arc<RwLock<State>>,
    subscriber: Arc<Subscriber>,
}

impl ChangeStream for MemoryStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Delivery> {
        let mut queue = self.subscriber.queue();
        if queue.overrun {
            return Poll::Ready(Delivery::Overrun);
        }
        if let Some(change) = queue.changes.pop_front() {
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

    fn progress(&self) -> Option<u64> {
        // Under the read lock no write can be between its revision and its delivery.
        let state = self
            .state
            .read()
            .expect("no code panics while it holds the storage lock");
        let queue = self.subscriber.queue();
        let settled = queue.changes.is_empty() && !queue.overrun && !queue.closed;
        settled.then_some(state.revision.max(self.subscriber.after))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dropped_watch_is_forgotten() {
        let storage = MemoryStorage::new(10, 10);
        let watch = storage.watch("s", "", 1).expect("nothing is compacted");
        drop(watch);
        storage.create("s", "a", json!({"metadata": {}})).expect("a is new");
        assert!(storage.read().stores["s"].subscribers.is_empty());
    }

    #[test]
    fn prefixes_keep_namespaces_apart() {
        let storage = MemoryStorage::new(10, 10);
        for key in ["a/x", "a-b/y", "ab/z", "a/y"] {
            storage
                .create("s", key, json!({"metadata": {}}))
                .expect("the key is new");
        }
        let request = ListRequest {
            prefix: "a/".to_owned(),
            ..ListRequest::default()
        };
        let keys: Vec<String> = storage
            .list("s", &request)
            .expect("now is never compacted")
            .items
            .iter()
            .map(|(k, _)| k.to_string())
            .collect();
        assert_eq!(keys, ["a/x", "a/y"]);
    }
}
