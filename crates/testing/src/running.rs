//! An operator that runs in the background of a test.

use std::sync::{Arc, Mutex, PoisonError};

use kubewright::StopSource;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// An operator that runs against a test cluster; see [`TestCluster::run`](crate::TestCluster::run).
///
/// It runs until it is stopped or its cluster is; this handle may be dropped.
pub struct RunningOperator {
    pub(crate) name: String,
    pub(crate) stop: Arc<StopSource>,
    pub(crate) task: JoinHandle<std::result::Result<(), kubewright::Error>>,
}

/// The stop signals of a cluster's operators; dropping it stops them.
#[derive(Debug, Default)]
pub(crate) struct Operators(Mutex<Vec<Arc<StopSource>>>);

impl Operators {
    pub(crate) fn add(&self, stop: Arc<StopSource>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stop);
    }

    pub(crate) fn stop(&self) {
        for operator in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            operator.stop();
        }
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        self.stop();
    }
}

impl RunningOperator {
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
