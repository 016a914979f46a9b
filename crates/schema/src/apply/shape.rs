//! How a value is taken apart: its schema's types of lists and maps, and the path elements of its parts.

use serde_json::{Map, Value};

use super::FieldSet;
use super::set::{Node, field};
use super::written;
use crate::budget;
use crate::schema::catalog;
use crate::schema::go::absent_form;
use crate::schema::special::special;
use crate::schema::{ListType, MapType, Schema, SchemaRef, Type};

/// The type of an object whose fields are owned.
#[derive(Clone, Debug)]
pub struct ObjectType {
    schema: SchemaRef,
    custom: bool,
    versions_apart: bool,
    reset: FieldSet,
}

impl ObjectType {
    /// A built-in kind: its plain structs are always there, as in Go.
    pub fn built_in(schema: SchemaRef) -> ObjectType {
        ObjectType {
            schema,
            custom: false,
            versions_apart: false,
            reset: FieldSet::default(),
        }
    }

    /// A custom resource: its fields are those of the definition, with those of every object.
    pub fn custom(schema: SchemaRef) -> ObjectType {
        ObjectType {
            schema,
            custom: true,
            versions_apart: false,
            reset: FieldSet::default(),
        }
    }

    /// The same for a kind that has other fields in its other versions: their entries cannot be read in this one, and
    /// go with the next write.
    #[must_use]
    pub fn with_fields_of_its_version(self) -> ObjectType {
        ObjectType {
            versions_apart: true,
            ..self
        }
    }

    /// The same where writes do not change these fields, nor those below them: a writer does not own them (upstream's
    /// reset fields). They are paths of names with dots between.
    #[must_use]
    pub fn with_reset(self, paths: &[&str]) -> ObjectType {
        let mut reset = FieldSet::default();
        for path in paths {
            reset.extend(FieldSet::of_path(path.split('.')));
        }
        ObjectType { reset, ..self }
    }

    /// The fields that a write does not change, with all that is below.
    pub(super) fn reset(&self) -> &FieldSet {
        &self.reset
    }

    /// Whether it is of a custom kind.
    pub(super) fn is_custom(&self) -> bool {
        self.custom
    }

    /// Whether entries of this version can be read in that one.
    pub(super) fn reads(&self, version: &str, entry: &str) -> bool {
        !self.versions_apart || version == entry
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        if self.custom {
            Shape::Embedded(&self.schema)
        } else {
            Shape::Schema(&self.schema)
        }
    }
}

/// The type of a value, as far as it is known.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// A schema.
    Schema(&'a SchemaRef),
    /// The same for an object with `apiVersion`, `kind` and `metadata` of its own.
    Embedded(&'a SchemaRef),
    /// Nothing: lists are atomic, objects are granular.
    Deduced,
    /// A text that every object has.
    Text,
    /// Neither fields nor items may be in it.
    Nothing,
}

/// How a value is taken apart.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    /// Not at all: a scalar, or an atomic list or map.
    Leaf,
    /// By the values of its items.
    Set,
    /// By the keys of its items.
    Items(&'a Schema),
    /// By its fields.
    Map,
}

/// A part of a map: its type, and whether the schema knows it by name.
pub(super) struct Part<'a> {
    pub(super) shape: Shape<'a>,
    pub(super) declared: bool,
}

impl<'a> Shape<'a> {
    fn schema(self) -> Option<&'a Schema> {
        match self {
            Shape::Schema(schema) | Shape::Embedded(schema) => Some(schema.get()),
            Shape::Deduced | Shape::Text | Shape::Nothing => None,
        }
    }

    /// How a value of this type is taken apart; the values decide only where the schema says nothing.
    pub(super) fn form(self, values: [Option<&Value>; 2]) -> Form<'a> {
        let reference = match self {
            Shape::Deduced => return deduced(values),
            Shape::Text | Shape::Nothing => return Form::Leaf,
            Shape::Embedded(_) => return Form::Map,
            Shape::Schema(reference) => reference,
        };
        let schema = reference.get();
        if schema.embedded_resource {
            return Form::Map;
        }
        if schema.int_or_string || special(reference).is_some() {
            return Form::Leaf;
        }
        match schema.type_ {
            Some(Type::Object) if schema.map_type == Some(MapType::Atomic) => Form::Leaf,
            Some(Type::Object) if schema.name.is_some() && schema.is_free_form() => Form::Leaf,
            Some(Type::Object) => Form::Map,
            Some(Type::Array) => match schema.list_type {
                Some(ListType::Set) => Form::Set,
                Some(ListType::Map) => Form::Items(schema),
                Some(ListType::Atomic) | None => Form::Leaf,
            },
            None if schema.preserve_unknown_fields => deduced(values),
            _ => Form::Leaf,
        }
    }

    /// Whether it is a list or a map that is owned as a whole.
    pub(super) fn is_atomic(self) -> bool {
        let Shape::Schema(schema) = self else { return false };
        let composed = matches!(schema.type_, Some(Type::Object | Type::Array));
        composed && special(schema).is_none() && matches!(self.form([None, None]), Form::Leaf)
    }

    /// Whether the schema leaves the type open, so that values tell.
    pub(super) fn is_deduced(self) -> bool {
        match self {
            Shape::Deduced => true,
            Shape::Schema(schema) => schema.type_.is_none() && schema.preserve_unknown_fields && !schema.int_or_string,
            Shape::Text | Shape::Nothing | Shape::Embedded(_) => false,
        }
    }

    /// The type of a field or of an entry of a map; none when the schema does not allow it.
    pub(super) fn part(self, key: &str) -> Option<Part<'a>> {
        let declared = |shape| Some(Part { shape, declared: true });
        let embedded =
            matches!(self, Shape::Embedded(_)) || self.schema().is_some_and(|schema| schema.embedded_resource);
        if embedded {
            match key {
                "apiVersion" | "kind" => return declared(Shape::Text),
                "metadata" => return declared(Shape::Schema(catalog::object_meta())),
                _ => {}
            }
        }
        let Some(schema) = self.schema() else {
            let deduced = matches!(self, Shape::Deduced);
            return deduced.then_some(Part {
                shape: Shape::Deduced,
                declared: false,
            });
        };
        if let Some(property) = schema.properties.get(key) {
            return declared(Shape::Schema(property));
        }
        let shape = match &schema.additional_properties {
            Some(values) => Shape::Schema(values),
            None if schema.preserve_unknown_fields || schema.additional_properties_allowed == Some(true) => {
                Shape::Deduced
            }
            None => return None,
        };
        Some(Part { shape, declared: false })
    }

    /// The type of a part that may be of any name; nothing is known about one that the schema does not allow.
    pub(super) fn part_or_nothing(self, key: &str) -> Part<'a> {
        self.part(key).unwrap_or(Part {
            shape: Shape::Nothing,
            declared: false,
        })
    }

    /// The type of the items of a list.
    pub(super) fn items(self) -> Shape<'a> {
        match self.schema().and_then(|schema| schema.items.as_ref()) {
            Some(items) => Shape::Schema(items),
            None => Shape::Deduced,
        }
    }

    /// The type of the value behind an element of a path, and whether the schema knows that by name.
    pub(super) fn below(self, element: &str) -> (Shape<'a>, bool) {
        match element.split_once(':') {
            Some(("f", name)) => {
                let part = self.part_or_nothing(name);
                (part.shape, part.declared)
            }
            Some(("k", _)) => (self.items(), false),
            _ => (Shape::Nothing, false),
        }
    }

    /// The value of an unwritten field, in the Go struct of a built-in kind.
    pub(super) fn absent(self, key: &str) -> Option<&'a Value> {
        match self {
            Shape::Schema(schema) if schema.name.is_some() => absent_form(schema.get(), key),
            _ => None,
        }
    }
}

fn deduced<'a>(values: [Option<&Value>; 2]) -> Form<'a> {
    let object = values.into_iter().flatten().any(Value::is_object);
    let other = values
        .into_iter()
        .flatten()
        .any(|value| !value.is_object() && !value.is_null());
    if object && !other { Form::Map } else { Form::Leaf }
}

/// The element of an item of a list, or why it has none.
pub(super) fn element(form: Form<'_>, item: &Value) -> Result<String, String> {
    match form {
        Form::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(written::value_element(scalar)),
        },
        Form::Items(schema) => keyed(schema, item),
        Form::Leaf | Form::Map => Err("not a list of items with an identity".to_owned()),
    }
}

fn keyed(schema: &Schema, item: &Value) -> Result<String, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut keys: Vec<(&str, &Value)> = Vec::with_capacity(schema.list_map_keys.len());
    for key in &schema.list_map_keys {
        let value = fields.get(key).or_else(|| {
            let items = schema.items.as_ref()?;
            items.properties.get(key)?.own_default()
        });
        keys.extend(value.map(|value| (key.as_str(), value)));
    }
    if keys.is_empty() && !schema.list_map_keys.is_empty() {
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            schema
                .list_map_keys
                .iter()
                .map(|key| format!("{key:?}"))
                .collect::<Vec<_>>()
                .join(" ")
        ));
    }
    Ok(written::key_element(keys))
}

/// The fields that an applied configuration owns (`ToFieldSet` upstream).
pub(super) fn fields(value: &Value, shape: Shape<'_>) -> Node {
    budget::spend(1);
    match (shape.form([Some(value), None]), value) {
        (Form::Leaf, _) => Node::LEAF,
        (Form::Map, Value::Object(map)) => {
            let mut children = FieldSet::with_capacity(map.len());
            for (key, below) in map {
                let part = shape.part_or_nothing(key);
                let mut node = fields(below, part.shape);
                let empty = below.is_null() || below.as_object().is_some_and(Map::is_empty);
                node.member |= empty || !part.declared;
                children.put(field(key), node);
            }
            Node {
                member: false,
                children,
            }
        }
        (form @ (Form::Set | Form::Items(_)), Value::Array(list)) => {
            let mut children = Vec::with_capacity(list.len());
            for item in list {
                let Ok(element) = element(form, item) else { continue };
                let mut node = fields(item, shape.items());
                node.member = true;
                children.push((element, node));
            }
            Node {
                member: false,
                // Of items that stand twice only the place is owned: the owner of their parts is not known.
                children: FieldSet::of_elements(children, |_| Node::LEAF),
            }
        }
        _ => Node::default(),
    }
}
