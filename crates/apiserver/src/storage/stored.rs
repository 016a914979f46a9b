//! One version of one object, in the two forms in which it is needed.
//!
//! A stored object is its JSON text: clients get this text, and it is a fraction of the size of the tree of values. The
//! tree is decoded from it when it is needed, and lives as long as the object is held. So a storage holds [`Entry`]s,
//! and hands out [`StoredObject`]s that share the decoded tree as long as one of them is alive.
//!
//! Invariant: a text is either written here or checked when it is restored, so reading it cannot fail.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use kubewright_schema::budget;
use kubewright_schema::decode::{self, MAX_DEPTH, MAX_STORED_DEPTH};
use kubewright_schema::protobuf::order::{Order, Ordered, Row};
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};
use serde_json::{Map, Value};

use super::{SizeLimit, StorageError};
use crate::json::{Text, string};

/// A stored version of an object. Immutable: a write makes another one.
#[derive(Debug)]
pub struct StoredObject {
    revision: u64,
    /// Boxed, because a weak reference to a dropped object keeps the memory of this struct, but not of the box.
    forms: Box<Forms>,
}

#[derive(Debug)]
struct Forms {
    /// At least one of the text and the value is there from the beginning.
    encoded: OnceLock<Bytes>,
    value: OnceLock<Value>,
    head: OnceLock<Value>,
}

/// What is read out of a stored object when it is first asked for, at the cost of the request that asks: a client may
/// write large objects that concern others.
#[derive(Debug)]
pub(crate) struct ReadLater<T> {
    /// Its text alone.
    stored: StoredObject,
    read: OnceLock<T>,
}

impl<T> ReadLater<T> {
    pub(crate) fn new(stored: &StoredObject) -> ReadLater<T> {
        ReadLater {
            stored: stored.text_alone(),
            read: OnceLock::new(),
        }
    }

    /// What `read` makes of the object, each time the same.
    pub(crate) fn get(&self, read: impl FnOnce(&Value) -> T) -> &T {
        if let Some(known) = self.read.get() {
            return known;
        }
        // About what it takes to read it. Where a request is only tried, a long one does not begin.
        let steps = 1 + self.stored.encoded().len() / 8;
        budget::announce(steps);
        budget::spend(steps);
        self.read
            .get_or_init(|| budget::unlimited(|| read(self.stored.text_alone().value())))
    }
}

/// The part of an object that is read when only its metadata is needed.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Value,
}

impl StoredObject {
    /// The object as it is after `revision`. Sets `metadata.resourceVersion`, which no other code may set.
    pub fn new(revision: u64, mut value: Value) -> StoredObject {
        set_resource_version(&mut value, revision.to_string());
        StoredObject::of(revision, OnceLock::new(), OnceLock::from(value))
    }

    /// An object that no write made, and that has no resourceVersion: one that is computed when it is asked for.
    pub fn unversioned(value: Value) -> StoredObject {
        StoredObject::of(0, OnceLock::new(), OnceLock::from(value))
    }

    /// The same, written in an order: for lists, which send the texts of their objects.
    pub fn ordered(value: Value, order: Order) -> StoredObject {
        let text = crate::json::text(&Ordered::new(&value, order));
        StoredObject::of(0, OnceLock::from(Bytes::from(text)), OnceLock::from(value))
    }

    /// An object whose text was kept somewhere: as [`StoredObject::encoded`] gave it, at its revision.
    ///
    /// # Errors
    /// When the text is not JSON, or nests so deep that nothing could read it.
    pub fn restore(revision: u64, encoded: Bytes) -> Result<StoredObject, serde_json::Error> {
        serde_json::from_slice::<IgnoredAny>(&encoded)?;
        let depth = decode::nesting(&encoded);
        if depth > MAX_STORED_DEPTH {
            let why = format!("lists and objects nest {depth} deep, more than {MAX_STORED_DEPTH}");
            return Err(serde_json::Error::custom(why));
        }
        Ok(StoredObject::of(revision, OnceLock::from(encoded), OnceLock::new()))
    }

    fn of(revision: u64, encoded: OnceLock<Bytes>, value: OnceLock<Value>) -> StoredObject {
        let forms = Forms {
            encoded,
            value,
            head: OnceLock::new(),
        };
        StoredObject {
            revision,
            forms: Box::new(forms),
        }
    }

    /// The revision of the write that made it, which is its resourceVersion.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The object, without `kind`, and without `apiVersion` unless it is a custom resource. Read out of the text when
    /// first asked for, and then kept.
    pub fn value(&self) -> &Value {
        self.forms.value.get_or_init(|| {
            decode::stored(self.encoded()).expect("the text was written here, or checked when it was restored")
        })
    }

    /// The same as an owned value: it is copied only if the object is still shared.
    pub fn into_value(self: Arc<Self>) -> Value {
        match Arc::try_unwrap(self) {
            Ok(mut own) => {
                own.value();
                own.forms.value.take().unwrap_or_default()
            }
            Err(shared) => shared.value().clone(),
        }
    }

    /// The same without its tree of values, for a caller that needs only the text from here on.
    pub(crate) fn text_alone(&self) -> StoredObject {
        StoredObject::of(self.revision, OnceLock::from(self.encoded().clone()), OnceLock::new())
    }

    /// An object that has at least the `metadata` of this one: enough for labels and names, and much cheaper than
    /// [`StoredObject::value`] when that was not read yet.
    pub fn head(&self) -> &Value {
        if let Some(value) = self.forms.value.get() {
            return value;
        }
        self.forms.head.get_or_init(|| {
            let mut text = serde_json::Deserializer::from_slice(self.encoded());
            text.disable_recursion_limit();
            let head =
                Head::deserialize(&mut text).expect("the text was written here, or checked when it was restored");
            Value::Object(Map::from_iter([("metadata".to_owned(), head.metadata)]))
        })
    }

    /// The JSON of [`StoredObject::value`], encoded once.
    pub fn encoded(&self) -> &Bytes {
        self.forms.encoded.get_or_init(|| {
            let value = self.forms.value.get().expect("an object without a text has a value");
            Bytes::from(value.to_string())
        })
    }

    /// Whether the tree of values is held beside the text.
    pub(crate) fn is_read(&self) -> bool {
        self.forms.value.get().is_some()
    }
}

fn set_resource_version(value: &mut Value, version: String) {
    let Some(object) = value.as_object_mut() else { return };
    if !object.get("metadata").is_some_and(Value::is_object) {
        object.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(version));
    }
}

/// A value that is encoded except for its revision, which is only known under the storage's lock: only a copy is left
/// to do there.
pub(super) struct Prepared {
    /// `None` when it was not decoded from the text.
    value: Option<Value>,
    encoded: Vec<u8>,
    /// Where the digits of the revision belong; `None` for a value that is not an object.
    at: Option<usize>,
    /// How deep its lists and objects nest.
    depth: usize,
}

impl Prepared {
    pub(super) fn new(mut value: Value, order: Order) -> Prepared {
        set_resource_version(&mut value, String::new());
        let mut encoded = Vec::with_capacity(1024);
        let mut at = None;
        // Of an object itself, and of its metadata.
        let mut deepest = if value.is_object() { 2 } else { 0 };
        let mut write = |out: &mut Vec<u8>, value: &Value, order: Order, within: usize| {
            let mut text = Text { out, within, deepest };
            text.value(value, order);
            deepest = text.deepest;
        };
        match &value {
            Value::Object(object) => write_map(&mut encoded, object, order, |out, key, value, order| match value {
                Value::Object(metadata) if key == "metadata" => {
                    write_map(out, metadata, order, |out, key, value, order| {
                        if key == "resourceVersion" {
                            at = Some(out.len() + 1);
                        }
                        write(out, value, order, 2);
                    });
                }
                other => write(out, other, order, 1),
            }),
            other => write(&mut encoded, other, order, 0),
        }
        Prepared {
            value: Some(value),
            encoded,
            at,
            depth: deepest,
        }
    }

    /// Whether it may be stored in the place of a text. A client could not send back an object that is deeper than
    /// requests may be; one that is that deep already may stay so, because it must be possible to delete it.
    pub(super) fn fits(&self, before: Option<&[u8]>) -> bool {
        self.depth <= MAX_DEPTH || before.is_some_and(|before| self.depth <= decode::nesting(before))
    }

    /// How deep its lists and objects nest.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The same, if it is not larger than the limit, or than `present` bytes of text. A larger one loses its
    /// `managedFields` where the limit says so ([`SizeLimit::drops_managers`]).
    pub(super) fn up_to(
        value: Value,
        order: Order,
        limit: &SizeLimit<'_>,
        present: usize,
    ) -> Result<Prepared, StorageError> {
        let exceeded = |prepared: &Prepared| {
            let length = prepared.encoded.len();
            let value = prepared.value.as_ref().filter(|_| length > present)?;
            limit.exceeded(value, length)
        };
        let mut prepared = Prepared::new(value, order);
        if limit.drops_managers
            && exceeded(&prepared).is_some()
            && let Some(mut value) = prepared.value.take()
        {
            let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
            metadata.and_then(|metadata| metadata.remove("managedFields"));
            // The text that is too long goes before there is another one.
            drop(prepared);
            prepared = Prepared::new(value, order);
        }
        match exceeded(&prepared) {
            Some(length) => Err(StorageError::TooLarge(length)),
            None => Ok(prepared),
        }
    }

    /// A text that was written like this before, with an empty resourceVersion.
    pub(super) fn of_text(text: String) -> Prepared {
        const EMPTY: &str = "\"resourceVersion\":\"\"";
        let at = text.find(EMPTY).map(|start| start + EMPTY.len() - 1);
        Prepared {
            value: None,
            depth: decode::nesting(text.as_bytes()),
            encoded: text.into_bytes(),
            at,
        }
    }

    /// The object as it is after `revision`. The digits are put into the text where it is: it may be long.
    pub(super) fn finish(mut self, revision: u64) -> StoredObject {
        let digits = if self.at.is_some() {
            revision.to_string()
        } else {
            String::new()
        };
        let at = self.at.unwrap_or(self.encoded.len());
        self.encoded.splice(at..at, digits.bytes());
        // It is kept for as long as the object is.
        self.encoded.shrink_to_fit();
        let value = self.value.take().map(|mut value| {
            set_resource_version(&mut value, digits);
            value
        });
        StoredObject::of(
            revision,
            OnceLock::from(Bytes::from(self.encoded)),
            value.map_or_else(OnceLock::new, OnceLock::from),
        )
    }
}

fn write_map(
    out: &mut Vec<u8>,
    map: &Map<String, Value>,
    order: Order,
    mut write: impl FnMut(&mut Vec<u8>, &str, &Value, Order),
) {
    out.push(b'{');
    for (index, (key, value, order)) in Row::default().entries(map, order).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        string(out, key);
        out.push(b':');
        write(out, key, value, order);
    }
    out.push(b'}');
}

/// A version of an object as a storage keeps it: its text, which [`Entry::object`] opens for reading.
#[derive(Debug)]
pub struct Entry {
    revision: u64,
    encoded: Bytes,
    /// The opened object, while it is still held.
    open: Mutex<Weak<StoredObject>>,
}

impl Entry {
    /// The entry of an object. All holders share the object as long as one of them holds it.
    pub fn of(object: &Arc<StoredObject>) -> Arc<Entry> {
        Arc::new(Entry {
            revision: object.revision(),
            encoded: object.encoded().clone(),
            open: Mutex::new(Arc::downgrade(object)),
        })
    }

    /// The revision of the write that made it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The text, as [`StoredObject::encoded`].
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The object: the one that others hold, or a new one.
    pub fn object(&self) -> Arc<StoredObject> {
        self.open().0
    }

    /// The object by itself, for a queue: a waiting copy must not hold the trees that others have read.
    pub(super) fn fresh(&self) -> Arc<StoredObject> {
        let encoded = OnceLock::from(self.encoded.clone());
        Arc::new(StoredObject::of(self.revision, encoded, OnceLock::new()))
    }

    /// [`Entry::object`], and whether it is new.
    pub(super) fn open(&self) -> (Arc<StoredObject>, bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = open.upgrade() {
            return (object, false);
        }
        let object = self.fresh();
        *open = Arc::downgrade(&object);
        (object, true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_object_carries_its_version() {
        let check = |value: Value, expected: &str| {
            let one = StoredObject::new(7, value.clone());
            let other = Prepared::new(value, Order::SORTED).finish(7);
            for stored in [&one, &other] {
                assert_eq!(stored.encoded().as_ref(), expected.as_bytes());
                assert_eq!(stored.value().to_string(), expected);
            }
            let restored = StoredObject::restore(7, other.encoded().clone()).expect("our own text");
            assert_eq!(
                restored.head()["metadata"],
                *one.value().get("metadata").unwrap_or(&Value::Null)
            );
            assert!(!restored.is_read(), "the metadata alone does not need the whole tree");
            assert_eq!(restored.value(), one.value());
        };
        check(
            json!({"metadata": {"name": "a", "resourceVersion": "3"}}),
            r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
        );
        check(
            json!({"a": {"resourceVersion": ""}, "metadata": {"annotations": {"x": "\"resourceVersion\":\"\""}, "z": 1}, "s": [1.5, null]}),
            r#"{"a":{"resourceVersion":""},"metadata":{"annotations":{"x":"\"resourceVersion\":\"\""},"resourceVersion":"7","z":1},"s":[1.5,null]}"#,
        );
        check(json!({"b": 1}), r#"{"b":1,"metadata":{"resourceVersion":"7"}}"#);
        check(json!({"metadata": null}), r#"{"metadata":{"resourceVersion":"7"}}"#);
    }

    #[test]
    fn a_text_gets_its_version() {
        let text = r#"{"metadata":{"annotations":{"x":"\"resourceVersion\":\"\""},"resourceVersion":"","z":1}}"#;
        let stored = Prepared::of_text(text.to_owned()).finish(12);
        assert!(!stored.is_read());
        assert_eq!(stored.value()["metadata"]["resourceVersion"], "12");
        assert_eq!(stored.encoded().len(), text.len() + 2);
    }

    #[test]
    fn what_is_read_is_shared_and_let_go() {
        let entry = Entry::of(&Arc::new(StoredObject::new(2, json!({"metadata": {"name": "a"}}))));
        let (one, new) = entry.open();
        assert!(new && !one.is_read(), "the writer's tree is gone with the writer");
        assert_eq!(one.value()["metadata"]["name"], "a");
        let (other, new) = entry.open();
        assert!(!new && other.is_read());
        drop((one, other));
        assert!(!entry.open().0.is_read());
        // As much stays of an object that an entry remembers.
        assert_eq!(size_of::<StoredObject>(), 16);
    }

    #[test]
    fn a_text_that_is_no_json_is_refused() {
        assert!(StoredObject::restore(1, Bytes::from_static(b"{\"metadata\":")).is_err());
    }

    /// An object whose managed fields, or whose other fields, nest so deep in all.
    fn nested(depth: usize, in_metadata: bool) -> Value {
        let within = if in_metadata { 2 } else { 1 };
        let value = (within..depth).fold(json!(1), |value, _| json!([value]));
        if in_metadata {
            json!({"metadata": {"managedFields": value}})
        } else {
            json!({"spec": value})
        }
    }

    #[test]
    fn whatever_is_stored_can_be_read() {
        for in_metadata in [false, true] {
            for depth in [2, 127, 128, 129, MAX_DEPTH, MAX_STORED_DEPTH] {
                let value = nested(depth, in_metadata);
                let prepared = Prepared::new(value.clone(), Order::SORTED);
                assert_eq!(prepared.depth(), depth);
                let text = prepared.finish(7).encoded().clone();
                let read = || StoredObject::restore(7, text.clone()).expect("it is as deep as may be");
                assert_eq!(read().value()["spec"], value["spec"]);
                assert_eq!(read().head()["metadata"], read().value()["metadata"]);
            }
            let text = nested(MAX_STORED_DEPTH + 1, in_metadata).to_string();
            let error = StoredObject::restore(7, text.into()).unwrap_err();
            assert_eq!(error.to_string(), "lists and objects nest 1001 deep, more than 1000");
        }
    }

    #[test]
    fn nothing_gets_deeper_than_clients_may_send() {
        let check = |depth: usize, before: Option<usize>, fits: bool| {
            let before = before.map(|depth| nested(depth, false).to_string());
            let prepared = Prepared::new(nested(depth, false), Order::SORTED);
            assert_eq!(
                prepared.fits(before.as_deref().map(str::as_bytes)),
                fits,
                "{depth} for {before:?}"
            );
        };
        check(MAX_DEPTH, None, true);
        check(MAX_DEPTH + 1, None, false);
        check(MAX_DEPTH + 1, Some(MAX_DEPTH), false);
        check(MAX_DEPTH + 1, Some(MAX_DEPTH + 1), true);
        check(MAX_DEPTH + 1, Some(MAX_DEPTH + 2), true);
    }
}
