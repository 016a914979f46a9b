//! The document as a protobuf message: `openapi.v2.Document` of gnostic, of which kube-apiserver's clients have the
//! types.
//!
//! The tables say for every keyword which tag it has; one walk over a value with its table in hand writes the message.
//! Vendor extensions and values of any type are YAML text, as gnostic has them. Zeros are not written, as always in
//! version 3 of protobuf, but a choice is written whatever its value.
//!
//! Not here: messages that no document of an API server has, such as form data, headers, files and OAuth.

use std::convert::Infallible;

use kubewright_schema::protobuf::write::{bytes, double, nested, varint};
use serde_json::{Map, Value};

use super::Written;
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
pub(super) struct Field(&'static str, u32, Type);

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

pub(super) const PATHS: Section = (8, 2);
pub(super) const DEFINITIONS: Section = (9, 1);
pub(super) const PARAMETERS: Section = (10, 1);

/// The document without the sections, which are written entry by entry.
pub(super) static DOCUMENT: Content = Content::Fields(
    &[
        Field("swagger", 1, Text),
        Field("info", 2, Message(&INFO)),
        Field("security", 12, Messages(&SECURITY_REQUIREMENT)),
        Field("securityDefinitions", 13, Message(&SECURITY_DEFINITIONS)),
    ],
    None,
);

static INFO: Content = Content::Fields(
    &[
        Field("title", 1, Text),
        Field("version", 2, Text),
        Field("description", 3, Text),
    ],
    Some(7),
);

static SECURITY_REQUIREMENT: Content = Content::Entries(1, &STRING_ARRAY);
static SECURITY_DEFINITIONS: Content = Content::Entries(1, &SECURITY_DEFINITION);
/// Of the security schemes, documents have one.
static SECURITY_DEFINITION: Content = Content::One(|_| (2, Message(&API_KEY)));
static API_KEY: Content = Content::Fields(
    &[
        Field("type", 1, Text),
        Field("name", 2, Text),
        Field("in", 3, Text),
        Field("description", 4, Text),
    ],
    Some(5),
);

/// The operations of a path.
pub(super) static PATH_ITEM: Content = Content::Fields(
    &[
        Field("$ref", 1, Text),
        Field("get", 2, Message(&OPERATION)),
        Field("put", 3, Message(&OPERATION)),
        Field("post", 4, Message(&OPERATION)),
        Field("delete", 5, Message(&OPERATION)),
        Field("options", 6, Message(&OPERATION)),
        Field("head", 7, Message(&OPERATION)),
        Field("patch", 8, Message(&OPERATION)),
        Field("parameters", 9, Messages(&PARAMETER_OR_REFERENCE)),
    ],
    Some(10),
);

static OPERATION: Content = Content::Fields(
    &[
        Field("tags", 1, Texts),
        Field("summary", 2, Text),
        Field("description", 3, Text),
        Field("operationId", 5, Text),
        Field("produces", 6, Texts),
        Field("consumes", 7, Texts),
        Field("parameters", 8, Messages(&PARAMETER_OR_REFERENCE)),
        Field("responses", 9, Message(&RESPONSES)),
        Field("schemes", 10, Texts),
        Field("deprecated", 11, Flag),
    ],
    Some(13),
);

static RESPONSES: Content = Content::Entries(1, &RESPONSE_OR_REFERENCE);
static RESPONSE_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &RESPONSE));
static RESPONSE: Content = Content::Fields(
    &[
        Field("description", 1, Text),
        Field("schema", 2, Message(&RESPONSE_SCHEMA)),
    ],
    Some(5),
);
static RESPONSE_SCHEMA: Content = Content::One(|_| (1, Message(&SCHEMA)));

static PARAMETER_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &PARAMETER));
static REFERENCE: Content = Content::Fields(&[Field("$ref", 1, Text), Field("description", 2, Text)], None);

fn refers_or(value: &Value, content: &'static Content) -> (u32, Type) {
    if value.get("$ref").is_some() {
        (2, Message(&REFERENCE))
    } else {
        (1, Message(content))
    }
}

/// A parameter: the body, or one of the path or the query.
pub(super) static PARAMETER: Content = Content::One(|value| match value["in"].as_str() {
    Some("body") => (1, Message(&BODY_PARAMETER)),
    _ => (2, Message(&PLAIN_PARAMETER)),
});
static BODY_PARAMETER: Content = Content::Fields(
    &[
        Field("description", 1, Text),
        Field("name", 2, Text),
        Field("in", 3, Text),
        Field("required", 4, Flag),
        Field("schema", 5, Message(&SCHEMA)),
    ],
    Some(6),
);
static PLAIN_PARAMETER: Content = Content::One(|value| match value["in"].as_str() {
    Some("path") => (4, Message(&PATH_PARAMETER)),
    _ => (3, Message(&QUERY_PARAMETER)),
});
static PATH_PARAMETER: Content = Content::Fields(
    &[
        Field("required", 1, Flag),
        Field("in", 2, Text),
        Field("description", 3, Text),
        Field("name", 4, Text),
        Field("type", 5, Text),
        Field("format", 6, Text),
        Field("uniqueItems", 19, Flag),
    ],
    Some(22),
);
static QUERY_PARAMETER: Content = Content::Fields(
    &[
        Field("required", 1, Flag),
        Field("in", 2, Text),
        Field("description", 3, Text),
        Field("name", 4, Text),
        Field("type", 6, Text),
        Field("format", 7, Text),
        Field("uniqueItems", 20, Flag),
    ],
    Some(23),
);

/// A schema.
pub(super) static SCHEMA: Content = Content::Fields(
    &[
        Field("$ref", 1, Text),
        Field("format", 2, Text),
        Field("title", 3, Text),
        Field("description", 4, Text),
        Field("default", 5, Message(&Content::Yaml)),
        Field("multipleOf", 6, Double),
        Field("maximum", 7, Double),
        Field("exclusiveMaximum", 8, Flag),
        Field("minimum", 9, Double),
        Field("exclusiveMinimum", 10, Flag),
        Field("maxLength", 11, Integer),
        Field("minLength", 12, Integer),
        Field("pattern", 13, Text),
        Field("maxItems", 14, Integer),
        Field("minItems", 15, Integer),
        Field("uniqueItems", 16, Flag),
        Field("maxProperties", 17, Integer),
        Field("minProperties", 18, Integer),
        Field("required", 19, Texts),
        Field("enum", 20, Messages(&Content::Yaml)),
        Field("additionalProperties", 21, Message(&SCHEMA_OR_FLAG)),
        Field("type", 22, Message(&STRING_ARRAY)),
        Field("items", 23, Message(&ITEMS)),
        Field("allOf", 24, Messages(&SCHEMA)),
        Field("properties", 25, Message(&PROPERTIES)),
        Field("externalDocs", 29, Message(&EXTERNAL_DOCS)),
        Field("example", 30, Message(&Content::Yaml)),
    ],
    Some(31),
);
static SCHEMA_OR_FLAG: Content = Content::One(|value| match value {
    Value::Bool(_) => (2, Flag),
    _ => (1, Message(&SCHEMA)),
});
static ITEMS: Content = Content::One(|_| (1, Messages(&SCHEMA)));
static PROPERTIES: Content = Content::Entries(1, &SCHEMA);
static EXTERNAL_DOCS: Content = Content::Fields(&[Field("description", 1, Text), Field("url", 2, Text)], Some(3));
/// Strings, or one that stands alone.
static STRING_ARRAY: Content = Content::One(|_| (1, Texts));

/// The message of a value.
pub(super) fn write(value: &Value, content: &Content) -> Vec<u8> {
    let mut out = Vec::new();
    fill(content, value, &mut out);
    out
}

/// Appends a section of the document, whose entries are messages already.
pub(super) fn section((tag, entry): Section, entries: Written, out: &mut Vec<u8>) {
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
