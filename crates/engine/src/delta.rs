//! The strict-order queue between a reflector and a store (client-go's RealFIFO), and the events of the store.
//!
//! A [`Delta`] is a message of the server; an [`Event`] is the change of the store because of it. Between them stands
//! [`crate::Store::apply`]. A relist is not a special queue content with a second copy of all objects: it is a bracket
//! `ReplaceBegin … ReplaceEnd` of ordinary deltas, that the store stages and makes visible in one step at the end.
//!
//! Invariants: order is kept and nothing is merged (DF1); the queue is bounded, a full one hands the delta back and the
//! reader stops reading (DF7). Not here: whether the first list is in ([`crate::Store::is_synced`]), and tombstones for
//! keys that a relist misses: only the store knows the objects that were there, so it makes them.

use crate::key::ObjectKey;
use crate::meta::ResourceVersion;
use crate::unreadable::Unreadable;
use std::collections::VecDeque;
use std::sync::Arc;

/// One notification of a reflector, in the order in which the server gave them.
#[derive(Debug, PartialEq, Eq)]
pub enum Delta<V: ?Sized> {
    /// A watch said ADDED.
    Added(Arc<V>),
    /// A watch said MODIFIED.
    Modified(Arc<V>),
    /// A watch said DELETED (also: the object left the selector). The object is its last state, its version that of the
    /// deletion.
    Deleted(Arc<V>),
    /// A watch said ADDED or MODIFIED of an object that could not be decoded.
    Unreadable(Unreadable),
    /// A watch said DELETED, with a last state that could not be decoded.
    UnreadableDeleted(Unreadable),
    /// A list or an initial stream starts. A bracket that is still open is dropped.
    ReplaceBegin,
    /// Objects of the list: a page, or one object of an initial stream.
    ReplaceItems(Vec<Arc<V>>),
    /// Objects of the list that could not be decoded.
    ReplaceUnreadable(Vec<Unreadable>),
    /// An object of the initial stream was deleted before the stream was complete.
    ReplaceDeleted(ObjectKey),
    /// The list broke off: the staged objects are dropped, the store stays as it was.
    ReplaceAborted,
    /// The list is complete: it becomes the content of the store.
    ReplaceEnd {
        /// The version of the whole list.
        resource_version: ResourceVersion,
        /// The server was asked for its newest state. Only then may the version be older than the store's, which means
        /// that the history of the server was replaced (restored or recreated storage).
        authoritative: bool,
    },
    /// Everything up to this version was delivered.
    Bookmark(ResourceVersion),
}

impl<V: ?Sized> Clone for Delta<V> {
    fn clone(&self) -> Delta<V> {
        match self {
            Delta::Added(object) => Delta::Added(object.clone()),
            Delta::Modified(object) => Delta::Modified(object.clone()),
            Delta::Deleted(object) => Delta::Deleted(object.clone()),
            Delta::Unreadable(object) => Delta::Unreadable(object.clone()),
            Delta::UnreadableDeleted(object) => Delta::UnreadableDeleted(object.clone()),
            Delta::ReplaceBegin => Delta::ReplaceBegin,
            Delta::ReplaceItems(items) => Delta::ReplaceItems(items.clone()),
            Delta::ReplaceUnreadable(objects) => Delta::ReplaceUnreadable(objects.clone()),
            Delta::ReplaceDeleted(key) => Delta::ReplaceDeleted(key.clone()),
            Delta::ReplaceAborted => Delta::ReplaceAborted,
            Delta::ReplaceEnd {
                resource_version,
                authoritative,
            } => Delta::ReplaceEnd {
                resource_version: resource_version.clone(),
                authoritative: *authoritative,
            },
            Delta::Bookmark(version) => Delta::Bookmark(version.clone()),
        }
    }
}

/// A change of the store, as handlers see it.
///
/// For one key a handler sees `(Added Modified* Deleted)*` and nothing else. An object that was deleted and created
/// again between two looks shows as `Deleted` of the old uid, then `Added` of the new one, never as `Modified`.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<V: ?Sized> {
    /// The object is new to the store.
    Added {
        /// The object.
        object: Arc<V>,
        /// It came with the first list, or with the snapshot that a late handler is given.
        initial: bool,
    },
    /// The object changed.
    Modified {
        /// The object before.
        old: Arc<V>,
        /// The object now.
        new: Arc<V>,
    },
    /// The object is gone.
    Deleted {
        /// Its key.
        key: ObjectKey,
        /// Its last known state. From a watch event it carries the version of the deletion.
        object: Arc<V>,
        /// The deletion itself was not seen (client-go's `DeletedFinalStateUnknown`): `object` is the last state that
        /// the store had, there may have been later ones.
        final_state_unknown: bool,
    },
}

impl<V: ?Sized> Clone for Event<V> {
    fn clone(&self) -> Event<V> {
        self.map(Arc::clone)
    }
}

impl<V: ?Sized> Event<V> {
    /// The newest state that the event speaks of: the object, the new one of a modification, the last known of a
    /// deletion.
    pub fn object(&self) -> &Arc<V> {
        match self {
            Event::Added { object, .. } | Event::Deleted { object, .. } => object,
            Event::Modified { new, .. } => new,
        }
    }

    /// The same event of other objects: each of this one's is replaced by the result of `of`, such as a view or its own
    /// type.
    pub fn map<W: ?Sized>(&self, of: impl Fn(&Arc<V>) -> Arc<W>) -> Event<W> {
        match self {
            Event::Added { object, initial } => Event::Added {
                object: of(object),
                initial: *initial,
            },
            Event::Modified { old, new } => Event::Modified {
                old: of(old),
                new: of(new),
            },
            Event::Deleted {
                key,
                object,
                final_state_unknown,
            } => Event::Deleted {
                key: key.clone(),
                object: of(object),
                final_state_unknown: *final_state_unknown,
            },
        }
    }
}

/// A bounded first-in-first-out queue of [`Delta`]s.
#[derive(Debug)]
pub struct DeltaQueue<V: ?Sized> {
    queue: VecDeque<Delta<V>>,
    objects: usize,
    capacity: usize,
}

/// How many objects may wait between reflector and store by default; client-go's back-pressure starts at the same
/// number.
pub const DEFAULT_CAPACITY: usize = 2000;

impl<V: ?Sized> Default for DeltaQueue<V> {
    fn default() -> DeltaQueue<V> {
        DeltaQueue::new(DEFAULT_CAPACITY)
    }
}

impl<V: ?Sized> DeltaQueue<V> {
    /// A queue for `capacity` objects (at least 1). A single delta that is larger, a long page, is taken when nothing
    /// waits.
    pub fn new(capacity: usize) -> DeltaQueue<V> {
        DeltaQueue {
            queue: VecDeque::new(),
            objects: 0,
            capacity: capacity.max(1),
        }
    }

    /// Appends a delta.
    ///
    /// # Errors
    /// The delta, when its objects do not fit: pop some, then push it again.
    pub fn push(&mut self, delta: Delta<V>) -> Result<(), Delta<V>> {
        let weight = weight(&delta);
        if self.objects > 0 && self.objects + weight > self.capacity {
            return Err(delta);
        }
        self.objects += weight;
        self.queue.push_back(delta);
        Ok(())
    }

    /// Takes the oldest deltas, at most `max` (at least one); `None` when nothing waits.
    pub fn pop_batch(&mut self, max: usize) -> Option<Vec<Delta<V>>> {
        let count = self.queue.len().min(max.max(1));
        if count == 0 {
            return None;
        }
        let batch: Vec<Delta<V>> = self.queue.drain(..count).collect();
        self.objects -= batch.iter().map(weight).sum::<usize>();
        Some(batch)
    }

    /// How many deltas wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many objects wait; their number is bounded.
    pub fn objects(&self) -> usize {
        self.objects
    }
}

/// Brackets and bookmarks count as one, so that they are bounded as well.
fn weight<V: ?Sized>(delta: &Delta<V>) -> usize {
    match delta {
        Delta::ReplaceItems(items) => items.len().max(1),
        Delta::ReplaceUnreadable(objects) => objects.len().max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_all(queue: &mut DeltaQueue<u32>, deltas: Vec<Delta<u32>>) {
        for delta in deltas {
            queue.push(delta).expect("there is room");
        }
    }

    #[test]
    fn df1_order_is_kept() {
        let mut queue = DeltaQueue::default();
        let sent = vec![
            Delta::Added(Arc::new(1)),
            Delta::Modified(Arc::new(1)),
            Delta::Deleted(Arc::new(1)),
            Delta::Added(Arc::new(2)),
            Delta::Bookmark("7".into()),
        ];
        push_all(&mut queue, sent.clone());
        let mut got = Vec::new();
        while let Some(batch) = queue.pop_batch(2) {
            assert!(batch.len() <= 2);
            got.extend(batch);
        }
        assert_eq!(got, sent);
    }

    #[test]
    fn df7_full_queue_hands_the_delta_back() {
        let mut queue = DeltaQueue::new(2);
        push_all(&mut queue, vec![Delta::Added(Arc::new(1)), Delta::Added(Arc::new(2))]);
        assert!(matches!(
            queue.push(Delta::Deleted(Arc::new(1))),
            Err(Delta::Deleted(_))
        ));
        queue.pop_batch(2).expect("two deltas wait");
        let page = Delta::ReplaceItems((0..100).map(Arc::new).collect());
        queue.push(page).expect("a long page is taken when nothing waits");
        assert_eq!(queue.objects(), 100);
        assert!(queue.push(Delta::ReplaceAborted).is_err());
    }
}
