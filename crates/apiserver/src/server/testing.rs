//! Requests, for the tests of the server.

use bytes::Bytes;
use http::Request;
use serde_json::Value;

/// The text of a body; empty for null.
pub(crate) fn text(body: &Value) -> Bytes {
    match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    }
}

/// A request with a body in JSON.
pub(crate) fn request(method: &str, path: &str, body: &Value) -> Request<Bytes> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", "application/json");
    request.body(text(body)).expect("a request")
}
