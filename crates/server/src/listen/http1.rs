//! HTTP/1.1: requests are hyper's, and a watch is sent by ourselves.
//!
//! A watch may last for hours in which nothing happens, and the reader and writer of requests keeps 16 KiB of buffers
//! all the while. So when a request is answered with a watch, the connection is taken back from hyper, which costs
//! nothing from then on; the watch is sent in chunks as its events come, and when it has ended hyper gets the
//! connection again. A watch over a WebSocket is the last answer of its connection ([`watch_socket`]).
//!
//! Invariants:
//! - a client sees what hyper would have sent: a chunked body, and a connection that can be used again;
//! - a client that goes is noticed at once, even after it has sent other bytes;
//! - events that are there together go together: a frame of a watch is one record of TLS and one system call.
//!
//! Not here: watches of HTTP/1.0, which knows no chunks, and of HTTP/2, where they are streams among others. Which
//! connections are closed to make room is decided in [`super::places`].

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, Version, header, response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::heads;
use super::lent::lend;
use super::watch_socket::{self, Asked, Framing};
use super::{Ended, GRACE, MAX_HEADERS, Sent, Session};
use crate::places::UnderWay;
use crate::response::{ResponseBody, Upgrade, Watch};

pub(super) fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    let max_headers = usize::try_from(MAX_HEADERS).expect("64 Ki fits");
    // The places know how long a head has been on its way.
    http.header_read_timeout(None).max_buf_size(max_headers);
    http
}

/// Serves a connection until its client goes, or it is asked to leave.
pub(super) async fn serve<S>(mut stream: S, http: &http1::Builder, session: &Session) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    loop {
        // In boxes of their own: a watch does not carry the memory that requests and its beginning need.
        let turn = Box::pin(requests(stream, http, session)).await?;
        let watching = match turn {
            None => return Ok(()),
            Some((
                mut back,
                Taken::Upgraded {
                    head,
                    upgrade,
                    begun,
                    under_way,
                },
            )) => {
                back.write_all(&head).await?;
                back.flush().await?;
                // The request is under way until the connection ends.
                let _under_way = under_way;
                let (lent, lender) = lend(back);
                (upgrade.0)(Box::new(lent), begun).await;
                if let Some(mut back) = lender.back() {
                    // A client that has gone needs no goodbye, and one that takes none is not waited for.
                    let _ = tokio::time::timeout(GRACE, back.shutdown()).await;
                }
                return Ok(());
            }
            Some((back, Taken::Watching(watching))) => {
                stream = back;
                watching
            }
        };
        let (watch, after) = Box::pin(begin(&mut stream, watching)).await?;
        send(&mut stream, watch).await?;
        if after == After::Close {
            stream.shutdown().await?;
            return Ok(());
        }
    }
}

/// A connection that was taken from hyper.
enum Taken {
    Watching(Watching),
    /// Another protocol, behind this head; the client may have begun to speak it.
    Upgraded {
        head: Vec<u8>,
        upgrade: Upgrade,
        begun: Bytes,
        under_way: UnderWay,
    },
}

/// A watch that is the answer to a request.
struct Watching {
    head: Vec<u8>,
    body: Watched,
    after: After,
}

/// The events of a watch, which is under way until this is dropped.
struct Watched {
    watch: Box<Watch>,
    #[expect(dead_code, reason = "what counts is when it is dropped")]
    under_way: UnderWay,
}

/// The fate of the connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// There may be further requests.
    Keep,
    Close,
}

/// Where a request leaves the watch that is its answer.
type Handed = Arc<Mutex<Option<Taken>>>;

fn take(handed: &Handed) -> Option<Taken> {
    handed.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Answers requests until one is answered with a watch; `None`: the connection is over.
async fn requests<S>(stream: S, http: &http1::Builder, session: &Session) -> Result<Option<(S, Taken)>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let handed = Handed::default();
    let service = service_fn(|request| answer(session, request, handed.clone()));
    let mut serving = http.serve_connection(TokioIo::new(stream), service);
    let mut leaves = pin!(session.place.leaves());
    let mut grace = None;
    let watching = poll_fn(|cx| {
        if grace.is_none() && leaves.as_mut().poll(cx).is_ready() {
            Pin::new(&mut serving).graceful_shutdown();
            grace = Some(Box::pin(tokio::time::sleep(GRACE)));
        }
        if let Poll::Ready(ended) = serving.poll_without_shutdown(cx) {
            return Poll::Ready(ended.map(|()| None).map_err(Ended::from));
        }
        if let Some(watching) = take(&handed) {
            return Poll::Ready(Ok(Some(watching)));
        }
        let Some(grace) = &mut grace else { return Poll::Pending };
        ready!(grace.as_mut().poll(cx));
        Poll::Ready(Err(Ended::from("it was asked to leave and did not")))
    })
    .await?;
    let parts = serving.into_parts();
    let mut stream = parts.io.into_inner();
    let Some(mut taken) = watching else {
        stream.shutdown().await?;
        return Ok(None);
    };
    match &mut taken {
        // A client sends the next request after the end of this answer; one that did so earlier will have to repeat it.
        Taken::Watching(watching) if !parts.read_buf.is_empty() || grace.is_some() => watching.after = After::Close,
        Taken::Watching(_) => {}
        Taken::Upgraded { begun, .. } => *begun = parts.read_buf,
    }
    Ok(Some((stream, taken)))
}

/// Answers a request; one that is answered with a watch hands it over and is never heard of again.
fn answer(
    session: &Session,
    request: Request<Incoming>,
    handed: Handed,
) -> BoxFuture<'static, Result<Response<Sent>, Infallible>> {
    let (front, peer, under_way) = (session.front.clone(), session.peer.clone(), session.place.begin());
    if let Some(refusal) = heads::refusal(request.version(), request.method(), request.headers()) {
        return Box::pin(async move { Ok(refusal.map(|body| Sent::over_http1(body, under_way))) });
    }
    let is_latest = request.version() == Version::HTTP_11;
    let chunks = is_latest && request.method() == Method::GET;
    let after = after(request.headers());
    let socket = if chunks {
        watch_socket::asked(request.headers())
    } else {
        None
    };
    Box::pin(async move {
        let (head, body) = over_socket(front.answer(request, &peer).await, socket).into_parts();
        match body {
            ResponseBody::Watch(watch) if chunks => {
                under_way.watches();
                let head = written(&head, Framed::Chunks(after));
                let body = Watched { watch, under_way };
                let watching = Watching { head, body, after };
                *handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Taken::Watching(watching));
                pending().await
            }
            ResponseBody::Upgrade(upgrade) if is_latest => {
                let taken = Taken::Upgraded {
                    head: written(&head, Framed::Not),
                    upgrade,
                    begun: Bytes::new(),
                    under_way,
                };
                *handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
                pending().await
            }
            body => {
                if matches!(body, ResponseBody::Watch(_)) {
                    under_way.watches();
                }
                Ok(Response::from_parts(head, Sent::over_http1(body, under_way)))
            }
        }
    })
}

/// An answer to a client that may have asked for a WebSocket: it gets one when the answer is a watch.
fn over_socket(answer: Response<ResponseBody>, asked: Option<Asked>) -> Response<ResponseBody> {
    let (head, body) = answer.into_parts();
    match (body, asked) {
        (ResponseBody::Watch(watch), Some(Asked::Granted(granted))) => {
            let upgrade = watch_socket::upgrade(watch, Framing::of(&head.headers));
            granted.map(|()| ResponseBody::Upgrade(upgrade))
        }
        (ResponseBody::Watch(_), Some(Asked::Refused(refusal))) => refusal.map(|why| ResponseBody::Full(Some(why))),
        (body, _) => Response::from_parts(head, body),
    }
}

/// The client's wish for its connection.
fn after(headers: &HeaderMap) -> After {
    let words = headers.get_all(header::CONNECTION).into_iter();
    let mut words = words
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    if words.any(|word| word.trim().eq_ignore_ascii_case("close")) {
        After::Close
    } else {
        After::Keep
    }
}

/// The framing of the body behind a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framed {
    /// A body in chunks, and the fate of the connection.
    Chunks(After),
    /// The rest is not HTTP.
    Not,
}

/// The head of an answer that hyper does not send.
fn written(head: &response::Parts, framed: Framed) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} ", head.status.as_str()).into_bytes();
    text.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
    let mut line = |name: &str, value: &[u8]| {
        for part in [b"\r\n", name.as_bytes(), b": ", value] {
            text.extend_from_slice(part);
        }
    };
    for (name, value) in &head.headers {
        line(name.as_str(), value.as_bytes());
    }
    if framed != Framed::Not {
        line("transfer-encoding", b"chunked");
    }
    if framed == Framed::Chunks(After::Close) {
        line("connection", b"close");
    }
    if let Ok(date) = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&jiff::Timestamp::now()) {
        line("date", date.as_bytes());
    }
    text.extend_from_slice(b"\r\n\r\n");
    text
}

/// Sends the head of a watch, with its first lines.
///
/// # Errors
/// When the client goes, or takes nothing for too long.
async fn begin<S>(stream: &mut S, watching: Watching) -> io::Result<(Watched, After)>
where
    S: AsyncWrite + Unpin,
{
    let Watching { head, mut body, after } = watching;
    let first = poll_fn(|cx| Poll::Ready(body.watch.poll_guarded(cx))).await;
    let first = match first {
        Poll::Ready(Some(frame)) => frame,
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    stream.write_all_buf(&mut Bytes::from(head).chain(chunk(first))).await?;
    stream.flush().await?;
    Ok((body, after))
}

/// Sends a watch to its end.
///
/// # Errors
/// When the client goes, takes nothing for too long, or says something.
async fn send<S>(stream: &mut S, mut body: Watched) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(frame) = poll_fn(|cx| next(stream, &mut body.watch, cx)).await? {
        stream.write_all_buf(&mut chunk(frame)).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await
}

/// A chunk of a chunked body; an empty one is left out, because it would be the last.
fn chunk(frame: Bytes) -> impl Buf {
    let (mut length, mut end) = (String::new(), &b""[..]);
    if !frame.is_empty() {
        // Writing to a string does not fail.
        let _ = write!(length, "{:x}\r\n", frame.len());
        end = b"\r\n";
    }
    Bytes::from(length).chain(frame).chain(end)
}

/// The next frame of a watch whose client is still there.
fn next<S>(stream: &mut S, watch: &mut Watch, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>
where
    S: AsyncRead + Unpin,
{
    let mut byte = [0];
    let mut read = ReadBuf::new(&mut byte);
    match Pin::new(stream).poll_read(cx, &mut read) {
        Poll::Pending => {}
        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        Poll::Ready(Ok(())) => {
            let why = match read.filled().len() {
                0 => "the client of a watch went",
                _ => "the client sent something while a watch was sent to it",
            };
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
    }
    watch.poll_guarded(cx).map(Ok)
}
