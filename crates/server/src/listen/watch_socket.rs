//! Watches over WebSockets: each event is a message, as text where it is JSON.
//!
//! Browsers can watch in no other way, and the Java client of fabric8 tries this first. Go's
//! `golang.org/x/net/websocket`, with which kube-apiserver serves them, decides which clients may have one; its
//! refusals have no `Status`.
//!
//! Not here: the WebSockets of programs, whose messages are numbered streams (`streams::websocket`).

use std::future::poll_fn;

use bytes::{Buf as _, Bytes};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::response::{Duplex, Upgrade, Watch};
use crate::streams::websocket::{accepted, farewell, is_wanted, limits, protocols};

/// The outcome of a request for a watch over a WebSocket.
pub(super) enum Asked {
    /// The answer behind which the connection is one.
    Granted(Response<()>),
    Refused(Response<Bytes>),
}

/// Whether a client asks for a WebSocket, and the answer to it.
pub(super) fn asked(headers: &HeaderMap) -> Option<Asked> {
    if !is_wanted(headers) {
        return None;
    }
    let refused = |code: StatusCode, why: &'static str| {
        let mut refusal = Response::new(Bytes::from_static(why.as_bytes()));
        *refusal.status_mut() = code;
        let close = HeaderValue::from_static("close");
        refusal.headers_mut().insert(header::CONNECTION, close);
        Some(Asked::Refused(refusal))
    };
    if headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return refused(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
    }
    // Of several protocols none could be chosen: a watch knows none.
    let mut named = protocols(headers);
    let (protocol, others) = (named.next(), named.next());
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let Some(granted) = key.and_then(|key| accepted(key, protocol)) else {
        return refused(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    if headers.get(header::ORIGIN).is_none_or(HeaderValue::is_empty) {
        return refused(StatusCode::FORBIDDEN, "");
    }
    if others.is_some() {
        return refused(StatusCode::BAD_REQUEST, "");
    }
    Some(Asked::Granted(granted))
}

/// How the events of a watch are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Each is a line of text.
    Lines,
    /// Each has its length before it, in four bytes.
    Lengths,
}

impl Framing {
    /// The framing for the answer's media type.
    pub(super) fn of(headers: &HeaderMap) -> Framing {
        let media = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if media.is_some_and(|media| media.starts_with(b"application/json")) {
            Framing::Lines
        } else {
            Framing::Lengths
        }
    }

    /// Takes the first event off a frame of whole ones; `None` when there is no more.
    fn message(self, frame: &mut Bytes) -> Option<Message> {
        match self {
            Framing::Lines => {
                let end = frame.iter().position(|byte| *byte == b'\n')? + 1;
                Utf8Bytes::try_from(frame.split_to(end)).ok().map(Message::Text)
            }
            Framing::Lengths => {
                let length = usize::try_from(frame.try_get_u32().ok()?).ok()?;
                (length <= frame.len()).then(|| Message::Binary(frame.split_to(length)))
            }
        }
    }
}

/// The work of the connection behind the answer: it sends the watch to its end, or until its client goes.
pub(super) fn upgrade(watch: Box<Watch>, framing: Framing) -> Upgrade {
    Upgrade(Box::new(move |stream, begun| {
        Box::pin(send(stream, begun, watch, framing))
    }))
}

async fn send(stream: Box<dyn Duplex>, begun: Bytes, mut watch: Box<Watch>, framing: Framing) {
    let socket = WebSocketStream::from_partially_read(stream, begun.to_vec(), Role::Server, Some(limits())).await;
    let (mut to_client, mut from_client) = socket.split();
    // Messages of a client are ignored, and only its going matters; pings are answered while they are read.
    let gone = async { while let Some(Ok(_)) = from_client.next().await {} };
    let sending = async {
        while let Some(mut frame) = poll_fn(|cx| watch.poll_guarded(cx)).await {
            while let Some(message) = framing.message(&mut frame) {
                to_client.feed(message).await?;
            }
            to_client.flush().await?;
        }
        to_client.send(farewell()).await
    };
    tokio::select! {
        () = gone => {}
        // Its client may have gone meanwhile, which ends it as well.
        _ended = async { sending.await as Result<(), Error> } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_apart() {
        let check = |framing: Framing, frame: &'static [u8], expected: &[&[u8]]| {
            let mut frame = Bytes::from_static(frame);
            let mut messages = Vec::new();
            while let Some(message) = framing.message(&mut frame) {
                messages.push(message.into_data());
            }
            assert_eq!(messages, expected, "{framing:?} {frame:?}");
        };
        check(Framing::Lines, b"", &[]);
        check(Framing::Lines, b"{}\n[]\n", &[b"{}\n", b"[]\n"]);
        check(Framing::Lines, b"no end", &[]);
        check(
            Framing::Lengths,
            b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c",
            &[b"ab", b"", b"c"],
        );
        check(Framing::Lengths, b"\xff\xff\xff\xffab", &[]);
        check(Framing::Lengths, b"\0\0", &[]);
    }
}
