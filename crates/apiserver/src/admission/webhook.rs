//! Admission webhooks: external servers see a request and may change or refuse it.
//!
//! [`MutatingWebhooks`] asks one after the other, each with the result of the one before; [`ValidatingWebhooks`] asks
//! all at once. The stored configurations say which webhooks are called, by name and then by their order in each;
//! `config` reads them, `review` makes the AdmissionReview and judges the answer, `match_conditions` decides about
//! `matchConditions`.
//!
//! Invariants: without a configuration that may concern it a request costs two look-ups; a webhook that cannot be asked
//! refuses the request unless its `failurePolicy` is `Ignore`; no webhook is asked about the configuration of
//! admission.
//!
//! Not here: sending (see [`crate::outbound`]), which requests a rule covers (see [`super::matching`]).

mod config;
mod match_conditions;
mod mutating;
mod review;
mod validating;

pub use mutating::MutatingWebhooks;
pub use validating::ValidatingWebhooks;

use super::Session;
use crate::model::status::Status;

/// Why a request does not go on.
enum Failure {
    /// The webhook could not be asked, or its answer makes no sense: `failurePolicy` decides.
    Calling(String),
    /// The webhook, or this server, says no.
    Refused(Status),
}

impl Failure {
    /// The effect of the failure on the request. `opened` is the key that says in the audit log that it went on
    /// although the webhook failed.
    fn settle(self, hook: &config::Webhook, session: &Session<'_>, opened: &str) -> Result<(), Status> {
        match self {
            Failure::Refused(status) => Err(status),
            Failure::Calling(why) if hook.ignores_failure => {
                tracing::warn!(webhook = hook.name, why, "a webhook failed; the request goes on");
                session.annotate(opened, hook.name.clone());
                Ok(())
            }
            Failure::Calling(why) => {
                let why = format!("failed calling webhook {:?}: {why}", hook.name);
                Err(Status::internal(&why))
            }
        }
    }
}
