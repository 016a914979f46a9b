//! An API server for tests, as small as it can be: any kind, in memory, with list pages, watches from a version, merge
//! patches, finalizer-free deletes and optimistic locking. A test arranges faults with [`Fake::refuse`],
//! [`Fake::hold_watches`] and the like.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kubewright::kube;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;
/// Status code, reason, and whether the request is carried out nevertheless.
pub(crate) type Refusal = (u16, &'static str, bool);
type Rule = Box<dyn Fn(&Seen) -> Option<Refusal> + Send>;
type Key = (String, String, String);
/// The code of a refusal that is no answer at all.
const NEVER: u16 = 0;

/// A request that the server got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub(crate) verb: &'static str,
    /// The path, without the query.
    pub(crate) path: String,
    /// The query.
    pub(crate) query: String,
    /// The `Accept` header.
    pub(crate) accept: String,
    /// The body.
    pub(crate) body: String,
}

#[derive(Default)]
struct State {
    version: u64,
    /// (collection without namespace, namespace, name) → object.
    objects: BTreeMap<Key, Value>,
    /// Version, type, collection, object.
    log: Vec<(u64, &'static str, String, Value)>,
    seen: Vec<Seen>,
    rules: Vec<Rule>,
    normalise: Option<fn(&mut Value)>,
    compacted: u64,
}

/// The server; clones share it.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Counts up with every change and command, so that watches look again.
    bell: watch::Sender<u64>,
    /// Watches deliver no version above this one.
    limit: watch::Sender<u64>,
    open_watches: Arc<AtomicUsize>,
    epoch: watch::Sender<u64>,
}

impl Fake {
    pub(crate) fn new() -> Fake {
        Fake(Arc::new(Inner {
            state: Mutex::new(State {
                version: 100,
                ..State::default()
            }),
            bell: watch::Sender::new(0),
            limit: watch::Sender::new(u64::MAX),
            open_watches: Arc::default(),
            epoch: watch::Sender::new(0),
        }))
    }

    pub(crate) fn client(&self) -> kube::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let fake = fake.clone();
            async move { fake.handle(request).await }
        });
        kube::Client::new(service, "default")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    fn ring(&self) {
        self.0.bell.send_modify(|count| *count += 1);
    }

    /// Refuses requests for which the rule answers.
    pub(crate) fn refuse(&self, rule: impl Fn(&Seen) -> Option<Refusal> + Send + 'static) {
        self.state().rules.push(Box::new(rule));
    }

    pub(crate) fn refuse_nothing(&self) {
        self.state().rules.clear();
    }

    /// Changes every object that is written, as a server with defaults does.
    pub(crate) fn normalise(&self, change: fn(&mut Value)) {
        self.state().normalise = Some(change);
    }

    /// Watches deliver nothing while held.
    pub(crate) fn hold_watches(&self, held: bool) {
        self.deliver_up_to(if held { 0 } else { u64::MAX });
    }

    /// Watches deliver nothing above this version.
    pub(crate) fn deliver_up_to(&self, version: u64) {
        self.0.limit.send_replace(version);
        self.ring();
    }

    /// Requests for which the rule answers `true` are carried out, and never answered.
    pub(crate) fn swallow(&self, rule: impl Fn(&Seen) -> bool + Send + 'static) {
        self.refuse(move |seen| rule(seen).then_some((NEVER, "Never", true)));
    }

    /// Another history, as after a restore from a backup: versions begin anew, and knowledge of the old ones is void.
    pub(crate) fn restore(&self) {
        let mut state = self.state();
        state.version = 10;
        let keys: Vec<Key> = state.objects.keys().cloned().collect();
        for key in keys {
            if let Some(object) = state.objects.remove(&key) {
                state.store(key, object, "ADDED");
            }
        }
        drop(state);
        self.compact_and_cut();
    }

    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.state().version
    }

    /// Ends all watches and forgets the history: clients must list again.
    pub(crate) fn compact_and_cut(&self) {
        let mut state = self.state();
        state.compacted = state.version;
        state.log.clear();
        drop(state);
        self.0.epoch.send_modify(|epoch| *epoch += 1);
        self.ring();
    }

    pub(crate) fn open_watches(&self) -> usize {
        self.0.open_watches.load(Ordering::SeqCst)
    }

    /// Requests seen so far with this verb, on paths that contain this text.
    pub(crate) fn seen(&self, verb: &str, path: &str) -> Vec<Seen> {
        self.state()
            .seen
            .iter()
            .filter(|seen| seen.verb == verb && seen.path.contains(path))
            .cloned()
            .collect()
    }

    /// How many requests have changed or tried to change something.
    pub(crate) fn writes(&self) -> usize {
        self.state()
            .seen
            .iter()
            .filter(|seen| !["GET", "LIST", "WATCH"].contains(&seen.verb))
            .count()
    }

    /// Writes as another client would, not through the client under test.
    pub(crate) fn put(&self, collection: &str, mut object: Value) -> Value {
        let mut state = self.state();
        let key = key_of(collection, &object);
        let kind = if state.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        if let Some(present) = state.objects.get(&key) {
            object["metadata"]["uid"] = present["metadata"]["uid"].clone();
        }
        let stored = state.store(key, object, kind);
        drop(state);
        self.ring();
        stored
    }

    pub(crate) fn remove(&self, collection: &str, namespace: &str, name: &str) {
        self.state()
            .remove(&(collection.to_owned(), namespace.to_owned(), name.to_owned()));
        self.ring();
    }

    /// Watches report a living object as deleted: as when it leaves their selection.
    pub(crate) fn hide(&self, collection: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        if let Some(mut object) = state.objects.get(&key).cloned() {
            state.version += 1;
            let version = state.version;
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            state.objects.insert(key, object.clone());
            state.log.push((version, "DELETED", collection.to_owned(), object));
        }
        drop(state);
        self.ring();
    }

    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        self.state()
            .objects
            .get(&(collection.to_owned(), namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        self.state()
            .objects
            .iter()
            .filter(|(key, _)| key.0 == collection)
            .map(|(_, object)| object.clone())
            .collect()
    }

    async fn handle(&self, request: Request<kube::client::Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a request body is in memory").to_bytes();
        let query: BTreeMap<String, String> = form(parts.uri.query().unwrap_or_default());
        let path = Path::parse(parts.uri.path());
        let verb = match (&parts.method, &path.name) {
            (&Method::GET, None) if query.contains_key("watch") => "WATCH",
            (&Method::GET, None) => "LIST",
            (&Method::GET, _) => "GET",
            (&Method::POST, _) => "POST",
            (&Method::PUT, _) => "PUT",
            (&Method::PATCH, _) => "PATCH",
            _ => "DELETE",
        };
        let seen = Seen {
            verb,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            accept: parts
                .headers
                .get("accept")
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let refusal = {
            let mut state = self.state();
            state.seen.push(seen.clone());
            state.rules.iter().find_map(|rule| rule(&seen))
        };
        if let Some((code, reason, false)) = refusal {
            return Ok(status(code, reason, &format!("refused by the test: {verb}")));
        }
        let wanted = query.get("resourceVersion").and_then(|version| version.parse().ok());
        if wanted.is_some_and(|wanted: u64| wanted > self.version()) {
            return Ok(too_large());
        }
        let answer = match verb {
            "WATCH" => self.watch(&path, &query),
            "LIST" => self.list(&path, &query),
            _ => self.change(
                verb,
                &path,
                &query,
                serde_json::from_slice(&body).unwrap_or(Value::Null),
            ),
        };
        self.ring();
        match refusal {
            Some((NEVER, ..)) => std::future::pending().await,
            Some((code, reason, true)) => Ok(status(code, reason, "the answer got lost")),
            _ => Ok(answer),
        }
    }

    fn list(&self, path: &Path, query: &BTreeMap<String, String>) -> Response<Body> {
        let state = self.state();
        let from: usize = query.get("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
        let limit: usize = query
            .get("limit")
            .and_then(|limit| limit.parse().ok())
            .unwrap_or(usize::MAX);
        let all: Vec<&Value> = state
            .objects
            .iter()
            .filter(|(key, _)| path.holds(key))
            .map(|(_, object)| object)
            .collect();
        let page: Vec<Value> = all
            .iter()
            .skip(from)
            .take(limit)
            .map(|object| (*object).clone())
            .collect();
        let mut metadata = json!({ "resourceVersion": state.version.to_string() });
        if from + page.len() < all.len() {
            metadata["continue"] = json!((from + page.len()).to_string());
        }
        answer(
            200,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page }),
        )
    }

    fn watch(&self, path: &Path, query: &BTreeMap<String, String>) -> Response<Body> {
        let state = self.state();
        let from: u64 = query
            .get("resourceVersion")
            .and_then(|version| version.parse().ok())
            .unwrap_or(0);
        let initial = query.contains_key("sendInitialEvents");
        if !initial && from < state.compacted {
            return status(410, "Expired", "too old resource version");
        }
        let mut first = Vec::new();
        if initial {
            first.extend(
                state
                    .objects
                    .iter()
                    .filter(|(key, _)| path.holds(key))
                    .map(|(_, object)| frame("ADDED", object)),
            );
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            let metadata = json!({ "resourceVersion": state.version.to_string(), "annotations": annotations });
            first.push(frame(
                "BOOKMARK",
                &json!({ "kind": "X", "apiVersion": "v1", "metadata": metadata }),
            ));
        }
        let start = if initial { state.version } else { from };
        drop(state);
        self.0.open_watches.fetch_add(1, Ordering::SeqCst);
        let open = Open(self.0.open_watches.clone());
        let follow = Follow {
            fake: self.clone(),
            path: path.clone(),
            at: start,
            epoch: *self.0.epoch.borrow(),
            _open: open,
        };
        let later = stream::unfold((follow, self.0.bell.subscribe()), |(mut follow, mut bell)| async move {
            loop {
                bell.borrow_and_update();
                if *follow.fake.0.epoch.borrow() != follow.epoch {
                    return None;
                }
                if let Some(line) = follow.next() {
                    return Some((line, (follow, bell)));
                }
                bell.changed().await.ok()?;
            }
        });
        let lines: BoxStream<'static, Bytes> = stream::iter(first).chain(later).boxed();
        let body = StreamBody::new(lines.map(|line| Ok::<_, std::io::Error>(Frame::data(line))));
        Response::new(body.boxed_unsync())
    }

    fn change(&self, verb: &str, path: &Path, query: &BTreeMap<String, String>, body: Value) -> Response<Body> {
        let mut state = self.state();
        let name = path
            .name
            .clone()
            .or_else(|| body["metadata"]["name"].as_str().map(str::to_owned))
            .or_else(|| {
                Some(format!(
                    "{}{}",
                    body["metadata"]["generateName"].as_str()?,
                    state.version
                ))
            })
            .unwrap_or_default();
        let key = (
            path.collection.clone(),
            path.namespace.clone().unwrap_or_default(),
            name,
        );
        let present = state.objects.get(&key).cloned();
        let dry_run = query.contains_key("dryRun");
        let missing = || status(404, "NotFound", &format!("{} {:?} not found", path.collection, key.2));
        let wanted = match (verb, &present) {
            ("POST", Some(_)) => return status(409, "AlreadyExists", "already exists"),
            ("POST", None) => {
                let mut object = body;
                object["metadata"]["namespace"] = json!(path.namespace);
                object["metadata"]["name"] = json!(key.2);
                object["metadata"]
                    .as_object_mut()
                    .expect("metadata is a map")
                    .retain(|_, value| !value.is_null());
                object
            }
            // Server-side apply; its merge of lists and its owners of fields are tested against the real thing.
            ("PATCH", None) if query.contains_key("force") => {
                let mut object = body;
                object["metadata"]["namespace"] = json!(path.namespace);
                object
            }
            (_, None) => return missing(),
            ("GET", Some(object)) => return answer(200, object),
            ("PUT", Some(_)) => body,
            ("PATCH", Some(object)) => merge(object, &body),
            (_, Some(object)) => {
                let uid = &body["preconditions"]["uid"];
                if uid.is_string() && *uid != object["metadata"]["uid"] {
                    return status(409, "Conflict", "uid precondition failed");
                }
                if !dry_run {
                    state.remove(&key);
                }
                return answer(
                    200,
                    &json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }),
                );
            }
        };
        let Some(present) = present else {
            if dry_run {
                return answer(201, &wanted);
            }
            let stored = state.store(key, wanted, "ADDED");
            return answer(201, &stored);
        };
        let locked = &wanted["metadata"]["resourceVersion"];
        if locked.is_string() && *locked != present["metadata"]["resourceVersion"] {
            return status(409, "Conflict", "the object has been modified");
        }
        let mut wanted = wanted;
        // As with the status subresource of the real server: each endpoint keeps the other's part.
        if path.subresource.as_deref() == Some("status") {
            let new_status = wanted["status"].clone();
            wanted = present.clone();
            wanted["status"] = new_status;
        }
        wanted["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"].clone();
        wanted["metadata"]["uid"] = present["metadata"]["uid"].clone();
        if let Some(normalise) = state.normalise {
            normalise(&mut wanted);
        }
        if wanted == present || dry_run {
            return answer(200, &wanted);
        }
        let stored = state.store(key, wanted, "MODIFIED");
        answer(200, &stored)
    }
}

impl State {
    fn store(&mut self, key: Key, mut object: Value, kind: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if !object["metadata"]["uid"].is_string() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        if let Some(normalise) = self.normalise {
            normalise(&mut object);
        }
        self.log.push((self.version, kind, key.0.clone(), object.clone()));
        self.objects.insert(key, object.clone());
        object
    }

    fn remove(&mut self, key: &Key) {
        if let Some(mut object) = self.objects.remove(key) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.log.push((self.version, "DELETED", key.0.clone(), object));
        }
    }
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Follow {
    fake: Fake,
    path: Path,
    at: u64,
    epoch: u64,
    _open: Open,
}

impl Follow {
    fn next(&mut self) -> Option<Bytes> {
        let limit = *self.fake.0.limit.borrow();
        let state = self.fake.state();
        let (version, kind, _, object) = state.log.iter().find(|(version, _, collection, object)| {
            let key = key_of(collection, object);
            *version > self.at && *version <= limit && self.path.holds(&key)
        })?;
        self.at = *version;
        Some(frame(kind, object))
    }
}

#[derive(Clone)]
struct Path {
    collection: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Path {
    fn parse(path: &str) -> Path {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let prefix: Vec<&str> = parts.drain(..if parts[0] == "api" { 2 } else { 3 }).collect();
        let namespace = (parts.len() > 2 && parts[0] == "namespaces").then(|| {
            let namespace = parts[1].to_owned();
            parts.drain(..2);
            namespace
        });
        Path {
            collection: format!("/{}/{}", prefix.join("/"), parts[0]),
            namespace,
            name: parts.get(1).map(|name| (*name).to_owned()),
            subresource: parts.get(2).map(|name| (*name).to_owned()),
        }
    }

    fn holds(&self, key: &Key) -> bool {
        key.0 == self.collection && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.1)
    }
}

fn key_of(collection: &str, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (collection.to_owned(), text("namespace"), text("name"))
}

fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut result: Map<String, Value> = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        match value {
            Value::Null => drop(result.remove(key)),
            value => drop(result.insert(key.clone(), merge(result.get(key).unwrap_or(&Value::Null), value))),
        }
    }
    Value::Object(result)
}

fn form(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn frame(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}

fn answer(code: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

fn too_large() -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}, "code": 504, "reason": "Timeout",
        "message": "Too large resource version",
        "details": { "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }] },
    });
    answer(504, &body)
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "code": code, "reason": reason, "message": message,
    });
    answer(code, &body)
}
