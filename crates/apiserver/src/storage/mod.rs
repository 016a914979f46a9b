//! Where objects live: versions, compare-and-swap, lists of one moment, watches.
//!
//! [`Storage`] is the contract; [`MemoryStorage`] keeps everything in memory; [`conformance`] checks any implementation
//! against the named invariants, which are (the names are used by the checks):
//!
//! - **store-S2** every effective write raises the revision by exactly one and the object's resourceVersion is that
//!   revision; a write that changes nothing changes nothing, not even the revision; a failed write neither;
//! - **store-S3** a write that expects another revision than the present one fails and has no effect; a create of an
//!   existing object too;
//! - **store-R1** a read shows the latest write;
//! - **store-R3** a list at an older revision shows exactly that moment, or says that it is compacted;
//! - **store-R5** pages that name one revision are parts of one list, regardless of writes between them;
//! - **store-W1** to **store-W3** events come in order of revision, once each, none left out;
//! - **store-W5** a watch that starts after revision *n* gets every event after *n*, or is told that *n* is compacted;
//! - **store-W6** a progress mark at *r* means that every event up to *r* was delivered;
//! - **store-W7** a delete event carries the last state and the deletion's revision;
//! - **store-W11** a watcher that reads too slowly is cut off; it never misses an event silently, and others do not
//!   notice.
//!
//! A stored value has neither `apiVersion` nor `kind`: they belong to the version in which it is asked for, and so one
//! encoding serves objects (with a prefix), list items (without) and watch events of every served version. Only custom
//! resources keep `apiVersion`, for those of one kind may be of different ones.
//!
//! A storage that survives its process says so with [`Storage::settle`]: no client learns of a revision that is not
//! safe.
//!
//! Not here: the rules for writes (see `server`), selectors (see `server::watch`), files (a shell's
//! [`journal::Journal`]).

pub mod conformance;
mod follow;
mod history;
pub mod journal;
mod memory;
mod shared_map;
mod stored;
mod watchers;

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use kubewright_runlog::Recorder;
use kubewright_schema::decode::{self, MAX_DEPTH};
use serde_json::Value;

pub(crate) use follow::{Derived, Followed};
pub use memory::{Bounds, MemoryStorage, Usage};
pub(crate) use shared_map::SharedMap;
pub(crate) use stored::ReadLater;
pub use stored::{Entry, StoredObject};

/// Whether two values are the same object but for `metadata.resourceVersion`.
pub fn same_content(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    if one.len() != other.len() {
        return false;
    }
    one.iter().all(|(key, left)| {
        let Some(right) = other.get(key) else { return false };
        if key != "metadata" {
            return left == right;
        }
        let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
            return left == right;
        };
        let without =
            |map: &serde_json::Map<String, Value>| map.len() - usize::from(map.contains_key("resourceVersion"));
        without(left) == without(right)
            && left
                .iter()
                .filter(|(key, _)| *key != "resourceVersion")
                .all(|(key, value)| right.get(key) == Some(value))
    })
}

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    /// The revision of the write.
    pub revision: u64,
    /// `namespace/name`, or `name` for cluster-scoped objects.
    pub key: Arc<str>,
    /// The object before; `None` when it is new.
    pub before: Option<Arc<StoredObject>>,
    /// The object after. For a delete the last state, with the revision of the delete.
    pub after: Arc<StoredObject>,
    /// Whether the object is gone.
    pub deleted: bool,
    line: OnceLock<Bytes>,
}

impl Change {
    /// A change; `after` of a delete is the last state with the revision of the delete.
    pub fn new(key: Arc<str>, before: Option<Arc<StoredObject>>, after: Arc<StoredObject>, deleted: bool) -> Change {
        Change {
            revision: after.revision(),
            key,
            before,
            after,
            deleted,
            line: OnceLock::new(),
        }
    }

    /// The line that plain JSON watches of the stored version get, encoded once for all of them.
    pub(crate) fn line(&self, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.line.get_or_init(encode).clone()
    }

    /// The most bytes in memory: the texts of both its objects with the overhead.
    pub(crate) fn size(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.encoded().len());
        history::OVERHEAD + self.key.len() + self.after.encoded().len() + before
    }

    /// `ADDED`, `MODIFIED` or `DELETED` for a watcher that sees every object.
    pub fn kind(&self) -> &'static str {
        match (&self.before, self.deleted) {
            (_, true) => "DELETED",
            (None, false) => "ADDED",
            (Some(_), false) => "MODIFIED",
        }
    }
}

/// So many changes of each store stay when history is compacted, so that a watch of a quiet store can go on where it
/// was: kube-apiserver's watch cache holds a hundred events of each resource at least (`defaultLowerBoundCapacity`).
pub const ALWAYS_KEPT: usize = 100;

/// Whether a key has a prefix. Most watchers have none, and are asked for each change: the C library compares with an
/// empty text under a mask, which costs a processor with AVX-512 some hundred nanoseconds where the text has no
/// address.
fn begins_with(key: &str, prefix: &str) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

/// The reason why storage did not do a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The key holds nothing.
    #[error("key {0} does not exist")]
    NotFound(String),
    /// The key holds something already.
    #[error("key {0} exists already")]
    AlreadyExists(String),
    /// The object's revision is not the expected one.
    #[error("key {key} is at revision {current}, not {expected}")]
    Conflict {
        /// The key.
        key: String,
        /// The revision that the writer has seen.
        expected: u64,
        /// The present revision.
        current: u64,
    },
    /// The revision is older than the kept history.
    #[error("revision {asked} is compacted, the oldest is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: u64,
        /// The oldest revision that can be read.
        oldest: u64,
    },
    /// The revision is in the future.
    #[error("revision {asked} is in the future, the present one is {current}")]
    Future {
        /// The requested revision.
        asked: u64,
        /// The present one.
        current: u64,
    },
    /// The value nests deeper than a request may, so that a client could not send it back. The change was not done.
    #[error("exceeded max depth: lists and objects nest {depth} deep, and at most {MAX_DEPTH} may")]
    TooDeep {
        /// How deep it nests.
        depth: usize,
    },
    /// The text of the object is longer than it may be, even without its `managedFields`.
    #[error("the object is too large: {0} bytes")]
    TooLarge(usize),
    /// The change cannot be kept: the journal fails. It was not done.
    #[error("the storage cannot keep changes: {0}")]
    Unavailable(String),
}

/// Which part of a store a list covers.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only keys with this prefix, such as `namespace/`; empty is the whole store.
    pub prefix: String,
    /// Keys after this one (exclusive), for the second and later pages.
    pub after: Option<String>,
    /// At this revision; `None` is now.
    pub at: Option<u64>,
    /// So many at most: a page. How many there are behind them is [`Listed::rest`].
    pub limit: Option<usize>,
}

/// A list of one moment: of objects, or of entries that open them.
#[derive(Clone, Debug)]
pub struct Listed<T = Arc<StoredObject>> {
    /// The moment.
    pub revision: u64,
    /// Keys and objects in key order.
    pub items: Vec<(Arc<str>, T)>,
    /// How many more the limit of the request left out.
    pub rest: usize,
}

/// How large an object may be. The length of its text is enough for most; near the limit, the counted size is measured.
#[derive(Clone, Copy)]
pub struct SizeLimit<'a> {
    /// How many bytes may count.
    pub max: usize,
    /// The length of a text from which on `counted` is asked.
    pub plain: usize,
    /// How many bytes an object counts whose text is so long.
    pub counted: &'a dyn Fn(&Value, usize) -> usize,
    /// Whether an object that is too large is stored without its `managedFields`, if it fits then.
    pub drops_managers: bool,
}

impl SizeLimit<'_> {
    /// Any size.
    pub const NONE: SizeLimit<'static> = SizeLimit::of_text(usize::MAX);

    /// Texts of at most so many bytes.
    pub const fn of_text(max: usize) -> SizeLimit<'static> {
        SizeLimit {
            max,
            plain: max,
            counted: &|_, length| length,
            drops_managers: true,
        }
    }

    /// By how much an object is too large, as it counts; none if it fits.
    fn exceeded(&self, value: &Value, length: usize) -> Option<usize> {
        if length <= self.plain {
            return None;
        }
        Some((self.counted)(value, length)).filter(|counted| *counted > self.max)
    }
}

/// The contract between the server and the keeper of its objects. One revision counter for all stores; it starts at 1.
///
/// All functions are atomic with regard to each other (store-S1), and none blocks for longer than a write takes.
pub trait Storage: Send + Sync + 'static {
    /// Records all later changes there, each when watchers get it. One that was set before stays.
    fn record(&self, _to: Arc<dyn Recorder>) {}

    /// The revision of the latest write.
    fn revision(&self) -> u64;

    /// The object at `key` of `store`, if there is one.
    fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>>;

    /// Creates an object.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`].
    fn create(&self, store: &str, key: &str, value: Value) -> Result<Arc<StoredObject>, StorageError> {
        self.create_up_to(store, key, value, &SizeLimit::NONE)
    }

    /// The same of an object that may be so large.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`], [`StorageError::TooLarge`].
    fn create_up_to(
        &self,
        store: &str,
        key: &str,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError>;

    /// Creates an object whose text is known: JSON as [`StoredObject::encoded`] gives it, whose
    /// `metadata.resourceVersion` is `""`. A storage may keep the text without reading it, so the caller answers for
    /// its contents.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`]; [`StorageError::Unavailable`] for a text that is read and is no JSON.
    fn create_text(&self, store: &str, key: &str, text: String) -> Result<Arc<StoredObject>, StorageError> {
        let value = decode::stored(text.as_bytes())
            .map_err(|error| StorageError::Unavailable(format!("the text of {key} is no JSON: {error}")))?;
        self.create(store, key, value)
    }

    /// Replaces the object if its revision is still `expected`. A value with the same content answers with the present
    /// object.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Conflict`].
    fn update(&self, store: &str, key: &str, expected: u64, value: Value) -> Result<Arc<StoredObject>, StorageError> {
        self.update_up_to(store, key, expected, value, &SizeLimit::NONE)
    }

    /// The same of an object that may be so large, or as large as it is now. A larger one loses its `managedFields`
    /// first.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Conflict`], [`StorageError::TooLarge`].
    fn update_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError>;

    /// The same for a caller that has compared it with the stored object, and knows that its content differs.
    ///
    /// # Errors
    /// As [`Storage::update_up_to`].
    fn replace_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        self.update_up_to(store, key, expected, value, limit)
    }

    /// Removes the object if its revision is still `expected`. Answers with the last state at the revision of the
    /// delete.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Conflict`].
    fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError>;

    /// The contents of a store at one moment, in key order, for a caller that needs the texts of many objects and may
    /// decode none of them.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] or [`StorageError::Future`] for [`ListRequest::at`].
    fn entries(&self, store: &str, request: &ListRequest) -> Result<Listed<Arc<Entry>>, StorageError>;

    /// The objects of a store at one moment, in key order: [`Storage::entries`], opened.
    ///
    /// # Errors
    /// Those of [`Storage::entries`].
    fn list(&self, store: &str, request: &ListRequest) -> Result<Listed, StorageError> {
        let Listed { revision, items, rest } = self.entries(store, request)?;
        let items = items.into_iter().map(|(key, entry)| (key, entry.object())).collect();
        Ok(Listed { revision, items, rest })
    }

    /// How many objects with a prefix a store holds now.
    fn count(&self, store: &str, prefix: &str) -> usize {
        let request = ListRequest {
            prefix: prefix.to_owned(),
            ..ListRequest::default()
        };
        self.entries(store, &request).map_or(0, |listed| listed.items.len())
    }

    /// How long the text of an object is, without opening it; 0 when there is none.
    fn text_length(&self, store: &str, key: &str) -> usize {
        self.get(store, key).map_or(0, |object| object.encoded().len())
    }

    /// Whether a store holds nothing.
    fn is_empty(&self, store: &str) -> bool {
        self.count(store, "") == 0
    }

    /// A number that differs whenever a write changed the store since it was read: a caller that caches a result of the
    /// store reads the number before the store.
    fn changes(&self, store: &str) -> u64 {
        let _ = store;
        self.revision()
    }

    /// All changes of keys with `prefix` after revision `after`.
    ///
    /// # Errors
    /// [`StorageError::Compacted`]. A revision in the future is no error: the watch is silent until it is passed.
    fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError>;

    /// A list and a watch of everything after it, without a gap.
    fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>);

    /// A future to await before a client learns of `revision`, so that no crash undoes what the client has seen; `None`
    /// when it is safe already. A storage that keeps nothing beyond its process has nothing to wait for.
    fn settle(&self, revision: u64) -> Option<journal::Settled> {
        let _ = revision;
        None
    }

    /// Why changes cannot be kept now; `None` when they can.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Forgets the changes up to `revision`, oldest first, at most so many at once; answers whether none is left of
    /// them. The latest [`ALWAYS_KEPT`] of each store stay. A storage that bounds its history by other means need not.
    fn compact(&self, revision: u64, most: usize) -> bool {
        let _ = (revision, most);
        true
    }

    /// Ends all watches.
    fn close_watches(&self);

    /// Another storage with the same objects and history, which shares their memory: it costs some pointers for each
    /// store. Nobody watches it, and nothing of it is kept beyond the process. `None` when a storage cannot do this.
    fn fork(&self) -> Option<Arc<dyn Storage>> {
        None
    }
}

/// An item that a watch gets from its store.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A change.
    Change(Arc<Change>),
    /// The reader was too slow: changes were lost, so the watch ends here (store-W11).
    Overrun,
    /// The server shuts down.
    Closed,
}

/// The changes of a store as they happen. Dropping it unsubscribes.
pub trait ChangeStream: Send {
    /// The next delivery; after [`Delivery::Overrun`] and [`Delivery::Closed`] nothing comes.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Delivery>;

    /// A revision up to which everything was delivered by [`ChangeStream::poll_next`]; `None` while something waits.
    fn progress(&self) -> Option<u64>;

    /// How many watches got the latest change that this one got, itself included: the sender of events learns from it
    /// the cost of a change.
    fn company(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_compared_without_the_version() {
        let a = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "data": {"k": "v"}});
        let mut b = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        assert!(same_content(&a, &b) && same_content(&b, &a));
        b["metadata"]["labels"] = json!({});
        assert!(!same_content(&a, &b) && !same_content(&b, &a));
        b["metadata"] = json!({"name": "b", "resourceVersion": "1"});
        assert!(!same_content(&a, &b));
    }
}
