//! A connection that gives up on a client which does not listen, and tells when one begins to speak.
//!
//! While we have something to send, the client must take some of it; the timer exists only while it may fire. A
//! connection on which both sides are silent is not touched here: an idle watch may last for hours, and
//! [`super::places`] ends connections that rest too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::places::Place;

/// How many bytes are read and written in one turn: what takes about as long as answering a request.
const TURN: usize = 64 * 1024;

/// The same of HTTP/2: they may be hundreds of frames of a few bytes, each with its work.
const FRAMES: usize = 4 * 1024;

/// A stream with limits on silence. `Unpin`, as long as the stream is.
pub(crate) struct Guarded<S> {
    stream: S,
    /// Learns of read bytes that begin a request. `None`: they are frames of HTTP/2.
    place: Option<Arc<Place>>,
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes that were read since others had their turn, and bytes that were written. One does not delay the other: HTTP
    /// errors are written once, and not again when the stream does not take them.
    read: usize,
    sent: usize,
}

impl<S> Guarded<S> {
    pub(crate) fn new(stream: S, place: Option<Arc<Place>>, stall: Duration) -> Guarded<S> {
        Guarded {
            stream,
            place,
            stall,
            stalled: None,
            read: 0,
            sent: 0,
        }
    }

    /// How many bytes are moved in one turn.
    fn most(&self) -> usize {
        if self.place.is_some() { TURN } else { FRAMES }
    }

    fn count(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.sent += count;
        }
    }

    /// The result of a write: when the stream does not take it, the client's time runs.
    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stall = self.stall;
        let deadline = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the client read nothing for {stall:?}"),
        )))
    }
}

/// Gives others their turn when so much was moved.
fn take_turn(moved: &mut usize, most: usize, cx: &Context<'_>) -> Poll<()> {
    if *moved < most {
        return Poll::Ready(());
    }
    *moved = 0;
    cx.waker().wake_by_ref();
    Poll::Pending
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = self.most();
        ready!(take_turn(&mut self.read, most, cx));
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.read += buffer.filled().len() - before;
        if let Some(place) = &self.place
            && buffer.filled().len() > before
            && !place.heard()
        {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client sent something while a watch was sent to it",
            )));
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let most = self.most();
        ready!(take_turn(&mut self.sent, most, cx));
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(&result);
        self.written(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let most = self.most();
        ready!(take_turn(&mut self.sent, most, cx));
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.count(&result);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    /// A guarded server end whose peer takes up to `buffer` bytes without reading.
    fn pair(buffer: usize) -> (Guarded<DuplexStream>, DuplexStream) {
        let (server, client) = tokio::io::duplex(buffer);
        (Guarded::new(server, None, STALL), client)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_fine() {
        let (mut server, _client) = pair(1024);
        let long = tokio::time::timeout(Duration::from_secs(3600), server.read_u8()).await;
        assert!(long.is_err(), "an idle connection was ended: {long:?}");
    }

    #[tokio::test]
    async fn who_moves_much_gives_others_their_turn() {
        // It takes everything at once.
        let mut guarded = Guarded::new(tokio::io::sink(), None, STALL);
        let bytes = [0; FRAMES];
        for is_first in [true, false, false] {
            let mut writes = std::pin::pin!(guarded.write_all(&bytes));
            assert_eq!(writes.as_mut().now_or_never().is_some(), is_first);
            if !is_first {
                writes.await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut server, _client) = pair(16);
        let start = tokio::time::Instant::now();
        let error = server.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed().as_secs()),
            (io::ErrorKind::TimedOut, STALL.as_secs())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_served() {
        let (mut server, mut client) = pair(16);
        let writer = tokio::spawn(async move { server.write_all(&[7; 64]).await });
        for _ in 0..64 {
            tokio::time::sleep(STALL / 2).await;
            assert_eq!(client.read_u8().await.unwrap(), 7);
        }
        writer.await.unwrap().unwrap();
    }
}
