//! OpenAPI documents as protobuf messages of gnostic, of which kube-apiserver's clients have the types.
//!
//! Tables say for every keyword which tag it has (`v2::messages` and `messages`, one for each version); one walk over a
//! value with its table in hand writes the message. Vendor extensions and values of any type are YAML text, as gnostic
//! has them. Zeros are not written, as always in version 3 of protobuf, but a choice is written whatever its value.
//!
//! Not here: messages that no document of an API server has, such as form data, headers, files and OAuth.

use std::convert::Infallible;

use kubewright_schema::protobuf::write::{bytes, double, nested, varint};
use serde_json::{Map, Value};

use crate::wire::yaml;

/// The content of a message.
pub(super) enum Content {
    /// Keywords, and the tag of the vendor extensions.
    Fields(&'static [Field], Option<u32>),
    /// A map: messages of name and value behind this tag.
    Entries(u32, &'static Content),
    /// One field, which the value chooses.
    One(fn(&Value) -> (u32, Type)),
    /// Any value, as YAML.
    Yaml,
}

/// A keyword, its tag, and its type.
pub(super) struct Field(pub(super) &'static str, pub(super) u32, pub(super) Type);

#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    Flag,
    Double,
    Integer,
    Message(&'static Content),
    /// A field for each item.
    Texts,
    Messages(&'static Content),
}

use Type::{Double, Flag, Integer, Message, Messages, Text, Texts};

/// Where a section stands in the document: its tag, and the tag of its entries.
pub(super) type Section = (u32, u32);

/// The message of a value.
pub(super) fn write(value: &Value, content: &Content) -> Vec<u8> {
    let mut out = Vec::new();
    fill(content, value, &mut out);
    out
}

/// Appends a section of the document, whose entries are messages already.
pub(super) fn section((tag, entry): Section, entries: impl IntoIterator<Item = (String, Vec<u8>)>, out: &mut Vec<u8>) {
    message(tag, out, |out| {
        for (name, value) in entries {
            named(entry, &name, out, |out| bytes(2, &value, out));
        }
    });
}

/// A message that `write` fills in.
fn message(tag: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let Ok(()) = nested(tag, out, |out| {
        write(out);
        Ok::<(), Infallible>(())
    });
}

/// A message of a name and the output of `write`.
fn named(tag: u32, name: &str, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    message(tag, out, |out| {
        if !name.is_empty() {
            bytes(1, name.as_bytes(), out);
        }
        write(out);
    });
}

fn fill(content: &Content, value: &Value, out: &mut Vec<u8>) {
    match content {
        Content::Fields(fields, extension) => {
            let Some(object) = value.as_object() else { return };
            for Field(keyword, tag, type_) in *fields {
                if let Some(value) = object.get(*keyword).filter(|value| !is_zero(*type_, value)) {
                    field(*tag, *type_, value, out);
                }
            }
            if let Some(tag) = extension {
                extensions(*tag, object, out);
            }
        }
        Content::Entries(tag, inner) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                named(*tag, name, out, |out| message(2, out, |out| fill(inner, value, out)));
            }
        }
        Content::One(choose) => {
            let (tag, type_) = choose(value);
            field(tag, type_, value, out);
        }
        Content::Yaml => bytes(2, yaml::encode(value, yaml::Style::EXTENSIONS).as_bytes(), out),
    }
}

fn extensions(tag: u32, object: &Map<String, Value>, out: &mut Vec<u8>) {
    for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
        named(tag, name, out, |out| {
            message(2, out, |out| fill(&Content::Yaml, value, out));
        });
    }
}

fn is_zero(type_: Type, value: &Value) -> bool {
    match (type_, value) {
        (Flag, Value::Bool(flag)) => !flag,
        (Double | Integer, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Text, Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

/// A field of the type. A value of another type cannot be written, and is left out: a schema with such a keyword is
/// refused with its definition.
fn field(tag: u32, type_: Type, value: &Value, out: &mut Vec<u8>) {
    match (type_, value) {
        (Text | Texts, Value::String(text)) => bytes(tag, text.as_bytes(), out),
        (Flag, Value::Bool(flag)) => varint(tag, u64::from(*flag), out),
        (Double, Value::Number(number)) => double(tag, number.as_f64().unwrap_or_default(), out),
        (Integer, Value::Number(number)) => varint(tag, number.as_i64().unwrap_or_default().cast_unsigned(), out),
        (Texts, Value::Array(items)) => items.iter().for_each(|item| field(tag, Text, item, out)),
        (Messages(content), Value::Array(items)) => {
            items
                .iter()
                .for_each(|item| message(tag, out, |out| fill(content, item, out)));
        }
        (Message(content) | Messages(content), value) => message(tag, out, |out| fill(content, value, out)),
        _ => {}
    }
}
