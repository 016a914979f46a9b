//! How a request asks for a WebSocket. Not here: the answer, and what is said over it, which is the shell's.

use http::{HeaderMap, header};

/// The words of a header that is a list.
pub fn words<K: header::AsHeaderName>(headers: &HeaderMap, name: K) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',').map(str::trim))
}

/// Whether a client asks for a WebSocket (`wsstream.IsWebSocketRequest`).
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let says = |name: header::HeaderName, word: &str| words(headers, name).any(|said| said.eq_ignore_ascii_case(word));
    says(header::UPGRADE, "websocket") && says(header::CONNECTION, "upgrade")
}
