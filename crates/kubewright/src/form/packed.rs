//! Cached objects at rest: JSON text, decoded when read and kept decoded while they are used.
//!
//! A decoded Pod takes eight times its text, and of 50,000 Pods an operator looks at few; a controller that maps Pods
//! to their owners reads nothing but metadata. So a store holds [`Packed`] objects: the text, and where the id of
//! the object stands in it. All views of a kind share these texts; each type that reads them has a [`DecodedCache`]
//! (`packed/decoded.rs`). What is decoded stays there as long as there is room: a kind whose texts fit is decoded once.
//! Of a larger one the objects stay that are read more than once; the others pass through a few places of their own,
//! because most are read once for each change, and one that is dropped soon is still in the processor's cache, which
//! saves a third of its cost. A decoded object lives as long as it is held, and all readers of its type share it. A
//! cache grows when objects that it gave up are read again and again: one whose objects are listed by every reconcile
//! ends with all of them decoded. It shrinks when little is read.
//!
//! An object is decoded when consumers are told of it that need its type (handlers, predicates, mappings or indexes that
//! see typed objects), once for all of them, so that one that cannot be decoded never replaces the last state that could
//! (`cache/part.rs`). Otherwise that is found by the first read, which is told the error; the cache notes it, for the
//! informer to report.
//!
//! Invariants: a `Packed` never changes; its text is without managedFields, and says its kind; a cache counts the texts
//! of the objects that it keeps decoded, and holds no object that the store has dropped; a text is decoded for a type by
//! one function only, and a panic of that is an error of the object for that type (RF11).

mod decoded;
mod rooms;
#[cfg(test)]
mod tests;
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
use decoded::Excess;
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
    text: String,
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
    /// In one of the places for what passes by; whether it was read there.
    Passing(Arc<dyn Cached>, bool),
    /// At rest, except for its holders, if there were any when it was laid down. Nothing points to it otherwise: a
    /// `Weak` keeps the room of a whole Pod, though not what the Pod owns. And whether it was read before.
    AtRest(Option<Weak<dyn Cached>>, bool),
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
            text: decoders.rooms.hold(text),
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

    /// The object as a type, for a reader: it is in the cache of the type from now on.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn unpack(self: &Arc<Packed>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
        let cache = self.decoders.of(kind)?;
        cache.used.fetch_add(self.text.len(), Ordering::Relaxed);
        self.keep(&cache, true)
    }

    /// The object as a type, for consumers that are told of its change.
    ///
    /// # Errors
    /// Why it cannot be decoded.
    pub(crate) fn arrive(self: &Arc<Packed>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
        self.keep(&*self.decoders.of(kind)?, false)
    }

    /// `reads`: it is looked for, and is kept if that is not the first time.
    fn keep(self: &Arc<Packed>, cache: &DecodedCache, reads: bool) -> Result<Arc<dyn Cached>, Arc<str>> {
        let mut states = self.states();
        let state = found(&states, cache);
        let again = reads && matches!(state, Some(State::Passing(_, true) | State::AtRest(_, true)));
        let passes = matches!(state, Some(State::Passing(..)));
        let object = match state.and_then(State::held) {
            Some(held) if !(passes && reads) => return held,
            Some(held) => held?,
            None => self.decode(&mut states, cache)?,
        };
        // The lock of the cache is taken within that of the states, never around it.
        let over = if passes && !again {
            set(&mut states, cache, State::Passing(object.clone(), true));
            Excess::default()
        } else {
            let (stays, over) = cache.put(self, again, passes);
            let state = match stays {
                true => State::Decoded(object.clone()),
                false => State::Passing(object.clone(), reads),
            };
            set(&mut states, cache, state);
            over
        };
        drop(states);
        over.rest(cache);
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
        let before = matches!(found(&states, &cache), Some(State::AtRest(_, true)));
        let state = match self.leased.load(Ordering::Relaxed) {
            true => State::Lent(object.clone()),
            false => State::AtRest(Some(Arc::downgrade(&object)), before),
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
            Some(State::AtRest(Some(object), read)) if object.strong_count() == 0 => State::AtRest(None, *read),
            Some(State::Lent(object)) if !leased => State::left(object, false),
            _ => return,
        };
        let before = set(&mut states, &cache, left);
        drop(states);
        drop(before); // its `Drop` is the user's
    }

    /// Whether it can be read as a type, if that was tried.
    pub(crate) fn was_read(&self, kind: TypeId) -> Option<Result<(), Arc<str>>> {
        let cache = self.decoders.of(kind).ok()?;
        Some(match found(&self.states(), &cache)? {
            State::Broken(reason) => Err(reason.clone()),
            State::Decoded(_) | State::Passing(..) | State::AtRest(..) | State::Lent(_) => Ok(()),
        })
    }

    fn decode(&self, states: &mut Vec<(u32, State)>, cache: &DecodedCache) -> Result<Arc<dyn Cached>, Arc<str>> {
        // Before: what lives long is not to stand behind what is dropped soon, whose room it would keep apart.
        if states.capacity() == 0 {
            states.reserve_exact(1);
        }
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

    /// Takes it from a cache, or from a place for what passes by. The `Drop` of the object is the user's.
    fn rest(&self, cache: &DecodedCache, passing: bool) {
        let mut states = self.states();
        let at_rest = match found(&states, cache) {
            Some(State::Decoded(object)) if !passing => State::left(object, true),
            Some(State::Passing(object, read)) if passing => State::left(object, *read),
            // It has found another place meanwhile.
            _ => return,
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
        self.decoders.rooms.give_back(std::mem::take(&mut self.text));
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
    /// At rest, from now on.
    fn left(object: &Arc<dyn Cached>, read: bool) -> State {
        let is_held = Arc::strong_count(object) > 1;
        State::AtRest(is_held.then(|| Arc::downgrade(object)), read)
    }

    fn held(&self) -> Option<Result<Arc<dyn Cached>, Arc<str>>> {
        match self {
            State::Decoded(object) | State::Passing(object, _) | State::Lent(object) => Some(Ok(object.clone())),
            State::AtRest(object, _) => object.as_ref().and_then(Weak::upgrade).map(Ok),
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
