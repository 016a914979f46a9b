//! The tables of `openapi.v2.Document`.

use serde_json::Value;

use super::super::gnostic::Type::{Double, Flag, Integer, Message, Messages, Text, Texts};
use super::super::gnostic::{Content, Field, Section, Type};

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
