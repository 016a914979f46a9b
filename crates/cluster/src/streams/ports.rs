//! Ports of a pod over the numbered messages of a WebSocket: `v4.channel.k8s.io`, which the clients for Java,
//! JavaScript and Python speak.
//!
//! The request names the ports. The first has channel 0 for its data and 1 for an error in words, the next 2 and 3;
//! each channel begins with the port's number. Every port has one connection, and when all have ended, so does the
//! WebSocket. As `websocket.go` in upstream's CRI streaming (`portforward`).
//!
//! Not here: `v4.base64.channel.k8s.io`, which is for browsers; SPDY, where a client has as many connections as it
//! likes (`forward`).

use bytes::Bytes;
use futures::future::join_all;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use http::request::Parts;
use http::{Response, header};
use kubewright::Stop;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::PIECES;
use super::forward::{Pod, connected};
use super::websocket::{self, words};
use crate::response::{Duplex, ResponseBody, Upgrade};

const CHANNELS: &str = "v4.channel.k8s.io";

/// The largest message of a client: the client for Python sends a MiB at once, behind the number of its channel.
const LARGEST: usize = 2 * 1024 * 1024;

/// How many ports a client may want, each of which holds up to two of these messages.
const MOST: usize = 16;

/// The answer to a client that wants ports in this way; none when it does not.
pub(super) fn answer(head: &Parts, pod: Pod, ports: &[u16], stop: &Stop) -> Option<Response<ResponseBody>> {
    let ports = servable(ports)?.to_vec();
    let accepted = accepted(head)?;
    let stop = stop.clone();
    let run = move |stream: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let limits = websocket::limits()
                .max_message_size(Some(LARGEST))
                .max_frame_size(Some(LARGEST));
            let begun = begun.to_vec();
            let socket = WebSocketStream::from_partially_read(stream, begun, Role::Server, Some(limits)).await;
            let (to, from) = socket.split();
            tokio::select! {
                () = serve(&pod, &ports, to, from) => {}
                () = stop.requested() => {}
            }
        })
    };
    Some(accepted.map(|()| ResponseBody::Upgrade(Upgrade(Box::new(run)))))
}

/// Who names no protocol gets this one.
fn accepted(head: &Parts) -> Option<Response<()>> {
    if words(&head.headers, header::SEC_WEBSOCKET_PROTOCOL).next().is_some() {
        return websocket::accept(head, &[CHANNELS]).map(|(_, accepted)| accepted);
    }
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY);
    key.filter(|_| websocket::is_wanted(&head.headers))
        .and_then(|key| websocket::accepted(key, None))
}

/// The ports that a request names, unless there are none or too many, or one that is no port.
fn servable(ports: &[u16]) -> Option<&[u16]> {
    ((1..=MOST).contains(&ports.len()) && !ports.contains(&0)).then_some(ports)
}

/// Serves all ports, until they have ended or the client goes.
async fn serve<T, F>(pod: &Pod, ports: &[u16], mut to: T, mut from: F)
where
    T: Sink<Message> + Unpin,
    F: Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    let (say, mut said) = mpsc::channel::<Bytes>(PIECES);
    let (inputs, heard): (Vec<_>, Vec<_>) = ports.iter().map(|_| mpsc::channel::<Bytes>(1)).unzip();
    let hearing = async {
        while let Some(Ok(message)) = from.next().await {
            let Some(mut message) = websocket::payload(message).filter(|message| !message.is_empty()) else {
                continue;
            };
            let rest = message.split_off(1);
            let channel = message[0];
            // The errors of a client are not read, nor bytes behind the end of a connection.
            if let Some(input) = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0) {
                let _ = input.send(rest).await;
            }
        }
    };
    let sending = async {
        while let Some(message) = said.recv().await {
            if to.send(Message::Binary(message)).await.is_err() {
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
async fn one(pod: &Pod, port: u16, channel: u8, heard: mpsc::Receiver<Bytes>, say: mpsc::Sender<Bytes>) {
    let (data, error) = (channel, channel + 1);
    for channel in [data, error] {
        // Who has gone ends all of it elsewhere.
        let _ = say.send(websocket::message(channel, &port.to_le_bytes())).await;
    }
    let number = port.to_string();
    match connected(pod, &number).await {
        Ok(stream) => copy(stream, data, heard, &say).await,
        Err(why) => {
            let text = pod.failed(&number, &why);
            let _ = say.send(websocket::message(error, text.as_bytes())).await;
        }
    }
}

/// Copies in both directions; the program's last word ends it.
async fn copy(stream: TcpStream, channel: u8, mut heard: mpsc::Receiver<Bytes>, say: &mpsc::Sender<Bytes>) {
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
            if say.send(websocket::message(channel, &buffer[..length])).await.is_err() {
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

    #[test]
    fn which_ports() {
        let check = |ports: &[u16], expected: bool| {
            assert_eq!(servable(ports).is_some(), expected, "{ports:?}");
        };
        check(&[80], true);
        check(&[80, 443, 1], true);
        check(&[], false);
        check(&[0], false);
        check(&[80, 0], false);
        check(&[1; MOST], true);
        check(&[1; MOST + 1], false);
    }

    #[test]
    fn who_gets_them() {
        let check = |upgrade: &str, protocols: Option<&str>, expected: Option<&str>| {
            let mut request = http::Request::get("/?ports=1")
                .header("Connection", "Upgrade")
                .header("Upgrade", upgrade)
                .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
            if let Some(protocols) = protocols {
                request = request.header("Sec-WebSocket-Protocol", protocols);
            }
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let answer = accepted(&head);
            let protocol = answer.map(|answer| {
                let protocol = answer.headers().get("sec-websocket-protocol").cloned();
                protocol.map_or(String::new(), |protocol| protocol.to_str().expect("text").to_owned())
            });
            assert_eq!(protocol.as_deref(), expected, "{upgrade} {protocols:?}");
        };
        check(
            "websocket",
            Some("v5.channel.k8s.io, v4.channel.k8s.io"),
            Some(CHANNELS),
        );
        check("websocket", None, Some(""));
        check("websocket", Some("v4.base64.channel.k8s.io"), None);
        check("SPDY/3.1", None, None);
    }

    #[tokio::test]
    async fn what_is_said() {
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
        let pod = Pod {
            name: "p_n".to_owned(),
            uid: "u".to_owned(),
            ip: Ipv4Addr::LOCALHOST.into(),
        };
        let (near, far) = duplex(1024);
        let server = async {
            let socket = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
            let (to, from) = socket.split();
            serve(&pod, &[open, closed], to, from).await;
        };
        let client = async {
            let mut socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            // An unknown channel, one that is not read, and text, which counts as well.
            for said in [&b"\x09no"[..], b"\x01no", b"", b"\0pi"] {
                socket
                    .send(Message::Binary(Bytes::copy_from_slice(said)))
                    .await
                    .expect("it is taken");
            }
            socket.send(Message::Text("\0ng".into())).await.expect("it is taken");
            let mut channels = [const { Vec::new() }; 4];
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Binary(message) = message {
                    channels[usize::from(message[0])].extend_from_slice(&message[1..]);
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
