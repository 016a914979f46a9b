//! Large answers in gzip, for clients that ask for it.
//!
//! As kube-apiserver does it: objects and lists above a size, never watches; the OpenAPI v2 document, which is large
//! always; nothing else.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Method, Response};

use super::head::Target;
use super::route::Page;
use crate::Body;
use crate::discovery::DiscoveryPath;

/// Smaller bodies are sent as they are.
const THRESHOLD: usize = 128 * 1024;

/// The value of `Vary` for an answer that may be compressed.
pub(super) const VARY_BY: HeaderValue = HeaderValue::from_static("Accept-Encoding");

/// Whether the client asks for gzip. A quality makes it another word for objects, as it does upstream, but not for the
/// document which another part of kube-apiserver compresses.
fn is_asked(headers: &HeaderMap, is_document: bool) -> bool {
    let header = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    header
        .unwrap_or("")
        .split(',')
        .any(|word| match word.trim().split_once(";q=") {
            Some(("gzip", quality)) => is_document && quality.parse().is_ok_and(|quality: f32| quality > 0.0),
            _ => word.trim() == "gzip",
        })
}

/// Whether an answer is compressed: the client asks for it, where that is done, and it is worth it.
pub(super) fn is_wanted(headers: &HeaderMap, target: &Target, response: &Response<Body>) -> bool {
    let is_document = matches!(target, Target::Page(Page::OpenApiV2));
    let is_resource = match target {
        Target::Resource(..) => true,
        Target::Page(Page::Discovery(place)) => !matches!(place, DiscoveryPath::Core | DiscoveryPath::Groups),
        Target::Page(_) => false,
    };
    let length = match response.body() {
        Body::Full(bytes) => bytes.len(),
        Body::Long(long) => long.len(),
        Body::Watch(_) | Body::Forwarded(_) => 0,
    };
    // Most answers are short, which is seen at once.
    length > THRESHOLD
        && is_asked(headers, is_document)
        && (is_document || is_resource && !response.headers().contains_key(VARY))
}

/// An answer as the client takes it: in gzip when it asks for it, without its body when it only wants the head.
/// `target` is where the request leads, if it was admitted.
pub(super) fn finished(
    head: &http::request::Parts,
    target: Option<&Target>,
    mut answer: Response<Body>,
) -> Response<Body> {
    if target.is_some_and(|target| is_wanted(&head.headers, target, &answer)) {
        response(&mut answer);
    }
    if head.method == Method::HEAD {
        *answer.body_mut() = Body::Full(Bytes::new());
    }
    answer
}

/// Compresses a body.
fn response(response: &mut Response<Body>) {
    let plain = std::mem::replace(response.body_mut(), Body::Full(Bytes::new()));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in plain.pieces() {
        encoder.write_all(&piece).expect("memory can be written to");
    }
    let compressed = encoder.finish().expect("memory can be written to");
    *response.body_mut() = Body::Full(Bytes::from(compressed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    if !headers.get_all(VARY).iter().any(|vary| vary == VARY_BY) {
        headers.append(VARY, VARY_BY);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::route::{self, Path};
    use super::*;

    #[test]
    fn requests_that_ask_for_gzip() {
        let check = |text: &str, want: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, text.parse().expect("a header"));
            assert_eq!(is_asked(&headers, false), want, "{text}");
        };
        check("gzip", true);
        check("deflate, gzip", true);
        check("gzip;q=0.5", false);
        check("*", false);
        assert!(!is_asked(&HeaderMap::new(), false));
        let document = |text: &str| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, text.parse().expect("a header"))]);
            is_asked(&headers, true)
        };
        assert!(document("gzip") && document("deflate, gzip;q=0.5"));
        assert!(!document("gzip;q=0") && !document("*"));
    }

    #[test]
    fn large_answers_shrink_and_come_back() {
        let check = |path: &str, size: usize, want: bool| {
            let mut response = Response::new(Body::Full(Bytes::from(vec![b'x'; size])));
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
            let target = match route::parse(path) {
                Path::Resource(resource) => Target::Resource(resource, None),
                Path::Page(page) => Target::Page(page),
                Path::Verb => panic!("{path} leads somewhere"),
            };
            if is_wanted(&headers, &target, &response) {
                super::response(&mut response);
            }
            let encoded = response.headers().get(CONTENT_ENCODING).is_some();
            assert_eq!(encoded, want, "{path} {size}");
            let Body::Full(bytes) = response.body() else {
                panic!("a whole body")
            };
            if want {
                assert_eq!(response.headers()[VARY], "Accept-Encoding");
                let mut plain = Vec::new();
                let mut decoder = flate2::read::GzDecoder::new(bytes.as_ref());
                decoder.read_to_end(&mut plain).expect("gzip");
                assert_eq!(plain.len(), size);
            } else {
                assert_eq!(bytes.len(), size);
            }
        };
        check("/api/v1/pods", THRESHOLD, false);
        check("/api/v1/pods", THRESHOLD + 1, true);
        check("/apis/apps/v1/deployments", THRESHOLD + 1, true);
        check("/apis/apps/v1", THRESHOLD + 1, true);
        check("/apis", THRESHOLD + 1, false);
        check("/openapi/v2", THRESHOLD + 1, true);
        check("/openapi/v3/api/v1", THRESHOLD + 1, false);
        check("/version", THRESHOLD + 1, false);
    }
}
