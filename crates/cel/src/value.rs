//! Values of the Common Expression Language at run time.
//!
//! A [`Value`] mostly points into the JSON of an object: a list or a map of the object is converted element by element,
//! when an expression asks for it, with the [`Decl`] of its schema if there is one. Without a declaration a value has
//! the type of its JSON: numbers without a fraction are `int`, the others `double`.
//!
//! Invariants: a value of `'a` borrows only from data that lives for the whole evaluation (the program, the object, the
//! declarations); clones are cheap, since everything that grows is behind an `Rc`; keys of maps are ordered, so that
//! loops over a map go through it in the order of its keys (Go's order is random).
//!
//! Not here: functions ([`library`](super::library)), but for those of values that only functions know ([`opaque`]).

pub(crate) mod convert;
mod declared;
mod list;
mod map;
pub(super) mod number;
pub mod opaque;
pub(crate) mod operators;
pub(super) mod time;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use serde_json::Value as Json;

use crate::error::Error;
use crate::types::Decl;
use crate::work::{ITEM, made};
use kubewright_values::budget;
use opaque::Opaque;

pub(crate) use convert::to_string;
pub use list::{List, ListKind};
pub use map::{Fields, Key, Map};
pub(crate) use operators::{add, is_ordered};
pub use operators::{compare, equal};
pub use time::{Duration, Timestamp};

/// A string: part of the evaluated object, or made by the evaluation.
#[derive(Clone)]
pub enum Text<'a> {
    /// Part of the object or of the program.
    Borrowed(&'a str),
    /// Made by a function.
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value that an expression can compute with.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    String(Text<'a>),
    /// `bytes`
    Bytes(Rc<[u8]>),
    /// `google.protobuf.Duration`
    Duration(Duration),
    /// `google.protobuf.Timestamp`
    Timestamp(Timestamp),
    /// `list(T)`
    List(List<'a>),
    /// `map(K, V)`, and objects with declared fields.
    Map(Map<'a>),
    /// `optional_type(T)`
    Optional(Option<Rc<Value<'a>>>),
    /// The name of a type.
    Type(Text<'a>),
    /// An object that the expression constructed, such as `Object.spec{replicas: 1}` or `JSONPatch{…}`.
    Object(Rc<Object<'a>>),
    /// A value that only functions of Kubernetes' libraries know.
    Opaque(Opaque<'a>),
}

/// An object that the expression constructed.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    /// The type's qualified name: `Object`, `Object.spec`, `JSONPatch`.
    pub type_name: Text<'a>,
    /// The fields that were given, by the name as it was written.
    pub fields: BTreeMap<Text<'a>, Value<'a>>,
    nesting: u32,
}

impl<'a> Object<'a> {
    /// An object of a type with these fields.
    pub(crate) fn new(type_name: Text<'a>, fields: BTreeMap<Text<'a>, Value<'a>>) -> Self {
        Self {
            type_name,
            nesting: nesting_of(fields.values()),
            fields,
        }
    }

    /// The value of a field that was given.
    pub fn field(&self, name: &str) -> Option<&Value<'a>> {
        self.fields
            .iter()
            .find_map(|(known, value)| (&**known == name).then_some(value))
    }
}

/// Values that the evaluation made may lie in each other so deep. Every walk through them recurses, and variables of a
/// policy may make them hold each other without end.
const MAX_NESTING: u32 = 500;

/// How many values lie in each other where these lie in one: beyond [`MAX_NESTING`] the request is more than one may
/// cost.
pub(crate) fn nesting_of<'v, 'a: 'v>(values: impl IntoIterator<Item = &'v Value<'a>>) -> u32 {
    let below = values.into_iter().map(Value::nesting).max().unwrap_or(0);
    if below >= MAX_NESTING {
        budget::spend(usize::MAX);
    }
    below.saturating_add(1)
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<'a> Value<'a> {
    /// A string that was made by a function.
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(Text::from(text.into()))
    }

    /// A list of these elements.
    pub fn list(elements: Vec<Value<'a>>) -> Self {
        Self::List(List::new(elements))
    }

    /// A list of strings.
    pub fn strings(texts: impl IntoIterator<Item = String>) -> Self {
        Self::list(texts.into_iter().map(Self::string).collect())
    }

    /// `optional.of(value)`.
    pub fn some(value: Value<'a>) -> Self {
        nesting_of([&value]);
        Self::Optional(Some(Rc::new(value)))
    }

    /// How many values that the evaluation made lie in each other here. Parts of the object count as one.
    pub(crate) fn nesting(&self) -> u32 {
        match self {
            Self::List(list) => list.nesting(),
            Self::Map(map) => map.nesting(),
            Self::Object(object) => object.nesting,
            Self::Optional(Some(value)) => value.nesting().saturating_add(1),
            _ => 0,
        }
    }

    /// The value of JSON without a schema, such as `object` of an admission policy.
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::json(items, None)),
            Json::Object(object) => Self::Map(Map::json(object, None)),
        }
    }

    /// JSON as its schema declares it.
    ///
    /// # Errors
    /// Values that the schema does not allow, such as `invalid data, expected string, got int64`.
    pub fn from_declared(json: &'a Json, decl: &'a Decl) -> Result<Self, Error> {
        declared::convert(json, decl)
    }

    /// Checks that the types of constructed objects are those of the places where they stand: `Object.spec` in the
    /// field `spec` of the root.
    ///
    /// # Errors
    /// One line for each object whose type does not fit.
    pub fn check_type_names(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        self.type_names("Object", &mut wrong);
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }

    fn type_names(&self, path: &str, wrong: &mut Vec<String>) {
        budget::spend(1);
        match self {
            Self::Object(object) => {
                if *object.type_name != *path {
                    wrong.push(format!(
                        "unexpected type name {}, expected {}, which matches field name path from root Object type",
                        kubewright_values::error::quote(&object.type_name),
                        kubewright_values::error::quote(path)
                    ));
                }
                for (name, field) in &object.fields {
                    field.type_names(&format!("{path}.{}", &**name), wrong);
                }
            }
            Self::List(list) => list.iter().flatten().for_each(|item| item.type_names(path, wrong)),
            Self::Map(map) => map
                .entries()
                .flatten()
                .for_each(|(_, item)| item.type_names(path, wrong)),
            _ => {}
        }
    }

    /// The name of the value's type, as `type(x)` prints: `int`, `list`, `net.IP`.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(map) => map.type_name(),
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Object(object) => &object.type_name,
            Self::Opaque(opaque) => opaque.type_name(),
        }
    }

    /// Characters of a string, bytes, elements of a list, entries of a map; none for a value without a size.
    pub fn size(&self) -> Option<u64> {
        let size = match self {
            Self::String(text) => {
                budget::spend_on_text(text.len());
                text.chars().count()
            }
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Opaque(opaque) => return opaque.size(),
            _ => return None,
        };
        Some(size as u64)
    }

    /// True for the values that `optional.ofNonZeroValue` takes as nothing.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::Duration(duration) => duration.0 == 0,
            Self::Timestamp(time) => time.is_zero(),
            Self::String(_) | Self::Bytes(_) => self.size() == Some(0),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Object(object) => object.fields.is_empty(),
            Self::Optional(_) | Self::Type(_) | Self::Opaque(_) => false,
        }
    }

    /// The value as JSON: the form in which a constructed object or a patch enters an object.
    ///
    /// # Errors
    /// Values that JSON does not know, such as types and quantities.
    pub fn to_json(&self) -> Result<Json, Error> {
        // Parts that stand for the same value are values of their own from now on.
        made(match self {
            Self::String(text) => ITEM + text.len(),
            Self::Bytes(bytes) => ITEM + 2 * bytes.len(),
            Self::Map(map) => ITEM + kubewright_values::measure::map_held(map.len()),
            Self::Object(object) => ITEM + kubewright_values::measure::map_held(object.fields.len()),
            _ => ITEM,
        });
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::Double(value) => serde_json::Number::from_f64(*value)
                .map(Json::Number)
                .ok_or_else(|| Error::new("json: unsupported value: a double that is not finite"))?,
            Self::String(text) => Json::String(text.to_string()),
            Self::Bytes(bytes) => {
                use base64::Engine;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Self::Duration(duration) => Json::String(duration.to_string()),
            Self::Timestamp(time) => Json::String(time.to_string()),
            Self::List(list) => Json::Array(list.iter().map(|item| item?.to_json()).collect::<Result<_, _>>()?),
            Self::Map(map) => {
                let mut object = serde_json::Map::new();
                for entry in map.entries() {
                    let (key, value) = entry?;
                    let Key::String(name) = &key else {
                        return Err(Error::new(format!(
                            "map key {:?} is of type {}, not string",
                            key.to_string(),
                            key.to_value().type_name()
                        )));
                    };
                    object.insert(map.json_name(name), value.to_json()?);
                }
                Json::Object(object)
            }
            Self::Object(object) => {
                let fields = object.fields.iter();
                let fields = fields.map(|(name, value)| Ok((name.to_string(), value.to_json()?)));
                Json::Object(fields.collect::<Result<_, Error>>()?)
            }
            Self::Optional(Some(value)) => value.to_json()?,
            Self::Optional(None) => return Err(Error::new("optional.none() dereference")),
            Self::Type(_) => return Err(Error::new("type conversion not supported for 'type'")),
            Self::Opaque(opaque) => {
                let name = opaque.type_name();
                let short = name.rsplit('.').next().unwrap_or(name);
                return Err(Error::new(format!(
                    "type conversion error from '{short}' to '*structpb.Value'"
                )));
            }
        })
    }
}

impl fmt::Display for Value<'_> {
    /// As cel-go prints values in its messages (`%v`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A list may hold the same value a thousand times, in lists that hold each other.
        budget::spend(1);
        if let Self::String(text) = self {
            budget::produce(text.len());
        }
        match self {
            Self::Null => f.write_str("0"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Uint(value) => value.fmt(f),
            Self::Double(value) => f.write_str(&number::print(*value)),
            Self::String(text) => f.write_str(text),
            Self::Bytes(bytes) => f.debug_list().entries(bytes.iter()).finish(),
            Self::Duration(duration) => f.write_str(&duration.go()),
            Self::Timestamp(time) => time.fmt(f),
            Self::List(list) => {
                f.write_str("[")?;
                for (i, item) in list.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    match item {
                        Ok(item) => item.fmt(f)?,
                        Err(error) => error.fmt(f)?,
                    }
                }
                f.write_str("]")
            }
            Self::Map(map) => {
                f.write_str("{")?;
                for (i, entry) in map.entries().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    match entry {
                        Ok((key, value)) => write!(f, "{key}: {value}")?,
                        Err(error) => error.fmt(f)?,
                    }
                }
                f.write_str("}")
            }
            Self::Optional(Some(value)) => write!(f, "optional({value})"),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Type(name) => f.write_str(name),
            Self::Object(object) => write!(f, "{}{{…}}", &*object.type_name),
            Self::Opaque(opaque) => opaque.fmt(f),
        }
    }
}
