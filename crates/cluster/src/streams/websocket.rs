//! WebSockets over which programs talk with clients: `v5.channel.k8s.io` and `v4.channel.k8s.io`.
//!
//! Each message begins with the number of its stream: standard input, output and error, the Status at the end, the size
//! of the terminal; in version 5 also the end of a stream. As `k8s.io/apiserver/pkg/util/remotecommand` and
//! `…/wsstream` have it. Not here: the other ends of the streams (`remote`).

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

/// The streams, by the first byte of a message.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The largest message of a client.
const LARGEST: usize = 1024 * 1024;

/// The versions that are spoken of a program's streams, the better first.
pub(super) const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// How messages are bounded.
pub(crate) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST))
}

/// The answer that turns a connection into a WebSocket of one of these protocols, and of which; none when the client
/// did not ask for one.
pub(super) fn accept(head: &Parts, protocols: &[&'static str]) -> Option<(&'static str, Response<()>)> {
    if !is_wanted(&head.headers) {
        return None;
    }
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY)?;
    let protocol = *protocols.iter().find(|protocol| {
        words(&head.headers, header::SEC_WEBSOCKET_PROTOCOL).any(|said| said.eq_ignore_ascii_case(protocol))
    })?;
    Some((protocol, accepted(key, Some(protocol))?))
}

/// Whether a client asks for a WebSocket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let says = |name: header::HeaderName, word: &str| words(headers, name).any(|said| said.eq_ignore_ascii_case(word));
    says(header::UPGRADE, "websocket") && says(header::CONNECTION, "upgrade")
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

/// The words of a header that is a list.
pub(crate) fn words<K: header::AsHeaderName>(headers: &HeaderMap, name: K) -> impl Iterator<Item = &str> {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',').map(str::trim))
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
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

/// Reads a message.
pub(super) fn read(mut message: Bytes) -> Said {
    if message.is_empty() {
        return Said::Nothing;
    }
    let rest = message.split_off(1);
    match message[0] {
        STDIN => Said::Input(rest),
        CLOSE if rest[..] == [STDIN] => Said::InputEnds,
        RESIZE => size(&rest),
        _ => Said::Nothing,
    }
}

/// Reads the size of a terminal (`remotecommand.TerminalSize`).
pub(super) fn size(text: &[u8]) -> Said {
    let size: Value = serde_json::from_slice(text).unwrap_or_default();
    let number = |field: &str| size[field].as_u64().and_then(|number| u16::try_from(number).ok());
    match (number("Width"), number("Height")) {
        (Some(columns), Some(rows)) => Said::Size(columns, rows),
        _ => Said::Nothing,
    }
}

/// A message of a stream.
pub(super) fn message(stream: u8, bytes: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.extend_from_slice(&[stream]);
    message.extend_from_slice(bytes);
    message.freeze()
}

/// The Status that says how a command ended (`remotecommand.ServeExec`).
pub(super) fn ended(code: i32) -> Bytes {
    let status = match code {
        0 => json!({ "metadata": {}, "status": "Success" }),
        code => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
    };
    status.to_string().into()
}

/// The Status that says why a command did not run.
pub(super) fn failed(why: &str) -> Bytes {
    let status = json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {why}"),
    });
    status.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_say() {
        let check = |message: &[u8], expected: Said| assert_eq!(read(Bytes::copy_from_slice(message)), expected);
        check(b"\0hello", Said::Input(Bytes::from_static(b"hello")));
        check(b"\0", Said::Input(Bytes::new()));
        check(&[255, 0], Said::InputEnds);
        check(&[255, 1], Said::Nothing);
        check(b"\x04{\"Width\":80,\"Height\":24}", Said::Size(80, 24));
        check(b"\x04{\"Width\":-1}", Said::Nothing);
        check(b"\x09x", Said::Nothing);
        check(b"", Said::Nothing);
    }

    #[test]
    fn who_gets_a_websocket() {
        let check = |upgrade: &str, protocols: &str, expected: Option<&str>| {
            let request = http::Request::get("/")
                .header("Connection", "keep-alive, Upgrade")
                .header("Upgrade", upgrade)
                .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header("Sec-WebSocket-Protocol", protocols);
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let answer = accept(&head, &CHANNELS);
            let protocol = answer.as_ref().map(|(protocol, _)| *protocol);
            assert_eq!(protocol, expected, "{upgrade} {protocols}");
            if let Some((protocol, answer)) = answer {
                assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
                assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            }
        };
        check("websocket", "v5.channel.k8s.io", Some("v5.channel.k8s.io"));
        check(
            "WebSocket",
            "v4.channel.k8s.io, v5.channel.k8s.io",
            Some("v5.channel.k8s.io"),
        );
        check("websocket", "channel.k8s.io", None);
        check("SPDY/3.1", "v4.channel.k8s.io", None);
    }

    #[test]
    fn how_commands_end() {
        let says = |message: Bytes| String::from_utf8_lossy(&message).into_owned();
        assert_eq!(says(ended(0)), r#"{"metadata":{},"status":"Success"}"#);
        assert!(
            says(ended(3)).contains(r#""message":"3","reason":"ExitCode""#),
            "{}",
            says(ended(3))
        );
        assert!(says(failed("no")).contains("no"));
    }
}
