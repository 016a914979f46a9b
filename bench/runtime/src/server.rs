//! The neutral server: lists and watches of Pods over plain HTTP/1.1, for any client, with texts that are put together
//! from pieces.
//!
//! It does what a reflector needs and nothing else: LIST (pages when it is told to honour `limit`), WATCH from now on,
//! WatchList with its bookmark, the metadata-only form, and an ERROR of 410 when the bench says so. Only the bench
//! changes objects, and only while no client lists, so that a list is a consistent state without a history.
//!
//! It runs in the process of the bench; its usage is never counted as a subject's. Not here: fields and labels, any
//! other verb or kind.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::pods::{Pods, View};

/// Texts are sent in pieces of about so many bytes.
const CHUNK: usize = 64 << 10;
/// So many pieces wait for a slow watcher; then the server waits.
const WAITING: usize = 16;
/// The interval of repeated questions.
const LOOK: Duration = Duration::from_millis(2);

/// How the server answers.
#[derive(Clone, Copy)]
pub(crate) struct Manners {
    /// A `limit` is honoured; otherwise the answer holds everything.
    pub(crate) pages: bool,
    /// `sendInitialEvents` is served; otherwise it is invalid, as for servers that do not know it.
    pub(crate) watch_list: bool,
}

/// A server that answers until the process ends.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    pods: Pods,
    state: Mutex<State>,
}

struct State {
    manners: Manners,
    /// The version of each object.
    versions: Vec<u64>,
    newest: u64,
    watchers: Vec<Watcher>,
    /// Watches that were opened, or have got past their initial events.
    following: usize,
}

#[derive(Clone)]
struct Watcher {
    view: View,
    to: mpsc::Sender<Bytes>,
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

impl Server {
    /// Begins to answer, with so many pods.
    pub(crate) async fn start(count: usize, manners: Manners) -> Result<Server, String> {
        let failed = |why: std::io::Error| format!("the server cannot listen: {why}");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let newest = 1000 + count as u64;
        let shared = Arc::new(Shared {
            pods: Pods::new(),
            state: Mutex::new(State {
                manners,
                versions: (1001..=newest).collect(),
                newest,
                watchers: Vec::new(),
                following: 0,
            }),
        });
        let server = Server { address, shared };
        tokio::spawn(server.clone().accept(listener));
        Ok(server)
    }

    async fn accept(self, listener: TcpListener) {
        // A listener on loopback fails when the process has no more descriptors: the subject then fails, and the bench
        // says so.
        while let Ok((socket, _)) = listener.accept().await {
            let server = self.clone();
            let _ = socket.set_nodelay(true);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let answer = server.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                // A client that goes away is no failure.
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_manners(&self, manners: Manners) {
        self.state().manners = manners;
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        if request.uri().path() != "/api/v1/pods" {
            return refusal(StatusCode::NOT_FOUND, "NotFound", "the server serves pods only");
        }
        let query = request.uri().query().unwrap_or_default();
        let asked = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .next_back()
        };
        let view = view_of(request.headers());
        let yes = |name: &str| matches!(asked(name), Some("true" | "1"));
        let manners = self.state().manners;
        match (yes("watch"), yes("sendInitialEvents")) {
            (true, true) if !manners.watch_list => refusal(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                "sendInitialEvents: Forbidden: this server does not know it",
            ),
            (true, initial) => self.watch(view, initial),
            (false, _) => {
                let limit = asked("limit")
                    .and_then(|limit| limit.parse().ok())
                    .filter(|limit| *limit > 0);
                let from = asked("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
                self.list(view, from, limit.filter(|_| manners.pages))
            }
        }
    }

    fn list(&self, view: View, from: usize, limit: Option<usize>) -> Response<Body> {
        let (versions, newest) = {
            let state = self.state();
            (state.versions.clone(), state.newest)
        };
        let to = limit.map_or(versions.len(), |limit| (from + limit).min(versions.len()));
        let token = if to < versions.len() {
            to.to_string()
        } else {
            String::new()
        };
        let kind = match view {
            View::Whole => r#""kind":"PodList","apiVersion":"v1""#,
            View::Metadata => r#""kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1""#,
        };
        let head = format!(r#"{{{kind},"metadata":{{"resourceVersion":"{newest}","continue":"{token}"}},"items":["#);
        let server = self.clone();
        let items = stream::unfold(from, move |at| {
            let mut text = String::with_capacity(CHUNK + (8 << 10));
            let mut next = at;
            while next < to && text.len() < CHUNK {
                if next > from {
                    text.push(',');
                }
                server.shared.pods.write(next, versions[next], 0, view, &mut text);
                next += 1;
            }
            std::future::ready((next > at).then(|| (Bytes::from(text), next)))
        });
        let whole = stream::iter([Bytes::from(head)])
            .chain(items)
            .chain(stream::iter([Bytes::from_static(b"]}")]));
        streamed(whole.boxed())
    }

    fn watch(&self, view: View, initial: bool) -> Response<Body> {
        let (to, watcher) = mpsc::channel(WAITING);
        let mut state = self.state();
        state.watchers.retain(|watcher| !watcher.to.is_closed());
        state.watchers.push(Watcher { view, to: to.clone() });
        if initial {
            tokio::spawn(self.clone().initial(view, to, state.versions.clone(), state.newest));
        } else {
            state.following += 1;
        }
        streamed(
            stream::unfold(
                watcher,
                |mut watcher| async move { Some((watcher.recv().await?, watcher)) },
            )
            .boxed(),
        )
    }

    /// Sends everything, and the bookmark that ends it.
    async fn initial(self, view: View, to: mpsc::Sender<Bytes>, versions: Vec<u64>, newest: u64) {
        let all: Vec<(usize, u64)> = versions.into_iter().enumerate().collect();
        for part in all.chunks(16) {
            let mut text = String::with_capacity(CHUNK + CHUNK / 2);
            for (number, version) in part {
                self.event("ADDED", *number, *version, 0, view, &mut text);
            }
            if to.send(text.into()).await.is_err() {
                return;
            }
        }
        let kind = match view {
            View::Whole => r#""kind":"Pod","apiVersion":"v1""#,
            View::Metadata => r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#,
        };
        let bookmark = format!(
            r#"{{"type":"BOOKMARK","object":{{{kind},"metadata":{{"resourceVersion":"{newest}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
        );
        // Who has gone does not follow.
        if to.send(format!("{bookmark}\n").into()).await.is_ok() {
            self.state().following += 1;
        }
    }

    fn event(&self, kind: &str, number: usize, version: u64, sent: u128, view: View, to: &mut String) {
        to.push_str(r#"{"type":""#);
        to.push_str(kind);
        to.push_str(r#"","object":"#);
        self.shared.pods.write(number, version, sent, view, to);
        to.push_str("}\n");
    }

    /// How many watches follow or have followed.
    pub(crate) fn followed(&self) -> usize {
        self.state().following
    }

    /// Waits until so many watches follow or have followed.
    pub(crate) async fn follows(&self, count: usize) {
        while self.followed() < count {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Changes pods, one after the other, and sends the events as fast as the watchers take them. `per_second`: not
    /// faster than that, each by itself.
    pub(crate) async fn change(&self, numbers: impl Iterator<Item = usize>, per_second: Option<u32>) {
        let started = tokio::time::Instant::now();
        let mut pending = Vec::new();
        for (at, number) in (0_u32..).zip(numbers) {
            if let Some(rate) = per_second {
                tokio::time::sleep_until(started + Duration::from_secs(1) * at / rate).await;
            }
            pending.push(number);
            if per_second.is_some() || pending.len() == 16 {
                self.send(std::mem::take(&mut pending)).await;
            }
        }
        self.send(pending).await;
    }

    async fn send(&self, numbers: Vec<usize>) {
        let sent = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let (watchers, changes) = {
            let mut state = self.state();
            let mut changes = Vec::new();
            for number in numbers {
                state.newest += 1;
                let newest = state.newest;
                state.versions[number] = newest;
                changes.push((number, newest));
            }
            (state.watchers.clone(), changes)
        };
        for watcher in watchers {
            let mut text = String::with_capacity(CHUNK);
            for (number, version) in &changes {
                self.event("MODIFIED", *number, *version, sent, watcher.view, &mut text);
            }
            // Who has gone is told nothing.
            let _ = watcher.to.send(text.into()).await;
        }
    }

    /// Ends every watch with a 410, so that every client lists again.
    pub(crate) async fn expire(&self) {
        let watchers = std::mem::take(&mut self.state().watchers);
        let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;
        for watcher in watchers {
            let _ = watcher
                .to
                .send(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into())
                .await;
        }
    }
}

fn view_of(headers: &HeaderMap) -> View {
    let accepted = headers
        .get(http::header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    match accepted {
        Some(accepted) if accepted.contains("as=PartialObjectMetadata") => View::Metadata,
        _ => View::Whole,
    }
}

fn streamed(texts: BoxStream<'static, Bytes>) -> Response<Body> {
    let frames = SyncStream(Mutex::new(texts));
    answered(StatusCode::OK, BodyExt::boxed(StreamBody::new(frames)))
}

/// A stream that one task reads, made `Sync` for the body's sake.
struct SyncStream(Mutex<BoxStream<'static, Bytes>>);

impl futures::Stream for SyncStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let texts = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        texts
            .poll_next_unpin(context)
            .map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{}}}"#,
        code.as_u16()
    );
    answered(code, Full::new(Bytes::from(status)).boxed())
}

fn answered(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
