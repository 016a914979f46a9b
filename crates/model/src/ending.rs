//! Kinds whose objects end in steps: the effect of a delete on an object that still has a step to go.

use jiff::Timestamp;
use serde_json::Value;

/// The effect of a delete on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The same as for any other kind: finalizers and the grace period decide.
    AsAny,
    /// It marks the object, whether or not something blocks its removal ([`Ending::mark`]).
    Mark,
    /// It leaves the object as it is: it was marked, and something blocks its removal.
    Stay,
    /// As before, and the grace period becomes zero.
    StayWithoutGrace,
}

/// How objects of a kind end that end in steps.
pub struct Ending {
    /// The effect of a delete on this object.
    pub delete: fn(&Value) -> Delete,
    /// Says in the status of an object that it ends; the deletionTimestamp is set by the pipeline.
    pub mark: fn(&mut Value, Timestamp),
    /// Whether something beside the finalizers of its metadata blocks the removal of the object.
    pub is_blocked: fn(&Value) -> bool,
    /// Whether a delete may ask for the dependents to go first, or to stay, as of other kinds.
    pub heeds_dependents: bool,
}
