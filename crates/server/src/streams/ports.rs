//! Ports of a pod over the numbered messages of a WebSocket: `v4.channel.k8s.io`, which the clients for Java,
//! JavaScript and Python speak, and `v4.base64.channel.k8s.io`, which is for browsers.
//!
//! The request names the ports. The first has channel 0 for its data and 1 for an error in words, the next 2 and 3;
//! each channel begins with the port's number. Every port has one connection, and when all have ended, so does the
//! WebSocket. As `websocket.go` in upstream's CRI streaming (`portforward`).
//!
//! Not here: SPDY, where a client has as many connections as it likes (`forward`).

use bytes::Bytes;
use futures::future::join_all;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::PIECES;
use super::forward::{Pod, connected};
use super::websocket::{self, Codec};
use crate::response::{Duplex, ResponseBody, Upgrade};

/// The largest message of a client: the client for Python sends a MiB at once, behind the number of its channel.
const LARGEST: usize = 2 * 1024 * 1024;

/// How many ports a client may want, each of which holds up to two of these messages.
const MOST: usize = 16;

/// The answer to a client that wants ports in this way; none when it does not, or wants too many.
pub(super) fn answer(
    head: &Parts,
    pod: Pod,
    ports: &[u16],
    stop: &CancellationToken,
) -> Option<Response<ResponseBody>> {
    let (codec, accepted) = websocket::accept(head, codec)?;
    if let Err(why) = servable(ports) {
        return Some(refused(why));
    }
    if ports.len() > MOST {
        return None;
    }
    let (ports, stop) = (ports.to_vec(), stop.clone());
    let run = move |stream: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let limits = websocket::limits()
                .max_message_size(Some(LARGEST))
                .max_frame_size(Some(LARGEST));
            let begun = begun.to_vec();
            let socket = WebSocketStream::from_partially_read(stream, begun, Role::Server, Some(limits)).await;
            let (to, from) = socket.split();
            tokio::select! {
                () = serve(&pod, &ports, codec, to, from) => {}
                () = stop.cancelled() => {}
            }
        })
    };
    Some(accepted.map(|()| ResponseBody::Upgrade(Upgrade(Box::new(run)))))
}

/// How the messages of a protocol are written, if it is one for ports. A client that names no protocol gets bytes.
fn codec(protocol: &str) -> Option<Codec> {
    match protocol {
        "" | "v4.channel.k8s.io" => Some(Codec::Bytes),
        "v4.base64.channel.k8s.io" => Some(Codec::Base64),
        _ => None,
    }
}

/// Whether a kubelet serves the ports that a request names.
///
/// # Errors
/// In its words (`NewV4Options`).
fn servable(ports: &[u16]) -> Result<(), String> {
    if ports.is_empty() {
        return Err("query parameter \"port\" is required".to_owned());
    }
    if ports.contains(&0) {
        let all: Vec<String> = ports.iter().map(u16::to_string).collect();
        return Err(format!("port {:?} must be > 0", all.join(",")));
    }
    Ok(())
}

/// The answer of a kubelet, which the API server hands on as it is.
fn refused(why: String) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::Full(Some(why.into())));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let headers = answer.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Serves all ports, until they have ended or the client goes.
async fn serve<T, F>(pod: &Pod, ports: &[u16], codec: Codec, mut to: T, mut from: F)
where
    T: Sink<Message> + Unpin,
    F: Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    let (say, mut said) = mpsc::channel::<(u8, Bytes)>(PIECES);
    let (inputs, heard): (Vec<_>, Vec<_>) = ports.iter().map(|_| mpsc::channel::<Bytes>(1)).unzip();
    let hearing = async {
        while let Some(Ok(message)) = from.next().await {
            let Some((channel, rest)) = websocket::payload(message).and_then(|message| codec.read(message)) else {
                continue;
            };
            // The errors of a client are not read, nor bytes behind the end of a connection.
            if let Some(input) = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0) {
                let _ = input.send(rest).await;
            }
        }
    };
    let sending = async {
        while let Some((channel, bytes)) = said.recv().await {
            if to.send(codec.message(channel, &bytes)).await.is_err() {
                return;
            }
        }
        // It may have gone.
        let _ = to.send(websocket::farewell()).await;
    };
    let serving = async {
        let channels = (0u8..).step_by(2).zip(ports).zip(heard);
        join_all(channels.map(|((channel, port), heard)| one(pod, *port, channel, heard, say.clone()))).await;
        drop(say);
    };
    tokio::select! {
        () = hearing => {}
        _ = async { tokio::join!(serving, sending) } => {}
    }
}

/// Serves one port.
async fn one(pod: &Pod, port: u16, channel: u8, heard: mpsc::Receiver<Bytes>, say: mpsc::Sender<(u8, Bytes)>) {
    let (data, error) = (channel, channel + 1);
    for channel in [data, error] {
        // A client that has gone is noticed elsewhere.
        let _ = say.send((channel, Bytes::copy_from_slice(&port.to_le_bytes()))).await;
    }
    let number = port.to_string();
    match connected(pod, &number).await {
        Ok(stream) => copy(stream, data, heard, &say).await,
        Err(why) => {
            let text = pod.failed(&number, &why);
            let _ = say.send((error, text.into())).await;
        }
    }
}

/// Copies in both directions; the program's last word ends it.
async fn copy(stream: TcpStream, channel: u8, mut heard: mpsc::Receiver<Bytes>, say: &mpsc::Sender<(u8, Bytes)>) {
    let (mut from, mut to) = stream.into_split();
    let incoming = async {
        while let Some(bytes) = heard.recv().await {
            // A program that reads no more may still write.
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    let outgoing = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if say
                .send((channel, Bytes::copy_from_slice(&buffer[..length])))
                .await
                .is_err()
            {
                return;
            }
        }
    };
    let incoming = async {
        incoming.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = outgoing => {}
        () = incoming => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::duplex;
    use tokio::net::TcpListener;

    use super::*;

    /// The code, the protocol and the text of an answer to a client that names ports and protocols.
    fn answered(upgrade: &str, protocols: Option<&str>, ports: &[u16]) -> Option<(u16, String, String)> {
        let mut request = http::Request::get("/")
            .header("Connection", "Upgrade")
            .header("Upgrade", upgrade)
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(protocols) = protocols {
            request = request.header("Sec-WebSocket-Protocol", protocols);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let (head, body) = answer(&head, pod(), ports, &CancellationToken::new())?.into_parts();
        let protocol = head.headers.get("sec-websocket-protocol");
        let protocol = protocol.map_or("", |protocol| protocol.to_str().expect("text"));
        let text = match body {
            ResponseBody::Full(Some(text)) => String::from_utf8(text.to_vec()).expect("text"),
            _ => String::new(),
        };
        Some((head.status.as_u16(), protocol.to_owned(), text))
    }

    fn pod() -> Pod {
        Pod {
            name: "p_n".to_owned(),
            uid: "u".to_owned(),
            ip: Ipv4Addr::LOCALHOST.into(),
        }
    }

    #[test]
    fn which_ports() {
        #[track_caller]
        fn check(ports: &[u16], code: u16, text: &str) {
            let found = answered("websocket", None, ports).map(|(code, _, text)| (code, text));
            assert_eq!(found, Some((code, text.to_owned())), "{ports:?}");
        }
        check(&[80], 101, "");
        check(&[80, 443, 1], 101, "");
        check(&[1; MOST], 101, "");
        check(&[], 400, "query parameter \"port\" is required");
        check(&[0], 400, "port \"0\" must be > 0");
        check(&[80, 0], 400, "port \"80,0\" must be > 0");
        assert_eq!(answered("websocket", None, &[1; MOST + 1]), None);
    }

    #[test]
    fn who_gets_them() {
        #[track_caller]
        fn check(upgrade: &str, protocols: Option<&str>, expected: Option<&str>) {
            let found = answered(upgrade, protocols, &[1]).map(|(_, protocol, _)| protocol);
            assert_eq!(found.as_deref(), expected, "{upgrade} {protocols:?}");
        }
        let two = "v5.channel.k8s.io, v4.channel.k8s.io";
        check("websocket", Some(two), Some("v4.channel.k8s.io"));
        let base64 = "v4.base64.channel.k8s.io";
        check("websocket", Some(base64), Some(base64));
        check("websocket", None, Some(""));
        check("websocket", Some("channel.k8s.io"), None);
        check("SPDY/3.1", None, None);
        assert_eq!(answered("SPDY/3.1", None, &[]), None, "SPDY says its ports later");
    }

    #[tokio::test]
    async fn what_is_said() {
        check(Codec::Bytes).await;
        check(Codec::Base64).await;
    }

    async fn check(codec: Codec) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let open = listener.local_addr().expect("an address").port();
        let closed = {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            other.local_addr().expect("an address").port()
        };
        let program = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).await.expect("four bytes");
            stream.write_all(&heard).await.expect("they are taken");
        };
        let pod = pod();
        let (near, far) = duplex(1024);
        let server = async {
            let socket = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
            let (to, from) = socket.split();
            serve(&pod, &[open, closed], codec, to, from).await;
        };
        let client = async {
            let mut socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            // A channel that does not exist, one that is not read, an empty message, and text, which is valid too.
            let said = [(9, &b"no"[..]), (1, b"no"), (0, b""), (0, b"pi")];
            let said = said.map(|(channel, bytes)| codec.message(channel, bytes));
            let text = codec.message(0, b"ng").into_text().expect("text");
            for message in said.into_iter().chain([Message::Text(text)]) {
                socket.send(message).await.expect("it is taken");
            }
            let mut channels = [const { Vec::new() }; 4];
            while let Some(Ok(message)) = socket.next().await {
                let message = websocket::payload(message);
                if let Some((channel, bytes)) = message.and_then(|message| codec.read(message)) {
                    channels[usize::from(channel)].extend_from_slice(&bytes);
                }
            }
            channels
        };
        let ((), (), channels) = tokio::join!(program, server, client);
        let of = |port: u16, text: &str| [&port.to_le_bytes()[..], text.as_bytes()].concat();
        assert_eq!(channels[0], of(open, "ping"));
        assert_eq!(channels[1], of(open, ""));
        assert_eq!(channels[2], of(closed, ""));
        let why = of(closed, &format!("error forwarding port {closed} to pod p_n, uid u: "));
        assert!(
            channels[3].starts_with(&why),
            "{}",
            String::from_utf8_lossy(&channels[3])
        );
    }
}
