//! OpenAPI v2 (Swagger): one document of everything that is served, as JSON or as the protobuf message that kubectl
//! asks for.
//!
//! It is converted from the parts that the documents of version 3 are made of: `operations` converts paths,
//! `definitions` schemas, and `messages` says how the message is written. There is no second table of served kinds.
//!
//! The document is large and seldom asked for, so it is made for each answer and forgotten. It is made in pieces: at
//! one time only the paths of one group and version, or one schema, exist as a tree of values. Only the hash stays,
//! with the snapshot, so that a client with the present document gets its 304 without making the document again. The
//! request did not make the kinds, however many there are: each piece raises the budget of the request.

pub(super) mod definitions;
mod messages;
mod operations;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use kubewright_schema::{budget, decode};
use serde_json::{Value, json};

use super::gnostic::Content;
use super::schemas::Schemas;
use super::{contents, document_paths, gnostic};
use crate::model::Minor;
use crate::registry::{Snapshot, hash};
use crate::wire::negotiate;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The media type that clients ask for, which is not a valid one: it has an `@`.
const PROTOBUF_WANTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// How the document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON text.
    Json,
    /// The message `openapi.v2.Document` of gnostic.
    Protobuf,
}

impl Form {
    /// The form that the `Accept` header asks for; none when it takes neither.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        match negotiate::preferred(headers, &[JSON, PROTOBUF_WANTED, PROTOBUF])? {
            JSON => Some(Form::Json),
            _ => Some(Form::Protobuf),
        }
    }

    /// The media type of the answer.
    pub fn media_type(self) -> &'static str {
        match self {
            Form::Json => JSON,
            Form::Protobuf => PROTOBUF,
        }
    }

    fn write(self, value: &Value, content: &Content) -> Vec<u8> {
        match self {
            Form::Json => value.to_string().into_bytes(),
            Form::Protobuf => gnostic::write(value, content),
        }
    }
}

/// The ETag header of the document in either form, which `Vary` tells apart: the hash of the JSON text, or, where there
/// are custom kinds, of its sources; in quotes.
pub fn etag(snapshot: &Snapshot) -> String {
    let built_in = match snapshot.has_metrics() {
        true => &snapshot.kinds.v2_with_metrics,
        false => &snapshot.kinds.v2,
    };
    let of_snapshot = || {
        let rows = snapshot.resources();
        match super::fingerprints(rows.iter()) {
            made_from if made_from.is_empty() => {
                let of_text = || hash(&Parts::of(snapshot, Form::Json).into_json());
                built_in.get_or_init(of_text).clone()
            }
            made_from => hash(made_from.as_bytes()),
        }
    };
    format!("\"{}\"", snapshot.openapi.v2.get_or_init(of_snapshot))
}

/// `/openapi/v2`.
///
/// ```
/// use kubewright_apiserver::openapi::v2::{Form, document};
/// use kubewright_apiserver::registry::{Kinds, Registry};
///
/// let kinds = Kinds::new(kubewright_kinds::built_in(Default::default()));
/// let text = document(&Registry::of(kinds).snapshot(), Form::Json);
/// let document: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
/// assert_eq!(document["swagger"], "2.0");
/// assert_eq!(document["definitions"]["io.k8s.api.core.v1.Pod"]["type"], "object");
/// ```
pub fn document(snapshot: &Snapshot, form: Form) -> Bytes {
    let parts = Parts::of(snapshot, form);
    Bytes::from(match form {
        Form::Json => parts.into_json(),
        Form::Protobuf => parts.into_protobuf(),
    })
}

/// The parts of the document by name, written already.
type Written = BTreeMap<String, Vec<u8>>;

struct Parts {
    minor: Minor,
    paths: Written,
    definitions: Written,
    parameters: Written,
}

impl Parts {
    fn of(snapshot: &Snapshot, form: Form) -> Self {
        let mut shared = operations::Shared::default();
        let mut schemas = Schemas::of_v2(snapshot.minor());
        let mut paths = Written::new();
        for document in document_paths(snapshot) {
            for (path, mut item) in contents(snapshot, &document, &mut schemas).into_iter().flatten() {
                operations::convert(&mut item, &mut shared);
                let written = form.write(&item, &messages::PATH_ITEM);
                budget::allow_stored(written.len());
                paths.insert(path, written);
            }
        }
        let definitions = schemas.into_texts().into_iter().map(|(name, text)| {
            budget::allow_stored(text.len());
            let mut schema = decode::stored(text.as_bytes())
                .expect("schemas are JSON texts, and lie deeper in their definitions than here");
            definitions::convert(&mut schema);
            (name, form.write(&schema, &messages::SCHEMA))
        });
        let definitions = definitions.collect();
        let parameters = shared.into_parameters();
        let parameters = parameters.map(|(name, parameter)| (name, form.write(&parameter, &messages::PARAMETER)));
        Self {
            minor: snapshot.minor(),
            parameters: parameters.collect(),
            paths,
            definitions,
        }
    }

    /// A little more than the bytes of all, so that the buffer does not grow by doubling.
    fn size(&self) -> usize {
        let all = [&self.paths, &self.definitions, &self.parameters];
        let entries = all.into_iter().flatten();
        entries
            .map(|(name, entry)| name.len() + entry.len() + 16)
            .sum::<usize>()
            + 512
    }

    fn into_json(self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.size());
        text.extend_from_slice(format!("{{\"swagger\":\"2.0\",\"info\":{}", info(self.minor)).as_bytes());
        let sections = [
            ("paths", self.paths),
            ("definitions", self.definitions),
            ("parameters", self.parameters),
        ];
        for (name, entries) in sections {
            text.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
            for (index, (name, entry)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(Value::from(name).to_string().as_bytes());
                text.push(b':');
                text.extend_from_slice(&entry);
            }
            text.push(b'}');
        }
        let end = format!(
            ",\"securityDefinitions\":{},\"security\":{}}}",
            security_definitions(),
            security()
        );
        text.extend_from_slice(end.as_bytes());
        text
    }

    fn into_protobuf(self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.size());
        message.extend(gnostic::write(
            &json!({"swagger": "2.0", "info": info(self.minor)}),
            &messages::DOCUMENT,
        ));
        gnostic::section(messages::PATHS, self.paths, &mut message);
        gnostic::section(messages::DEFINITIONS, self.definitions, &mut message);
        gnostic::section(messages::PARAMETERS, self.parameters, &mut message);
        let end = json!({"securityDefinitions": security_definitions(), "security": security()});
        message.extend(gnostic::write(&end, &messages::DOCUMENT));
        message
    }
}

fn info(minor: Minor) -> Value {
    json!({"title": "Kubernetes", "version": minor.to_string()})
}

fn security_definitions() -> Value {
    json!({"BearerToken": {"description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header"}})
}

fn security() -> Value {
    json!([{"BearerToken": []}])
}

#[cfg(test)]
mod tests;
