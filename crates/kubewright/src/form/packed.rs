//! Cached objects at rest: JSON text, decoded when read and kept decoded while they are used.
//!
//! A decoded Pod takes eight times its text, and of 50,000 Pods an operator looks at few; a controller that maps Pods
//! to their owners reads nothing but metadata. So a cache holds [`Packed`] objects: the text, and where the id of
//! the object stands in it. An object that a read decodes stays on the informer's [`DecodedCache`] until that is full:
//! a kind whose texts fit is decoded once, of a larger one the objects that were read last are. A decoded object lives
//! as long as it is held, and all readers share it. A cache grows when objects that it gave up are read again and
//! again: one whose objects are listed by every reconcile ends with all of them decoded. It shrinks when little is
//! read.
//!
//! An object is decoded when it arrives if a consumer needs its type ([`DecodedCache::check`]: a handler, predicate,
//! mapping or index that sees typed objects), so that one that cannot be decoded never replaces the last state that
//! could. Otherwise that is found by the first read, which is told the error; the cache notes it, for the informer to
//! report.
//!
//! Invariants: a `Packed` never changes; its text is without managedFields; the cache counts the texts of the objects
//! that it keeps decoded, and holds no object that the cache has dropped; a text is decoded by one function only, and a
//! panic of that is an error of the object (RF11).

mod decoded;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kubewright_engine::{ObjectKey, ResourceVersion, Unreadable};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cut::member;
use super::views::Views;
use super::{AsJson, Cached, ObjectId, guarded, times};
use crate::error::end_of_panic;
pub(crate) use decoded::{Budget, DecodedCache};

/// How an object is read out of its text.
pub(crate) type Read = fn(&str) -> serde_json::Result<Arc<dyn Cached>>;

/// Where the id of an object stands in its text, as ranges of bytes; empty where it says none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub(crate) name: (u32, u32),
    pub(crate) namespace: (u32, u32),
    pub(crate) uid: (u32, u32),
    pub(crate) version: (u32, u32),
    pub(crate) owners: (u32, u32),
    pub(crate) metadata: (u32, u32),
    /// It is written so that it cannot be pointed to.
    pub(crate) odd: bool,
}

impl Head {
    /// The id; `None` when it cannot be pointed to, or when the object has no name.
    pub(crate) fn object_id<'a>(&self, text: &'a str) -> Option<ObjectId<'a>> {
        let part = |(from, to): (u32, u32)| text.get(from as usize..to as usize).filter(|part| !part.is_empty());
        let id = ObjectId {
            namespace: part(self.namespace),
            name: part(self.name),
            uid: part(self.uid),
            version: part(self.version),
        };
        (!self.odd && id.name.is_some()).then_some(id)
    }
}

/// One object of a cache.
pub(crate) struct Packed {
    text: Box<str>,
    head: Head,
    cache: Arc<DecodedCache>,
    state: Mutex<State>,
    views: Views,
}

enum State {
    /// Not read yet.
    Unread,
    /// In the cache.
    Decoded(Arc<dyn Cached>),
    /// At rest, except for its holders, if there were any when it was laid down. Nothing points to it otherwise: a
    /// `Weak` keeps the room of a whole Pod, though not what the Pod owns.
    AtRest(Option<Weak<dyn Cached>>),
    /// It cannot be decoded, and why.
    Broken(Arc<str>),
}

impl Packed {
    /// An object that was decoded when it arrived. The head is that of the text, and has an id.
    pub(crate) fn decoded(object: Arc<dyn Cached>, text: &str, head: Head, cache: &Arc<DecodedCache>) -> Arc<Packed> {
        let packed = Packed::new(text, head, cache, State::Decoded(object));
        cache.put(&packed, false);
        packed
    }

    /// An object that was not read yet. The head is that of the text, and has an id.
    pub(crate) fn unread(text: &str, head: Head, cache: &Arc<DecodedCache>) -> Arc<Packed> {
        Packed::new(text, head, cache, State::Unread)
    }

    fn new(text: &str, head: Head, cache: &Arc<DecodedCache>, state: State) -> Arc<Packed> {
        Arc::new(Packed {
            text: Box::from(text),
            head,
            cache: cache.clone(),
            state: Mutex::new(state),
            views: Views::default(),
        })
    }

    /// What `see` reads of the object, kept from now on; the cache stays as it is.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(super) fn view<V: Send + Sync + 'static>(
        &self,
        see: impl FnOnce(&dyn Cached) -> V,
    ) -> Result<Arc<V>, Arc<str>> {
        self.views.of(|| self.look().map(|object| see(&*object)))
    }

    /// The object, which is in the cache from now on.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn unpack(self: &Arc<Packed>) -> Result<Arc<dyn Cached>, Arc<str>> {
        self.cache.used.fetch_add(self.text.len(), Ordering::Relaxed);
        let mut state = self.state();
        if let Some(held) = state.held() {
            return held;
        }
        let again = matches!(*state, State::AtRest(_));
        let object = self.decode(&mut state)?;
        *state = State::Decoded(object.clone());
        drop(state);
        self.cache.put(self, again);
        Ok(object)
    }

    /// The object; the cache stays as it is.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn look(&self) -> Result<Arc<dyn Cached>, Arc<str>> {
        let mut state = self.state();
        if let Some(held) = state.held() {
            return held;
        }
        let object = self.decode(&mut state)?;
        *state = State::at_rest(&object);
        Ok(object)
    }

    fn decode(&self, state: &mut State) -> Result<Arc<dyn Cached>, Arc<str>> {
        guarded(|| (self.cache.read)(&self.text)).map_err(|reason| {
            let reason: Arc<str> = Arc::from(reason);
            *state = State::Broken(reason.clone());
            let id = self.object_id();
            self.cache.note(Unreadable {
                key: ObjectKey::new(id.namespace, id.name.unwrap_or_default()),
                uid: id.uid.map(str::to_owned),
                resource_version: id.version.map(ResourceVersion::new),
                message: reason.to_string(),
            });
            reason
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Panics of the type's code are caught before they come here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it from the cache. The `Drop` of the object is the user's.
    fn rest(&self) {
        let mut state = self.state();
        let State::Decoded(object) = &*state else { return };
        let at_rest = match Arc::strong_count(object) {
            1 => State::AtRest(None),
            _ => State::at_rest(object),
        };
        let object = std::mem::replace(&mut *state, at_rest);
        drop(state);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(object))) {
            let (name, error) = (self.object_id().name, end_of_panic(payload));
            tracing::error!(name, error, "the Drop of an object panicked");
        }
    }

    fn part(&self, (from, to): (u32, u32)) -> &str {
        self.text.get(from as usize..to as usize).unwrap_or_default()
    }
}

/// Reads a part of the metadata; a part that cannot be read counts as absent, and reading the object reports it.
fn read<T: DeserializeOwned + Default>(text: &str) -> T {
    times::read(text).unwrap_or_default()
}

impl State {
    fn at_rest(object: &Arc<dyn Cached>) -> State {
        State::AtRest(Some(Arc::downgrade(object)))
    }

    fn held(&self) -> Option<Result<Arc<dyn Cached>, Arc<str>>> {
        match self {
            State::Unread => None,
            State::Decoded(object) => Some(Ok(object.clone())),
            State::AtRest(object) => object.as_ref().and_then(Weak::upgrade).map(Ok),
            State::Broken(reason) => Some(Err(reason.clone())),
        }
    }
}

impl Cached for Packed {
    fn object_id(&self) -> ObjectId<'_> {
        self.head.object_id(&self.text).unwrap_or_default()
    }

    fn metadata(&self) -> Cow<'_, ObjectMeta> {
        let whole: Result<ObjectMeta, _> = times::read(self.part(self.head.metadata));
        Cow::Owned(whole.unwrap_or_else(|_| {
            let id = self.object_id();
            ObjectMeta {
                name: id.name.map(str::to_owned),
                namespace: id.namespace.map(str::to_owned),
                uid: id.uid.map(str::to_owned),
                resource_version: id.version.map(str::to_owned),
                owner_references: Some(read(self.part(self.head.owners))),
                ..ObjectMeta::default()
            }
        }))
    }

    fn labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        let labels = member(self.part(self.head.metadata), "labels");
        Cow::Owned(labels.map(read).unwrap_or_default())
    }

    fn with_owners(&self, look: &mut dyn FnMut(&[OwnerReference])) {
        let owners = self.part(self.head.owners);
        if owners.is_empty() {
            return look(&[]);
        }
        let held = self.state().held();
        match held {
            Some(Ok(decoded)) => decoded.with_owners(look),
            _ => look(&read::<Vec<OwnerReference>>(owners)),
        }
    }
}

impl AsJson for Packed {
    /// As its type writes it, which may know less than the text says; as the text says it when its type cannot be read.
    fn json(&self) -> serde_json::Result<Value> {
        match self.look() {
            Ok(object) => object.json(),
            Err(_) => serde_json::from_str(&self.text),
        }
    }
}

/// Decodes a packed object once, so that its cache notes whether it can be.
pub(crate) fn with_decoded(object: &dyn Cached) {
    let any: &dyn Any = object;
    if let Some(packed) = any.downcast_ref::<Packed>() {
        drop(packed.look());
    }
}

/// As [`unpacked`], and the cache stays as it is: for states that pass by.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn looked(object: &Arc<dyn Cached>) -> Result<Arc<dyn Cached>, Arc<str>> {
    let any: &dyn Any = &**object;
    match any.downcast_ref::<Packed>() {
        Some(packed) => packed.look(),
        None => Ok(object.clone()),
    }
}

/// The object itself, unpacked if it is packed.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn unpacked(object: Arc<dyn Cached>) -> Result<Arc<dyn Cached>, Arc<str>> {
    let any: &dyn Any = &*object;
    if !any.is::<Packed>() {
        return Ok(object);
    }
    let any: Arc<dyn Any + Send + Sync> = object;
    let packed: Arc<Packed> = any.downcast().expect("looked at above");
    packed.unpack()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Form, cut, typed};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kubewright_engine::Event;

    fn cache(budget: usize) -> Arc<DecodedCache> {
        DecodedCache::new(Form::of::<ConfigMap>().decode.kept, Budget::fixed(budget))
    }

    pub(super) fn config(name: &str, data: &str, cache: &Arc<DecodedCache>) -> Arc<Packed> {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"a":"b"}},"ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"u"}}]}},"data":{data}}}"#
        );
        let mut lean = Vec::new();
        let head = cut::lean(text.as_bytes(), None, &mut lean).expect("an object");
        let lean = String::from_utf8(lean).expect("text");
        Packed::unread(&lean, head, cache)
    }

    pub(super) fn is_decoded(packed: &Packed) -> bool {
        packed.state().held().is_some()
    }

    #[test]
    fn what_was_read_last_stays_decoded() {
        let some = r#"{"a":"b"}"#;
        let room_for_two = 2 * config("a", some, &cache(usize::MAX)).text.len();
        let cache = cache(room_for_two);
        let [a, b, c] = ["a", "b", "c"].map(|name| config(name, some, &cache));
        let decoded = || [&a, &b, &c].map(|packed| is_decoded(packed));
        assert_eq!(decoded(), [false; 3]);
        for packed in [&a, &b, &c] {
            packed.unpack().expect("a ConfigMap");
        }
        assert_eq!(decoded(), [false, true, true]);
        assert!(matches!(*a.state(), State::AtRest(None)), "nothing keeps its room");
        drop(a.unpack());
        assert_eq!(decoded(), [true, false, true], "reading fills the cache");
        drop(b.look());
        assert_eq!(decoded(), [true, false, true], "looking does not");
    }

    #[test]
    fn an_object_that_is_held_is_the_same_for_everybody() {
        let object = config("a", r#"{"a":"b"}"#, &cache(0));
        let read = || typed::<ConfigMap>(object.unpack().expect("a ConfigMap"));
        let held = read();
        assert_eq!(held.data.as_ref().map(|data| data["a"].as_str()), Some("b"));
        assert!(Arc::ptr_eq(&held, &read()));
        drop(held);
        assert!(!is_decoded(&object));
        assert_eq!(object.json().expect("an object")["data"]["a"], "b");
    }

    #[test]
    fn what_an_event_shows_stays_decoded_while_it_is_held() {
        let cache = cache(0);
        let [old, new] = ["a", "b"].map(|name| config(name, r#"{"a":"b"}"#, &cache));
        let events = [Event::<dyn Cached>::Modified {
            old: old.clone(),
            new: new.clone(),
        }];
        assert!(cache.decoded(&events).is_empty(), "no handler looks at the type");
        cache.check();
        let held = cache.decoded(&events);
        assert_eq!([&old, &new].map(|state| is_decoded(state)), [true; 2]);
        drop(held);
        assert_eq!([&old, &new].map(|state| is_decoded(state)), [false; 2]);
    }

    #[test]
    fn a_shelf_keeps_nothing_that_the_cache_has_dropped() {
        let cache = cache(1 << 20);
        let object = config("a", "{}", &cache);
        let held = Arc::downgrade(&object.unpack().expect("a ConfigMap"));
        drop(object);
        assert!(held.upgrade().is_none());
    }

    #[test]
    fn the_metadata_are_read_without_the_rest() {
        let object = config("a", "7", &cache(0));
        assert_eq!(object.object_id().name, Some("a"));
        assert_eq!(object.metadata().name.as_deref(), Some("a"));
        assert_eq!(object.labels()["a"], "b");
        let owner = |object: &Packed| {
            let mut name = String::new();
            object.with_owners(&mut |owners| name = owners[0].name.clone());
            name
        };
        assert_eq!(owner(&object), "o");
        assert!(object.cache.take_broken().is_empty(), "nobody has read it");
    }

    #[test]
    fn what_cannot_be_decoded_is_noted_once_and_says_why_again() {
        let cache = cache(1 << 20);
        let object = config("a", "7", &cache);
        for _ in 0..2 {
            let why = object.unpack().expect_err("a number is no map");
            assert_eq!(&*why, "invalid type: integer `7`, expected a map");
        }
        let noted: Vec<String> = cache.take_broken().iter().map(|noted| noted.key.to_string()).collect();
        assert_eq!(noted, ["a"]);
        assert_eq!(object.json().expect("JSON")["data"], 7);
    }
}
