//! What a response carries: bytes that are complete, or a watch that goes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;

/// The body of a response.
pub enum Body {
    /// The whole body.
    Full(Bytes),
    /// A watch: one event per item (a line of JSON, or a frame of protobuf), until it ends. Send it chunked and flush every item.
    Watch(WatchBody),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Body::Watch(_) => f.write_str("Watch(..)"),
        }
    }
}

/// The lines of a watch. Dropping it unsubscribes.
///
/// The server's buffer for one watch is bounded: whoever reads too slowly gets an in-stream `410 Expired` as the last line and
/// must list again; other watches are not affected.
pub struct WatchBody {
    lines: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
}

impl WatchBody {
    pub(crate) fn new(lines: impl Stream<Item = Bytes> + Send + 'static) -> WatchBody {
        WatchBody { lines: Box::pin(lines) }
    }
}

impl Stream for WatchBody {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.lines.as_mut().poll_next(cx)
    }
}
