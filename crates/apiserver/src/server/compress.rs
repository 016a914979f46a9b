//! Large answers in gzip, for clients that ask for it.
//!
//! As kube-apiserver does it: objects and lists above a size; from 1.37 on watches that begin with a list, whose every
//! piece is gzip by itself; the OpenAPI v2 document, which is large always; nothing else.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, UPGRADE, VARY};
use http::{HeaderMap, HeaderValue, Method, Response};

use super::head::Target;
use super::route::Page;
use crate::Body;
use crate::discovery::DiscoveryPath;
use crate::model::Minor;
use crate::wire::query::Query;

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
    minor: Minor,
) -> Response<Body> {
    if target.is_some_and(|target| is_wanted(&head.headers, target, &answer)) {
        response(&mut answer);
    } else if let Body::Watch(watch) = answer.body_mut()
        && minor >= Minor::V37
        && begins_with_list(head)
        && is_asked(&head.headers, false)
    {
        watch.compressed(|lines| Bytes::from(gzip([lines])));
        say_gzip(&mut answer);
    }
    if head.method == Method::HEAD {
        *answer.body_mut() = Body::Full(Bytes::new());
    }
    answer
}

/// Whether a request watches from a list on, over HTTP (`isListWatchRequest`).
fn begins_with_list(head: &http::request::Parts) -> bool {
    let query = Query::parse(head.uri.query().unwrap_or_default());
    query.is_ok_and(|query| query.optional_flag("sendInitialEvents") == Some(true) && query.flag("allowWatchBookmarks"))
        && !head.headers.contains_key(UPGRADE)
}

/// The pieces as one member of a gzip file, of which there may be many in a row.
fn gzip(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in pieces {
        encoder.write_all(piece.as_ref()).expect("memory can be written to");
    }
    encoder.finish().expect("memory can be written to")
}

/// Compresses a body.
fn response(response: &mut Response<Body>) {
    let plain = std::mem::replace(response.body_mut(), Body::Full(Bytes::new()));
    *response.body_mut() = Body::Full(Bytes::from(gzip(plain.pieces())));
    say_gzip(response);
}

fn say_gzip(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    if !headers.get_all(VARY).iter().any(|vary| vary == VARY_BY) {
        headers.append(VARY, VARY_BY);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use flate2::read::MultiGzDecoder;
    use futures::{FutureExt as _, StreamExt as _};
    use http::Request;

    use super::super::route::{self, Path};
    use super::*;
    use crate::UserInfo;
    use crate::model::testing::{FakeEnv, Shared};
    use crate::server::{ApiServer, Config};

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
    fn watches_that_begin_with_a_list_are_compressed() {
        let check = |minor: Minor, query: &str, accepted: &str, upgrade: bool, want: bool| {
            let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
            let get = format!("/api/v1/namespaces?watch=true&{query}");
            let mut request = Request::get(get).header(ACCEPT_ENCODING, accepted);
            if upgrade {
                request = request.header(UPGRADE, "websocket");
            }
            let request = request.body(Bytes::new()).expect("a request");
            let answer = api.handle(request.clone(), UserInfo::admin()).now_or_never();
            let plain = answer.expect("nothing waits here");
            let (head, body) = finished(&request.into_parts().0, None, plain, minor).into_parts();
            let is_said = head
                .headers
                .get(CONTENT_ENCODING)
                .is_some_and(|encoding| encoding == "gzip");
            assert_eq!(is_said, want, "{minor} {query} {accepted}");
            let Body::Watch(mut watch) = body else {
                panic!("a watch was asked for")
            };
            let mut sent = Vec::new();
            while let Some(Some(piece)) = watch.next().now_or_never() {
                sent.extend_from_slice(&piece);
            }
            let mut text = String::new();
            match want {
                true => MultiGzDecoder::new(&*sent).read_to_string(&mut text).expect("gzip"),
                false => (&*sent).read_to_string(&mut text).expect("text"),
            };
            assert!(text.contains("\"name\":\"default\""), "{text}");
            assert!(text.ends_with("}\n"), "{text}");
        };
        let from_list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        check(Minor::V37, from_list, "gzip", false, true);
        check(Minor::V37, from_list, "identity", false, false);
        check(Minor::V37, from_list, "gzip", true, false);
        check(Minor::V37, "allowWatchBookmarks=true", "gzip", false, false);
        check(Minor::V36, from_list, "gzip", false, false);
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
