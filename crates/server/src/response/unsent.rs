//! Answers that wait to be sent, and how much of them there may be.
//!
//! Over HTTP/2 a client may ask a thousand times and open the window of no stream, while the socket is free. Over
//! HTTP/1.1 it gets one answer after another, but it may have many connections, and read from none of them. So waiting
//! bytes are counted, and a client that takes none of them loses the answer.
//!
//! Invariants:
//! - a request is answered only while less waits than [`Bounds`] allow, for its connection and for all; only answers
//!   that were made at that moment go beyond them;
//! - a request waits for room for [`PATIENCE`] before it is refused, so that a client that reads never sees the bound;
//! - an answer counts until it is sent or its stream has ended, and a stream of which nothing is taken ends: after
//!   `stall`, and after [`HASTE`] where half of all room is taken.
//!
//! Not counted: answers of up to [`SMALL`] bytes, and one [`PIECE`] of each stream, which HTTP/2 has in its hands; over
//! HTTP/1.1 a few of them, and answers that are made while they are sent, such as long lists.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures::future::{AbortHandle, Abortable};
use http_body::{Body as _, SizeHint};
use kubewright_apiserver::Body;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Panicked, ResponseBody};

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

/// Too much waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The room of all connections.
pub(crate) struct UnsentBudget {
    bounds: Bounds,
    stall: Duration,
    started: Instant,
    all: Waits,
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
            bounds,
            stall,
            started: Instant::now(),
            all: Waits::new(bounds.all),
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
            own: Waits::new(self.bounds.connection),
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
        let scarce = self.all.bytes.load(Ordering::Relaxed) > self.bounds.all / 2;
        let limit = if scarce { self.stall.min(HASTE) } else { self.stall };
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

impl UnsentBuffer {
    /// Waits until another answer may be made.
    ///
    /// # Errors
    /// When the client has taken too little for that, or all others together have.
    pub(crate) async fn room(&self) -> Result<(), Full> {
        if self.own.has_room() && self.room.all.has_room() {
            return Ok(());
        }
        tokio::time::timeout(PATIENCE, self.wait()).await.map_err(|_| Full)
    }

    async fn wait(&self) {
        loop {
            let full = match (self.own.has_room(), self.room.all.has_room()) {
                (false, _) => &self.own,
                (true, false) => &self.room.all,
                (true, true) => return,
            };
            full.fewer.notified().await;
            // The next one may go on as well, with any outcome of this one.
            full.pass_on();
        }
    }

    /// Counts an answer that was made.
    pub(crate) fn count(self: &Arc<UnsentBuffer>, body: &Body) -> UnsentPermit {
        let bytes = match body {
            Body::Full(bytes) => bytes.len(),
            Body::Long(pieces) if self.side_by_side => pieces.len(),
            Body::Long(_) | Body::Watch(_) => 0,
        };
        self.own.add(bytes);
        self.room.all.add(bytes);
        UnsentPermit {
            unsent: self.clone(),
            bytes,
        }
    }
}

/// Bytes that are counted, until this is dropped.
pub(crate) struct UnsentPermit {
    unsent: Arc<UnsentBuffer>,
    bytes: usize,
}

impl UnsentPermit {
    fn sent(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.unsent.own.take_away(bytes);
        self.unsent.room.all.take_away(bytes);
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
        let is_whole = matches!(body, ResponseBody::Full(_));
        let Ok(stream) = STREAM.try_with(Clone::clone) else {
            return body;
        };
        if small || !(is_whole || counted.unsent.side_by_side) {
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

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Panicked>>> {
        let polled = match &mut self.body {
            // It stays whole in memory until its end, and counts until then: no piece keeps it there for longer.
            ResponseBody::Full(whole @ Some(_)) => Poll::Ready(piece_of(whole).map(Ok)),
            ResponseBody::Long(_) => {
                self.counted.sent(self.last);
                self.body.poll_bytes(cx)
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
    async fn client(room: &Arc<UnsentBudget>, open: bool) -> h2::client::SendRequest<Bytes> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let unsent = room.connection();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let unsent = unsent.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(&unsent).await) }
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

    async fn answer(unsent: &Arc<UnsentBuffer>) -> Response<ResponseBody> {
        let (code, text) = match unsent.room().await {
            Ok(()) => (StatusCode::OK, Bytes::from(vec![b'x'; ANSWER])),
            Err(Full) => (StatusCode::TOO_MANY_REQUESTS, Bytes::new()),
        };
        let counted = unsent.count(&Body::Full(text.clone()));
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
        let client = client(&room, true).await;
        assert_eq!(ask(&client, 40).await, times(40, || Came::Whole));
        assert_eq!(room.all.bytes.load(Ordering::Relaxed), 0);
        assert!(room.answers().sent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_refused_more_and_loses_what_waits() {
        let room = room(4 * MIB, 64 * MIB);
        let client = client(&room, false).await;
        let mut expected = times(16, || Came::Refused);
        expected.extend(times(4, || Came::Broken(STALL.as_secs())));
        assert_eq!(ask(&client, 20).await, expected);
        assert_eq!(room.all.bytes.load(Ordering::Relaxed), 0);
        assert!(room.answers().sent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_room_is_scarce_a_client_that_reads_nothing_is_closed_soon() {
        let room = room(4 * MIB, 4 * MIB);
        let (rests, reads) = (client(&room, false).await, client(&room, true).await);
        let resting = tokio::spawn(async move { ask(&rests, 4).await });
        while room.all.has_room() {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask(&reads, 10).await, times(10, || Came::Whole));
        let broken = resting.await.expect("no panic");
        assert_eq!(broken, times(4, || Came::Broken(HASTE.as_secs())));
    }

    /// A client over HTTP/1.1 that has asked.
    async fn asked(room: &Arc<UnsentBudget>) -> tokio::io::DuplexStream {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let unsent = room.connection_of_one();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let unsent = unsent.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(&unsent).await) }
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
        for _ in 0..4 {
            resting.push(asked(&room).await);
        }
        while room.all.has_room() {
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        assert!(taken(asked(&room).await).await > ANSWER);
        assert_eq!(started.elapsed().as_secs(), HASTE.as_secs());
        for client in resting {
            assert!(taken(client).await < ANSWER);
        }
        assert_eq!(room.all.bytes.load(Ordering::Relaxed), 0);
        assert!(room.answers().sent.is_empty());
    }
}
