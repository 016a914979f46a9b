//! Cached objects at rest: metadata and JSON text, decoded when read and kept decoded while they are used.
//!
//! A decoded Pod takes eight times its text, and of 50,000 Pods an operator looks at few. So a cache holds [`Packed`] objects. Each
//! was decoded once when it arrived, which is how objects that cannot be decoded are found; what that gave stays until a
//! [`Shelf`], one for each informer, is full, and so does what reads decode. A kind whose texts fit on the shelf is decoded for
//! good; of a larger one the objects that were decoded last are. Whoever holds a decoded object keeps it, and others are given the same.
//!
//! Invariants: a `Packed` never changes; the text is without managedFields; the shelf counts the texts of what it keeps decoded, and holds no
//! object that the cache has dropped. An object is decoded twice by the same function from the same text: a `Deserialize` that then
//! fails, or panics, does so in the reader.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::core::ObjectMeta;
use serde_json::Value;

use crate::error::end_of_panic;
use crate::form::{AsJson, Cached};

/// How much text of decoded objects each informer keeps unless it is told otherwise: 2 MiB, which decoded are about 16.
pub(crate) const DECODED: usize = 2 << 20;

/// How an object is read out of its text.
pub(crate) type Read = fn(&[u8]) -> serde_json::Result<Arc<dyn Cached>>;

/// One object of a cache.
pub(crate) struct Packed {
    meta: ObjectMeta,
    text: Box<[u8]>,
    read: Read,
    shelf: Arc<Shelf>,
    state: Mutex<State>,
}

enum State {
    /// On the shelf.
    Decoded(Arc<dyn Cached>),
    /// At rest, but for those who hold it.
    AtRest(Weak<dyn Cached>),
}

/// The decoded objects of one informer.
pub(crate) struct Shelf {
    budget: usize,
    line: Mutex<Line>,
}

/// In the order in which they were decoded.
#[derive(Default)]
struct Line {
    objects: VecDeque<(Weak<Packed>, usize)>,
    bytes: usize,
}

impl Packed {
    /// The object of a text that was just decoded.
    pub(crate) fn new(object: Arc<dyn Cached>, text: Vec<u8>, read: Read, shelf: &Arc<Shelf>) -> Arc<Packed> {
        let packed = Arc::new(Packed {
            meta: object.metadata().clone(),
            text: text.into_boxed_slice(),
            read,
            shelf: shelf.clone(),
            state: Mutex::new(State::Decoded(object)),
        });
        shelf.put(&packed);
        packed
    }

    /// The object, which is on the shelf from now on.
    pub(crate) fn unpack(self: &Arc<Packed>) -> Arc<dyn Cached> {
        let mut state = self.state();
        if let Some(object) = state.held() {
            return object;
        }
        let object = self.decode();
        *state = State::Decoded(object.clone());
        drop(state);
        self.shelf.put(self);
        object
    }

    /// The object; the shelf stays as it is.
    pub(crate) fn look(&self) -> Arc<dyn Cached> {
        let mut state = self.state();
        state.held().unwrap_or_else(|| {
            let object = self.decode();
            *state = State::AtRest(Arc::downgrade(&object));
            object
        })
    }

    fn decode(&self) -> Arc<dyn Cached> {
        (self.read)(&self.text).expect("the same text was decoded when it arrived")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A `Deserialize` that panics leaves the state as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it from the shelf. The `Drop` of the object is the user's.
    fn rest(&self) {
        let mut state = self.state();
        let State::Decoded(object) = &*state else { return };
        let at_rest = State::AtRest(Arc::downgrade(object));
        let object = std::mem::replace(&mut *state, at_rest);
        drop(state);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(object))) {
            let (name, error) = (self.meta.name.as_deref(), end_of_panic(payload));
            tracing::error!(name, error, "the Drop of an object panicked");
        }
    }
}

impl State {
    fn held(&self) -> Option<Arc<dyn Cached>> {
        match self {
            State::Decoded(object) => Some(object.clone()),
            State::AtRest(object) => object.upgrade(),
        }
    }
}

impl Cached for Packed {
    fn metadata(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl AsJson for Packed {
    /// As its type writes it, which may know less than the text says.
    fn json(&self) -> serde_json::Result<Value> {
        self.look().json()
    }
}

impl Shelf {
    /// A shelf for decoded objects with so many bytes of text.
    pub(crate) fn new(budget: usize) -> Arc<Shelf> {
        Arc::new(Shelf {
            budget,
            line: Mutex::default(),
        })
    }

    fn put(&self, packed: &Arc<Packed>) {
        if self.budget == usize::MAX {
            return; // nothing is ever taken down
        }
        let mut over = Vec::new();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.objects.push_back((Arc::downgrade(packed), packed.text.len()));
        line.bytes += packed.text.len();
        while line.bytes > self.budget
            && let Some((oldest, bytes)) = line.objects.pop_front()
        {
            line.bytes -= bytes;
            over.extend(oldest.upgrade());
        }
        drop(line);
        over.iter().for_each(|packed| packed.rest());
    }
}

/// What is packed, out of it.
pub(crate) fn unpacked(object: Arc<dyn Cached>) -> Arc<dyn Any + Send + Sync> {
    let any: Arc<dyn Any + Send + Sync> = object;
    match any.downcast::<Packed>() {
        Ok(packed) => packed.unpack(),
        Err(object) => object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Form, typed};
    use k8s_openapi::api::core::v1::ConfigMap;

    fn config(name: &str, shelf: &Arc<Shelf>) -> Arc<Packed> {
        let read = Form::of::<ConfigMap>().decode.kept;
        let text = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"a":"b"}}}}"#).into_bytes();
        Packed::new(read(&text).expect("a ConfigMap"), text, read, shelf)
    }

    fn is_decoded(packed: &Packed) -> bool {
        packed.state().held().is_some()
    }

    #[test]
    fn what_was_decoded_last_stays_decoded() {
        let room_for_two = 2 * config("a", &Shelf::new(usize::MAX)).text.len();
        let shelf = Shelf::new(room_for_two);
        let [a, b, c] = ["a", "b", "c"].map(|name| config(name, &shelf));
        let decoded = || [&a, &b, &c].map(|packed| is_decoded(packed));
        assert_eq!(decoded(), [false, true, true]);
        drop(a.unpack());
        assert_eq!(decoded(), [true, false, true], "reading puts on the shelf");
        drop(b.look());
        assert_eq!(decoded(), [true, false, true], "looking does not");
    }

    #[test]
    fn an_object_that_is_held_is_the_same_for_everybody() {
        let object = config("a", &Shelf::new(0));
        let held: Arc<ConfigMap> = typed(object.clone());
        assert_eq!(held.data.as_ref().map(|data| data["a"].as_str()), Some("b"));
        assert!(Arc::ptr_eq(&held, &typed(object.clone())));
        drop(held);
        assert!(!is_decoded(&object));
        assert_eq!(object.json().expect("an object")["data"]["a"], "b");
    }

    #[test]
    fn a_shelf_keeps_nothing_that_the_cache_has_dropped() {
        let shelf = Shelf::new(1 << 20);
        let object = config("a", &shelf);
        let held = Arc::downgrade(&object.unpack());
        drop(object);
        assert!(held.upgrade().is_none());
    }
}
