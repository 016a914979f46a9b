//! Objects without their type, so that the machinery is compiled once and not for every kind of every operator.
//!
//! A cache holds [`Cached`] objects; what must be known of their type (its resource, how its JSON is read) is a [`Form`], a small table of
//! functions. Only the edge of the public interface names a type: it makes the form going in and restores the type ([`typed`]) coming out. An
//! operator is compiled anew after every edit, and what it compiles is what is generic: whoever adds to the machinery keeps it out of there.
//!
//! A future is boxed where it leaves for that edge: a coroutine is compiled by whoever polls it, with all that it awaits.
//!
//! Invariants: an informer of a form holds nothing but objects of its type; each type is read from JSON text and written to a JSON value and in
//! no other way, because each way is another copy of serde's code for every type.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::{ApiResource, ObjectMeta};
use kubewright_engine::Event;
use kubewright_engine::reflector::WatchEvent;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::object::{AnyObject, Object, api_resource, is_cluster_scoped};

/// Something that can be looked at as JSON.
pub(crate) trait AsJson: Send + Sync {
    fn json(&self) -> serde_json::Result<Value>;

    /// For comparing: a cached object was JSON a moment ago; should its Serialize refuse nevertheless, no change is shown rather than a wrong
    /// one.
    fn json_or_null(&self) -> Value {
        self.json().unwrap_or(Value::Null)
    }
}

impl<T: Serialize + Send + Sync> AsJson for T {
    fn json(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

/// An object of any type.
pub(crate) trait Cached: Any + AsJson {
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: AnyObject> Cached for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

impl fmt::Debug for dyn Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = self.metadata();
        write!(f, "Cached({:?}, {:?})", meta.namespace, meta.name)
    }
}

/// The object with its type again.
pub(crate) fn typed<K: AnyObject>(object: Arc<dyn Cached>) -> Arc<K> {
    let any: Arc<dyn Any + Send + Sync> = object;
    any.downcast().expect("what was made with the form of K is a K")
}

/// As [`typed`], for many.
pub(crate) fn typed_all<K: AnyObject>(objects: Vec<Arc<dyn Cached>>) -> Vec<Arc<K>> {
    objects.into_iter().map(typed).collect()
}

/// As [`typed`], for a reference.
pub(crate) fn typed_ref<K: AnyObject>(object: &dyn Cached) -> &K {
    let any: &dyn Any = object;
    any.downcast_ref().expect("what was made with the form of K is a K")
}

/// As [`typed`], for an event.
pub(crate) fn typed_event<K: AnyObject>(event: &Event<dyn Cached>) -> Event<K> {
    event.map(|object| typed(object.clone()))
}

/// What is known of a type when it is not named.
#[derive(Clone)]
pub(crate) struct Form {
    pub(crate) id: TypeId,
    pub(crate) resource: ApiResource,
    pub(crate) cluster_scoped: bool,
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
    pub(crate) object: fn(&[u8]) -> serde_json::Result<Arc<dyn Cached>>,
    /// A page of a list; without managedFields.
    pub(crate) page: fn(&[u8]) -> serde_json::Result<Page>,
    /// A frame of a watch; without managedFields.
    pub(crate) frame: fn(&[u8]) -> serde_json::Result<Frame>,
    /// As `object`, without managedFields.
    pub(crate) kept: fn(&[u8]) -> serde_json::Result<Arc<dyn Cached>>,
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form({})", self.resource.kind)
    }
}

impl Form {
    /// A type that knows what it is.
    pub(crate) fn of<K: Object>() -> Form {
        Form {
            cluster_scoped: is_cluster_scoped::<K>(),
            ..Form::for_resource::<K>(&api_resource::<K>())
        }
    }

    /// A type in which objects of this resource are held.
    pub(crate) fn for_resource<K: AnyObject>(resource: &ApiResource) -> Form {
        Form {
            id: TypeId::of::<K>(),
            resource: resource.clone(),
            cluster_scoped: false,
            metadata_only: K::metadata_api(),
            says_kind: TypeId::of::<K::DynamicType>() == TypeId::of::<()>(),
            decode: Decode {
                object: |text| serde_json::from_slice::<K>(text).map(|object| Arc::new(object) as Arc<dyn Cached>),
                page: |text| serde_json::from_slice::<PageOf<K>>(text).map(|page| page.0),
                frame: |text| serde_json::from_slice::<FrameOf<K>>(text).map(|frame| frame.0),
                kept: |text| serde_json::from_slice::<K>(text).map(kept),
            },
        }
    }
}

fn kept<K: AnyObject>(mut object: K) -> Arc<dyn Cached> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}

/// Reads a type out of a value. By way of text: see the invariants.
pub(crate) fn of_json<K: DeserializeOwned>(value: &Value) -> Result<K, String> {
    let text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| without_place(&error))
}

/// What serde says, without the line and column in a text that nobody has seen.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map(str::to_owned).unwrap_or(text)
}

/// One page of a list.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<dyn Cached>>,
    pub(crate) resource_version: Option<String>,
    pub(crate) continue_token: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

struct PageOf<K>(Page, PhantomData<K>);

impl<'de, K: AnyObject> Deserialize<'de> for PageOf<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PageOf<K>, D::Error> {
        struct Fields<K>(PhantomData<K>);
        impl<'de, K: AnyObject> Visitor<'de> for Fields<K> {
            type Value = Page;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list with `metadata` and `items`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
                let mut page = Page::default();
                while let Some(key) = map.next_key::<Field>()? {
                    match key {
                        Field::Metadata => {
                            let PageMeta {
                                resource_version,
                                token,
                            } = map.next_value()?;
                            page.resource_version = resource_version;
                            page.continue_token = token;
                        }
                        // Go writes `null` for an empty list in places.
                        Field::Items => {
                            page.items = map
                                .next_value::<Option<ItemsOf<K>>>()?
                                .map_or_else(Vec::new, |items| items.0);
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(page)
            }
        }
        deserializer
            .deserialize_map(Fields::<K>(PhantomData))
            .map(|page| PageOf(page, PhantomData))
    }
}

/// The items of a page, shared as they are read: a page is never there twice.
struct ItemsOf<K>(Vec<Arc<dyn Cached>>, PhantomData<K>);

impl<'de, K: AnyObject> Deserialize<'de> for ItemsOf<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ItemsOf<K>, D::Error> {
        struct Items<K>(PhantomData<K>);
        impl<'de, K: AnyObject> Visitor<'de> for Items<K> {
            type Value = Vec<Arc<dyn Cached>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of objects")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element::<K>()? {
                    list.push(kept(item));
                }
                Ok(list)
            }
        }
        deserializer
            .deserialize_seq(Items::<K>(PhantomData))
            .map(|items| ItemsOf(items, PhantomData))
    }
}

/// One line of a watch, before it is known what it means.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) event: String,
    /// An object of the kind.
    pub(crate) object: Option<Arc<dyn Cached>>,
    /// What is no object of the kind, or came in an order that no server is known to write: before its `type`.
    pub(crate) other: Option<Value>,
}

impl Frame {
    fn is_about_object(&self) -> bool {
        matches!(self.event.as_str(), "ADDED" | "MODIFIED" | "DELETED")
    }

    /// What happened to the object; `None` when it is about none.
    pub(crate) fn event_of(event: &str, object: Arc<dyn Cached>) -> Option<WatchEvent<dyn Cached>> {
        match event {
            "ADDED" => Some(WatchEvent::Added(object)),
            "MODIFIED" => Some(WatchEvent::Modified(object)),
            "DELETED" => Some(WatchEvent::Deleted(object)),
            _ => None,
        }
    }
}

/// Read by hand and not as kube's enum: serde's code for enums keeps a second reader of every type for a `type` that comes behind its `object`.
struct FrameOf<K>(Frame, PhantomData<K>);

impl<'de, K: AnyObject> Deserialize<'de> for FrameOf<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FrameOf<K>, D::Error> {
        struct Fields<K>(PhantomData<K>);
        impl<'de, K: AnyObject> Visitor<'de> for Fields<K> {
            type Value = Frame;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event of a watch, with `type` and `object`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Frame, A::Error> {
                let mut frame = Frame::default();
                while let Some(key) = map.next_key::<Field>()? {
                    match key {
                        Field::Type => frame.event = map.next_value()?,
                        Field::Object if frame.is_about_object() => frame.object = Some(kept(map.next_value::<K>()?)),
                        Field::Object => frame.other = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(frame)
            }
        }
        deserializer
            .deserialize_map(Fields::<K>(PhantomData))
            .map(|frame| FrameOf(frame, PhantomData))
    }
}

/// The keys of pages and frames.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Type,
    Object,
    Metadata,
    Items,
    #[serde(other)]
    Other,
}
