//! How a CustomResourceDefinition ends: its conditions, and the finalizer that holds it until its objects are gone.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::Delete;
use crate::env::rfc3339;
use crate::object::{self, conditions};
use crate::values::{At, ensure};

/// Name of the finalizer that keeps a deleted definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets a condition in the status of a definition.
pub fn set_condition(
    status: &mut Map<String, Value>,
    kind: &str,
    (value, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let condition = json!({
        "type": kind, "status": value, "lastTransitionTime": rfc3339(now), "reason": reason, "message": message
    });
    conditions::set(status, condition);
}

/// How a definition ends: first it says so, then its objects go, and it goes with the last of them (`crdfinalizer`).
pub static ENDING: crate::Ending = crate::Ending {
    delete: |definition| match (
        object::is_terminating(definition),
        object::finalizers(definition).is_empty(),
    ) {
        (false, _) => Delete::Mark,
        // Its first mark knows no grace, every later one gives none.
        (true, false) => Delete::StayWithoutGrace,
        (true, true) => Delete::AsAny,
    },
    mark: terminate,
    is_blocked: |_| false,
    // Its objects are no dependents: they go whatever a delete says of those.
    heeds_dependents: false,
};

/// Marks a definition that is being deleted: adds [`CLEANUP_FINALIZER`] and the condition `Terminating`. The pipeline
/// calls it on the first DELETE (besides setting deletionTimestamp), deletes the objects of `store`, and removes the
/// finalizer when none is left.
pub fn terminate(definition: &mut Value, now: Timestamp) {
    let Some(object) = definition.as_object_mut() else {
        return;
    };
    if let Some(metadata) = ensure(object, "metadata") {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
        {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
    }
    set_terminating(definition, DeletionProgress::Pending, now);
}

/// How far the deletion of the objects of a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionProgress {
    /// It will begin.
    Pending,
    /// Something holds some of them.
    InProgress,
    /// None is left.
    Completed,
}

/// Whether a definition is deleted and held for its objects. The metadata alone decides.
pub fn is_ending(definition: &Value) -> bool {
    crate::object::is_terminating(definition) && crate::object::finalizers(definition).contains(&CLEANUP_FINALIZER)
}

/// Whether a definition is deleted and nothing has been done about its objects yet.
pub fn waits_for_its_end(definition: &Value) -> bool {
    let conditions = At::root(definition).keys(&["status", "conditions"]);
    let begun = |condition: At<'_>| {
        condition.key("type").text() == "Terminating" && condition.key("reason").text() != "InstanceDeletionPending"
    };
    is_ending(definition) && !conditions.items().any(begun)
}

/// Sets the condition `Terminating` of a definition; whether that changed it.
pub fn set_terminating(definition: &mut Value, ending: DeletionProgress, now: Timestamp) -> bool {
    let to = match ending {
        DeletionProgress::Pending => (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        ),
        DeletionProgress::InProgress => (
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
        DeletionProgress::Completed => ("False", "InstanceDeletionCompleted", "removed all instances"),
    };
    let before = definition.get("status").cloned();
    if let Some(status) = definition.as_object_mut().and_then(|object| ensure(object, "status")) {
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let same = |condition: &Value| condition["type"] == "Terminating" && condition["reason"] == to.1;
        if conditions.into_iter().any(same) {
            return false;
        }
        set_condition(status, "Terminating", to, now);
    }
    before.as_ref() != definition.get("status")
}
