//! Maps and objects at run time: fields of an object, converted when they are asked for, or entries that the evaluation
//! made.
//!
//! An object with declared fields shows those only, by their escaped names; a field that is `null` there is an absent
//! one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde_json::Value as Json;

use super::number::Number;
use super::{Text, Value, nesting_of};
use crate::error::Error;
use crate::names;
use crate::types::{Decl, Type};
use crate::value::equal;
use crate::work::{ITEM, made};
use kubewright_values::budget;

/// A key of a map. Numbers of different types are the same key when they are the same number.
#[derive(Clone, Debug)]
pub enum Key<'a> {
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
}

impl<'a> Key<'a> {
    /// The key that a value is, if it is of a type that keys may have.
    pub fn from_value(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) if !value.is_nan() => Self::Double(*value),
            Value::String(text) => Self::String(text.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(value) => Value::Double(*value),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Int(value) => Some(Number::Whole(i128::from(*value))),
            Self::Uint(value) => Some(Number::Whole(i128::from(*value))),
            Self::Double(value) => Some(Number::Double(*value)),
            Self::Bool(_) | Self::String(_) => None,
        }
    }
}

impl Ord for Key<'_> {
    /// Booleans, then numbers, then strings.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Bool(_), _) | (_, Self::String(_)) => Ordering::Less,
            (_, Self::Bool(_)) | (Self::String(_), _) => Ordering::Greater,
            (a, b) => match (a.number(), b.number()) {
                (Some(a), Some(b)) => a.compare(b).unwrap_or(Ordering::Equal),
                _ => Ordering::Equal,
            },
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_value().fmt(f)
    }
}

/// An object whose fields are computed when they are asked for, such as the `variables` of a policy.
pub trait Fields<'a> {
    /// The name of the object's type.
    fn type_name(&self) -> &str;

    /// The names of all fields.
    fn names(&self) -> Vec<String>;

    /// The value of a field; none when there is no such field.
    fn get(&self, name: &str) -> Option<Result<Value<'a>, Error>>;
}

/// Looking up an entry by its key, and taking its value out.
const LOOKED_UP: usize = 8;

/// Whether there is a pair everywhere, and both of each are equal.
fn all_equal<'a>(pairs: impl Iterator<Item = Result<Option<(Value<'a>, Value<'a>)>, Error>>) -> Result<bool, Error> {
    for pair in pairs {
        match pair? {
            Some((mine, theirs)) if equal(&mine, &theirs)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// A map or an object, and how many values lie in each other in it (`Value::nesting`).
#[derive(Clone)]
pub struct Map<'a>(Entries<'a>, u32);

#[derive(Clone)]
enum Entries<'a> {
    Json(&'a serde_json::Map<String, Json>, Option<&'a Decl>),
    Owned(Rc<BTreeMap<Key<'a>, Value<'a>>>),
    Computed(Rc<dyn Fields<'a> + 'a>),
}

impl fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Entries::Json(object, _) => object.fmt(f),
            Entries::Owned(entries) => entries.fmt(f),
            Entries::Computed(fields) => f.write_str(fields.type_name()),
        }
    }
}

impl<'a> Map<'a> {
    /// A map of values.
    pub fn new(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        let nesting = nesting_of(entries.values());
        Self(Entries::Owned(Rc::new(entries)), nesting)
    }

    /// A JSON object; `decl` is the declaration of the map or object.
    pub fn json(object: &'a serde_json::Map<String, Json>, decl: Option<&'a Decl>) -> Self {
        Self(Entries::Json(object, decl), 1)
    }

    /// An object whose fields are computed. It may not lie in another value: a field of it could hold the object
    /// itself.
    pub fn computed(fields: Rc<dyn Fields<'a> + 'a>) -> Self {
        Self(Entries::Computed(fields), u32::MAX)
    }

    /// Whether it is one whose fields are computed.
    pub fn is_computed(&self) -> bool {
        matches!(self.0, Entries::Computed(_))
    }

    /// See [`Value::nesting`].
    pub(super) fn nesting(&self) -> u32 {
        self.1
    }

    pub(super) fn type_name(&self) -> &str {
        match &self.0 {
            Entries::Json(..) | Entries::Owned(_) => "map",
            Entries::Computed(fields) => fields.type_name(),
        }
    }

    /// Whether an expression made the map, instead of finding it in an object.
    pub fn is_made(&self) -> bool {
        matches!(self.0, Entries::Owned(_))
    }

    /// How many entries there are; for an object of JSON the unknown fields count.
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Json(object, _) => object.len(),
            Entries::Owned(entries) => entries.len(),
            Entries::Computed(fields) => fields.names().len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a schema declares its fields or values.
    pub(crate) fn is_declared(&self) -> bool {
        matches!(self.0, Entries::Json(_, Some(_)))
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// Values that their schema does not allow; a key that is no string where all keys are.
    pub fn get(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
        match (&self.0, key) {
            (Entries::Owned(entries), key) => Ok(Key::from_value(key).and_then(|key| entries.get(&key).cloned())),
            (Entries::Json(..), Value::String(name)) => self.field(name),
            (Entries::Json(_, None), _) => Ok(None),
            (Entries::Computed(fields), Value::String(name)) => match names::unescape(name) {
                Some(name) => fields.get(&name).transpose(),
                None => Ok(None),
            },
            _ => Err(Error::no_overload()),
        }
    }

    /// The value of a field or a string key, if there is one.
    ///
    /// # Errors
    /// Values that their schema does not allow.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        match &self.0 {
            Entries::Owned(entries) => Ok(entries.get(&Key::String(Text::Shared(name.into()))).cloned()),
            Entries::Computed(fields) => match names::unescape(name) {
                Some(name) => fields.get(&name).transpose(),
                None => Ok(None),
            },
            Entries::Json(object, None) => Ok(object.get(name).map(Value::from_json)),
            Entries::Json(object, Some(decl)) => match &decl.ty {
                Type::Object(known) => {
                    let Some(field) = known.field(name) else {
                        return Ok(None);
                    };
                    match object.get(&*field.json_name) {
                        None | Some(Json::Null) => Ok(None),
                        Some(value) => Value::from_declared(value, &field.decl).map(Some),
                    }
                }
                _ => match (object.get(name), &decl.items) {
                    (Some(value), Some(values)) => Value::from_declared(value, values).map(Some),
                    (Some(value), None) => Ok(Some(Value::from_json(value))),
                    (None, _) => Ok(None),
                },
            },
        }
    }

    /// The value of a field by its name in JSON.
    pub(super) fn get_json_name(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        match &self.0 {
            Entries::Json(_, Some(decl)) if decl.as_object().is_some() => match names::escape(name) {
                Some(name) => self.field(&name),
                None => Ok(None),
            },
            _ => self.field(name),
        }
    }

    /// The name in JSON of a key.
    pub(super) fn json_name(&self, key: &str) -> String {
        match &self.0 {
            Entries::Json(_, Some(decl)) if decl.as_object().is_some() => {
                names::unescape(key).unwrap_or_else(|| key.to_owned())
            }
            _ => key.to_owned(),
        }
    }

    /// The keys in order.
    pub fn keys(&self) -> Vec<Key<'a>> {
        budget::spend(self.len());
        self.iter_keys().collect()
    }

    /// The keys in order, each made when it is asked for: who goes over them says what that costs.
    pub(crate) fn iter_keys(&self) -> Box<dyn Iterator<Item = Key<'a>> + '_> {
        match &self.0 {
            Entries::Owned(entries) => Box::new(entries.keys().cloned()),
            Entries::Computed(fields) => Box::new(fields.names().into_iter().map(|name| Key::String(name.into()))),
            Entries::Json(object, decl) => {
                let known = decl.and_then(Decl::as_object);
                let key = move |name: &'a String| match known {
                    None => Some(Key::String(Text::Borrowed(name))),
                    Some(known) => {
                        let escaped = names::escape(name)?;
                        known
                            .fields
                            .contains_key(&*escaped)
                            .then(|| Key::String(escaped.into()))
                    }
                };
                Box::new(object.keys().filter_map(key))
            }
        }
    }

    /// The entries in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Key<'a>, Value<'a>), Error>> + '_ {
        self.keys()
            .into_iter()
            .filter_map(|key| match self.get(&key.to_value()) {
                Ok(Some(value)) => Some(Ok((key, value))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            })
    }

    /// Adds an entry to a map that must not have it yet.
    ///
    /// # Errors
    /// `insert failed: key … already exists`
    pub fn insert(self, key: &Value<'a>, value: Value<'a>) -> Result<Self, Error> {
        let mut entries = match self.0 {
            Entries::Owned(entries) => entries,
            _ => Rc::new(self.entries().collect::<Result<_, _>>()?),
        };
        let copied = if Rc::strong_count(&entries) > 1 {
            entries.len()
        } else {
            0
        };
        // An entry, and its share of a node.
        made(4 * ITEM * (copied + 1));
        let nesting = self.1.max(nesting_of([&value]));
        let known = Key::from_value(key).ok_or_else(Error::no_overload)?;
        if entries.contains_key(&known) {
            return Err(Error::new(format!("insert failed: key {key} already exists")));
        }
        Rc::make_mut(&mut entries).insert(known, value);
        Ok(Self(Entries::Owned(entries), nesting))
    }

    /// `self == other`.
    ///
    /// # Errors
    /// Values that their schema does not allow, or that cannot be compared.
    pub fn equals(&self, other: &Map<'a>) -> Result<bool, Error> {
        if let (Entries::Computed(a), Entries::Computed(b)) = (&self.0, &other.0) {
            return Ok(Rc::ptr_eq(a, b));
        }
        if self.len() != other.len() {
            return Ok(false);
        }
        if let Some(same) = self.equals_in_order(other) {
            return same;
        }
        budget::spend(LOOKED_UP * self.len());
        for entry in self.entries() {
            let (key, value) = entry?;
            match other.get(&key.to_value())? {
                Some(theirs) if equal(&value, &theirs)? => {}
                _ => return Ok(false),
            }
        }
        Ok(self.unknown_fields().all(|(name, value)| match other.0 {
            // Fields without a declaration are only compared where both have them.
            Entries::Json(object, _) => object.get(name).is_none_or(|theirs| theirs == value),
            _ => false,
        }))
    }

    /// The same for maps that have their entries in one order, none of which is hidden: they are compared in pairs.
    fn equals_in_order(&self, other: &Map<'a>) -> Option<Result<bool, Error>> {
        let plain = |decl: &Option<&'a Decl>| decl.and_then(Decl::as_object).is_none();
        match (&self.0, &other.0) {
            (Entries::Owned(a), Entries::Owned(b)) => {
                let pairs = a.iter().zip(b.iter());
                Some(all_equal(pairs.map(|((key, mine), (other, theirs))| {
                    Ok((key == other).then(|| (mine.clone(), theirs.clone())))
                })))
            }
            (Entries::Json(a, mine), Entries::Json(b, theirs)) if plain(mine) && plain(theirs) => {
                let of = |json: &'a Json, decl: &Option<&'a Decl>| match decl.and_then(|decl| decl.items.as_deref()) {
                    Some(values) => Value::from_declared(json, values),
                    None => Ok(Value::from_json(json)),
                };
                let pairs = a.iter().zip(b.iter());
                Some(all_equal(pairs.map(|((key, a), (other, b))| {
                    let a = of(a, mine)?;
                    if key != other {
                        return Ok(None);
                    }
                    Ok(Some((a, of(b, theirs)?)))
                })))
            }
            _ => None,
        }
    }

    /// The fields of an object that its type does not declare.
    fn unknown_fields(&self) -> impl Iterator<Item = (&'a String, &'a Json)> + '_ {
        let unknown = match self.0 {
            Entries::Json(object, Some(decl)) => decl.as_object().map(|known| (object, known)),
            _ => None,
        };
        unknown.into_iter().flat_map(|(object, known)| {
            object
                .iter()
                .filter(|(name, _)| !names::escape(name).is_some_and(|name| known.fields.contains_key(&*name)))
        })
    }
}
