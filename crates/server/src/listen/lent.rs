//! A connection that is lent to a protocol (a WebSocket, SPDY) and returned when the protocol has ended. The protocol
//! only drops it; the listener then ends a TLS connection with `close_notify`, without which the client would take the
//! data for truncated.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What serves the connection has this of it.
pub(super) struct Lent<S>(Arc<Mutex<S>>);

/// What has lent it has this.
pub(super) struct Lender<S>(Arc<Mutex<S>>);

pub(super) fn lend<S>(stream: S) -> (Lent<S>, Lender<S>) {
    let shared = Arc::new(Mutex::new(stream));
    (Lent(shared.clone()), Lender(shared))
}

impl<S> Lender<S> {
    /// The connection, if the protocol no longer holds it.
    pub(super) fn back(self) -> Option<S> {
        let stream = Arc::try_unwrap(self.0).ok()?;
        Some(stream.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S> Lent<S> {
    fn stream(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lent<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lent<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream()).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_shutdown(cx)
    }
}
