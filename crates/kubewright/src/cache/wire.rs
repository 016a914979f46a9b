//! Requests of a reflector, and how their answers become objects.
//!
//! Answers are cut into the texts of their objects as their bytes arrive (`cut.rs`): a list is never there as a whole.
//! An object for a cache is packed (`packed.rs`), and one that the cache already holds in this very version is not
//! packed again. An object that cannot be decoded but has a name is handed on as [`Unreadable`], and its neighbours are
//! kept. Invariants: managedFields never reach the cache; an object of a list that does not say its kind, as the API
//! allows, gets the kind of the list when it is dynamic; an object that is not JSON, or has no name, is a failed
//! answer; a panic in the type's `Deserialize` is an error of that object (RF11).

mod frames;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch, WatchParams};
use kube::core::watch::Bookmark;
use kube::core::{Request as Requests, Status};
use kubewright_engine::reflector::{Failure, FailureKind, Input, ListPage, ListVersion, WatchEvent};
use kubewright_engine::{ObjectKey, ResourceVersion, Unreadable};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

pub(super) use self::frames::Frames;
use super::core::EngineStore;
use super::coverage::{Content, Coverage};
use super::scope::Scope;
use super::shared::SharedStore;
use crate::error::Chain;
use crate::form::cut::{self, Lister};
use crate::form::packed::{Kept, Packed, Transform, transformed};
use crate::form::{Cached, Form, ObjectId, guarded, packed, without_place};
use crate::metrics::Metrics;
use crate::object::collection_path;

/// How long a list may bring nothing, before its head or between two pieces of its body. A server that is silent for
/// longer is taken for dead; one that is slow is not, however long a page takes: asked again it would take as long.
const LIST_SILENCE: Duration = Duration::from_secs(60);
/// How long the answer to a watch may take to begin; the server sends its head at once.
const WATCH_OPENING: Duration = Duration::from_secs(30);
/// The longest watch frame: far above the largest object that etcd can store, and a bound for the memory that a broken
/// server can take.
const MAX_FRAME: usize = 64 << 20;
/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The request to make.
pub(super) struct Wire {
    pub(super) kube: kube::Client,
    pub(super) metrics: Metrics,
    pub(super) target: Arc<Target>,
}

/// Where its objects go.
pub(super) struct Target {
    pub(super) store: Arc<SharedStore>,
    /// What of the resource it asks for.
    pub(super) coverage: Coverage,
    /// A store that is to replace the contents of the shared one.
    pub(super) staged: Option<Arc<RwLock<EngineStore>>>,
}

impl Target {
    /// How the text of an object is kept, and what there is of it.
    fn kept(&self) -> Kept {
        match self.coverage.content {
            Content::Metadata => Kept::Metadata,
            Content::Transformed(_) => Kept::Transformed,
            Content::Whole => Kept::Whole,
        }
    }

    /// The kind of an object that says none.
    fn kind(&self) -> (&str, &str) {
        match self.coverage.content {
            Content::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            _ => (&self.store.resource.api_version, &self.store.resource.kind),
        }
    }

    fn transform(&self) -> Option<Transform> {
        match self.coverage.content {
            Content::Transformed(kind) => self.store.decoders.transform(kind),
            _ => None,
        }
    }

    /// The object that is held already in this very version, and as it is to be kept.
    fn known(&self, id: ObjectId<'_>) -> Option<Arc<dyn Cached>> {
        let name = id.name?;
        let is_it = |found: &Arc<dyn Cached>| {
            let known = found.object_id();
            let same = known.version.is_some() && known.version == id.version && known.uid == id.uid;
            same && packed(&**found).is_some_and(|packed| packed.kept() == self.kept())
        };
        let staged = self.staged.as_ref().and_then(|staged| {
            let staged = staged.read().unwrap_or_else(PoisonError::into_inner);
            staged.get_by_name(id.namespace, name)
        });
        let stored = || self.store.read().store.get_by_name(id.namespace, name);
        staged.filter(is_it).or_else(|| stored().filter(is_it))
    }
}

impl Wire {
    fn requests(&self) -> Requests {
        let Target { store, coverage, .. } = &*self.target;
        Requests::new(collection_path(&store.resource, coverage.scope.namespace.as_deref()))
    }

    fn scope(&self) -> &Scope {
        &self.target.coverage.scope
    }

    fn metadata_only(&self) -> bool {
        self.target.coverage.content == Content::Metadata
    }

    fn label_selector(&self) -> Option<String> {
        (!self.scope().labels.selects_all()).then(|| self.scope().labels.to_string())
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
            field_selector: self.scope().fields.clone(),
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
        let request = if self.metadata_only() {
            requests.list_metadata(&params)
        } else {
            requests.list(&params)
        };
        match self.page(request).await {
            Ok(page) => Input::Page(page),
            Err(failure) => Input::Failed(failure),
        }
    }

    async fn page(&self, request: Built) -> Result<ListPage<dyn Cached>, Failure> {
        let mut body = unless_silent(self.send(request)).await??;
        let mut page = Page::new(Into::Cache(&self.target));
        while let Some(frame) = unless_silent(body.frame()).await? {
            if let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() {
                page.feed(&data)?;
            }
        }
        page.finish()
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
            field_selector: self.scope().fields.clone(),
            timeout: Some(u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events,
        };
        let version = version.as_ref().map_or("", ResourceVersion::as_str);
        let requests = self.requests();
        let request = if self.metadata_only() {
            requests.watch_metadata(&params, version)
        } else {
            requests.watch(&params, version)
        };
        let Ok(answered) = tokio::time::timeout(WATCH_OPENING, self.send(request)).await else {
            let message = format!("the watch was not answered within {WATCH_OPENING:?}");
            return Err(Failure::new(FailureKind::Connection, message));
        };
        Ok(Frames::new(answered?, self.target.clone(), send_initial_events))
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

/// What a list brings next.
async fn unless_silent<T>(next: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(LIST_SILENCE, next).await.map_err(|_| {
        let message = format!("the list brought nothing for {LIST_SILENCE:?}");
        Failure::new(FailureKind::Connection, message)
    })
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

/// What becomes of the objects.
#[derive(Clone, Copy)]
enum Into<'a> {
    /// They are decoded at once, as this form.
    Live(&'a Form),
    /// They are packed, for a store.
    Cache(&'a Target),
}

/// Reads objects.
struct Reader<'a> {
    into: Into<'a>,
    /// Where the text is put together.
    scratch: &'a mut Vec<u8>,
    /// The objects are those of a list, of which handlers are told when it is whole.
    of_list: bool,
}

impl<'a> Reader<'a> {
    fn new(into: Into<'a>, scratch: &'a mut Vec<u8>, of_list: bool) -> Reader<'a> {
        Reader { into, scratch, of_list }
    }

    /// Decodes an event; its members may come in any order.
    fn event(&mut self, line: &[u8]) -> Input<dyn Cached> {
        self.meaning(line)
            .map_or_else(|reason| Input::Failed(undecodable(&reason)), Input::Event)
    }

    fn meaning(&mut self, line: &[u8]) -> Result<WatchEvent<dyn Cached>, String> {
        const KNOWN: &[&str] = &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
        if let Some((kind, object)) = cut::event(line)
            && let Some(event) = self.whole(kind, object)
        {
            return Ok(event);
        }
        let text = |error: serde_json::Error| without_place(&error);
        let members = cut::members(line).ok_or_else(|| broken_text(line))?;
        let part = |name: &'static str| {
            let found = members.iter().find(|member| member.is(name)).map(|member| member.value);
            found.ok_or_else(|| text(serde_json::Error::missing_field(name)))
        };
        let kind: String = serde_json::from_slice(part("type")?).map_err(text)?;
        let object = part("object")?;
        match kind.as_str() {
            "BOOKMARK" => serde_json::from_slice(object)
                .map(|object| bookmark(&object))
                .map_err(text),
            "ERROR" => {
                let status: Status = serde_json::from_slice(object).map_err(text)?;
                Ok(WatchEvent::Error(status_failure(status.code, &status)))
            }
            kind => match of_object(kind.as_bytes()) {
                Some(meaning) => self.object(object).map(meaning),
                None => Err(text(serde_json::Error::unknown_variant(kind, KNOWN))),
            },
        }
    }

    /// The event of an object that is whole; `None` when it is no event of an object, or broken: then it is looked at
    /// with more care.
    fn whole(&mut self, kind: &[u8], object: &[u8]) -> Option<WatchEvent<dyn Cached>> {
        let meaning = of_object(kind)?;
        let Into::Cache(target) = self.into else { return None };
        let object = self.packed(object, target).ok()?;
        Some(meaning(Ok(object)))
    }

    /// One object. An object that cannot be decoded but has a name is the inner error, everything else the outer one.
    fn object(&mut self, text: &[u8]) -> Result<Found, String> {
        match self.into {
            Into::Live(form) => {
                let kind = (!form.says_kind).then_some((&*form.resource.api_version, &*form.resource.kind));
                self.scratch.clear();
                // A value that is no object is left to serde, which names its type.
                let lean = match cut::lean(text, kind, self.scratch) {
                    Some(_) => &self.scratch[..],
                    None => text,
                };
                let decoded = match std::str::from_utf8(lean) {
                    Ok(lean) => guarded(|| (form.decode.kept)(lean)),
                    Err(_) => Err(broken_text(lean)),
                };
                found(text, decoded)
            }
            Into::Cache(target) => {
                let packed = self.packed(text, target).or_else(|reason| {
                    // Perhaps it is only written in an odd way.
                    let value: Value = serde_json::from_slice(text).map_err(|error| without_place(&error))?;
                    let plain = serde_json::to_vec(&value).map_err(|error| without_place(&error))?;
                    self.packed(&plain, target).map_err(|_| reason)
                });
                found(text, packed)
            }
        }
    }

    /// An object as it is kept, or why there is none.
    fn packed(&mut self, text: &[u8], target: &Target) -> Result<Arc<dyn Cached>, String> {
        self.scratch.clear();
        let lean = cut::lean_without(text, Some(target.kind()), self.scratch);
        let (head, managed) = lean.ok_or_else(|| broken_text(text))?;
        let managed = managed.map(|range| &text[range]);
        let text = std::str::from_utf8(self.scratch).map_err(|error| error.to_string())?;
        let id = head.object_id(text).ok_or("an object has no metadata.name")?;
        if let Some(known) = target.known(id) {
            return Ok(known);
        }
        let (kept, decoders) = (target.kept(), &target.store.decoders);
        let applied = managed.and_then(|fields| target.store.listeners.managers.applied_in(fields));
        let object = match target.transform() {
            None => Packed::unread(text, head, kept, applied, decoders),
            Some(transform) => {
                let (text, head) = transformed(&transform, text, &head)?;
                // It is not the object that was applied any more.
                Packed::unread(&text, head, kept, None, decoders)
            }
        };
        // Now, object by object, and not all of a list at its end. What cannot be decoded is found again then.
        if self.of_list {
            for kind in target.store.checked(&target.coverage) {
                drop(object.arrive(kind));
            }
        }
        Ok(object)
    }
}

/// An object; or the facts about one that cannot be decoded, if it has a name.
fn found(text: &[u8], decoded: Result<Arc<dyn Cached>, String>) -> Result<Found, String> {
    decoded.map(Ok).or_else(|reason| {
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        unreadable(&value, &reason).map(Err).ok_or(reason)
    })
}

/// An object, or the facts about one that cannot be decoded.
type Found = Result<Arc<dyn Cached>, Unreadable>;

/// The event of this type for an object; `None` when the type is not about objects of the kind.
fn of_object(kind: &[u8]) -> Option<fn(Found) -> WatchEvent<dyn Cached>> {
    match kind {
        b"ADDED" => Some(|read| read.map_or_else(WatchEvent::Unreadable, WatchEvent::Added)),
        b"MODIFIED" => Some(|read| read.map_or_else(WatchEvent::Unreadable, WatchEvent::Modified)),
        b"DELETED" => Some(|read| read.map_or_else(WatchEvent::UnreadableDeleted, WatchEvent::Deleted)),
        _ => None,
    }
}

/// Why a text is no JSON, or no object.
fn broken_text(text: &[u8]) -> String {
    let read: serde_json::Result<serde_json::Map<String, Value>> = serde_json::from_slice(text);
    read.err()
        .map_or_else(|| "not a JSON object".to_owned(), |error| without_place(&error))
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

/// The facts about an object that does not decode; `None` when it has no name.
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

/// One page of a list, read object by object as it arrives.
struct Page<'a> {
    into: Into<'a>,
    lister: Lister,
    scratch: Vec<u8>,
    items: Vec<Arc<dyn Cached>>,
    unreadable: Vec<Unreadable>,
}

impl<'a> Page<'a> {
    fn new(into: Into<'a>) -> Page<'a> {
        Page {
            into,
            lister: Lister::default(),
            scratch: Vec::new(),
            items: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader::new(self.into, &mut self.scratch, true);
        let take = |item: &[u8]| {
            match reader.object(item)? {
                Ok(object) => self.items.push(object),
                Err(object) => self.unreadable.push(object),
            }
            Ok(())
        };
        self.lister.feed(bytes, take).map_err(|reason| undecodable(&reason))?;
        if self.lister.held() > MAX_FRAME {
            let message = format!("one item of the list, or what is no item, is longer than {MAX_FRAME} bytes");
            return Err(Failure::new(FailureKind::Decode, message));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ListPage<dyn Cached>, Failure> {
        self.lister.settle();
        self.feed(b"")?;
        let outer = self.lister.finish();
        let list: Outer = serde_json::from_slice(&outer)
            .map_err(|error| undecodable(&format!("it is no list: {}", without_place(&error))))?;
        let meta = list.metadata.unwrap_or_default();
        Ok(ListPage {
            items: self.items,
            unreadable: self.unreadable,
            resource_version: meta
                .resource_version
                .filter(|version| !version.is_empty())
                .map(|version| ResourceVersion::new(&version)),
            continue_token: meta.continue_,
        })
    }
}

/// A list without its items.
#[derive(Deserialize)]
struct Outer {
    metadata: Option<ListMeta>,
    /// Go writes `null` for an empty list in places.
    #[serde(default, rename = "items")]
    _items: Option<[(); 0]>,
}

/// Reads a page of a list that no cache is to hold.
pub(crate) fn decode_page(body: &[u8], form: &Form) -> Result<ListPage<dyn Cached>, Failure> {
    let mut page = Page::new(Into::Live(form));
    page.feed(body)?;
    page.finish()
}

#[cfg(test)]
mod tests;
