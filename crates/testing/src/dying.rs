//! An operator that dies after one of its writes and is started anew: for tests of crash safety.
//!
//! Invariant: the write after which it dies is carried out and its answer is lost, as when a process is killed between
//! the two; none of its memory survives. Writes of events and dry runs are not counted, because a death after one of
//! them is no other than one before. Not here: the expected end, which is for the test to compare; how writes are
//! counted (`connection`).

use std::sync::Arc;

use kubewright::Operator;
use tokio::task::JoinHandle;

use crate::cluster::TestCluster;
use crate::connection::BreakingConnection;
use crate::error::Result;

/// After how many writes the operator of each scenario is killed, by `KUBEWRIGHT_DIES_AFTER` in the environment: for
/// tests that promise the same whether it is killed or not. Without the variable no operator is killed, so that a test
/// passes the number to [`TestCluster::run_dying`] in any case. With it, every such operator says on standard error,
/// when its test is over, whether it was killed: a program that counts up knows when to stop.
///
/// # Panics
/// When it is no number.
pub fn dies_after() -> usize {
    let given = std::env::var(DIES_AFTER).ok();
    given.map_or(usize::MAX, |number| {
        let number = number.parse();
        number.unwrap_or_else(|error| panic!("{DIES_AFTER} is not a number of writes: {error}"))
    })
}

const DIES_AFTER: &str = "KUBEWRIGHT_DIES_AFTER";

/// An operator that dies after so many writes, once, and its successor; see [`TestCluster::run_dying`]. Dropping it
/// ends whichever runs.
pub struct DyingOperator {
    connections: [Arc<BreakingConnection>; 2],
    task: JoinHandle<Result<()>>,
}

impl DyingOperator {
    /// How many writes the operator and its successor sent, without events and dry runs.
    pub fn writes(&self) -> usize {
        self.connections.iter().map(|connection| connection.writes()).sum()
    }

    /// Ends whichever runs, and waits for the end.
    pub async fn stop(mut self) {
        self.task.abort();
        // An error says that it was aborted.
        let _ = (&mut self.task).await;
    }

    /// Waits until it dies, or has. An event that it was about to tell is lost with it: a test that waits for one ends
    /// its wait then, too.
    pub async fn death(&self) {
        self.connections[0].breaks().await;
    }

    /// Whether it has died.
    pub fn has_died(&self) -> bool {
        self.connections[0].is_broken()
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
    #[allow(clippy::print_stderr)] // for the program that counts up, which reads what a test prints
    fn drop(&mut self) {
        if std::env::var_os(DIES_AFTER).is_some() {
            eprintln!(
                "the operator was killed: {} ({} writes)",
                self.has_died(),
                self.writes()
            );
        }
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
        let connections = [BreakingConnection::new(dies_after), BreakingConnection::new(usize::MAX)];
        let [first, second] = connections.clone();
        let now = operator();
        let kube = self.kube_of(&now, false).await?;
        let running = self.run_with(now, first.client(kube.clone()), false).await?;
        let cluster = self.clone();
        let task = tokio::spawn(async move {
            let running = AbortOnDrop(running.task);
            first.breaks().await;
            drop(running);
            let successor = cluster.run_with(operator(), second.client(kube), true).await?;
            let _running = AbortOnDrop(successor.task);
            std::future::pending().await
        });
        Ok(DyingOperator { connections, task })
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
