//! The old value that corresponds to a new one, for ratcheting: errors that a resource had already are no reason to
//! refuse a change elsewhere.
//!
//! A value has an old one when it is reached by the same names in both objects; items of a list only by the keys of a
//! list of type map. Only fields of the schema are followed, so an object with an unknown field is never unchanged.

use std::fmt::Write as _;

use serde_json::Value;

use crate::schema::{ListType, Schema};
use crate::sorted::sort_by_text;
use crate::{budget, measure};

/// A value with its old one.
#[derive(Clone, Copy)]
pub(crate) struct Correlation<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Schema,
}

impl<'a> Correlation<'a> {
    pub(crate) fn new(new: &'a Value, old: &'a Value, schema: &'a Schema) -> Self {
        Self { new, old, schema }
    }

    /// The value of a field or of an entry of a map.
    pub(crate) fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = self.schema.field(name)?;
        Some(Self { new, old, schema })
    }

    /// The items of a list, each with its old one.
    pub(crate) fn items(self) -> Items<'a> {
        let old = self.old.as_array().map_or(&[][..], Vec::as_slice);
        Items {
            of: self,
            old: OldItems::new(self.schema, old),
        }
    }

    /// Whether nothing changed.
    pub(crate) fn is_unchanged(self) -> bool {
        budget::spend(1);
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.schema.list_type != Some(ListType::Map) {
                    return measure::same(self.new, self.old);
                }
                let items = self.items();
                (0..new.len()).all(|index| items.index(index).is_some_and(Self::is_unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.key(name).is_some_and(Self::is_unchanged))
            }
            (new, old) => measure::same(new, old),
        }
    }
}

/// The items of a list of type map, with their old ones.
pub(crate) struct Items<'a> {
    of: Correlation<'a>,
    old: OldItems<'a>,
}

impl<'a> Items<'a> {
    pub(crate) fn index(&self, index: usize) -> Option<Correlation<'a>> {
        let new = self.of.new.as_array()?.get(index)?;
        let old = self.old.of(new)?;
        let schema = self.of.schema.items.as_ref()?;
        Some(Correlation { new, old, schema })
    }
}

/// The items of an old list by their keys; none of a list that is not of type map.
pub(crate) struct OldItems<'a> {
    names: &'a [String],
    /// In the order of their keys.
    items: Vec<(String, &'a Value)>,
}

impl<'a> OldItems<'a> {
    pub(crate) fn new(schema: &'a Schema, old: &'a [Value]) -> Self {
        let is_map = schema.list_type == Some(ListType::Map);
        let names: &[String] = if is_map { &schema.list_map_keys } else { &[] };
        let listed = old.iter().filter(|_| !names.is_empty());
        let mut items: Vec<(String, &Value)> = listed.filter_map(|item| Some((key_text(item, names)?, item))).collect();
        sort_by_text(&mut items);
        // Of several with the same keys the first counts.
        items.dedup_by(|(later, _), (first, _)| later == first);
        Self { names, items }
    }

    /// The old item with the keys of this one.
    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        let wanted = key_text(item, self.names)?;
        let at = self.items.binary_search_by(|(known, _)| known.cmp(&wanted)).ok()?;
        Some(self.items[at].1)
    }
}

/// The keys of an item as a text that only equal keys have; none when it is no object.
pub(crate) fn key_text(item: &Value, names: &[String]) -> Option<String> {
    let item = item.as_object()?;
    let mut text = String::new();
    for name in names {
        match item.get(name) {
            // Nearly all keys are texts: their length says where they end, and nothing in them is escaped.
            Some(Value::String(key)) => {
                budget::spend_on_text(key.len());
                budget::produce(measure::text_held(key.len()));
                // Writing into a text cannot fail.
                let _ = write!(text, "{}\"", key.len());
                text.push_str(key);
            }
            Some(value) => text.extend([" ", &measure::shown(value)]),
            // What is absent is not null.
            None => text.push('-'),
        }
        text.push(',');
    }
    Some(text)
}
