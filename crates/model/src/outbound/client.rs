//! A webhook as its configuration describes it (`WebhookClientConfig`), asked with a document and answering with one.
//!
//! Errors are texts in the words of Go's client, for they end up in answers to users.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubewright_schema::{base64, budget, decode};
use serde_json::{Value, json};

use super::{
    AdmissionQuestion, AdmissionVerdict, Destination, Inside, Outbound, OutboundAnswer, OutboundCall, OutboundError,
};
use crate::scheme::not_an_object;
use crate::scheme::{split_version, unknown_conversion, unregistered};
use crate::status::{INVALID, METHOD_NOT_ALLOWED, NO_SUCH_PATH};
use crate::values::get;

/// How much of an answer that is no document is shown, in bytes.
const SHOWN: usize = 2048;

/// The address of a webhook and the certificates to trust.
#[derive(Clone, Debug)]
pub struct Client {
    to: Destination,
    /// Of `to`.
    url: String,
    ca_bundle: Bytes,
}

/// Which document is asked for with: its group, version and kind.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
}

impl Document {
    /// Group and version.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// `admission.k8s.io/v1, Kind=AdmissionReview`.
    pub fn text(self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }

    /// Go's decoder fills a document of the version that was asked for, and no other.
    fn check(self, answer: &Value) -> Result<(), String> {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or("");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let absent = version.is_empty() || kind.is_empty();
        if absent || (version == self.api_version() && kind == self.kind) {
            return Ok(());
        }
        let (group, short) = split_version(version);
        if group == self.group && kind == self.kind && ["v1", "v1beta1"].contains(&short) {
            return Err(unknown_conversion(short, kind, self.version, self.kind));
        }
        if version == "v1" && kind == "Status" && text("status") != "Success" {
            return Err(text("message").to_owned());
        }
        Err(unregistered(kind, version))
    }
}

/// Group, version and kind that a document says it is of, as Go prints them.
pub fn kind_text(document: &Value) -> String {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or("");
    let version = text("apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", text("kind"))
}

impl Client {
    /// Reads a `WebhookClientConfig` as it is stored.
    ///
    /// # Errors
    /// When it names neither a URL nor a service.
    pub fn new(config: &Value) -> Result<Client, String> {
        let text = |keys: &[&str]| get(config, keys).as_str().unwrap_or("").to_owned();
        let to = if get(config, &["service"]).is_object() {
            Destination::Service {
                namespace: text(&["service", "namespace"]),
                name: text(&["service", "name"]),
                path: text(&["service", "path"]),
                port: get(config, &["service", "port"])
                    .as_u64()
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(443),
            }
        } else {
            match text(&["url"]) {
                url if url.is_empty() => {
                    return Err("webhook configuration must have either service or URL".to_owned());
                }
                url => Destination::Url(url),
            }
        };
        let bundle = text(&["caBundle"]);
        let ca_bundle = base64::decode(&bundle)
            .map_err(|at| format!("could not decode caBundle: illegal base64 data at input byte {at}"))?;
        Ok(Client {
            url: to.url(),
            to,
            ca_bundle: Bytes::from(ca_bundle),
        })
    }

    /// Sends a document of a kind, as JSON, and reads the one of the same kind that comes back.
    ///
    /// # Errors
    /// Why there is none: no connection, no time left, an HTTP error, no JSON, another kind.
    pub async fn post(
        &self,
        outbound: &dyn Outbound,
        kind: Document,
        document: String,
        timeout: Duration,
    ) -> Result<Value, String> {
        let query = query(timeout);
        let call = OutboundCall {
            to: self.to.clone(),
            ca_bundle: self.ca_bundle.clone(),
            body: Bytes::from(document),
            query: query.clone(),
            timeout,
        };
        budget::call_out();
        let answer = outbound
            .call(call)
            .await
            .map_err(|error| self.unanswered(&error, &query))?;
        let read = read(&answer)?;
        kind.check(&read)?;
        Ok(read)
    }

    /// The webhook, if it is in this process and takes questions that are not written.
    pub fn inside(&self, outbound: &dyn Outbound) -> Option<Arc<dyn Inside>> {
        outbound.inside(&self.url)
    }

    /// Asks the webhook that is [`inside`](Client::inside).
    ///
    /// # Errors
    /// Why there is no answer, as [`post`](Client::post) says it.
    pub async fn ask(
        &self,
        inside: &dyn Inside,
        question: AdmissionQuestion,
        timeout: Duration,
    ) -> Result<AdmissionVerdict, String> {
        budget::call_out();
        let asked = inside.ask(question, timeout).await;
        asked.map_err(|error| self.unanswered(&error, &query(timeout)))
    }

    fn unanswered(&self, error: &OutboundError, query: &str) -> String {
        match error {
            OutboundError::Elsewhere { url, why } => format!("Post \"{url}\": {why}"),
            error => format!("Post \"{}?{query}\": {error}", self.url),
        }
    }
}

fn query(timeout: Duration) -> String {
    format!("timeout={}s", timeout.as_secs())
}

/// The document in an HTTP answer.
fn read(answer: &OutboundAnswer) -> Result<Value, String> {
    if !(200..=206).contains(&answer.code) {
        return Err(refusal(answer));
    }
    if answer.body.is_empty() {
        return Err(format!(
            "0-length response with status code: {} and content type: {}",
            answer.code, answer.content_type
        ));
    }
    document(&answer.body)
}

/// A document that does not begin as a JSON object is read as YAML.
fn document(body: &[u8]) -> Result<Value, String> {
    let unfit = |error: &dyn Display| format!("couldn't get version/kind; json parse error: {error}");
    let is_json = body.trim_ascii_start().starts_with(b"{");
    let value = if is_json {
        decode::json(body).map_err(|error| unfit(&error))?.value
    } else {
        decode::yaml(body).map_err(|error| error.to_string())?.value
    };
    match value {
        Value::Object(_) => Ok(value),
        // Go leaves a struct as it is.
        Value::Null => Ok(json!({})),
        other => Err(not_an_object(&other)),
    }
}

/// The error of Go's client for an HTTP status (`NewGenericServerResponse`).
fn refusal(answer: &OutboundAnswer) -> String {
    // A Status in the body says it better.
    if let Ok(read) = decode::json(&answer.body)
        && read.value.get("kind").and_then(Value::as_str) == Some("Status")
        && let Some(message) = read.value.get("message").and_then(Value::as_str)
    {
        return message.to_owned();
    }
    let is_text = answer.content_type.is_empty() || answer.content_type.starts_with("text/");
    let said = if is_text {
        let shown = &answer.body[..answer.body.len().min(SHOWN)];
        String::from_utf8_lossy(shown).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    match answer.code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => NO_SUCH_PATH,
        405 => METHOD_NOT_ALLOWED,
        406 if said.is_empty() || said == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => return said,
        409 => "the server reported a conflict",
        422 => INVALID,
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        code if code >= 500 => {
            return format!("an error on the server ({said:?}) has prevented the request from succeeding");
        }
        code => {
            return format!("the server responded with the status code {code} but did not return more information");
        }
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_over_http() {
        let review = Document {
            group: "admission.k8s.io",
            version: "v1",
            kind: "AdmissionReview",
        };
        let check = |code: u16, content_type: &str, body: &str, expected: &str| {
            let answer = OutboundAnswer {
                code,
                content_type: content_type.to_owned(),
                body: Bytes::from(body.to_owned()),
            };
            let said = read(&answer).and_then(|read| review.check(&read).map(|()| read.to_string()));
            assert_eq!(said.unwrap_or_else(|why| why), expected, "{code} {body}");
        };
        check(
            200,
            "application/json",
            "",
            "0-length response with status code: 200 and content type: application/json",
        );
        check(200, "", "{}", "{}");
        check(200, "", "null", "{}");
        check(200, "application/yaml", "a: {b: 1}", r#"{"a":{"b":1}}"#);
        check(
            200,
            "text/plain",
            "hello",
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
        );
        check(
            404,
            "text/plain",
            "404 page not found\n",
            "the server could not find the requested resource",
        );
        check(
            500,
            "text/plain",
            "boom\n",
            "an error on the server (\"boom\") has prevented the request from succeeding",
        );
        check(
            500,
            "application/json",
            "{}",
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        );
        check(
            418,
            "",
            "",
            "the server responded with the status code 418 but did not return more information",
        );
        check(
            200,
            "",
            &json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}).to_string(),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        );
        check(
            403,
            "",
            &json!({"apiVersion": "v1", "kind": "Status", "message": "no"}).to_string(),
            "no",
        );
    }
}
