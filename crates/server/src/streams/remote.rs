//! A client and the streams of a program, whichever protocol carries them: messages of a WebSocket, or streams of SPDY.
//!
//! Invariants: when the client goes, [`Remote::said`] ends; when [`Remote`] is dropped, the bytes sent before still go
//! out, then the connection ends. As `ServeExec` and `createStreams` in `k8s.io/streaming`. Not here: the program
//! (`exec`).

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Sink, SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use kubewright_apiserver::Streams;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::spdy::{self, Came, Opened};
use super::websocket::{self, Channels, ClientMessage, STATUS, STDERR, STDIN, STDOUT};
use crate::response::{Duplex, ResponseBody, Upgrade};

/// How many pieces may wait for a client.
const PIECES: usize = 8;
/// How many pieces of a client may wait: each may have a megabyte.
const HEARD: usize = 1;
/// How long a client may take to open its streams (`remoteCommandStreamCreationTimeout`).
const OPENING: Duration = Duration::from_secs(30);
/// How long a client may take to go when everything has been said.
const PARTING: Duration = Duration::from_secs(2);

/// Versions of the streams over SPDY, the better first; their differences do not matter there.
const VERSIONS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const VERSION: &str = "x-stream-protocol-version";

/// A client.
pub struct Remote {
    /// The client's messages, until it goes.
    pub said: mpsc::Receiver<ClientMessage>,
    /// The messages to it, with the number of the stream.
    pub to: mpsc::Sender<(u8, Bytes)>,
}

/// How a client wants to have streams.
enum Carrier {
    WebSocket(Channels),
    Spdy,
}

/// The answer to a client that wants these streams, and the code that serves them; none when it asks for no protocol
/// that is spoken here.
pub fn answer<S, F>(
    head: &Parts,
    streams: Streams,
    stop: &CancellationToken,
    serve: S,
) -> Option<Response<ResponseBody>>
where
    S: FnOnce(Remote) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (carrier, accepted) = match websocket::accept_channels(head) {
        Some((channels, accepted)) => (Carrier::WebSocket(channels), accepted),
        None => (Carrier::Spdy, accept_spdy(head, &VERSIONS)?),
    };
    let stop = stop.clone();
    let run = move |stream: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let carried = async {
                match carrier {
                    Carrier::WebSocket(channels) => over_websocket(stream, begun, channels, streams, serve).await,
                    Carrier::Spdy => over_spdy(stream, begun, streams, serve).await,
                }
            };
            tokio::select! {
                () = carried => {}
                () = stop.cancelled() => {}
            }
        })
    };
    Some(accepted.map(|()| ResponseBody::Upgrade(Upgrade(Box::new(run)))))
}

/// The answer that turns a connection into one of SPDY; none when the client did not ask for one of these versions of
/// the streams.
pub(super) fn accept_spdy(head: &Parts, versions: &[&'static str]) -> Option<Response<()>> {
    let says =
        |name: &str, word: &str| websocket::words(&head.headers, name).any(|said| said.eq_ignore_ascii_case(word));
    if !says("upgrade", "SPDY/3.1") || !says("connection", "upgrade") {
        return None;
    }
    let version = versions.iter().find(|version| says(VERSION, version))?;
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(VERSION, HeaderValue::from_static(version));
    Some(answer)
}

async fn over_websocket<S, F>(stream: Box<dyn Duplex>, begun: Bytes, channels: Channels, streams: Streams, serve: S)
where
    S: FnOnce(Remote) -> F,
    F: Future<Output = ()>,
{
    let limits = Some(websocket::limits());
    let socket = WebSocketStream::from_partially_read(stream, begun.to_vec(), Role::Server, limits).await;
    let (mut to_client, mut from_client) = socket.split();
    let (saying, said) = mpsc::channel(HEARD);
    let (to, mut pieces) = mpsc::channel::<(u8, Bytes)>(PIECES);
    // The client waits for a first message (`createWebSocketStreams`).
    let first = match streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => STATUS,
    };
    let mut hearing = pin!(async {
        while let Some(Ok(message)) = from_client.next().await {
            if let Some(message) = websocket::payload(message)
                && saying.send(channels.read(message)).await.is_err()
            {
                break;
            }
        }
        drop(saying);
        // The served program may take a moment to end.
        while let Some(Ok(_)) = from_client.next().await {}
    });
    let sending = async move {
        let mut next = Some((first, Bytes::new()));
        while let Some((stream, piece)) = next {
            if let Some(message) = channels.message(stream, &piece)
                && to_client.send(message).await.is_err()
            {
                break;
            }
            next = pieces.recv().await;
        }
        drop(pieces);
        // It may have gone.
        let _ = to_client.send(websocket::farewell()).await;
    };
    let mut serving = pin!(async { tokio::join!(serve(Remote { said, to }), sending) });
    tokio::select! {
        _ = &mut serving => {
            // Its last words arrive before the connection ends.
            let _ = tokio::time::timeout(PARTING, hearing).await;
        }
        () = &mut hearing => {
            serving.await;
        }
    }
}

async fn over_spdy<S, F>(stream: Box<dyn Duplex>, begun: Bytes, streams: Streams, serve: S)
where
    S: FnOnce(Remote) -> F,
    F: Future<Output = ()>,
{
    let (from, to) = tokio::io::split(stream);
    let (session, mut opened) = spdy::session();
    let (saying, said) = mpsc::channel(HEARD);
    let guard = saying.clone();
    let carrying = async {
        if let Err(error) = session.run(pieces_of(from, begun), sink_of(to)).await {
            tracing::debug!(%error, "the streams of a client ended early");
        }
        drop(guard);
        std::future::pending::<()>().await;
    };
    let served = async {
        let Ok(Some(all)) = tokio::time::timeout(OPENING, gather(&mut opened, streams)).await else {
            return;
        };
        let (to, pieces) = mpsc::channel(PIECES);
        let hearing = hear(all.stdin, all.resize, saying);
        let sending = send(pieces, [all.stdout, all.stderr, Some(all.error)]);
        let serving = serve(Remote { said, to });
        let finished = async { tokio::join!(serving, sending) };
        tokio::select! {
            _ = finished => {}
            () = async { hearing.await; std::future::pending().await } => {}
        }
        // The client ends the connection when it has read everything.
        let _ = tokio::time::timeout(PARTING, opened.recv()).await;
    };
    tokio::select! {
        () = served => {}
        () = carrying => {}
    }
}

/// The streams of a program over SPDY.
struct Gathered {
    error: Opened,
    stdin: Option<Opened>,
    stdout: Option<Opened>,
    stderr: Option<Opened>,
    resize: Option<Opened>,
}

/// Waits for all streams that the client has announced (`waitForStreams`); none when it goes, or opens others.
async fn gather(opened: &mut mpsc::Receiver<Opened>, streams: Streams) -> Option<Gathered> {
    let (mut error, mut stdin, mut stdout, mut stderr, mut resize) = (None, None, None, None, None);
    let wanted = [streams.stdin, streams.stdout, streams.stderr, streams.tty];
    let count = 1 + wanted.into_iter().filter(|is_wanted| *is_wanted).count();
    for _ in 0..count {
        let stream = opened.recv().await?;
        let place = match stream.headers.get("streamtype").map(String::as_str) {
            Some("error") => &mut error,
            Some("stdin") => &mut stdin,
            Some("stdout") => &mut stdout,
            Some("stderr") => &mut stderr,
            Some("resize") => &mut resize,
            _ => return None,
        };
        *place = Some(stream);
    }
    let error = error?;
    Some(Gathered {
        error,
        stdin,
        stdout,
        stderr,
        resize,
    })
}

/// Hears the streams on which the client sends, until all of them have ended.
async fn hear(stdin: Option<Opened>, resize: Option<Opened>, saying: mpsc::Sender<ClientMessage>) {
    let input = async {
        let Some(mut stdin) = stdin else { return };
        while let Some(Came::Bytes(bytes)) = stdin.from.recv().await {
            if saying.send(ClientMessage::Input(bytes)).await.is_err() {
                return;
            }
        }
        // Without a receiver the program has gone.
        let _ = saying.send(ClientMessage::InputEnds).await;
    };
    let sizes = async {
        let Some(mut resize) = resize else { return };
        while let Some(Came::Bytes(bytes)) = resize.from.recv().await {
            if saying.send(websocket::size(&bytes)).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(input, sizes);
}

/// Sends the pieces on the streams for standard output, standard error and the status, then ends them.
async fn send(mut pieces: mpsc::Receiver<(u8, Bytes)>, streams: [Option<Opened>; 3]) {
    while let Some((number, piece)) = pieces.recv().await {
        let index = usize::from(number.saturating_sub(STDIN + 1));
        if let Some(Some(stream)) = streams.get(index)
            && stream.to.send(&piece).await.is_err()
        {
            return;
        }
    }
    for stream in streams.iter().flatten() {
        // A client that has gone has all it will get.
        let _ = stream.to.end().await;
    }
}

/// The bytes of a connection, behind those that have come already.
pub(super) fn pieces_of<R>(from: R, begun: Bytes) -> impl futures::Stream<Item = io::Result<Bytes>> + Unpin
where
    R: tokio::io::AsyncRead + Unpin,
{
    let first = futures::stream::iter((!begun.is_empty()).then_some(Ok(begun)));
    let rest = futures::stream::unfold((from, vec![0; 16 * 1024]), |(mut from, mut buffer)| async move {
        use tokio::io::AsyncReadExt as _;
        match from.read(&mut buffer).await {
            Ok(0) => None,
            Ok(length) => Some((Ok(Bytes::copy_from_slice(&buffer[..length])), (from, buffer))),
            Err(error) => Some((Err(error), (from, buffer))),
        }
    });
    Box::pin(first.chain(rest))
}

/// Writes the bytes that are put in.
pub(super) fn sink_of<W: tokio::io::AsyncWrite + Unpin>(to: W) -> impl Sink<Bytes, Error = io::Error> + Unpin {
    Box::pin(futures::sink::unfold(to, |mut to, bytes: Bytes| async move {
        use tokio::io::AsyncWriteExt as _;
        to.write_all(&bytes).await?;
        to.flush().await?;
        Ok(to)
    }))
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::Message;

    use super::*;

    /// A client's messages, and what it is told by a program that says them again until it hears `exit`.
    async fn check(protocol: &str, messages: Vec<Message>, expected: &[Message]) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let streams = Streams {
            stdin: true,
            stdout: true,
            ..Streams::default()
        };
        let echo = |Remote { mut said, to }| async move {
            while let Some(word) = said.recv().await {
                match word {
                    ClientMessage::Input(bytes) if bytes == "exit" => break,
                    ClientMessage::Input(bytes) => to.send((STDOUT, bytes)).await.expect("the client is there"),
                    ClientMessage::InputEnds => break,
                    ClientMessage::Size(..) | ClientMessage::Nothing => {}
                }
            }
            let failed = websocket::failed("no");
            to.send((STATUS, failed)).await.expect("the client is there");
        };
        let channels = Channels::of(protocol).expect("it is spoken");
        let serving = over_websocket(Box::new(ours), Bytes::new(), channels, streams, echo);
        let talking = async {
            let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
            for message in messages {
                client.send(message).await.expect("it is taken");
            }
            let mut heard = Vec::new();
            while let Some(Ok(message)) = client.next().await {
                if matches!(message, Message::Binary(_) | Message::Text(_)) {
                    heard.push(message);
                }
            }
            heard
        };
        let (heard, ()) = tokio::join!(talking, serving);
        assert_eq!(heard, expected, "{protocol}");
    }

    fn bytes(bytes: &'static [u8]) -> Message {
        Message::Binary(Bytes::from_static(bytes))
    }

    #[tokio::test]
    async fn what_is_typed_arrives_as_text_and_as_bytes() {
        let failed = websocket::failed("no");
        let failed = Message::Binary([&[STATUS], &failed[..]].concat().into());
        let first = || bytes(b"\x01");
        let ends = || bytes(&[255, STDIN]);
        let typed = vec![bytes(b"\0echo a\n"), ends()];
        let echoed = [first(), bytes(b"\x01echo a\n"), failed.clone()];
        check("v5.channel.k8s.io", typed, &echoed).await;
        let typed = vec![
            Message::Text("\0b".into()),
            Message::Ping(Bytes::new()),
            bytes(b"\0exit"),
        ];
        let echoed = [first(), bytes(b"\x01b"), failed];
        check("v4.channel.k8s.io", typed, &echoed).await;
        let typed = vec![bytes(b"\0c"), ends(), bytes(b"\0exit")];
        let echoed = [first(), bytes(b"\x01c"), bytes(b"\x03Internal error occurred: no")];
        check("channel.k8s.io", typed, &echoed).await;
    }

    #[tokio::test]
    async fn what_is_typed_arrives_as_base64() {
        let text = |text: &str| Message::Text(text.into());
        let typed = vec![text("0ZWNobyBkCg=="), text("0no base64"), text("0ZXhpdA==")];
        let why = text("3SW50ZXJuYWwgZXJyb3Igb2NjdXJyZWQ6IG5v");
        check("base64.channel.k8s.io", typed, &[text("1"), text("1ZWNobyBkCg=="), why]).await;
    }
}
