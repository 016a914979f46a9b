//! An operator that dies after one of its writes and is started anew: for tests of crash safety.
//!
//! Invariant: the write after which it dies is carried out and its answer is lost, as when a process is killed between
//! the two; none of its memory survives. Writes of events and dry runs are not counted, because a death after one of
//! them is no other than one before. Not here: the expected end, which is for the test to compare; how writes are
//! counted (`line`).

use std::sync::Arc;

use kubewright::Operator;
use tokio::task::JoinHandle;

use crate::cluster::TestCluster;
use crate::error::Result;
use crate::line::Line;

/// An operator that dies after so many writes, once, and its successor; see [`TestCluster::run_dying`]. Dropping it
/// ends whichever runs.
pub struct DyingOperator {
    lines: [Arc<Line>; 2],
    task: JoinHandle<Result<()>>,
}

impl DyingOperator {
    /// How many writes the operator and its successor sent, without events and dry runs.
    pub fn writes(&self) -> usize {
        self.lines.iter().map(|line| line.writes()).sum()
    }

    /// Whether it has died.
    pub fn has_died(&self) -> bool {
        self.lines[0].is_broken()
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
    /// begins with the cluster as it finds it and is not killed. `usize::MAX` kills no operator and counts writes.
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
            first.breaks().await;
            drop(running);
            let successor = cluster.run_with(operator(), second.client(kube)).await?;
            let _running = AbortOnDrop(successor.task);
            std::future::pending().await
        });
        Ok(DyingOperator { lines, task })
    }
}

/// A task that ends with its owner.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
