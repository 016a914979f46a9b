//! Parts of a manager that are stopped together.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::panic_place::end_with_place;
use crate::stop::{Stop, StopSource};

/// Parts that are stopped together.
pub(super) struct Group {
    source: StopSource,
    failures: mpsc::UnboundedSender<Error>,
    tasks: Vec<(String, JoinHandle<()>)>,
}

impl Group {
    pub(super) fn new(failures: mpsc::UnboundedSender<Error>) -> Group {
        let (source, _) = Stop::pair();
        Group {
            source,
            failures,
            tasks: Vec::new(),
        }
    }

    pub(super) fn stop(&self) -> Stop {
        self.source.token()
    }

    pub(super) fn spawn(&mut self, name: &str, part: impl Future<Output = Result<()>> + Send + 'static) {
        let (failures, owned) = (self.failures.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            let ended = AssertUnwindSafe(part).catch_unwind().await;
            let ended = ended.unwrap_or_else(|payload| {
                Err(Error::Panic {
                    what: owned.clone(),
                    message: end_with_place(payload),
                })
            });
            if let Err(error) = ended {
                // The receiver is gone only when the manager is, and then the error has no reader.
                let _ = failures.send(error.in_part(owned));
            }
        });
        self.tasks.retain(|(_, task)| !task.is_finished()); // of controllers that came and went
        self.tasks.push((name.to_owned(), task));
    }
}

impl Drop for Group {
    /// A manager whose future is dropped leaves nothing behind.
    fn drop(&mut self) {
        self.source.stop();
        for (_, task) in &self.tasks {
            task.abort();
        }
    }
}

/// Stops one group after the other; answers the names of those that did not stop in time (they are then aborted).
pub(super) async fn stop_in_order(groups: [Group; 6], graceful: Duration) -> Vec<String> {
    let begin = Instant::now();
    let mut stuck = Vec::new();
    for (index, mut group) in groups.into_iter().enumerate() {
        group.source.stop();
        // Controllers and runnables must leave a tenth, so that one that hangs does not take the events and probes with
        // it.
        let deadline = begin + if index < 2 { graceful.mul_f32(0.9) } else { graceful };
        for (name, task) in &mut group.tasks {
            if timeout_at(deadline, &mut *task).await.is_err() {
                stuck.push(name.clone());
            }
        }
    }
    stuck
}
