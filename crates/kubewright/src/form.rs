//! Objects without their type, so that the machinery is compiled once and not for every kind of every operator.
//!
//! A cache holds [`Cached`] objects; the facts about their type (its resource, how its JSON is read) are in a [`Form`],
//! a small table of functions. Only the edge of the public interface names a type: it makes the form going in and
//! restores the type ([`typed`]) coming out. An operator is compiled anew after every edit, and it compiles all generic
//! code: additions to the machinery must stay out of there.
//!
//! A future is boxed where it leaves for that edge: the crate that polls a coroutine compiles it, with all that it
//! awaits.
//!
//! Invariants: an informer of a form holds nothing but objects of its type; each type is read from JSON text, as a
//! `str` whose letters need not be looked at again, and written to a JSON value and in no other way, because each way
//! is another copy of serde's code for every type.

pub(crate) mod applied;
mod changes;
pub(crate) mod cut;
mod lazy;
pub(crate) mod packed;
pub(crate) mod times;
mod views;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, ObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::applied::AppliedFields;
pub(crate) use self::lazy::typed_event;
pub use self::lazy::{Event, LazyObject};
use self::packed::{Packed, Read};
use crate::diff::{FieldChange, changes_between};
use crate::error::end_of_panic;
use crate::object::{AnyObject, Object, ObjectRef, api_resource, is_cluster_scoped};

/// How many bytes of the reason are kept for an object that does not decode: serde quotes values, which may be long.
const MAX_REASON: usize = 1024;

/// Something that can be looked at as JSON.
pub(crate) trait AsJson: Send + Sync {
    fn json(&self) -> serde_json::Result<Value>;

    /// For comparing: a cached object was JSON a moment ago; should its Serialize refuse nevertheless, no change is
    /// shown rather than a wrong one.
    fn json_or_null(&self) -> Value {
        self.json().unwrap_or(Value::Null)
    }
}

impl<T: Serialize + Send + Sync> AsJson for T {
    fn json(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

/// Which object it is. Absent and empty fields are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectId<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) uid: Option<&'a str>,
    /// The resourceVersion.
    pub(crate) version: Option<&'a str>,
}

impl ObjectId<'_> {
    /// The reference of the object, for messages.
    pub(crate) fn reference(&self, resource: &ApiResource) -> ObjectRef {
        ObjectRef::named(resource, self.namespace, self.name.unwrap_or_default())
    }
}

/// An object of any type, decoded or at rest.
///
/// Which object it is costs nothing to ask. All metadata of an object at rest are decoded at each call.
pub(crate) trait Cached: Any + AsJson {
    fn object_id(&self) -> ObjectId<'_>;
    fn metadata(&self) -> Cow<'_, ObjectMeta>;
    fn labels(&self) -> Cow<'_, BTreeMap<String, String>>;
    /// Shows the owner references. Those of an object that is decoded are not read again.
    fn with_owners(&self, look: &mut dyn FnMut(&[OwnerReference]));
    /// What managers of this process have applied to it, as far as that is known.
    fn applied(&self) -> &[AppliedFields] {
        &[]
    }
}

impl dyn Cached {
    /// The owner reference of the controller, as far as it is shown by `read`.
    pub(crate) fn controller<T>(&self, read: impl Fn(&OwnerReference) -> T) -> Option<T> {
        let mut found = None;
        self.with_owners(&mut |owners| {
            let controller = owners.iter().find(|owner| owner.controller == Some(true));
            found = controller.map(&read);
        });
        found
    }
}

impl<K: AnyObject> Cached for K {
    fn object_id(&self) -> ObjectId<'_> {
        object_id_of(self.meta())
    }

    fn metadata(&self) -> Cow<'_, ObjectMeta> {
        Cow::Borrowed(self.meta())
    }

    fn labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        labels_of(self.meta())
    }

    fn with_owners(&self, look: &mut dyn FnMut(&[OwnerReference])) {
        look(self.meta().owner_references.as_deref().unwrap_or_default());
    }
}

fn object_id_of(meta: &ObjectMeta) -> ObjectId<'_> {
    fn non_empty(text: Option<&String>) -> Option<&str> {
        text.map(String::as_str).filter(|text| !text.is_empty())
    }
    ObjectId {
        namespace: non_empty(meta.namespace.as_ref()),
        name: non_empty(meta.name.as_ref()),
        uid: non_empty(meta.uid.as_ref()),
        version: non_empty(meta.resource_version.as_ref()),
    }
}

fn labels_of(meta: &ObjectMeta) -> Cow<'_, BTreeMap<String, String>> {
    match &meta.labels {
        Some(labels) => Cow::Borrowed(labels),
        None => Cow::Owned(BTreeMap::new()),
    }
}

impl fmt::Debug for dyn Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.object_id();
        write!(f, "Cached({:?}, {:?})", id.namespace, id.name)
    }
}

/// The object with its type again. A cached object is unpacked first, which may fail.
pub(crate) fn typed<K: AnyObject>(object: Arc<dyn Cached>) -> Arc<K> {
    let any: Arc<dyn Any + Send + Sync> = object;
    any.downcast().expect("what was made with the form of K is a K")
}

/// As [`typed`], for many.
pub(crate) fn typed_all<K: AnyObject>(objects: Vec<Arc<dyn Cached>>) -> Vec<Arc<K>> {
    objects.into_iter().map(typed).collect()
}

/// Shows an object of a cache with its type; `None` when it cannot be decoded. The cache stays as it is.
pub(crate) fn with_typed<K: AnyObject, R>(object: &dyn Cached, show: impl FnOnce(&K) -> R) -> Option<R> {
    let Some(packed) = packed(object) else {
        return Some(show(known(object)));
    };
    let looked = packed.look(TypeId::of::<K>()).ok()?;
    let shown = show(known(&*looked));
    drop(looked);
    packed.settle(TypeId::of::<K>());
    Some(shown)
}

/// An object at rest; `None` when it is decoded.
pub(crate) fn packed(object: &dyn Cached) -> Option<&Packed> {
    let any: &dyn Any = object;
    any.downcast_ref()
}

/// The memory that the text of an object takes; of one that is decoded a guess.
pub(crate) fn text_len(object: &dyn Cached) -> usize {
    const DECODED: usize = 16 << 10;
    packed(object).map_or(DECODED, |packed| packed.text().len())
}

/// The fields in which two states of an object differ.
pub(crate) fn changes_of(old: &dyn Cached, new: &dyn Cached) -> Vec<FieldChange> {
    match (packed(old), packed(new)) {
        (Some(old), Some(new)) => changes::changes_between_texts(old.text(), new.text()),
        _ => changes_between(&old.json_or_null(), &new.json_or_null()),
    }
}

/// A decoded object with its type.
fn known<K: AnyObject>(object: &dyn Cached) -> &K {
    let any: &dyn Any = object;
    any.downcast_ref().expect("what was made with the form of K is a K")
}

/// What `see` reads of an object of a cache; of one at rest it is kept beside it.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn viewed<K: AnyObject, V: Send + Sync + 'static>(
    object: &dyn Cached,
    see: impl FnOnce(&K) -> V,
) -> Result<Arc<V>, Arc<str>> {
    match packed(object) {
        Some(packed) => packed.view(TypeId::of::<K>(), |decoded| see(known(decoded))),
        None => Ok(Arc::new(see(known(object)))),
    }
}

/// An object of a cache with its type, which its cache may keep decoded.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn read_typed<K: AnyObject>(object: Arc<dyn Cached>) -> Result<Arc<K>, Arc<str>> {
    unpacked(object, TypeId::of::<K>()).map(typed)
}

/// The object itself, decoded as this type if it is at rest.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn unpacked(object: Arc<dyn Cached>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
    at_rest(object).map_or_else(Ok, |packed| packed.unpack(kind))
}

/// As [`unpacked`], for consumers that are told of its change.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn arrived(object: Arc<dyn Cached>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
    at_rest(object).map_or_else(Ok, |packed| packed.arrive(kind))
}

/// The object at rest; or the object itself, when it is decoded.
fn at_rest(object: Arc<dyn Cached>) -> Result<Arc<Packed>, Arc<dyn Cached>> {
    if packed(&*object).is_none() {
        return Err(object);
    }
    let any: Arc<dyn Any + Send + Sync> = object;
    Ok(any.downcast().expect("looked at above"))
}

/// As [`unpacked`], and the cache stays as it is: for states that pass by.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn looked(object: &Arc<dyn Cached>, kind: TypeId) -> Result<Arc<dyn Cached>, Arc<str>> {
    match packed(&**object) {
        Some(packed) => packed.look(kind),
        None => Ok(object.clone()),
    }
}

/// Whether an object can be read as this type, which is found out if nobody has tried yet; the cache stays as it is.
///
/// # Errors
/// Why not.
pub(crate) fn check(object: &dyn Cached, kind: TypeId) -> Result<(), Arc<str>> {
    let Some(packed) = packed(object) else {
        return Ok(());
    };
    packed.was_read(kind).unwrap_or_else(|| {
        packed.look(kind)?;
        packed.settle(kind);
        Ok(())
    })
}

/// A type's facts for code that does not name it.
#[derive(Clone)]
pub(crate) struct Form {
    pub(crate) id: TypeId,
    pub(crate) resource: ApiResource,
    pub(crate) cluster_scoped: bool,
    /// Whether `cluster_scoped` is known; a type that holds objects of any kind does not tell.
    pub(crate) scope_is_known: bool,
    /// Whether the server is asked for the metadata only.
    pub(crate) metadata_only: bool,
    /// Whether the type says its kind itself; otherwise each object must.
    pub(crate) says_kind: bool,
    pub(crate) decode: Decode,
}

/// How objects of a type are read.
#[derive(Clone, Copy)]
pub(crate) struct Decode {
    /// One object.
    pub(crate) object: Read,
    /// As `object`, without managedFields.
    pub(crate) kept: Read,
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form({})", self.resource.kind)
    }
}

impl Form {
    /// A type with a static resource.
    pub(crate) fn of<K: Object>() -> Form {
        Form {
            cluster_scoped: is_cluster_scoped::<K>(),
            scope_is_known: true,
            ..Form::for_resource::<K>(&api_resource::<K>())
        }
    }

    /// A type in which objects of this resource are held.
    pub(crate) fn for_resource<K: AnyObject>(resource: &ApiResource) -> Form {
        Form {
            id: TypeId::of::<K>(),
            resource: resource.clone(),
            cluster_scoped: false,
            scope_is_known: TypeId::of::<K::DynamicType>() == TypeId::of::<()>(),
            metadata_only: K::metadata_api(),
            says_kind: TypeId::of::<K::DynamicType>() == TypeId::of::<()>(),
            decode: Decode {
                object: |text| times::read::<K>(text).map(|object| Arc::new(object) as Arc<dyn Cached>),
                kept: |text| times::read::<K>(text).map(kept),
            },
        }
    }
}

fn kept<K: AnyObject>(mut object: K) -> Arc<dyn Cached> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}

/// Reads a type out of a value. By way of text: see the invariants.
pub(crate) fn of_json<K: DeserializeOwned>(value: &impl Serialize) -> Result<K, String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    times::read(&text).map_err(|error| without_place(&error))
}

/// The error of serde, without the line and column in a text that the user has not seen.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map(str::to_owned).unwrap_or(text)
}

/// Runs a user's `Deserialize`, which may panic (and so may a `Drop` of its remains).
pub(crate) fn guarded<T>(decode: impl FnOnce() -> serde_json::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(bounded(without_place(&error))),
        Err(payload) => Err(bounded(format!("its Deserialize panicked: {}", end_of_panic(payload)))),
    }
}

fn bounded(mut reason: String) -> String {
    if reason.len() > MAX_REASON {
        let end = (0..=MAX_REASON).rev().find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::Error as _;

    /// RF11: a panic of the type is an error of one object, and a long reason is cut.
    #[test]
    fn rf11_a_panic_while_decoding_is_an_error_of_the_object() {
        let reason = guarded::<()>(|| panic!("unexpected colour")).expect_err("it panicked");
        assert_eq!(reason, "its Deserialize panicked: unexpected colour");
        let reason = guarded::<()>(|| Err(serde_json::Error::custom("é".repeat(MAX_REASON)))).expect_err("it failed");
        assert!(reason.len() < MAX_REASON + 8 && reason.ends_with('…'));
    }
}
