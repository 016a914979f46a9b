//! Calls that the server makes: admission webhooks and conversion webhooks.
//!
//! A call is an effect: the core says what to send and where, the shell sends it (HTTPS, a function in the same process, or a test's
//! script) and says what came back. The core decides what an answer or a failure means.
//!
//! Not here: sockets, TLS, the meaning of the answer.

use std::time::Duration;

use bytes::Bytes;

use crate::env::BoxFuture;

/// Where a webhook is (`WebhookClientConfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A URL, as it stands in the configuration.
    Url(String),
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Path of the request, with its leading slash; may be empty.
        path: String,
        /// Port of the service; 443 when the configuration says nothing.
        port: u16,
    },
}

/// A request to a webhook: a POST of JSON.
#[derive(Clone, Debug)]
pub struct OutboundCall {
    /// Where to.
    pub to: Destination,
    /// PEM certificates to trust; empty means those of the machine.
    pub ca_bundle: Bytes,
    /// The JSON body.
    pub body: Bytes,
    /// The query of the request, such as `timeout=10s`; may be empty.
    pub query: String,
    /// When to give up. The shell ends the call then; [`OutboundError::Timeout`] is the answer.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct OutboundAnswer {
    /// The HTTP status.
    pub code: u16,
    /// The body, cut off at the limit of the shell (3 MiB).
    pub body: Bytes,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The time was up.
    #[error("context deadline exceeded")]
    Timeout,
    /// No connection, no trust, no such service, a broken answer: in the words that Go's client would use, as far as they are known.
    #[error("{0}")]
    Failed(String),
}

/// Sends the calls of a server.
pub trait Outbound: Send + Sync + 'static {
    /// Sends one call and waits for its answer.
    fn call(&self, call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>>;
}

/// For servers that call nobody: every call fails with words that say so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOutbound;

impl Outbound for NoOutbound {
    fn call(&self, _call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>> {
        Box::pin(std::future::ready(Err(OutboundError::Failed(
            "this server was made without a way to call webhooks".to_owned(),
        ))))
    }
}
