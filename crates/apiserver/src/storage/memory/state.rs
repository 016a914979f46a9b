//! The state of a storage in memory, under its lock: every store with its objects, its history and its watchers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use super::{Bounds, after_all_with, start_of};
use crate::storage::history::{Forgotten, History};
use crate::storage::journal::Record;
use crate::storage::stored::Entry;
use crate::storage::watchers::Watchers;
use crate::storage::{ALWAYS_KEPT, ListRequest, Listed};

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
    /// Changes that the journal has not made safe, oldest first.
    pub(super) pending: VecDeque<Record>,
    /// Why nothing can be written now.
    pub(super) broken: Option<Arc<str>>,
}

pub(super) struct Store {
    pub(super) objects: BTreeMap<Arc<str>, Arc<Entry>>,
    /// How often something was written here, or taken back.
    pub(super) changes: u64,
    pub(super) history: History,
    pub(super) watchers: Watchers,
}

impl State {
    pub(super) fn named_store(&mut self, name: &str) -> (Arc<str>, &mut Store) {
        let name = match self.stores.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => Arc::from(name),
        };
        let floor = self.floor;
        let store = self.stores.entry(name.clone()).or_insert_with(|| Store {
            objects: BTreeMap::new(),
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
        let mut wake = Vec::new();
        if let Some(store) = self.stores.get(&record.store) {
            store.watchers.publish(&record.change, &mut wake);
        }
        wake
    }

    /// Drops the changes over the bounds after a change of `store`.
    pub(super) fn compact(&mut self, store: &str, bounds: &Bounds) {
        if let Some(store) = self.stores.get_mut(store) {
            while store.history.len() > bounds.history {
                self.history_bytes -= store.history.compact();
            }
        }
        while self.history_bytes > bounds.history_bytes {
            let largest = self.stores.values_mut().max_by_key(|store| store.history.bytes());
            let freed = largest.map_or(0, |store| store.history.compact());
            if freed == 0 {
                break;
            }
            self.history_bytes -= freed;
        }
    }

    /// Takes out the changes of all stores up to a revision, at most so many, except for the latest of each store.
    pub(super) fn forget(&mut self, revision: u64, mut most: usize) -> Vec<Forgotten> {
        let revision = revision.min(self.published);
        let mut forgotten = Vec::new();
        for store in self.stores.values_mut() {
            let of_store = store.history.forget(revision, ALWAYS_KEPT, most);
            most -= of_store.len();
            self.history_bytes -= of_store.bytes;
            if of_store.len() > 0 {
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
        for store in self.stores.values_mut() {
            self.history_bytes -= store.history.take_back(self.published);
            store.watchers.cut_off_after(self.published, wake);
        }
    }
}

impl Store {
    /// The page that the request asks for, at this revision. Only the page is copied, and the rest is only counted.
    pub(super) fn list(&self, request: &ListRequest, revision: u64, now: u64) -> Listed<Arc<Entry>> {
        let (start, end) = (start_of(request), after_all_with(&request.prefix));
        if is_behind(start, &end) {
            debug_assert!(false, "a list begins behind its keys: {request:?}");
            return Listed {
                revision,
                items: Vec::new(),
                rest: 0,
            };
        }
        let range = (start, end.as_ref().map(String::as_str));
        let before = match revision < now {
            true => self.history.undo(revision),
            false => BTreeMap::new(),
        };
        let present = self.objects.range::<str, _>(range);
        let mut present = present
            .filter(|(key, _)| before.is_empty() || !before.contains_key(*key))
            .peekable();
        let was = before.range::<str, _>(range);
        let mut was = was
            .filter_map(|(key, entry)| entry.as_ref().map(|entry| (key, entry)))
            .peekable();
        let mut found = std::iter::from_fn(|| match (was.peek(), present.peek()) {
            (Some((was_there, _)), Some((is_there, _))) if was_there < is_there => was.next(),
            (Some(_), None) => was.next(),
            _ => present.next(),
        });
        let page = found.by_ref().take(request.limit.unwrap_or(usize::MAX));
        Listed {
            revision,
            items: page.map(|(key, entry)| (key.clone(), entry.clone())).collect(),
            rest: found.count(),
        }
    }
}

/// Whether a range begins behind its end, or at it. A map panics over most of these.
fn is_behind(start: Bound<&str>, end: &Bound<String>) -> bool {
    match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => start >= end.as_str(),
        _ => false,
    }
}
