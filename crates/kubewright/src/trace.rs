//! Spans that show where time is spent: of a reconcile, or of a webhook's call, and of each request within it.
//!
//! | span | target | fields |
//! |---|---|---|
//! | `reconcile` | the control loop's, at every level | `controller`, `object`, `reconcile_id`; if [`TARGET`] is enabled: `cause`, `waited` |
//! | `request` | [`TARGET`], level debug | `verb`, `group`, `resource`, `namespace`, `name`, `subresource`; at its end `status`, `attempts`, `latency` |
//! | `webhook` | [`TARGET`], level debug | `path`; `uid`, `operation`, `object`; at its end `code` |
//!
//! Invariant: nothing is computed for a span that no subscriber enables; it costs one load of an atomic.
//!
//! Not here: logging, and the export of spans.

use std::fmt;
use std::time::Duration;

use http::Method;
use tracing::Span;
use tracing::field::Empty;

use crate::cause::{Cause, CauseKind};

/// The target of spans that only tracing takes.
pub(crate) const TARGET: &str = "kubewright::trace";

/// Whether a subscriber wants more than log lines need.
pub(crate) fn is_wanted() -> bool {
    tracing::span_enabled!(target: TARGET, tracing::Level::DEBUG)
}

/// The span of a request to the API server.
pub(crate) fn request(method: &Method, path: &str) -> Span {
    let span = tracing::debug_span!(
        target: TARGET,
        "request",
        verb = Empty,
        group = Empty,
        resource = Empty,
        namespace = Empty,
        name = Empty,
        subresource = Empty,
        status = Empty,
        attempts = Empty,
        latency = Empty,
    );
    if !span.is_disabled() {
        let about = RequestInfo::read(method, path);
        span.record("verb", about.verb);
        let parts = [
            ("group", about.group),
            ("resource", about.resource),
            ("namespace", about.namespace),
            ("name", about.name),
            ("subresource", about.subresource),
        ];
        for (field, value) in parts {
            if !value.is_empty() {
                span.record(field, value);
            }
        }
    }
    span
}

/// A request has ended.
pub(crate) fn answered(span: &Span, attempts: u32, latency: impl FnOnce() -> Duration) {
    if !span.is_disabled() {
        span.record("attempts", attempts);
        span.record("latency", tracing::field::debug(latency()));
    }
}

/// The span of a call by the API server.
pub(crate) fn webhook(path: &str) -> Span {
    tracing::debug_span!(target: TARGET, "webhook", path, uid = Empty, operation = Empty, object = Empty, code = Empty)
}

/// Completes the span of a reconcile, for a subscriber that wants more than log lines need.
pub(crate) fn caused(span: &Span, causes: &[Cause], waited: Duration) {
    if is_wanted() {
        span.record("cause", tracing::field::display(CauseSummary(causes)));
        span.record("waited", tracing::field::debug(waited));
    }
}

/// Causes without the fields that changed, which cost time to find.
struct CauseSummary<'a>(&'a [Cause]);

impl fmt::Display for CauseSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match (cause.kind(), cause.object()) {
                (CauseKind::Changed, Some(object)) => write!(f, "{object} changed")?,
                _ => write!(f, "{cause}")?,
            }
        }
        Ok(())
    }
}

/// The target of a request (`RequestInfoFactory.NewRequestInfo`).
#[derive(Debug, Default, PartialEq)]
struct RequestInfo<'a> {
    verb: &'static str,
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> RequestInfo<'a> {
    fn read(method: &Method, path: &'a str) -> RequestInfo<'a> {
        let mut parts = path.trim_matches('/').split('/');
        let mut about = RequestInfo::default();
        match parts.next() {
            Some("api") => {}
            Some("apis") => about.group = parts.next().unwrap_or_default(),
            _ => return about.with_verb(method),
        }
        let parts: Vec<&str> = parts.skip(1).collect();
        let parts = match parts[..] {
            ["namespaces", namespace, kind, ..] if !["status", "finalize"].contains(&kind) => {
                about.namespace = namespace;
                &parts[2..]
            }
            _ => &parts[..],
        };
        let at = |place: usize| parts.get(place).copied().unwrap_or_default();
        (about.resource, about.name, about.subresource) = (at(0), at(1), at(2));
        about.with_verb(method)
    }

    fn with_verb(self, method: &Method) -> RequestInfo<'a> {
        let one = !self.name.is_empty() || self.resource.is_empty();
        let verb = match (method.as_str(), one) {
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "other",
        };
        RequestInfo { verb, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_the_api_server_reads_them() {
        let check = |method: Method, path: &str, expected: [&str; 6]| {
            let about = RequestInfo::read(&method, path);
            let got = [
                about.verb,
                about.group,
                about.resource,
                about.namespace,
                about.name,
                about.subresource,
            ];
            assert_eq!(got, expected, "{method} {path}");
        };
        check(Method::GET, "/api/v1/pods", ["list", "", "pods", "", "", ""]);
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            ["get", "", "namespaces", "", "a", ""],
        );
        let finalize = ["update", "", "namespaces", "", "a", "finalize"];
        check(Method::PUT, "/api/v1/namespaces/a/finalize", finalize);
        let status = ["patch", "apps", "deployments", "a", "b", "status"];
        check(Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/b/status", status);
        let all = ["deletecollection", "", "pods", "a", "", ""];
        check(Method::DELETE, "/api/v1/namespaces/a/pods", all);
        check(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            ["create", "", "pods", "a", "", ""],
        );
        check(Method::GET, "/version", ["get", "", "", "", "", ""]);
        check(Method::GET, "", ["get", "", "", "", "", ""]);
    }
}
