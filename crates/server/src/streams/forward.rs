//! Forwards connections to the ports of a pod: each is a pair of SPDY streams, one for its data, one for an error in
//! words.
//!
//! As `httpStreamHandler` in pkg/kubelet of upstream's CRI streaming (`portforward`), over a connection of SPDY's own
//! or tunnelled in a WebSocket (`SPDY/3.1+portforward.k8s.io`, KEP-4006). Connections go to the pod's own address: a
//! program that listens elsewhere on this machine is not the pod's. Invariants: a connection ends when either side
//! resets it, when the client goes, and when the pod's container ends with it.
//!
//! Not here: clients that number their messages instead (`ports`).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{SinkExt as _, StreamExt as _};
use http::Response;
use http::request::Parts;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::remote::{accept_spdy, pieces_of, sink_of};
use super::spdy::{self, Came, Incoming, Opened, Session};
use super::websocket;
use crate::response::{Duplex, ResponseBody, Upgrade};

const VERSION: &str = "portforward.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// How long the second stream of a pair may take (`DefaultStreamCreationTimeout`), and a connection to a port.
const PAIRING: Duration = Duration::from_secs(30);
const CONNECTING: Duration = Duration::from_secs(10);

/// The pod whose ports are meant.
#[derive(Clone)]
pub struct Pod {
    /// Its name, as errors have it.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its address.
    pub ip: IpAddr,
}

impl Pod {
    /// The client's error about a port that cannot be reached.
    pub(super) fn failed(&self, port: &str, why: &str) -> String {
        format!(
            "error forwarding port {port} to pod {}, uid {}: {why}",
            self.name, self.uid
        )
    }
}

/// The answer to a client that wants ports; none when it asks for no protocol that is spoken here.
pub(super) fn answer(head: &Parts, pod: Pod, stop: &CancellationToken) -> Option<Response<ResponseBody>> {
    let (is_tunnel, accepted) = match websocket::accept(head, |said| (said == TUNNEL).then_some(())) {
        Some((_, accepted)) => (true, accepted),
        None => (false, accept_spdy(head, &[VERSION])?),
    };
    let stop = stop.clone();
    let run = move |stream: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let (session, opened) = spdy::session();
            let carrying = async {
                let carried = if is_tunnel {
                    tunnel(stream, begun, session).await
                } else {
                    let (from, to) = tokio::io::split(stream);
                    session.run(pieces_of(from, begun), sink_of(to)).await
                };
                if let Err(error) = carried {
                    tracing::debug!(%error, "the forwarding of ports ended early");
                }
            };
            tokio::select! {
                () = carrying => {}
                () = forward(&pod, opened) => {}
                () = stop.cancelled() => {}
            }
        })
    };
    Some(accepted.map(|()| ResponseBody::Upgrade(Upgrade(Box::new(run)))))
}

/// SPDY in the messages of a WebSocket.
async fn tunnel(stream: Box<dyn Duplex>, begun: Bytes, session: Session) -> io::Result<()> {
    let limits = Some(websocket::limits());
    let socket = WebSocketStream::from_partially_read(stream, begun.to_vec(), Role::Server, limits).await;
    let (to, from) = socket.split();
    let from = from.filter_map(|message| {
        std::future::ready(match message {
            Ok(message) => websocket::payload(message).map(Ok),
            Err(error) => Some(Err(io::Error::other(error))),
        })
    });
    let to = to.sink_map_err(io::Error::other);
    let to = to.with(|bytes: Bytes| std::future::ready(Ok::<_, io::Error>(Message::Binary(bytes))));
    session.run(from, Box::pin(to)).await
}

/// Pairs streams, and serves each pair.
async fn forward(pod: &Pod, mut opened: mpsc::Receiver<Opened>) {
    let mut waiting: BTreeMap<String, (Instant, Opened)> = BTreeMap::new();
    let mut serving = FuturesUnordered::new();
    loop {
        let oldest = waiting.values().map(|(since, _)| *since).min();
        let patience = async { tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now) + PAIRING).await };
        let stream = tokio::select! {
            stream = opened.recv() => stream,
            Some(()) = serving.next() => continue,
            () = patience, if oldest.is_some() => {
                // Dropping a stream gives back its place, and the room of its bytes. There are no more than the
                // connection may have.
                waiting.retain(|_, (since, _)| since.elapsed() < PAIRING);
                continue;
            }
        };
        let Some(stream) = stream else { return };
        let Some(id) = stream.headers.get("requestid").cloned() else {
            let _ = stream.to.reset().await;
            continue;
        };
        let Some((_, other)) = waiting.remove(&id) else {
            waiting.insert(id, (Instant::now(), stream));
            continue;
        };
        let is_data = |stream: &Opened| stream.headers.get("streamtype").is_some_and(|kind| kind == "data");
        match (is_data(&stream), is_data(&other)) {
            (true, false) => serving.push(pair(pod, stream, other)),
            (false, true) => serving.push(pair(pod, other, stream)),
            _ => {
                let _ = (stream.to.reset().await, other.to.reset().await);
            }
        }
    }
}

/// Serves one connection.
async fn pair(pod: &Pod, data: Opened, error: Opened) {
    let port = data.headers.get("port").cloned().unwrap_or_default();
    match connected(pod, &port).await {
        // The client sees the end, with any outcome.
        Ok(stream) => {
            let (from, to) = stream.into_split();
            let Opened {
                from: heard, to: say, ..
            } = data;
            copy(from, to, heard, &say).await;
        }
        Err(why) => {
            let _ = error.to.send(pod.failed(&port, &why).as_bytes()).await;
            let _ = data.to.reset().await;
        }
    }
    let _ = error.to.end().await;
}

/// A connection to a port of a pod.
pub(super) async fn connected(pod: &Pod, port: &str) -> Result<TcpStream, String> {
    let number = port.parse::<u16>().ok().filter(|port| *port > 0);
    let number = number.ok_or_else(|| format!("{port:?} is no port"))?;
    let connecting = tokio::time::timeout(CONNECTING, TcpStream::connect((pod.ip, number)));
    let at = format!("connecting to {}:{number}", pod.ip);
    let stream = connecting.await.map_err(|_| format!("{at} took too long"))?;
    let stream = stream.map_err(|error| format!("{at}: {error}"))?;
    // Small pieces are sent at once; where this option cannot be set they are sent a little later.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Copies in both directions until both have ended, or either breaks.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut heard: Incoming, say: &spdy::Sender) {
    let incoming = async {
        loop {
            match heard.recv().await {
                Some(Came::Bytes(bytes)) => to.write_all(&bytes).await?,
                Some(Came::End) => {
                    to.shutdown().await?;
                    return Ok(());
                }
                // The client wants nothing more of it.
                None => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            }
        }
    };
    let outgoing = async {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            if length == 0 {
                return say.end().await.map_err(gone);
            }
            say.send(&buffer[..length]).await.map_err(gone)?;
        }
    };
    // The program's last word ends it, as `kubectl` waits for nothing else.
    let ended = async {
        tokio::select! {
            out = outgoing => out,
            Err(error) = incoming => Err(error),
        }
    };
    let ended: io::Result<()> = ended.await;
    if ended.is_err() {
        let _ = say.reset().await;
    }
}
