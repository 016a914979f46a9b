//! The result of a successful reconcile: when to run again.
//!
//! The set is closed on purpose. There is no "requeue now": a reconcile that wants to run again at once either waits
//! for a change (which enqueues it) or has failed (which is an error).

use std::time::Duration;

/// The next step for the key after a successful reconcile (controller-runtime's `Result`).
///
/// Success resets the key's backoff whichever action is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Action {
    pub(crate) requeue_after: Option<Duration>,
    pub(crate) priority: i32,
}

impl Action {
    /// Done: run again when something that is watched changes.
    pub const fn await_change() -> Action {
        Action {
            requeue_after: None,
            priority: 0,
        }
    }

    /// Done for now: run again after `delay`, or earlier when something changes.
    pub const fn requeue_after(delay: Duration) -> Action {
        Action {
            requeue_after: Some(delay),
            priority: 0,
        }
    }

    /// How urgent the key is when the delay is over (controller-runtime's `Result.Priority`): see
    /// [`Watch::priority`](crate::Watch::priority). A change that wakes it earlier counts by its own priority.
    pub const fn with_priority(self, priority: i32) -> Action {
        Action { priority, ..self }
    }

    /// The delay that was asked for, if any.
    pub const fn delay(&self) -> Option<Duration> {
        self.requeue_after
    }
}
