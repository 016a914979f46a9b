//! The state of a storage in memory, under its lock: every store with its objects, its history and its watchers.
//!
//! Invariants: `history_bytes` are those of all histories, and `by_history` names each that holds something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use kubewright_runlog::Recorder;

use super::{Bounds, after_all_with, start_of};
use crate::recording;
use crate::storage::history::{Forgotten, History};
use crate::storage::journal::{PastChange, Record};
use crate::storage::stored::Entry;
use crate::storage::watchers::Watchers;
use crate::storage::{ALWAYS_KEPT, Change, ListRequest, Listed, SharedMap, StoredObject};

pub(super) struct State {
    /// Of the latest change that is present.
    pub(super) revision: u64,
    /// The latest that was ever given out: larger than `revision` when a failing journal made changes be taken back.
    pub(super) given: u64,
    /// Watchers have everything up to here.
    pub(super) published: u64,
    /// No earlier revision is known.
    pub(super) floor: u64,
    pub(super) stores: BTreeMap<Arc<str>, Store>,
    /// Bytes of all histories.
    pub(super) history_bytes: usize,
    /// The stores by the bytes of their histories.
    pub(super) by_history: BTreeSet<(usize, Arc<str>)>,
    /// Changes that the journal has not made safe, oldest first.
    pub(super) pending: VecDeque<Record>,
    /// Why nothing can be written now.
    pub(super) broken: Option<Arc<str>>,
    /// Where changes are recorded.
    pub(super) recorder: Option<Arc<dyn Recorder>>,
}

pub(super) struct Store {
    pub(super) objects: SharedMap<Arc<str>, Arc<Entry>>,
    /// How often something was written here, or taken back.
    pub(super) changes: u64,
    pub(super) history: History,
    pub(super) watchers: Watchers,
}

impl State {
    /// Nothing, at this revision.
    pub(super) fn at(revision: u64, floor: u64) -> State {
        State {
            revision,
            given: revision,
            published: revision,
            floor,
            stores: BTreeMap::new(),
            history_bytes: 0,
            by_history: BTreeSet::new(),
            pending: VecDeque::new(),
            broken: None,
            recorder: None,
        }
    }

    /// The same objects and history, watched by nobody. What waits for a journal is present in it.
    pub(super) fn fork(&self) -> State {
        let stores = self.stores.iter().map(|(name, store)| {
            let store = Store {
                objects: store.objects.clone(),
                changes: store.changes,
                history: store.history.clone(),
                watchers: Watchers::default(),
            };
            (name.clone(), store)
        });
        State {
            given: self.given,
            stores: stores.collect(),
            history_bytes: self.history_bytes,
            by_history: self.by_history.clone(),
            ..State::at(self.revision, self.floor)
        }
    }

    pub(super) fn named_store(&mut self, name: &str) -> (Arc<str>, &mut Store) {
        let name = match self.stores.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => Arc::from(name),
        };
        let floor = self.floor;
        let store = self.stores.entry(name.clone()).or_insert_with(|| Store {
            objects: SharedMap::default(),
            changes: 0,
            history: History::since(floor),
            watchers: Watchers::default(),
        });
        (name, store)
    }

    pub(super) fn store(&mut self, name: &str) -> &mut Store {
        self.named_store(name).1
    }

    /// Hands a change to its watchers.
    pub(super) fn publish(&self, record: &Record) -> Vec<Waker> {
        if let Some(recorder) = &self.recorder {
            let Record { store, change } = record;
            let (kind, text) = (change.kind(), change.after.encoded());
            recording::commit(
                &**recorder,
                (store.as_ref(), change.key.as_ref()),
                kind,
                change.revision,
                text,
            );
        }
        let mut wake = Vec::new();
        if let Some(store) = self.stores.get(&record.store) {
            store.watchers.publish(&record.change, &mut wake);
        }
        wake
    }

    /// Whether the counts of the histories are right.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let of_store = |(name, store): (&Arc<str>, &Store)| (store.history.bytes(), name.clone());
        let counted: BTreeSet<_> = self
            .stores
            .iter()
            .map(of_store)
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        let bytes = self.stores.values().map(|store| store.history.bytes());
        counted == self.by_history && bytes.sum::<usize>() == self.history_bytes
    }

    /// Changes the history of a store, and counts its bytes.
    fn with_history<T>(&mut self, name: &str, change: impl FnOnce(&mut Store) -> T) -> Option<T> {
        let (name, _) = self.stores.get_key_value(name)?;
        let name = name.clone();
        let store = self.stores.get_mut(&name)?;
        let before = store.history.bytes();
        let changed = change(store);
        let after = store.history.bytes();
        if before != after {
            self.history_bytes = self.history_bytes - before + after;
            self.by_history.remove(&(before, name.clone()));
            if after > 0 {
                self.by_history.insert((after, name));
            }
        }
        Some(changed)
    }

    /// Adds the latest change of a store to its history, and drops the changes over the bounds.
    pub(super) fn remember(
        &mut self,
        store: &str,
        change: &Arc<Change>,
        before: Option<Arc<Entry>>,
        after: Arc<Entry>,
        bounds: &Bounds,
    ) {
        self.with_history(store, |store| {
            store.history.push(change, before, after);
            while store.history.len() > bounds.history {
                store.history.compact();
            }
        });
        while self.history_bytes > bounds.history_bytes {
            let Some((_, largest)) = self.by_history.last().cloned() else {
                break;
            };
            self.with_history(&largest, |store| store.history.compact());
        }
    }

    /// Adds a change that was made before a restart, after those before it.
    pub(super) fn recall(&mut self, change: PastChange, bounds: &Bounds) {
        let (name, store) = self.named_store(&change.store);
        // Its text is that of the object, or of the change before, and is held once.
        let shared = |object: &Arc<StoredObject>, held: Option<&Arc<Entry>>| {
            let held = held.filter(|held| held.revision() == object.revision());
            held.cloned().unwrap_or_else(|| Entry::of(object))
        };
        let after = shared(&change.after, store.objects.get(&*change.key));
        let before = change.before.as_ref();
        let before =
            before.map(|before| shared(before, store.history.latest_of(&change.key, before.revision()).as_ref()));
        let was = before.as_ref().map(|before| before.fresh());
        let change = Arc::new(Change::new(change.key, was, after.fresh(), change.deleted));
        self.remember(&name, &change, before, after, bounds);
    }

    /// Takes out the changes of all stores up to a revision, at most so many, except for the latest of each store.
    pub(super) fn forget(&mut self, revision: u64, mut most: usize) -> Vec<Forgotten> {
        let revision = revision.min(self.published);
        let mut forgotten = Vec::new();
        let names: Vec<Arc<str>> = self.by_history.iter().map(|(_, name)| name.clone()).collect();
        for name in names {
            let of_store = self.with_history(&name, |store| store.history.forget(revision, ALWAYS_KEPT, most));
            if let Some(of_store) = of_store.filter(|of_store| of_store.len() > 0) {
                most -= of_store.len();
                forgotten.push(of_store);
            }
        }
        forgotten
    }

    /// Undoes everything that is pending, and ends the watches that began with some of it.
    pub(super) fn take_back(&mut self, wake: &mut Vec<Waker>) {
        while let Some(Record { store, change }) = self.pending.pop_back() {
            let store = self.store(&store);
            store.changes += 1;
            let objects = &mut store.objects;
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Entry::of(before)),
                None => objects.remove(&change.key),
            };
        }
        self.revision = self.published;
        let (names, published) = (self.stores.keys().cloned().collect::<Vec<_>>(), self.published);
        for name in names {
            self.with_history(&name, |store| {
                store.history.take_back(published);
                store.watchers.cut_off_after(published, wake);
            });
        }
    }
}

impl Store {
    /// How many objects there are with a prefix.
    pub(super) fn present(&self, prefix: &str) -> usize {
        let end = after_all_with(prefix);
        self.objects
            .count((Bound::Included(prefix), end.as_ref().map(String::as_str)))
    }

    /// Its objects at a revision, to be looked at without the lock.
    pub(super) fn at(&self, revision: u64, now: u64) -> Moment {
        Moment {
            revision,
            objects: self.objects.clone(),
            history: (revision < now).then(|| self.history.clone()),
        }
    }
}

/// The objects of a store at one revision.
pub(super) struct Moment {
    revision: u64,
    /// Those of the revision at which the moment was taken.
    objects: SharedMap<Arc<str>, Arc<Entry>>,
    /// The changes between the two, if there are any.
    history: Option<History>,
}

impl Moment {
    /// A store without objects.
    pub(super) fn empty(revision: u64) -> Moment {
        Moment {
            revision,
            objects: SharedMap::default(),
            history: None,
        }
    }

    /// The page that the request asks for. Only the page is copied, and the rest is not looked at: its length is known.
    pub(super) fn list(&self, request: &ListRequest) -> Listed<Arc<Entry>> {
        let (start, end) = (start_of(request), after_all_with(&request.prefix));
        let end = end.as_ref().map(String::as_str);
        let mut listed = Listed {
            revision: self.revision,
            items: Vec::new(),
            rest: 0,
        };
        if is_behind(start, end) {
            debug_assert!(false, "a list begins behind its keys: {request:?}");
            return listed;
        }
        let undo = |history: &History| history.undo(self.revision, &request.prefix);
        let before = self.history.as_ref().map(undo).unwrap_or_default();
        let present = self.objects.range::<str>((start, end));
        let mut present = present
            .filter(|(key, _)| before.is_empty() || !before.contains_key(*key))
            .peekable();
        let was = before.range::<str, _>((start, end));
        let mut was = was
            .filter_map(|(key, entry)| entry.as_ref().map(|entry| (key, entry)))
            .peekable();
        let found = std::iter::from_fn(|| match (was.peek(), present.peek()) {
            (Some((was_there, _)), Some((is_there, _))) if was_there < is_there => was.next(),
            (Some(_), None) => was.next(),
            _ => present.next(),
        });
        let page = found.take(request.limit.unwrap_or(usize::MAX));
        listed.items = page.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        let is_full = request.limit.is_some_and(|limit| listed.items.len() >= limit);
        if is_full {
            let from = listed.items.last().map_or(start, |(key, _)| Bound::Excluded(&**key));
            listed.rest = self.count(from, end, &before);
        }
        listed
    }

    /// How many objects a range has, with those changes undone.
    fn count(&self, start: Bound<&str>, end: Bound<&str>, before: &BTreeMap<Arc<str>, Option<Arc<Entry>>>) -> usize {
        if is_behind(start, end) {
            return 0;
        }
        let (mut count, mut gone) = (self.objects.count((start, end)), 0);
        for (key, before) in before.range::<str, _>((start, end)) {
            count += usize::from(before.is_some());
            gone += usize::from(self.objects.contains_key(key));
        }
        count - gone
    }
}

/// Whether a range begins behind its end, or at it. A map panics over most of these.
fn is_behind(start: Bound<&str>, end: Bound<&str>) -> bool {
    match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}
