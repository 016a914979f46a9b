//! The way of a role's requests to the API server: a server on this machine that adds the owner to what the role makes,
//! and sees what the role has to do with.
//!
//! Invariants: it listens on loopback only; each run has a token of its own, which nobody guesses and which ends with the
//! run, so that what is left of a run that was given up writes no more; requests go out with the rights of the operator;
//! the log has each request, and never a body.

mod dependents;
mod owner;
mod resources;
mod target;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubewright::kube::client::Body;
use kubewright::kube::core::{GroupVersionKind, ObjectMeta};
use kubewright::{BoxError, Stop, kube};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use dependents::Dependents;
pub use owner::Owner;
use owner::{Tie, ties_of};
use resources::{Known, Resources};
use target::Target;

use super::watch::Watch;

/// The longest body of a request.
const LONGEST: usize = 32 << 20;
/// The longest answer that is looked into.
const LONGEST_ANSWER: usize = 64 << 20;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A run that may ask.
#[derive(Debug)]
pub struct Run {
    /// For whom it runs.
    pub owner: Owner,
    /// What its watch says.
    pub watch: Arc<Watch>,
    /// The watches of its controller.
    pub dependents: Arc<Dependents>,
}

/// The proxy, before it serves.
#[derive(Debug)]
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    runs: Runs,
    /// Whether owners are injected; `--inject-owner-ref`.
    inject: bool,
    namespaces: Vec<String>,
}

/// The runs that may ask, by their tokens.
#[derive(Debug, Clone, Default)]
pub struct Runs(Arc<Mutex<HashMap<String, Arc<Run>>>>);

/// A run that may ask until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    token: String,
    runs: Runs,
}

impl Runs {
    /// Lets a run ask.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn admit(&self, run: Run) -> io::Result<Admitted> {
        let mut bytes = [0_u8; 32];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the system gives no random numbers"))?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(token.clone(), Arc::new(run));
        Ok(Admitted {
            token,
            runs: self.clone(),
        })
    }

    fn of(&self, headers: &HeaderMap) -> Option<Arc<Run>> {
        let (scheme, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        let token = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => value.trim().to_owned(),
            "basic" => {
                let pair = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
                pair.split_once(':')?.1.to_owned()
            }
            _ => return None,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&token)
            .cloned()
    }
}

impl Admitted {
    /// The kubeconfig with which the run asks.
    #[must_use]
    pub fn kubeconfig(&self, proxy: SocketAddr, namespace: Option<&str>) -> String {
        let context = format!("{}/proxy-server", namespace.unwrap_or_default());
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": context,
            "clusters": [{"name": "proxy-server", "cluster": {"server": format!("http://{proxy}")}}],
            "contexts": [{"name": context, "context": {"cluster": "proxy-server", "user": "run/proxy-server"}}],
            "users": [{"name": "run/proxy-server", "user": {"token": self.token}}],
        })
        .to_string()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut runs = self.runs.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.remove(&self.token);
    }
}

impl Proxy {
    /// Listens on a port of this machine; 0 for any. `namespaces` are those that the operator watches; none means all.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn listen(port: u16, inject: bool, namespaces: Vec<String>) -> io::Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        Ok(Proxy {
            address: listener.local_addr()?,
            listener,
            runs: Runs::default(),
            inject,
            namespaces,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The runs that may ask.
    #[must_use]
    pub fn runs(&self) -> Runs {
        self.runs.clone()
    }

    /// Serves until the stop.
    pub async fn serve(self, client: kube::Client, stop: Stop) {
        let serving = Arc::new(Serving {
            client,
            runs: self.runs,
            inject: self.inject,
            namespaces: self.namespaces,
            resources: Resources::default(),
        });
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.requested() => return,
                Some(_) = connections.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the proxy cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await; // such as no more descriptors
                    continue;
                }
            };
            let serving = serving.clone();
            connections.spawn(async move {
                let answer = service_fn(move |request| {
                    let serving = serving.clone();
                    async move { Ok::<_, Infallible>(serving.answer(request).await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                // A connection that breaks is one of a run that has ended.
                let _ = connection.with_upgrades().await;
            });
        }
    }
}

struct Serving {
    client: kube::Client,
    runs: Runs,
    inject: bool,
    namespaces: Vec<String>,
    resources: Resources,
}

/// An answer in the form of Kubernetes' errors.
fn refusal(code: StatusCode, reason: &str, message: &str) -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": message,
    });
    let mut answer = Response::new(whole(status.to_string().into()));
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

impl Serving {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let Some(run) = self.runs.of(request.headers()) else {
            let message =
                "the proxy answers runs of the operator, each with the token of its kubeconfig, until they end";
            return refusal(StatusCode::UNAUTHORIZED, "Unauthorized", message);
        };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let began = Instant::now();
        let answered = self.pass(&run, request).await;
        let answer = answered.unwrap_or_else(|refused| *refused);
        let (status, took) = (answer.status().as_u16(), began.elapsed());
        let owner = run.owner.request();
        tracing::info!(kind = %run.owner.kind.kind, object = %owner, %method, path, status, ?took, "request of a role");
        answer
    }

    async fn pass(&self, run: &Run, mut request: Request<Incoming>) -> Result<Answer, Box<Answer>> {
        let target = Target::of(request.uri().path());
        let upgrades = request.headers().contains_key(UPGRADE);
        let caller = upgrades.then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let mut body = match Limited::new(body, LONGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                let message = format!("the request cannot be read: {error}");
                return Err(Box::new(refusal(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "RequestEntityTooLarge",
                    &message,
                )));
            }
        };
        if let Some(target) = target.as_ref().filter(|_| self.inject)
            && let Some(owned) = self.owned(run, target, &parts, &body).await?
        {
            body = owned;
        }
        let asked = Asked::of(&parts, target);
        if let Some(object) = asked
            .target
            .as_ref()
            .filter(|_| self.inject && asked.may_be_cached(&parts))
            .and_then(|target| run.dependents.read(target))
        {
            let body = serde_json::to_vec(&object).map_err(|error| bad_gateway(&error))?;
            let mut answer = Response::new(whole(body.into()));
            answer
                .headers_mut()
                .insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            answer
                .headers_mut()
                .insert("x-cache", http::HeaderValue::from_static("HIT"));
            return Ok(answer);
        }
        let mut outgoing = Request::builder()
            .method(parts.method)
            .uri(parts.uri.path_and_query().map_or("/", |path| path.as_str()));
        if let Some(headers) = outgoing.headers_mut() {
            *headers = passed_on(parts.headers, upgrades);
        }
        let outgoing = outgoing.body(Body::from(body)).map_err(|error| bad_gateway(&error))?;
        let sent = self.client.send(outgoing).await;
        if let Some(target) = asked.target.as_ref().filter(|_| asked.changes) {
            let refused = sent.as_ref().is_ok_and(|answer| answer.status().is_client_error());
            let shown = sent.as_ref().is_ok_and(|answer| asked.shows_an_object(answer));
            if !refused && !shown {
                run.dependents.wrote(target, None);
            }
        }
        let mut answer = sent.map_err(|error| bad_gateway(&error))?;
        if let Some(caller) = caller.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
            let server = hyper::upgrade::on(&mut answer);
            tokio::spawn(join(caller, server));
            return Ok(answer.map(|_| whole(Bytes::new())));
        }
        if self.inject && asked.shows_an_object(&answer) {
            return self.seen(run, &asked, answer).await;
        }
        let (mut parts, body) = answer.into_parts();
        hop_by_hop(&mut parts.headers);
        Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()))
    }

    /// The body of a request that makes an object, with its owner; `None` when the request is another.
    async fn owned(
        &self,
        run: &Run,
        target: &Target,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Option<Bytes>, Box<Answer>> {
        let sort = parts
            .headers
            .get(CONTENT_TYPE)
            .and_then(|sort| sort.to_str().ok())
            .unwrap_or_default();
        let creates = parts.method == Method::POST && target.name.is_none();
        let applies = parts.method == Method::PATCH
            && target.subresource.is_none()
            && sort.starts_with("application/apply-patch");
        if !creates && !applies {
            return Ok(None);
        }
        // Without the kind, an object would stay that nobody deletes.
        let known = self
            .resources
            .of(&self.client, target)
            .await
            .map_err(|error| bad_gateway(&error))?;
        let Some(known) = known.filter(|known| known.stored) else {
            return Ok(None);
        };
        let invalid = |message: String| Box::new(refusal(StatusCode::BAD_REQUEST, "BadRequest", &message));
        if sort.contains("protobuf") {
            let path = parts.uri.path();
            tracing::warn!(
                path,
                "an object in protobuf gets no owner: the role's client should send JSON"
            );
            return Ok(None);
        }
        let read = kubewright_schema::decode::yaml(body)
            .map_err(|error| invalid(format!("the object cannot be read: {error}")))?;
        let mut object = read.value;
        if applies && !self.may_own(run, target).await? {
            return Ok(None);
        }
        let inside = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let namespace = target.namespace.clone().or(inside).filter(|_| known.namespaced);
        let tie = run.owner.tie(namespace.as_deref());
        run.owner.own(&mut object, tie).map_err(invalid)?;
        self.watch(run, &known, namespace.as_deref(), tie);
        Ok(Some(object.to_string().into()))
    }

    /// Whether an apply makes its object, or has made it for this owner: what somebody else made stays theirs.
    async fn may_own(&self, run: &Run, target: &Target) -> Result<bool, Box<Answer>> {
        let Some(name) = &target.name else { return Ok(false) };
        let namespace = target
            .namespace
            .as_ref()
            .map(|namespace| format!("/namespaces/{namespace}"))
            .unwrap_or_default();
        let root = if target.group.is_empty() { "/api" } else { "/apis" };
        let path = format!("{root}/{}{namespace}/{}/{name}", target.api_version(), target.plural);
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| bad_gateway(&error))?;
        match self.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(bad_gateway(&error)),
            Ok(object) => Ok(metadata(&object).is_some_and(|meta| ties_of(&meta, &run.owner.kind).is_some())),
        }
    }

    /// Watches a kind for a controller, if its watch wants that.
    fn watch(&self, run: &Run, known: &Known, namespace: Option<&str>, tie: Tie) {
        let kind = GroupVersionKind::gvk(&known.resource.group, &known.resource.version, &known.resource.kind);
        let within = self.namespaces.is_empty()
            || namespace.is_some_and(|namespace| self.namespaces.iter().any(|own| own == namespace));
        let tied = tie == Tie::Reference || known.namespaced || run.watch.watch_cluster_scoped_resources;
        if run.watch.watch_dependent_resources && within && tied && !run.watch.blacklist.contains(&kind) {
            run.dependents.watch(&known.resource, known.namespaced);
        }
    }

    /// Looks at an object on its way to the role: one that is owned by objects of the run's kind is watched.
    async fn seen(&self, run: &Run, asked: &Asked, answer: Response<Body>) -> Result<Answer, Box<Answer>> {
        let (mut parts, body) = answer.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER)
            .collect()
            .await
            .map_err(|error| bad_gateway(&error))?;
        let mut body = body.to_bytes();
        let mut object: Option<Value> = serde_json::from_slice(&body).ok();
        if let Some(object) = &mut object
            && hide_managed_fields(object)
        {
            body = object.to_string().into();
        }
        if let (Some(target), Some(meta)) = (&asked.target, object.as_ref().and_then(metadata)) {
            if let (true, Some(uid), Some(version)) = (asked.writes, &meta.uid, &meta.resource_version) {
                run.dependents.note_write(uid, version, run.owner.request());
                run.dependents.wrote(target, Some(version));
            }
            if let Some(tie) = ties_of(&meta, &run.owner.kind) {
                match self.resources.of(&self.client, target).await {
                    Ok(Some(known)) => self.watch(run, &known, meta.namespace.as_deref(), tie),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, plural = target.plural, "what the role sees cannot be watched");
                    }
                }
            }
        }
        hop_by_hop(&mut parts.headers);
        parts.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(parts, whole(body)))
    }
}

/// What of a request matters when its answer is here.
struct Asked {
    target: Option<Target>,
    /// It is no read, and no trial.
    changes: bool,
    writes: bool,
    watches: bool,
    reads: bool,
}

impl Asked {
    fn of(parts: &http::request::Parts, target: Option<Target>) -> Asked {
        let query = parts.uri.query().unwrap_or_default();
        let tried = query.split('&').any(|pair| pair.starts_with("dryRun="));
        Asked {
            target,
            changes: ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method) && !tried,
            writes: [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method) && !tried,
            watches: query.split('&').any(|pair| ["watch=1", "watch=true"].contains(&pair)),
            reads: parts.method == Method::GET,
        }
    }

    /// Whether a watch may answer: a plain read of one object, in JSON.
    fn may_be_cached(&self, parts: &http::request::Parts) -> bool {
        let accepted = parts
            .headers
            .get(http::header::ACCEPT)
            .and_then(|sort| sort.to_str().ok())
            .unwrap_or("*/*");
        let json = ["application/json", "*/*"].iter().any(|sort| accepted.contains(sort)) && !accepted.contains("as=");
        let plain = self
            .target
            .as_ref()
            .is_some_and(|target| target.name.is_some() && target.subresource.is_none());
        self.reads && plain && json && parts.uri.query().unwrap_or_default().is_empty()
    }

    /// Whether the answer is one stored object in JSON.
    fn shows_an_object(&self, answer: &Response<Body>) -> bool {
        let sort = answer.headers().get(CONTENT_TYPE).and_then(|sort| sort.to_str().ok());
        let one = self.target.as_ref().is_some_and(|target| {
            let part = target.subresource.as_deref();
            let whole = matches!(part, None | Some("status" | "scale"));
            whole && (self.writes || self.reads && target.name.is_some())
        });
        one && !self.watches
            && answer.status().is_success()
            && sort.is_some_and(|sort| sort.starts_with("application/json"))
    }
}

/// Takes away what the cache does not have: Ansible's modules tell by comparing a read with the answer of a write whether
/// a task has changed something. Whether there was any.
fn hide_managed_fields(object: &mut Value) -> bool {
    let meta = object.get_mut("metadata").and_then(Value::as_object_mut);
    meta.is_some_and(|meta| meta.remove("managedFields").is_some())
}

fn metadata(object: &Value) -> Option<ObjectMeta> {
    serde_json::from_value(object.get("metadata")?.clone()).ok()
}

fn bad_gateway(error: &dyn std::fmt::Display) -> Box<Answer> {
    let message = format!("the proxy cannot reach the API server: {error}");
    Box::new(refusal(StatusCode::BAD_GATEWAY, "ServiceUnavailable", &message))
}

/// The headers that the API server gets: not the token of the run, which the API server does not know.
fn passed_on(mut headers: HeaderMap, upgrades: bool) -> HeaderMap {
    for own in [AUTHORIZATION, HOST, CONTENT_LENGTH, ACCEPT_ENCODING] {
        headers.remove(own);
    }
    if !upgrades {
        hop_by_hop(&mut headers);
    }
    headers
}

fn hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// Hands the bytes of an upgraded connection back and forth, such as those of `kubectl exec`.
async fn join(caller: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) {
    if let (Ok(caller), Ok(server)) = futures::join!(caller, server) {
        let (mut caller, mut server) = (TokioIo::new(caller), TokioIo::new(server));
        // It ends when one of them hangs up.
        let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
    }
}
