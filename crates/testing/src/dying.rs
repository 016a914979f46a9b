//! An operator that dies after one of its writes and is started anew: what tests of crash safety need.
//!
//! Invariant: the write after which it dies is carried out and its answer is lost, as when a process is killed between
//! the two; nothing that it knew survives. Writes of events and dry runs are not counted, because a death after one of
//! them is no other than one before. Not here: what the end should look like, which is for the test to compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kubewright::Operator;
use kubewright::kube::{self, client::Body};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cluster::TestCluster;
use crate::error::Result;

/// Counts the writes of a connection, and breaks it for good after one of them.
struct Line {
    writes: AtomicUsize,
    breaks_after: usize,
    broken: Notify,
}

impl Line {
    fn new(breaks_after: usize) -> Arc<Line> {
        Arc::new(Line {
            writes: AtomicUsize::new(0),
            breaks_after,
            broken: Notify::new(),
        })
    }

    fn client(self: &Arc<Line>, kube: kube::Client) -> kube::Client {
        let line = self.clone();
        let service = tower::service_fn(move |request| line.clone().answer(kube.clone(), request));
        kube::Client::new(service, "default")
    }

    async fn answer(
        self: Arc<Line>,
        kube: kube::Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let lost = || kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        if self.writes.load(Ordering::SeqCst) >= self.breaks_after {
            return Err(lost());
        }
        let counts = counts(&request);
        let answered = kube.send(request).await?;
        if counts && self.writes.fetch_add(1, Ordering::SeqCst) + 1 >= self.breaks_after {
            self.broken.notify_one();
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

/// An operator that dies after so many writes, once, and its successor; see [`TestCluster::run_dying`]. Dropping it
/// ends whichever runs.
pub struct DyingOperator {
    lines: [Arc<Line>; 2],
    task: JoinHandle<Result<()>>,
}

impl DyingOperator {
    /// How many writes the operator and its successor sent, without events and dry runs.
    pub fn writes(&self) -> usize {
        self.lines.iter().map(|line| line.writes.load(Ordering::SeqCst)).sum()
    }

    /// Whether it has died.
    pub fn has_died(&self) -> bool {
        self.lines[0].writes.load(Ordering::SeqCst) >= self.lines[0].breaks_after
    }
}

impl std::fmt::Debug for DyingOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DyingOperator")
            .field("writes", &self.writes())
            .field("died", &self.has_died())
            .finish_non_exhaustive()
    }
}

impl Drop for DyingOperator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestCluster {
    /// [`run`](TestCluster::run)s an operator that is killed after `dies_after` writes: the write is carried out, its
    /// answer is lost, and with it everything that the operator knew. Then `operator` is asked for another, which
    /// begins with the cluster as it finds it and is not killed. `usize::MAX` kills nobody and counts writes.
    ///
    /// A test plays its scenario once undisturbed, asks for [`DyingOperator::writes`], plays it once for each of them,
    /// and compares the ends.
    ///
    /// # Errors
    /// As [`run`](TestCluster::run).
    pub async fn run_dying(
        &self,
        operator: impl Fn() -> Operator + Send + 'static,
        dies_after: usize,
    ) -> Result<DyingOperator> {
        let lines = [Line::new(dies_after), Line::new(usize::MAX)];
        let [first, second] = lines.clone();
        let now = operator();
        let kube = self.kube_of(&now).await?;
        let running = self.run_with(now, first.client(kube.clone())).await?;
        let cluster = self.clone();
        let task = tokio::spawn(async move {
            let running = AbortOnDrop(running.task);
            first.broken.notified().await;
            drop(running);
            let successor = cluster.run_with(operator(), second.client(kube)).await?;
            let _running = AbortOnDrop(successor.task);
            std::future::pending().await
        });
        Ok(DyingOperator { lines, task })
    }
}

/// A task that ends with what holds it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
