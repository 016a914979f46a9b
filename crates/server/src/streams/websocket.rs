//! WebSockets over which programs talk with clients: `channel.k8s.io`, its versions 4 and 5, and what browsers may
//! prefer, `base64.channel.k8s.io`.
//!
//! Each message begins with the number of its stream: standard input, output and error, the Status at the end, the size
//! of the terminal; in version 5 also the end of a stream. As `k8s.io/apiserver/pkg/util/remotecommand` and
//! `…/wsstream` have it. Not here: the other ends of the streams (`remote`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use kubewright_apiserver::authentication::is_socket_token;
use kubewright_apiserver::base64::decode;
pub(crate) use kubewright_apiserver::websocket::{is_wanted, words};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

/// The streams, by the first byte of a message.
pub(super) const STDIN: u8 = 0;
/// The channel of the standard output.
pub const STDOUT: u8 = 1;
/// The channel of the standard error.
pub const STDERR: u8 = 2;
/// The channel of the status with which a command ends.
pub const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The largest message of a client.
const LARGEST: usize = 1024 * 1024;

/// How a program's streams are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channels {
    protocol: &'static str,
    codec: Codec,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Success is not told, and failure is a text.
    First,
    /// How a command ended is a Status.
    Fourth,
    /// As the fourth; a stream of the client may end before the others.
    Fifth,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Bytes,
    /// A digit, and base64, as text.
    Base64,
}

const fn channels(protocol: &'static str, codec: Codec, version: Version) -> Channels {
    Channels {
        protocol,
        codec,
        version,
    }
}

/// A client that names no protocol gets the first.
const CHANNELS: [Channels; 6] = [
    channels("", Codec::Bytes, Version::First),
    channels("channel.k8s.io", Codec::Bytes, Version::First),
    channels("base64.channel.k8s.io", Codec::Base64, Version::First),
    channels("v4.channel.k8s.io", Codec::Bytes, Version::Fourth),
    channels("v4.base64.channel.k8s.io", Codec::Base64, Version::Fourth),
    channels("v5.channel.k8s.io", Codec::Bytes, Version::Fifth),
];

/// How messages are bounded.
pub(crate) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST))
}

/// The answer that turns a connection into a WebSocket of a protocol, and the protocol: the first that the client
/// names and `known` knows, or what is known under no name when it names none. None when it asks for no WebSocket, or
/// for no such protocol.
pub(super) fn accept<T>(head: &Parts, known: impl Fn(&str) -> Option<T>) -> Option<(T, Response<()>)> {
    if !is_wanted(&head.headers) {
        return None;
    }
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY)?;
    if protocols(&head.headers).next().is_none() {
        return Some((known("")?, accepted(key, None)?));
    }
    let mut found = protocols(&head.headers).filter_map(|said| Some((known(said)?, said)));
    let (found, said) = found.next()?;
    Some((found, accepted(key, Some(said))?))
}

/// The same for the streams of a program: the fifth version, whose server is another one upstream, comes before all
/// others.
pub(super) fn accept_channels(head: &Parts) -> Option<(Channels, Response<()>)> {
    let fifth = |said: &str| Channels::of(said).filter(|known| known.version == Version::Fifth);
    accept(head, fifth).or_else(|| accept(head, Channels::of))
}

/// The protocols that a client names, without its token.
pub(crate) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = words(headers, header::SEC_WEBSOCKET_PROTOCOL);
    all.filter(|said| !said.is_empty() && !is_socket_token(said))
}

/// The answer behind which a connection is a WebSocket; none when the client's key cannot be in one.
pub(crate) fn accepted(key: &HeaderValue, protocol: Option<&str>) -> Option<Response<()>> {
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocol).ok()?);
    }
    let accepted = derive_accept_key(key.as_bytes());
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(accepted).ok()?);
    Some(answer)
}

/// The last message: nothing went wrong. Clients of Go take any other end for an error.
pub(crate) fn farewell() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    }))
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// For the standard input.
    Input(Bytes),
    /// Nothing more comes for it.
    InputEnds,
    /// The terminal has so many columns and rows.
    Size(u16, u16),
    /// A message that does not matter here.
    Nothing,
}

/// The bytes of a message, if it has any of the client's: some clients send text messages, and the API server reads
/// either (`wsstream.Conn`).
pub(super) fn payload(message: Message) -> Option<Bytes> {
    match message {
        Message::Binary(bytes) => Some(bytes),
        Message::Text(text) => Some(text.into()),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => None,
    }
}

impl Codec {
    /// Of which stream a message is, and what it says; none when it says nothing that can be read.
    pub(super) fn read(self, mut message: Bytes) -> Option<(u8, Bytes)> {
        if message.is_empty() {
            return None;
        }
        let rest = message.split_off(1);
        match self {
            Codec::Bytes => Some((message[0], rest)),
            Codec::Base64 => {
                let text = std::str::from_utf8(&rest).ok()?;
                Some((message[0].wrapping_sub(b'0'), decode(text).ok()?.into()))
            }
        }
    }

    /// A message of a stream.
    pub(super) fn message(self, stream: u8, bytes: &[u8]) -> Message {
        match self {
            Codec::Bytes => {
                let mut message = BytesMut::with_capacity(bytes.len() + 1);
                message.extend_from_slice(&[stream]);
                message.extend_from_slice(bytes);
                Message::Binary(message.freeze())
            }
            Codec::Base64 => {
                let mut text = String::from(char::from(b'0'.wrapping_add(stream)));
                STANDARD.encode_string(bytes, &mut text);
                Message::Text(text.into())
            }
        }
    }
}

impl Channels {
    /// Those of a protocol; none when it is not spoken.
    pub(super) fn of(protocol: &str) -> Option<Channels> {
        CHANNELS.iter().find(|known| known.protocol == protocol).copied()
    }

    /// Reads a message.
    pub(super) fn read(self, message: Bytes) -> ClientMessage {
        if self.version == Version::Fifth && message.first() == Some(&CLOSE) {
            return if message[1..] == [STDIN] {
                ClientMessage::InputEnds
            } else {
                ClientMessage::Nothing
            };
        }
        match self.codec.read(message) {
            Some((STDIN, bytes)) => ClientMessage::Input(bytes),
            Some((RESIZE, size)) => self::size(&size),
            _ => ClientMessage::Nothing,
        }
    }

    /// A message of a stream; none when this version does not say it.
    pub(super) fn message(self, stream: u8, bytes: &[u8]) -> Option<Message> {
        if stream != STATUS || bytes.is_empty() || self.version != Version::First {
            return Some(self.codec.message(stream, bytes));
        }
        let status: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let why = status["message"].as_str()?;
        Some(self.codec.message(stream, why.as_bytes()))
    }
}

/// Reads the size of a terminal (`remotecommand.TerminalSize`).
pub(super) fn size(text: &[u8]) -> ClientMessage {
    let size: Value = serde_json::from_slice(text).unwrap_or_default();
    let number = |field: &str| size[field].as_u64().and_then(|number| u16::try_from(number).ok());
    match (number("Width"), number("Height")) {
        (Some(columns), Some(rows)) => ClientMessage::Size(columns, rows),
        _ => ClientMessage::Nothing,
    }
}

/// The Status that says how a program ended, its fields in Go's order.
#[derive(Serialize)]
struct Ended {
    metadata: Map<String, Value>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Details {
    causes: [Cause; 1],
}

#[derive(Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    message: String,
}

impl Ended {
    fn because(message: String, reason: &'static str, cause: Cause) -> Ended {
        Ended {
            metadata: Map::new(),
            status: "Failure",
            message: Some(message),
            reason: Some(reason),
            details: Some(Details { causes: [cause] }),
            code: None,
        }
    }

    fn text(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and numbers are JSON").into()
    }
}

/// How a command ended (`remotecommand.ServeExec`).
pub fn ended(code: i32) -> Bytes {
    if code == 0 {
        return Bytes::from_static(br#"{"metadata":{},"status":"Success"}"#);
    }
    let message = format!("command terminated with non-zero exit code: exit status {code}");
    let cause = Cause {
        reason: Some("ExitCode"),
        message: code.to_string(),
    };
    Ended::because(message, "NonZeroExitCode", cause).text()
}

/// Why a command did not run.
pub fn failed(why: &str) -> Bytes {
    let cause = Cause {
        reason: None,
        message: why.to_owned(),
    };
    let status = Ended::because(format!("Internal error occurred: {why}"), "InternalError", cause);
    Ended {
        code: Some(500),
        ..status
    }
    .text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(protocol: &str) -> Channels {
        Channels::of(protocol).expect("it is known")
    }

    #[test]
    fn what_clients_say() {
        #[track_caller]
        fn check(protocol: &str, message: &[u8], expected: ClientMessage) {
            assert_eq!(
                of(protocol).read(Bytes::copy_from_slice(message)),
                expected,
                "{protocol} {message:?}"
            );
        }
        let hello = || ClientMessage::Input(Bytes::from_static(b"hello"));
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io", ""] {
            check(protocol, b"\0hello", hello());
            check(protocol, b"\0", ClientMessage::Input(Bytes::new()));
            check(protocol, &[CLOSE, 1], ClientMessage::Nothing);
            check(
                protocol,
                b"\x04{\"Width\":80,\"Height\":24}",
                ClientMessage::Size(80, 24),
            );
            check(protocol, b"\x04{\"Width\":-1}", ClientMessage::Nothing);
            check(protocol, b"\x09x", ClientMessage::Nothing);
            check(protocol, b"", ClientMessage::Nothing);
        }
        check("v5.channel.k8s.io", &[CLOSE, STDIN], ClientMessage::InputEnds);
        check("v4.channel.k8s.io", &[CLOSE, STDIN], ClientMessage::Nothing);
        for protocol in ["v4.base64.channel.k8s.io", "base64.channel.k8s.io"] {
            check(protocol, b"0aGVsbG8=", hello());
            check(protocol, b"0aGVs\nbG8=", hello());
            check(protocol, b"0", ClientMessage::Input(Bytes::new()));
            check(
                protocol,
                b"4eyJXaWR0aCI6ODAsIkhlaWdodCI6MjR9",
                ClientMessage::Size(80, 24),
            );
            for nothing in [
                &b"0aGVsbG8"[..],
                b"0***",
                b"0\xff",
                b"\0aGVsbG8=",
                b"9aGVsbG8=",
                b"\xff0",
                b"",
            ] {
                check(protocol, nothing, ClientMessage::Nothing);
            }
        }
    }

    #[test]
    fn what_clients_are_told() {
        #[track_caller]
        fn check(protocol: &str, stream: u8, bytes: &[u8], expected: Option<Message>) {
            assert_eq!(of(protocol).message(stream, bytes), expected, "{protocol} {stream}");
        }
        let bytes = |bytes: &[u8]| Some(Message::Binary(Bytes::copy_from_slice(bytes)));
        let text = |text: &str| Some(Message::Text(text.into()));
        check("v5.channel.k8s.io", STDOUT, b"hello", bytes(b"\x01hello"));
        check("base64.channel.k8s.io", STDERR, b"hello", text("2aGVsbG8="));
        check("base64.channel.k8s.io", STDOUT, b"", text("1"));
        let status = [&b"\x03"[..], &ended(0)].concat();
        check("v4.channel.k8s.io", STATUS, &ended(0), bytes(&status));
        check("channel.k8s.io", STATUS, b"", bytes(b"\x03"));
        check("channel.k8s.io", STATUS, &ended(0), None);
        let why = b"\x03command terminated with non-zero exit code: exit status 3";
        check("channel.k8s.io", STATUS, &ended(3), bytes(why));
        check(
            "base64.channel.k8s.io",
            STATUS,
            &failed("no"),
            text("3SW50ZXJuYWwgZXJyb3Igb2NjdXJyZWQ6IG5v"),
        );
    }

    #[test]
    fn requests_that_become_websockets() {
        #[track_caller]
        fn check(upgrade: &str, protocols: Option<&str>, expected: Option<&str>) {
            let mut request = http::Request::get("/")
                .header("Connection", "keep-alive, Upgrade")
                .header("Upgrade", upgrade)
                .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
            if let Some(protocols) = protocols {
                request = request.header("Sec-WebSocket-Protocol", protocols);
            }
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let answer = accept_channels(&head);
            let protocol = answer.as_ref().map(|(found, _)| found.protocol);
            assert_eq!(protocol, expected, "{upgrade} {protocols:?}");
            let Some((Channels { protocol, .. }, answer)) = answer else {
                return;
            };
            let said = answer.headers().get("sec-websocket-protocol");
            assert_eq!(said.map_or("", |said| said.to_str().expect("text")), protocol);
            assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        for one in CHANNELS.iter().skip(1) {
            check("websocket", Some(one.protocol), Some(one.protocol));
        }
        let several = "base64.channel.k8s.io, v4.channel.k8s.io";
        check("WebSocket", Some(several), Some("base64.channel.k8s.io"));
        let with_fifth = "v4.channel.k8s.io, v5.channel.k8s.io";
        check("WebSocket", Some(with_fifth), Some("v5.channel.k8s.io"));
        let token = "base64url.bearer.authorization.k8s.io.amFuZQ, v4.channel.k8s.io";
        check("websocket", Some(token), Some("v4.channel.k8s.io"));
        check("websocket", None, Some(""));
        check("websocket", Some("v9.channel.k8s.io"), None);
        check("SPDY/3.1", Some("v4.channel.k8s.io"), None);
        check("SPDY/3.1", None, None);
    }

    #[test]
    fn how_commands_end() {
        #[track_caller]
        fn check(status: &Bytes, expected: &str) {
            assert_eq!(String::from_utf8_lossy(status), expected);
            let read: Result<Value, _> = serde_json::from_slice(status);
            assert!(read.is_ok(), "{read:?}");
        }
        check(&ended(0), r#"{"metadata":{},"status":"Success"}"#);
        check(
            &ended(3),
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
        );
        check(
            &failed("no \"x\""),
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no \"x\"","reason":"InternalError","details":{"causes":[{"message":"no \"x\""}]},"code":500}"#,
        );
    }
}
