//! State that is derived from stores, and kept by following their changes.
//!
//! A [`Followed`] reads its stores when it is first asked. Before each answer it takes in the changes since, so that an
//! answer follows from every write that ended before the question. The cost of a change depends on the changed object
//! alone, not on the number of the others. When more changed than a watch holds, everything is read again.
//!
//! What is derived is published as an immutable state: a reader takes a reference to it and looks at it without any
//! lock, however long that takes. One at a time takes in changes, and publishes the next state.
//!
//! The first question after a change pays for it. Where that may be much, and requests of other users ask, the writer
//! does: a [`Followed::by_writers`] is [renewed](Followed::renew) by each write before that is answered. Then a reader
//! that finds another at work there takes the published state, and does not wait: each write that was answered before
//! the question is in it.
//!
//! Invariants: derived state can be thrown away and made from the stores again; the changes of one store come in their
//! order, those of several stores in any order; no state that is published changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::task::{Context, Poll, Waker};

use kubewright_schema::budget;

use super::{ChangeStream, Delivery, Storage, StoredObject};

/// State derived from the objects of some stores. A clone must be cheap, as one is made for each change: see
/// [`super::SharedMap`].
pub(crate) trait Derived: Default + Clone {
    /// Takes in the object stored at `key` now; `None`: there is none.
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>);
}

/// A [`Derived`] that is as new as the question.
pub(crate) struct Followed<D> {
    stores: &'static [&'static str],
    /// Whether each write renews it before it is answered.
    by_writers: bool,
    /// The latest state. Its lock is held only to copy the reference, or to replace it.
    published: RwLock<Option<Arc<D>>>,
    /// The changes that are not taken in yet; none before the first question. Its holder alone publishes.
    changes: Mutex<Option<Changes>>,
}

/// The changes of each store since the published state.
type Changes = Vec<(&'static str, Box<dyn ChangeStream>)>;

/// The state of the stores now, and the changes from then on.
fn read<D: Derived>(storage: &dyn Storage, stores: &[&'static str]) -> (D, Changes) {
    let (mut derived, mut all) = (D::default(), Vec::new());
    for store in stores {
        let (listed, changes) = storage.list_and_watch(store, "");
        // One by one: the tree of an object is dropped with it.
        for (key, object) in listed.items {
            derived.apply(store, &key, Some(&object));
        }
        all.push((*store, changes));
    }
    (derived, all)
}

/// The state with these changes, if there are any; an error if some of them are lost.
fn next<D: Derived>(present: &D, changes: &mut Changes) -> Result<Option<D>, ()> {
    let mut context = Context::from_waker(Waker::noop());
    let mut next = None;
    for (store, changes) in changes {
        loop {
            match changes.poll_next(&mut context) {
                Poll::Pending => break,
                Poll::Ready(Delivery::Change(change)) => {
                    let object = (!change.deleted).then_some(&change.after);
                    let next = next.get_or_insert_with(|| present.clone());
                    next.apply(store, &change.key, object);
                }
                Poll::Ready(Delivery::Overrun | Delivery::Closed) => return Err(()),
            }
        }
    }
    Ok(next)
}

impl<D: Derived> Followed<D> {
    /// Derived from these stores. Nothing is read before the first question.
    pub(crate) const fn new(stores: &'static [&'static str]) -> Followed<D> {
        Followed::of(stores, false)
    }

    /// The same, for stores whose writers call [`Followed::renew`] after each write, and before its answer.
    pub(crate) const fn by_writers(stores: &'static [&'static str]) -> Followed<D> {
        Followed::of(stores, true)
    }

    const fn of(stores: &'static [&'static str], by_writers: bool) -> Followed<D> {
        Followed {
            stores,
            by_writers,
            published: RwLock::new(None),
            changes: Mutex::new(None),
        }
    }

    /// The state derived from the present contents of `storage`. It must be the same storage each time.
    pub(crate) fn now(&self, storage: &dyn Storage) -> Arc<D> {
        let mut changes = match self.changes.try_lock() {
            Ok(changes) => changes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if self.by_writers
                    && let Some(published) = self.published()
                {
                    return published;
                }
                self.waited()
            }
        };
        self.renewed(&mut changes, storage)
    }

    /// Shows that state.
    pub(crate) fn look<T>(&self, storage: &dyn Storage, look: impl FnOnce(&D) -> T) -> T {
        look(&self.now(storage))
    }

    /// Takes in what has changed: for a writer, before its answer.
    pub(crate) fn renew(&self, storage: &dyn Storage) {
        self.renewed(&mut self.waited(), storage);
    }

    /// Whether it is derived from a store.
    pub(crate) fn follows(&self, store: &str) -> bool {
        self.stores.contains(&store)
    }

    fn waited(&self) -> MutexGuard<'_, Option<Changes>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest state that was taken in; none before the first question.
    pub(crate) fn published(&self) -> Option<Arc<D>> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes this the latest state.
    fn publish(&self, state: D) -> Arc<D> {
        let state = Arc::new(state);
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        let before = published.replace(state.clone());
        drop(published);
        // It may be the last reference to a large state: that goes without the lock.
        drop(before);
        state
    }

    /// The state as of now, whatever is asked of it. The caller may not be cancelled while it holds the changes.
    fn renewed(&self, held: &mut Option<Changes>, storage: &dyn Storage) -> Arc<D> {
        budget::unlimited(|| {
            // What a panic leaves half done is read again.
            if let (Some(mut changes), Some(present)) = (held.take(), self.published())
                && let Ok(next) = next(&*present, &mut changes)
            {
                let state = next.map_or(present, |next| self.publish(next));
                *held = Some(changes);
                return state;
            }
            // A storage that has ended its watches is read again for every question: right, if slow, and only while
            // it shuts down.
            let (state, changes) = read::<D>(storage, self.stores);
            let state = self.publish(state);
            *held = Some(changes);
            state
        })
    }

    /// Reads everything again, for tests of derived state.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        *self.waited() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::storage::{Bounds, MemoryStorage};

    /// The revisions of the present objects, by store and key, and how often something was taken in.
    #[derive(Clone, Default)]
    struct Revisions {
        known: BTreeMap<(&'static str, String), u64>,
        applied: usize,
    }

    impl Derived for Revisions {
        fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
            self.applied += 1;
            let place = (store, key.to_owned());
            match object {
                Some(object) => self.known.insert(place, object.revision()),
                None => self.known.remove(&place),
            };
        }
    }

    fn create(storage: &dyn Storage, store: &str, name: &str) {
        let value = json!({"metadata": {"name": name}});
        storage.create(store, name, value).expect("it is new");
    }

    fn names(followed: &Followed<Revisions>, storage: &dyn Storage) -> String {
        let names = |revisions: &Revisions| {
            let keys = revisions.known.keys();
            keys.map(|(store, key)| format!("{store}/{key}")).collect::<Vec<_>>()
        };
        followed.look(storage, names).join(" ")
    }

    #[test]
    fn an_answer_follows_from_every_write_before_the_question() {
        let storage = MemoryStorage::bounded(Bounds::default());
        let followed = Followed::<Revisions>::new(&["as", "bs"]);
        create(&storage, "as", "a");
        assert_eq!(names(&followed, &storage), "as/a");
        create(&storage, "bs", "b");
        create(&storage, "cs", "c");
        assert_eq!(names(&followed, &storage), "as/a bs/b");
        let revision = storage.get("as", "a").expect("it is there").revision();
        storage.delete("as", "a", revision).expect("it is there");
        assert_eq!(names(&followed, &storage), "bs/b");
        assert_eq!(followed.look(&storage, |revisions| revisions.applied), 3);
    }

    #[test]
    fn when_too_much_changed_everything_is_read_again() {
        let bounds = Bounds {
            buffer: 2,
            ..Bounds::default()
        };
        let storage = MemoryStorage::bounded(bounds);
        let followed = Followed::<Revisions>::new(&["as"]);
        assert_eq!(names(&followed, &storage), "");
        for name in ["a", "b", "c"] {
            create(&storage, "as", name);
        }
        assert_eq!(names(&followed, &storage), "as/a as/b as/c");
        storage.close_watches();
        create(&storage, "as", "d");
        assert_eq!(names(&followed, &storage), "as/a as/b as/c as/d");
    }

    /// Whoever looks holds up nobody: neither other readers, nor writers, nor whoever takes in their changes.
    #[test]
    fn nobody_waits_for_a_reader() {
        let storage = MemoryStorage::bounded(Bounds::default());
        for followed in [Followed::<Revisions>::new(&["as"]), Followed::by_writers(&["as"])] {
            let (held, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
            let before = names(&followed, &storage);
            std::thread::scope(|threads| {
                let slow = threads.spawn(|| {
                    followed.look(&storage, |revisions| {
                        held.wait();
                        go_on.wait();
                        revisions.known.len()
                    })
                });
                held.wait();
                let known = before.split_whitespace().count();
                create(&storage, "as", &format!("a{known}"));
                followed.renew(&storage);
                assert_eq!(names(&followed, &storage), format!("{before} as/a{known}").trim());
                go_on.wait();
                assert_eq!(
                    slow.join().expect("it looks"),
                    known,
                    "it looks at what was published before"
                );
            });
        }
    }

    /// Holds up whoever takes in the object `slow`.
    #[derive(Clone, Default)]
    struct Slow(Vec<String>);

    static HELD: std::sync::Barrier = std::sync::Barrier::new(2);
    static GO_ON: std::sync::Barrier = std::sync::Barrier::new(2);

    impl Derived for Slow {
        fn apply(&mut self, _store: &'static str, key: &str, _object: Option<&Arc<StoredObject>>) {
            if key == "slow" {
                HELD.wait();
                GO_ON.wait();
            }
            self.0.push(key.to_owned());
        }
    }

    /// Where writers pay, a reader sees each write that was answered, and does not wait for one that is not.
    #[test]
    fn nobody_waits_for_a_write_that_is_not_answered() {
        let storage = MemoryStorage::bounded(Bounds::default());
        let followed = Followed::<Slow>::by_writers(&["as"]);
        let names = || followed.look(&storage, |slow| slow.0.join(" "));
        assert_eq!(names(), "");
        let write = |name: &str| {
            create(&storage, "as", name);
            followed.renew(&storage);
        };
        write("a");
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| write("slow"));
            HELD.wait();
            assert_eq!(names(), "a");
            GO_ON.wait();
            writer.join().expect("it is written");
        });
        assert_eq!(names(), "a slow");
    }
}
