//! Requests of group versions that another server serves (kube-aggregator's `proxyHandler`).
//!
//! An APIService that names a Service decides it, also where this server has kinds of that group version. What this
//! server must decide itself comes before: who asks, whether he may, the audit log, the share of the principal. The
//! other server believes the headers that say who asks, so they are made here and nowhere else.
//!
//! Invariants:
//! - what is sent is what was authorized: path and query are written anew from what was read, and a path that another
//!   server may read differently (`..`, an empty segment) is refused;
//! - no credential of the client leaves this server, and nothing that a client says of who it is (`X-Remote-*`);
//! - a value that does not survive as a header is refused, never shortened;
//! - no redirect reaches the client: it would lead a trusting client, with its credentials, to wherever another server
//!   likes (`RejectForwardingRedirects`).
//!
//! Not here: whether the other server is available (`probes`), connections ([`crate::forward`]).

pub(crate) mod probes;
mod resources;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use kubewright_schema::budget;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::head::{Admitted, Target};
use super::route::Page;
use super::upkeep::api_services::Remote;
use super::{Inner, noted};
use crate::Body;
use crate::audit::PeerAddress;
use crate::authentication::is_socket_token;
use crate::discovery::DiscoveryPath;
use crate::forward::{ForwardError, ForwardedBody};
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::wire::query::{Query, decode};
use crate::wire::websocket::words;

/// How many requests may be under way to other servers, those of all principals together: each has a connection.
pub(super) const UNDER_WAY: usize = 2000;

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Headers of one connection, which say nothing behind it; and those that this server answers for.
const OWN: [HeaderName; 13] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
];

/// What a client may not say of itself, in any spelling that a server reads as one of these: some read `_` as `-`.
const FORBIDDEN: [&str; 3] = ["x-remote-", "x-forwarded-", "impersonate-"];

/// Characters of a path that no server reads as anything else.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Target {
    /// The group version that it belongs to, if that may be another server's.
    pub(super) fn version(&self) -> Option<(&str, &str)> {
        let (group, version) = match self {
            Target::Resource(path, _) => (path.group.as_str(), path.version.as_str()),
            Target::Page(Page::Discovery(DiscoveryPath::Version(group, version))) => (group.as_str(), version.as_str()),
            Target::Page(Page::OpenApiV3(document)) => document.strip_prefix("apis/")?.split_once('/')?,
            Target::Page(_) => return None,
        };
        (!group.is_empty() && !version.contains('/')).then_some((group, version))
    }
}

impl Inner {
    /// The answer to a request of a group version that another server serves.
    pub(super) async fn forward(
        &self,
        remote: &Remote,
        admitted: &Admitted,
        head: &Parts,
        body: &Bytes,
    ) -> Response<Body> {
        let query = &admitted.query;
        let Some(forwarder) = self.forwarder.as_ref().filter(|_| remote.is_available) else {
            return self.unavailable_text(query);
        };
        let share = match self.forwarded.take(&admitted.principal, 1) {
            Ok(share) => share,
            Err(full) => return self.too_many_forwarded(admitted, full.retry_after_seconds),
        };
        let request = match request(head, query, &admitted.user, body) {
            Ok(request) => request,
            Err(status) => {
                let status = noted(admitted.audit.as_deref(), &status);
                return self.fail_as_asked(&head.headers, query, status);
            }
        };
        budget::call_out();
        let answer = forwarder.forward(remote.forward(request)).await;
        let (mut parts, pieces) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(ForwardError::Unresolved(why)) => {
                tracing::debug!(why, service = %remote.shown(), "a Service does not lead to an API server");
                return self.unavailable_text(query);
            }
            // `proxy.Transport` of apimachinery.
            Err(ForwardError::Failed(why)) => {
                return self.text(503, format!("error trying to reach service: {why}"), query);
            }
        };
        if parts.status.is_redirection() && parts.headers.contains_key(header::LOCATION) {
            let why = "the backend attempted to redirect this request, which is not permitted";
            return self.text(502, why, query);
        }
        let is_switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        parts.headers = answered(&parts.headers, is_switched);
        let deadline = admitted.time_limit().filter(|_| !is_switched);
        let deadline = deadline.map(|limit| self.env.sleep(limit));
        Response::from_parts(parts, Body::Forwarded(ForwardedBody::new(pieces, deadline, share)))
    }

    fn too_many_forwarded(&self, admitted: &Admitted, seconds: u32) -> Response<Body> {
        let why = "too many requests to other API servers are under way, please try again later";
        let status = Status::failure(429, "TooManyRequests", why);
        let mut refusal = self.fail(noted(admitted.audit.as_deref(), &status));
        refusal
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        refusal
    }
}

/// The request that another server gets for one of a client's.
fn request(head: &Parts, query: &Query, user: &UserInfo, body: &Bytes) -> Result<Request<Bytes>, Status> {
    let path = path(head.uri.path())?;
    let query = query.encoded(PARAMETER);
    let uri = match query.is_empty() {
        true => path.clone(),
        false => format!("{path}?{query}"),
    };
    let mut headers = passed_on(&head.headers);
    identify(&mut headers, user)?;
    // A client of HTTP/2 does not switch protocols.
    if head.version == Version::HTTP_11
        && words(&head.headers, header::CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
        && let Some(protocol) = head.headers.get(header::UPGRADE)
    {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    if let Some(PeerAddress(address)) = head.extensions.get() {
        // Those before it say so; servers that ask for the last one get the truth.
        let before = words(&head.headers, FORWARDED_FOR).map(str::to_owned);
        let all: Vec<String> = before.chain([address.to_string()]).collect();
        headers.extend(
            HeaderValue::try_from(all.join(", "))
                .ok()
                .map(|all| (FORWARDED_FOR, all)),
        );
    }
    headers.extend(HeaderValue::try_from(path).ok().map(|path| (FORWARDED_URI, path)));
    made(head.method.clone(), &uri, headers, body.clone())
}

fn made(method: Method, uri: &str, headers: HeaderMap, body: Bytes) -> Result<Request<Bytes>, Status> {
    let uri: http::Uri = uri
        .parse()
        .map_err(|error| Status::bad_request(format!("the path {uri:?} cannot be passed on: {error}")))?;
    let mut request = Request::new(body);
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok(request)
}

/// The path as it was read, written so that every server reads the same.
fn path(path: &str) -> Result<String, Status> {
    let decoded = decode(path, false);
    let inside = decoded.strip_prefix('/').unwrap_or(&decoded);
    let segments: Vec<&str> = inside.strip_suffix('/').unwrap_or(inside).split('/').collect();
    if let Some(wrong) = segments.iter().find(|segment| matches!(**segment, "" | "." | "..")) {
        return Err(Status::bad_request(format!(
            "the path {decoded:?} has the segment {wrong:?}, which servers read differently; leave it out"
        )));
    }
    let mut text = String::with_capacity(decoded.len());
    for segment in segments {
        text.push('/');
        text.extend(utf8_percent_encode(segment, SEGMENT));
    }
    if inside.ends_with('/') {
        text.push('/');
    }
    Ok(text)
}

/// The headers of a request that are passed on.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<&str> = words(headers, header::CONNECTION).collect();
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let spelled = name.as_str().replace('_', "-");
        let is_own = OWN.contains(name) || named.iter().any(|word| word.eq_ignore_ascii_case(name.as_str()));
        if !is_own && !FORBIDDEN.iter().any(|prefix| spelled.starts_with(prefix)) {
            passed.append(name, value.clone());
        }
    }
    without_token(&mut passed);
    passed
}

/// A browser's token is a protocol that it offers.
fn without_token(headers: &mut HeaderMap) {
    const OFFERED: HeaderName = header::SEC_WEBSOCKET_PROTOCOL;
    if words(headers, OFFERED).any(is_socket_token) {
        let others: Vec<&str> = words(headers, OFFERED).filter(|word| !is_socket_token(word)).collect();
        let others = HeaderValue::try_from(others.join(", "));
        headers.remove(OFFERED);
        headers.extend(others.ok().map(|others| (OFFERED, others)));
    }
}

/// Says who asks (`transport.SetAuthProxyHeaders`).
pub(super) fn identify(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), Status> {
    let value = |what: &str, text: &str| {
        // The end of a header is not where spaces are kept.
        let value = HeaderValue::from_bytes(text.as_bytes()).ok();
        value.filter(|_| text.trim() == text).ok_or_else(|| {
            Status::bad_request(format!(
                "the {what} {text:?} cannot be told to the server behind this one: it has control characters or outer spaces"
            ))
        })
    };
    headers.insert(REMOTE_USER, value("user name", &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(REMOTE_UID, value("uid", &user.uid)?);
    }
    for group in &user.groups {
        headers.append(REMOTE_GROUP, value("group", group)?);
    }
    for (key, values) in &user.extra {
        let name = extra_header(key);
        let name = HeaderName::try_from(&name)
            .map_err(|error| Status::bad_request(format!("the extra {key:?} cannot be told as a header: {error}")))?;
        for text in values {
            headers.append(&name, value("extra value", text)?);
        }
    }
    Ok(())
}

/// The header of an extra (`headerKeyEscape`).
fn extra_header(key: &str) -> String {
    let mut name = REMOTE_EXTRA.to_owned();
    for byte in key.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                name.push(char::from(byte));
            }
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// The headers of an answer that are passed on; a switch of protocols names the protocol.
fn answered(headers: &HeaderMap, is_switched: bool) -> HeaderMap {
    let named: Vec<&str> = words(headers, header::CONNECTION).collect();
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let is_own = OWN.contains(name) && *name != header::CONTENT_LENGTH;
        if !is_own && !named.iter().any(|word| word.eq_ignore_ascii_case(name.as_str())) {
            passed.append(name, value.clone());
        }
    }
    if is_switched {
        passed.remove(header::CONTENT_LENGTH);
        // The listener writes one of its own.
        passed.remove(header::DATE);
        passed.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        passed.extend(
            headers
                .get(header::UPGRADE)
                .map(|protocol| (header::UPGRADE, protocol.clone())),
        );
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_path_is_read_in_one_way() {
        let check = |given: &str, expected: Result<&str, &str>| {
            let found = path(given).map_err(|status| status.message);
            match (&found, expected) {
                (Err(found), Err(part)) => assert!(found.contains(part), "{given}: {found}"),
                _ => assert_eq!(found.as_deref().ok(), expected.ok(), "{given}"),
            }
        };
        check("/apis/m.io/v1/namespaces/a/ws", Ok("/apis/m.io/v1/namespaces/a/ws"));
        check("/apis/m.io/v1/pods/*/load", Ok("/apis/m.io/v1/pods/*/load"));
        check("/apis/m.io/v1/", Ok("/apis/m.io/v1/"));
        // What was read as a slash is sent as one.
        check("/apis/m.io/v1/ws%2Fa", Ok("/apis/m.io/v1/ws/a"));
        check("/apis/m.io/v1/a%252Fb", Ok("/apis/m.io/v1/a%252Fb"));
        check("/apis/m.io/v1/a;b%5Cc%3Fd%00", Ok("/apis/m.io/v1/a%3Bb%5Cc%3Fd%00"));
        check("/apis/m.io/v1/namespaces/a/../b/ws", Err("segment \"..\""));
        check("/apis/m.io/v1/namespaces/a/%2E%2e/b/ws", Err("segment \"..\""));
        check("/apis/m.io/v1/namespaces/a/..%2Fb/ws", Err("segment \"..\""));
        check("/apis/m.io/v1/./ws", Err("segment \".\""));
        check("/apis/m.io/v1//ws", Err("segment \"\""));
    }

    #[test]
    fn what_a_client_says_of_itself_goes() {
        let user = UserInfo {
            uid: "u-1".to_owned(),
            extra: [("a.io/b%".to_owned(), vec!["1".to_owned(), "2".to_owned()])].into(),
            ..UserInfo::authenticated("jane", ["dev"])
        };
        let head = head(
            "GET",
            "/apis/m.io/v1/ws?b=2&watch&a=x%20y&c=1;d",
            &[
                ("accept", "application/json"),
                ("authorization", "Bearer secret"),
                ("X-Remote-User", "admin"),
                ("X_Remote_User", "admin"),
                ("x-remote-group", "system:masters"),
                ("X-Remote-Extra-Scopes", "all"),
                ("X_Remote-Extra_Scopes", "all"),
                ("X-Forwarded-Host", "evil"),
                ("Impersonate-User", "admin"),
                ("Connection", "X-Remote-User, x-mine, keep-alive"),
                ("X-Mine", "1"),
                ("Expect", "100-continue"),
                (
                    "Sec-WebSocket-Protocol",
                    "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.amFuZQ",
                ),
            ],
        );
        let query = Query::parse(head.uri.query().unwrap_or("")).expect("a query");
        let made = request(&head, &query, &user, &Bytes::new()).expect("it can be passed on");
        assert_eq!(made.uri(), "/apis/m.io/v1/ws?a=x%20y&b=2&watch=");
        let mut found: Vec<(String, String)> = made
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()))
            .collect();
        found.sort();
        let expected = [
            ("accept", "application/json"),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ("x-forwarded-uri", "/apis/m.io/v1/ws"),
            ("x-remote-extra-a.io%2fb%25", "1"),
            ("x-remote-extra-a.io%2fb%25", "2"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-uid", "u-1"),
            ("x-remote-user", "jane"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_name_that_is_another_one_as_a_header_is_refused() {
        let check = |user: &str, group: &str, is_told: bool| {
            let user = UserInfo::authenticated(user, [group]);
            assert_eq!(identify(&mut HeaderMap::new(), &user).is_ok(), is_told, "{user:?}");
        };
        check("jane", "dev", true);
        check("jöhn", "dev", true);
        check("admin ", "dev", false);
        check("\tadmin", "dev", false);
        check("a\nX-Remote-Group: system:masters", "dev", false);
        check("jane", "system:masters ", false);
    }

    #[test]
    fn protocols_are_switched_over_http_1() {
        let check = |version: Version, connection: &str, expected: Option<&str>| {
            let mut head = head(
                "GET",
                "/apis/m.io/v1/ws",
                &[("Connection", connection), ("Upgrade", "websocket")],
            );
            head.version = version;
            let made = request(&head, &Query::default(), &UserInfo::admin(), &Bytes::new()).expect("a request");
            let found = made.headers().get("upgrade").map(|value| value.to_str().expect("text"));
            assert_eq!(found, expected, "{version:?} {connection}");
        };
        check(Version::HTTP_11, "keep-alive, Upgrade", Some("websocket"));
        check(Version::HTTP_11, "keep-alive", None);
        check(Version::HTTP_2, "Upgrade", None);
    }
}
