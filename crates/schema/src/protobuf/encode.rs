//! The way back: from the JSON of an object to the bytes that a Go server would send.
//!
//! Go's encoder writes every field that is not a pointer, zero or not, in the order of the tags; so do these functions,
//! and the bytes are the same. A field that the table does not know is left out: Go's types do not have it either.

use serde_json::Value;

use super::PREFIX;
use super::special::{self, Special};
use super::table::{self, Field, Finder, Message, Shape, Type};
use super::write::{Length, Sink, bytes, double, nested, varint};
use crate::decode::MAX_STORED_DEPTH;
use crate::{base64, times};

/// A level of an object becomes one message, or two.
const MAX_WRITTEN: usize = 2 * MAX_STORED_DEPTH;

/// Why an object has no protobuf form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is no message for the kind: it is a custom resource, or a kind that Kubernetes sends as JSON alone.
    #[error("object {kind} of {api_version:?} has no protobuf form")]
    UnknownKind {
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
    /// A field does not hold a value of its type.
    #[error("field {field} cannot be written as protobuf: {value}")]
    Field {
        /// The JSON name of the field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// More than `MAX_WRITTEN` messages in each other, which nothing has that is stored.
    #[error("exceeded max depth: messages may be nested {MAX_WRITTEN} deep")]
    TooDeep,
}

/// Writes an object: prefix, envelope, message. Its kind is that of its `apiVersion` and `kind`.
///
/// ```
/// use kubewright_schema::protobuf;
/// use serde_json::json;
///
/// let object = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"});
/// let body = protobuf::encode(&object)?;
/// assert_eq!(protobuf::decode(&body).expect("well-formed").value, object);
/// # Ok::<(), protobuf::EncodeError>(())
/// ```
///
/// # Errors
/// [`EncodeError`] when the kind has no message, or a field has a wrong type.
pub fn encode(object: &Value) -> Result<Vec<u8>, EncodeError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    encode_as(text("apiVersion"), text("kind"), object)
}

/// Writes an object as this kind, regardless of its own `apiVersion` and `kind`.
///
/// # Errors
/// See [`encode`].
pub fn encode_as(api_version: &str, kind: &str, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    write_object(api_version, kind, object, &mut out)?;
    Ok(out)
}

/// The length of what [`encode_as`] writes.
///
/// # Errors
/// See [`encode`].
pub fn encoded_length(api_version: &str, kind: &str, object: &Value) -> Result<usize, EncodeError> {
    let mut out = Length::default();
    write_object(api_version, kind, object, &mut out)?;
    Ok(out.0)
}

fn write_object(api_version: &str, kind: &str, object: &Value, out: &mut impl Sink) -> Result<(), EncodeError> {
    let message = message_of(api_version, kind)?;
    envelope(api_version, kind, out, |out| {
        write_message(message, object, 0, &mut Finder::default(), out)
    })
}

/// Writes a list of `items`, which need not say their kind: it is that of the list without `List`. Each is read when its
/// turn comes, and given up then.
///
/// # Errors
/// See [`encode`].
pub fn encode_list<I: IntoIterator>(
    api_version: &str,
    list_kind: &str,
    metadata: &Value,
    items: I,
    read: impl Fn(&I::Item) -> &Value,
) -> Result<Vec<u8>, EncodeError> {
    let list = message_of(api_version, list_kind)?;
    let unknown = || EncodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: list_kind.to_owned(),
    };
    let (Some(head), Some(field)) = (list.field(1), list.fields().iter().find(|field| field.json == "items")) else {
        return Err(unknown());
    };
    let Type::Message(item) = field.type_ else {
        return Err(unknown());
    };
    let mut out = Vec::new();
    envelope(api_version, list_kind, &mut out, |out| {
        write_field(head, metadata, 0, out)?;
        for value in items {
            nested(field.tag, out, |out| {
                write_message(item, read(&value), 1, &mut Finder::default(), out)
            })?;
        }
        Ok(())
    })?;
    Ok(out)
}

/// Writes an event of a watch: the length of the rest in four bytes, the type, and the object, which is a whole body.
pub fn encode_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut event = Vec::with_capacity(object.len() + 32);
    bytes(1, kind.as_bytes(), &mut event);
    let mut raw = Vec::with_capacity(object.len() + 8);
    bytes(1, object, &mut raw);
    bytes(2, &raw, &mut event);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), &event].concat()
}

fn message_of(api_version: &str, kind: &str) -> Result<&'static Message, EncodeError> {
    // Metadata alone has the same message in all versions, and some discovery documents have no version.
    let known = match (api_version, kind) {
        ("meta.k8s.io/v1beta1", "PartialObjectMetadata" | "PartialObjectMetadataList") => "meta.k8s.io/v1",
        ("", "APIVersions" | "APIResourceList") => "v1",
        _ => api_version,
    };
    table::kind(known, kind).ok_or_else(|| EncodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

fn envelope<S: Sink>(
    api_version: &str,
    kind: &str,
    out: &mut S,
    message: impl FnOnce(&mut S) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    out.put(PREFIX);
    let mut type_meta = Vec::new();
    bytes(1, api_version.as_bytes(), &mut type_meta);
    bytes(2, kind.as_bytes(), &mut type_meta);
    bytes(1, &type_meta, out);
    nested(2, out, message)?;
    // Neither the encoding nor the type of the content is said: the headers say both.
    bytes(3, b"", out);
    bytes(4, b"", out);
    Ok(())
}

/// Writes an object. The finder may have been used for other objects of this message.
fn write_message<'v>(
    message: &'static Message,
    value: &'v Value,
    depth: usize,
    finder: &mut Finder<'v>,
    out: &mut impl Sink,
) -> Result<(), EncodeError> {
    if depth > MAX_WRITTEN {
        return Err(EncodeError::TooDeep);
    }
    if let Some(whole) = message.whole() {
        return write_field(whole, value, depth, out);
    }
    let values = value.as_object().map(|entries| finder.values(message, entries));
    for (at, field) in message.fields().iter().enumerate() {
        match field.type_ {
            Type::Message(inner) if field.is_inline() => nested(field.tag, out, |out| {
                write_message(inner, value, depth + 1, &mut Finder::default(), out)
            })?,
            _ => {
                let of_field = values.and_then(|values| values.get(at).copied());
                write_field(field, of_field.unwrap_or(&Value::Null), depth, out)?;
            }
        }
    }
    Ok(())
}

fn write_field(field: &'static Field, value: &Value, depth: usize, out: &mut impl Sink) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Field {
        field: field.json,
        value: value.to_string().chars().take(80).collect(),
    };
    match (field.shape, value) {
        (Shape::One, Value::Null) if field.pointer || matches!(field.type_, Type::Bytes) => Ok(()),
        (Shape::One, value) => write_value(field, field.tag, value, depth, out),
        (Shape::List | Shape::Map, Value::Null) => Ok(()),
        (Shape::List, Value::Array(items)) => {
            let mut finder = Finder::default();
            items.iter().try_for_each(|item| match field.type_ {
                Type::Message(message) => nested(field.tag, out, |out| {
                    write_message(message, item, depth + 1, &mut finder, out)
                }),
                _ => write_value(field, field.tag, item, depth, out),
            })
        }
        (Shape::Map, Value::Object(entries)) => entries.iter().try_for_each(|(key, value)| {
            nested(field.tag, out, |out| {
                bytes(1, key.as_bytes(), out);
                write_value(field, 2, value, depth, out)
            })
        }),
        (Shape::List | Shape::Map, _) => Err(wrong()),
    }
}

/// One value of a field's type. Null is the zero of the type.
fn write_value(
    field: &'static Field,
    tag: u32,
    value: &Value,
    depth: usize,
    out: &mut impl Sink,
) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Field {
        field: field.json,
        value: value.to_string().chars().take(80).collect(),
    };
    let zero = value.is_null();
    match field.type_ {
        Type::String => bytes(tag, text(value).ok_or_else(wrong)?.as_bytes(), out),
        Type::Bytes => bytes(
            tag,
            &base64::decode(text(value).ok_or_else(wrong)?).map_err(|_| wrong())?,
            out,
        ),
        Type::Bool => {
            let flag = if zero { Some(false) } else { value.as_bool() };
            varint(tag, u64::from(flag.ok_or_else(wrong)?), out);
        }
        // A negative number is extended to 64 bits, for both types.
        Type::Int32 | Type::Int64 => varint(tag, integer(value).ok_or_else(wrong)?.cast_unsigned(), out),
        Type::Double => {
            let number = if zero { Some(0.0) } else { value.as_f64() };
            double(tag, number.ok_or_else(wrong)?, out);
        }
        Type::Special(special) => nested(tag, out, |out| {
            write_special(special, value, depth + 1, out).ok_or_else(wrong)?
        })?,
        Type::Message(message) => nested(tag, out, |out| {
            write_message(message, value, depth + 1, &mut Finder::default(), out)
        })?,
    }
    Ok(())
}

fn text(value: &Value) -> Option<&str> {
    if value.is_null() { Some("") } else { value.as_str() }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Null => Some(0),
        // A whole number may be written with a fraction of zero.
        value => value.as_i64().or_else(|| {
            value
                .as_f64()
                .filter(|number| number.fract() == 0.0)
                .map(|number| number as i64)
        }),
    }
}

/// `None`: the value does not fit.
fn write_special(
    special: Special,
    value: &Value,
    depth: usize,
    out: &mut impl Sink,
) -> Option<Result<(), EncodeError>> {
    match special {
        Special::Time | Special::MicroTime => {
            if value.is_null() {
                return Some(Ok(()));
            }
            let (seconds, nanos) = times::parse(value.as_str()?)?;
            let micro = special == Special::MicroTime;
            varint(1, seconds.cast_unsigned(), out);
            let nanos = if micro { nanos / 1000 * 1000 } else { 0 };
            varint(2, u64::from(nanos), out);
        }
        Special::Duration => varint(1, special::parse_duration(text(value)?)?.cast_unsigned(), out),
        Special::Quantity => {
            let quantity = if value.is_null() {
                "0".to_owned()
            } else {
                quantity(value)?
            };
            bytes(1, quantity.as_bytes(), out);
        }
        Special::IntOrString => {
            let (type_, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                value => (0, integer(value)?, ""),
            };
            varint(1, type_, out);
            varint(2, number.cast_unsigned(), out);
            bytes(3, text.as_bytes(), out);
        }
        Special::Json if value.is_null() => {}
        Special::Json => nested(1, out, |out| serde_json::to_writer(out, value)).ok()?,
        Special::SchemaOrArray | Special::SchemaOrBool | Special::SchemaOrStrings => {
            return write_schema(special, value, depth, out);
        }
    }
    Some(Ok(()))
}

fn quantity(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A schema where something else may stand in its place.
fn write_schema<S: Sink>(
    special: Special,
    value: &Value,
    depth: usize,
    out: &mut S,
) -> Option<Result<(), EncodeError>> {
    let schema = |tag: u32, value: &Value, out: &mut S| {
        nested(tag, out, |out| {
            write_message(special::schema_message(), value, depth, &mut Finder::default(), out)
        })
    };
    let result = match (special, value) {
        (Special::SchemaOrBool, value) => {
            varint(1, u64::from(value.as_bool().unwrap_or(value.is_object())), out);
            if value.is_object() {
                schema(2, value, out)
            } else {
                Ok(())
            }
        }
        (_, Value::Object(_)) => schema(1, value, out),
        (Special::SchemaOrArray, Value::Array(schemas)) => schemas.iter().try_for_each(|value| schema(2, value, out)),
        (_, Value::Array(names)) => {
            for name in names {
                bytes(2, name.as_str()?.as_bytes(), out);
            }
            Ok(())
        }
        (_, value) => return value.is_null().then_some(Ok(())),
    };
    Some(result)
}
