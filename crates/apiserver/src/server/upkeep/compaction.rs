//! The history of changes ends some minutes ago, and not only where it would grow too large: as with etcd, which
//! kube-apiserver compacts every five minutes (`--etcd-compaction-interval`) up to the revision that it saw the time
//! before. Without that, a cluster that was busy once would keep the memory of its last changes for ever.
//!
//! Invariants: a change is kept for the interval at least, unless the bounds of the storage are reached; the latest
//! changes of each kind stay regardless of their age ([`ALWAYS_KEPT`](crate::storage::ALWAYS_KEPT)); no request pays
//! for more than [`AT_ONCE`].
//!
//! There is no timer: requests look at the time. A simulated clock stays where it is, and a server that nobody asks
//! does nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::server::Inner;
use crate::storage::Storage;

/// So many changes are forgotten by one request: about a millisecond.
const AT_ONCE: usize = 4000;

/// When history is compacted next, and up to where.
#[derive(Default)]
pub(crate) struct Compaction {
    /// In milliseconds since 1970, for a look without a lock.
    due: AtomicI64,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The revision when the latest compaction began: where the next one ends.
    seen: u64,
    /// The end of the present one.
    compacting: Option<u64>,
}

impl Compaction {
    /// Does the next step, if one is due at this time.
    fn step(&self, storage: &dyn Storage, now: Timestamp, interval: Duration) {
        let now = now.as_millisecond();
        if now < self.due.load(Ordering::Relaxed) {
            return;
        }
        // Where another request is at it, this one need not wait.
        let Ok(mut progress) = self.progress.try_lock() else {
            return;
        };
        let until = match progress.compacting {
            Some(until) => until,
            None => std::mem::replace(&mut progress.seen, storage.revision()),
        };
        let is_done = storage.compact(until, AT_ONCE);
        progress.compacting = (!is_done).then_some(until);
        if is_done {
            let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
            self.due.store(now.saturating_add(interval), Ordering::Relaxed);
        }
    }
}

impl Inner {
    /// Runs with every request.
    pub(crate) fn compact(&self, now: Timestamp) {
        let interval = self.config.compaction_interval;
        if !interval.is_zero() {
            self.compaction.step(self.storage.as_ref(), now, interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::{ALWAYS_KEPT, Bounds, MemoryStorage};

    /// Two changes a second, and a request in between.
    #[test]
    fn history_ends_between_one_and_two_intervals_ago() {
        let storage = MemoryStorage::bounded(Bounds {
            history: usize::MAX,
            ..Bounds::default()
        });
        let compaction = Compaction::default();
        let interval = Duration::from_secs(300);
        let mut revision = storage
            .create("s", "a", json!({"metadata": {}}))
            .expect("a is new")
            .revision();
        let mut history = Vec::new();
        for second in 0..2000 {
            for value in 0..2 {
                let next = json!({"metadata": {}, "data": {"n": format!("{second}.{value}")}});
                revision = storage.update("s", "a", revision, next).expect("a is there").revision();
            }
            compaction.step(&storage, Timestamp::from_second(second).expect("a time"), interval);
            history.push(storage.usage().changes);
        }
        let (least, most) = history[700..].iter().fold((usize::MAX, 0), |(least, most), changes| {
            (least.min(*changes), most.max(*changes))
        });
        assert!(
            least >= 600 && most <= 1203,
            "between {least} and {most} changes were kept"
        );
        for second in 2000..3000 {
            compaction.step(&storage, Timestamp::from_second(second).expect("a time"), interval);
        }
        assert_eq!(storage.usage().changes, ALWAYS_KEPT);
    }
}
