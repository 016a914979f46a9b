//! From the result of a verb to bytes: objects, lists, Tables, metadata, YAML, Status.
//!
//! A stored object's JSON is encoded once (see [`crate::storage::StoredObject::encoded`]); a plain answer puts `kind`
//! and `apiVersion` in front of it. Only other forms go through a [`Value`].

use crate::model::form::full;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use kubewright_schema::protobuf::{self, order::Ordered};

use super::lists::{self, Item, List};
use super::special::streams::Connect;
use crate::Env;
use crate::audit::Entry;
use crate::body::{Body, WatchBody};
use crate::json;
use crate::model::Resource;
use crate::model::status::Status;
use crate::storage::StoredObject;
use crate::table::{self, Shown};
use crate::wire::negotiate::{self, Format, Output, Transform};
use crate::wire::query::Query;

/// The longest text of a `Warning` header, and how much all of them may hold together, in characters (apiserver's
/// limits).
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 4 * 1024;

/// The reply of a verb.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content: Content,
    pub(crate) warnings: Vec<String>,
    /// Further headers.
    pub(crate) headers: Vec<(http::HeaderName, String)>,
    /// The stream to which the client is to be connected instead.
    pub(crate) connect: Option<Box<Connect>>,
}

pub(crate) enum Content {
    /// An object as it is stored.
    Stored(Arc<Resource>, Arc<StoredObject>),
    /// An object of a kind that is not stored as it is shown (dry run).
    Object(Arc<Resource>, Value),
    List(Arc<Resource>, List),
    /// A document that is never transformed: Status, Scale, discovery.
    Plain(Value),
    /// Text with its own content type.
    Text(&'static str, Bytes),
    Watch(WatchBody),
}

impl Reply {
    pub(crate) fn new(code: u16, content: Content) -> Reply {
        Reply {
            code,
            content,
            warnings: Vec::new(),
            headers: Vec::new(),
            connect: None,
        }
    }

    pub(crate) fn status(status: &Status) -> Reply {
        Reply::new(status.http_code(), Content::Plain(status.to_value()))
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Reply {
        let mut reply = Reply::new(
            code,
            Content::Text("text/plain; charset=utf-8", Bytes::from(text.into())),
        );
        reply.headers.push((X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()));
        reply
    }
}

/// The beginning of an object of this kind, before its other fields: `{"kind":…,"apiVersion":…,`; sorted for custom
/// resources.
pub(crate) fn prefix(resource: &Resource) -> String {
    // Neither has characters that JSON escapes: they are names.
    let slash = if resource.group.is_empty() { "" } else { "/" };
    let [group, version, kind] = [&*resource.group, &*resource.version, &*resource.kind];
    match resource.custom {
        Some(_) => [
            "{\"apiVersion\":\"",
            group,
            slash,
            version,
            "\",\"kind\":\"",
            kind,
            "\",",
        ]
        .concat(),
        None => [
            "{\"kind\":\"",
            kind,
            "\",\"apiVersion\":\"",
            group,
            slash,
            version,
            "\",",
        ]
        .concat(),
    }
}

/// Whether the first key of a sorted text comes after `kind`: then [`prefix`] may go before it, and no `apiVersion` is
/// in it.
pub(crate) fn begins_after_kind(text: &[u8]) -> bool {
    is_after_kind(text.strip_prefix(b"{\"").unwrap_or_default())
}

/// Whether the key with which this text begins comes after `kind`.
fn is_after_kind(key: &[u8]) -> bool {
    key.split(|byte| *byte == b'"').next().unwrap_or_default() > b"kind".as_slice()
}

/// How long the beginning of the stored text of a custom resource is that says the version of `resource`:
/// `{"apiVersion":…,`. `None` when it says another one, or none there.
pub(crate) fn after_version(resource: &Resource, text: &[u8]) -> Option<usize> {
    let mut rest = text;
    for part in ["{\"apiVersion\":\"", &*resource.group, "/", &*resource.version, "\","] {
        rest = rest.strip_prefix(part.as_bytes())?;
    }
    text.len().checked_sub(rest.len())
}

/// Where the part of a stored text begins that its version shows as it is, behind [`prefix`]; `None` when nothing but
/// decoding gives what is shown.
pub(crate) fn shown_from(resource: &Resource, text: &[u8]) -> Option<usize> {
    let brace = "{".len();
    if resource.conversion.is_some() {
        None
    } else if resource.custom.is_none() || begins_after_kind(text) {
        Some(brace)
    } else {
        let from = after_version(resource, text)?;
        is_after_kind(text.get(from..)?.strip_prefix(b"\"")?).then_some(from)
    }
}

/// Appends the plain JSON of a stored object, with `kind` and `apiVersion`.
pub(crate) fn write_object(out: &mut Vec<u8>, resource: &Resource, stored: &StoredObject, prefix: &str) {
    let text = stored.encoded();
    // A stored object has metadata, so something follows its opening brace.
    match shown_from(resource, text).and_then(|from| text.get(from..)) {
        Some(rest) => {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(rest);
        }
        None => out.extend_from_slice(&encode(resource, &full(resource, stored.value()))),
    }
}

/// The JSON of an object that says its kind, in the order of that.
pub(super) fn encode(resource: &Resource, object: &Value) -> Vec<u8> {
    json::text(&Ordered::new(object, resource.order()))
}

/// Everything that shapes the answers of one request.
pub(crate) struct Responder<'a> {
    pub(crate) output: Output,
    pub(crate) query: &'a Query,
    pub(crate) env: &'a dyn Env,
}

impl Responder<'_> {
    /// The response.
    pub(crate) fn respond(&self, reply: Reply) -> Response<Body> {
        let Reply {
            code,
            content,
            warnings,
            headers,
            connect,
        } = reply;
        let mut response = match self.encode(content) {
            Ok((content_type, body)) => plain(code, content_type, body),
            Err(status) => {
                let value = status.to_value();
                let output = self.plain_output();
                plain(
                    status.http_code(),
                    output.format.content_type(),
                    Body::Full(Responder { output, ..*self }.encode_value(&value)),
                )
            }
        };
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().append(name, value);
            }
        }
        add_warnings(&mut response, &warnings);
        if let Some(connect) = connect {
            response.extensions_mut().insert(*connect);
        }
        response
    }

    /// The form of a failure: a client that asks for a transformed object gets it as JSON.
    fn plain_output(&self) -> Output {
        match self.output.transform {
            Transform::None => self.output,
            _ => Output {
                pretty: self.output.pretty,
                ..Output::JSON
            },
        }
    }

    /// The response of a failure, always a Status.
    pub(crate) fn fail(&self, status: &Status) -> Response<Body> {
        let output = self.plain_output();
        if self.output != output {
            return Responder { output, ..*self }.fail(status);
        }
        let mut reply = Reply::status(status);
        reply.warnings.clone_from(&status.warnings);
        if let Some(seconds) = status
            .details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0)
        {
            reply.headers.push((RETRY_AFTER, seconds.to_string()));
        }
        self.respond(reply)
    }

    /// Enters the document of an answer in the audit log.
    pub(crate) fn enter(&self, entry: &Entry, content: &Content) {
        let document = match content {
            Content::Watch(_) | Content::Text(..) => return,
            Content::Plain(value) => Ok(value.clone()),
            _ if !entry.wants_answer() => return,
            Content::Stored(resource, stored) => {
                let object = full(resource, stored.value());
                self.transform_object(resource, object, Some(stored.value()))
            }
            Content::Object(resource, object) => self.transform_object(resource, object.clone(), None),
            Content::List(resource, list) => self.transform_list(resource, list),
        };
        // An object that cannot be shown in the requested form is answered by this failure.
        let document = document.unwrap_or_else(|status| status.to_value());
        entry.answered(&document);
    }

    fn encode(&self, content: Content) -> Result<(&'static str, Body), Status> {
        if self.output.format == Format::Protobuf {
            return self.encode_protobuf(content);
        }
        let json = self.output.format.content_type();
        let value = match (content, self.output.transform) {
            (Content::Watch(watch), _) => return Ok(("application/json", Body::Watch(watch))),
            (Content::Text(content_type, text), _) => return Ok((content_type, Body::Full(text))),
            (Content::Plain(value), _) => value,
            (Content::Stored(resource, stored), Transform::None) if self.is_compact() => {
                let mut out = Vec::with_capacity(stored.encoded().len() + 64);
                write_object(&mut out, &resource, &stored, &prefix(&resource));
                out.push(b'\n');
                return Ok((json, Body::Full(Bytes::from(out))));
            }
            (Content::List(resource, list), Transform::None) if self.is_compact() => {
                return Ok((json, lists::body(&resource, list)));
            }
            (Content::List(resource, list), Transform::PartialList(version))
                if self.is_compact()
                    && let Some(text) = lists::partial_body(&resource, &list, version) =>
            {
                return Ok((json, Body::Full(text)));
            }
            (Content::List(resource, list), Transform::None)
                if self.output.format == Format::Yaml && !list.items.is_empty() =>
            {
                return Ok((json, Body::Full(lists::yaml_body(&resource, &list))));
            }
            (Content::List(resource, list), Transform::Table(version)) if self.is_compact() => {
                let text = lists::table_body(&resource, list, self.table_options()?, version);
                return Ok((json, Body::Full(text)));
            }
            (Content::Stored(resource, stored), _) => {
                let object = full(&resource, stored.value());
                self.transform_object(&resource, object, Some(stored.value()))?
            }
            (Content::Object(resource, object), _) => self.transform_object(&resource, object, None)?,
            (Content::List(resource, list), _) => self.transform_list(&resource, &list)?,
        };
        Ok((json, Body::Full(self.encode_value(&value))))
    }

    /// The same in protobuf. Content without a protobuf message in Kubernetes (such as `/version`) stays JSON.
    fn encode_protobuf(&self, content: Content) -> Result<(&'static str, Body), Status> {
        let media = self.output.format.content_type();
        let value = match (content, self.output.transform) {
            (Content::Watch(watch), _) => return Ok((negotiate::PROTOBUF_WATCH, Body::Watch(watch))),
            (Content::Text(content_type, text), _) => return Ok((content_type, Body::Full(text))),
            (Content::Stored(resource, stored), Transform::None) if resource.conversion.is_none() => {
                let written = protobuf::encode_as(&resource.api_version(), &resource.kind, stored.value());
                return Ok((media, Body::Full(written.map_err(no_protobuf)?.into())));
            }
            (Content::List(resource, list), Transform::None) if resource.conversion.is_none() => {
                let metadata = list.metadata(false);
                // One after the other: all of them decoded take many times their text.
                let items = list.items.iter().map(Item::object);
                let (version, kind) = (resource.api_version(), &resource.list_kind);
                let written = protobuf::encode_list(&version, kind, &metadata, items, |item| item.value());
                return Ok((media, Body::Full(written.map_err(no_protobuf)?.into())));
            }
            (Content::Plain(value), _) => value,
            (Content::Stored(resource, stored), _) => {
                let object = full(&resource, stored.value());
                self.transform_object(&resource, object, Some(stored.value()))?
            }
            (Content::Object(resource, object), _) => self.transform_object(&resource, object, None)?,
            (Content::List(resource, list), _) => self.transform_list(&resource, &list)?,
        };
        match protobuf::encode(&value) {
            Ok(written) => Ok((media, Body::Full(written.into()))),
            Err(protobuf::EncodeError::UnknownKind { .. }) => {
                let json = Format::Json.content_type();
                Ok((json, Body::Full(json_text(&value, false).into())))
            }
            Err(error) => Err(no_protobuf(error)),
        }
    }

    fn is_compact(&self) -> bool {
        self.output.format == Format::Json && !self.output.pretty
    }

    fn encode_value(&self, value: &Value) -> Bytes {
        match self.output.format {
            Format::Yaml => crate::wire::yaml::encode(value, crate::wire::yaml::Style::OBJECTS).into(),
            // Of a Status, which always has such a form.
            Format::Protobuf => protobuf::encode(value).unwrap_or_default().into(),
            Format::Json => json_text(value, self.output.pretty).into(),
        }
    }

    fn transform_object(&self, resource: &Resource, object: Value, stored: Option<&Value>) -> Result<Value, Status> {
        match self.output.transform {
            Transform::None => Ok(object),
            Transform::Partial(version) => {
                let mut partial = table::partial(&object);
                partial["apiVersion"] = json!(version);
                Ok(partial)
            }
            Transform::PartialList(_) => Err(not_a("PartialObjectMetadataList", "not a list", resource)),
            Transform::Table(version) => {
                let mut metadata = json!({});
                let version_of = crate::model::object::text(&object, "resourceVersion");
                if !version_of.is_empty() {
                    metadata["resourceVersion"] = json!(version_of);
                }
                let shown = Shown {
                    object: &object,
                    stored,
                };
                self.table(resource, [shown], metadata, version)
            }
        }
    }

    fn transform_list(&self, resource: &Resource, list: &List) -> Result<Value, Status> {
        let objects = || list.items.iter().map(|item| full(resource, item.object().value()));
        let metadata = list.metadata(resource.custom.is_some());
        match self.output.transform {
            Transform::None => {
                let items: Vec<Value> = list.items.iter().map(|item| item.value(resource)).collect();
                Ok(
                    json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items}),
                )
            }
            Transform::PartialList(version) => {
                let items: Vec<Value> = objects()
                    .map(|object| {
                        let mut partial = table::partial(&object);
                        partial["apiVersion"] = json!(version);
                        partial
                    })
                    .collect();
                // Go writes a list without items as null here.
                let items = if items.is_empty() {
                    Value::Null
                } else {
                    Value::Array(items)
                };
                Ok(lists::partial_list(list, version, items))
            }
            Transform::Partial(_) => Err(not_a("PartialObjectMetadata", "a list", resource)),
            Transform::Table(version) => {
                let stored: Vec<Arc<StoredObject>> = list.items.iter().map(Item::object).collect();
                let objects: Vec<Value> = stored.iter().map(|item| full(resource, item.value())).collect();
                let shown = objects.iter().zip(&stored).map(|(object, stored)| Shown {
                    object,
                    stored: Some(stored.value()),
                });
                self.table(resource, shown, list.metadata(false), version)
            }
        }
    }

    /// A Table of objects, with the definitions of the columns.
    fn table<'o>(
        &self,
        resource: &Resource,
        objects: impl IntoIterator<Item = Shown<'o>>,
        metadata: Value,
        version: &str,
    ) -> Result<Value, Status> {
        Ok(table_of(resource, objects, metadata, self.table_options()?, version))
    }

    fn table_options(&self) -> Result<table::Options, Status> {
        let include = table::IncludeObject::parse(self.query.get("includeObject")).map_err(Status::bad_request)?;
        Ok(table::Options {
            include,
            now: self.env.now(),
            headers: true,
        })
    }
}

fn no_protobuf(error: protobuf::EncodeError) -> Status {
    Status::failure(500, "InternalError", format!("Internal error occurred: {error}"))
}

/// A Table in this version of `meta.k8s.io`, which its rows' metadata have as well.
pub(crate) fn table_of<'a>(
    resource: &Resource,
    objects: impl IntoIterator<Item = impl Into<Shown<'a>>>,
    metadata: Value,
    options: table::Options,
    version: &str,
) -> Value {
    let mut table = table::render(resource, objects, metadata, options);
    table["apiVersion"] = json!(version);
    for row in table
        .get_mut("rows")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        say_version(row, options, version);
    }
    table
}

/// Gives the metadata of a Table's row the version of the Table.
pub(super) fn say_version(row: &mut Value, options: table::Options, version: &str) {
    if options.include == table::IncludeObject::Metadata
        && version != "meta.k8s.io/v1"
        && let Some(object) = row.get_mut("object").and_then(Value::as_object_mut)
    {
        object.insert("apiVersion".to_owned(), json!(version));
    }
}

/// JSON as Go's encoder writes it: compact with a newline, indented without one.
pub(super) fn json_text(value: &Value, pretty: bool) -> Vec<u8> {
    let ordered = Ordered::by_kind(value);
    if pretty {
        return json::indented(&ordered);
    }
    let mut text = json::text(&ordered);
    text.push(b'\n');
    text
}

fn not_a(asked: &str, what: &str, resource: &Resource) -> Status {
    // By the names of Go's types.
    let list = what == "a list";
    let type_ = match (resource.custom.is_some(), list) {
        (true, true) => "unstructured.UnstructuredList".to_owned(),
        (true, false) => "unstructured.Unstructured".to_owned(),
        (false, list) => {
            // Go's internal types are those of the stored form.
            let package = match resource.stored_group().split('.').next() {
                None | Some("") => "core",
                Some(first) => first,
            };
            let kind = if list { &resource.list_kind } else { &resource.kind };
            format!("{package}.{kind}")
        }
    };
    let message = format!("you requested {asked}, but the requested object is {what} (*{type_})");
    Status::failure(406, "NotAcceptable", message)
}

fn plain(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let says_what = !matches!(code, 204 | 304);
    if says_what {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// `Warning: 299 - "text"`, without repetitions, shortened when there is too much.
fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen = BTreeSet::new();
    let length = |text: &str| text.chars().count();
    let total: usize = warnings
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|text| length(text))
        .sum();
    let mut written = 0;
    for warning in warnings {
        // A text that cannot stand in a header is dropped, as upstream.
        if seen.contains(warning) || warning.is_empty() || warning.contains(char::is_control) {
            continue;
        }
        // The one that goes beyond the limit is the last to be said.
        if written >= MAX_WARNINGS {
            return;
        }
        seen.insert(warning);
        let text = if total > MAX_WARNINGS {
            cut(warning, MAX_WARNING)
        } else {
            warning
        };
        written += length(text);
        let quoted: String = text
            .chars()
            .flat_map(|c| {
                if matches!(c, '"' | '\\') {
                    vec!['\\', c]
                } else {
                    vec![c]
                }
            })
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The first characters of a text.
fn cut(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first key tells, because keys are sorted: a present version must never be taken for a missing one.
    #[test]
    fn the_first_key_tells_whether_the_kind_goes_before_it() {
        for (object, want) in [
            (json!({}), false),
            (json!({"metadata": {}, "spec": {"apiVersion": "v1"}}), true),
            (json!({"apiVersion": "g/v1", "metadata": {}}), false),
            (json!({"a": 1, "apiVersion": "g/v1"}), false),
            (json!({"A\"": 1, "apiVersion": "g/v1"}), false),
            (json!({"\u{1}": 1, "apiVersion": "g/v1"}), false),
            (json!({"data": 1, "metadata": {}}), false),
            (json!({"kinds": 1}), true),
        ] {
            let text = object.to_string();
            assert_eq!(begins_after_kind(text.as_bytes()), want, "{text}");
            assert!(!want || object.get("apiVersion").is_none(), "{text}");
        }
    }
}
