//! The status of a Job: which conditions exclude each other, and which fields no longer change once the Job has ended.
//!
//! Rules about a change are checked only against changed fields; the counters and the ends of a Job go one way.
//!
//! Not here: the rules of a Job's spec (`jobs`), which also read the lists of indexes.

use std::collections::BTreeSet;

use kubewright_schema::error::{FieldError, Reason};
use serde_json::Value;

use super::check::{At, Errors, FieldRule, check_fields, not_negative};
use super::jobs::{indexes_in, number_of_indexes};

const NUMBERS: &[FieldRule] = &[
    not_negative(&["active"], "validateJobStatus"),
    not_negative(&["succeeded"], "validateJobStatus"),
    not_negative(&["failed"], "validateJobStatus"),
    not_negative(&["ready"], "validateJobStatus"),
    not_negative(&["terminating"], "validateJobStatus"),
];

/// Errors in a change of `/status` (`ValidateJobStatusUpdate` and `validateJobStatus`).
pub(crate) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (job, before) = (At::root(new), At::root(old));
    let (status, was) = (job.key("status"), before.key("status"));
    check_fields(&mut errors, NUMBERS, &status, None);
    uncounted(&mut errors, &status.key("uncountedTerminatedPods"));
    exclusive(&mut errors, &status, "Complete");
    times(&mut errors, &status);
    causes(&mut errors, &status);
    if is_finished(&status) {
        finished(&mut errors, &status);
    }
    indexes(&mut errors, &job.key("spec"), &status);
    if is_finished(&status) {
        without_pods(&mut errors, &status, "terminating");
    }
    let number = |at: &At<'_>, field: &str| at.key(field).int().unwrap_or(0);
    if number(&status, "ready") > number(&status, "active") {
        errors.invalid(&status.key("ready"), "cannot set more ready pods than active");
    }
    exclusive(&mut errors, &status, "SuccessCriteriaMet");
    for counter in ["failed", "succeeded"] {
        let may_shrink = counter == "succeeded" && is_elastic(&job.key("spec"));
        if number(&status, counter) < number(&was, counter) && !may_shrink {
            let shown = number(&status, counter);
            errors.invalid_value(
                &status.key(counter),
                shown,
                format!("cannot decrease the {counter} counter"),
            );
        }
    }
    let start = status.key("startTime");
    let is_suspended = job.keys(&["spec", "suspend"]).is_true();
    if was.key("startTime").present() && start.value != was.key("startTime").value && !is_suspended {
        errors.invalid(&start, "field is immutable for unsuspended job once set");
    }
    for kind in ["Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"] {
        if is_true(&was, kind) && !is_true(&status, kind) {
            refuse_conditions(
                &mut errors,
                &status,
                format!("cannot disable the terminal {kind}=True condition"),
            );
        }
    }
    errors.into_vec()
}

/// An Indexed Job that is made smaller, which takes as many completions as pods at once, loses completions that it had.
fn is_elastic(spec: &At<'_>) -> bool {
    let is_indexed = spec.key("completionMode").text() == "Indexed";
    is_indexed && spec.key("completions").value == spec.key("parallelism").value
}

fn is_true(status: &At<'_>, kind: &str) -> bool {
    let mut conditions = status.key("conditions").items();
    conditions.any(|condition| condition.key("type").text() == kind && condition.key("status").text() == "True")
}

fn is_finished(status: &At<'_>) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// An error about the conditions that does not show them.
fn refuse_conditions(errors: &mut Errors, status: &At<'_>, detail: String) {
    errors.push(FieldError {
        reason: Reason::Invalid,
        field: status.key("conditions").path.to_string(),
        bad_value: None,
        detail,
    });
}

/// `validateJobStatus`.
fn uncounted(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for pod in ["succeeded", "failed"].iter().flat_map(|list| at.key(list).items()) {
        if pod.text().is_empty() {
            errors.invalid(&pod, "must not be empty");
        } else if !seen.insert(pod.text()) {
            errors.duplicate(&pod);
        }
    }
}

/// A Job that went well, or is about to, did not fail (`validateJobStatus`).
fn exclusive(errors: &mut Errors, status: &At<'_>, good: &str) {
    for bad in ["Failed", "FailureTarget"] {
        if is_true(status, good) && is_true(status, bad) {
            refuse_conditions(
                errors,
                status,
                format!("cannot set {good}=True and {bad}=true conditions"),
            );
        }
    }
}

/// A Job ends after the condition that causes it.
fn causes(errors: &mut Errors, status: &At<'_>) {
    for (end, cause) in [("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")] {
        if is_true(status, end) && !is_true(status, cause) {
            refuse_conditions(
                errors,
                status,
                format!("cannot set {end}=True condition without the {cause}=true condition"),
            );
        }
    }
}

/// `validateJobStatus`.
fn times(errors: &mut Errors, status: &At<'_>) {
    let (start, end) = (status.key("startTime"), status.key("completionTime"));
    match (end.present(), is_true(status, "Complete")) {
        (true, false) => errors.invalid(
            &end,
            "cannot set completionTime when there is no Complete=True condition",
        ),
        (false, true) => errors.required(&end, "completionTime is required for Complete jobs"),
        _ => {}
    }
    // Times are written in UTC and in one form, so that their texts have their order.
    if start.present() && end.present() && end.text() < start.text() {
        errors.invalid(&end, "must be equal to or after `startTime`");
    }
}

/// `validateJobStatus`.
fn finished(errors: &mut Errors, status: &At<'_>) {
    without_pods(errors, status, "active");
    if !status.key("startTime").present() {
        errors.required(&status.key("startTime"), "startTime is required for finished job");
    }
    let uncounted = status.key("uncountedTerminatedPods");
    if ["succeeded", "failed"]
        .iter()
        .any(|list| !uncounted.key(list).is_empty())
    {
        errors.invalid(&uncounted, "must be empty for finished job");
    }
}

/// `validateJobStatus`.
fn without_pods(errors: &mut Errors, status: &At<'_>, field: &str) {
    if status.key(field).int().is_some_and(|number| number > 0) {
        errors.invalid(&status.key(field), format!("{field}>0 is invalid for finished job"));
    }
}

/// `validateJobStatus` and `validateIndexesFormat`.
fn indexes(errors: &mut Errors, spec: &At<'_>, status: &At<'_>) {
    let completions = spec.key("completions").int().unwrap_or(0);
    let (done, failed) = (status.key("completedIndexes"), status.key("failedIndexes"));
    for (at, name) in [(&done, "completedIndexes"), (&failed, "failedIndexes")] {
        let is_read = name == "completedIndexes" || spec.key("backoffLimitPerIndex").present();
        if !at.text().is_empty()
            && is_read
            && let Err(why) = number_of_indexes(at.text(), completions)
        {
            errors.invalid(at, format!("error parsing {name}: {why}"));
        }
    }
    if !done.text().is_empty() && spec.key("completionMode").text() != "Indexed" {
        errors.invalid(
            &done,
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    if failed.present() && !spec.key("backoffLimitPerIndex").present() {
        errors.invalid(
            &failed,
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        );
    }
    let readable = |at: &At<'_>| number_of_indexes(at.text(), completions).is_ok();
    if readable(&done) && readable(&failed) {
        let done = indexes_in(done.text());
        if let Some(both) = indexes_in(failed.text()).into_iter().find_map(|failed| {
            // Both are in order.
            let overlap = done.get(done.partition_point(|done| done.1 < failed.0))?;
            if overlap.0 > failed.1 {
                return None;
            }
            Some(overlap.0.max(failed.0))
        }) {
            errors.invalid(
                &failed,
                format!("failedIndexes and completedIndexes overlap at index: {both}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_goes_one_way() {
        let check = |spec: Value, old: Value, new: Value, wanted: &[&str]| {
            let (old, new) = (
                json!({"spec": spec, "status": old}),
                json!({"spec": spec, "status": new}),
            );
            let errors: Vec<String> = validate(&new, &old).iter().map(ToString::to_string).collect();
            assert_eq!(errors, wanted, "{new}");
        };
        let is = |kinds: &[&str]| -> Value {
            kinds
                .iter()
                .map(|kind| json!({"type": kind, "status": "True"}))
                .collect()
        };
        let (first, second) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        let indexed = json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
        check(
            json!({}),
            json!({}),
            json!({"active": 1, "ready": 2}),
            &["status.ready: Invalid value: 2: cannot set more ready pods than active"],
        );
        check(
            json!({}),
            json!({}),
            json!({"conditions": is(&["Complete"])}),
            &[
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
        check(
            json!({}),
            json!({}),
            json!({"conditions": is(&["SuccessCriteriaMet", "Complete"]), "startTime": first, "completionTime": second}),
            &[],
        );
        check(
            json!({}),
            json!({"succeeded": 2, "startTime": first, "conditions": is(&["FailureTarget"])}),
            json!({"succeeded": 1, "startTime": second}),
            &[
                "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
                "status.startTime: Invalid value: \"2026-01-01T01:00:00Z\": field is immutable for unsuspended job once set",
                "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
            ],
        );
        check(
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 1}),
            json!({"succeeded": 1}),
            json!({"succeeded": 0}),
            &["status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"],
        );
        check(
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}),
            json!({"succeeded": 1, "failed": 1}),
            json!({"succeeded": 0}),
            &["status.failed: Invalid value: 0: cannot decrease the failed counter"],
        );
        check(
            indexed,
            json!({}),
            json!({"completedIndexes": "0-2", "failedIndexes": "2,3"}),
            &["status.failedIndexes: Invalid value: \"2,3\": failedIndexes and completedIndexes overlap at index: 2"],
        );
    }
}
