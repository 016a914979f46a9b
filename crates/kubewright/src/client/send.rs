//! From a request to its answer: deadline, retries, and what kind of fault it was.
//!
//! Every request of the runtime's client goes through here. The engine's `retry` decides whether it is sent again; nothing below may do so
//! as well ([`connect`] makes a client that does not). Invariants: a request ends by its deadline, whatever the connection does, reading the
//! answer included; a write is sent twice only when the first cannot have been carried out.
//!
//! Not here: lists and watches of informers, whose faults their reflector judges.

use std::io;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use kubewright_engine::retry::{Effect, Fault, again};
use tokio::time::{Instant, timeout_at};

use crate::cache::entropy;
use crate::error::Result;
use crate::fault::fault_of;
use crate::metrics::Metrics;

/// How long a request of the client may take, retries included: as long as the API server itself works on one (`--request-timeout`).
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// Makes the client that a manager expects: kube's own retries are off, because the runtime retries by itself, with deadlines, and never
/// sends a POST a second time that may have been carried out. [`crate::run()`] uses it.
///
/// # Errors
/// [`Error::Api`](crate::Error::Api) when the configuration holds certificates or an authentication that cannot be used.
///
/// ```no_run
/// # async fn client() -> kubewright::Result<kubewright::kube::Client> {
/// let config = kubewright::kube::Config::infer().await.map_err(kubewright::kube::Error::InferConfig)?;
/// kubewright::connect(config)
/// # }
/// ```
pub fn connect(mut config: kube::Config) -> Result<kube::Client> {
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// A failed attempt.
struct Failed {
    error: kube::Error,
    fault: Fault,
}

/// Sends a request until it is answered, until trying again does not help, or until it may not be sent again; the text of the answer.
pub(super) async fn exchange(
    kube: &kube::Client,
    metrics: &Metrics,
    request: http::Request<Vec<u8>>,
    effect: Effect,
    deadline: Duration,
    may_repeat: impl Fn() -> bool,
) -> Result<String, kube::Error> {
    let ends = Instant::now() + deadline;
    let (head, body) = request.into_parts();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let request = http::Request::from_parts(head.clone(), Body::from(body.clone()));
        let failed = match timeout_at(ends, once(kube, metrics, request)).await {
            Ok(Ok(text)) => return Ok(text),
            Ok(Err(failed)) => failed,
            Err(_) => {
                metrics.requested(&head.method, None);
                return Err(late(deadline));
            }
        };
        let left = ends.duration_since(Instant::now());
        let Some(wait) = again(effect, failed.fault, attempt, left, entropy()) else {
            return Err(failed.error);
        };
        tracing::debug!(path = head.uri.path(), attempt, ?wait, error = %failed.error, "a request failed; it is sent again");
        tokio::time::sleep(wait).await;
        if !may_repeat() {
            return Err(failed.error);
        }
    }
}

fn late(deadline: Duration) -> kube::Error {
    let message = format!("the API server did not answer within {deadline:?}");
    kube::Error::Service(io::Error::new(io::ErrorKind::TimedOut, message).into())
}

async fn once(kube: &kube::Client, metrics: &Metrics, request: http::Request<Body>) -> Result<String, Failed> {
    let method = request.method().clone();
    let failed = |error| Failed {
        fault: fault_of(&error),
        error,
    };
    let sent = kube.send(request).await;
    let code = sent.as_ref().ok().map(|answer| answer.status().as_u16());
    metrics.requested(&method, code);
    let answer = sent.map_err(failed)?;
    let status = answer.status();
    let retry_after = answer.headers().get(http::header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
    if status.is_success() {
        return String::from_utf8(body.into()).map_err(|error| failed(kube::Error::FromUtf8(error)));
    }
    let refusal = refusal(status.as_u16(), &body);
    let told = refusal
        .details
        .as_ref()
        .map(|details| u64::from(details.retry_after_seconds));
    let fault = Fault::Status {
        code: status.as_u16(),
        retry_after: retry_after
            .or(told)
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
    };
    Err(Failed {
        error: kube::Error::Api(refusal.boxed()),
        fault,
    })
}

/// What the server says, or a status made of what stands between it and us.
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
        let said = refusal(
            503,
            br#"{"kind":"Status","reason":"ServiceUnavailable","message":"soon"}"#,
        );
        assert_eq!((said.code, said.message.as_str()), (503, "soon"));
    }
}
