//! A connection that breaks after one of its writes, for clients that die there.
//!
//! Invariant: the write at which it breaks is carried out and its answer is lost. Writes of events and dry runs are not
//! counted. The crash test of the built-in controllers includes this file: it kills a manager, not an operator.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kubewright::kube::{self, client::Body};
use tokio::sync::Notify;

/// Counts the writes of a connection, and breaks it for good after one of them.
pub(crate) struct BreakingConnection {
    writes: AtomicUsize,
    breaks_after: usize,
    broken: Notify,
}

impl BreakingConnection {
    pub(crate) fn new(breaks_after: usize) -> Arc<BreakingConnection> {
        Arc::new(BreakingConnection {
            writes: AtomicUsize::new(0),
            breaks_after,
            broken: Notify::new(),
        })
    }

    pub(crate) fn client(self: &Arc<BreakingConnection>, kube: kube::Client) -> kube::Client {
        let connection = self.clone();
        let service = tower::service_fn(move |request| connection.clone().answer(kube.clone(), request));
        kube::Client::new(service, "default")
    }

    /// How many writes were sent.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.writes() >= self.breaks_after
    }

    /// Waits until it breaks, or has.
    pub(crate) async fn breaks(&self) {
        let mut broken = pin!(self.broken.notified());
        // Whoever breaks it between the look and the wait wakes us already.
        broken.as_mut().enable();
        if !self.is_broken() {
            broken.await;
        }
    }

    async fn answer(
        self: Arc<BreakingConnection>,
        kube: kube::Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let lost = || kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        if self.is_broken() {
            return Err(lost());
        }
        let counts = counts(&request);
        let answered = kube.send(request).await?;
        if counts && self.writes.fetch_add(1, Ordering::SeqCst) + 1 >= self.breaks_after {
            self.broken.notify_waiters();
            return Err(lost());
        }
        Ok(answered)
    }
}

fn counts(request: &Request<Body>) -> bool {
    let is_dry = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|part| part.starts_with("dryRun=")));
    let is_event = request.uri().path().split('/').any(|part| part == "events");
    request.method() != Method::GET && !is_dry && !is_event
}
