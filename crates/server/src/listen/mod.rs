//! HTTPS for clients outside of the process: kubectl, client-go, operators in any language.
//!
//! Accept, TLS, HTTP/1.1 or HTTP/2 as ALPN says, and then the same front as in process.
//!
//! Invariants:
//! - one connection never disturbs another: each is a task of its own with its own limits, and a panic ends in it;
//! - no connection costs anything for longer than [`Limits`] allow without its client doing something for it;
//! - no user waits for the many connections of another, nor for the many streams on them (see [`rounds`]);
//! - no client waits for a place: each gets one at once, or is told at once that there is none (see [`crate::places`]);
//! - when the cluster stops, watches end cleanly, requests under way are answered, and within [`GRACE`] nothing is
//!   left.

mod guard;
mod heads;
mod http1;
mod lent;
mod rounds;
mod threads;
mod tls_stream;
mod watch_socket;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubewright_apiserver::authentication::Identity;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::front::{Front, Peer};
use crate::places::{Bounds, Limits, Place, Places, UnderWay};
use crate::response::ResponseBody;
use crate::response::unsent::{self, PIECE, Streams, UnsentBudget};
use crate::tls::Tls;
use guard::Guarded;
use rounds::{Connection, Waits};
pub use threads::Threads;
use tls_stream::TlsStream;

/// How long a stopping listener waits for its connections; the remaining ones are cut off. A cluster stops within a
/// second.
const GRACE: Duration = Duration::from_millis(500);

/// How long to wait when the process has no file descriptors left: others must close something first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The longest request line with headers, in bytes: over HTTP/1 as a whole, over HTTP/2 as decoded. Larger ones get
/// 431.
const MAX_HEADERS: u32 = 64 * 1024;

/// How many streams a client may open and reset before they are looked at, or have reset for its mistakes.
const MAX_RESETS: usize = 100;

/// The state that all connections of a listener share.
struct Shared {
    front: Front,
    tls: Tls,
    limits: Limits,
    http1: hyper::server::conn::http1::Builder,
    http2: http2::Builder<Streams>,
    room: Arc<UnsentBudget>,
}

/// Serves `socket` until the cluster stops and every connection is gone. Never fails: an error concerns one client.
pub async fn serve(socket: TcpListener, front: Front, tls: Tls, limits: Limits, threads: Threads) {
    let places = Places::new(Bounds::of(limits.places()), limits.clone());
    let room = UnsentBudget::new(unsent::Bounds::default(), limits.stall);
    let stop = front.stop.clone();
    let shared = Arc::new(Shared {
        http1: http1::builder(),
        http2: http2_builder(&limits),
        front,
        tls,
        limits,
        room: room.clone(),
    });
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let (stream, address) = accept(&socket, &places).await;
            // A client without a place sees its connection end; the places tell the log.
            if let Ok(taken) = places.take(address) {
                let (shared, place) = (shared.clone(), taken.clone());
                let task = threads.serve(stream, &mut connections, async move |stream, rounds| {
                    let seat = Arc::new(Connection::new(rounds, taken.clone()));
                    seat.in_turns(connection(stream, &shared, &taken, &seat)).await;
                });
                if let Some(task) = task {
                    place.runs_as(task);
                }
            }
            // Connections that ended meanwhile give their memory back.
            while let Some(ended) = connections.try_join_next() {
                report_panic(ended);
            }
        }
    };
    let sweeping = async {
        let mut turns = tokio::time::interval(places.sweeping().min(room.sweeping()));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            places.sweep();
            room.sweep();
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => unreachable!("the loop has no end"),
        () = sweeping => unreachable!("the loop has no end"),
    }
    drop(socket);
    places.end();
    let draining = async {
        while let Some(ended) = connections.join_next().await {
            report_panic(ended);
        }
    };
    if tokio::time::timeout(GRACE, draining).await.is_err() {
        tracing::debug!(
            connections = connections.len(),
            "cut off connections that did not end by themselves"
        );
        connections.shutdown().await;
    }
}

fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked; this is a defect of kubewright, other connections are not affected");
    }
}

/// The next connection, and whose it is; an error of accept(2) is the trouble of one client, or passes.
async fn accept(socket: &TcpListener, places: &Places) -> (TcpStream, IpAddr) {
    loop {
        match socket.accept().await {
            Ok((stream, address)) => return (stream, address.ip()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                // Most likely there are no descriptors left.
                places.send_somebody_away();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

pub(crate) fn http2_builder(limits: &Limits) -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(Streams);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(MAX_HEADERS)
        // Of each stream; other waiting bytes are counted.
        .max_send_buf_size(2 * PIECE)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_RESETS)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(Duration::from_secs(15));
    http
}

/// One connection, from handshake to end.
async fn connection(stream: TcpStream, shared: &Shared, place: &Arc<Place>, seat: &Arc<Connection>) {
    // A watch event is small and must not wait for the next one. An error means that the client is gone, which shows
    // soon enough.
    let _ = stream.set_nodelay(true);
    // The memory of a handshake is given back after it.
    let stream = match Box::pin(handshake(stream, shared.tls.config.clone())).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "a client did not complete the TLS handshake"),
    };
    place.is_secure();
    let session = stream.session();
    let identity = shared.tls.identify(session.peer_certificates());
    if let Identity::User(user) = &identity {
        // Without a share it is told with its first request.
        let _ = place.prove(&user.name);
    }
    // Not by looking at the first bytes, for which a client may take its time.
    let is_second = session.alpn_protocol() == Some(b"h2");
    let session = Session {
        front: shared.front.clone(),
        peer: Arc::new(Peer {
            identity,
            place: Some(place.clone()),
            unsent: Some(if is_second {
                shared.room.connection()
            } else {
                shared.room.connection_of_one()
            }),
        }),
        place: place.clone(),
        seat: seat.clone(),
    };
    // Between the frames of HTTP/2 there is no telling where a head begins.
    let heard = (!is_second).then(|| place.clone());
    // In one place from now on: each that it is handed through would have room for it.
    let stream = Box::new(Guarded::new(stream, heard, shared.limits.stall));
    let ended = if is_second {
        Box::pin(streams(stream, &shared.http2, &session)).await
    } else {
        let ended = unsent::endable(http1::serve(stream, &shared.http1, &session)).await;
        ended.unwrap_or_else(|| Err("the client took nothing of an answer".into()))
    };
    if let Err(error) = ended {
        tracing::debug!(error = &*error, "a connection ended early");
    }
}

/// The client whose requests are answered on a connection, and the server that answers them.
struct Session {
    front: Front,
    peer: Arc<Peer>,
    place: Arc<Place>,
    seat: Arc<Connection>,
}

/// Why a connection ended before its time.
type Ended = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection of HTTP/2.
async fn streams<S>(stream: S, http: &http2::Builder<Streams>, session: &Session) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(|request| {
        let (front, peer, under_way) = (session.front.clone(), session.peer.clone(), session.place.begin());
        // Each stream is a task of its own, and no connection has more turns than another for its many streams.
        let seat = session.seat.clone();
        // In a box: a stream that is sent for hours does not keep the memory that its answering took.
        Box::pin(async move {
            let response = seat.in_turns(front.answer::<Incoming>(request, &peer)).await;
            let turns = Some((seat, Waits::default()));
            Ok::<_, Infallible>(response.map(|body| Sent { body, under_way, turns }))
        })
    });
    let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = serving.as_mut() => Ok(ended?),
        () = session.place.leaves() => {
            serving.as_mut().graceful_shutdown();
            Ok(tokio::time::timeout(GRACE, serving).await.unwrap_or(Ok(()))?)
        }
    }
}

/// The body of an answer, which is under way until it is sent.
struct Sent {
    body: ResponseBody,
    /// Of a stream of HTTP/2, whose body is sent by a task of its own. `None`: its connection has the turns.
    turns: Option<(Arc<Connection>, Waits)>,
    #[expect(dead_code, reason = "what counts is when it is dropped")]
    under_way: UnderWay,
}

impl Sent {
    /// The body of an answer over HTTP/1.1.
    fn over_http1(body: ResponseBody, under_way: UnderWay) -> Sent {
        Sent {
            body,
            turns: None,
            under_way,
        }
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = <ResponseBody as http_body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Sent { body, turns, .. } = &mut *self;
        let mut body = Pin::new(body);
        match turns {
            Some((connection, waits)) => connection.poll_in_turn(waits, cx, |cx| body.as_mut().poll_frame(cx)),
            None => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// TLS, or a plain answer to a client that speaks HTTP without TLS.
async fn handshake(mut stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    // Every TLS connection starts with the byte 22; every plain HTTP request with the capital letter of its method.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        stream
            .write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
            .await?;
        stream.shutdown().await?;
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "plain HTTP on the HTTPS port",
        ));
    }
    TlsStream::accept(stream, config).await
}

/// Where a cluster listens, and how to get in.
#[derive(Clone)]
pub struct Listening {
    /// The address, with the port that was chosen when port 0 was asked for.
    pub address: SocketAddr,
    /// A kubeconfig (YAML) for the administrator with everything embedded: the CA's certificate, the client certificate
    /// and its **private key**. [`kubeconfig::write`](crate::kubeconfig::write) puts it into a file that only its owner
    /// can read.
    pub kubeconfig: String,
}

impl std::fmt::Debug for Listening {
    /// Without the kubeconfig: its private key must not get into a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_never_holds_the_key() {
        let listening = Listening {
            address: "127.0.0.1:1".parse().unwrap(),
            kubeconfig: "client-key-data: secret".to_owned(),
        };
        assert!(!format!("{listening:?}").contains("secret"));
    }
}
