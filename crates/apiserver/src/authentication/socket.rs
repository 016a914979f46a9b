//! A bearer token as a protocol of a WebSocket: browsers can send no header of their own with one.
//!
//! `base64url.bearer.authorization.k8s.io.TOKEN` beside at least one protocol that is spoken, as
//! `ProtocolAuthenticator` of k8s.io/apiserver reads it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;

use crate::wire::websocket::{is_wanted, words};

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token that a request for a WebSocket carries; `None` when it carries none, or is not for one.
///
/// # Errors
/// What is wrong with it, in upstream's words.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if !is_wanted(headers) {
        return Ok(None);
    }
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        words(headers, SEC_WEBSOCKET_PROTOCOL).partition(|said| is_token(said));
    let token = match tokens[..] {
        [] => return Ok(None),
        [token] => decoded(token.strip_prefix(PREFIX).unwrap_or_default())?,
        _ => return Err("multiple base64.bearer.authorization tokens specified"),
    };
    match token.is_empty() {
        true => Ok(None),
        // Something must be left that the answer can name.
        false if others.is_empty() => Err("missing additional subprotocol"),
        false => Ok(Some(token)),
    }
}

fn decoded(token: &str) -> Result<String, &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(token);
    let bytes = bytes.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token")
}

/// Whether a protocol that a client offers is its token: none that could be chosen, and no answer may name it.
pub fn is_token(protocol: &str) -> bool {
    protocol.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{CONNECTION, UPGRADE};

    use super::*;

    const JANE: &str = "base64url.bearer.authorization.k8s.io.amFuZQ";

    fn headers(connection: &'static str, protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static(connection));
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        for said in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, said.parse().expect("a header"));
        }
        headers
    }

    #[test]
    fn what_a_request_carries() {
        #[track_caller]
        fn check(protocols: &[&str], expected: Result<Option<&str>, &str>) {
            let found = token(&headers("keep-alive, Upgrade", protocols));
            assert_eq!(
                found.as_ref().map(Option::as_deref).map_err(|why| *why),
                expected,
                "{protocols:?}"
            );
        }
        let prefixed = |rest: &str| format!("x, {PREFIX}{rest}");
        check(&[], Ok(None));
        check(&["v4.channel.k8s.io"], Ok(None));
        check(&["v4.channel.k8s.io", JANE], Ok(Some("jane")));
        check(&[&prefixed("amFuZQ")], Ok(Some("jane")));
        check(&[&prefixed("")], Ok(None));
        check(&[JANE], Err("missing additional subprotocol"));
        check(
            &[JANE, JANE, "x"],
            Err("multiple base64.bearer.authorization tokens specified"),
        );
        check(
            &[&prefixed("amFuZQ==")],
            Err("invalid base64.bearer.authorization token encoding"),
        );
        check(&[&prefixed("_w")], Err("invalid base64.bearer.authorization token"));
        assert_eq!(
            token(&headers("keep-alive", &["x", JANE])),
            Ok(None),
            "no upgrade is asked for"
        );
    }
}
