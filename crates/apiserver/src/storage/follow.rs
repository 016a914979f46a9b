//! State that is derived from stores, and kept by following their changes.
//!
//! A [`Followed`] reads its stores when it is first asked. Before each answer it takes in the changes since, so that an
//! answer follows from every write that ended before the question. The cost of a change depends on the changed object
//! alone, not on the number of the others. When more changed than a watch holds, everything is read again.
//!
//! Invariants: derived state can be thrown away and made from the stores again; the changes of one store come in their
//! order, those of several stores in any order.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use kubewright_schema::budget;

use super::{ChangeStream, Delivery, Storage, StoredObject};

/// State derived from the objects of some stores.
pub(crate) trait Derived: Default {
    /// Takes in the object stored at `key` now; `None`: there is none.
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>);
}

/// A [`Derived`] that is as new as the question.
pub(crate) struct Followed<D> {
    stores: &'static [&'static str],
    known: Mutex<Option<State<D>>>,
}

struct State<D> {
    derived: D,
    changes: Vec<(&'static str, Box<dyn ChangeStream>)>,
}

impl<D: Derived> State<D> {
    fn read(storage: &dyn Storage, stores: &[&'static str]) -> State<D> {
        let mut known = State {
            derived: D::default(),
            changes: Vec::new(),
        };
        for store in stores {
            let (listed, changes) = storage.list_and_watch(store, "");
            // One by one: the tree of an object is dropped with it.
            for (key, object) in listed.items {
                known.derived.apply(store, &key, Some(&object));
            }
            known.changes.push((store, changes));
        }
        known
    }

    /// Takes in the changes; answers whether that was possible.
    fn catch_up(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        for (store, changes) in &mut self.changes {
            loop {
                match changes.poll_next(&mut context) {
                    Poll::Pending => break,
                    Poll::Ready(Delivery::Change(change)) => {
                        let object = (!change.deleted).then_some(&change.after);
                        self.derived.apply(store, &change.key, object);
                    }
                    Poll::Ready(Delivery::Overrun | Delivery::Closed) => return false,
                }
            }
        }
        true
    }
}

impl<D: Derived> Followed<D> {
    /// Derived from these stores. Nothing is read before the first question.
    pub(crate) const fn new(stores: &'static [&'static str]) -> Followed<D> {
        Followed {
            stores,
            known: Mutex::new(None),
        }
    }

    /// Shows the state derived from the present contents of `storage`. It must be the same storage each time.
    pub(crate) fn look<T>(&self, storage: &dyn Storage, look: impl FnOnce(&D) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.renewed(&mut known, storage);
        // The caller may be cancelled: the state is kept.
        look(&known.derived)
    }

    /// The state as of now, whatever is asked of it.
    fn renewed<'k>(&self, known: &'k mut Option<State<D>>, storage: &dyn Storage) -> &'k State<D> {
        let current = known
            .take()
            .and_then(|mut known| budget::unlimited(|| known.catch_up()).then_some(known));
        // A storage that has ended its watches is read again for every question: right, if slow, and only while it
        // shuts down.
        known.insert(current.unwrap_or_else(|| budget::unlimited(|| State::read(storage, self.stores))))
    }

    /// Reads everything again, for tests of derived state.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::storage::{Bounds, MemoryStorage};

    /// The revisions of the present objects, by store and key, and how often something was taken in.
    #[derive(Default)]
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
}
