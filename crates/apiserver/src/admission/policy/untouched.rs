//! What a mutating policy leaves alone. A configuration mostly names a field or two of an object that may be large: the
//! others are put aside while it is merged, so that fifty policies do not copy and check all of it fifty times.
//!
//! Invariant: what is put aside fits its kind already, and no merge would have changed it.

use serde_json::Value;

use crate::model::object;
use crate::values::get;

/// The parts of an object that a configuration does not name, put aside while it is merged.
pub(super) struct Untouched {
    fields: Vec<(String, Value)>,
    /// `metadata.managedFields`, unless they are named.
    pub(super) owners: Option<Value>,
}

impl Untouched {
    pub(super) fn take(object: &mut Value, configuration: &Value) -> Untouched {
        let named = |field: &str| ["apiVersion", "kind"].contains(&field) || configuration.get(field).is_some();
        let mut untouched = Untouched {
            fields: Vec::new(),
            owners: None,
        };
        let Some(map) = object.as_object_mut() else {
            return untouched;
        };
        let others: Vec<String> = map.keys().filter(|field| !named(field)).cloned().collect();
        untouched.fields = others.iter().filter_map(|field| map.remove_entry(field)).collect();
        if get(configuration, &["metadata", "managedFields"]).is_null() {
            let metadata = map.get_mut("metadata").and_then(Value::as_object_mut);
            untouched.owners = metadata.and_then(|metadata| metadata.remove("managedFields"));
        }
        untouched
    }

    pub(super) fn put_back(self, object: &mut Value) {
        if let Some(owners) = self.owners {
            object::metadata_mut(object).insert("managedFields".to_owned(), owners);
        }
        if let Some(map) = object.as_object_mut() {
            map.extend(self.fields);
        }
    }
}
