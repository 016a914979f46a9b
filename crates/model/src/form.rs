//! The form of an object for a client of its version, and the key under which it is stored.

use kubewright_schema::apply::ObjectType;
use serde_json::Value;

use super::Resource;

/// The object as its kind's version shows it: with `apiVersion` and `kind`, and converted from the stored form.
pub fn full(resource: &Resource, stored: &Value) -> Value {
    with_kind(resource, bare(resource, stored))
}

/// Adds `apiVersion` and `kind`.
pub fn with_kind(resource: &Resource, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), resource.api_version().into());
        map.insert("kind".to_owned(), (&*resource.kind).into());
    }
    object
}

/// The same of a stored form that nobody else needs: it is not copied.
pub fn full_of(resource: &Resource, stored: Value) -> Value {
    with_kind(resource, bare_of(resource, stored))
}

/// A stored object in the served version, without `apiVersion` and `kind`.
pub fn bare(resource: &Resource, stored: &Value) -> Value {
    bare_of(resource, stored.clone())
}

fn bare_of(resource: &Resource, stored: Value) -> Value {
    let mut object = match resource.conversion {
        Some(conversion) => (conversion.from_stored)(stored),
        None => stored,
    };
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    object
}

/// How the fields of a kind are looked at.
pub fn object_type(resource: &Resource) -> ObjectType {
    let schema = resource.schema.clone();
    if resource.custom.is_some() {
        ObjectType::custom(schema)
    } else if resource.strategy.differs_by_group {
        ObjectType::built_in(schema).with_fields_of_its_version()
    } else {
        ObjectType::built_in(schema)
    }
}

/// The storage key: `namespace/name`, or `name`. Without a name it is what the keys of the namespace begin with, or all.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        [namespace, "/", name].concat()
    }
}
