//! Cached objects at rest: JSON text, decoded when read and kept decoded while they are used.
//!
//! A decoded Pod takes eight times its text, and of 50,000 Pods an operator looks at few; a controller that maps Pods
//! to their owners reads nothing but metadata. So a store holds [`Packed`] objects: the text, and where the id of
//! the object stands in it. All views of a kind share these texts; each type that reads them has a [`DecodedCache`]
//! (`packed/decoded.rs`). An object that a read decodes stays there until that is full: a kind whose texts fit is
//! decoded once, of a larger one the objects that were read last are. A decoded object lives as long as it is held, and
//! all readers of its type share it. A cache grows when objects that it gave up are read again and again: one whose
//! objects are listed by every reconcile ends with all of them decoded. It shrinks when little is read.
//!
//! An object is decoded when it arrives if a consumer needs its type (a handler, predicate, mapping or index that sees
//! typed objects), so that one that cannot be decoded never replaces the last state that could (`cache/part.rs`).
//! Otherwise that is found by the first read, which is told the error; the cache notes it, for the informer to report.
//!
//! Invariants: a `Packed` never changes; its text is without managedFields, and says its kind; a cache counts the texts
//! of the objects that it keeps decoded, and holds no object that the store has dropped; a text is decoded for a type by
//! one function only, and a panic of that is an error of the object for that type (RF11).

mod decoded;
mod transform;

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kubewright_engine::{ObjectKey, ResourceVersion, Unreadable};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::applied::AppliedFields;
use super::cut::member;
use super::views::Views;
use super::{AsJson, Cached, ObjectId, times};
use crate::error::end_of_panic;
pub(crate) use decoded::{Budget, DecodedCache, Decoders};
pub(crate) use transform::{Transform, transformed};

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

/// How much of an object its text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The metadata.
    Metadata,
    /// What the transform of a type has left.
    Transformed,
    /// All.
    Whole,
}

/// One object of a store.
pub(crate) struct Packed {
    text: Box<str>,
    head: Head,
    kept: Kept,
    /// What managers of this process have applied to it.
    applied: Option<Box<[AppliedFields]>>,
    decoders: Arc<Decoders>,
    /// By the number of the cache. Most objects are never decoded, and most others as one type.
    states: Mutex<Vec<(u32, State)>>,
    views: Views,
    /// What is decoded of it is kept for those who look next, until the [`Lease`] ends.
    leased: AtomicBool,
}

/// Several will look at a state that passes by: it is decoded once for all of them, by the first that does.
pub(crate) struct Lease {
    object: Arc<dyn Cached>,
    kind: TypeId,
}

impl Lease {
    /// Of an object at rest.
    pub(crate) fn of(object: &Arc<dyn Cached>, kind: TypeId) -> Option<Lease> {
        super::packed(&**object)?.leased.store(true, Ordering::Relaxed);
        Some(Lease {
            object: object.clone(),
            kind,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(packed) = super::packed(&*self.object) {
            packed.leased.store(false, Ordering::Relaxed);
            packed.settle(self.kind);
        }
    }
}

enum State {
    /// In the cache.
    Decoded(Arc<dyn Cached>),
    /// At rest, except for its holders, if there were any when it was laid down. Nothing points to it otherwise: a
    /// `Weak` keeps the room of a whole Pod, though not what the Pod owns.
    AtRest(Option<Weak<dyn Cached>>),
    /// Outside of the cache, until the [`Lease`] ends.
    Lent(Arc<dyn Cached>),
    /// It cannot be decoded, and why.
    Broken(Arc<str>),
}

impl Packed {
    /// An object that was not read yet. The head is that of the text, and has an id.
    pub(crate) fn unread(
        text: &str,
        head: Head,
        kept: Kept,
        applied: Option<Box<[AppliedFields]>>,
        decoders: &Arc<Decoders>,
    ) -> Arc<Packed> {
        Arc::new(Packed {
            applied,
            text: Box::from(text),
            head,
            kept,
            decoders: decoders.clone(),
            states: Mutex::default(),
            views: Views::default(),
            leased: AtomicBool::new(false),
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How much of the object this is.
    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }

    /// What `see` reads of the object as a type, kept from now on; the cache stays as it is.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(super) fn view<V: Send + Sync + 'static>(
        &self,
        kind: TypeId,
        see: impl FnOnce(&dyn Cached) -> V,
    ) -> Result<Arc<V>, Arc<str>> {
        self.views.of(kind, || self.look(kind).map(|object| see(&*object)))
    }

    /// The object as a type, in whose cache it is from now on.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn unpack(self: &Arc<Packed>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
        let cache = self.decoders.of(kind)?;
        cache.used.fetch_add(self.text.len(), Ordering::Relaxed);
        let mut states = self.states();
        let state = found(&states, &cache);
        if let Some(held) = state.and_then(State::held) {
            return held;
        }
        let again = matches!(state, Some(State::AtRest(_)));
        let object = self.decode(&mut states, &cache)?;
        set(&mut states, &cache, State::Decoded(object.clone()));
        drop(states);
        cache.put(self, again);
        Ok(object)
    }

    /// The object as a type; the cache stays as it is.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn look(&self, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
        let cache = self.decoders.of(kind)?;
        let mut states = self.states();
        if let Some(held) = found(&states, &cache).and_then(State::held) {
            return held;
        }
        let object = self.decode(&mut states, &cache)?;
        let state = match self.leased.load(Ordering::Relaxed) {
            true => State::Lent(object.clone()),
            false => State::AtRest(Some(Arc::downgrade(&object))),
        };
        set(&mut states, &cache, state);
        Ok(object)
    }

    /// Somebody who has looked has let go: if nobody else holds the object, its room is given back.
    pub(crate) fn settle(&self, kind: TypeId) {
        let Ok(cache) = self.decoders.of(kind) else { return };
        let leased = self.leased.load(Ordering::Relaxed);
        let mut states = self.states();
        let left = match found(&states, &cache) {
            Some(State::AtRest(Some(object))) if object.strong_count() == 0 => None,
            Some(State::Lent(object)) if !leased => match Arc::strong_count(object) {
                1 => None,
                _ => Some(Arc::downgrade(object)),
            },
            _ => return,
        };
        let before = set(&mut states, &cache, State::AtRest(left));
        drop(states);
        drop(before); // its `Drop` is the user's
    }

    /// Whether it can be read as a type, if that was tried.
    pub(crate) fn was_read(&self, kind: TypeId) -> Option<Result<(), Arc<str>>> {
        let cache = self.decoders.of(kind).ok()?;
        Some(match found(&self.states(), &cache)? {
            State::Broken(reason) => Err(reason.clone()),
            State::Decoded(_) | State::AtRest(_) | State::Lent(_) => Ok(()),
        })
    }

    fn decode(&self, states: &mut Vec<(u32, State)>, cache: &DecodedCache) -> Result<Arc<dyn Cached>, Arc<str>> {
        cache.decode(&self.text, &self.head, self.kept).map_err(|reason| {
            let reason: Arc<str> = Arc::from(reason);
            set(states, cache, State::Broken(reason.clone()));
            let id = self.object_id();
            cache.note(Unreadable {
                key: ObjectKey::new(id.namespace, id.name.unwrap_or_default()),
                uid: id.uid.map(str::to_owned),
                resource_version: id.version.map(ResourceVersion::new),
                message: reason.to_string(),
            });
            reason
        })
    }

    fn states(&self) -> MutexGuard<'_, Vec<(u32, State)>> {
        // Panics of the type's code are caught before they come here.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it from a cache. The `Drop` of the object is the user's.
    fn rest(&self, cache: &DecodedCache) {
        let mut states = self.states();
        let Some(State::Decoded(object)) = found(&states, cache) else {
            return;
        };
        let at_rest = match Arc::strong_count(object) {
            1 => State::AtRest(None),
            _ => State::AtRest(Some(Arc::downgrade(object))),
        };
        let object = set(&mut states, cache, at_rest);
        drop(states);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(object))) {
            let (name, error) = (self.object_id().name, end_of_panic(payload));
            tracing::error!(name, error, "the Drop of an object panicked");
        }
    }

    fn part(&self, (from, to): (u32, u32)) -> &str {
        self.text.get(from as usize..to as usize).unwrap_or_default()
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let states = self.states.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (number, _) in states.iter().filter(|(_, state)| matches!(state, State::Decoded(_))) {
            self.decoders.gone(*number, self.text.len());
        }
    }
}

/// The state for a cache; `None` when it was not read yet.
fn found<'a>(states: &'a [(u32, State)], cache: &DecodedCache) -> Option<&'a State> {
    let found = states.iter().find(|(number, _)| *number == cache.number);
    found.map(|(_, state)| state)
}

fn set(states: &mut Vec<(u32, State)>, cache: &DecodedCache, to: State) -> Option<State> {
    match states.iter_mut().find(|(number, _)| *number == cache.number) {
        Some((_, state)) => Some(std::mem::replace(state, to)),
        None => {
            states.reserve_exact(1);
            states.push((cache.number, to));
            None
        }
    }
}

/// Reads a part of the metadata; a part that cannot be read counts as absent, and reading the object reports it.
fn read<T: DeserializeOwned + Default>(text: &str) -> T {
    times::read(text).unwrap_or_default()
}

impl State {
    fn held(&self) -> Option<Result<Arc<dyn Cached>, Arc<str>>> {
        match self {
            State::Decoded(object) | State::Lent(object) => Some(Ok(object.clone())),
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
        let held = self.states().iter().find_map(|(_, state)| state.held()?.ok());
        match held {
            Some(decoded) => decoded.with_owners(look),
            None => look(&read::<Vec<OwnerReference>>(owners)),
        }
    }

    fn applied(&self) -> &[AppliedFields] {
        self.applied.as_deref().unwrap_or_default()
    }
}

impl AsJson for Packed {
    /// As the text says it, which may be more than a type knows.
    fn json(&self) -> serde_json::Result<Value> {
        serde_json::from_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Form, cut, typed};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{DynamicObject, PartialObjectMeta};

    const KIND: TypeId = TypeId::of::<ConfigMap>();

    fn cache(budget: usize) -> Arc<Decoders> {
        decoders(Budget::fixed(budget))
    }

    /// Of ConfigMaps.
    pub(super) fn decoders(budget: Budget) -> Arc<Decoders> {
        let decoders = Decoders::new(budget);
        decoders.add(&Form::of::<ConfigMap>(), None);
        decoders
    }

    pub(super) fn config(name: &str, data: &str, decoders: &Arc<Decoders>) -> Arc<Packed> {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"a":"b"}},"ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"u"}}]}},"data":{data}}}"#
        );
        let mut lean = Vec::new();
        let head = cut::lean(text.as_bytes(), None, &mut lean).expect("an object");
        let lean = String::from_utf8(lean).expect("text");
        Packed::unread(&lean, head, Kept::Whole, None, decoders)
    }

    pub(super) fn is_decoded(packed: &Packed) -> bool {
        let states = packed.states();
        states.iter().any(|(_, state)| state.held().is_some())
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
            packed.unpack(KIND).expect("a ConfigMap");
        }
        assert_eq!(decoded(), [false, true, true]);
        assert!(
            matches!(a.states()[..], [(_, State::AtRest(None))]),
            "nothing keeps its room"
        );
        drop(a.unpack(KIND));
        assert_eq!(decoded(), [true, false, true], "reading fills the cache");
        drop(b.look(KIND));
        assert_eq!(decoded(), [true, false, true], "looking does not");
    }

    /// An object that changes all the time has one place, not those of all others.
    #[test]
    fn versions_that_are_gone_take_no_room() {
        let some = r#"{"a":"b"}"#;
        let length = config("a", some, &cache(usize::MAX)).text.len();
        let cache = cache(20 * length);
        let others: Vec<_> = (0..9).map(|number| config(&number.to_string(), some, &cache)).collect();
        for packed in &others {
            packed.unpack(KIND).expect("a ConfigMap");
        }
        for _ in 0..200 {
            config("h", some, &cache).unpack(KIND).expect("a ConfigMap");
        }
        assert!(others.iter().all(|packed| is_decoded(packed)));
    }

    #[test]
    fn an_object_that_is_held_is_the_same_for_everybody() {
        let object = config("a", r#"{"a":"b"}"#, &cache(0));
        let read = || typed::<ConfigMap>(object.unpack(KIND).expect("a ConfigMap"));
        let held = read();
        assert_eq!(held.data.as_ref().map(|data| data["a"].as_str()), Some("b"));
        assert!(Arc::ptr_eq(&held, &read()));
        drop(held);
        assert!(!is_decoded(&object));
        assert_eq!(object.json().expect("an object")["data"]["a"], "b");
    }

    /// Each type reads the text in its way, keeps what it has read by itself, and fails by itself.
    #[test]
    fn several_types_read_one_text() {
        type Meta = PartialObjectMeta<ConfigMap>;
        let decoders = cache(1 << 20);
        let resource = Form::of::<ConfigMap>().resource;
        decoders.add(&Form::for_resource::<Meta>(&resource), None);
        decoders.add(&Form::for_resource::<DynamicObject>(&resource), None);
        let broken = config("a", "7", &decoders);
        assert!(broken.was_read(KIND).is_none());
        broken.look(KIND).expect_err("a number is no map");
        assert!(broken.was_read(KIND).is_some_and(|read| read.is_err()));
        let meta: Arc<Meta> = typed(broken.unpack(TypeId::of::<Meta>()).expect("its metadata are fine"));
        let types = meta.types.as_ref().expect("what the server calls such an answer");
        assert_eq!(
            (meta.metadata.name.as_deref(), types.kind.as_str()),
            (Some("a"), "PartialObjectMetadata")
        );
        let dynamic: Arc<DynamicObject> = typed(broken.unpack(TypeId::of::<DynamicObject>()).expect("it is JSON"));
        assert_eq!(dynamic.data["data"], 7);
        assert!(Arc::ptr_eq(
            &meta,
            &typed(broken.unpack(TypeId::of::<Meta>()).expect("it is kept"))
        ));
        broken
            .look(TypeId::of::<u8>())
            .expect_err("nobody has said how to read that");
    }

    #[test]
    fn a_shelf_keeps_nothing_that_the_cache_has_dropped() {
        let cache = cache(1 << 20);
        let object = config("a", "{}", &cache);
        let held = Arc::downgrade(&object.unpack(KIND).expect("a ConfigMap"));
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
        assert!(
            object.decoders.of(KIND).expect("it was added").take_broken().is_empty(),
            "nobody has read it"
        );
    }

    #[test]
    fn what_cannot_be_decoded_is_noted_once_and_says_why_again() {
        let cache = cache(1 << 20);
        let object = config("a", "7", &cache);
        for _ in 0..2 {
            let why = object.unpack(KIND).expect_err("a number is no map");
            assert_eq!(&*why, "invalid type: integer `7`, expected a map");
        }
        let noted: Vec<String> = cache
            .of(KIND)
            .expect("it was added")
            .take_broken()
            .iter()
            .map(|noted| noted.key.to_string())
            .collect();
        assert_eq!(noted, ["a"]);
        assert_eq!(object.json().expect("JSON")["data"], 7);
    }
}
