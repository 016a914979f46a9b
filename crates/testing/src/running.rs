//! An operator that runs in the background of a test.

use std::sync::{Arc, Mutex, PoisonError};

use kubewright::{Metrics, StopSource};
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::usage::Usage;

/// An operator that runs against a test cluster; see [`TestCluster::run`](crate::TestCluster::run).
///
/// It runs until it is stopped or its cluster is; this handle may be dropped.
pub struct RunningOperator {
    pub(crate) name: String,
    pub(crate) stop: Arc<StopSource>,
    pub(crate) task: JoinHandle<std::result::Result<(), kubewright::Error>>,
    pub(crate) metrics: Metrics,
}

/// The stop signals of a cluster's operators; dropping it stops them. When a test panics, by an assertion say, it prints
/// what the operators could not do: the likely reason.
#[derive(Debug)]
pub(crate) struct Operators {
    signals: Mutex<Vec<Arc<StopSource>>>,
    failures: Failures,
    usage: Usage,
}

impl Operators {
    pub(crate) fn new(failures: Failures, usage: Usage) -> Operators {
        Operators {
            signals: Mutex::default(),
            failures,
            usage,
        }
    }

    /// What the operators could not do so far; empty when there is nothing.
    fn troubles(&self) -> String {
        let failures = self.failures.describe(None, None);
        let refused = self.failures.describe_refused(&self.usage.refused(), &failures);
        format!("{failures}{refused}")
    }

    pub(crate) fn add(&self, stop: Arc<StopSource>) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).push(stop);
    }

    pub(crate) fn stop(&self) {
        for operator in self.signals.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            operator.stop();
        }
    }
}

impl Drop for Operators {
    #[allow(clippy::print_stderr)] // beside the message of the test's own panic
    fn drop(&mut self) {
        self.stop();
        let troubles = self.troubles();
        if std::thread::panicking() && !troubles.is_empty() {
            eprintln!("while this test ran:{troubles}");
        }
    }
}

impl RunningOperator {
    /// The operator's metrics, its own among them.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Stops the operator and waits until it has ended.
    ///
    /// # Errors
    /// [`Error::OperatorEnded`] when it ended with an error or a panic, now or before.
    pub async fn stop(self) -> Result<()> {
        self.stop.stop();
        let why = match self.task.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        Err(Error::OperatorEnded {
            operator: self.name,
            why,
        })
    }
}

impl std::fmt::Debug for RunningOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningOperator")
            .field("name", &self.name)
            .field("ended", &self.task.is_finished())
            .finish_non_exhaustive()
    }
}
