//! Requests of a reflector, and how their answers become objects.
//!
//! Answers are decoded straight into `K`. Where that fails, a second look goes object by object: what can be named is handed on as
//! [`Unreadable`] and its neighbours are kept. Invariants: managedFields never reach the cache; an object of a list that does not say its
//! kind, as the API allows, gets the kind of the list when it is dynamic; what is no JSON, or has no name, is a failed answer; a panic in
//! the type's `Deserialize` is an error of that object (RF11).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch, WatchParams};
use kube::core::watch::Bookmark;
use kube::core::{Request as Requests, Status};
use kubewright_engine::reflector::{Failure, FailureKind, Input, ListPage, ListVersion, WatchEvent};
use kubewright_engine::{ObjectKey, ResourceVersion, Unreadable};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::scope::Scope;
use crate::error::{Chain, end_of_panic};
use crate::form::{Cached, Form, Frame, Page, without_place};
use crate::metrics::Metrics;
use crate::object::collection_path;

/// How long one page of a list may take. A server that is silent for longer is taken for dead.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the answer to a watch may take to begin; the server sends its head at once.
const WATCH_OPENING: Duration = Duration::from_secs(30);
/// The longest watch frame: far above what etcd can store, and a bound for what a broken server can make us hold.
const MAX_FRAME: usize = 64 << 20;
/// How many bytes of the reason are kept for an object that does not decode: serde quotes values, which may be long.
const MAX_REASON: usize = 1024;
/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What to ask for.
pub(super) struct Wire {
    pub(super) kube: kube::Client,
    pub(super) metrics: Metrics,
    pub(super) form: Form,
    pub(super) scope: Scope,
}

impl Wire {
    fn requests(&self) -> Requests {
        Requests::new(collection_path(&self.form.resource, self.scope.namespace.as_deref()))
    }

    fn label_selector(&self) -> Option<String> {
        (!self.scope.labels.selects_all()).then(|| self.scope.labels.to_string())
    }

    /// One page of a LIST.
    pub(super) async fn list(
        &self,
        version: ListVersion,
        limit: Option<u32>,
        token: Option<String>,
    ) -> Input<dyn Cached> {
        let params = ListParams {
            label_selector: self.label_selector(),
            field_selector: self.scope.fields.clone(),
            limit,
            continue_token: token,
            version_match: matches!(version, ListVersion::NotOlderThan(_)).then_some(VersionMatch::NotOlderThan),
            resource_version: match &version {
                ListVersion::NotOlderThan(version) => Some(version.as_str().to_owned()),
                ListVersion::Newest => None,
            },
            ..Default::default()
        };
        let requests = self.requests();
        let request = if self.form.metadata_only {
            requests.list_metadata(&params)
        } else {
            requests.list(&params)
        };
        match tokio::time::timeout(LIST_TIMEOUT, self.page(request)).await {
            Ok(Ok(page)) => Input::Page(page),
            Ok(Err(failure)) => Input::Failed(failure),
            Err(_) => Input::Failed(Failure::new(
                FailureKind::Connection,
                format!("the list was not answered within {LIST_TIMEOUT:?}"),
            )),
        }
    }

    async fn page(&self, request: Built) -> Result<ListPage<dyn Cached>, Failure> {
        let body = self.send(request).await?;
        let body = body.collect().await.map_err(|error| broken(&error))?.to_bytes();
        decode_page(&body, &self.form)
    }

    /// Opens a watch.
    pub(super) async fn watch(
        &self,
        version: Option<ResourceVersion>,
        send_initial_events: bool,
        timeout: Duration,
    ) -> Result<Frames, Failure> {
        let params = WatchParams {
            label_selector: self.label_selector(),
            field_selector: self.scope.fields.clone(),
            timeout: Some(u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events,
        };
        let version = version.as_ref().map_or("", ResourceVersion::as_str);
        let requests = self.requests();
        let request = if self.form.metadata_only {
            requests.watch_metadata(&params, version)
        } else {
            requests.watch(&params, version)
        };
        let Ok(answered) = tokio::time::timeout(WATCH_OPENING, self.send(request)).await else {
            let message = format!("the watch was not answered within {WATCH_OPENING:?}");
            return Err(Failure::new(FailureKind::Connection, message));
        };
        Ok(Frames {
            body: answered?,
            buffer: BytesMut::new(),
            scanned: 0,
            form: self.form.clone(),
        })
    }

    async fn send(&self, request: Built) -> Result<Body, Failure> {
        let request = request.map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
        let mut request = request.map(Body::from);
        // A compressed watch would arrive in blocks, that is late.
        let identity = http::HeaderValue::from_static("identity");
        request
            .headers_mut()
            .entry(http::header::ACCEPT_ENCODING)
            .or_insert(identity);
        let sent = self.kube.send(request).await;
        let code = sent.as_ref().ok().map(|response| response.status().as_u16());
        self.metrics.requested(&http::Method::GET, code);
        let response = sent.map_err(|error| failure_of(&error))?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let code = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(http::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| broken(&error))?
            .to_bytes();
        let mut failure = match serde_json::from_slice::<Status>(&body) {
            Ok(status) if !status.message.is_empty() || !status.reason.is_empty() => {
                let code = if status.code == 0 { code } else { status.code };
                status_failure(code, &status)
            }
            _ => {
                let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                Failure::new(FailureKind::of_status(code, "", false), format!("HTTP {code}: {text}"))
            }
        };
        failure.retry_after = failure.retry_after.or(retry_after.map(Duration::from_secs));
        Err(failure)
    }
}

type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(
        FailureKind::Connection,
        format!("the connection broke: {}", Chain(error)),
    )
}

fn failure_of(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => status_failure(status.code, status),
        other => Failure::new(FailureKind::Connection, Chain(other).to_string()),
    }
}

fn status_failure(code: u16, status: &Status) -> Failure {
    let details = status.details.as_ref();
    let too_large = details.is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.reason == "ResourceVersionTooLarge")
    });
    let message = if status.message.is_empty() {
        format!("{} (HTTP {code})", status.reason)
    } else {
        status.message.clone()
    };
    let mut failure = Failure::new(FailureKind::of_status(code, &status.reason, too_large), message);
    failure.retry_after = details
        .map(|details| details.retry_after_seconds)
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(u64::from(seconds)));
    failure
}

/// The body of a watch, cut into lines.
pub(super) struct Frames {
    body: Body,
    buffer: BytesMut,
    /// Up to here the buffer is known to hold no line end.
    scanned: usize,
    form: Form,
}

impl Frames {
    /// The next event, or how the stream ended.
    pub(super) async fn next(&mut self) -> Input<dyn Cached> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + at);
                self.buffer.advance(1);
                self.scanned = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return decode_event(&line, &self.form);
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_FRAME {
                return Input::Failed(Failure::new(
                    FailureKind::Decode,
                    format!("a watch frame is longer than {MAX_FRAME} bytes"),
                ));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Input::Failed(broken(&error)),
                None => {
                    return Input::Ended {
                        clean: self.buffer.iter().all(u8::is_ascii_whitespace),
                    };
                }
            }
        }
    }
}

fn decode_event(line: &[u8], form: &Form) -> Input<dyn Cached> {
    let error = match guarded(|| (form.decode.frame)(line).and_then(|frame| meaning(frame, form))) {
        Ok(event) => return Input::Event(event),
        Err(error) => error,
    };
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    let object = unreadable(&value["object"], &error);
    match (value["type"].as_str(), object) {
        (Some("ADDED" | "MODIFIED"), Some(object)) => Input::Event(WatchEvent::Unreadable(object)),
        (Some("DELETED"), Some(object)) => Input::Event(WatchEvent::UnreadableDeleted(object)),
        _ => Input::Failed(undecodable(&error)),
    }
}

/// Runs a user's `Deserialize`, which may panic (and so may a `Drop` of what it had read).
pub(crate) fn guarded<T>(decode: impl FnOnce() -> serde_json::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(bounded(without_place(&error))),
        Err(payload) => Err(bounded(format!("its Deserialize panicked: {}", end_of_panic(payload)))),
    }
}

fn bounded(mut reason: String) -> String {
    if reason.len() > MAX_REASON {
        let end = (0..=MAX_REASON).rev().find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        reason.push('…');
    }
    reason
}

fn meaning(frame: Frame, form: &Form) -> Result<WatchEvent<dyn Cached>, serde_json::Error> {
    const KNOWN: &[&str] = &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
    let Frame { event, object, other } = frame;
    let object = match (event.as_str(), object, other) {
        ("", ..) => return Err(serde_json::Error::missing_field("type")),
        (_, None, None) => return Err(serde_json::Error::missing_field("object")),
        ("BOOKMARK", _, Some(other)) => return Ok(bookmark(&Bookmark::deserialize(&other)?)),
        ("ERROR", _, Some(other)) => {
            let status = Status::deserialize(&other)?;
            return Ok(WatchEvent::Error(status_failure(status.code, &status)));
        }
        (kind, None, Some(_)) if !KNOWN.contains(&kind) => return Err(serde_json::Error::unknown_variant(kind, KNOWN)),
        (_, Some(object), _) => object,
        (_, None, Some(other)) => (form.decode.kept)(&serde_json::to_vec(&other)?)?,
    };
    Frame::event_of(&event, object).ok_or_else(|| serde_json::Error::unknown_variant(&event, KNOWN))
}

fn bookmark(bookmark: &Bookmark) -> WatchEvent<dyn Cached> {
    let metadata = &bookmark.metadata;
    WatchEvent::Bookmark {
        version: ResourceVersion::new(&metadata.resource_version),
        initial_events_end: metadata
            .annotations
            .get(INITIAL_EVENTS_END)
            .is_some_and(|value| value == "true"),
    }
}

/// What can be said of an object that does not decode; `None` when it has no name.
fn unreadable(object: &Value, reason: &str) -> Option<Unreadable> {
    let text = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
    Some(Unreadable {
        key: ObjectKey::new(text("namespace"), text("name")?),
        uid: text("uid").map(str::to_owned),
        resource_version: text("resourceVersion").map(ResourceVersion::new),
        message: reason.to_owned(),
    })
}

/// An answer that cannot be understood, not even as a list of named objects.
fn undecodable(reason: &str) -> Failure {
    Failure::new(
        FailureKind::Decode,
        format!("the answer cannot be decoded into the Rust type: {reason}"),
    )
}

/// Reads a page of a list, object by object where some do not decode.
pub(crate) fn decode_page(body: &[u8], form: &Form) -> Result<ListPage<dyn Cached>, Failure> {
    if form.says_kind
        && let Ok(page) = guarded(|| (form.decode.page)(body))
    {
        return Ok(list_page(page, Vec::new()));
    }
    page_by_object(body, form)
}

fn list_page(page: Page, unreadable: Vec<Unreadable>) -> ListPage<dyn Cached> {
    ListPage {
        items: page.items,
        unreadable,
        resource_version: page
            .resource_version
            .filter(|version| !version.is_empty())
            .map(|version| ResourceVersion::new(&version)),
        continue_token: page.continue_token,
    }
}

/// A page as it was sent.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: Value,
    #[serde(default = "Option::default")]
    items: Option<Vec<Value>>,
}

/// A page, decoded object by object: because they must be told their kind, or because not all of them can be decoded.
fn page_by_object(body: &[u8], form: &Form) -> Result<ListPage<dyn Cached>, Failure> {
    let raw: Raw = serde_json::from_slice(body).map_err(|error| undecodable(&without_place(&error)))?;
    let text = |field: &str| raw.metadata[field].as_str().map(str::to_owned);
    let mut page = Page {
        items: Vec::new(),
        resource_version: text("resourceVersion"),
        continue_token: text("continue"),
    };
    let mut bad = Vec::new();
    for mut item in raw.items.unwrap_or_default() {
        if !form.says_kind {
            tell_kind(&mut item, form);
        }
        match guarded(|| serde_json::to_vec(&item).and_then(|text| (form.decode.kept)(&text))) {
            Ok(object) => page.items.push(object),
            Err(reason) => bad.push(unreadable(&item, &reason).ok_or_else(|| undecodable(&reason))?),
        }
    }
    Ok(list_page(page, bad))
}

fn tell_kind(item: &mut Value, form: &Form) {
    if let Some(object) = item.as_object_mut() {
        let resource = &form.resource;
        let version = || resource.api_version.clone().into();
        object.entry("apiVersion").or_insert_with(version);
        object.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::form::typed;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    fn form() -> Form {
        Form::of::<ConfigMap>()
    }

    fn bad(key: &str, version: &str, reason: &str) -> Unreadable {
        let (namespace, name) = key
            .split_once('/')
            .map_or((None, key), |(namespace, name)| (Some(namespace), name));
        Unreadable {
            key: ObjectKey::new(namespace, name),
            uid: None,
            resource_version: Some(version.into()),
            message: reason.to_owned(),
        }
    }

    /// RF11: an object that does not decode is named, with its version, and its neighbours are kept.
    #[test]
    fn rf11_an_object_that_does_not_decode_is_named_and_the_others_are_kept() {
        let reason = "invalid type: integer `7`, expected a map";
        let line = |kind: &str| {
            format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"a","name":"b","resourceVersion":"5"}},"data":7}}}}"#
            )
        };
        let Input::Event(WatchEvent::Unreadable(object)) = decode_event(line("MODIFIED").as_bytes(), &form()) else {
            panic!("a number is no map of strings")
        };
        assert_eq!(object, bad("a/b", "5", reason));
        let deleted = decode_event(line("DELETED").as_bytes(), &form());
        assert!(
            matches!(deleted, Input::Event(WatchEvent::UnreadableDeleted(_))),
            "{deleted:?}"
        );

        let x = r#"{"metadata":{"name":"x"}}"#;
        let y = r#"{"metadata":{"name":"y","resourceVersion":"3"},"data":7}"#;
        let list =
            |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"t"}},"items":[{items}]}}"#);
        let page = decode_page(list(&format!("{x},{y}")).as_bytes(), &form()).expect("x is fine");
        assert_eq!(
            (page.items.len(), &page.unreadable[..]),
            (1, &[bad("y", "3", reason)][..])
        );
        assert_eq!(page.continue_token.as_deref(), Some("t"));

        let nameless = decode_page(list("7").as_bytes(), &form()).expect_err("nobody knows what this is");
        assert_eq!(nameless.kind, FailureKind::Decode);
        decode_page(b"{\"items\":[", &form()).expect_err("no JSON");
    }

    /// RF11: a panic of the type is an error of one object, and a long reason is cut.
    #[test]
    fn rf11_a_panic_while_decoding_is_an_error_of_the_object() {
        let reason = guarded::<()>(|| panic!("unexpected colour")).expect_err("it panicked");
        assert_eq!(reason, "its Deserialize panicked: unexpected colour");
        let reason = guarded::<()>(|| Err(serde_json::Error::custom("é".repeat(MAX_REASON)))).expect_err("it failed");
        assert!(reason.len() < MAX_REASON + 8 && reason.ends_with('…'));
    }

    #[test]
    fn events_are_read_in_whatever_order_they_are_written() {
        let check = |line: &str, expected: &str| {
            let said = match decode_event(line.as_bytes(), &form()) {
                Input::Event(WatchEvent::Added(object)) => {
                    format!("added {}", object.metadata().name.clone().unwrap_or_default())
                }
                Input::Event(WatchEvent::Deleted(object)) => {
                    format!("deleted, managed {:?}", object.metadata().managed_fields)
                }
                Input::Event(WatchEvent::Bookmark { initial_events_end, .. }) => {
                    format!("bookmark, end {initial_events_end}")
                }
                Input::Failed(failure) => failure.message,
                _ => "something else".to_owned(),
            };
            assert!(said.contains(expected), "{line}: {said}");
        };
        check(
            r#"{"type":"ADDED","object":{"metadata":{"name":"x"}},"more":[1]}"#,
            "added x",
        );
        check(r#"{"object":{"metadata":{"name":"x"}},"type":"ADDED"}"#, "added x");
        check(
            r#"{"type":"DELETED","object":{"metadata":{"managedFields":[{"manager":"m"}]}}}"#,
            "deleted, managed None",
        );
        let end = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        check(
            &format!(r#"{{"type":"BOOKMARK","object":{end}}}"#),
            "bookmark, end true",
        );
        check(r#"{"type":"ADDED","object":{"data":7}}"#, "cannot be decoded");
        check(r#"{"type":"MOVED","object":{}}"#, "unknown variant `MOVED`");
        check(r#"{"type":"ADDED"}"#, "missing field `object`");
        check(r#"{"object":{}}"#, "missing field `type`");
    }

    #[test]
    fn items_of_a_dynamic_list_get_their_kind_and_lose_managed_fields() {
        let list = br#"{"metadata":{"resourceVersion":"1","continue":"t"},"items":[{"metadata":{"name":"x","managedFields":[{"manager":"m"}]}}]}"#;
        let form = Form::for_resource::<DynamicObject>(&form().resource);
        let page = decode_page(list, &form).expect("a list");
        let item: Arc<DynamicObject> = typed(page.items[0].clone());
        let types = item.types.as_ref().expect("the kind of the list");
        assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "ConfigMap"));
        assert_eq!(item.metadata.managed_fields, None);
        assert_eq!(page.continue_token.as_deref(), Some("t"));
    }

    #[test]
    fn failures_are_sorted_by_what_to_do_next() {
        let status = |code: u16, reason: &str| status_failure(code, &Status::failure("m", reason).with_code(code)).kind;
        assert_eq!(status(410, "Expired"), FailureKind::Expired);
        assert_eq!(status(403, "Forbidden"), FailureKind::Forbidden);
        assert_eq!(status(404, "NotFound"), FailureKind::NotFound);
        let line = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}"#;
        let Input::Event(WatchEvent::Error(failure)) = decode_event(line, &form()) else {
            panic!("an error event")
        };
        assert_eq!(failure.kind, FailureKind::Expired);
    }
}
