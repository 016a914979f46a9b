//! The status of a Job, and the pods that it makes.
//!
//! Pure. Order of the writes when a Job is over: first why (`FailureTarget`, `SuccessCriteriaMet`), then, when its pods
//! are gone and counted, that (`Failed`, `Complete`).

use std::collections::BTreeSet;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use kubewright_objects::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::state::{End, INDEX, INDEX_FAILURES, INDEX_IGNORED, State, TRACKING, index, number, uid};
use crate::pod_control;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// Whether the Job is over and its status says so.
pub(super) fn is_finished(job: &Job) -> bool {
    has(job.status.as_ref(), "Complete") || has(job.status.as_ref(), "Failed")
}

fn has(status: Option<&JobStatus>, type_: &str) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let fits = |condition: &JobCondition| condition.type_ == type_ && condition.status == "True";
    conditions.into_iter().flatten().any(fits)
}

fn set(status: &mut JobStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let time = Some(meta::time(now));
    let new = JobCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: time.clone(),
        last_transition_time: time,
    };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(present) if present.status == value && present.reason == new.reason && present.message == new.message => {}
        Some(present) => *present = new,
        None => conditions.push(new),
    }
}

/// The change of the suspension, for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspension {
    Suspended,
    Resumed,
}

/// The numbers of pods, and the start.
pub(super) fn note_pods(state: &State<'_>, status: &mut JobStatus) {
    let some = |number: usize| Some(i32::try_from(number).unwrap_or(i32::MAX)).filter(|number| *number > 0);
    let count = |fits: &dyn Fn(&Pod) -> bool| state.pods.iter().filter(|pod| fits(pod)).count();
    status.active = some(state.active().count());
    status.ready = Some(some(count(&|pod| pods::is_active(pod) && pods::is_ready(pod))).unwrap_or(0));
    status.terminating = Some(some(count(&pods::is_terminating)).unwrap_or(0));
    status.uncounted_terminated_pods.get_or_insert_default();
    if status.start_time.is_none() && !state.is_suspended() {
        status.start_time = Some(meta::time(state.now));
    }
    if state.indexed().is_some() && state.spec.backoff_limit_per_index.is_some() {
        status.failed_indexes.get_or_insert_default();
    }
}

/// Says that the Job is suspended, or no longer; the time of activity begins anew.
pub(super) fn note_suspension(state: &State<'_>, status: &mut JobStatus) -> Option<Suspension> {
    if state.is_suspended() {
        if has(Some(status), "Suspended") {
            return None;
        }
        set(status, "Suspended", "True", "JobSuspended", "Job suspended", state.now);
        status.start_time = None;
        return Some(Suspension::Suspended);
    }
    if !has(Some(status), "Suspended") {
        return None;
    }
    set(status, "Suspended", "False", "JobResumed", "Job resumed", state.now);
    status.start_time = Some(meta::time(state.now));
    Some(Suspension::Resumed)
}

/// Names the pods that are to be counted, so that they are when their finalizer is gone
/// (`trackJobStatusAndRemoveFinalizers`).
pub(super) fn note_uncounted(state: &State<'_>, over: Option<&End>, counted: &[&Pod], status: &mut JobStatus) {
    let (mut succeeded, mut failed) = state.uncounted();
    for pod in counted {
        let of_index = state
            .indexed()
            .is_none_or(|completions| index(pod).is_some_and(|index| index < completions));
        if pods::phase(pod) == "Succeeded" {
            // An Indexed Job counts by the list of its indexes.
            if state.indexed().is_none() && !failed.contains(uid(pod)) {
                succeeded.insert(uid(pod).to_owned());
            }
            continue;
        }
        // When a Job has failed, every pod that is cut off has failed with it.
        let lost = state.has_failed(pod) && !over.is_some_and(|end| end.success && !is_failed(pod));
        let cut_off = over.is_some_and(|end| !end.success);
        if of_index && (lost || cut_off) && state.counts(pod) {
            failed.insert(uid(pod).to_owned());
        }
    }
    let listed = |uids: BTreeSet<String>| Some(uids.into_iter().collect::<Vec<_>>()).filter(|uids| !uids.is_empty());
    status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
        succeeded: listed(succeeded),
        failed: listed(failed),
    });
    if state.indexed().is_some() {
        status.succeeded = Some(state.succeeded_indexes.total()).filter(|total| *total > 0);
        status.completed_indexes = Some(state.succeeded_indexes.to_string()).filter(|text| !text.is_empty());
        if state.spec.backoff_limit_per_index.is_some() {
            status.failed_indexes = Some(state.failed_indexes.to_string());
        }
    }
}

fn is_failed(pod: &Pod) -> bool {
    pods::phase(pod) == "Failed"
}

/// Says why the Job is over.
pub(super) fn note_end(over: &End, status: &mut JobStatus, now: Timestamp) {
    let type_ = if over.success {
        "SuccessCriteriaMet"
    } else {
        "FailureTarget"
    };
    set(status, type_, "True", &over.reason, &over.message, now);
}

/// Counts the named pods that carry no finalizer any more: the pods in `open` still do.
pub(super) fn count(status: &mut JobStatus, open: &BTreeSet<&str>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |uids: &mut Option<Vec<String>>, total: &mut Option<i32>| {
        let all = uids.take().unwrap_or_default();
        let before = all.len();
        let left: Vec<String> = all.into_iter().filter(|uid| open.contains(uid.as_str())).collect();
        let settled = i32::try_from(before - left.len()).unwrap_or(i32::MAX);
        if settled > 0 {
            *total = Some(total.unwrap_or(0).saturating_add(settled));
        }
        *uids = Some(left).filter(|left| !left.is_empty());
    };
    settle(&mut uncounted.succeeded, &mut status.succeeded);
    settle(&mut uncounted.failed, &mut status.failed);
}

/// Ends the Job, if no pod is left that is active, terminating or uncounted. Answers whether it did.
pub(super) fn finish(over: &End, status: &mut JobStatus, now: Timestamp) -> bool {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let open = uncounted.is_some_and(|pods| pods.succeeded.is_some() || pods.failed.is_some());
    if open || status.active.unwrap_or(0) > 0 || status.terminating.unwrap_or(0) > 0 {
        return false;
    }
    if over.success {
        status.completion_time = Some(meta::time(now));
    }
    let type_ = if over.success { "Complete" } else { "Failed" };
    set(status, type_, "True", &over.reason, &over.message, now);
    true
}

/// A pod of the Job; `of_index`: which completion it works for, and the pod of it that has failed before.
pub(super) fn new_pod(state: &State<'_>, of_index: Option<(i32, Option<&Pod>)>) -> Pod {
    let job = state.job;
    let name = meta::name(&job.metadata);
    let mut pod = pod_control::from_template(&state.spec.template, job);
    let metadata = &mut pod.metadata;
    metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    if let Some((index, before)) = of_index {
        // A generated name has 5 letters more, and may have 63.
        let tail = format!("-{index}-");
        let room = 58_usize.saturating_sub(tail.len());
        metadata.generate_name = Some(format!("{}{tail}", name.get(..room.min(name.len())).unwrap_or(name)));
        let text = index.to_string();
        metadata
            .labels
            .get_or_insert_default()
            .insert(INDEX.to_owned(), text.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX.to_owned(), text);
        if state.spec.backoff_limit_per_index.is_some() {
            let (failures, ignored) = carried(state, before);
            annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
            if ignored > 0 {
                annotations.insert(INDEX_IGNORED.to_owned(), ignored.to_string());
            }
        }
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(format!("{name}-{index}"));
        let all = spec
            .containers
            .iter_mut()
            .chain(spec.init_containers.iter_mut().flatten());
        all.for_each(|container| tell_index(container.env.get_or_insert_default()));
    }
    pod
}

/// The failures of an index with the last pod's own.
fn carried(state: &State<'_>, before: Option<&Pod>) -> (i32, i32) {
    let Some(before) = before else { return (0, 0) };
    let failures = number(&before.metadata, INDEX_FAILURES);
    let ignored = number(&before.metadata, INDEX_IGNORED);
    match state.counts(before) {
        true => (failures.saturating_add(1), ignored),
        false => (failures, ignored.saturating_add(1)),
    }
}

/// `JOB_COMPLETION_INDEX`, unless the template has a variable of this name.
fn tell_index(env: &mut Vec<EnvVar>) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    if env.iter().any(|variable| variable.name == NAME) {
        return;
    }
    env.push(EnvVar {
        name: NAME.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.labels['{INDEX}']"),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
}
