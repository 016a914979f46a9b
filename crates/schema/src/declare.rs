//! Declarations out of schemas.
//!
//! Values without a schema are not visible to expressions: properties below `x-kubernetes-preserve-unknown-fields`
//! alone, names that cannot be escaped, values without a type. Sizes that no keyword bounds are bounded by the size of
//! one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::{ListType, Schema, SchemaRef, Type as SchemaType};
use crate::{Minor, budget};
use kubewright_cel::names::escape;
use kubewright_cel::types::{Decl, Field, ObjectType, Type};

/// The largest request that the API server takes, in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The longest string: a request that is nothing else, without the quotes.
const MAX_STRING: u64 = MAX_REQUEST - 2;
/// The longest text of a duration or of a timestamp.
const MAX_TIME: u64 = 32;
/// The longest name; a generated one has at least one letter more than what it is generated from.
const MAX_NAME: i64 = 253;
const DATE_SIZE: u64 = 12;
const MIN_DATE_TIME: u64 = 21;
const MIN_DURATION: u64 = 3;

/// The declaration of the values of a schema; none when they are not visible to expressions.
///
/// `root` says that the value is a resource: then apiVersion, kind, and name and generateName of the metadata are
/// visible, whether or not the schema has them. `name` begins the names of the object types.
///
/// ```
/// use kubewright_schema::{SchemaRef, declare::declare};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {
///     "my-list": {"type": "array", "items": {"type": "integer"}, "maxItems": 5},
///     "free": {"x-kubernetes-preserve-unknown-fields": true},
/// }})).unwrap();
/// let decl = declare(&schema, false, "self").unwrap();
/// let fields = &decl.as_object().unwrap().fields;
/// assert_eq!(fields.keys().map(|name| &**name).collect::<Vec<_>>(), ["my__dash__list"]);
/// assert_eq!(fields["my__dash__list"].decl.ty.to_string(), "list(int)");
/// assert_eq!(fields["my__dash__list"].decl.max_elements, Some(5));
/// ```
pub fn declare(schema: &Schema, root: bool, name: &str) -> Option<Decl> {
    declare_in(Minor::OLDEST, schema, root, name)
}

/// The same in a version of Kubernetes: from 1.37 on the names of a resource are not longer than a name may be.
pub fn declare_in(minor: Minor, schema: &Schema, root: bool, name: &str) -> Option<Decl> {
    let mut around = Around {
        types: Vec::new(),
        minor,
    };
    declare_within(schema, root, name, &mut around)
}

/// Where a schema is declared.
struct Around {
    /// The types of built-in kinds around it.
    types: Vec<&'static str>,
    minor: Minor,
}

/// A type of a built-in kind that holds itself is not visible a second time.
fn declare_within(schema: &Schema, root: bool, name: &str, within: &mut Around) -> Option<Decl> {
    budget::spend(16);
    let known = schema.name.is_some_and(|name| within.types.contains(&name));
    if known {
        return None;
    }
    let around = within.types.len();
    within.types.extend(schema.name);
    let decl = declare_new(schema, root, name, within);
    within.types.truncate(around);
    decl
}

fn declare_new(schema: &Schema, root: bool, name: &str, within: &mut Around) -> Option<Decl> {
    let decl = if schema.int_or_string {
        Decl {
            max_elements: Some(schema.max_length.map_or(MAX_STRING, bytes)),
            int_or_string: true,
            ..Decl::new(Type::Dyn)
        }
    } else if root {
        declare_object(&with_type_and_object_meta(schema, within.minor), schema, name, within)
    } else {
        match schema.type_? {
            SchemaType::Array => declare_list(schema, name, within)?,
            SchemaType::Object => match &schema.additional_properties {
                Some(values) => declare_map(schema, values, name, within)?,
                None => declare_object(&schema.properties, schema, name, within),
            },
            SchemaType::String => declare_string(schema),
            SchemaType::Boolean => Decl::new(Type::Bool),
            SchemaType::Number => Decl::new(Type::Double),
            SchemaType::Integer => Decl::new(Type::Int),
        }
    };
    Some(Decl {
        nullable: schema.nullable,
        ..decl
    })
}

fn declare_list(schema: &Schema, name: &str, within: &mut Around) -> Option<Decl> {
    let items = schema.items.as_ref()?;
    let decl = declare_within(items, items.embedded_resource, &format!("{name}.@idx"), within)?;
    let max = match schema.max_items {
        Some(max) => natural(max),
        None => (MAX_REQUEST - 2) / (decl.min_serialized_size + 1),
    };
    Some(Decl {
        list: schema
            .list_type
            .map(|list_type| (list_type, Arc::from(schema.list_map_keys.as_slice())))
            .filter(|(list_type, _)| *list_type != ListType::Atomic),
        ..Decl::list(decl, max)
    })
}

fn declare_map(schema: &Schema, values: &SchemaRef, name: &str, within: &mut Around) -> Option<Decl> {
    let decl = declare_within(values, values.embedded_resource, &format!("{name}.@elem"), within)?;
    let max = match schema.max_properties {
        Some(max) => natural(max),
        None => (MAX_REQUEST - 2) / (decl.min_serialized_size + 6),
    };
    Some(Decl::map(decl, max))
}

fn declare_object(properties: &BTreeMap<String, SchemaRef>, schema: &Schema, name: &str, within: &mut Around) -> Decl {
    let mut fields = BTreeMap::new();
    let mut min_serialized_size = 2;
    for (property, schema_of) in properties {
        let below = format!("{name}.{property}");
        let Some(decl) = declare_within(schema_of, schema_of.embedded_resource, &below, within) else {
            continue;
        };
        let required = schema.required.contains(property);
        if required && schema_of.default.is_none() {
            // The name, quotes, colon and comma, and the value.
            min_serialized_size += property.len() as u64 + decl.min_serialized_size + 4;
        }
        if let Some(escaped) = escape(property) {
            let json_name = property.as_str().into();
            fields.insert(
                escaped.into(),
                Field {
                    json_name,
                    decl,
                    required,
                },
            );
        }
    }
    let name = name.into();
    Decl {
        min_serialized_size,
        ..Decl::new(Type::Object(Arc::new(ObjectType { name, fields })))
    }
}

fn declare_string(schema: &Schema) -> Decl {
    let (ty, max, min) = match schema.format.as_deref() {
        Some("byte") => (Type::Bytes, schema.max_length.map_or(MAX_STRING, natural), 2),
        Some("duration") => (Type::Duration, MAX_TIME, MIN_DURATION),
        Some("date") => (Type::Timestamp, DATE_SIZE, DATE_SIZE),
        Some("date-time") => (Type::Timestamp, MAX_TIME, MIN_DATE_TIME),
        _ => {
            let max = match schema.max_length {
                Some(max) => bytes(max),
                None if !schema.enum_.is_empty() => longest(&schema.enum_),
                None => MAX_STRING,
            };
            (Type::String, max, 2)
        }
    };
    Decl {
        max_elements: Some(max),
        min_serialized_size: min,
        date: schema.format.as_deref() == Some("date"),
        ..Decl::new(ty)
    }
}

/// The properties of a resource, with those that every resource has.
fn with_type_and_object_meta(schema: &Schema, minor: Minor) -> BTreeMap<String, SchemaRef> {
    let is = |properties: &BTreeMap<String, SchemaRef>, name: &str, type_: SchemaType| {
        properties.get(name).is_some_and(|schema| schema.type_ == Some(type_))
    };
    let text = |properties: &_, name| is(properties, name, SchemaType::String);
    let properties = &schema.properties;
    let complete = text(properties, "kind")
        && text(properties, "apiVersion")
        && is(properties, "metadata", SchemaType::Object)
        && text(&properties["metadata"].properties, "name")
        && text(&properties["metadata"].properties, "generateName");
    let mut properties = properties.clone();
    if complete && minor < Minor::V37 {
        return properties;
    }
    let text_of = |max_length: Option<i64>| {
        SchemaRef::new(Schema {
            type_: Some(SchemaType::String),
            max_length,
            ..Schema::default()
        })
    };
    let known = properties.get("metadata");
    let said = |name: &str| known.and_then(|metadata| metadata.properties.get(name)?.max_length);
    let names = [("name", MAX_NAME), ("generateName", MAX_NAME - 1)].map(|(name, most)| {
        let most = (minor >= Minor::V37).then(|| said(name).map_or(most, |said| said.min(most)));
        (name.to_owned(), text_of(most))
    });
    let string = text_of(None);
    let metadata = Schema {
        type_: Some(SchemaType::Object),
        properties: BTreeMap::from(names),
        ..Schema::default()
    };
    properties.insert("kind".to_owned(), string.clone());
    properties.insert("apiVersion".to_owned(), string);
    properties.insert("metadata".to_owned(), SchemaRef::new(metadata));
    properties
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Characters as bytes: each may take four.
fn bytes(characters: i64) -> u64 {
    natural(characters).saturating_mul(4)
}

fn longest(values: &[Value]) -> u64 {
    let lengths = values.iter().filter_map(Value::as_str).map(str::len);
    lengths.max().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_holds_itself_ends() {
        let definitions = crate::schema::catalog::for_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let decl = declare(&definitions.expect("a built-in kind"), true, "object").expect("an object");
        assert!(
            decl.as_object()
                .is_some_and(|object| object.fields.contains_key("spec"))
        );
    }
}
