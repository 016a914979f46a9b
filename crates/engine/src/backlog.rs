//! What a slow handler has not been told yet: one entry for each key, however much happens to it.
//!
//! Events that wait are folded into one that leads from what the handler knows to what is: two modifications into one from the first old state to
//! the last new one, an object that came and went into nothing. What was deleted and made again stays two events, so that a new uid is never
//! hidden in a modification. Invariants: SI1 what comes out is a valid history `(Added Modified* Deleted)*` for each key; folded, it is what the
//! store holds; memory is bounded by the number of keys, not of events (a queue in front of a handler, client-go's `processorListener`, grows with
//! the events).
//!
//! Not here: the lock, and who takes the events out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delta::Event;
use crate::key::ObjectKey;

/// The events that wait for one handler.
pub struct Backlog<V: ?Sized> {
    waiting: BTreeMap<ObjectKey, (u64, Pending<V>)>,
    /// Keys in the order in which they began to wait.
    order: BTreeMap<u64, ObjectKey>,
    next: u64,
}

/// What waits for one key.
enum Pending<V: ?Sized> {
    One(Event<V>),
    /// A deletion, then an object of the same name.
    Replaced(Event<V>, Event<V>),
}

impl<V: ?Sized> Default for Backlog<V> {
    fn default() -> Backlog<V> {
        Backlog {
            waiting: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<V: ?Sized> Backlog<V> {
    /// Adds an event. The states that nobody will be told of are returned, so that they are dropped where their `Drop` does no harm.
    pub fn push(&mut self, key: &ObjectKey, event: Event<V>) -> Vec<Arc<V>> {
        let Some((ticket, before)) = self.waiting.remove(key) else {
            let ticket = self.next;
            self.next = self.next.wrapping_add(1);
            self.order.insert(ticket, key.clone());
            self.waiting.insert(key.clone(), (ticket, Pending::One(event)));
            return Vec::new();
        };
        let (after, dropped) = fold(before, event);
        match after {
            Some(pending) => drop(self.waiting.insert(key.clone(), (ticket, pending))),
            None => drop(self.order.remove(&ticket)),
        }
        dropped
    }

    /// The next event, of the key that waits longest.
    pub fn pop(&mut self) -> Option<Event<V>> {
        let (ticket, key) = self.order.pop_first()?;
        let (_, pending) = self.waiting.remove(&key).expect("what has a place waits");
        match pending {
            Pending::One(event) => Some(event),
            Pending::Replaced(deleted, added) => {
                self.waiting.insert(key.clone(), (ticket, Pending::One(added)));
                self.order.insert(ticket, key);
                Some(deleted)
            }
        }
    }

    /// How many keys wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// One entry out of what waits and what happens; nothing when the handler need not know.
fn fold<V: ?Sized>(before: Pending<V>, event: Event<V>) -> (Option<Pending<V>>, Vec<Arc<V>>) {
    use Event::{Added, Deleted, Modified};
    use Pending::{One, Replaced};
    match (before, event) {
        (One(Added { object, initial }), Modified { old, new }) => {
            (Some(One(Added { object: new, initial })), vec![object, old])
        }
        (One(Added { object, initial }), Added { object: new, .. }) => {
            (Some(One(Added { object: new, initial })), vec![object])
        }
        (One(Added { object, .. }), Deleted { object: last, .. }) => (None, vec![object, last]),
        (One(Modified { old, new: skipped }), Modified { old: also, new }) => {
            (Some(One(Modified { old, new })), vec![skipped, also])
        }
        (One(Modified { old, new: skipped }), Added { object: new, .. }) => {
            (Some(One(Modified { old, new })), vec![skipped])
        }
        (One(Modified { old, new }), deleted @ Deleted { .. }) => (Some(One(deleted)), vec![old, new]),
        (One(deleted @ Deleted { .. }), added @ Added { .. }) => (Some(Replaced(deleted, added)), Vec::new()),
        (One(deleted @ Deleted { .. }), Modified { old, new }) => {
            let added = Added {
                object: new,
                initial: false,
            };
            (Some(Replaced(deleted, added)), vec![old])
        }
        (One(deleted @ Deleted { .. }), Deleted { object, .. }) => (Some(One(deleted)), vec![object]),
        (Replaced(deleted, added), event) => {
            let (added, mut dropped) = fold(One(added), event);
            match added {
                Some(One(added)) => (Some(Replaced(deleted, added)), dropped),
                // What came went again: the handler only hears of the first one's end.
                None => (Some(One(deleted)), dropped),
                Some(Replaced(also, added)) => {
                    dropped.push(also.object().clone());
                    (Some(Replaced(deleted, added)), dropped)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "x";

    /// What can happen: the object comes, changes, goes, or the handler is told of the next event.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Come,
        Change,
        Go,
        Tell,
    }

    /// A handler that insists on a valid history, and knows what it was told.
    #[derive(Default)]
    struct Handler(Option<u32>);

    impl Handler {
        fn told(&mut self, event: &Event<u32>) {
            match (event, self.0) {
                (Event::Added { object, .. }, None) => self.0 = Some(**object),
                (Event::Modified { old, new }, Some(known)) => {
                    assert_eq!(**old, known, "a modification begins with what the handler knows");
                    // Tens stand for the uid.
                    assert_eq!(**new / 10, known / 10, "another uid is never a modification");
                    self.0 = Some(**new);
                }
                (Event::Deleted { object, .. }, Some(known)) => {
                    assert_eq!(**object / 10, known / 10, "what is deleted is what was known");
                    self.0 = None;
                }
                (event, known) => panic!("{event:?} to a handler that knows {known:?}"),
            }
        }
    }

    fn run(steps: &[Step]) {
        let key = ObjectKey::cluster(KEY);
        let (mut backlog, mut handler, mut store) = (Backlog::default(), Handler::default(), None);
        let mut uids = 0;
        for step in steps {
            let event = match (step, store) {
                (Step::Come, None) => {
                    uids += 10;
                    store = Some(uids);
                    Event::Added {
                        object: Arc::new(uids),
                        initial: uids == 10,
                    }
                }
                (Step::Change, Some(old)) => {
                    store = Some(old + 1);
                    Event::Modified {
                        old: Arc::new(old),
                        new: Arc::new(old + 1),
                    }
                }
                (Step::Go, Some(old)) => {
                    store = None;
                    Event::Deleted {
                        key: key.clone(),
                        object: Arc::new(old),
                        final_state_unknown: false,
                    }
                }
                (Step::Tell, _) => {
                    if let Some(event) = backlog.pop() {
                        handler.told(&event);
                    }
                    continue;
                }
                _ => continue,
            };
            backlog.push(&key, event);
            assert!(backlog.len() <= 1 && backlog.order.len() == backlog.len());
        }
        while let Some(event) = backlog.pop() {
            handler.told(&event);
        }
        assert_eq!(handler.0, store, "{steps:?}");
    }

    /// Every sequence of eight steps, the handler being told at every possible moment.
    #[test]
    fn si1_whatever_waits_the_history_is_valid() {
        let all = [Step::Come, Step::Change, Step::Go, Step::Tell];
        for number in 0..4_usize.pow(8) {
            let steps: Vec<Step> = (0..8).map(|place| all[number / 4_usize.pow(place) % 4]).collect();
            run(&steps);
        }
    }

    #[test]
    fn keys_come_in_the_order_in_which_they_began_to_wait() {
        let mut backlog = Backlog::default();
        let added = |object: u32| Event::Added {
            object: Arc::new(object),
            initial: false,
        };
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        backlog.push(&b, added(1));
        backlog.push(&a, added(2));
        let change = Event::Modified {
            old: Arc::new(1),
            new: Arc::new(3),
        };
        assert_eq!(backlog.push(&b, change).len(), 2, "two states that nobody is told of");
        assert_eq!(backlog.len(), 2);
        assert_eq!(backlog.pop(), Some(added(3)));
        assert_eq!(backlog.pop(), Some(added(2)));
        assert_eq!(backlog.pop(), None);
        assert!(backlog.is_empty());
    }
}
