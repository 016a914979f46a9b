//! OpenAPI v2, as far as it is needed: a valid document that says that version 3 holds the definitions.
//!
//! kubectl falls back to it for what version 3 does not describe, such as a file of kind `List`, and gives up when it cannot have it. With
//! a document without definitions it leaves the checking of fields to the server, which does it for every object of the list.
//!
//! Not here: definitions and paths of version 2. Who looks a kind up in it finds nothing, and the description says where to look.

use bytes::Bytes;
use serde_json::json;

use crate::server::negotiate;

const TITLE: &str = "Kubernetes";
const DESCRIPTION: &str =
    "This server describes its API in OpenAPI v3 at /openapi/v3; this document holds no definitions.";
/// What clients ask for: the document as a protobuf message.
const PROTOBUF_WANTED: &str = "application/com.github.proto-openapi.spec.v2";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document in the form that the `Accept` header asks for, with its media type. `version` is that of the server.
pub fn document(accept: &str, version: &str) -> (&'static str, Bytes) {
    if accept.contains(PROTOBUF_WANTED) {
        // Document { swagger = 1, info = 2, paths = 8, definitions = 9 }, Info { title = 1, version = 2, description = 3 }
        let info = [
            field(1, TITLE.as_bytes()),
            field(2, version.as_bytes()),
            field(3, DESCRIPTION.as_bytes()),
        ]
        .concat();
        let document = [field(1, b"2.0"), field(2, &info), field(8, b""), field(9, b"")].concat();
        return (PROTOBUF, Bytes::from(document));
    }
    let info = json!({ "title": TITLE, "version": version, "description": DESCRIPTION });
    let token = json!({"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"});
    let document = json!({
        "swagger": "2.0", "info": info, "paths": {}, "definitions": {}, "parameters": {},
        "securityDefinitions": {"BearerToken": token}, "security": [{"BearerToken": []}]
    });
    ("application/json", Bytes::from(document.to_string()))
}

/// Whether a client takes either form.
pub(crate) fn is_accepted(headers: &http::HeaderMap) -> bool {
    negotiate::accepts(headers, "application/json") || negotiate::accept(headers).contains(PROTOBUF_WANTED)
}

/// A field of bytes in a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_where_the_definitions_are() {
        let (type_, body) = document("application/json", "v1.36.3");
        assert_eq!(type_, "application/json");
        let value: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(value["swagger"], "2.0");
        assert_eq!(value["info"]["description"], DESCRIPTION);

        let (type_, body) = document("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "v1.36.3");
        assert_eq!(type_, PROTOBUF);
        assert_eq!(&body[..5], b"\x0a\x032.0");
        assert!(
            body.windows(DESCRIPTION.len())
                .any(|window| window == DESCRIPTION.as_bytes())
        );
        assert!(body.ends_with(b"\x42\x00\x4a\x00"), "empty paths and definitions");
    }

    #[test]
    fn lengths_are_varints() {
        assert_eq!(field(1, &[7; 3]), [0x0a, 3, 7, 7, 7]);
        assert_eq!(field(9, &[0; 300])[..3], [0x4a, 0xac, 0x02]);
    }
}
