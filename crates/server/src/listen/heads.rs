//! Heads of HTTP/1.1 that hyper takes and Go's server refuses: it is not clear which host is meant, or where the body
//! ends. A proxy in front of the server might read them otherwise.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};

use crate::response::ResponseBody;

/// The answer to a head that Go refuses (`readRequest` and `parseTransferEncoding` of `net/http`).
pub(super) fn refusal(version: Version, method: &Method, headers: &HeaderMap) -> Option<Response<ResponseBody>> {
    if version != Version::HTTP_11 {
        return None;
    }
    let codings = || headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    let (status, text) = match headers.get_all(header::HOST).iter().count() {
        0 if method != Method::CONNECT => (StatusCode::BAD_REQUEST, "400 Bad Request: missing required Host header"),
        2.. => (StatusCode::BAD_REQUEST, "400 Bad Request"),
        _ if codings().count() > 1 || !codings().all(is_chunked) => {
            (StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding")
        }
        _ => return None,
    };
    let mut answer = Response::new(ResponseBody::Full(Some(Bytes::from_static(text.as_bytes()))));
    *answer.status_mut() = status;
    let head = answer.headers_mut();
    head.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    head.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_refuses() {
        for (version, method, headers, status) in [
            (Version::HTTP_11, Method::GET, vec![("host", "a")], None),
            (Version::HTTP_11, Method::GET, vec![], Some(400)),
            (Version::HTTP_11, Method::CONNECT, vec![], None),
            (Version::HTTP_10, Method::GET, vec![], None),
            (
                Version::HTTP_11,
                Method::GET,
                vec![("host", "a"), ("host", "a")],
                Some(400),
            ),
            (
                Version::HTTP_11,
                Method::POST,
                vec![("host", "a"), ("transfer-encoding", "Chunked")],
                None,
            ),
            (
                Version::HTTP_11,
                Method::POST,
                vec![("host", "a"), ("transfer-encoding", "chunked, chunked")],
                Some(501),
            ),
            (
                Version::HTTP_11,
                Method::POST,
                vec![
                    ("host", "a"),
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "chunked"),
                ],
                Some(501),
            ),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            let answer = refusal(version, &method, &map).map(|answer| answer.status().as_u16());
            assert_eq!(answer, status, "{version:?} {method} {headers:?}");
        }
    }
}
