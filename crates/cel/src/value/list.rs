//! Lists at run time: items of an object, converted when they are asked for, or values that the evaluation made.
//!
//! A list of an object keeps its `x-kubernetes-list-type`: sets and maps are equal in any order, and `+` merges them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::Value as Json;

use kubewright_values::budget;

use super::{Key, Text, Value, nesting_of};
use crate::error::Error;
use crate::types::Decl;
use crate::value::equal;
use crate::work::{ITEM, made};
use kubewright_values::ListType;

/// How items of a list are told apart.
#[derive(Clone, Copy, Debug)]
pub enum ListKind<'a> {
    /// By their place.
    Atomic,
    /// By themselves.
    Set,
    /// By the values of these fields, named as in JSON.
    Map(&'a [String]),
}

/// A list.
#[derive(Clone, Debug)]
pub struct List<'a> {
    elements: Elements<'a>,
    kind: ListKind<'a>,
    nesting: u32,
}

#[derive(Clone, Debug)]
enum Elements<'a> {
    Json(&'a [Json], Option<&'a Decl>),
    Owned(Rc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    /// A list of values.
    pub fn new(elements: Vec<Value<'a>>) -> Self {
        Self {
            nesting: nesting_of(&elements),
            elements: Elements::Owned(Rc::new(elements)),
            kind: ListKind::Atomic,
        }
    }

    /// See [`Value::nesting`].
    pub(super) fn nesting(&self) -> u32 {
        self.nesting
    }

    /// The items of a JSON array; `decl` is the declaration of the list.
    pub fn json(items: &'a [Json], decl: Option<&'a Decl>) -> Self {
        let kind = match decl.and_then(|decl| decl.list.as_ref()) {
            Some((ListType::Set, _)) => ListKind::Set,
            Some((ListType::Map, keys)) => ListKind::Map(keys),
            _ => ListKind::Atomic,
        };
        Self {
            elements: Elements::Json(items, decl.and_then(|decl| decl.items.as_deref())),
            kind,
            nesting: 1,
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Json(items, _) => items.len(),
            Elements::Owned(items) => items.len(),
        }
    }

    /// The size of the list itself: nothing for a list of an object, whose items are where they were.
    pub(crate) fn made(&self) -> usize {
        match &self.elements {
            Elements::Json(..) => 0,
            Elements::Owned(items) => {
                let texts = items.iter().map(|item| match item {
                    Value::String(Text::Shared(text)) => text.len(),
                    _ => 0,
                });
                ITEM * items.len() + texts.sum::<usize>()
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a schema declares its items.
    pub(crate) fn is_declared(&self) -> bool {
        matches!(self.elements, Elements::Json(_, Some(_)))
    }

    /// The item at an index from 0; none past the end.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, Error>> {
        match &self.elements {
            Elements::Json(items, decl) => items.get(index).map(|item| match decl {
                Some(decl) => Value::from_declared(item, decl),
                None => Ok(Value::from_json(item)),
            }),
            Elements::Owned(items) => items.get(index).cloned().map(Ok),
        }
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, Error>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All items.
    ///
    /// # Errors
    /// Items that their schema does not allow.
    pub fn to_vec(&self) -> Result<Vec<Value<'a>>, Error> {
        match &self.elements {
            Elements::Owned(items) => {
                budget::spend(items.len());
                Ok(items.to_vec())
            }
            Elements::Json(..) => {
                made(ITEM * self.len());
                self.iter().collect()
            }
        }
    }

    /// Whether an item equals `value`.
    ///
    /// # Errors
    /// Items that their schema does not allow.
    pub fn contains(&self, value: &Value<'a>) -> Result<bool, Error> {
        let mut failed = None;
        for item in self.iter() {
            match equal(&item?, value) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// `self + other`: one after the other, or merged when this is a set or a map.
    ///
    /// # Errors
    /// Items that their schema does not allow.
    pub fn concat(self, other: &List<'a>) -> Result<Self, Error> {
        if other.is_empty() {
            return Ok(self);
        }
        let kind = self.kind;
        match kind {
            ListKind::Atomic if self.is_empty() => Ok(Self {
                elements: other.elements.clone(),
                kind,
                nesting: other.nesting,
            }),
            ListKind::Atomic => {
                // A list without another holder, such as the accumulator of a loop, grows in place.
                let mut items = match self.elements {
                    Elements::Owned(items) => items,
                    Elements::Json(..) => Rc::new(self.to_vec()?),
                };
                let copied = if Rc::strong_count(&items) > 1 { items.len() } else { 0 };
                made(ITEM * (copied + other.len()));
                Rc::make_mut(&mut items).extend(other.to_vec()?);
                Ok(Self {
                    elements: Elements::Owned(items),
                    kind,
                    nesting: self.nesting.max(other.nesting),
                })
            }
            ListKind::Set | ListKind::Map(_) => {
                made(4 * ITEM * (self.len() + other.len()));
                let mut items = self.to_vec()?;
                let mut places = BTreeMap::new();
                for (place, item) in items.iter().enumerate() {
                    places.insert(self.identity(item)?, place);
                }
                for item in other.iter() {
                    let item = item?;
                    let identity = self.identity(&item)?;
                    if let Some(&place) = places.get(&identity) {
                        items[place] = item;
                    } else {
                        places.insert(identity, items.len());
                        items.push(item);
                    }
                }
                Ok(Self {
                    kind,
                    ..Self::new(items)
                })
            }
        }
    }

    /// The key of an item in a set or a map.
    fn identity(&self, item: &Value<'a>) -> Result<Vec<Option<Key<'a>>>, Error> {
        let ListKind::Map(keys) = self.kind else {
            return Ok(vec![Key::from_value(item)]);
        };
        let Value::Map(map) = item else {
            return Err(Error::new(
                "unexpected data format for element of array with x-kubernetes-list-type=map",
            ));
        };
        let part = |key: &String| Ok(map.get_json_name(key)?.as_ref().and_then(Key::from_value));
        keys.iter().map(part).collect()
    }

    /// `self == other`.
    ///
    /// # Errors
    /// Items that their schema does not allow, or that cannot be compared.
    pub fn equals(&self, other: &List<'a>) -> Result<bool, Error> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.kind {
            ListKind::Atomic => {
                for (mine, theirs) in self.iter().zip(other.iter()) {
                    if !equal(&mine?, &theirs?)? {
                        return Ok(false);
                    }
                }
            }
            ListKind::Set => {
                let mut set = BTreeSet::new();
                for item in self.iter() {
                    set.insert(self.identity(&item?)?);
                }
                for item in other.iter() {
                    if !set.contains(&self.identity(&item?)?) {
                        return Ok(false);
                    }
                }
            }
            ListKind::Map(_) => {
                let mut map = BTreeMap::new();
                for item in self.iter() {
                    let item = item?;
                    map.insert(self.identity(&item)?, item);
                }
                for item in other.iter() {
                    let item = item?;
                    match map.get(&self.identity(&item)?) {
                        Some(mine) if equal(mine, &item)? => {}
                        _ => return Ok(false),
                    }
                }
            }
        }
        Ok(true)
    }
}
