//! SPDY/3.1 on the server's side: streams that a client opens, over one connection or tunnelled in the messages of a
//! WebSocket.
//!
//! kubectl forwards ports so, and runs commands so where it finds no WebSockets
//! (`k8s.io/streaming/pkg/httpstream/spdy`). As in `moby/spdystream`, there are no windows: bytes that a stream does
//! not take hold up the whole connection, and are not gathered.
//!
//! Invariants: so many streams at a time ([`STREAMS`]); a queue has a bound, and so have the waiting bytes of all of
//! them ([`WAITING`]); when the connection ends, all its streams do. Not here: the use of the streams (`forward`,
//! `remote`).

mod dictionary;
mod frames;
mod headers;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use frames::Frame;
pub(super) use headers::Headers;

/// How many streams of a connection there may be at a time.
const STREAMS: usize = 512;
/// How many frames may wait in each queue.
const QUEUE: usize = 8;
/// How many bytes may wait in the queues of all streams of a connection: as many as the largest frame has.
const WAITING: usize = frames::LARGEST;

/// An item on a stream. When the queue ends without [`Came::End`], the client wants nothing more of it, or has gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    Bytes(Bytes),
    End,
}

/// A stream that a client has opened.
pub(super) struct Opened {
    pub(super) headers: Headers,
    pub(super) from: Incoming,
    pub(super) to: Sender,
}

/// The items of a stream, in order.
pub(super) struct Incoming(mpsc::Receiver<Waiting>);

/// A waiting item, and the room that it takes until it is received.
type Waiting = (Came, Option<OwnedSemaphorePermit>);

impl Incoming {
    pub(super) async fn recv(&mut self) -> Option<Came> {
        self.0.recv().await.map(|(came, _)| came)
    }
}

/// Sends on a stream. It counts until it is dropped.
pub(super) struct Sender {
    stream: u32,
    frames: mpsc::Sender<Bytes>,
    _counted: OwnedSemaphorePermit,
}

/// The connection has ended.
#[derive(Debug)]
pub(super) struct Gone;

impl Sender {
    pub(super) async fn send(&self, bytes: &[u8]) -> Result<(), Gone> {
        for frame in frames::data(self.stream, bytes) {
            self.put(frame).await?;
        }
        Ok(())
    }

    /// Nothing more is sent.
    pub(super) async fn end(&self) -> Result<(), Gone> {
        self.put(frames::end(self.stream)).await
    }

    /// Nothing more is wanted, either.
    pub(super) async fn reset(&self) -> Result<(), Gone> {
        self.put(frames::reset(self.stream, frames::CANCEL)).await
    }

    async fn put(&self, frame: Bytes) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }
}

/// A connection, and the streams that its client opens.
pub(super) fn session() -> (Session, mpsc::Receiver<Opened>) {
    let (opened, streams) = mpsc::channel(QUEUE);
    let (frames, to_send) = mpsc::channel(QUEUE);
    let hearing = Hearing {
        reader: frames::Reader::new(),
        open: BTreeMap::new(),
        counted: Arc::new(Semaphore::new(STREAMS)),
        room: Arc::new(Semaphore::new(WAITING)),
        has_replied: false,
        latest: 0,
        opened,
        frames,
    };
    (Session { hearing, to_send }, streams)
}

/// The state of a connection.
pub(super) struct Session {
    hearing: Hearing,
    to_send: mpsc::Receiver<Bytes>,
}

impl Session {
    /// Serves the connection until it ends, or until its streams are dropped on this side.
    ///
    /// # Errors
    /// When the client breaks the rules, or its connection does.
    pub(super) async fn run(
        self,
        mut from: impl Stream<Item = io::Result<Bytes>> + Unpin,
        mut to: impl Sink<Bytes, Error = io::Error> + Unpin,
    ) -> io::Result<()> {
        let Session {
            mut hearing,
            mut to_send,
        } = self;
        let opened = hearing.opened.clone();
        let hear = async {
            while let Some(piece) = from.next().await {
                if !hearing.take(&piece?).await? {
                    return Ok(());
                }
            }
            Ok(())
        };
        let send = async {
            while let Some(frame) = to_send.recv().await {
                to.send(frame).await?;
            }
            Ok(())
        };
        tokio::select! {
            heard = hear => heard,
            sent = send => sent,
            () = opened.closed() => Ok(()),
        }
    }
}

/// The receiving half of a connection.
struct Hearing {
    reader: frames::Reader,
    open: BTreeMap<u32, mpsc::Sender<Waiting>>,
    counted: Arc<Semaphore>,
    /// A permit for each byte that may still wait.
    room: Arc<Semaphore>,
    has_replied: bool,
    latest: u32,
    opened: mpsc::Sender<Opened>,
    frames: mpsc::Sender<Bytes>,
}

impl Hearing {
    /// Takes the bytes that have come; false when the client leaves.
    async fn take(&mut self, piece: &[u8]) -> io::Result<bool> {
        self.reader.take(piece);
        let broken = |why| io::Error::new(io::ErrorKind::InvalidData, format!("SPDY: the client sent {why}"));
        while let Some(frame) = self.reader.next().map_err(broken)? {
            match frame {
                Frame::Open(stream, headers, is_last) => {
                    // Section 2.3.2: a client's are odd, and each is higher than those before.
                    if stream % 2 == 0 || stream <= self.latest {
                        return Err(broken("a stream whose number is not the next"));
                    }
                    self.latest = stream;
                    self.open(stream, headers, is_last).await;
                }
                Frame::Data(stream, bytes, is_last) => {
                    if let Some(to) = self.open.get(&stream) {
                        // A receiver that was dropped gets nothing.
                        if !bytes.is_empty() {
                            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                            // It is never closed, and a frame is not larger than all the room.
                            let room = self.room.clone().acquire_many_owned(length).await.ok();
                            let _ = to.send((Came::Bytes(bytes), room)).await;
                        }
                        if is_last {
                            let _ = to.send((Came::End, None)).await;
                            self.open.remove(&stream);
                        }
                    }
                }
                Frame::Reset(stream) => {
                    self.open.remove(&stream);
                }
                Frame::Ping(id) => self.say(frames::ping(id)).await,
                Frame::Leave => return Ok(false),
                Frame::Other => {}
            }
        }
        Ok(true)
    }

    async fn open(&mut self, stream: u32, headers: Headers, is_last: bool) {
        // Streams that were dropped on this side are forgotten here.
        self.open.retain(|_, to| !to.is_closed());
        let Ok(counted) = self.counted.clone().try_acquire_owned() else {
            return self.say(frames::reset(stream, frames::REFUSED)).await;
        };
        let is_first = !std::mem::replace(&mut self.has_replied, true);
        self.say(frames::reply(stream, is_first)).await;
        let (to, from) = mpsc::channel(QUEUE);
        if is_last {
            // There is room for one.
            let _ = to.try_send((Came::End, None));
        } else {
            self.open.insert(stream, to);
        }
        let to = Sender {
            stream,
            frames: self.frames.clone(),
            _counted: counted,
        };
        // When the receiver of streams is dropped the connection ends.
        let _ = self
            .opened
            .send(Opened {
                headers,
                from: Incoming(from),
                to,
            })
            .await;
    }

    async fn say(&self, frame: Bytes) {
        // When nothing can be sent the connection ends.
        let _ = self.frames.send(frame).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt as _, stream};

    use super::*;

    /// Streams with data on each, until no more is taken. Nothing here yields, so that there is no runtime whose
    /// patience ends.
    #[test]
    fn what_waits_on_all_streams_has_a_bound() {
        let (session, mut opened) = session();
        let piece = vec![7; frames::LARGEST / 2];
        let mut sent = Vec::new();
        for number in 0..20 {
            let stream = 2 * number + 1;
            sent.push(Ok(frames::tests::open(stream, number == 0)));
            sent.push(Ok(frames::tests::data(stream, &piece)));
        }
        let count = sent.len();
        let taken = AtomicUsize::new(0);
        let sent = sent.into_iter().inspect(|_| {
            taken.fetch_add(1, Ordering::Relaxed);
        });
        let client = stream::iter(sent).chain(stream::once(pending()));
        let to = futures::sink::drain().sink_map_err(io::Error::other);
        let mut running = Box::pin(session.run(Box::pin(client), to));
        let mut streams = Vec::new();
        // The streams are not read.
        for _ in 0..1000 {
            let ended = (&mut running).now_or_never();
            assert!(ended.is_none(), "{ended:?}");
            streams.extend(opened.recv().now_or_never().flatten());
        }
        let taken_unread = taken.load(Ordering::Relaxed);
        assert!(
            taken_unread <= 8,
            "{taken_unread} of {count} pieces were taken, and none read"
        );
        // Reading makes room for the other pieces.
        for _ in 0..1000 {
            let ended = (&mut running).now_or_never();
            assert!(ended.is_none(), "{ended:?}");
            streams.extend(opened.recv().now_or_never().flatten());
            for stream in &mut streams {
                let _ = stream.from.recv().now_or_never();
            }
        }
        assert_eq!(taken.load(Ordering::Relaxed), count);
        assert_eq!(streams.len(), 20);
    }
}
