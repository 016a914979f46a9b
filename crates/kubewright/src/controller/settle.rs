//! What the outcome of a reconcile means for its key: when it runs again.
//!
//! Invariant: R5 success forgets the key's failures, an error lets the delay grow, a terminal error drops the key until
//! the next event; a write that was refused because the term is over says nothing about the key, which waits for the
//! next term without a delay. Not here: the delays, which the engine's queue decides.

use std::time::Duration;

use kubewright_engine::queue::Priority;

use super::control_loop::Workers;
use crate::action::Action;
use crate::cause::{Cause, Causes};
use crate::error::{Error, Result, text_of};
use crate::metrics::ReconcileResult;
use crate::observe::Outcome;
use crate::request::Request;
use crate::term::Permit;

/// Why a key runs again whose reconcile the end of the term cut short.
pub(super) const NEXT_TERM: &str = "its reconcile ended when this replica stopped leading";

impl Workers {
    /// Decides when the key runs again (R5).
    pub(super) fn settle(&self, request: &Request, retries: u32, permit: &Permit, result: Result<Action>) -> Outcome {
        let queue = &self.prepared.queue;
        let error = match result {
            // The queue forgets failures at the end of a run that asks for no retry.
            Ok(Action {
                requeue_after,
                priority,
            }) => {
                return match requeue_after {
                    None => Outcome::Done,
                    Some(delay) => {
                        let causes = Causes::of(Cause::timer(delay));
                        queue.add_after(request.clone(), delay, Priority(priority), causes);
                        Outcome::RequeueAfter(delay)
                    }
                };
            }
            Err(error) => error,
        };
        let text = text_of(&error);
        if error.is_terminal() {
            self.metrics.terminal();
            queue.forget(request);
            tracing::error!(
                error = text,
                "reconcile failed for good; it runs again when something changes"
            );
            return Outcome::Terminal { error: text };
        }
        // A client of an earlier term is refused in this one, too; that is retried as any error.
        if matches!(error.deciding(), Error::NotLeading { .. }) && permit.fence().is_over() {
            self.metrics.stopped_leading();
            tracing::info!(
                reason = text,
                "reconcile ends, because this replica does not lead any more"
            );
            let causes = Causes::of(Cause::requested(NEXT_TERM));
            queue.add(request.clone(), Priority::NORMAL, causes);
            return Outcome::NotLeading { error: text };
        }
        let attempt = retries + 1;
        let causes = Causes::of(Cause::retry(attempt, text.clone()));
        let asked = match error.deciding() {
            Error::RetryAfter { after, .. } => Some(*after),
            _ => None,
        };
        let after = queue.retry(request.clone(), asked, causes).unwrap_or(Duration::ZERO);
        match error.deciding() {
            // The normal price of optimistic concurrency, of caches, and of leader election.
            Error::Conflict(_) | Error::Stale { .. } | Error::NotLeading { .. } => {
                tracing::info!(reason = text, ?after, "reconcile is repeated");
                Outcome::Conflict { error: text, after }
            }
            _ => {
                if self.stop.is_requested() {
                    // Resources that it needed may be gone already; nothing can be mended any more.
                    tracing::debug!(error = text, "reconcile failed while the manager stops");
                } else {
                    tracing::error!(error = text, attempt, ?after, "reconcile failed; it is repeated");
                }
                Outcome::Retry {
                    error: text,
                    attempt,
                    after,
                }
            }
        }
    }
}

/// As metrics count it.
pub(super) fn counted(outcome: &Outcome) -> ReconcileResult {
    match outcome {
        Outcome::Done => ReconcileResult::Success,
        Outcome::RequeueAfter(_) => ReconcileResult::RequeueAfter,
        Outcome::Conflict { .. } | Outcome::NotLeading { .. } => ReconcileResult::Requeue,
        Outcome::Retry { .. } | Outcome::Terminal { .. } => ReconcileResult::Error,
    }
}
