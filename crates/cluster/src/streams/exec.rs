//! Runs a command beside a container's program, and connects its streams with a client's WebSocket.
//!
//! Invariants: a command ends with its client and with its container; what the client does not take is not read.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::request::Parts;
use kubewright::Stop;
use kubewright_apiserver::Streams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::websocket::{self, STDERR, STDOUT, Said};
use crate::processes::{Beside, Processes, Terminal};
use crate::response::{Duplex, ResponseBody, Upgrade};

/// How many pieces of output may wait for a client, and how large each may be.
const PIECES: usize = 8;
const PIECE: usize = 16 * 1024;

/// What is to be run, and where.
pub(super) struct Wanted {
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) command: Vec<String>,
    pub(super) streams: Streams,
}

/// The answer to a client that wants a command's streams over a WebSocket; none when it wants them otherwise.
pub(super) fn answer(processes: &Processes, wanted: Wanted, head: &Parts, stop: &Stop) -> Option<http::Response<ResponseBody>> {
    let accepted = websocket::accept(head)?;
    let (processes, stop) = (processes.clone(), stop.clone());
    let run = move |stream: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let limits = Some(websocket::limits());
            let socket = WebSocketStream::from_partially_read(stream, begun.to_vec(), Role::Server, limits).await;
            tokio::select! {
                () = serve(&processes, &wanted, socket) => {}
                () = stop.requested() => {}
            }
        })
    };
    Some(accepted.map(|()| ResponseBody::Upgrade(Upgrade(Box::new(run)))))
}

type Socket = WebSocketStream<Box<dyn Duplex>>;

async fn serve(processes: &Processes, wanted: &Wanted, socket: Socket) {
    let (mut to_client, from_client) = socket.split();
    let streams = wanted.streams;
    let run = processes.run_connected(&wanted.uid, &wanted.container, &wanted.command, streams.stdin, streams.tty);
    let beside = match run.await {
        Ok(beside) => beside,
        Err(why) => {
            // A client that has gone is told nothing.
            let _ = to_client.send(Message::Binary(websocket::failed(&why))).await;
            let _ = to_client.close().await;
            return;
        }
    };
    // The client waits for a first message (`createWebSocketStreams`).
    let first = if streams.stdout { STDOUT } else { STDERR };
    if to_client.send(Message::Binary(websocket::message(first, b""))).await.is_err() {
        return;
    }
    connect(beside, streams, to_client, from_client).await;
}

async fn connect(
    beside: Beside,
    streams: Streams,
    to_client: SplitSink<Socket, Message>,
    from_client: SplitStream<Socket>,
) {
    let Beside {
        input,
        output,
        error,
        terminal,
        ended,
        reins,
    } = beside;
    let (sender, pieces) = mpsc::channel(PIECES);
    let wanted = |is_wanted: bool| is_wanted.then(|| sender.clone());
    let reading = async {
        tokio::join!(
            read(output, STDOUT, wanted(streams.stdout)),
            read(error, STDERR, wanted(streams.stderr))
        );
    };
    let running = async {
        let (code, ()) = tokio::join!(ended, reading);
        // Behind the last piece.
        let _ = sender.send(websocket::ended(code)).await;
        drop(sender);
    };
    let sending = send(pieces, to_client);
    tokio::select! {
        ((), ()) = async { tokio::join!(running, sending) } => {}
        () = hear(from_client, input, terminal) => reins.kill(),
    }
}

/// Reads a stream to its end; what nobody wants is thrown away.
async fn read(from: Option<Box<dyn AsyncRead + Send + Unpin>>, stream: u8, to: Option<mpsc::Sender<Bytes>>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; PIECE];
    // A terminal ends with an error when its program has ended.
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if let Some(to) = &to
            && to.send(websocket::message(stream, &piece[..length])).await.is_err()
        {
            return;
        }
    }
}

async fn send(mut pieces: mpsc::Receiver<Bytes>, mut to_client: SplitSink<Socket, Message>) {
    while let Some(piece) = pieces.recv().await {
        if to_client.send(Message::Binary(piece)).await.is_err() {
            return;
        }
    }
    // It may have gone.
    let _ = to_client.close().await;
}

/// Hears what the client says until it goes.
async fn hear(
    mut from_client: SplitStream<Socket>,
    mut input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    terminal: Option<Arc<Terminal>>,
) {
    while let Some(Ok(message)) = from_client.next().await {
        let Message::Binary(message) = message else { continue };
        match websocket::read(message) {
            Said::Input(bytes) => {
                if let Some(to) = &mut input
                    && write(to, &bytes).await.is_err()
                {
                    // The program reads nothing more.
                    input = None;
                }
            }
            Said::InputEnds => input = None,
            Said::Size(columns, rows) => {
                if let Some(terminal) = &terminal {
                    terminal.resize(columns, rows);
                }
            }
            Said::Nothing => {}
        }
    }
}

async fn write(to: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
