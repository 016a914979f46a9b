//! Requests that are passed on to the server behind an APIService: the port through which the shell sends them.
//!
//! The core decides which requests these are, and what of a client's request the other server gets to see; the shell
//! connects, proves with its certificate that it is the cluster's proxy, and hands back the answer as it comes.
//!
//! Not here: webhooks ([`crate::outbound`]), which are asked by the server itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{Request, Response};

use crate::audit::Entry;
use crate::env::BoxFuture;
use crate::shares::Share;

/// A request to another API server.
#[derive(Debug)]
pub struct Forward {
    /// The namespace of the Service before it.
    pub namespace: String,
    /// The name of that Service.
    pub service: String,
    /// The port of that Service.
    pub port: u16,
    /// PEM certificates to trust; empty means those of the machine.
    pub ca_bundle: Bytes,
    /// Whether any certificate is trusted (`insecureSkipTLSVerify`).
    pub insecure: bool,
    /// What is sent: the URI is a path with a query, and the headers are complete but for `Host` and `Content-Length`.
    /// With `Upgrade` the answer may be 101; the shell then finds the connection in the extensions of its own answer.
    pub request: Request<Bytes>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// The Service does not lead anywhere.
    #[error("{0}")]
    Unresolved(String),
    /// There is no connection, no trust, or a broken answer: in the words of Go's client, as far as they are known.
    #[error("{0}")]
    Failed(String),
}

/// The body of an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer of the server behind this one broke off")]
pub struct Cut;

/// The body of an answer, as it comes.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Cut>> + Send>>;

/// Sends requests to other API servers.
pub trait Forwarder: Send + Sync + 'static {
    /// Sends a request and waits for the head of its answer. Follows no redirect. Dropping the future, or the body,
    /// ends the connection.
    fn forward(&self, forward: Forward) -> BoxFuture<'static, Result<Response<Pieces>, ForwardError>>;
}

/// The body of an answer from another server, on its way to the client.
pub struct ForwardedBody {
    pieces: Pieces,
    /// When it must have ended, unless its client may take as long as it wants.
    deadline: Option<BoxFuture<'static, ()>>,
    /// What the request takes of its principal's share, until its end.
    _share: Share,
    /// Its entry in the audit log, which is complete when the body has ended.
    audit: Option<Arc<Entry>>,
}

impl ForwardedBody {
    pub(crate) fn new(pieces: Pieces, deadline: Option<BoxFuture<'static, ()>>, share: Share) -> ForwardedBody {
        ForwardedBody {
            pieces,
            deadline,
            _share: share,
            audit: None,
        }
    }

    /// Whether it goes on for as long as its client wants.
    pub(crate) fn is_stream(&self) -> bool {
        self.deadline.is_none()
    }

    /// Keeps the entry of the request in the audit log open for as long as the body is.
    pub(crate) fn attach_audit_entry(&mut self, entry: Arc<Entry>) {
        self.audit = Some(entry);
    }
}

impl Stream for ForwardedBody {
    type Item = Result<Bytes, Cut>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            // From now on nothing is ready but the end.
            self.pieces = Box::pin(futures::stream::empty());
            self.deadline = None;
            return Poll::Ready(Some(Err(Cut)));
        }
        let polled = self.pieces.as_mut().poll_next(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.pieces = Box::pin(futures::stream::empty());
            self.deadline = None;
            self.audit = None;
        }
        polled
    }
}
