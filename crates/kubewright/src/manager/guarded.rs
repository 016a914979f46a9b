//! The parts that run on the leader alone: how runnables begin, and begin again. Controllers do so by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Client;
use crate::controller::take_over::{until_fresh, working};
use crate::error::{Error, Result};
use crate::runnable::Runnable;
use crate::stop::Stop;
use crate::term::{Permit, Permits};
use crate::watch;

/// How long a runnable may take to end when this replica leads no more; less than the time between the renew deadline
/// and the end of a lease.
const TERM_END: Duration = Duration::from_secs(1);

/// Counts the runnables that have begun to work, once each.
#[derive(Clone)]
pub(super) struct Started(Arc<Waiting>);

struct Waiting {
    parts: AtomicUsize,
    ready: watch::Sender<bool>,
}

impl Started {
    pub(super) fn of(parts: usize, ready: watch::Sender<bool>) -> Started {
        ready.send_replace(parts == 0);
        Started(Arc::new(Waiting {
            parts: AtomicUsize::new(parts),
            ready,
        }))
    }

    pub(super) fn one(&self) {
        if self.0.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ready.send_replace(true);
        }
    }
}

/// A runnable, which runs anew in every term, from when the caches show what earlier holders of the Lease wrote.
pub(super) struct LeaderRunnable {
    pub(super) name: String,
    pub(super) runnable: Box<dyn Runnable>,
    pub(super) client: Client,
    pub(super) permits: Permits,
    pub(super) started: Started,
}

impl LeaderRunnable {
    pub(super) async fn run(mut self, stop: Stop) -> Result<()> {
        let mut first = Some(self.started.clone());
        loop {
            let permit = tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                permit = self.permits.next() => permit,
            };
            if let Some(began) = permit.began() {
                // As controllers do (M8).
                tokio::select! {
                    biased;
                    () = stop.requested() => return Ok(()),
                    () = permit.over() => continue,
                    () = until_fresh(&self.name, working(&self.client), began) => {}
                }
            }
            let (source, token) = Stop::pair();
            let mut running = self.runnable.run(self.client.under(permit.fence()), token);
            if let Some(started) = first.take() {
                started.one();
            }
            let stopping = tokio::select! {
                biased;
                () = stop.requested() => true,
                () = permit.over() => false,
                ended = &mut running => {
                    in_term(ended, &permit)?;
                    tokio::select! {
                        biased;
                        () = stop.requested() => return Ok(()),
                        () = permit.over() => continue,
                    }
                }
            };
            source.stop();
            // Work that does not end by itself is dropped at the end of the term, also while the manager stops: another
            // replica begins soon.
            tokio::select! {
                biased;
                ended = &mut running => in_term(ended, &permit)?,
                () = async { permit.over().await; sleep(TERM_END).await } => {}
            }
            if stopping {
                return Ok(());
            }
        }
    }
}

/// How a runnable ended: a write that was refused because its term is over is the end of the term, and no failure of the
/// operator.
fn in_term(ended: Result<()>, permit: &Permit) -> Result<()> {
    match ended {
        Err(error) if matches!(error.deciding(), Error::NotLeading { .. }) && permit.fence().is_over() => {
            tracing::info!(reason = %error, "a runnable ends, because this replica does not lead any more");
            Ok(())
        }
        ended => ended,
    }
}
