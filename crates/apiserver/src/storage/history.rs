//! The latest changes of one store, for watches that start in the past and for reads of older revisions.
//!
//! Changes are kept as texts, as the objects are; a reader gets one opened. There may be very many: a reader takes a
//! copy, which shares its memory, and looks through that without the lock of the storage.
//!
//! Invariant: everything after `compacted` is here.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, Weak};

use kubewright_schema::budget;

use super::stored::Entry;
use super::{Change, SharedMap, begins_with};

/// The memory of a change besides the texts of its objects: the change, two entries, their places. Rounded up.
pub(super) const OVERHEAD: usize = 256;

#[derive(Clone, Default)]
pub(super) struct History {
    /// By revision.
    changes: SharedMap<u64, Arc<Retained>>,
    compacted: u64,
    bytes: usize,
}

struct Retained {
    key: Arc<str>,
    before: Option<Arc<Entry>>,
    after: Arc<Entry>,
    deleted: bool,
    /// The opened change that some watcher still waits for: with the line that it encoded.
    open: Weak<Change>,
}

/// Changes that were taken out. To drop them takes a while, for which no lock should be held.
pub(super) struct Forgotten(Vec<Arc<Retained>>);

impl Forgotten {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Retained {
    /// The most memory that a change may hold: both its objects, though either may be held by others, too.
    fn size(&self) -> usize {
        OVERHEAD
            + self.key.len()
            + self.after.encoded().len()
            + self.before.as_ref().map_or(0, |before| before.encoded().len())
    }

    fn open(&self) -> Arc<Change> {
        if let Some(change) = self.open.upgrade() {
            return change;
        }
        let before = self.before.as_ref().map(|before| before.open().0);
        Arc::new(Change::new(self.key.clone(), before, self.after.open().0, self.deleted))
    }
}

impl History {
    /// A history that begins at a revision.
    pub(super) fn since(revision: u64) -> History {
        History {
            compacted: revision,
            ..History::default()
        }
    }

    /// The oldest revision that can still be reported.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds the latest change.
    pub(super) fn push(&mut self, change: &Arc<Change>, before: Option<Arc<Entry>>, after: Arc<Entry>) {
        let kept = Retained {
            key: change.key.clone(),
            before,
            after,
            deleted: change.deleted,
            open: Arc::downgrade(change),
        };
        self.bytes += kept.size();
        self.changes.insert(change.revision, Arc::new(kept));
    }

    /// The state of an object after the change of this revision, if that is here.
    pub(super) fn latest_of(&self, key: &str, revision: u64) -> Option<Arc<Entry>> {
        let kept = self.changes.get(&revision)?;
        (*kept.key == *key).then(|| kept.after.clone())
    }

    /// Forgets the oldest change.
    pub(super) fn compact(&mut self) {
        let oldest = self.changes.first().map(|(revision, _)| *revision);
        oldest.and_then(|oldest| self.take_oldest(oldest));
    }

    fn take_oldest(&mut self, revision: u64) -> Option<Arc<Retained>> {
        let kept = self.changes.remove(&revision)?;
        self.compacted = revision;
        self.bytes -= kept.size();
        Some(kept)
    }

    /// Takes out the changes up to `revision`, at most so many, except for the latest `kept`.
    pub(super) fn forget(&mut self, revision: u64, kept: usize, most: usize) -> Forgotten {
        let mut count = most.min(self.changes.len().saturating_sub(kept));
        // Most stores are quiet, and are asked again and again.
        if count > 0 {
            count = count.min(self.changes.count((Unbounded, Included(&revision))));
        }
        let oldest: Vec<u64> = self.changes.keys().take(count).copied().collect();
        let forgotten = oldest.into_iter().filter_map(|revision| self.take_oldest(revision));
        Forgotten(forgotten.collect())
    }

    /// Takes back every change after `revision`.
    pub(super) fn take_back(&mut self, revision: u64) {
        let later: Vec<u64> = self
            .changes
            .range((Excluded(&revision), Unbounded))
            .map(|(revision, _)| *revision)
            .collect();
        for revision in later {
            if let Some(kept) = self.changes.remove(&revision) {
                self.bytes -= kept.size();
            }
        }
        self.compacted = self.compacted.min(revision);
    }

    /// The changes of keys with `prefix` after one revision and up to another.
    pub(super) fn between(&self, after: u64, until: u64, prefix: &str) -> Backlog {
        Backlog {
            history: self.clone(),
            after,
            until,
            prefix: prefix.into(),
        }
    }

    /// The earlier states of the objects with `prefix` that changed after `revision`: the state before the first later
    /// change of each key.
    pub(super) fn undo(&self, revision: u64, prefix: &str) -> BTreeMap<Arc<str>, Option<Arc<Entry>>> {
        /// So many changes are looked at in a step.
        const LOOKED_AT: usize = 8;
        let later = (Excluded(&revision), Unbounded);
        budget::spend(self.changes.count(later) / LOOKED_AT);
        let mut before = BTreeMap::new();
        for (_, kept) in self.changes.range(later) {
            if begins_with(&kept.key, prefix)
                && let Place::Vacant(place) = before.entry(kept.key.clone())
            {
                place.insert(kept.before.clone());
            }
        }
        before
    }
}

/// Changes of the past that a watch begins with. There may be very many, so they are opened as they are read.
pub(super) struct Backlog {
    history: History,
    /// All up to here were read.
    after: u64,
    until: u64,
    prefix: Box<str>,
}

impl Backlog {
    /// Whether all were read.
    pub(super) fn is_done(&self) -> bool {
        self.after >= self.until
    }

    /// The next changes, at most so many; nothing behind the last.
    pub(super) fn next(&mut self, most: usize) -> VecDeque<Arc<Change>> {
        let mut some = VecDeque::new();
        if self.is_done() {
            return some;
        }
        let mut read = self.until;
        for (revision, kept) in self
            .history
            .changes
            .range((Excluded(&self.after), Included(&self.until)))
        {
            if begins_with(&kept.key, &self.prefix) {
                some.push_back(kept.open());
            }
            if some.len() >= most {
                read = *revision;
                break;
            }
        }
        self.after = read;
        some
    }
}
