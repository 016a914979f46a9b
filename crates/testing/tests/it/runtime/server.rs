//! An API server as a test arranges it: a cluster without controllers, in virtual time unless a test needs sockets or
//! threads. The requests of the client under test go over a line on which the test sees, refuses and loses them, and
//! holds and cuts watches. What `put` and the like do goes past it, as the requests of others.
//!
//! Also what the tests of the runtime share: a reconciler that plays a script, and a manager for the time of a test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kubewright::kube::api::{DeleteParams, Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::core::{DynamicObject, Status};
use kubewright::kube::{self, Api, Resource};
use kubewright::{
    Action, ApiScope, Cache, Client, Context, Event, Health, Manager, ManagerBuilder, Object, Observation, Outcome,
    Reconciler, Stop, api_resource,
};
use kubewright_testing::{Cluster, Controllers, TestCluster};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

/// A request that was sent.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub(super) verb: &'static str,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) accept: String,
    pub(super) body: String,
}

impl Seen {
    fn of(parts: &http::request::Parts, body: &Bytes) -> Seen {
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        let mut segments: Vec<&str> = path.split('/').skip(1).collect();
        segments.drain(..if segments[0] == "api" { 2 } else { 3 }.min(segments.len()));
        if segments.len() > 2 && segments[0] == "namespaces" {
            segments.drain(..2);
        }
        let accept = parts.headers.get("accept").and_then(|value| value.to_str().ok());
        Seen {
            verb: match (parts.method.as_str(), segments.len()) {
                ("GET", 0 | 1) if query.contains("watch=") => "WATCH",
                ("GET", 0 | 1) => "LIST",
                ("GET", _) => "GET",
                ("POST", _) => "POST",
                ("PUT", _) => "PUT",
                ("PATCH", _) => "PATCH",
                _ => "DELETE",
            },
            path: path.to_owned(),
            query: query.to_owned(),
            accept: accept.unwrap_or_default().to_owned(),
            body: String::from_utf8_lossy(body).into_owned(),
        }
    }

    /// Whether it is a watch of what came after a version that is known no more.
    fn is_expired(&self, compacted: u64) -> bool {
        let version = self
            .query
            .split('&')
            .find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = version.and_then(|version| version.parse().ok()).unwrap_or_default();
        self.verb == "WATCH" && !self.query.contains("sendInitialEvents") && from < compacted
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// It does not reach the server, which seems to answer with this code and reason.
    Refused(u16, &'static str),
    /// It is carried out, and answered with this code and reason.
    Lost(u16, &'static str),
    /// It is carried out, and never answered.
    Silent,
}

pub(super) const FORBIDDEN: Fault = Fault::Refused(403, "Forbidden");

type Rule = Box<dyn Fn(&Seen) -> Option<Fault> + Send>;
type Answered = std::result::Result<Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>;

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    rules: Vec<Rule>,
    /// Watches from before this version are told that it is expired.
    compacted: u64,
}

struct Line {
    /// Where it leads to.
    server: Mutex<kube::Client>,
    state: Mutex<State>,
    /// Watches deliver no version above this one.
    limit: watch::Sender<u64>,
    cuts: watch::Sender<u64>,
    open: AtomicUsize,
}

/// A watch that is open, until this is dropped.
struct Open(Arc<Line>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self: Arc<Line>, request: Request<Body>) -> Answered {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let seen = Seen::of(&parts, &body);
        let verb = seen.verb;
        let (fault, is_expired) = {
            let mut state = self.state();
            state.seen.push(seen.clone());
            (
                state.rules.iter().find_map(|rule| rule(&seen)),
                seen.is_expired(state.compacted),
            )
        };
        match fault {
            Some(Fault::Refused(code, reason)) => {
                return Ok(status(code, reason, &format!("refused by the test: {verb}")));
            }
            _ if is_expired => return Ok(status(410, "Expired", "too old resource version")),
            _ => {}
        }
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = server.send(Request::from_parts(parts, Body::from(body))).await?;
        match fault {
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Lost(code, reason)) => Ok(status(code, reason, "the answer got lost")),
            _ if verb == "WATCH" && answer.status().is_success() => {
                Ok(answer.map(|body| StreamBody::new(self.delivered(body)).boxed_unsync()))
            }
            _ => Ok(answer.map(http_body_util::BodyExt::boxed_unsync)),
        }
    }

    /// The lines of a watch, as far as they may be delivered, until it is cut.
    fn delivered(
        self: Arc<Line>,
        body: Body,
    ) -> impl Stream<Item = std::result::Result<Frame<Bytes>, kube::Error>> + Send {
        self.open.fetch_add(1, Ordering::SeqCst);
        let (mut cuts, limit, open) = (self.cuts.subscribe(), self.limit.subscribe(), Open(self));
        let begin = (body.into_data_stream(), Vec::new(), limit, open);
        let lines = stream::unfold(begin, |(mut chunks, mut rest, mut limit, open)| async move {
            let line = loop {
                if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let version = version_of(&line);
                    drop(limit.wait_for(|limit| version <= *limit).await);
                    break Ok(Frame::data(Bytes::from(line)));
                }
                match chunks.next().await? {
                    Ok(chunk) => rest.extend_from_slice(&chunk),
                    Err(error) => break Err(error),
                }
            };
            Some((line, (chunks, rest, limit, open)))
        });
        lines.take_until(Box::pin(async move { cuts.changed().await }))
    }
}

fn version_of(line: &[u8]) -> u64 {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn status(code: u16, reason: &str, message: &str) -> Response<UnsyncBoxBody<Bytes, kube::Error>> {
    let status = Status::failure(message, reason).with_code(code);
    let body = Body::from(serde_json::to_vec(&status).expect("it is JSON")).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).expect("a code");
    answer
}

/// A kind that [`Client::api`] takes.
pub(super) trait Kind: Object + Resource<Scope: ApiScope<Self>> {}

impl<K: Object + Resource<Scope: ApiScope<K>>> Kind for K {}

pub(super) struct Server {
    pub(super) cluster: TestCluster,
    line: Arc<Line>,
}

impl Server {
    /// In virtual time, with the namespaces `a` and `b`.
    pub(super) async fn new() -> Server {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        Server::of(TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await).await
    }

    /// As [`new`](Server::new), where threads or sockets take their time.
    pub(super) async fn in_real_time() -> Server {
        Server::of(TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await).await
    }

    async fn of(cluster: kubewright_testing::Result<TestCluster>) -> Server {
        let cluster = cluster.expect("a cluster");
        let line = Line {
            server: Mutex::new(cluster.kube()),
            state: Mutex::default(),
            limit: watch::Sender::new(u64::MAX),
            cuts: watch::Sender::new(0),
            open: AtomicUsize::new(0),
        };
        let server = Server {
            cluster,
            line: Arc::new(line),
        };
        for name in ["a", "b"] {
            server.put::<Namespace>(json!({ "metadata": { "name": name } })).await;
        }
        server
    }

    /// The client of kube, over the line.
    pub(super) fn kube(&self) -> kube::Client {
        let line = self.line.clone();
        let service = tower::service_fn(move |request: Request<Body>| line.clone().send(request));
        kube::Client::new(service, "default")
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.kube(), self.cache())
    }

    pub(super) fn cache(&self) -> Cache {
        Cache::new(self.kube())
    }

    pub(super) fn manager(&self) -> ManagerBuilder {
        self.cluster.manager(self.kube())
    }

    /// From now on the line leads to another server, as after a restore from a backup.
    pub(super) fn lead_to(&self, other: &TestCluster) {
        self.line.state().compacted = self.version() + 1;
        *self.line.server.lock().unwrap_or_else(PoisonError::into_inner) = other.kube();
        self.line.cuts.send_modify(|cut| *cut += 1);
    }

    /// Requests meet the fault that the rule answers.
    pub(super) fn fault(&self, rule: impl Fn(&Seen) -> Option<Fault> + Send + 'static) {
        self.line.state().rules.push(Box::new(rule));
    }

    pub(super) fn no_fault(&self) {
        self.line.state().rules.clear();
    }

    /// Watches deliver nothing while held.
    pub(super) fn hold_watches(&self, held: bool) {
        self.deliver_up_to(if held { 0 } else { u64::MAX });
    }

    /// Watches deliver nothing above this version.
    pub(super) fn deliver_up_to(&self, version: u64) {
        self.line.limit.send_replace(version);
    }

    /// Ends all watches and forgets the history: clients must list again.
    pub(super) fn compact_and_cut(&self) {
        self.line.state().compacted = self.version();
        self.line.cuts.send_modify(|cut| *cut += 1);
    }

    pub(super) fn version(&self) -> u64 {
        self.cluster.cluster().api().resource_version()
    }

    pub(super) fn open_watches(&self) -> usize {
        self.line.open.load(Ordering::SeqCst)
    }

    /// The requests so far with this verb, on paths that contain this text.
    pub(super) fn seen(&self, verb: &str, path: &str) -> Vec<Seen> {
        let state = self.line.state();
        let these = state
            .seen
            .iter()
            .filter(|seen| seen.verb == verb && seen.path.contains(path));
        these.cloned().collect()
    }

    /// How many requests have changed or tried to change something.
    pub(super) fn writes(&self) -> usize {
        let verbs = ["POST", "PUT", "PATCH", "DELETE"];
        verbs.iter().map(|verb| self.seen(verb, "").len()).sum()
    }

    fn api<K: Kind>(&self, namespace: &Value) -> Api<K> {
        self.cluster.client().api(namespace.as_str())
    }

    /// Writes as another client does, which owns all fields that it writes.
    pub(super) async fn put<K: Kind>(&self, mut object: Value) -> DynamicObject {
        let resource = api_resource::<K>();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let metadata = object["metadata"].clone();
        let api = match metadata["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.cluster.kube(), namespace, &resource),
            None => Api::all_with(self.cluster.kube(), &resource),
        };
        let (params, name) = (PatchParams::apply("others").force(), metadata["name"].as_str());
        let put = api.patch(name.expect("a name"), &params, &Patch::Apply(object)).await;
        put.expect("the server takes it")
    }

    /// Changes the status of a Pod in the namespace `a` as another client does.
    pub(super) async fn put_status(&self, name: &str, status: Value) {
        let change = Patch::Merge(json!({ "status": status }));
        let api = self.api::<Pod>(&json!("a"));
        let put = api.patch_status(name, &PatchParams::default(), &change).await;
        put.expect("the server takes it");
    }

    /// Deletes in the namespace `a`, as another client does.
    pub(super) async fn remove<K: Kind>(&self, name: &str) {
        let api = self.api::<K>(&json!("a"));
        let now = DeleteParams::default().grace_period(0);
        api.delete(name, &now).await.expect("it was there");
    }

    /// An object of the namespace `a`.
    pub(super) async fn object<K: Kind>(&self, name: &str) -> Option<K> {
        self.api::<K>(&json!("a")).get_opt(name).await.expect("an answer")
    }

    /// The objects of all namespaces.
    pub(super) async fn objects<K: Kind>(&self) -> Vec<K> {
        self.api::<K>(&Value::Null)
            .list(&Default::default())
            .await
            .expect("an answer")
            .items
    }
}

/// Waits until the condition holds.
pub(super) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..24_000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}

/// Starts a read, and lets everything run that can: in virtual time nothing else is done before the time goes on.
pub(super) async fn started<T: Send + 'static>(
    read: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(read);
    sleep(Duration::from_millis(1)).await;
    task
}

/// Runs a manager until the test's part is over.
pub(super) async fn with_manager<T>(builder: ManagerBuilder, part: impl Future<Output = T>) -> T {
    with_built(builder.build().expect("it fits together"), part).await
}

pub(super) async fn with_built<T>(manager: Manager, part: impl Future<Output = T>) -> T {
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(manager.run(async move { token.requested().await }));
    let result = part.await;
    stop.stop();
    running.await.expect("no panic").expect("a clean stop");
    result
}

/// What was told, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn note(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    pub(super) fn hears<K: Object>(&self) -> impl Fn(&Event<K>) + Send + Sync + 'static {
        let log = self.clone();
        move |event: &Event<K>| {
            let verb = match event {
                Event::Added { .. } => "added",
                Event::Modified { .. } => "modified",
                Event::Deleted { .. } => "deleted",
            };
            log.note(format!(
                "{verb} {}",
                event.object().meta().name.as_deref().unwrap_or_default()
            ));
        }
    }
}

type Script = dyn Fn(&kubewright::Request, usize) -> kubewright::Result<Action> + Send + Sync;

/// Reconciles pods by a script that gets the key and how often it came.
#[derive(Clone)]
pub(super) struct Scripted {
    script: Arc<Script>,
    log: Log,
    causes: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Scripted {
    pub(super) fn new(
        script: impl Fn(&kubewright::Request, usize) -> kubewright::Result<Action> + Send + Sync + 'static,
    ) -> Scripted {
        Scripted {
            script: Arc::new(script),
            log: Log::default(),
            causes: Arc::default(),
        }
    }

    /// Is content with everything.
    pub(super) fn idle() -> Scripted {
        Scripted::new(|_, _| Ok(Action::await_change()))
    }

    fn run(&self, request: &kubewright::Request, ctx: &Context, what: &str) -> kubewright::Result<Action> {
        let causes = ctx.causes().iter().map(ToString::to_string).collect();
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).push(causes);
        self.log.note(format!("{what} {request}"));
        (self.script)(request, self.of(&request.to_string()))
    }

    /// The runs, with what was called.
    pub(super) fn runs(&self) -> Vec<String> {
        self.log.all()
    }

    /// How often a key was reconciled.
    pub(super) fn of(&self, key: &str) -> usize {
        let of = format!(" {key}");
        self.runs().iter().filter(|run| run.ends_with(&of)).count()
    }

    /// Why a run came.
    pub(super) fn causes(&self, run: usize) -> Vec<String> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)[run].clone()
    }
}

impl Reconciler for Scripted {
    type Object = Pod;

    async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> kubewright::Result<Action> {
        self.run(ctx.request(), &ctx, "reconcile")
    }

    async fn deleted(&self, request: kubewright::Request, ctx: Context) -> kubewright::Result<Action> {
        self.run(&request, &ctx, "deleted")
    }
}

type Outcomes = Arc<Mutex<Vec<Outcome>>>;

/// Collects how reconciles ended.
pub(super) fn outcomes() -> (Outcomes, Arc<impl Fn(&Observation) + Send + Sync + 'static>) {
    let all = Outcomes::default();
    let sink = all.clone();
    let observer = move |what: &Observation| {
        if let Observation::ReconcileFinished { outcome, .. } = what {
            sink.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(outcome.clone());
        }
    };
    (all, Arc::new(observer))
}

pub(super) fn says(health: Health, text: &str) -> bool {
    matches!(health, Health::Degraded { reason } if reason.contains(text))
}

/// A ConfigMap in the namespace `a`, with one value.
pub(super) fn config(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(raw(name, value)).expect("it is a ConfigMap")
}

pub(super) fn raw(name: &str, value: &str) -> Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "data": { "key": value } })
}

pub(super) fn value_of(config: &ConfigMap) -> &str {
    let data = config.data.as_ref();
    data.and_then(|data| data.get("key")).map_or("", String::as_str)
}

pub(super) fn pod(name: &str) -> Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } })
}

/// A ConfigMap that a Pod controls.
pub(super) fn child(name: &str, owner: &Pod, value: &str) -> Value {
    let (owner, uid) = (&owner.metadata.name, &owner.metadata.uid);
    let mut child = raw(name, value);
    child["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": true }]);
    child
}

/// A type whose own code fails or panics when its text says so: to read `broken`, `decode` and to drop `drop`.
pub(super) mod bombs {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize};
    use serde_json::{Value, json};

    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "war.example.com", version = "v1", kind = "Bomb", namespaced)]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
    pub(in super::super) struct BombSpec {
        pub(in super::super) fuse: Fuse,
    }

    #[derive(Debug, Clone, Serialize, JsonSchema)]
    pub(in super::super) struct Fuse(pub(in super::super) String);

    impl<'de> Deserialize<'de> for Fuse {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fuse, D::Error> {
            let text = String::deserialize(deserializer)?;
            assert!(text != "decode", "it went off while it was decoded");
            match text.as_str() {
                "broken" => Err(D::Error::custom("it is broken")),
                _ => Ok(Fuse(text)),
            }
        }
    }

    impl Drop for Fuse {
        fn drop(&mut self) {
            assert!(self.0 != "drop", "it went off while it was dropped");
        }
    }

    pub(in super::super) fn bomb(name: &str, fuse: &str) -> Value {
        json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "fuse": fuse } })
    }
}
