//! The tables of `openapi.v3.Document`.

use serde_json::Value;

use super::gnostic::Type::{Double, Flag, Integer, Message, Messages, Text, Texts};
use super::gnostic::{Content, Field, Type};

/// The document.
pub(super) static DOCUMENT: Content = Content::Fields(
    &[
        Field("openapi", 1, Text),
        Field("info", 2, Message(&INFO)),
        Field("paths", 4, Message(&PATHS)),
        Field("components", 5, Message(&COMPONENTS)),
    ],
    Some(9),
);

static INFO: Content = Content::Fields(
    &[
        Field("title", 1, Text),
        Field("description", 2, Text),
        Field("version", 6, Text),
    ],
    Some(7),
);

static COMPONENTS: Content = Content::Fields(
    &[
        Field("schemas", 1, Message(&SCHEMAS)),
        Field("securitySchemes", 7, Message(&SECURITY_SCHEMES)),
    ],
    Some(10),
);
static SCHEMAS: Content = Content::Entries(1, &SCHEMA_OR_REFERENCE);
static SECURITY_SCHEMES: Content = Content::Entries(1, &SECURITY_SCHEME_OR_REFERENCE);
static SECURITY_SCHEME_OR_REFERENCE: Content = Content::One(|_| (1, Message(&SECURITY_SCHEME)));
static SECURITY_SCHEME: Content = Content::Fields(
    &[
        Field("type", 1, Text),
        Field("description", 2, Text),
        Field("name", 3, Text),
        Field("in", 4, Text),
    ],
    Some(9),
);

static PATHS: Content = Content::Entries(1, &PATH_ITEM);
/// The operations of a path.
static PATH_ITEM: Content = Content::Fields(
    &[
        Field("$ref", 1, Text),
        Field("summary", 2, Text),
        Field("description", 3, Text),
        Field("get", 4, Message(&OPERATION)),
        Field("put", 5, Message(&OPERATION)),
        Field("post", 6, Message(&OPERATION)),
        Field("delete", 7, Message(&OPERATION)),
        Field("options", 8, Message(&OPERATION)),
        Field("head", 9, Message(&OPERATION)),
        Field("patch", 10, Message(&OPERATION)),
        Field("parameters", 13, Messages(&PARAMETER_OR_REFERENCE)),
    ],
    Some(14),
);

static OPERATION: Content = Content::Fields(
    &[
        Field("tags", 1, Texts),
        Field("summary", 2, Text),
        Field("description", 3, Text),
        Field("operationId", 5, Text),
        Field("parameters", 6, Messages(&PARAMETER_OR_REFERENCE)),
        Field("requestBody", 7, Message(&REQUEST_BODY_OR_REFERENCE)),
        Field("responses", 8, Message(&RESPONSES)),
        Field("deprecated", 10, Flag),
    ],
    Some(13),
);

static PARAMETER_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &PARAMETER));
static PARAMETER: Content = Content::Fields(
    &[
        Field("name", 1, Text),
        Field("in", 2, Text),
        Field("description", 3, Text),
        Field("required", 4, Flag),
        Field("schema", 10, Message(&SCHEMA_OR_REFERENCE)),
    ],
    Some(14),
);

static REQUEST_BODY_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &REQUEST_BODY));
static REQUEST_BODY: Content = Content::Fields(
    &[
        Field("description", 1, Text),
        Field("content", 2, Message(&MEDIA_TYPES)),
        Field("required", 3, Flag),
    ],
    Some(4),
);

/// By their codes: documents have no response for all others.
static RESPONSES: Content = Content::Entries(2, &RESPONSE_OR_REFERENCE);
static RESPONSE_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &RESPONSE));
static RESPONSE: Content = Content::Fields(
    &[
        Field("description", 1, Text),
        Field("content", 3, Message(&MEDIA_TYPES)),
    ],
    Some(5),
);

static MEDIA_TYPES: Content = Content::Entries(1, &MEDIA_TYPE);
static MEDIA_TYPE: Content = Content::Fields(&[Field("schema", 1, Message(&SCHEMA_OR_REFERENCE))], Some(5));

static REFERENCE: Content = Content::Fields(
    &[
        Field("$ref", 1, Text),
        Field("summary", 2, Text),
        Field("description", 3, Text),
    ],
    None,
);

fn refers_or(value: &Value, content: &'static Content) -> (u32, Type) {
    if value.get("$ref").is_some() {
        (2, Message(&REFERENCE))
    } else {
        (1, Message(content))
    }
}

static SCHEMA_OR_REFERENCE: Content = Content::One(|value| refers_or(value, &SCHEMA));
static SCHEMA: Content = Content::Fields(
    &[
        Field("nullable", 1, Flag),
        Field("readOnly", 3, Flag),
        Field("writeOnly", 4, Flag),
        Field("externalDocs", 6, Message(&EXTERNAL_DOCS)),
        Field("example", 7, Message(&Content::Yaml)),
        Field("deprecated", 8, Flag),
        Field("title", 9, Text),
        Field("multipleOf", 10, Double),
        Field("maximum", 11, Double),
        Field("exclusiveMaximum", 12, Flag),
        Field("minimum", 13, Double),
        Field("exclusiveMinimum", 14, Flag),
        Field("maxLength", 15, Integer),
        Field("minLength", 16, Integer),
        Field("pattern", 17, Text),
        Field("maxItems", 18, Integer),
        Field("minItems", 19, Integer),
        Field("uniqueItems", 20, Flag),
        Field("maxProperties", 21, Integer),
        Field("minProperties", 22, Integer),
        Field("required", 23, Texts),
        Field("enum", 24, Messages(&Content::Yaml)),
        Field("type", 25, Text),
        Field("allOf", 26, Messages(&SCHEMA_OR_REFERENCE)),
        Field("oneOf", 27, Messages(&SCHEMA_OR_REFERENCE)),
        Field("anyOf", 28, Messages(&SCHEMA_OR_REFERENCE)),
        Field("not", 29, Message(&SCHEMA)),
        Field("items", 30, Message(&ITEMS)),
        Field("properties", 31, Message(&SCHEMAS)),
        Field("additionalProperties", 32, Message(&SCHEMA_OR_FLAG)),
        Field("default", 33, Message(&DEFAULT)),
        Field("description", 34, Text),
        Field("format", 35, Text),
    ],
    Some(36),
);
static EXTERNAL_DOCS: Content = Content::Fields(&[Field("description", 1, Text), Field("url", 2, Text)], Some(3));
static ITEMS: Content = Content::One(|_| (1, Messages(&SCHEMA_OR_REFERENCE)));
static SCHEMA_OR_FLAG: Content = Content::One(|value| match value {
    Value::Bool(_) => (2, Flag),
    _ => (1, Message(&SCHEMA_OR_REFERENCE)),
});
/// A scalar. Of any other default gnostic keeps only that there is one.
static DEFAULT: Content = Content::One(|value| match value {
    Value::Bool(_) => (2, Flag),
    Value::String(_) => (3, Text),
    _ => (1, Double),
});
