//! The latest changes of one store, for watches that start in the past and for reads of older revisions.
//!
//! Changes are kept as texts, as the objects are; a reader gets one opened. Invariant: everything after `compacted` is
//! here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use super::stored::Entry;
use super::{Change, begins_with};

/// The memory of a change besides the texts of its objects: the change, two entries, their places. Rounded up.
pub(super) const OVERHEAD: usize = 256;

#[derive(Default)]
pub(super) struct History {
    /// Oldest first.
    changes: VecDeque<Retained>,
    compacted: u64,
    bytes: usize,
}

struct Retained {
    revision: u64,
    key: Arc<str>,
    before: Option<Arc<Entry>>,
    after: Arc<Entry>,
    deleted: bool,
    /// The opened change that some watcher still waits for: with the line that it encoded.
    open: Weak<Change>,
}

/// Changes that were taken out. To drop them takes a while, for which no lock should be held.
pub(super) struct Forgotten(Vec<Retained>);

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
            revision: change.revision,
            key: change.key.clone(),
            before,
            after,
            deleted: change.deleted,
            open: Arc::downgrade(change),
        };
        self.bytes += kept.size();
        self.changes.push_back(kept);
    }

    /// Forgets the oldest change.
    pub(super) fn compact(&mut self) {
        if let Some(kept) = self.changes.pop_front() {
            self.compacted = kept.revision;
            self.bytes -= kept.size();
        }
    }

    /// Takes out the changes up to `revision`, at most so many, except for the latest `kept`.
    pub(super) fn forget(&mut self, revision: u64, kept: usize, most: usize) -> Forgotten {
        let mut count = most.min(self.changes.len().saturating_sub(kept));
        // Most stores are quiet, and are asked again and again.
        if count > 0 {
            count = count.min(self.changes.partition_point(|change| change.revision <= revision));
        }
        let forgotten: Vec<Retained> = self.changes.drain(..count).collect();
        if let Some(last) = forgotten.last() {
            self.compacted = last.revision;
            // A queue that was long once would keep its room.
            self.changes.shrink_to(2 * self.changes.len());
        }
        self.bytes -= forgotten.iter().map(Retained::size).sum::<usize>();
        Forgotten(forgotten)
    }

    /// Takes back every change after `revision`.
    pub(super) fn take_back(&mut self, revision: u64) {
        while self.changes.back().is_some_and(|kept| kept.revision > revision) {
            if let Some(kept) = self.changes.pop_back() {
                self.bytes -= kept.size();
            }
        }
        self.compacted = self.compacted.min(revision);
    }

    /// The changes of keys with `prefix` after one revision and up to another.
    pub(super) fn between(&self, after: u64, until: u64, prefix: &str) -> VecDeque<Arc<Change>> {
        self.changes
            .iter()
            .skip(self.changes.partition_point(|kept| kept.revision <= after))
            .take_while(|kept| kept.revision <= until)
            .filter(|kept| begins_with(&kept.key, prefix))
            .map(Retained::open)
            .collect()
    }

    /// The earlier states of the objects that changed after `revision`: the state before the first later change of each
    /// key.
    pub(super) fn undo(&self, revision: u64) -> BTreeMap<Arc<str>, Option<Arc<Entry>>> {
        let later = self.changes.iter().rev().take_while(|kept| kept.revision > revision);
        later.map(|kept| (kept.key.clone(), kept.before.clone())).collect()
    }
}
