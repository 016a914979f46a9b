//! Answers that wait to be sent, and how much of them there may be.
//!
//! Over HTTP/2 a client may ask a thousand times and open the window of no stream, while the socket is free. Over
//! HTTP/1.1 it gets one answer after another, but it may have many connections, and read from none of them. So waiting
//! bytes are counted, and a client that takes none of them loses the answer.
//!
//! Invariants:
//! - a request is answered only while less waits for its connection than [`Bounds`] allow, and for its user less than its
//!   share of all ([`Room`]); only answers that were made at that moment go beyond that;
//! - a request waits for room for [`PATIENCE`] before it is refused, so that a client that reads never sees the bound;
//! - an answer counts until it is sent or its stream has ended, and a stream of which nothing is taken ends: after
//!   `stall`, and after [`HASTE`] where half of all room is taken.
//!
//! Over HTTP/1.1 a long list is made while it is sent, by one after the other of its items, and counts with what it holds
//! of them.
//!
//! Of a watch over HTTP/2 the piece counts that its client has not taken. A watch is not held up by that, but other
//! answers of its user are, and a piece of which nothing is taken ends it.
//!
//! Not counted: answers and pieces of watches of up to [`SMALL`] bytes, and one [`PIECE`] of each other stream, which
//! HTTP/2 has in its hands; over HTTP/1.1 a few of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures::future::{AbortHandle, Abortable};
use http_body::{Body as _, SizeHint};
use kubewright_apiserver::Body;
use kubewright_apiserver::shares::NoShare;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{BrokenBody, ResponseBody};
use crate::shares::{Held, Room};

/// How long a request waits for those before it to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a stream may rest where room is scarce; well within [`PATIENCE`].
const HASTE: Duration = Duration::from_secs(2);
/// Answers up to this size are not counted.
const SMALL: usize = 4 * 1024;
/// The piece that HTTP/2 gets at once.
pub(crate) const PIECE: usize = 16 * 1024;

/// How many bytes may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connection: usize,
    pub(crate) all: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connection: 16 * 1024 * 1024,
            all: 256 * 1024 * 1024,
        }
    }
}

/// The room of all connections.
pub(crate) struct UnsentBudget {
    connection: usize,
    stall: Duration,
    started: Instant,
    all: Arc<Room>,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    next: u64,
    sent: BTreeMap<u64, Arc<Progress>>,
}

/// An answer that is being sent.
struct Progress {
    /// Since when its client has taken nothing, in milliseconds of the room; 0: there is nothing to take.
    since: AtomicU64,
    stream: AbortHandle,
}

/// Bytes that wait, and the requests that wait for them to become fewer.
struct Waits {
    bound: usize,
    bytes: AtomicUsize,
    fewer: Notify,
}

impl Waits {
    fn new(bound: usize) -> Waits {
        Waits {
            bound,
            bytes: AtomicUsize::new(0),
            fewer: Notify::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < self.bound
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take_away(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.pass_on();
    }

    /// Wakes one that waits, when it would find room; it wakes the next.
    fn pass_on(&self) {
        if self.has_room() {
            self.fewer.notify_one();
        }
    }
}

impl UnsentBudget {
    pub(crate) fn new(bounds: Bounds, stall: Duration) -> Arc<UnsentBudget> {
        Arc::new(UnsentBudget {
            connection: bounds.connection,
            stall,
            started: Instant::now(),
            all: Room::new(bounds.all),
            answers: Mutex::default(),
        })
    }

    /// The counter of a new connection of HTTP/2.
    pub(crate) fn connection(self: &Arc<UnsentBudget>) -> Arc<UnsentBuffer> {
        self.counter(true)
    }

    /// That of a connection of HTTP/1.1.
    pub(crate) fn connection_of_one(self: &Arc<UnsentBudget>) -> Arc<UnsentBuffer> {
        self.counter(false)
    }

    fn counter(self: &Arc<UnsentBudget>, side_by_side: bool) -> Arc<UnsentBuffer> {
        Arc::new(UnsentBuffer {
            room: self.clone(),
            own: Waits::new(self.connection),
            side_by_side,
        })
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1)
    }

    /// Ends the streams of which nothing has been taken for too long.
    pub(crate) fn sweep(&self) {
        let limit = if self.all.is_scarce() {
            self.stall.min(HASTE)
        } else {
            self.stall
        };
        let now = self.now();
        let rests = |progress: &Progress| match progress.since.load(Ordering::Relaxed) {
            0 => false,
            since => u128::from(now.saturating_sub(since)) >= limit.as_millis(),
        };
        let answers = self.answers();
        for progress in answers.sent.values().filter(|progress| rests(progress)) {
            progress.stream.abort();
        }
    }

    /// How often [`sweep`](UnsentBudget::sweep) is worth it.
    pub(crate) fn sweeping(&self) -> Duration {
        (self.stall.min(HASTE) / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

/// The answers that wait to be sent to the client of a connection.
pub(crate) struct UnsentBuffer {
    room: Arc<UnsentBudget>,
    own: Waits,
    /// Whether answers are sent side by side, as over HTTP/2.
    side_by_side: bool,
}

/// Whether an answer is counted at all.
pub(crate) fn counts(body: &Body) -> bool {
    !matches!(body, Body::Full(bytes) if bytes.len() <= SMALL)
}

impl UnsentBuffer {
    /// Waits until another answer may be made for this principal.
    ///
    /// # Errors
    /// When it has taken too little for that, over this connection or over all of its own.
    pub(crate) async fn room(&self, principal: &str) -> Result<(), NoShare> {
        if self.own.has_room() && self.room.all.has_room(principal) {
            return Ok(());
        }
        let waited = tokio::time::timeout(PATIENCE, self.wait(principal)).await;
        waited.map_err(|_| self.room.all.refuse(principal))
    }

    async fn wait(&self, principal: &str) {
        loop {
            let less = self.room.all.less();
            match (self.own.has_room(), self.room.all.has_room(principal)) {
                (true, true) => return,
                (false, _) => {
                    self.own.fewer.notified().await;
                    // The next one may go on as well, with any outcome of this one.
                    self.own.pass_on();
                }
                (true, false) => less.await,
            }
        }
    }

    /// Counts an answer that was made for this principal.
    pub(crate) fn count(self: &Arc<UnsentBuffer>, principal: &str, body: &Body) -> UnsentPermit {
        let bytes = match body {
            Body::Full(bytes) => bytes.len(),
            Body::Long(pieces) if self.side_by_side => pieces.len(),
            Body::Long(pieces) => pieces.held(),
            Body::Watch(_) | Body::Forwarded(_) => 0,
        };
        self.own.add(bytes);
        let held = self.room.all.open(principal);
        held.set(bytes);
        UnsentPermit {
            unsent: self.clone(),
            held,
            bytes,
        }
    }
}

/// Bytes that are counted, until this is dropped.
pub(crate) struct UnsentPermit {
    unsent: Arc<UnsentBuffer>,
    held: Held,
    bytes: usize,
}

impl UnsentPermit {
    fn sent(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.unsent.own.take_away(bytes);
        self.held.set(self.bytes);
    }

    /// What was made before is sent, and so many bytes are made.
    fn holds(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        self.unsent.own.add(bytes);
        self.unsent.own.take_away(self.bytes);
        self.bytes = bytes;
        self.held.set(bytes);
    }
}

impl Drop for UnsentPermit {
    fn drop(&mut self) {
        self.sent(self.bytes);
    }
}

/// A body that is being sent, counted and watched.
pub struct Sending {
    body: ResponseBody,
    counted: UnsentPermit,
    /// The piece that HTTP/2 took last; it asks for another one when that has gone.
    last: usize,
    progress: Arc<Progress>,
    number: u64,
}

impl Sending {
    /// A body as it is to be sent: watched where there is a stream that can be ended, and something that is worth it.
    pub(crate) fn of(body: ResponseBody, counted: UnsentPermit) -> ResponseBody {
        let small = body.size_hint().exact().is_some_and(|bytes| bytes <= SMALL as u64);
        let Ok(stream) = STREAM.try_with(Clone::clone) else {
            return body;
        };
        let is_counted = match body {
            ResponseBody::Full(_) | ResponseBody::Long(_) => true,
            _ => counted.unsent.side_by_side,
        };
        if small || !is_counted {
            return body;
        }
        let room = counted.unsent.room.clone();
        let progress = Arc::new(Progress {
            since: AtomicU64::new(room.now()),
            stream,
        });
        let mut answers = room.answers();
        answers.next += 1;
        let number = answers.next;
        answers.sent.insert(number, progress.clone());
        drop(answers);
        ResponseBody::Sending(Box::new(Sending {
            body,
            counted,
            last: 0,
            progress,
            number,
        }))
    }

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let polled = match &mut self.body {
            // It stays whole in memory until its end, and counts until then: no piece keeps it there for longer.
            ResponseBody::Full(whole @ Some(_)) => Poll::Ready(piece_of(whole).map(Ok)),
            ResponseBody::Long(_) if self.counted.unsent.side_by_side => {
                self.counted.sent(self.last);
                self.body.poll_bytes(cx)
            }
            body @ (ResponseBody::Watch(_) | ResponseBody::Flow(_) | ResponseBody::Forwarded(_)) => {
                let polled = body.poll_bytes(cx);
                let made = match &polled {
                    Poll::Ready(Some(Ok(piece))) if piece.len() > SMALL => piece.len(),
                    _ => 0,
                };
                self.counted.holds(made);
                polled
            }
            body => body.poll_bytes(cx),
        };
        let since = match &polled {
            Poll::Ready(Some(Ok(piece))) => {
                self.last = piece.len();
                self.counted.unsent.room.now()
            }
            _ => 0,
        };
        self.progress.since.store(since, Ordering::Relaxed);
        polled
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The next piece, copied; with the last one the whole goes.
fn piece_of(whole: &mut Option<Bytes>) -> Option<Bytes> {
    let bytes = whole.as_mut()?;
    let piece = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE)]);
    bytes.advance(piece.len());
    if bytes.is_empty() {
        *whole = None;
    }
    Some(piece)
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.counted.unsent.room.answers().sent.remove(&self.number);
    }
}

tokio::task_local! {
    /// Ends the stream that the task serves; of HTTP/1.1 the connection.
    static STREAM: AbortHandle;
}

/// Serves what ends when its client takes nothing of an answer; `None`: so it did.
pub(crate) async fn endable<F: Future>(serving: F) -> Option<F::Output> {
    let (handle, registration) = AbortHandle::new_pair();
    Abortable::new(STREAM.scope(handle, serving), registration).await.ok()
}

/// Serves each stream of HTTP/2 as a task of its own that can be ended.
#[derive(Clone)]
pub(crate) struct Streams;

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(async move {
            // What is left of an ended stream is its reset.
            let _ = endable(stream).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;
    use kubewright_apiserver::LongBody;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinSet;

    use super::*;
    use crate::listen::http2_builder;
    use crate::places::Limits;

    const ANSWER: usize = 1024 * 1024;
    const MIB: usize = 1024 * 1024;
    const STALL: Duration = Duration::from_secs(60);

    fn room(connection: usize, all: usize) -> Arc<UnsentBudget> {
        let room = UnsentBudget::new(Bounds { connection, all }, STALL);
        let swept = room.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(swept.sweeping()).await;
                swept.sweep();
            }
        });
        room
    }

    /// A client of a server whose answers are all of the same length; its windows are open, or stay closed.
    async fn client(room: &Arc<UnsentBudget>, user: &'static str, open: bool) -> h2::client::SendRequest<Bytes> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let unsent = room.connection();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let unsent = unsent.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(&unsent, user).await) }
            });
            let http = http2_builder(&Limits::default());
            // The client's end is the end.
            let _ = http.serve_connection(TokioIo::new(far), service).await;
        });
        let window = if open { 64 * 1024 } else { 0 };
        let handshake = h2::client::Builder::new().initial_window_size(window).handshake(near);
        let (client, connection) = handshake.await.expect("both speak HTTP/2");
        tokio::spawn(connection);
        client
    }

    async fn answer(unsent: &Arc<UnsentBuffer>, user: &str) -> Response<ResponseBody> {
        let (code, text) = match unsent.room(user).await {
            Ok(()) => (StatusCode::OK, Bytes::from(vec![b'x'; ANSWER])),
            Err(NoShare { .. }) => (StatusCode::TOO_MANY_REQUESTS, Bytes::new()),
        };
        let counted = unsent.count(user, &Body::Full(text.clone()));
        let body = Sending::of(ResponseBody::Full(Some(text)), counted);
        let mut response = Response::new(body);
        *response.status_mut() = code;
        response
    }

    /// The outcome of a request; of a broken answer, after how many seconds.
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Came {
        Whole,
        Refused,
        Broken(u64),
    }

    /// Asks so many times at once.
    async fn ask(client: &h2::client::SendRequest<Bytes>, times: usize) -> Vec<Came> {
        let started = Instant::now();
        let mut answers = JoinSet::new();
        for _ in 0..times {
            let mut client = client.clone().ready().await.expect("another stream");
            let request = Request::get("https://localhost/").body(()).expect("a request");
            let (response, _) = client.send_request(request, true).expect("the request is taken");
            answers.spawn(async move {
                let response = response.await.expect("a head");
                if response.status() != StatusCode::OK {
                    return Came::Refused;
                }
                let mut body = response.into_body();
                let mut length = 0;
                while let Some(piece) = body.data().await {
                    let Ok(piece) = piece else {
                        return Came::Broken(started.elapsed().as_secs());
                    };
                    length += piece.len();
                    body.flow_control()
                        .release_capacity(piece.len())
                        .expect("it was received");
                }
                assert_eq!(length, ANSWER);
                Came::Whole
            });
        }
        let mut came = answers.join_all().await;
        came.sort();
        came
    }

    fn times(count: usize, came: impl Fn() -> Came) -> Vec<Came> {
        (0..count).map(|_| came()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_gets_everything() {
        let room = room(4 * MIB, 64 * MIB);
        let client = client(&room, "a", true).await;
        assert_eq!(ask(&client, 40).await, times(40, || Came::Whole));
        assert_eq!(room.all.held(), 0);
        assert!(room.answers().sent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_refused_more_and_loses_what_waits() {
        let room = room(4 * MIB, 64 * MIB);
        let client = client(&room, "a", false).await;
        let mut expected = times(16, || Came::Refused);
        expected.extend(times(4, || Came::Broken(STALL.as_secs())));
        assert_eq!(ask(&client, 20).await, expected);
        assert_eq!(room.all.held(), 0);
        assert!(room.answers().sent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_room_is_scarce_a_client_that_reads_nothing_is_closed_soon() {
        let room = room(4 * MIB, 4 * MIB);
        let (rests, reads) = (client(&room, "a", false).await, client(&room, "b", true).await);
        let resting = tokio::spawn(async move { ask(&rests, 2).await });
        while room.all.has_room("a") {
            tokio::task::yield_now().await;
        }
        // Another user has a share left, and does not wait.
        let began = Instant::now();
        assert_eq!(ask(&reads, 10).await, times(10, || Came::Whole));
        assert_eq!(began.elapsed().as_secs(), 0);
        let broken = resting.await.expect("no panic");
        assert_eq!(broken, times(2, || Came::Broken(HASTE.as_secs())));
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_a_user_have_one_share() {
        let room = room(16 * MIB, 8 * MIB);
        let mut resting = JoinSet::new();
        for _ in 0..8 {
            let client = client(&room, "a", false).await;
            resting.spawn(async move { ask(&client, 1).await });
        }
        while room.all.has_room("a") {
            tokio::task::yield_now().await;
        }
        assert_eq!(room.all.held(), 4 * MIB);
        assert!(room.all.has_room("b"));
        resting.shutdown().await;
    }

    /// A client over HTTP/1.1 that has asked.
    async fn asked(room: &Arc<UnsentBudget>, user: &'static str) -> tokio::io::DuplexStream {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let unsent = room.connection_of_one();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let unsent = unsent.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(&unsent, user).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.max_buf_size(64 * 1024);
            // The client's end is the end.
            let _ = endable(http.serve_connection(TokioIo::new(far), service)).await;
        });
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        near.write_all(request).await.expect("the request is taken");
        near
    }

    /// How many bytes of its answer a client gets, all together.
    async fn taken(mut client: tokio::io::DuplexStream) -> usize {
        let mut bytes = Vec::new();
        // A connection that breaks ends as well.
        let _ = client.read_to_end(&mut bytes).await;
        bytes.len()
    }

    #[tokio::test(start_paused = true)]
    async fn over_http_1_a_client_that_reads_nothing_is_closed_soon_where_room_is_scarce() {
        let room = room(16 * MIB, 4 * MIB);
        let mut resting = Vec::new();
        for _ in 0..2 {
            resting.push(asked(&room, "a").await);
        }
        while room.all.has_room("a") {
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        assert!(taken(asked(&room, "a").await).await > ANSWER);
        assert_eq!(started.elapsed().as_secs(), HASTE.as_secs());
        for client in resting {
            assert!(taken(client).await < ANSWER);
        }
        assert_eq!(room.all.held(), 0);
        assert!(room.answers().sent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_counts_with_the_piece_that_its_client_has_not_taken() {
        let room = room(16 * MIB, 16 * MIB);
        let unsent = room.connection();
        let (send, pieces) = tokio::sync::mpsc::channel(1);
        let counted = unsent.count("a", &Body::Full(Bytes::new()));
        let watched = endable(async {
            let mut sending = Sending::of(ResponseBody::Flow(pieces), counted);
            for (bytes, expected) in [(SMALL, 0), (PIECE, PIECE), (SMALL + 1, SMALL + 1), (0, 0)] {
                send.send(Bytes::from(vec![b'x'; bytes])).await.expect("it is read");
                let piece = std::future::poll_fn(|cx| sending.poll_bytes(cx)).await;
                assert_eq!(piece.expect("a piece").expect("no panic").len(), bytes);
                assert_eq!(room.all.held(), expected, "of {bytes}");
            }
            send.send(Bytes::from(vec![b'x'; PIECE])).await.expect("it is read");
            let _ = std::future::poll_fn(|cx| sending.poll_bytes(cx)).await;
            assert!(futures::poll!(std::future::poll_fn(|cx| sending.poll_bytes(cx))).is_pending());
            assert_eq!(room.all.held(), 0, "it is asked for more when that was taken");
        });
        assert_eq!(watched.await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn over_http_1_a_long_list_counts_with_what_it_holds_until_it_is_sent() {
        let room = room(16 * MIB, 16 * MIB);
        let unsent = room.connection_of_one();
        let pieces = std::iter::repeat_n(Bytes::from(vec![b'x'; PIECE]), 100);
        let list = Body::Long(LongBody::new(100 * PIECE, MIB, pieces));
        let counted = unsent.count("a", &list);
        let Body::Long(list) = list else { unreachable!() };
        assert_eq!(room.all.held(), MIB);
        let sent = endable(async {
            let mut sending = Sending::of(ResponseBody::Long(list), counted);
            let mut bytes = 0;
            while let Some(piece) = std::future::poll_fn(|cx| sending.poll_bytes(cx)).await {
                assert_eq!(room.all.held(), MIB);
                bytes += piece.expect("no panic").len();
            }
            bytes
        });
        assert_eq!(sent.await, Some(100 * PIECE));
        assert_eq!(room.all.held(), 0);
    }
}
