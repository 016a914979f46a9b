//! Answers of an authorization webhook that are still good (`cache.LRUExpireCache`).
//!
//! Invariant: at most [`SIZE`] answers; the one that was not asked for longest goes first.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::review::Status;

/// How many answers are remembered, as upstream.
const SIZE: usize = 8192;

#[derive(Default)]
pub(super) struct Cache {
    entries: BTreeMap<String, Entry>,
    /// Keys by their last use.
    by_use: BTreeMap<u64, String>,
    last_use: u64,
}

struct Entry {
    status: Status,
    until: Timestamp,
    last_use: u64,
}

impl Cache {
    /// The answer to a question, unless its time is over.
    pub(super) fn get(&mut self, key: &str, now: Timestamp) -> Option<Status> {
        let entry = self.entries.get(key)?;
        if entry.until <= now {
            self.forget(key);
            return None;
        }
        let last_use = self.next_use();
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.last_use);
        entry.last_use = last_use;
        self.by_use.insert(last_use, key.to_owned());
        Some(entry.status.clone())
    }

    pub(super) fn put(&mut self, key: String, status: Status, until: Timestamp) {
        self.forget(&key);
        if self.entries.len() >= SIZE
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let last_use = self.next_use();
        self.by_use.insert(last_use, key.clone());
        self.entries.insert(
            key,
            Entry {
                status,
                until,
                last_use,
            },
        );
    }

    fn forget(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.last_use);
        }
    }

    fn next_use(&mut self) -> u64 {
        self.last_use = self.last_use.wrapping_add(1);
        self.last_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: &str) -> Status {
        Status {
            reason: reason.to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn answers_end_and_make_room() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut cache = Cache::default();
        for index in 0..SIZE {
            cache.put(index.to_string(), status("first"), at(10));
        }
        assert!(cache.get("0", at(9)).is_some(), "it is still good");
        cache.put("new".to_owned(), status("new"), at(10));
        assert!(cache.get("1", at(9)).is_none(), "the oldest made room");
        assert!(cache.get("0", at(9)).is_some(), "it was asked for since");
        assert!(cache.get("new", at(10)).is_none(), "its time is over");
        assert_eq!(cache.entries.len(), SIZE - 1);
        assert_eq!(cache.by_use.len(), SIZE - 1);
    }
}
