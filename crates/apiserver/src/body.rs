//! The body of a response: bytes that are complete or made as they are sent, a watch that goes on, or the answer of
//! another server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use kubewright_schema::stack::with_room;

use crate::audit::Entry;
use crate::forward::ForwardedBody;
use crate::recording::Recording;

/// The body of a response.
pub enum Body {
    /// The whole body.
    Full(Bytes),
    /// A whole body that is too long to be put together at once. Send its pieces as they come; its length is known.
    Long(LongBody),
    /// A watch: one event per item (a line of JSON, or a frame of protobuf), until it ends. Send it chunked and flush
    /// every item.
    Watch(WatchBody),
    /// The answer of the server behind an APIService. Send each piece as it comes; when one is an error, break the answer
    /// off, so that its client sees that something is missing.
    Forwarded(ForwardedBody),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Body::Long(long) => write!(f, "Long({} bytes)", long.len()),
            Body::Watch(_) => f.write_str("Watch(..)"),
            Body::Forwarded(_) => f.write_str("Forwarded(..)"),
        }
    }
}

impl Body {
    /// The whole body in one piece, for a caller that cannot use pieces.
    ///
    /// # Errors
    /// A watch has no end, and the answer of another server comes in its own time: these are given back.
    pub fn whole(self) -> Result<Bytes, Body> {
        match self {
            Body::Full(bytes) => Ok(bytes),
            Body::Long(long) => Ok(long.collect::<Vec<_>>().concat().into()),
            body @ (Body::Watch(_) | Body::Forwarded(_)) => Err(body),
        }
    }

    /// A whole body, piece by piece; nothing of one that is still to come.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Bytes> {
        let (full, long) = match self {
            Body::Full(bytes) => (Some(bytes), None),
            Body::Long(long) => (None, Some(long)),
            Body::Watch(_) | Body::Forwarded(_) => (None, None),
        };
        full.into_iter().chain(long.into_iter().flatten())
    }
}

/// The pieces of a long body, such as a list of thousands of objects: each is made when it is asked for.
pub struct LongBody {
    left: usize,
    held: usize,
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
}

impl LongBody {
    /// Pieces that have `length` bytes together, and `held` bytes of memory while any of them is left.
    pub fn new(length: usize, held: usize, pieces: impl Iterator<Item = Bytes> + Send + 'static) -> LongBody {
        LongBody {
            left: length,
            held,
            pieces: Box::new(pieces),
        }
    }

    /// Bytes that are still to come.
    pub fn len(&self) -> usize {
        self.left
    }

    /// How many bytes of memory it takes until it is sent.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Iterator for LongBody {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = with_room(|| self.pieces.next())?;
        self.left = self.left.saturating_sub(piece.len());
        Some(piece)
    }
}

/// The lines of a watch. Dropping it unsubscribes.
///
/// The server's buffer for one watch is bounded: a client that reads too slowly gets an in-stream `410 Expired` as the
/// last line and must list again; other watches are not affected.
pub struct WatchBody {
    lines: Box<dyn Lines>,
    /// Its entry in the audit log, which is complete when the watch is gone.
    audit: Option<Arc<Entry>>,
    /// Makes gzip of lines; `None`: they are sent as they are.
    compress: Option<fn(&[u8]) -> Bytes>,
    /// Whether the last line was read, which was sent with those before it.
    ended: bool,
}

/// How many bytes of lines are compressed together.
const MEMBER: usize = 64 * 1024;

/// The lines of a watch.
pub(crate) trait Lines: Stream<Item = Bytes> + Send + Unpin {
    /// See [`WatchBody::company`].
    fn company(&self) -> usize;

    /// See [`WatchBody::is_next_heavy`].
    fn is_next_heavy(&mut self, cx: &mut Context<'_>) -> bool;

    /// Records the changes that are delivered.
    fn record(&mut self, recording: Arc<Recording>);
}

impl WatchBody {
    pub(crate) fn new(lines: impl Lines + 'static) -> WatchBody {
        WatchBody {
            lines: Box::new(lines),
            audit: None,
            compress: None,
            ended: false,
        }
    }

    /// Sends lines compressed: those that are there together, so that none waits for one that is still to come.
    pub(crate) fn compressed(&mut self, compress: fn(&[u8]) -> Bytes) {
        self.compress = Some(compress);
    }

    fn next_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        with_room(|| Pin::new(&mut self.lines).poll_next(cx))
    }

    /// Lines that are there, compressed.
    fn next_member(&mut self, cx: &mut Context<'_>, compress: fn(&[u8]) -> Bytes) -> Poll<Option<Bytes>> {
        let first = match self.next_line(cx) {
            Poll::Ready(Some(first)) => first,
            nothing => return nothing,
        };
        let mut lines = Vec::from(first);
        while lines.len() < MEMBER && !self.is_next_heavy(cx) {
            match self.next_line(cx) {
                Poll::Ready(Some(line)) => lines.extend_from_slice(&line),
                Poll::Ready(None) => {
                    self.ended = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Some(compress(&lines)))
    }

    /// Keeps the entry of the request in the audit log open for as long as the watch is.
    pub(crate) fn attach_audit_entry(&mut self, entry: Arc<Entry>) {
        self.audit = Some(entry);
    }

    /// Records what the watch delivers.
    pub(crate) fn attach_recording(&mut self, recording: Arc<Recording>) {
        self.lines.record(recording);
    }

    /// How many watches the latest event went to, this one included, or nearly so. Each of them costs its sender a
    /// frame.
    pub fn company(&self) -> usize {
        self.lines.company()
    }

    /// Whether the next line may take long to make, and should be made on a thread where no other client waits. No,
    /// when there is none yet.
    pub fn is_next_heavy(&mut self, cx: &mut Context<'_>) -> bool {
        self.lines.is_next_heavy(cx)
    }
}

impl Stream for WatchBody {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let polled = match self.compress {
            Some(compress) => self.next_member(cx, compress),
            None => self.next_line(cx),
        };
        if let Poll::Ready(None) = polled {
            self.audit = None;
        }
        polled
    }
}
