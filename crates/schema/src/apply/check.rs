//! What is wrong with the form of an applied configuration, in the words of the server.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::set::shown;
use super::shape::{Form, Shape, element};
use crate::budget;
use crate::error::quote;
use crate::go;
use crate::measure;
use crate::schema::{Schema, Type};
use crate::structural;

/// The errors of a configuration, each with the path in front of it (`.foo: field not declared in schema`).
pub(super) fn check(value: &Value, shape: Shape<'_>) -> Vec<String> {
    let mut errors = Vec::new();
    walk(value, shape, &mut String::new(), &mut errors);
    errors
}

/// Several errors as one text.
pub(super) fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

fn report(path: &str, message: &str, errors: &mut Vec<String>) {
    budget::produce(measure::text_held(path.len() + message.len()));
    errors.push(if path.is_empty() {
        message.to_owned()
    } else {
        format!("{path}: {message}")
    });
}

/// `path` is put back when a part was looked at: a configuration without mistakes needs no text for each of its fields.
fn walk(value: &Value, shape: Shape<'_>, path: &mut String, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match (shape.form([Some(value), None]), value) {
        (Form::Map, Value::Object(map)) => fields(map, shape, path, errors),
        (Form::Map, other) => report(path, &format!("expected map, got &{{{}}}", go::text(other)), errors),
        (form @ (Form::Set | Form::Items(_)), Value::Array(list)) => items(list, form, shape, path, errors),
        (Form::Set | Form::Items(_), other) => {
            report(path, &format!("expected list, got &{{{}}}", go::text(other)), errors);
        }
        (Form::Leaf, value) => {
            if let Shape::Schema(schema) = shape
                && let Some(message) = wrong_leaf(value, schema)
            {
                report(path, &message, errors);
            } else if let Shape::Schema(schema) = shape
                && structural::special(schema).is_none()
            {
                inside(value, shape, schema, path, errors);
            } else if matches!(shape, Shape::Text) && !value.is_string() {
                report(path, &not_a_string(value), errors);
            }
        }
    }
}

fn fields(map: &Map<String, Value>, shape: Shape<'_>, path: &mut String, errors: &mut Vec<String>) {
    let here = path.len();
    for (key, below) in map {
        path.push('.');
        path.push_str(key);
        let part = shape.part(key);
        match &part {
            Some(part) => walk(below, part.shape, path, errors),
            None => report(path, "field not declared in schema", errors),
        }
        path.truncate(here);
        // The walk through a map ends with the first field that does not belong there.
        if part.is_none() {
            break;
        }
    }
}

/// Looks into an atomic list or map.
fn inside(value: &Value, shape: Shape<'_>, schema: &Schema, path: &mut String, errors: &mut Vec<String>) {
    let here = path.len();
    match value {
        Value::Array(list) if schema.items.is_some() => {
            for (at, item) in list.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                walk(item, shape.items(), path, errors);
                path.truncate(here);
            }
        }
        Value::Object(map) if !schema.properties.is_empty() || schema.additional_properties.is_some() => {
            fields(map, shape, path, errors);
        }
        _ => {}
    }
}

fn items(list: &[Value], form: Form<'_>, shape: Shape<'_>, path: &mut String, errors: &mut Vec<String>) {
    let here = path.len();
    let mut seen = BTreeSet::new();
    for (at, item) in list.iter().enumerate() {
        match element(form, item) {
            Err(why) => {
                // Where the item is cannot even be said.
                report(path, &format!("element {at}: {why}"), errors);
                return;
            }
            Ok(element) => {
                let below = shown(&element);
                if !seen.insert(element) {
                    report(path, &format!("duplicate entries for key {below}"), errors);
                }
                path.push_str(&below);
                walk(item, shape.items(), path, errors);
                path.truncate(here);
            }
        }
    }
}

/// What is wrong with a scalar, or with an atomic list or map as such.
fn wrong_leaf(value: &Value, schema: &Schema) -> Option<String> {
    if schema.int_or_string
        || (schema.name.is_some() && schema.properties.is_empty() && schema.type_ != Some(Type::String))
    {
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
        (Type::String, other) => Some(not_a_string(other)),
        (Type::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", go::text(other))),
        (Type::Integer | Type::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(other)))
        }
    }
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
