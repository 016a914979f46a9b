//! One request on a connection of its own, as recorded: method, path, query, headers, user.

use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubewright_cluster::Listening;
use serde_json::{Map, Value, json};

use crate::common::{self, Who};

/// The answer, in the form that is compared.
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// `content-type`, `warning`, `retry-after`, `etag`, and the headers that the step asks for.
    pub(crate) headers: Map<String, Value>,
    pub(crate) body: Value,
}

/// Sends a request and waits for the head of the answer.
pub(crate) async fn open(listening: &Listening, request: &Value) -> Result<http::Response<Incoming>, String> {
    let auth = request["auth"].as_str();
    let who = if auth.is_none() { Who::Admin } else { Who::Nobody };
    let stream = common::raw(listening, who).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("no connection: {error}"))?;
    tokio::spawn(connection);
    let method = request["method"].as_str().unwrap_or("GET");
    let mut builder = http::Request::builder()
        .method(method)
        .uri(uri(request))
        .header("host", "localhost");
    let mut headers: Map<String, Value> = Map::new();
    headers.insert("user-agent".to_owned(), json!("replay/1.0"));
    headers.insert("accept".to_owned(), json!("application/json"));
    if let Some(token) = auth.filter(|auth| *auth != "none") {
        headers.insert("authorization".to_owned(), json!(format!("Bearer {token}")));
    }
    let body = body_of(&request["body"]);
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        headers.insert(name.to_lowercase(), value.clone());
    }
    if body.is_some() && !headers.contains_key("content-type") {
        headers.insert("content-type".to_owned(), json!("application/json"));
    }
    for (name, value) in &headers {
        let several = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in several {
            builder = builder.header(name, value.as_str().unwrap_or_default());
        }
    }
    let request = builder
        .body(Full::new(body.unwrap_or_default()))
        .map_err(|error| format!("the recorded request is none: {error}"))?;
    sender
        .send_request(request)
        .await
        .map_err(|error| format!("no answer: {error}"))
}

/// Longer than any recorded answer takes.
const LIMIT: Duration = Duration::from_secs(45);

/// Sends a request and reads the whole answer.
pub(crate) async fn call(listening: &Listening, request: &Value) -> Result<Answer, String> {
    let answer = tokio::time::timeout(LIMIT, whole(listening, request)).await;
    answer.unwrap_or_else(|_| Err(format!("no whole answer within {LIMIT:?}")))
}

async fn whole(listening: &Listening, request: &Value) -> Result<Answer, String> {
    let response = open(listening, request).await?;
    let seen: Vec<&str> = request["see"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let (code, headers) = (response.status().as_u16(), headers_of(&response, &seen));
    let gzipped = response
        .headers()
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip");
    let kind = response
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let bytes = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        // A server that does not want the rest of a body may close the connection after its answer.
        Err(_) => Bytes::new(),
    };
    let bytes = if gzipped { unzip(&bytes)? } else { bytes };
    Ok(Answer {
        code,
        headers,
        body: decode(&bytes, &kind),
    })
}

fn unzip(bytes: &[u8]) -> Result<Bytes, String> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut plain)
        .map_err(|error| format!("the answer is no gzip: {error}"))?;
    Ok(plain.into())
}

/// JSON where it is JSON, else text.
pub(crate) fn decode(bytes: &[u8], content_type: &str) -> Value {
    let text = String::from_utf8_lossy(bytes);
    if (content_type.contains("json") || text.starts_with("{\""))
        && let Ok(value) = serde_json::from_str(&text)
    {
        return value;
    }
    json!(text)
}

/// The headers that are compared.
pub(crate) fn headers_of(response: &http::Response<Incoming>, seen: &[&str]) -> Map<String, Value> {
    let mut out = Map::new();
    let mut warnings = Vec::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match name.as_str() {
            "warning" => warnings.push(value),
            name @ ("content-type" | "retry-after" | "etag") => drop(out.insert(name.to_owned(), json!(value))),
            name if seen.contains(&name) => drop(out.insert(name.to_owned(), json!(value))),
            _ => {}
        }
    }
    if !warnings.is_empty() {
        warnings.sort();
        out.insert("warning".to_owned(), json!(warnings));
    }
    out
}

/// A body: JSON, text sent as it is, or bytes in base64.
fn body_of(body: &Value) -> Option<Bytes> {
    match body {
        Value::Null => None,
        Value::String(text) => Some(Bytes::from(text.clone())),
        Value::Object(map) if map.len() == 1 && map.contains_key("$base64") => {
            let text = body["$base64"].as_str().unwrap_or_default();
            Some(
                base64::engine::general_purpose::STANDARD
                    .decode(text)
                    .expect("recorded base64")
                    .into(),
            )
        }
        other => Some(Bytes::from(other.to_string())),
    }
}

fn uri(request: &Value) -> String {
    let mut uri = quote(request["path"].as_str().unwrap_or("/"), "/:~!$&'()*+,;=@");
    let mut pairs = Vec::new();
    for (name, value) in request["query"].as_object().into_iter().flatten() {
        let several = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in several {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.push(format!("{}={}", quote(name, ""), quote(&text, "")));
        }
    }
    if !pairs.is_empty() {
        uri = format!("{uri}?{}", pairs.join("&"));
    }
    uri
}

/// Percent-encodes all but letters, digits, `_.-~` and `safe`.
fn quote(text: &str, safe: &str) -> String {
    text.bytes()
        .map(|byte| {
            let char = char::from(byte);
            if byte.is_ascii_alphanumeric() || "_.-~".contains(char) || byte.is_ascii() && safe.contains(char) {
                char.to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
