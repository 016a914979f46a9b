//! What a value was before, for ratcheting: errors that a resource had already are no reason to refuse a change elsewhere.
//!
//! A value has an old one when it is reached by the same names in both objects; items of a list only by the keys of a
//! list of type map. Only what the schema knows is followed, so an object with a field that the schema does not know is
//! never unchanged.

use serde_json::Value;

use crate::schema::{ListType, Schema};

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

    /// An item of a list of type map.
    pub(crate) fn index(self, index: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(index)?;
        let old = old_item(self.schema, new, self.old.as_array()?)?;
        let schema = self.schema.items.as_ref()?;
        Some(Self { new, old, schema })
    }

    /// Whether nothing changed.
    pub(crate) fn is_unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.schema.list_type != Some(ListType::Map) {
                    return new == old;
                }
                (0..new.len()).all(|index| self.index(index).is_some_and(Self::is_unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.key(name).is_some_and(Self::is_unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The item of the old list with the same keys, for lists of type map.
pub(crate) fn old_item<'a>(schema: &Schema, item: &Value, old: &'a [Value]) -> Option<&'a Value> {
    if schema.list_type != Some(ListType::Map) || schema.list_map_keys.is_empty() {
        return None;
    }
    let item = item.as_object()?;
    old.iter().find(|old| {
        schema
            .list_map_keys
            .iter()
            .all(|key| old.as_object().is_some_and(|old| old.get(key) == item.get(key)))
    })
}
