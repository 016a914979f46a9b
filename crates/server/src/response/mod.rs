//! The body of an answer, as HTTP sends it: at once, in pieces, or event by event.
//!
//! Each frame of a watch costs a TLS record, a system call and a client that wakes up, however little is in it. So all
//! ready lines go together ([`FRAME`]), and where many watch the same, an event that follows closely on another waits
//! for those behind it ([`Pace`]).
//!
//! Invariants:
//! - a watch ends cleanly, between two lines, when the cluster stops; dropping the body unsubscribes it;
//! - lines that may take long to make are made on threads where no other client waits ([`crate::work`]), a few at a
//!   time;
//! - a panic while a body is made ends that body, and nothing else of its connection;
//! - an event after a pause is sent when it comes, however many others watch; none waits for longer than
//!   [`LONGEST_REST`].

pub(crate) mod unsent;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream as _;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use kubewright_apiserver::forward::{Cut, ForwardedBody};
use kubewright_apiserver::shares::NoShare;
use kubewright_apiserver::{Body, LongBody, WatchBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::work::{Client, Workers};
use unsent::Sending;

/// See the top of this file.
pub enum ResponseBody {
    /// Complete: its length is known, and it is sent in one piece. Taken when sent.
    Full(Option<Bytes>),
    /// Complete as well, and made while it is sent.
    Long(LongBody),
    /// A watch: whole lines in every frame, until it ends or the cluster stops.
    Watch(Box<Watch>),
    /// One of these, to a client that may take its time with it.
    Sending(Box<Sending>),
    /// The answer of another API server, as it comes.
    Forwarded(Box<Forwarded>),
    /// Pieces as they come, until there are no more: a log.
    Flow(mpsc::Receiver<Bytes>),
    /// No body: behind this answer the connection speaks another protocol. Only HTTP/1.1 has that.
    Upgrade(Upgrade),
}

/// A connection that speaks in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// The work of a connection behind its last answer, with the bytes that the client has sent already.
pub struct Upgrade(pub(crate) Behind);

/// Speaks another protocol until the connection ends.
type Behind = Box<dyn FnOnce(Box<dyn Duplex>, Bytes) -> BoxFuture<'static, ()> + Send>;

/// A body that was announced and cannot be sent as announced.
#[derive(Debug, thiserror::Error)]
pub enum BrokenBody {
    /// Its maker panicked.
    #[error("the API server panicked while it made the answer")]
    Panicked,
    /// The server behind this one did not send all of it.
    #[error(transparent)]
    Cut(#[from] Cut),
}

/// The answer of another API server, until the cluster stops.
pub struct Forwarded {
    pieces: ForwardedBody,
    stopped: BoxFuture<'static, ()>,
}

impl Forwarded {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let polled = Pin::new(&mut self.pieces).poll_next(cx).map_err(BrokenBody::from);
        match (polled, self.stopped.as_mut().poll(cx)) {
            // Nobody can tell whether this was all.
            (Poll::Pending, Poll::Ready(())) => Poll::Ready(Some(Err(Cut.into()))),
            (polled, _) => polled,
        }
    }
}

pub struct Watch<L = WatchBody> {
    /// None while a line is made elsewhere.
    lines: Option<L>,
    making: Option<BoxFuture<'static, (L, Option<Bytes>)>>,
    elsewhere: Offload,
    company: usize,
    ended: bool,
    stopped: BoxFuture<'static, ()>,
    pace: Pace,
}

/// Where lines are made that take long, and on whose turn.
pub(crate) struct Offload {
    pub(crate) workers: Workers,
    pub(crate) client: Client,
}

/// Where the lines of a watch come from.
pub trait Lines: Send + 'static {
    /// Whether the next line may take long to make.
    fn is_next_heavy(&mut self, cx: &mut Context<'_>) -> bool;

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// How many watches get the same events as this one.
    fn company(&self) -> usize;
}

impl Lines for WatchBody {
    fn is_next_heavy(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_next_heavy(cx)
    }

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Pin::new(self).poll_next(cx)
    }

    fn company(&self) -> usize {
        self.company()
    }
}

/// How much of a watch goes into one frame.
const FRAME: usize = 16 * 1024;
/// And how much of it is made elsewhere at once.
const MADE: usize = 64 * 1024;

impl ResponseBody {
    /// An answer of the core, as it is sent. `stop` ends watches.
    pub(crate) fn new(body: Body, stop: &CancellationToken, elsewhere: impl FnOnce() -> Offload) -> ResponseBody {
        match body {
            Body::Full(bytes) => ResponseBody::Full(Some(bytes)),
            Body::Long(pieces) => ResponseBody::Long(pieces),
            Body::Watch(lines) => {
                let stop = stop.clone();
                let stopped = async move { stop.cancelled().await };
                ResponseBody::Watch(Box::new(Watch::new(lines, Box::pin(stopped), elsewhere())))
            }
            Body::Forwarded(pieces) => {
                let stop = stop.clone();
                let stopped = Box::pin(async move { stop.cancelled().await });
                ResponseBody::Forwarded(Box::new(Forwarded { pieces, stopped }))
            }
        }
    }
}

/// When a watch sends its gathered lines.
///
/// A round of frames to all watches of a store takes a while, and the requests that come meanwhile wait for it. If each
/// of their changes had a round of its own, a server with hundreds of watches would do little else. So a round is
/// followed by a rest of several times its length, in which requests are answered; their changes go into the next round
/// together.
#[derive(Default)]
struct Pace {
    /// When the latest frame was sent.
    sent: Option<Instant>,
    /// The lines that wait to be sent, and until when.
    gathered: Option<(Gathered, Pin<Box<Sleep>>)>,
}

/// The lines of a frame. Many watches share each line, so a frame is written out of them only when it is sent:
/// thousands of watches may have lines waiting at the same time.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    more: Vec<Bytes>,
    length: usize,
}

impl Gathered {
    fn add(&mut self, line: Bytes) {
        self.length += line.len();
        if self.first.is_empty() {
            self.first = line;
        } else {
            self.more.push(line);
        }
    }

    /// All lines in one piece. Nearly always there is one line, which is not copied.
    fn into_frame(self) -> Bytes {
        if self.more.is_empty() {
            return self.first;
        }
        let mut frame = Vec::with_capacity(self.length);
        for line in std::iter::once(&self.first).chain(&self.more) {
            frame.extend_from_slice(line);
        }
        Bytes::from(frame)
    }
}

/// The cost of a frame for its sender, about: the kernel's time for a write to a socket whose reader sleeps.
const FRAME_COST: Duration = Duration::from_micros(10);

/// Up to so many watches everything is sent as it comes: the timers could not tell such short times apart.
const FEW: usize = 100;

/// How much longer than a round the rest is: so much of the time, at most, goes into frames.
const SHARE: u32 = 3;

/// The bound for any number of watches, too short to notice.
const LONGEST_REST: Duration = Duration::from_millis(20);

impl Pace {
    /// How long a watch that shares its events with so many rests after a frame.
    fn rest(company: usize) -> Duration {
        if company <= FEW {
            return Duration::ZERO;
        }
        let round = FRAME_COST.saturating_mul(u32::try_from(company).unwrap_or(u32::MAX));
        round.saturating_mul(SHARE).min(LONGEST_REST)
    }

    /// Until when a frame of so many bytes waits for others, if it does.
    fn until(&self, now: Instant, bytes: usize, company: usize) -> Option<Instant> {
        let until = self.sent? + Pace::rest(company);
        (until > now && bytes < FRAME).then_some(until)
    }
}

impl<L: Lines> Watch<L> {
    fn new(lines: L, stopped: BoxFuture<'static, ()>, elsewhere: Offload) -> Watch<L> {
        Watch {
            lines: Some(lines),
            making: None,
            elsewhere,
            company: 1,
            ended: false,
            stopped,
            pace: Pace::default(),
        }
    }

    /// The next frame. A panic ends the watch: the sent part is whole, and its reader goes on from there with another
    /// one.
    pub(crate) fn poll_guarded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        guarded(|| self.poll_frame(cx)).unwrap_or_else(|_| {
            self.ended = true;
            self.pace.gathered = None;
            Poll::Ready(None)
        })
    }

    /// The next frame; `None` when nothing follows.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some((_, timer)) = &mut self.pace.gathered {
            ready!(timer.as_mut().poll(cx));
            let waited = self.pace.gathered.take().map(|(lines, _)| lines);
            self.note_sent();
            let lines = self.ready_lines(waited.unwrap_or_default(), cx);
            return Poll::Ready(lines.map(Gathered::into_frame));
        }
        // First the ready lines, then the end: a write that was acknowledged before the stop reaches its watchers.
        if let Some(lines) = self.ready_lines(Gathered::default(), cx) {
            let company = self.company();
            let Some(until) = self.pace.until(Instant::now(), lines.length, company) else {
                self.note_sent();
                return Poll::Ready(Some(lines.into_frame()));
            };
            self.pace.gathered = Some((lines, Box::pin(sleep_until(until))));
            return self.poll_frame(cx);
        }
        if !self.ended {
            ready!(self.stopped.as_mut().poll(cx));
        }
        Poll::Ready(None)
    }

    /// The time of a frame matters only where there is a pace.
    fn note_sent(&mut self) {
        if self.company() > FEW {
            self.pace.sent = Some(Instant::now());
        }
    }

    /// These lines and all that are there now, up to about [`FRAME`] bytes; none when there is nothing yet, or the
    /// watch ended.
    fn ready_lines(&mut self, mut lines: Gathered, cx: &mut Context<'_>) -> Option<Gathered> {
        while lines.length < FRAME {
            let Some(line) = self.ready_line(cx) else { break };
            lines.add(line);
        }
        (lines.length > 0).then_some(lines)
    }

    fn ready_line(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        match self.poll_line(cx) {
            Poll::Ready(line) => {
                self.ended = line.is_none();
                line
            }
            Poll::Pending => None,
        }
    }

    fn company(&mut self) -> usize {
        if let Some(lines) = &self.lines {
            self.company = lines.company();
        }
        self.company
    }

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(lines) = &mut self.lines
            && !lines.is_next_heavy(cx)
        {
            return lines.poll_line(cx);
        }
        let (lines, elsewhere) = (&mut self.lines, &self.elsewhere);
        if let Some(lines) = lines.take() {
            self.making = Some(Box::pin(made(
                elsewhere.workers.clone(),
                elsewhere.client.clone(),
                lines,
            )));
        }
        // It may panic, and is gone then; the watch ends.
        let Some(mut making) = self.making.take() else {
            return Poll::Ready(None);
        };
        match making.as_mut().poll(cx) {
            Poll::Ready((lines, line)) => {
                self.lines = Some(lines);
                Poll::Ready(line)
            }
            Poll::Pending => {
                self.making = Some(making);
                Poll::Pending
            }
        }
    }
}

/// The lines that follow, as long as each of them may take long, up to about [`MADE`] bytes; the first is waited for.
async fn made<L: Lines>(workers: Workers, client: Client, mut lines: L) -> (L, Option<Bytes>) {
    let work = async move {
        let first = poll_fn(|cx| lines.poll_line(cx)).await;
        let mut cx = Context::from_waker(Waker::noop());
        let Some(first) = first else { return (lines, None) };
        let mut made = BytesMut::from(first);
        while made.len() < MADE && lines.is_next_heavy(&mut cx) {
            // A line that is not ready is not waited for: the connection asks again, and is woken.
            let Poll::Ready(Some(line)) = lines.poll_line(&mut cx) else {
                break;
            };
            made.extend_from_slice(&line);
        }
        (lines, Some(made.freeze()))
    };
    match workers.run(client, Box::pin(work)).await {
        Ok(made) => made,
        // Not of a client without a connection.
        Err(NoShare { .. }) => std::future::pending().await,
    }
}

impl ResponseBody {
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        match self {
            ResponseBody::Full(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Ok)),
            ResponseBody::Long(pieces) => match guarded(|| pieces.next()) {
                Ok(piece) => Poll::Ready(piece.map(Ok)),
                Err(panicked) => {
                    *self = ResponseBody::Full(None);
                    Poll::Ready(Some(Err(panicked)))
                }
            },
            ResponseBody::Watch(watch) => watch.poll_guarded(cx).map(|frame| frame.map(Ok)),
            ResponseBody::Sending(sending) => sending.poll_piece(cx),
            ResponseBody::Forwarded(forwarded) => forwarded.poll_piece(cx),
            ResponseBody::Flow(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(Ok)),
            ResponseBody::Upgrade(_) => Poll::Ready(None),
        }
    }
}

/// Makes a part of a body; a panic is caught and logged.
fn guarded<T>(make: impl FnOnce() -> T) -> Result<T, BrokenBody> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|_| {
        tracing::error!(
            "the API server panicked while it made an answer; this is a defect of kubewright, the answer ends here"
        );
        BrokenBody::Panicked
    })
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = ready!(self.poll_bytes(cx));
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            ResponseBody::Long(pieces) => pieces.is_empty(),
            ResponseBody::Watch(_) | ResponseBody::Flow(_) | ResponseBody::Forwarded(_) => false,
            ResponseBody::Upgrade(_) => true,
            ResponseBody::Sending(sending) => sending.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            ResponseBody::Long(pieces) => SizeHint::with_exact(pieces.len() as u64),
            ResponseBody::Watch(_) | ResponseBody::Flow(_) | ResponseBody::Forwarded(_) => SizeHint::default(),
            ResponseBody::Sending(sending) => sending.size_hint(),
            ResponseBody::Upgrade(_) => SizeHint::with_exact(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::mpsc;

    use super::*;

    fn elsewhere() -> Offload {
        Offload {
            workers: Workers::new(1),
            client: Client {
                user: "u".to_owned(),
                connection: None,
            },
        }
    }

    struct Fake {
        lines: mpsc::UnboundedReceiver<Bytes>,
        company: usize,
    }

    impl Lines for Fake {
        fn is_next_heavy(&mut self, _: &mut Context<'_>) -> bool {
            false
        }

        fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
            self.lines.poll_recv(cx)
        }

        fn company(&self) -> usize {
            self.company
        }
    }

    /// When which frames leave that are made of these lines, which come at these milliseconds.
    async fn check(company: usize, lines: &[(u64, &str)], expected: &[(u64, &str)]) {
        let (send, receive) = mpsc::unbounded_channel();
        let lines: Vec<(u64, String)> = lines.iter().map(|(at, line)| (*at, (*line).to_owned())).collect();
        let started = Instant::now();
        tokio::spawn(async move {
            for (at, line) in lines {
                sleep_until(started + Duration::from_millis(at)).await;
                let _ = send.send(Bytes::from(line));
            }
        });
        let fake = Fake {
            lines: receive,
            company,
        };
        let mut watch = Watch::new(fake, Box::pin(std::future::pending()), elsewhere());
        let mut frames = Vec::new();
        while let Some(frame) = poll_fn(|cx| watch.poll_frame(cx)).await {
            let at = started.elapsed().as_millis();
            frames.push((at, String::from_utf8_lossy(&frame).into_owned()));
        }
        let expected: Vec<(u128, String)> = (expected.iter())
            .map(|(at, frame)| (u128::from(*at), (*frame).to_owned()))
            .collect();
        assert_eq!(frames, expected, "with {company} watches");
    }

    #[tokio::test(start_paused = true)]
    async fn where_many_watch_events_that_follow_closely_go_together() {
        let close = [(0, "a"), (1, "b"), (2, "c"), (40, "d"), (40, "e")];
        let as_they_come = [(0, "a"), (1, "b"), (2, "c"), (40, "de")];
        check(1, &close, &as_they_come).await;
        check(FEW, &close, &as_they_come).await;
        check(500, &close, &[(0, "a"), (15, "bc"), (40, "de")]).await;
        check(1_000_000, &close, &[(0, "a"), (20, "bc"), (40, "de")]).await;
        // After a pause everything is as at the beginning.
        check(
            500,
            &[(0, "a"), (15, "b"), (30, "c")],
            &[(0, "a"), (15, "b"), (30, "c")],
        )
        .await;
        // The end comes after the gathered lines.
        check(500, &[(0, "a"), (1, "b")], &[(0, "a"), (15, "b")]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn lines_that_wait_are_shared() {
        let (send, lines) = mpsc::unbounded_channel();
        let mut watch = Watch::new(
            Fake { lines, company: 500 },
            Box::pin(std::future::pending()),
            elsewhere(),
        );
        let text = |text: &str| Bytes::from(text.to_owned());
        send.send(text("a")).expect("the watch listens");
        assert_eq!(poll_fn(|cx| watch.poll_frame(cx)).await, Some(text("a")));
        let waiting = [text("b"), text("c"), text("d")];
        for line in &waiting {
            send.send(line.clone()).expect("the watch listens");
        }
        assert!(futures::poll!(poll_fn(|cx| watch.poll_frame(cx))).is_pending());
        let (held, _) = watch.pace.gathered.as_ref().expect("they wait");
        let places: Vec<_> = std::iter::once(&held.first)
            .chain(&held.more)
            .map(|line| line.as_ptr())
            .collect();
        assert_eq!(
            places,
            waiting.each_ref().map(|line| line.as_ptr()),
            "no line was copied"
        );
        assert_eq!(poll_fn(|cx| watch.poll_frame(cx)).await, Some(text("bcd")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_frame_waits_for_nothing() {
        let long = "x".repeat(FRAME);
        check(
            500,
            &[(0, "a"), (1, &long), (2, "b")],
            &[(0, "a"), (1, &long), (16, "b")],
        )
        .await;
    }

    /// Lines of which the second one cannot be made.
    struct Breaking(usize);

    impl Lines for Breaking {
        fn is_next_heavy(&mut self, _: &mut Context<'_>) -> bool {
            false
        }

        fn poll_line(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
            self.0 += 1;
            match self.0 {
                1 => Poll::Ready(Some(Bytes::from_static(&[b'x'; FRAME]))),
                2 => std::panic::resume_unwind(Box::new("a defect")),
                _ => panic!("asked again after a panic"),
            }
        }

        fn company(&self) -> usize {
            1
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_watch() {
        let mut watch = Watch::new(Breaking(0), Box::pin(std::future::pending()), elsewhere());
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let frame = poll_fn(|cx| watch.poll_guarded(cx)).await;
            lengths.push(frame.map(|frame| frame.len()));
        }
        assert_eq!(lengths, [Some(FRAME), None, None]);
    }

    #[tokio::test]
    async fn a_panic_breaks_a_long_answer() {
        use http_body_util::BodyExt as _;
        let pieces = (0..3).map(|at| match at {
            0 => Bytes::from_static(b"x"),
            _ => std::panic::resume_unwind(Box::new("a defect")),
        });
        let mut body = ResponseBody::Long(LongBody::new(3, 0, pieces));
        let first = body.frame().await.expect("a piece").expect("the first is made");
        assert_eq!(first.into_data().expect("data"), Bytes::from_static(b"x"));
        assert!(
            body.frame().await.is_some_and(|frame| frame.is_err()),
            "the client must see that something is missing"
        );
        assert!(body.frame().await.is_none());
    }
}
