//! One request, whichever door it came through: read its body within bounds, let the API server answer, hand the answer on.
//!
//! Invariants:
//! - at most [`MAX_BODY`] bytes of a request body are held, and a body that stalls is given up;
//! - a panic in the server costs the request that caused it and nothing else;
//!
//! How the answer is sent is the matter of [`crate::response`].

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kubewright::Stop;
use kubewright_apiserver::authentication::Identity;
use kubewright_apiserver::{ApiServer, Body, MAX_BODY, first_broken_escape};

use crate::response::ResponseBody;

/// How much of a body that is too large is read and thrown away, so that the client gets to read the answer: many see nothing but
/// a broken connection or stream when we end it while they still send.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// And for how long.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The server with what is needed to answer its requests; cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) api: ApiServer,
    pub(crate) stop: Stop,
    /// How long a request body may take to arrive.
    pub(crate) body_timeout: Duration,
}

impl Front {
    /// Answers one request over a connection that belongs to `identity`. Never fails: whatever goes wrong is an answer.
    pub(crate) async fn answer<B>(&self, request: Request<B>, identity: &Identity) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        if let Some(escape) = first_broken_escape(parts.uri.path()) {
            return self.respond(bad_request(&format!(
                "the path of the request holds the invalid escape {escape:?}"
            )));
        }
        let found = match self.api.authenticate(identity, &parts.headers) {
            Ok(found) => found,
            Err(refusal) => return self.respond(*refusal),
        };
        let body = match self.read(&parts, body).await {
            Ok(body) => body,
            Err(refusal) => return self.respond(refusal),
        };
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let handled = AssertUnwindSafe(self.api.handle(Request::from_parts(parts, body), found.user.clone()))
            .catch_unwind()
            .await;
        let mut response = handled.unwrap_or_else(|_| {
            tracing::error!(%method, path, "the API server panicked over a request; this is a defect of kubewright");
            status(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "Internal error occurred: this request made the API server panic; its log says where",
            )
        });
        found.warn(&mut response);
        self.respond(response)
    }

    /// Turns an answer of the core into one that can be sent.
    pub(crate) fn respond(&self, response: Response<Body>) -> Response<ResponseBody> {
        response.map(|body| ResponseBody::new(body, &self.stop))
    }

    /// The whole body, or the answer to a request whose body cannot be had.
    async fn read<B>(&self, parts: &http::request::Parts, mut body: B) -> Result<Bytes, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let limit = u64::try_from(MAX_BODY).unwrap_or(u64::MAX);
        let announced_too_large = body.size_hint().lower() > limit;
        if !announced_too_large {
            match tokio::time::timeout(self.body_timeout, collect(&mut body)).await {
                Ok(Ok(Some(bytes))) => return Ok(bytes),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(broken_body(&error)),
                Err(_) => return Err(late_body(self.body_timeout)),
            }
        }
        // A client that asked whether it should send the body at all waits for our answer instead of sending.
        let waits = announced_too_large && parts.headers.contains_key(header::EXPECT);
        if !waits {
            drain(body).await;
        }
        Err(self.api.body_too_large())
    }
}

/// All of a body, or `None` when it is larger than [`MAX_BODY`].
async fn collect<B>(body: &mut B) -> Result<Option<Bytes>, B::Error>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > MAX_BODY {
            return Ok(None);
        }
        // Nearly every body arrives in one piece; it is not copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(Some(if rest.is_empty() { first } else { rest.freeze() }))
}

/// Reads on without keeping anything.
async fn drain<B>(mut body: B)
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DRAIN_BYTES {
                break;
            }
        }
    };
    // Whether it ended or not, the answer is the same; only the connection's fate differs.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

fn bad_request(message: &str) -> Response<Body> {
    status(StatusCode::BAD_REQUEST, "BadRequest", message)
}

fn broken_body(error: &dyn std::fmt::Display) -> Response<Body> {
    bad_request(&format!("the request body could not be read: {error}"))
}

fn late_body(timeout: Duration) -> Response<Body> {
    let message =
        format!("the request body did not arrive within {timeout:?}; send it at once, or over a faster connection");
    status(StatusCode::REQUEST_TIMEOUT, "Timeout", &message)
}

/// A `Status` failure, for what goes wrong before the API server sees the request.
pub(crate) fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(Body::Full(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests {
    use http_body::Frame;

    use super::*;

    /// What [`collect`] makes of a body that comes in pieces of these sizes.
    async fn check(sizes: &[usize], expected: Option<usize>) {
        let pieces = sizes
            .iter()
            .map(|size| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b'x'; *size]))));
        let mut body = http_body_util::StreamBody::new(futures::stream::iter(pieces));
        let Ok(collected) = collect(&mut body).await;
        assert_eq!(collected.as_ref().map(Bytes::len), expected, "{sizes:?}");
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        check(&[], Some(0)).await;
        check(&[7], Some(7)).await;
        check(&[0, 7, 0, 8], Some(15)).await;
        check(&[MAX_BODY], Some(MAX_BODY)).await;
        check(&[MAX_BODY, 1], None).await;
        check(&[1, MAX_BODY - 2, 1], Some(MAX_BODY)).await;
        check(&[MAX_BODY + 1], None).await;
    }
}
