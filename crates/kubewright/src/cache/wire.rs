//! Requests of a reflector, and how their answers become objects.
//!
//! Answers are decoded straight into `K`. Where a typed decode fails, the second look says which object it was: people must be able to find
//! it. Invariants: managedFields never reach the cache; an object of a list that does not say its kind, as the API allows, gets the kind of
//! the list when it is dynamic; a broken frame is an error, never a skipped object.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch, WatchParams};
use kube::core::watch::Bookmark;
use kube::core::{Request as Requests, Status};
use kubewright_engine::ResourceVersion;
use kubewright_engine::reflector::{Failure, FailureKind, Input, ListPage, ListVersion, WatchEvent};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::scope::Scope;
use crate::error::Chain;
use crate::form::{Cached, Form, Frame, Page, without_place};
use crate::object::collection_path;

/// How long one page of a list may take. A server that is silent for longer is taken for dead.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest watch frame: far above what etcd can store, and a bound for what a broken server can make us hold.
const MAX_FRAME: usize = 64 << 20;
/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What to ask for.
pub(super) struct Wire {
    pub(super) kube: kube::Client,
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
        let body = self.send(request).await?;
        Ok(Frames {
            body,
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
        let response = self.kube.send(request).await.map_err(|error| failure_of(&error))?;
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
    match (form.decode.frame)(line).and_then(|frame| meaning(frame, form)) {
        Ok(event) => Input::Event(event),
        Err(error) => {
            let value: Value = serde_json::from_slice(line).unwrap_or_default();
            Input::Failed(undecodable(&value["object"], &error.to_string()))
        }
    }
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

/// Says which object it was that could not be decoded.
fn undecodable(object: &Value, error: &str) -> Failure {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let which = match (namespace.as_str(), name.as_str()) {
        ("", "") => "the answer".to_owned(),
        ("", name) => format!("object {name}"),
        (namespace, name) => format!("object {namespace}/{name}"),
    };
    Failure::new(
        FailureKind::Decode,
        format!("{which} cannot be decoded into the Rust type: {error}"),
    )
}

fn decode_page(body: &[u8], form: &Form) -> Result<ListPage<dyn Cached>, Failure> {
    let page = if form.says_kind {
        (form.decode.page)(body).map_err(|error| first_undecodable(body, form, &error))?
    } else {
        page_of_kind(body, form)?
    };
    Ok(ListPage {
        items: page.items,
        resource_version: page
            .resource_version
            .filter(|version| !version.is_empty())
            .map(|version| ResourceVersion::new(&version)),
        continue_token: page.continue_token,
    })
}

/// A page as it was sent.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: Value,
    #[serde(default = "Option::default")]
    items: Option<Vec<Value>>,
}

/// A page whose objects are told their kind.
fn page_of_kind(body: &[u8], form: &Form) -> Result<Page, Failure> {
    let raw: Raw = serde_json::from_slice(body).map_err(|error| undecodable(&Value::Null, &error.to_string()))?;
    let text = |field: &str| raw.metadata[field].as_str().map(str::to_owned);
    let mut page = Page {
        items: Vec::new(),
        resource_version: text("resourceVersion"),
        continue_token: text("continue"),
    };
    for mut item in raw.items.unwrap_or_default() {
        if let Some(object) = item.as_object_mut() {
            object
                .entry("apiVersion")
                .or_insert_with(|| form.resource.api_version.clone().into());
            object
                .entry("kind")
                .or_insert_with(|| form.resource.kind.clone().into());
        }
        page.items.push(item_of(&item, form)?);
    }
    Ok(page)
}

fn item_of(item: &Value, form: &Form) -> Result<Arc<dyn Cached>, Failure> {
    let read = serde_json::to_vec(item).and_then(|text| (form.decode.kept)(&text));
    read.map_err(|error| undecodable(item, &without_place(&error)))
}

/// A page failed as a whole; this finds the object that is to blame.
fn first_undecodable(body: &[u8], form: &Form, error: &serde_json::Error) -> Failure {
    let items = serde_json::from_slice::<Raw>(body).ok().and_then(|raw| raw.items);
    let guilty = items.into_iter().flatten().find_map(|item| item_of(&item, form).err());
    guilty.unwrap_or_else(|| undecodable(&Value::Null, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::typed;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    fn form() -> Form {
        Form::of::<ConfigMap>()
    }

    /// RF11: a frame that cannot be decoded is an error that names the object.
    #[test]
    fn rf11_an_undecodable_object_is_named() {
        let line = br#"{"type":"ADDED","object":{"metadata":{"namespace":"a","name":"b"},"data":7}}"#;
        let Input::Failed(failure) = decode_event(line, &form()) else {
            panic!("a number is no map of strings")
        };
        assert_eq!(failure.kind, FailureKind::Decode);
        assert!(failure.message.starts_with("object a/b cannot be decoded"), "{failure}");

        let list = br#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}},{"metadata":{"name":"y"},"data":7}]}"#;
        let failure = decode_page(list, &form()).expect_err("y is broken");
        assert!(failure.message.starts_with("object y cannot be decoded"), "{failure}");
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
        check(
            r#"{"type":"ADDED","object":{"metadata":{"name":"y"},"data":7}}"#,
            "object y cannot be decoded",
        );
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
