//! One request, whichever door it came through: read its body within bounds, let the API server answer, hand the answer
//! on.
//!
//! Invariants:
//! - nothing is read of a body whose sender is refused anyway, and of others within bounds ([`body`]); a body that stalls
//!   is given up;
//! - a panic in the server costs the request that caused it and nothing else;
//! - a request that may take long is answered on threads of its own (see [`crate::work`]), and holds up no other
//!   connection; one that turns out to take long, or to wait for a webhook, goes there as well, and so does one of a user
//!   that asks so much that others would wait ([`serving`]);
//! - a request that waits, for whatever it is, takes no seat of its priority level from other flows ([`Seats::pause`]);
//! - a large request begins only while its user has room in memory left (see [`crate::shares`]);
//! - a request that takes longer than it may is dropped and answered with 504, unless it has changed something by then;
//!   its waiting counts as well;
//! - a client that leaves too many answers unread gets no further ones (see [`crate::response::unsent`]).
//!
//! How the answer is sent is decided in [`crate::response`].

mod admitting;
mod body;
mod serving;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use kubewright_apiserver::audit::{AUDIT_ID, PeerAddress};
use kubewright_apiserver::authentication::Identity;
use kubewright_apiserver::shares::{Ledger, NoShare};
use kubewright_apiserver::user::SYSTEM_ANONYMOUS;
use kubewright_apiserver::{
    Admitted, ApiServer, Body, Connect, MAX_BODY, Seats, TooLong, Trial, UserInfo, Weight, first_broken_escape,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outbound::Tunnel;
use crate::pieces::too_fine;
use crate::places::Place;
use crate::response::unsent::{self, Sending, UnsentBuffer, UnsentPermit};
use crate::response::{Offload, ResponseBody};
use crate::shares::{Held, Room};
use crate::work::{Client, Workers};
use body::{BODIES, Collected, RequestBody, collect, drain};
use serving::Serving;

/// How many bytes the requests under way may hold: bodies, and what was made beyond them. A large request begins only
/// while its user holds less than its share.
const MEMORY: usize = 256 * 1024 * 1024;
/// How long it waits for those before it to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The client at the other end of the connection.
pub struct Peer {
    /// The identity of the client by its connection; a request may say more.
    pub(crate) identity: Identity,
    /// His connection, when there is one.
    pub(crate) place: Option<Arc<Place>>,
    /// The answers that wait to be sent on it, where the client may send requests before it has taken them.
    pub(crate) unsent: Option<Arc<UnsentBuffer>>,
}

impl Peer {
    /// A user who comes over no connection.
    pub fn in_process(user: UserInfo) -> Peer {
        Peer {
            identity: Identity::User(user),
            place: None,
            unsent: None,
        }
    }

    /// The client for whom a request waits for its turn.
    fn client(&self, user: &UserInfo) -> Client {
        Client {
            user: user.name.clone(),
            connection: self.place.as_ref().map(|place| place.id()),
        }
    }

    /// Marks the client as authenticated. A connection for which its user has no share ends with this request.
    fn prove(&self, user: &UserInfo) -> Result<(), NoShare> {
        match &self.place {
            Some(place) if user.name != SYSTEM_ANONYMOUS => {
                place.prove(&user.name).inspect_err(|_| place.ask_to_leave())
            }
            _ => Ok(()),
        }
    }
}

/// Connects clients with the streams of containers.
pub trait Connector: Send + Sync {
    /// Connects a client with the requested stream.
    ///
    /// # Errors
    /// `refusal`, which says that this is not served, where nothing runs or the client speaks none of the protocols.
    fn connect<'a>(
        &'a self,
        connect: Connect,
        head: &'a http::request::Parts,
        refusal: Response<Body>,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, Box<Response<Body>>>>;
}

/// The most header fields of a request. HTTP/2 packs a thousand into a few KB, and they are kept, and counted, while the
/// body arrives. A client that impersonates a user of many groups needs a field for each group.
const FIELDS: usize = 256;

/// What the head of a request takes in memory, about.
fn held_by(head: &http::request::Parts) -> usize {
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| size_of::<header::HeaderValue>() + name.as_str().len() + value.len());
    head.uri.path_and_query().map_or(0, |uri| uri.as_str().len()) + fields.sum::<usize>()
}

/// The server with the parts that answer its requests; cheap to clone.
#[derive(Clone)]
pub struct Front {
    /// Answers requests.
    pub api: ApiServer,
    /// Ends watches and streams, and refuses everything after that.
    pub stop: CancellationToken,
    /// How long a request body may take to arrive.
    body_timeout: Duration,
    /// Bodies under way.
    bodies: Arc<Ledger>,
    /// What requests under way hold.
    memory: Arc<Room>,
    /// What users take of the threads that serve connections.
    serving: Arc<Serving>,
    /// Threads for requests that may take long.
    workers: Workers,
    /// Connects clients with streams; without it there are none.
    pub connector: Option<Arc<dyn Connector>>,
}

impl Front {
    /// The front of an API server, until `stop`: a request body may take `body_timeout` to arrive, and `workers` answer
    /// requests that take long.
    pub fn new(api: ApiServer, stop: CancellationToken, body_timeout: Duration, workers: Workers) -> Front {
        Front {
            api,
            stop,
            body_timeout,
            bodies: Ledger::new(BODIES),
            memory: Room::new(MEMORY),
            serving: Arc::default(),
            workers,
            connector: None,
        }
    }

    /// Answers one request of a client. Never fails: each error is an answer.
    pub async fn answer<B>(&self, request: Request<B>, peer: &Peer) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display + Send,
    {
        if request.method() == Method::OPTIONS && request.uri().path() == "*" {
            // Go's `globalOptionsHandler` answers this before any handler of kube-apiserver, whoever asks.
            return self.respond(Response::new(Body::Full(Bytes::new())));
        }
        let given = request.headers().get(AUDIT_ID).cloned();
        let mut response = self.answer_nameless(request, peer).await;
        self.api.name_answer(given, response.headers_mut());
        response
    }

    async fn answer_nameless<B>(&self, request: Request<B>, peer: &Peer) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let received = Instant::now();
        let (mut parts, body) = request.into_parts();
        if let Some(escape) = first_broken_escape(parts.uri.path()) {
            return self.respond(bad_request(&format!(
                "the path of the request holds the invalid escape {escape:?}"
            )));
        }
        if parts.headers.len() > FIELDS {
            let why = format!(
                "the request has {} header fields, the limit is {FIELDS}",
                parts.headers.len()
            );
            let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return self.refused(&parts, body, status(code, "BadRequest", &why));
        }
        if let Some(place) = &peer.place {
            parts.extensions.insert(PeerAddress(place.peer()));
        }
        let found = match self.api.authenticate(&peer.identity, &parts) {
            Ok(found) => found,
            Err(refusal) => return self.refused(&parts, body, *refusal),
        };
        if let Err(full) = peer.prove(&found.user) {
            let why = "too many connections of this user are open; close some and try again";
            return self.refused(&parts, body, too_many(why, full));
        }
        let client = || peer.client(&found.user);
        let admitted = match admitting::admit(&self.api, &self.workers, client, &parts, &found.user).await {
            Ok(admitted) => admitted,
            Err(mut refusal) => {
                found.warn(&mut refusal);
                return self.refused(&parts, body, *refusal);
            }
        };
        let body = match self.read(&parts, body, &found.user.name, &admitted).await {
            Ok(body) => body,
            Err(mut refusal) => {
                admitted.complete(&mut refusal);
                return self.respond(refusal);
            }
        };
        let weight = self.api.weight(&admitted, body.bytes.len());
        let asked = Arc::new(Asked {
            client: client(),
            memory: self.memory.clone(),
            held: OnceLock::new(),
            unsent: peer.unsent.clone(),
            trial: ApiServer::trial(),
            admitted,
            head: parts,
            body,
        });
        let answering = async {
            let seats = self.api.enter(&asked.admitted).await.map_err(|rejection| *rejection)?;
            let seats = Arc::new(seats);
            match weight {
                Weight::Light => self.light(asked.clone(), seats).await,
                Weight::Heavy => self.heavy(asked.clone(), seats).await,
            }
        };
        let deadline = asked.admitted.handling_limit().map(|limit| received + limit);
        let answer = match in_time(deadline, &asked.admitted, answering).await {
            Some(answer) => answer,
            None => Err(self.api.timed_out(&asked.admitted, &asked.head)),
        };
        let (mut response, counted) = answer.unwrap_or_else(|refusal| (refusal, None));
        asked.admitted.complete(&mut response);
        found.warn(&mut response);
        if let Some(connect) = response.extensions_mut().remove::<Connect>() {
            let Some(connector) = &self.connector else {
                return self.respond(response);
            };
            let connected = connector.connect(connect, &asked.head, response).await;
            return connected.unwrap_or_else(|refusal| self.respond(*refusal));
        }
        if let Some(tunnel) = response.extensions_mut().remove::<Tunnel>() {
            return response.map(|body| tunnel.connect(body, &self.stop));
        }
        drop(asked);
        let client = || Offload {
            workers: self.workers.clone(),
            client: Client {
                user: found.user.name.clone(),
                // One piece of each watch is made at a time, and there are so many watches.
                connection: None,
            },
        };
        let response = response.map(|body| ResponseBody::new(body, &self.stop, client));
        response.map(|body| match counted {
            Some(counted) => Sending::of(body, counted),
            None => body,
        })
    }

    /// Answers on this thread, as long as that takes no longer than it should.
    async fn light(&self, asked: Arc<Asked>, seats: Arc<Seats>) -> Result<Answer, Response<Body>> {
        // This process has threads of its own for its clients.
        let comes_over_connection = asked.client.connection.is_some();
        if comes_over_connection && self.serving.is_due(&asked.client.user, std::time::Instant::now()) {
            return self.heavy(asked, seats).await;
        }
        pausing(&seats, asked.room()).await?;
        let (api, tried, held) = (self.api.clone(), asked.clone(), seats.clone());
        let mut trying = Box::pin(async move {
            let trying = api.try_answer(&tried.trial, &tried.admitted, &tried.head, &tried.body.bytes);
            tried.guarded(&held, trying).await
        });
        let mut time = Duration::ZERO;
        let stayed = stays(&mut trying, &asked.trial, &mut time).await;
        if comes_over_connection {
            self.serving.took(&asked.client.user, time, std::time::Instant::now());
        }
        let answer = match stayed {
            Some(answer) => answer,
            None => self.elsewhere(&asked, &seats, trying).await?,
        };
        match answer {
            Some(Ok(response)) => Ok(asked.counted(response)),
            Some(Err(TooLong)) => self.heavy(asked, seats).await,
            None => Ok((panicked(), None)),
        }
    }

    /// Answers where it may take long.
    async fn heavy(&self, asked: Arc<Asked>, seats: Arc<Seats>) -> Result<Answer, Response<Body>> {
        let (api, memory, done, held) = (self.api.clone(), self.memory.clone(), asked.clone(), seats.clone());
        let work = async move {
            done.room().await?;
            done.begins(&memory).await?;
            let answering = api.answer(&done.admitted, &done.head, &done.body.bytes);
            let answer = done.guarded(&held, answering).await;
            Ok(answer.map_or_else(|| (panicked(), None), |response| done.counted(response)))
        };
        self.elsewhere(&asked, &seats, Box::pin(work)).await?
    }

    /// Does the work on a thread for long requests. Its seats pause until it has its turn.
    async fn elsewhere<W>(&self, asked: &Asked, seats: &Seats, work: Pin<Box<W>>) -> Result<W::Output, Response<Body>>
    where
        W: Future + Send + 'static,
        W::Output: Send + 'static,
    {
        seats.pause();
        let worked = self.workers.run(asked.client.clone(), work).await;
        worked.map_err(too_many_long)
    }

    /// Turns an answer of the core into one that can be sent.
    pub(crate) fn respond(&self, response: Response<Body>) -> Response<ResponseBody> {
        response.map(|body| match body {
            Body::Full(bytes) => ResponseBody::Full(Some(bytes)),
            Body::Long(pieces) => ResponseBody::Long(pieces),
            Body::Watch(_) | Body::Forwarded(_) => ResponseBody::Full(None),
        })
    }

    /// The answer to a request whose body is not wanted. A client that sends it all the same gets to read the answer:
    /// its bytes are read for a while, and thrown away.
    fn refused<B>(&self, parts: &http::request::Parts, body: B, refusal: Response<Body>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        if !body.is_end_stream() && !parts.headers.contains_key(header::EXPECT) {
            tokio::spawn(drain(body));
        }
        self.respond(refusal)
    }

    /// The whole body, or the answer to a request whose body cannot be had.
    async fn read<B>(
        &self,
        parts: &http::request::Parts,
        mut body: B,
        user: &str,
        admitted: &Admitted,
    ) -> Result<RequestBody, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display + Send,
    {
        if body.is_end_stream() {
            return Ok(RequestBody::default());
        }
        let mut held = RequestBody::behind(held_by(parts), &self.bodies, user).map_err(too_many_bodies)?;
        let limit = u64::try_from(MAX_BODY).unwrap_or(u64::MAX);
        let announced_too_large = body.size_hint().lower() > limit;
        let refusal = if announced_too_large {
            self.api.body_too_large()
        } else {
            let shorter = admitted.time_limit().filter(|limit| *limit < self.body_timeout);
            let timeout = shorter.unwrap_or(self.body_timeout);
            match tokio::time::timeout(timeout, collect(&mut body, &mut held)).await {
                Ok(Ok(Collected::Whole)) => return Ok(held),
                Ok(Ok(Collected::TooLarge)) => self.api.body_too_large(),
                Ok(Ok(Collected::TooFine)) => broken_body(&too_fine()),
                Ok(Ok(Collected::TooMany(full))) => return Err(too_many_bodies(full)),
                Ok(Err(error)) => return Err(broken_body(&error)),
                Err(_) if shorter.is_some() => return Err(self.api.timed_out(admitted, parts)),
                Err(_) => return Err(late_body(self.body_timeout)),
            }
        };
        drop(held);
        // A client that asked whether it should send the body at all waits for our answer instead of sending. Another
        // one may send on before it reads: its bytes are thrown away meanwhile, and no client waits for that.
        let waits = announced_too_large && parts.headers.contains_key(header::EXPECT);
        if !waits {
            tokio::spawn(drain(body));
        }
        Err(refusal)
    }
}

/// An answer, and its count until it is sent.
type Answer = (Response<Body>, Option<UnsentPermit>);

/// A request with all that its answer takes.
struct Asked {
    client: Client,
    memory: Arc<Room>,
    /// What it holds, once it has waited for something.
    held: OnceLock<Held>,
    unsent: Option<Arc<UnsentBuffer>>,
    trial: Trial,
    admitted: Admitted,
    head: http::request::Parts,
    body: RequestBody,
}

impl Asked {
    /// Waits until there is room for the answer.
    async fn room(&self) -> Result<(), Response<Body>> {
        let Some(unsent) = &self.unsent else { return Ok(()) };
        let why = "too many answers wait to be read by their clients, please try again later";
        let room = unsent.room(&self.client.user).await;
        room.map_err(|full| too_many(why, full))
    }

    /// Waits until those under way leave room for a large request.
    async fn begins(&self, memory: &Room) -> Result<(), Response<Body>> {
        if self.client.connection.is_none() {
            return Ok(());
        }
        let why = "too many large requests are under way, please try again later";
        let room = memory.wait(&self.client.user, PATIENCE).await;
        room.map_err(|full| too_many(why, full))
    }

    /// The answer, which takes room.
    fn counted(&self, response: Response<Body>) -> Answer {
        let unsent = self.unsent.as_ref().filter(|_| unsent::counts(response.body()));
        let counted = unsent.map(|unsent| unsent.count(&self.client.user, response.body()));
        (response, counted)
    }

    /// The answer of the API server; none when it panics.
    async fn guarded<T>(&self, seats: &Seats, answering: impl Future<Output = T>) -> Option<T> {
        let answer = AssertUnwindSafe(self.weighed(seats, answering)).catch_unwind().await;
        if answer.is_err() {
            let (method, path) = (&self.head.method, self.head.uri.path());
            self.admitted.panicked();
            tracing::error!(%method, path, "the API server panicked over a request; this is a defect of kubewright");
        }
        answer.ok()
    }

    /// The same, and while it waits all that it holds is counted, and its seats pause.
    async fn weighed<T>(&self, seats: &Seats, answering: impl Future<Output = T>) -> T {
        let mut answering = pin!(pausing(seats, answering));
        poll_fn(|cx| {
            let polled = answering.as_mut().poll(cx);
            if polled.is_pending() {
                let held = self.held.get_or_init(|| self.memory.open(&self.client.user));
                held.set(held_by(&self.head) + self.body.bytes.len() + self.admitted.made());
            }
            polled
        })
        .await
    }
}

/// Does the work of a request with seats, which pause while it waits.
async fn pausing<T>(seats: &Seats, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        seats.resume();
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            seats.pause();
        }
        polled
    })
    .await
}

/// A panic in the server is an answer, too.
pub(crate) fn panicked() -> Response<Body> {
    status(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        "Internal error occurred: this request made the API server panic; its log says where",
    )
}

/// The result of work that is dropped when its time is up, unless it has changed something by then; none when it was.
async fn in_time<T>(deadline: Option<Instant>, admitted: &Admitted, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let Some(deadline) = deadline else {
        return Some(work.await);
    };
    tokio::select! {
        biased;
        done = work.as_mut() => return Some(done),
        () = tokio::time::sleep_until(deadline) => {}
    }
    if admitted.expire() {
        return None;
    }
    Some(work.await)
}

/// The result of tried work; none when it has made an outbound call, and its answer has come: it should continue on
/// another thread. `time` is what it has computed.
async fn stays<W: Future + Unpin>(work: &mut W, trial: &Trial, time: &mut Duration) -> Option<W::Output> {
    let mut called = false;
    poll_fn(|cx| {
        if called {
            return Poll::Ready(None);
        }
        let began = std::time::Instant::now();
        let polled = Pin::new(&mut *work).poll(cx).map(Some);
        *time += began.elapsed();
        called = trial.has_called();
        polled
    })
    .await
}

fn bad_request(message: &str) -> Response<Body> {
    status(StatusCode::BAD_REQUEST, "BadRequest", message)
}

fn broken_body(error: &dyn std::fmt::Display) -> Response<Body> {
    bad_request(&format!("the request body could not be read: {error}"))
}

/// `NewTooManyRequests` of apimachinery, as clients know that they are to come again.
fn too_many_bodies(full: NoShare) -> Response<Body> {
    too_many("too many request bodies are under way, please try again later", full)
}

fn too_many_long(full: NoShare) -> Response<Body> {
    too_many("too many long requests are under way, please try again later", full)
}

/// 429 with the time after which another try is worth it, which clients keep to.
pub(crate) fn too_many(message: &str, full: NoShare) -> Response<Body> {
    let mut response = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    let seconds = header::HeaderValue::from(full.retry_after_seconds);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

fn late_body(timeout: Duration) -> Response<Body> {
    let message =
        format!("the request body did not arrive within {timeout:?}; send it at once, or over a faster connection");
    status(StatusCode::REQUEST_TIMEOUT, "Timeout", &message)
}

/// A `Status` failure, for errors before the API server sees the request.
pub(crate) fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(Body::Full(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests;
