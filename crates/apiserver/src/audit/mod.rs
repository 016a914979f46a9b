//! The audit log: each request with its user, time and outcome (`audit.k8s.io/v1`).
//!
//! A [`Policy`] says how much is written about a request. An [`Entry`] accompanies the request from the moment its user
//! is known (`WithAudit` of apiserver): it collects the object that was sent, annotations of admission, and the answer,
//! and gives an event to the [`AuditSink`] at each stage. `event` is the event as it is written.
//!
//! Invariants:
//! - a request that the policy does not look at costs one evaluation of the policy and nothing else;
//! - `RequestReceived` is written before anything is done, `ResponseComplete` before the answer is sent, and once only;
//! - a request that its client gave up is completed too: when the last holder of its entry drops it.
//!
//! Not here: where events go (files, rotation: the shell), and the batching and webhook backends of upstream: each
//! event is a batch.

mod entry;
mod event;
mod policy;
#[cfg(test)]
pub(crate) mod recorded_tests;

use std::sync::Arc;

pub use entry::Entry;
pub use policy::{Level, Policy, PolicyError};

/// Where events go.
pub trait AuditSink: Send + Sync + 'static {
    /// Writes one event: a line, with its newline. Called on the thread that answers, one call after another for each
    /// request.
    ///
    /// # Errors
    /// Why it could not be written, in words.
    fn write(&self, line: &str) -> Result<(), String>;
}

/// The parts of an API server that keeps an audit log.
#[derive(Clone)]
pub struct AuditLog {
    /// How much is written about which requests (`--audit-policy-file`).
    pub policy: Arc<Policy>,
    /// Where it is written (`--audit-log-path`).
    pub sink: Arc<dyn AuditSink>,
    /// Whether a request is refused that cannot be entered (`--audit-log-mode=blocking-strict`).
    pub strict: bool,
    /// How events are written (`--audit-log-format`).
    pub format: Format,
    /// The size of an event as JSON, in bytes, above which it is written without the objects of the request and the
    /// answer, and not at all when that does not help (`--audit-log-truncate-max-event-size`).
    pub max_event_size: Option<usize>,
}

/// The form of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `audit.k8s.io/v1` Event, in one line.
    #[default]
    Json,
    /// A line of text with a part of the event (`EventString`).
    Legacy,
}

/// The address that a request came from. The shell puts it into the extensions of the request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub std::net::IpAddr);

/// JSON as Go's encoder writes it into an annotation: safe to stand in HTML.
pub(crate) fn in_go(value: &impl serde::Serialize) -> String {
    String::from_utf8(crate::json::text(value)).unwrap_or_default()
}

/// The header that names a request in the log; clients may send it, and are answered with it.
pub const AUDIT_ID: http::HeaderName = http::HeaderName::from_static("audit-id");
