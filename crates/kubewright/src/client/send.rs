//! From a request to its answer: deadline, retries, and the kind of fault.
//!
//! Every request of the runtime's client goes through here. The engine's `retry` decides whether it is sent again;
//! nothing below may do so as well ([`connect`] makes a client that does not). Invariants: a request ends by its
//! deadline, in any state of the connection, reading the answer included; a write is sent twice only when the first
//! cannot have been carried out.
//!
//! Not here: lists and watches of informers, whose faults their reflector judges.

use std::io;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue, USER_AGENT};
use http_body_util::BodyExt;
use kube::api::ValidationDirective;
use kube::client::Body;
use kube::core::Status;
use kubewright_engine::retry::{Effect, Fault, again};
use tokio::time::{Instant, timeout_at};
use tracing::Span;

use super::warnings::LoggedWarnings;
use crate::clock::Entropy;
use crate::error::{Error, Result};
use crate::fault::fault_of;
use crate::metrics::Metrics;
use crate::trace;

/// The name of the runtime in audit logs.
pub(crate) const AGENT: &str = concat!("kubewright/", env!("CARGO_PKG_VERSION"));

/// How long a request of the client may take, retries included: as long as the API server itself works on one
/// (`--request-timeout`).
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// Makes the client that a manager expects: kube's own retries are off, because the runtime retries by itself, with
/// deadlines, and never sends a POST a second time that may have been carried out. [`crate::run()`] uses it. Requests
/// name kubewright as their `User-Agent`, unless the configuration has a header of this name.
///
/// # Errors
/// [`Error::Api`](crate::Error::Api) when the configuration holds certificates or an authentication that cannot be
/// used.
///
/// ```no_run
/// # async fn client() -> kubewright::Result<kubewright::kube::Client> {
/// let config = kubewright::kube::Config::infer().await.map_err(kubewright::kube::Error::InferConfig)?;
/// kubewright::connect(config)
/// # }
/// ```
pub fn connect(mut config: kube::Config) -> Result<kube::Client> {
    config.default_retry = false;
    name_agent(&mut config.headers);
    Ok(kube::Client::try_from(config)?)
}

fn name_agent(headers: &mut Vec<(HeaderName, HeaderValue)>) {
    if !headers.iter().any(|(name, _)| *name == USER_AGENT) {
        headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    }
}

/// A failed attempt.
struct Failed {
    error: kube::Error,
    fault: Fault,
}

/// How requests of one client are sent.
pub(super) struct Sending<'a> {
    pub(super) kube: &'a kube::Client,
    pub(super) metrics: &'a Metrics,
    pub(super) warned: &'a LoggedWarnings,
    pub(super) entropy: &'a Entropy,
    pub(super) effect: Effect,
    pub(super) deadline: Duration,
    /// Is told how the request ends.
    pub(super) span: &'a Span,
}

impl Sending<'_> {
    /// Sends a request until it is answered, until trying again does not help, or until `refuse`, which is asked right
    /// before each attempt, says why it is not sent any more; the text of the answer.
    pub(super) async fn exchange(
        &self,
        request: http::Request<Vec<u8>>,
        refuse: impl Fn() -> Option<Error>,
    ) -> Result<String, kube::Error> {
        let began = Instant::now();
        let mut attempts = 0;
        let answer = self.attempt(request, refuse, began, &mut attempts).await;
        trace::answered(self.span, attempts, || began.elapsed());
        answer
    }

    async fn attempt(
        &self,
        request: http::Request<Vec<u8>>,
        refuse: impl Fn() -> Option<Error>,
        began: Instant,
        attempts: &mut u32,
    ) -> Result<String, kube::Error> {
        let ends = began + self.deadline;
        let (head, body) = request.into_parts();
        loop {
            if let Some(refused) = refuse() {
                // `Error::from_api` takes it out again.
                return Err(kube::Error::Service(Box::new(refused)));
            }
            *attempts += 1;
            let request = http::Request::from_parts(head.clone(), Body::from(body.clone()));
            let failed = match timeout_at(ends, self.once(request, head.uri.path())).await {
                Ok(Ok(text)) => return Ok(text),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    self.metrics.requested(&head.method, None);
                    return Err(late(self.deadline));
                }
            };
            let left = ends.duration_since(Instant::now());
            let Some(wait) = again(self.effect, failed.fault, *attempts, left, self.entropy.draw()) else {
                return Err(failed.error);
            };
            let (path, attempt) = (head.uri.path(), *attempts);
            tracing::debug!(path, attempt, ?wait, error = %failed.error, "a request failed; it is sent again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn once(&self, request: http::Request<Body>, path: &str) -> Result<String, Failed> {
        let method = request.method().clone();
        let failed = |error| Failed {
            fault: fault_of(&error),
            error,
        };
        let sent = self.kube.send(request).await;
        let code = sent.as_ref().ok().map(|answer| answer.status().as_u16());
        self.metrics.requested(&method, code);
        if let Some(code) = code {
            self.span.record("status", code);
        }
        let answer = sent.map_err(failed)?;
        let status = answer.status();
        self.warned.note(answer.headers(), path);
        let retry_after = answer.headers().get(http::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        if status.is_success() {
            return String::from_utf8(body.into()).map_err(|error| failed(kube::Error::FromUtf8(error)));
        }
        let refusal = refusal(status.as_u16(), &body);
        let answered = refusal
            .details
            .as_ref()
            .map(|details| u64::from(details.retry_after_seconds));
        let fault = Fault::Status {
            code: status.as_u16(),
            retry_after: retry_after
                .or(answered)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
        };
        Err(Failed {
            error: kube::Error::Api(refusal.boxed()),
            fault,
        })
    }
}

pub(super) fn late(deadline: Duration) -> kube::Error {
    let message = format!("the API server did not answer within {deadline:?}");
    kube::Error::Service(io::Error::new(io::ErrorKind::TimedOut, message).into())
}

/// Says what becomes of fields that the server does not know, in a request that has any.
pub(super) fn validate_fields(request: &mut http::Request<Vec<u8>>, directive: &ValidationDirective) {
    let has_fields = matches!(
        *request.method(),
        http::Method::POST | http::Method::PUT | http::Method::PATCH
    );
    if !has_fields {
        return;
    }
    add_parameter(request, &format!("fieldValidation={}", directive.as_str()));
}

pub(super) fn add_parameter<B>(request: &mut http::Request<B>, parameter: &str) {
    let there = request.uri();
    let joint = match there.query() {
        None => "?",
        Some("") => "",
        Some(_) => "&",
    };
    // What was an address is one with a further parameter.
    if let Ok(more) = format!("{there}{joint}{parameter}").parse() {
        *request.uri_mut() = more;
    }
}

/// The server's status, or a status made of the answer of a proxy between it and us.
fn refusal(code: u16, body: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.reason.is_empty() || !status.message.is_empty() => Status {
            code: if status.code == 0 { code } else { status.code },
            ..status
        },
        _ => {
            let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            Status::failure(&text, "Failed to parse error data").with_code(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_tell_what_was_sent_from_what_was_not() {
        let io = |kind: io::ErrorKind| kube::Error::Service(io::Error::from(kind).into());
        let check = |error: kube::Error, fault: Fault| assert_eq!(fault_of(&error), fault, "{error:?}");
        check(io(io::ErrorKind::ConnectionRefused), Fault::NotSent);
        check(io(io::ErrorKind::ConnectionReset), Fault::Lost);
        check(late(REQUEST_DEADLINE), Fault::Lost);
    }

    #[test]
    fn a_proxy_without_a_status_is_quoted() {
        let status = refusal(502, b"<html>Bad Gateway</html>");
        assert_eq!(
            (status.code, status.message.as_str()),
            (502, "<html>Bad Gateway</html>")
        );
        let answered = refusal(
            503,
            br#"{"kind":"Status","reason":"ServiceUnavailable","message":"soon"}"#,
        );
        assert_eq!((answered.code, answered.message.as_str()), (503, "soon"));
    }

    #[test]
    fn requests_name_the_runtime_unless_they_name_somebody() {
        let mut headers = Vec::new();
        name_agent(&mut headers);
        name_agent(&mut headers);
        assert_eq!(headers, [(USER_AGENT, HeaderValue::from_static(AGENT))]);
        let own = vec![(USER_AGENT, HeaderValue::from_static("shop"))];
        let mut headers = own.clone();
        name_agent(&mut headers);
        assert_eq!(headers, own);
    }
}
