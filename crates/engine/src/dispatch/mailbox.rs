//! The changes that wait for one handler that may be slow: at most one of each key.
//!
//! A later change of a key that waits is folded into it, so that the handler, once it has caught up, knows the exact
//! content of the store. The handler still sees a valid history (SI1), and the old object of a modification is the one
//! that it was told last (SI3):
//!
//! | waits | comes | then waits |
//! |---|---|---|
//! | added | modified | added, with the newest state |
//! | added | deleted | nothing: the handler never knew it |
//! | modified | modified | modified, from the oldest old state to the newest new one |
//! | modified | deleted | deleted |
//! | deleted | added | both, in this order: a successor is never shown as a change of its predecessor |
//! | deleted, added | modified | both, with the newest state |
//! | deleted, added | deleted | the first deletion |
//!
//! Invariants: the length is bounded by the keys that the handler knows and those of the store (SI7). A key keeps its
//! place in the line when changes are folded into it, so that a busy one does not wait for ever, and so that changes
//! from before a [`Mailbox::mark`] are known to be told when the line has passed the mark (SI5).
//!
//! Not here: handlers whose every event counts. A mapping from a state to keys must see each state, since the owner in
//! between may have acted on it; such a handler is quick and runs inline.

use crate::delta::Event;
use crate::key::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changes that wait for one handler.
#[derive(Debug)]
pub struct Mailbox<V: ?Sized> {
    line: BTreeMap<u64, ObjectKey>,
    waiting: BTreeMap<ObjectKey, Waiting<V>>,
    next: u64,
    /// The place of the mail that was taken and is not done.
    out: Option<u64>,
}

#[derive(Debug)]
struct Waiting<V: ?Sized> {
    place: u64,
    mail: Mail<V>,
}

/// The changes of one key for a handler: an event, and for a successor of a deleted object a second one.
#[derive(Debug, PartialEq, Eq)]
pub struct Mail<V: ?Sized> {
    /// The change.
    pub first: Event<V>,
    /// `Added`, after a `Deleted`.
    pub then: Option<Event<V>>,
}

/// A place in the line; see [`Mailbox::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

impl<V: ?Sized> Default for Mailbox<V> {
    fn default() -> Mailbox<V> {
        Mailbox {
            line: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            out: None,
        }
    }
}

impl<V: ?Sized> Mailbox<V> {
    /// Puts an event in. Answers the objects that the handler will not be told of any more: their `Drop` may be foreign
    /// code, which the caller runs where a panic does no harm.
    pub fn put(&mut self, key: ObjectKey, event: Event<V>) -> Vec<Arc<V>> {
        let Some(Waiting { place, mail }) = self.waiting.remove(&key) else {
            let place = self.next;
            self.next += 1;
            self.line.insert(place, key.clone());
            self.waiting.insert(
                key,
                Waiting {
                    place,
                    mail: event.into(),
                },
            );
            return Vec::new();
        };
        let mut spent = Vec::new();
        match mail.fold(event, &mut spent) {
            Some(mail) => {
                self.waiting.insert(key, Waiting { place, mail });
            }
            None => {
                self.line.remove(&place);
            }
        }
        spent
    }

    /// Takes the mail that has waited longest. Tell the handler, then call [`Mailbox::done`]. `None` when nothing
    /// waits.
    pub fn take(&mut self) -> Option<Mail<V>> {
        let (place, key) = self.line.pop_first()?;
        let waiting = self.waiting.remove(&key)?;
        self.out = Some(place);
        Some(waiting.mail)
    }

    /// The handler has returned for the last mail.
    pub fn done(&mut self) {
        self.out = None;
    }

    /// The end of the line.
    pub fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Whether the handler has returned for everything that stood in the line before the mark.
    pub fn passed(&self, mark: Mark) -> bool {
        let first = self.line.first_key_value().map(|(place, _)| *place);
        [self.out, first].into_iter().flatten().all(|place| place >= mark.0)
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

impl<V: ?Sized> From<Event<V>> for Mail<V> {
    fn from(first: Event<V>) -> Mail<V> {
        Mail { first, then: None }
    }
}

impl<V: ?Sized> Mail<V> {
    /// The table above; `None` when there is nothing left to tell.
    fn fold(self, later: Event<V>, spent: &mut Vec<Arc<V>>) -> Option<Mail<V>> {
        let Mail { first, then } = self;
        let Some(second) = then else {
            return match (first, later) {
                (first @ Event::Deleted { .. }, later @ Event::Added { .. }) => Some(Mail {
                    first,
                    then: Some(later),
                }),
                (first, later) => fold(first, later, spent).map(Mail::from),
            };
        };
        let then = fold(second, later, spent);
        Some(Mail { first, then })
    }
}

/// Two events of one incarnation.
fn fold<V: ?Sized>(first: Event<V>, later: Event<V>, spent: &mut Vec<Arc<V>>) -> Option<Event<V>> {
    match (first, later) {
        (Event::Added { object, initial }, Event::Modified { old, new }) => {
            spent.extend([object, old]);
            Some(Event::Added { object: new, initial })
        }
        (Event::Added { object, .. }, Event::Deleted { object: last, .. }) => {
            spent.extend([object, last]);
            None
        }
        (
            Event::Modified { old, new },
            Event::Modified {
                old: between,
                new: newest,
            },
        ) => {
            spent.extend([new, between]);
            Some(Event::Modified { old, new: newest })
        }
        (Event::Modified { old, new }, deleted @ Event::Deleted { .. }) => {
            spent.extend([old, new]);
            Some(deleted)
        }
        // The store sends no other pair; should it, the newer word counts.
        (first, later) => {
            spent.push(first.object().clone());
            if let Event::Modified { old, .. } = first {
                spent.push(old);
            }
            Some(later)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An incarnation and its version.
    type Object = (u64, u64);

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        Write(&'static str),
        Delete(&'static str),
        Take,
    }

    const STEPS: [Step; 5] = [
        Step::Write("a"),
        Step::Delete("a"),
        Step::Write("b"),
        Step::Delete("b"),
        Step::Take,
    ];

    /// A store, a handler behind a mailbox, and the objects that the handler believes in.
    #[derive(Default)]
    struct World {
        store: BTreeMap<ObjectKey, Object>,
        delivered: BTreeMap<ObjectKey, Object>,
        mailbox: Mailbox<(ObjectKey, Object)>,
        version: u64,
    }

    impl World {
        fn put(&mut self, key: &ObjectKey, event: Event<(ObjectKey, Object)>) {
            self.mailbox.put(key.clone(), event);
        }

        fn write(&mut self, key: &ObjectKey) {
            self.version += 1;
            let old = self.store.get(key).copied();
            let new = (old.map_or(self.version, |old| old.0), self.version);
            self.store.insert(key.clone(), new);
            let object = Arc::new((key.clone(), new));
            let event = match old {
                Some(old) => Event::Modified {
                    old: Arc::new((key.clone(), old)),
                    new: object,
                },
                None => Event::Added { object, initial: false },
            };
            self.put(key, event);
        }

        fn delete(&mut self, key: &ObjectKey) {
            let Some((uid, _)) = self.store.remove(key) else { return };
            self.version += 1;
            let object = Arc::new((key.clone(), (uid, self.version)));
            let event = Event::Deleted {
                key: key.clone(),
                object,
                final_state_unknown: false,
            };
            self.put(key, event);
        }

        /// SI1 and SI3: each event fits the earlier ones of the handler.
        fn receive(&mut self, event: &Event<(ObjectKey, Object)>) {
            let (key, object) = &**event.object();
            match event {
                Event::Added { .. } => assert_eq!(self.delivered.insert(key.clone(), *object), None, "added twice"),
                Event::Modified { old, .. } => {
                    assert_eq!(old.1.0, object.0, "a successor is no change");
                    assert_eq!(
                        self.delivered.insert(key.clone(), *object),
                        Some(old.1),
                        "the old state was told"
                    );
                }
                Event::Deleted { .. } => {
                    let known = self.delivered.remove(key).expect("only what was told is deleted");
                    assert_eq!(known.0, object.0, "the deletion is of what was told");
                }
            }
        }

        fn take(&mut self) {
            if let Some(mail) = self.mailbox.take() {
                self.receive(&mail.first);
                mail.then.iter().for_each(|event| self.receive(event));
                self.mailbox.done();
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Write(name) => self.write(&ObjectKey::cluster(name)),
                Step::Delete(name) => self.delete(&ObjectKey::cluster(name)),
                Step::Take => self.take(),
            }
            let mut keys: Vec<_> = self.store.keys().chain(self.delivered.keys()).collect();
            keys.sort();
            keys.dedup();
            assert!(self.mailbox.len() <= keys.len(), "more waits than there are keys");
            assert_eq!(self.mailbox.len(), self.mailbox.line.len());
        }
    }

    #[test]
    fn si7_every_short_history_is_told_folded() {
        const LENGTH: u32 = 7;
        for number in 0..5_usize.pow(LENGTH) {
            let steps = (0..LENGTH).map(|place| STEPS[number / 5_usize.pow(place) % 5]);
            let mut world = World::default();
            steps.for_each(|step| world.step(step));
            while !world.mailbox.is_empty() {
                world.take();
            }
            assert_eq!(world.delivered, world.store, "history number {number}");
        }
    }

    #[test]
    fn si7_a_busy_key_keeps_its_place() {
        let mut world = World::default();
        for name in ["a", "b", "a", "a"] {
            world.write(&ObjectKey::cluster(name));
        }
        let first = world.mailbox.take().expect("two keys wait").first;
        assert_eq!(first.object().0, ObjectKey::cluster("a"));
        assert_eq!(first.object().1, (1, 4), "with its newest state");
    }

    #[test]
    fn si5_a_mark_is_passed_when_the_handler_has_returned() {
        let mut world = World::default();
        let empty = world.mailbox.mark();
        assert!(world.mailbox.passed(empty), "nothing was before it");
        world.write(&ObjectKey::cluster("a"));
        let mark = world.mailbox.mark();
        world.write(&ObjectKey::cluster("b"));
        world.write(&ObjectKey::cluster("a"));
        assert!(!world.mailbox.passed(mark), "it waits");
        world.mailbox.take().expect("a waits");
        assert!(!world.mailbox.passed(mark), "the handler has not returned");
        world.mailbox.done();
        assert!(world.mailbox.passed(mark), "what came later does not count");
    }
}
