//! Calls that the server makes: admission webhooks and conversion webhooks.
//!
//! A call is an effect: the core decides the request and its destination, the shell sends it (HTTPS, a function in the
//! same process, or a test's script) and reports the answer. The core decides the effect of an answer or a failure.
//!
//! An admission webhook in the same process is asked without text ([`Inside`]): what would be written on one side is
//! read on the other, which takes longer than most webhooks think.
//!
//! Here: the traits; in `client` how a webhook's configuration becomes a call and its HTTP answer a document. Not here:
//! sockets, TLS, the meaning of the document.

pub mod client;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubewright_schema::decode;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::Value;

use crate::Operation;
use crate::env::BoxFuture;
use crate::user::UserInfo;

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

impl Destination {
    /// The URL that requests go to, without a query, as Go's client writes it in errors: a service is
    /// `name.namespace.svc`.
    ///
    /// ```
    /// use kubewright_model::outbound::Destination;
    /// let service = Destination::Service { namespace: "n".into(), name: "s".into(), path: "/mutate/".into(), port: 443 };
    /// assert_eq!(service.url(), "https://s.n.svc:443/mutate");
    /// assert_eq!(Destination::Url("https://localhost:9443".into()).url(), "https://localhost:9443/");
    /// ```
    pub fn url(&self) -> String {
        let (base, path) = match self {
            Destination::Service {
                namespace,
                name,
                path,
                port,
            } => (format!("https://{name}.{namespace}.svc:{port}"), path.as_str()),
            Destination::Url(url) => {
                let after_scheme = url.find("://").map_or(0, |at| at + 3);
                let path = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
                (url[..path].to_owned(), &url[path..])
            }
        };
        let path = path.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
        format!("{base}/{}", path.collect::<Vec<_>>().join("/"))
    }
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

impl OutboundCall {
    /// The body as a document, for a webhook that is a function. It holds an object, and is as deep as one may be.
    ///
    /// # Errors
    /// When the body is not JSON, which is a defect of this server.
    pub fn document(&self) -> serde_json::Result<Value> {
        decode::stored(&self.body)
    }
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub struct OutboundAnswer {
    /// The HTTP status.
    pub code: u16,
    /// `Content-Type`, or empty.
    pub content_type: String,
    /// The body, cut off at the limit of the shell (3 MiB).
    pub body: Bytes,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The time was up.
    #[error("context deadline exceeded")]
    Timeout,
    /// No connection, no trust, no such service, a broken answer: in the words that Go's client would use, as far as
    /// they are known.
    #[error("{0}")]
    Failed(String),
    /// The same for the target of a redirect.
    #[error("{why}")]
    Elsewhere {
        /// Where that is.
        url: String,
        /// The failure there.
        why: String,
    },
}

/// What an admission webhook in this process is asked: the `request` of an `AdmissionReview` of version `v1`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionQuestion {
    /// The id of this question.
    pub uid: String,
    /// The kind in which the webhook sees the object, and the one of the request.
    pub kinds: [GroupVersionKind; 2],
    /// Group, version and plural of the resource that the webhook is registered for, and of the one of the request.
    pub resources: [[String; 3]; 2],
    /// The subresource; empty where there is none.
    pub subresource: String,
    /// The name of the object; empty while it is to be generated.
    pub name: String,
    /// The namespace of the object; empty where it has none.
    pub namespace: String,
    /// The operation.
    pub operation: Operation,
    /// Who does it.
    pub user: UserInfo,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options of the write, such as `CreateOptions`.
    pub options: Value,
    /// The object, which is null for deletions.
    pub object: Value,
    /// The object that is there, which is null for creations.
    pub old_object: Value,
}

/// What it answers: the `response`, without a uid, because nobody can take it for the answer to another question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionVerdict {
    /// Whether the write may go on.
    pub allowed: bool,
    /// The `Status` of a refusal, or null.
    pub status: Value,
    /// The operations of a JSON patch, which only a mutating webhook may answer with.
    pub patch: Vec<Value>,
    /// For the person who writes.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub audit_annotations: Vec<(String, String)>,
}

/// An admission webhook in this process.
pub trait Inside: Send + Sync {
    /// Asks it. The shell gives up after `timeout`.
    fn ask(
        &self,
        question: AdmissionQuestion,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<AdmissionVerdict, OutboundError>>;
}

/// Sends the calls of a server.
pub trait Outbound: Send + Sync + 'static {
    /// Sends one call and waits for its answer.
    fn call(&self, call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>>;

    /// The admission webhook at this URL ([`Destination::url`]), if it is in this process and takes questions that are
    /// not written.
    fn inside(&self, url: &str) -> Option<Arc<dyn Inside>> {
        let _ = url;
        None
    }
}

/// For servers that make no outbound calls: every call fails with an error that says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOutbound;

impl Outbound for NoOutbound {
    fn call(&self, _call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>> {
        Box::pin(std::future::ready(Err(OutboundError::Failed(
            "this server was made without a way to call webhooks".to_owned(),
        ))))
    }
}
