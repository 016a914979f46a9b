//! Observations of what the runtime does: for the `demo` command, tests, metrics.
//!
//! An observer is called synchronously, so it must be quick and must not block. A panic of an observer is caught.
//! Without an observer, nothing is computed.
//!
//! `wire.rs` is the format in which an observation leaves the process, `stream.rs` the socket that it is sent to.

mod stream;
mod wire;

pub use stream::OBSERVE_SOCKET;
pub(crate) use stream::{Listener, from_environment};
pub use wire::Message;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::diff::FieldChange;
use crate::error::end_of_panic;
use crate::object::ObjectRef;
use crate::request::Request;

/// Receives observations of the runtime.
///
/// ```
/// use kubewright::{Observation, Observer};
///
/// struct Printer;
/// impl Observer for Printer {
///     fn observe(&self, what: &Observation) {
///         if let Observation::ReconcileStarted { controller, request, causes, .. } = what {
///             eprintln!("{controller}: {request} because {causes:?}");
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is no observer", note = "a `Fn(&Observation)` is one")]
pub trait Observer: Send + Sync + 'static {
    /// Called for everything that happens, from the task in which it happens. Must return quickly.
    fn observe(&self, what: &Observation);
}

impl<F: Fn(&Observation) + Send + Sync + 'static> Observer for F {
    fn observe(&self, what: &Observation) {
        self(what);
    }
}

/// One thing that the runtime did.
///
/// Its serialised form is for one program: a reader is of the same version as the writer, or must expect kinds that it
/// does not know.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Observation {
    /// All sources of a controller are synced and its workers start.
    ControllerStarted {
        /// The controller's name.
        #[serde(with = "wire::text")]
        controller: Arc<str>,
    },
    /// A reconcile begins.
    ReconcileStarted {
        /// The controller's name.
        #[serde(with = "wire::text")]
        controller: Arc<str>,
        /// The key.
        request: Request,
        /// Numbers the reconciles of this process; also in the logs.
        reconcile_id: u64,
        /// Why it runs.
        causes: Vec<Cause>,
        /// How many other keys of this controller could run now and wait for a worker.
        ready: usize,
        /// How many keys of this controller wait for their time: retries after errors, and delays that reconciles asked
        /// for.
        delayed: usize,
    },
    /// A reconcile ended.
    ReconcileFinished {
        /// The controller's name.
        #[serde(with = "wire::text")]
        controller: Arc<str>,
        /// The key.
        request: Request,
        /// The number that its start had.
        reconcile_id: u64,
        /// Its outcome.
        outcome: Outcome,
        /// How long it took, waits included.
        took: Duration,
    },
    /// A write that the API server accepted. Dry runs and refused writes are not reported.
    Written {
        /// The controller whose client wrote, or the field manager of a client outside controllers; `None` when it was
        /// given none.
        #[serde(with = "wire::optional_text")]
        controller: Option<Arc<str>>,
        /// The verb: `create`, `update`, `patch` or `delete`.
        #[serde(deserialize_with = "wire::verb")]
        verb: Verb,
        /// The object.
        object: ObjectRef,
        /// The subresource, such as `status`.
        subresource: Option<String>,
        /// The fields that differ between the cached object before and the server's answer; empty for `create` and
        /// `delete`, and when the object was not cached.
        changes: Vec<FieldChange>,
    },
    /// A cache finished its initial list, or recovered.
    CacheSynced {
        /// The kind and scope.
        resource: String,
        /// How many objects it holds.
        objects: usize,
    },
    /// An object does not decode into the type that it is cached as; its cache leaves it out until it changes. Told
    /// once for each version.
    ObjectUnreadable {
        /// The kind and scope.
        resource: String,
        /// The object.
        object: ObjectRef,
        /// The error of serde.
        error: String,
    },
    /// A cache's list or watch failed; it serves its present objects and tries again.
    CacheDegraded {
        /// The kind and scope.
        resource: String,
        /// The failure.
        reason: String,
    },
}

/// Not written out where it is used: serde takes a `&str` for something that is borrowed from the input.
type Verb = &'static str;

/// How a reconcile ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Outcome {
    /// Success; it runs again when something changes.
    Done,
    /// Success; it runs again after the delay at the latest.
    RequeueAfter(Duration),
    /// A conflict or a stale cache: normal, it runs again after the delay.
    Conflict {
        /// The error's text.
        error: String,
        /// The delay until the next attempt.
        after: Duration,
    },
    /// A write was not sent, because this replica does not lead any more ([`Error::NotLeading`](crate::Error::NotLeading)):
    /// no failure. Whoever leads now reconciles the object.
    NotLeading {
        /// The error's text.
        error: String,
    },
    /// A failure; it runs again after the delay.
    Retry {
        /// The error's text.
        error: String,
        /// How many attempts in a row have failed.
        attempt: u32,
        /// The delay until the next attempt.
        after: Duration,
    },
    /// A failure that trying again cannot cure.
    Terminal {
        /// The error's text.
        error: String,
    },
}

/// The observers of one manager.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn new(list: Vec<Arc<dyn Observer>>) -> Observers {
        Observers(list.into())
    }

    /// Builds the observation only when there is an observer.
    pub(crate) fn notify(&self, what: impl FnOnce() -> Observation) {
        if self.0.is_empty() {
            return;
        }
        let what = what();
        for observer in self.0.iter() {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| observer.observe(&what))) {
                let error = end_of_panic(payload);
                tracing::error!(error, "an observer panicked; the observation is lost for it");
            }
        }
    }
}
