//! The errors in the form of an applied configuration, in the words of the server.

use std::fmt;

use serde_json::{Map, Value};

use super::set::shown;
use super::shape::{Form, Shape, element};
use crate::budget;
use crate::error::quote;
use crate::go;
use crate::measure;
use crate::schema::special::{Special, special};
use crate::schema::{Schema, Type};
use crate::sorted::sort_by_text;

/// The irregularities that an object may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// None: only fields of the schema, and each item once. This holds for applied configurations and converted
    /// objects.
    Nothing,
    /// Items that stand twice, and fields that the schema had once: for stored objects.
    Stored,
}

/// The errors found, and the place of the walk.
struct Walk<'a> {
    leave: Leave,
    /// A configuration without mistakes needs no text for any of its fields and items.
    path: Vec<Step<'a>>,
    errors: Vec<String>,
}

enum Step<'a> {
    Field(&'a str),
    /// An item of a list that is owned as a whole.
    Index(usize),
    /// An item with an identity.
    Item(Form<'a>, &'a Value),
}

/// The errors of a configuration, each with the path in front of it (`.foo: field not declared in schema`).
pub(super) fn check(value: &Value, shape: Shape<'_>) -> Vec<String> {
    checked(value, shape, Leave::Nothing)
}

/// The same for a stored object (`typed.AllowDuplicates` upstream). Fields that its schema does not have any more are
/// gone when upstream reads it, so they are no errors.
pub(super) fn check_stored(value: &Value, shape: Shape<'_>) -> Vec<String> {
    checked(value, shape, Leave::Stored)
}

/// Whether a stored object has errors beside another one without any: what both have is not looked at again.
pub(super) fn has_errors_beside(value: &Value, checked: &Value, shape: Shape<'_>) -> bool {
    let (Form::Map, Value::Object(map), Value::Object(known)) = (shape.form([Some(value), None]), value, checked)
    else {
        return !check_stored(value, shape).is_empty();
    };
    map.iter().any(|(key, below)| match known.get(key) {
        Some(known) if measure::same(known, below) => false,
        known => {
            let part = shape.part(key);
            part.is_some_and(|part| has_errors_beside(below, known.unwrap_or(&Value::Null), part.shape))
        }
    })
}

fn checked(value: &Value, shape: Shape<'_>, leave: Leave) -> Vec<String> {
    let mut walk = Walk {
        leave,
        path: Vec::new(),
        errors: Vec::new(),
    };
    walk.value(value, shape);
    walk.errors
}

/// Several errors as one text.
pub(super) fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

impl<'a> Walk<'a> {
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => path.extend([".", name]),
                Step::Index(at) => path.push_str(&format!("[{at}]")),
                Step::Item(form, item) => path.extend(element(*form, item).map(|element| shown(&element))),
            }
        }
        path
    }

    fn report(&mut self, message: &str) {
        let path = self.path();
        budget::produce(measure::text_held(path.len().saturating_add(message.len())));
        self.errors.push(if path.is_empty() {
            message.to_owned()
        } else {
            format!("{path}: {message}")
        });
    }

    fn value(&mut self, value: &'a Value, shape: Shape<'a>) {
        if value.is_null() {
            return;
        }
        match (shape.form([Some(value), None]), value) {
            (Form::Map, Value::Object(map)) => self.fields(map, shape),
            (Form::Map, other) => self.report(&format!("expected map, got &{{{}}}", go::text(other))),
            (form @ (Form::Set | Form::Items(_)), Value::Array(list)) => self.items(list, form, shape),
            (Form::Set | Form::Items(_), other) => self.report(&format!("expected list, got &{{{}}}", go::text(other))),
            (Form::Leaf, value) => self.leaf(value, shape),
        }
    }

    fn leaf(&mut self, value: &'a Value, shape: Shape<'a>) {
        if let Shape::Schema(schema) = shape
            && let Some(message) = wrong_leaf(value, schema)
        {
            self.report(&message);
        } else if let Shape::Schema(schema) = shape
            && special(schema).is_none()
        {
            self.inside(value, shape, schema);
        } else if matches!(shape, Shape::Text) && !value.is_string() {
            self.report(&not_a_string(value));
        }
    }

    fn fields(&mut self, map: &'a Map<String, Value>, shape: Shape<'a>) {
        for (key, below) in map {
            let part = shape.part(key);
            if part.is_none() && self.leave == Leave::Stored {
                continue;
            }
            self.path.push(Step::Field(key));
            match &part {
                Some(part) => self.value(below, part.shape),
                None => self.report("field not declared in schema"),
            }
            self.path.pop();
            // The walk through a map ends with the first field that does not belong there.
            if part.is_none() {
                break;
            }
        }
    }

    /// Looks into an atomic list or map.
    fn inside(&mut self, value: &'a Value, shape: Shape<'a>, schema: &Schema) {
        match value {
            Value::Array(list) if schema.items.is_some() => {
                for (at, item) in list.iter().enumerate() {
                    self.path.push(Step::Index(at));
                    self.value(item, shape.items());
                    self.path.pop();
                }
            }
            Value::Object(map) if !schema.properties.is_empty() || schema.additional_properties.is_some() => {
                self.fields(map, shape);
            }
            _ => {}
        }
    }

    fn items(&mut self, list: &'a [Value], form: Form<'a>, shape: Shape<'a>) {
        let mut elements = Vec::with_capacity(list.len());
        let mut broken = None;
        for (at, item) in list.iter().enumerate() {
            match element(form, item) {
                Ok(element) => elements.push((element, at)),
                Err(why) => {
                    broken = Some((at, why));
                    break;
                }
            }
        }
        let mut again = again(elements).into_iter().peekable();
        for (at, item) in list.iter().enumerate() {
            if let Some((_, why)) = broken.as_ref().filter(|(broken, _)| *broken == at) {
                // Where the item is cannot even be said.
                return self.report(&format!("element {at}: {why}"));
            }
            if again.next_if_eq(&at).is_some() && self.leave == Leave::Nothing {
                let twice = element(form, item).map(|element| shown(&element));
                self.report(&format!("duplicate entries for key {}", twice.unwrap_or_default()));
            }
            self.path.push(Step::Item(form, item));
            self.value(item, shape.items());
            self.path.pop();
        }
    }
}

/// The places of the items whose elements came before, in order.
fn again(mut elements: Vec<(String, usize)>) -> Vec<usize> {
    sort_by_text(&mut elements);
    let pairs = elements.windows(2);
    let mut again: Vec<usize> = pairs
        .filter_map(|pair| match pair {
            [(one, _), (other, at)] if one == other => Some(*at),
            _ => None,
        })
        .collect();
    again.sort_unstable();
    again
}

/// The error in a scalar, or in an atomic list or map as such.
fn wrong_leaf(value: &Value, schema: &Schema) -> Option<String> {
    if schema.int_or_string || schema.special == Some(Special::Quantity) {
        let composed = value.is_array() || value.is_object();
        return composed.then(|| format!("expected any scalar, got &{{{}}}", go::text(value)));
    }
    if schema.name.is_some() && schema.properties.is_empty() && schema.type_ != Some(Type::String) {
        return None;
    }
    match (schema.type_?, value) {
        (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Integer | Type::Number, Value::Number(_)) => None,
        (Type::Object, other) => Some(format!("expected map, got &{{{}}}", go::text(other))),
        (Type::Array, other) => Some(format!("expected list, got &{{{}}}", go::text(other))),
        // A text with a format, such as a time, is any scalar to structured-merge-diff.
        (Type::String, Value::Bool(_) | Value::Number(_)) if is_untyped(schema) => None,
        (Type::String, other) if is_untyped(schema) => {
            Some(format!("expected any scalar, got &{{{}}}", go::text(other)))
        }
        (Type::String, other) => Some(not_a_string(other)),
        (Type::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", go::text(other))),
        (Type::Integer | Type::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(other)))
        }
    }
}

/// Whether a text's format makes it an untyped scalar (`convertPrimitive` of kube-openapi).
fn is_untyped(schema: &Schema) -> bool {
    schema
        .format
        .as_deref()
        .is_some_and(|format| !matches!(format, "" | "byte"))
}

/// A value as Go's `%#v` prints it.
pub(crate) fn go_syntax(value: &Value) -> String {
    measure::shown(&Syntax(value))
}

struct Syntax<'a>(&'a Value);

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::String(text) => f.write_str(&quote(text)),
            Value::Array(items) => {
                f.write_str("[]interface {}{")?;
                for (index, item) in items.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{}", Syntax(item))?;
                }
                f.write_str("}")
            }
            Value::Object(map) => {
                f.write_str("map[string]interface {}{")?;
                for (index, (key, value)) in map.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{}:{}", quote(key), Syntax(value))?;
                }
                f.write_str("}")
            }
            other => other.fmt(f),
        }
    }
}

fn not_a_string(value: &Value) -> String {
    format!(
        "expected string, got &value.valueUnstructured{{Value:{}}}",
        go_syntax(value)
    )
}
