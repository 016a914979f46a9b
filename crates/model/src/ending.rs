//! Kinds whose objects end in steps: what a delete of one does as long as it is not what a delete of any other object does.

use jiff::Timestamp;
use serde_json::Value;

/// What a delete of an object does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// What it does to any other: finalizers and the grace period say.
    AsAny,
    /// It marks the object, whatever holds it ([`Ending::mark`]).
    Mark,
    /// It leaves the object as it is: it was marked, and something holds it.
    Stay,
    /// As before, and the grace period becomes zero.
    StayWithoutGrace,
}

/// How objects of a kind end that end in steps.
pub struct Ending {
    /// What a delete of this object does.
    pub delete: fn(&Value) -> Delete,
    /// Says in the status of an object that it ends; the deletionTimestamp is set by the pipeline.
    pub mark: fn(&mut Value, Timestamp),
    /// Whether something holds the object beside the finalizers of its metadata.
    pub is_held: fn(&Value) -> bool,
    /// Whether a precondition that fails names the resource, and not the kind as for others.
    pub conflicts_name_the_resource: bool,
}
