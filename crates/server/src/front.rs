//! One request, whichever door it came through: read its body within bounds, let the API server answer, hand the answer
//! on.
//!
//! Invariants:
//! - nothing is read of a body whose sender is refused anyway, at most [`MAX_BODY`] bytes of any, [`BODIES`] of all
//!   together, and a body that stalls is given up;
//! - a panic in the server costs the request that caused it and nothing else;
//! - a request that may take long is answered on threads of its own (see [`crate::work`]), and holds up no other
//!   connection; one that turns out to take long, or to wait for a webhook, goes there as well;
//! - a large request begins only while those under way leave room in memory (see [`crate::memory`]);
//! - a client that leaves too many answers unread gets no further ones (see [`crate::response::unsent`]).
//!
//! How the answer is sent is decided in [`crate::response`].

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kubewright_apiserver::audit::{AUDIT_ID, PeerAddress};
use kubewright_apiserver::authentication::Identity;
use kubewright_apiserver::user::SYSTEM_ANONYMOUS;
use kubewright_apiserver::{
    Admitted, ApiServer, Body, Connect, MAX_BODY, TooLong, Trial, UserInfo, Weight, first_broken_escape,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::memory::{Memory, MemoryPermit};
use crate::pieces::{MIN_PIECE, Pieces, too_fine};
use crate::places::Place;
use crate::response::unsent::{Sending, UnsentBuffer, UnsentPermit};
use crate::response::{Offload, ResponseBody};
use crate::work::{Client, QueueFull, Workers};

/// How much of a body that is too large is read and thrown away, so that the client gets to read the answer: many see
/// nothing but a broken connection or stream when we end it while they still send.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// And for how long.
const DRAIN_TIME: Duration = Duration::from_secs(5);

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

    /// Marks the client as authenticated.
    fn prove(&self, user: &UserInfo) {
        if user.name != SYSTEM_ANONYMOUS
            && let Some(place) = &self.place
        {
            place.prove();
        }
    }
}

/// Connects clients with the streams of containers.
pub trait Connector: Send + Sync {
    /// Connects a client with the requested stream.
    ///
    /// # Errors
    /// `refusal`, which says that this is not served, where nothing runs or the client speaks none of the protocols.
    fn connect(
        &self,
        connect: Connect,
        head: &http::request::Parts,
        refusal: Response<Body>,
    ) -> Result<Response<ResponseBody>, Box<Response<Body>>>;
}

/// Adds to the answer of a request what only its surroundings know, such as a warning.
pub type Annotate = fn(&http::request::Parts, &mut Response<Body>);

/// The server with the parts that answer its requests; cheap to clone.
#[derive(Clone)]
pub struct Front {
    /// Answers requests.
    pub api: ApiServer,
    /// Ends watches and streams, and refuses everything after that.
    pub stop: CancellationToken,
    /// How long a request body may take to arrive.
    body_timeout: Duration,
    /// A permit for each byte that bodies under way may still take.
    bodies: Arc<Semaphore>,
    /// What requests under way hold.
    memory: Arc<Memory>,
    /// Threads for requests that may take long.
    workers: Workers,
    /// Has a last look at answers.
    pub annotate: Option<Annotate>,
    /// Connects clients with streams; without it there are none.
    pub connector: Option<Arc<dyn Connector>>,
}

/// How many bytes the bodies of all requests under way may take together; a further request gets 429.
const BODIES: usize = 256 * 1024 * 1024;

impl Front {
    /// The front of an API server, until `stop`: a request body may take `body_timeout` to arrive, and `workers` answer
    /// requests that take long.
    pub fn new(api: ApiServer, stop: CancellationToken, body_timeout: Duration, workers: Workers) -> Front {
        Front {
            api,
            stop,
            body_timeout,
            bodies: Arc::new(Semaphore::new(BODIES)),
            memory: Arc::default(),
            workers,
            annotate: None,
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
        let (mut parts, body) = request.into_parts();
        if let Some(escape) = first_broken_escape(parts.uri.path()) {
            return self.respond(bad_request(&format!(
                "the path of the request holds the invalid escape {escape:?}"
            )));
        }
        if let Some(place) = &peer.place {
            parts.extensions.insert(PeerAddress(place.peer()));
        }
        let found = match self.api.authenticate(&peer.identity, &parts) {
            Ok(found) => found,
            Err(refusal) => return self.refused(&parts, body, *refusal),
        };
        peer.prove(&found.user);
        let admitted = match self.api.admit(&parts, found.user.clone()).await {
            Ok(admitted) => admitted,
            Err(mut refusal) => {
                found.warn(&mut refusal);
                return self.refused(&parts, body, *refusal);
            }
        };
        let body = match self.read(&parts, body).await {
            Ok(body) => body,
            Err(mut refusal) => {
                admitted.complete(&mut refusal);
                return self.respond(refusal);
            }
        };
        let weight = self.api.weight(&admitted, body.bytes.len());
        let asked = Arc::new(Asked {
            client: peer.client(&found.user),
            permit: self.memory.permit(&found.user.name),
            unsent: peer.unsent.clone(),
            trial: ApiServer::trial(),
            admitted,
            head: parts,
            body,
        });
        let answer = match weight {
            Weight::Light => self.light(asked.clone()).await,
            Weight::Heavy => self.heavy(asked.clone()).await,
        };
        let (mut response, counted) = answer.unwrap_or_else(|refusal| (refusal, None));
        if let Some(annotate) = self.annotate {
            annotate(&asked.head, &mut response);
        }
        asked.admitted.complete(&mut response);
        found.warn(&mut response);
        if let Some(connect) = response.extensions_mut().remove::<Connect>() {
            let Some(connector) = &self.connector else {
                return self.respond(response);
            };
            let connected = connector.connect(connect, &asked.head, response);
            return connected.unwrap_or_else(|refusal| self.respond(*refusal));
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
    async fn light(&self, asked: Arc<Asked>) -> Result<Answer, Response<Body>> {
        asked.room().await?;
        let (api, tried) = (self.api.clone(), asked.clone());
        let mut trying = Box::pin(async move {
            tried
                .guarded(api.try_answer(&tried.trial, &tried.admitted, &tried.head, &tried.body.bytes))
                .await
        });
        let answer = match stays(&mut trying, &asked.trial).await {
            Some(answer) => answer,
            None => self.elsewhere(&asked, trying).await?,
        };
        match answer {
            Some(Ok(response)) => Ok(asked.counted(response)),
            Some(Err(TooLong)) => self.heavy(asked).await,
            None => Ok((panicked(), None)),
        }
    }

    /// Answers where it may take long.
    async fn heavy(&self, asked: Arc<Asked>) -> Result<Answer, Response<Body>> {
        let (api, memory, done) = (self.api.clone(), self.memory.clone(), asked.clone());
        let work = async move {
            done.room().await?;
            done.begins(&memory).await?;
            let answer = done
                .guarded(api.answer(&done.admitted, &done.head, &done.body.bytes))
                .await;
            Ok(answer.map_or_else(|| (panicked(), None), |response| done.counted(response)))
        };
        self.elsewhere(&asked, Box::pin(work)).await?
    }

    async fn elsewhere<W>(&self, asked: &Asked, work: Pin<Box<W>>) -> Result<W::Output, Response<Body>>
    where
        W: Future + Send + 'static,
        W::Output: Send + 'static,
    {
        let worked = self.workers.run(asked.client.clone(), work).await;
        worked.map_err(|QueueFull| too_many("too many long requests are under way, please try again later"))
    }

    /// Turns an answer of the core into one that can be sent.
    pub(crate) fn respond(&self, response: Response<Body>) -> Response<ResponseBody> {
        response.map(|body| match body {
            Body::Full(bytes) => ResponseBody::Full(Some(bytes)),
            Body::Long(pieces) => ResponseBody::Long(pieces),
            Body::Watch(_) => ResponseBody::Full(None),
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
    async fn read<B>(&self, parts: &http::request::Parts, mut body: B) -> Result<RequestBody, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let mut held = RequestBody::nothing(&self.bodies);
        if body.is_end_stream() {
            return Ok(held);
        }
        let limit = u64::try_from(MAX_BODY).unwrap_or(u64::MAX);
        let announced_too_large = body.size_hint().lower() > limit;
        let refusal = if announced_too_large {
            self.api.body_too_large()
        } else {
            match tokio::time::timeout(self.body_timeout, collect(&mut body, &mut held)).await {
                Ok(Ok(Collected::Whole)) => return Ok(held),
                Ok(Ok(Collected::TooLarge)) => self.api.body_too_large(),
                Ok(Ok(Collected::TooFine)) => broken_body(&too_fine()),
                Ok(Ok(Collected::TooMany)) => return Err(too_many_bodies()),
                Ok(Err(error)) => return Err(broken_body(&error)),
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
    permit: MemoryPermit,
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
        unsent.room().await.map_err(|_| too_many(why))
    }

    /// Waits until those under way leave room for a large request.
    async fn begins(&self, memory: &Memory) -> Result<(), Response<Body>> {
        if self.client.connection.is_none() {
            return Ok(());
        }
        let why = "too many large requests are under way, please try again later";
        memory.room(&self.client.user).await.map_err(|_| too_many(why))
    }

    /// The answer, which takes room.
    fn counted(&self, response: Response<Body>) -> Answer {
        let counted = self.unsent.as_ref().map(|unsent| unsent.count(response.body()));
        (response, counted)
    }

    /// The answer of the API server; none when it panics.
    async fn guarded<T>(&self, answering: impl Future<Output = T>) -> Option<T> {
        let answer = AssertUnwindSafe(self.weighed(answering)).catch_unwind().await;
        if answer.is_err() {
            let (method, path) = (&self.head.method, self.head.uri.path());
            self.admitted.panicked();
            tracing::error!(%method, path, "the API server panicked over a request; this is a defect of kubewright");
        }
        answer.ok()
    }

    /// The same, and while it waits all that it holds is counted.
    async fn weighed<T>(&self, answering: impl Future<Output = T>) -> T {
        let mut answering = pin!(answering);
        poll_fn(|cx| {
            let polled = answering.as_mut().poll(cx);
            if polled.is_pending() {
                self.permit.set(self.body.bytes.len() + self.admitted.made());
            }
            polled
        })
        .await
    }
}

/// A panic in the server is an answer, too.
fn panicked() -> Response<Body> {
    status(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        "Internal error occurred: this request made the API server panic; its log says where",
    )
}

/// The result of tried work; none when it has made an outbound call, and its answer has come: it should continue on
/// another thread.
async fn stays<W: Future + Unpin>(work: &mut W, trial: &Trial) -> Option<W::Output> {
    let mut called = false;
    poll_fn(|cx| {
        if called {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut *work).poll(cx).map(Some);
        called = trial.has_called();
        polled
    })
    .await
}

/// A body that was read, which counts as one under way for as long as this is there.
struct RequestBody {
    bytes: Bytes,
    bodies: Arc<Semaphore>,
    counted: usize,
}

impl RequestBody {
    fn nothing(bodies: &Arc<Semaphore>) -> RequestBody {
        RequestBody {
            bytes: Bytes::new(),
            bodies: bodies.clone(),
            counted: 0,
        }
    }

    /// Counts so many bytes more, if there is room for them.
    fn count(&mut self, bytes: usize) -> bool {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(permit) = self.bodies.try_acquire_many(wanted) else {
            return false;
        };
        permit.forget();
        self.counted += bytes;
        true
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.bodies.add_permits(self.counted);
    }
}

/// The outcome of reading a body.
#[derive(Debug, PartialEq, Eq)]
enum Collected {
    Whole,
    /// It is larger than [`MAX_BODY`].
    TooLarge,
    /// There is no room for it beside the bodies of other requests.
    TooMany,
    /// It comes in more than [`MAX_PIECES`](crate::pieces::MAX_PIECES).
    TooFine,
}

/// Reads all of a body into `held`, as far as that is allowed.
async fn collect<B>(body: &mut B, held: &mut RequestBody) -> Result<Collected, B::Error>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut pieces = Pieces::default();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if !pieces.admit() {
            return Ok(Collected::TooFine);
        }
        let Ok(data) = frame.into_data() else { continue };
        if pieces.len() + data.len() > MAX_BODY {
            return Ok(Collected::TooLarge);
        }
        if !held.count(data.len()) {
            return Ok(Collected::TooMany);
        }
        pieces.add(data);
    }
    held.bytes = pieces.whole();
    Ok(Collected::Whole)
}

/// Reads on without keeping anything.
async fn drain<B>(mut body: B)
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += MIN_PIECE + frame.data_ref().map_or(0, Bytes::len);
            if seen > DRAIN_BYTES {
                break;
            }
        }
    };
    // Whether it ended or not, the answer is the same; only the connection's fate differs.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

fn bad_request(message: &str) -> Response<Body> {
    status(StatusCode::BAD_REQUEST, "BadRequest", message)
}

fn broken_body(error: &dyn std::fmt::Display) -> Response<Body> {
    bad_request(&format!("the request body could not be read: {error}"))
}

/// `NewTooManyRequests` of apimachinery, as clients know that they are to come again.
fn too_many_bodies() -> Response<Body> {
    too_many("too many request bodies are under way, please try again later")
}

/// 429 with the time after which another try is worth it, which clients keep to.
pub(crate) fn too_many(message: &str) -> Response<Body> {
    let mut response = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    (response.headers_mut()).insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
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
mod tests {
    use http_body::Frame;

    use super::*;
    use crate::pieces::MAX_PIECES;

    /// The result of [`collect`] for a body that comes in pieces of these sizes, where there is room for so many bytes.
    async fn check(sizes: &[usize], room: usize, expected: Result<usize, Collected>) {
        let pieces = sizes
            .iter()
            .map(|size| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b'x'; *size]))));
        let mut body = http_body_util::StreamBody::new(futures::stream::iter(pieces));
        let bodies = Arc::new(Semaphore::new(room));
        let mut held = RequestBody::nothing(&bodies);
        let Ok(collected) = collect(&mut body, &mut held).await;
        let found = match collected {
            Collected::Whole => Ok(held.bytes.len()),
            refused => Err(refused),
        };
        assert_eq!(found, expected, "{sizes:?}");
        drop(held);
        assert_eq!(bodies.available_permits(), room, "{sizes:?}: the room is given back");
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        check(&[], BODIES, Ok(0)).await;
        check(&[7], BODIES, Ok(7)).await;
        check(&[0, 7, 0, 8], BODIES, Ok(15)).await;
        check(&[MAX_BODY], BODIES, Ok(MAX_BODY)).await;
        check(&[MAX_BODY, 1], BODIES, Err(Collected::TooLarge)).await;
        check(&[1, MAX_BODY - 2, 1], BODIES, Ok(MAX_BODY)).await;
        check(&[MAX_BODY + 1], BODIES, Err(Collected::TooLarge)).await;
        check(&[1; MAX_PIECES], BODIES, Ok(MAX_PIECES)).await;
        check(&[1; MAX_PIECES + 1], BODIES, Err(Collected::TooFine)).await;
    }

    #[tokio::test]
    async fn bodies_are_read_as_far_as_there_is_room_beside_others() {
        check(&[7, 3], 10, Ok(10)).await;
        check(&[7, 4], 10, Err(Collected::TooMany)).await;
        check(&[11], 10, Err(Collected::TooMany)).await;
    }
}
