//! Protobuf bodies of built-in kinds, as `kubectl` and Go clients send and read them: turned into the JSON that they
//! stand for, and back.
//!
//! Kubernetes' protobuf is an envelope ([`Envelope`], `runtime.Unknown` behind four magic bytes) around the message of
//! one object. A table, committed as data, has for every message the JSON field and the type of each tag; one walk over
//! the bytes with that table in hand builds a [`serde_json::Value`]. From there on nothing knows that the object was
//! not JSON.
//!
//! Invariants:
//! - No input panics, recurses deeper than [`MAX_DEPTH`] messages or makes more than [`MAX_VALUES`] values.
//! - The result is the JSON that a Go client would have sent. Go's encoder writes every field that is not a pointer,
//!   zero or not; such a zero says nothing and is left out, as `omitempty` does. Structs stay (`"status": {}`), a zero
//!   behind a pointer is a value. Values that JSON clients do send beyond that (`"rules": null`) are added by
//!   [`structural::go_normalize`](crate::structural::go_normalize).
//! - Unknown tags are skipped, as Go does. There is no strict mode in protobuf.
//! - Nothing is parsed before the first body comes, and then only the messages that occur in it.
//!
//! Not here: custom resources (Kubernetes refuses protobuf for them), alpha and beta versions (but
//! metrics.k8s.io/v1beta1).

mod encode;
mod object;
pub mod order;
mod special;
mod table;
mod wire;
pub mod write;

use serde_json::{Map, Value};

pub use self::encode::{EncodeError, encode, encode_as, encode_event, encode_list, encoded_length};
use self::object::Decoder;
pub use self::special::go_duration;
use self::wire::Reader;

/// The first four bytes of every body: `k8s` and a zero.
pub const PREFIX: &[u8; 4] = b"k8s\0";

/// How deep messages may be nested.
pub const MAX_DEPTH: usize = 100;

/// How many values (fields, list items, map entries) one body may hold. Empty items cost two bytes on the wire and far
/// more in memory.
pub const MAX_VALUES: usize = 500_000;

/// Why a body is not an object. The texts are those of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// There are no bytes at all.
    #[error("empty data")]
    EmptyData,
    /// The body does not begin with [`PREFIX`].
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// There is nothing behind the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    IntOverflow,
    /// A length has more than 63 bits.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// A group ends that has not begun.
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup {
        /// The message in which it stands.
        message: &'static str,
    },
    /// Tags begin with 1.
    #[error("proto: {message}: illegal tag {tag} (wire type {wire})")]
    IllegalTag {
        /// The message in which it stands.
        message: &'static str,
        /// The tag.
        tag: i32,
        /// The number that holds tag and wire type.
        wire: u64,
    },
    /// Wire types go up to 5.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    /// A field is not encoded as its type asks for.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType {
        /// The wire type that was found.
        wire_type: u8,
        /// The name of the field in Go: the JSON name with a capital, but `ObjectMeta` for the metadata.
        field: String,
    },
    /// Neither the envelope nor the caller names the kind of the object.
    #[error("Object 'Kind' is missing in 'runtime.TypeMeta{{APIVersion:{api_version:?}, Kind:\"\"}}'")]
    MissingKind {
        /// The `apiVersion` of the envelope.
        api_version: String,
    },
    /// There is no such built-in kind, or none that has a protobuf form.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
    /// A quantity is not one.
    #[error("{0}")]
    Quantity(#[from] crate::quantity::QuantityError),
    /// A field that holds JSON text (`RawExtension`, `FieldsV1`, the defaults in a CRD) holds something else.
    #[error("field {field} does not hold JSON: {why}")]
    Json {
        /// The JSON name of the field.
        field: String,
        /// The error of the JSON parser.
        why: String,
    },
    /// An `IntOrString` is neither.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// A time is before the year 0 or after 9999.
    #[error("Time.MarshalJSON: year outside of range [0,9999]")]
    Time,
    /// A number has no JSON form: it is infinite or none.
    #[error("json: unsupported value: {0}")]
    NotANumber(String),
    /// More than [`MAX_DEPTH`] messages in each other.
    #[error("exceeded max depth: messages may be nested {MAX_DEPTH} deep")]
    TooDeep,
    /// More than [`MAX_VALUES`] values.
    #[error("too many values: a body may hold {MAX_VALUES}")]
    TooManyValues,
}

/// An object that came as protobuf.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// `apps/v1`
    pub api_version: String,
    /// `Deployment`
    pub kind: String,
    /// The object as JSON, `apiVersion` and `kind` included.
    pub value: Value,
}

/// Turns a body into the object that it holds.
///
/// ```
/// use kubewright_schema::protobuf;
/// use serde_json::json;
///
/// let body = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x08\x22\x06Orphan";
/// let decoded = protobuf::decode(body)?;
/// assert_eq!(decoded.kind, "DeleteOptions");
/// assert_eq!(decoded.value, json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}));
/// # Ok::<(), protobuf::ProtobufError>(())
/// ```
///
/// # Errors
/// [`ProtobufError`], with the text of the API server.
pub fn decode(body: &[u8]) -> Result<Decoded, ProtobufError> {
    let envelope = Envelope::read(body)?;
    let value = envelope.decode()?;
    Ok(Decoded {
        api_version: envelope.api_version,
        kind: envelope.kind,
        value,
    })
}

/// The outside of a body (`runtime.Unknown`): the kind of the object, and the bytes of it, not yet looked at.
///
/// A server that knows the kind from the path fills in the missing `apiVersion` and `kind` before it decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`; may be empty.
    pub api_version: String,
    /// `Deployment`; may be empty.
    pub kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens a body.
    ///
    /// # Errors
    /// [`ProtobufError`] when the body is empty, has no [`PREFIX`] or is no envelope.
    pub fn read(body: &'a [u8]) -> Result<Self, ProtobufError> {
        if body.is_empty() {
            return Err(ProtobufError::EmptyData);
        }
        let data = body.strip_prefix(PREFIX).ok_or(ProtobufError::NoPrefix)?;
        if data.is_empty() {
            return Err(ProtobufError::EmptyBody);
        }
        let mut envelope = Self {
            api_version: String::new(),
            kind: String::new(),
            raw: &[],
        };
        let mut reader = Reader::new(data, "Unknown");
        while let Some((tag, wire)) = reader.field()? {
            match tag {
                1 => envelope.type_meta(wire.bytes("typeMeta")?)?,
                2 => envelope.raw = wire.bytes("raw")?,
                // The path and the headers of a request say how the bytes are encoded and of which kind they are.
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn type_meta(&mut self, data: &[u8]) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(data, "TypeMeta");
        while let Some((tag, wire)) = reader.field()? {
            match tag {
                1 => self.api_version = wire.text("apiVersion")?,
                2 => self.kind = wire.text("kind")?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Decodes the object inside; the result has the `apiVersion` and `kind` of this envelope.
    ///
    /// # Errors
    /// [`ProtobufError`] when the kind is unknown or the bytes are not a message of it.
    pub fn decode(&self) -> Result<Value, ProtobufError> {
        let (api_version, kind) = (self.api_version.clone(), self.kind.clone());
        if kind.is_empty() {
            return Err(ProtobufError::MissingKind { api_version });
        }
        let Some(message) = table::kind(&api_version, &kind) else {
            return Err(ProtobufError::UnknownKind { api_version, kind });
        };
        let mut object = Map::new();
        Decoder::default().message(message, self.raw, 0, &mut object)?;
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
