//! The state of a Job and its pods: how many have succeeded and failed, whether it is over and why, how many pods it
//! wants.
//!
//! Pure (`syncJob` and `manageJob` of kube-controller-manager). Pods are counted once: one that has finished carries
//! the tracking finalizer until the Job's status names it, so that none is missed and none counted twice, even when a
//! write is lost in between (KEP-2307).

use std::collections::BTreeSet;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::batch::v1::{Job, JobSpec, JobStatus};
use kubewright_objects::api::core::v1::Pod;

use super::indexes::Indexes;
use super::policy::{self, Verdict};
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The finalizer of pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Label and annotation: which completion the pod works for.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotations: how often the index has failed before.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Why a Job is over, before its pods are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    fn new(success: bool, reason: &str, message: impl Into<String>) -> End {
        End {
            success,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    pub(super) fn completed() -> End {
        End::new(true, "CompletionsReached", "Reached expected number of succeeded pods")
    }
}

/// A Job with its pods, looked at once.
pub(super) struct State<'a> {
    pub(super) job: &'a Job,
    pub(super) spec: &'a JobSpec,
    pub(super) status: JobStatus,
    pub(super) pods: Vec<&'a Pod>,
    pub(super) now: Timestamp,
    /// Finished pods that no status names yet.
    pub(super) newly_succeeded: Vec<&'a Pod>,
    pub(super) newly_failed: Vec<&'a Pod>,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// Of an Indexed Job.
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Indexes,
}

impl<'a> State<'a> {
    pub(super) fn of(job: &'a Job, spec: &'a JobSpec, pods: Vec<&'a Pod>, now: Timestamp) -> State<'a> {
        let mut state = State {
            job,
            spec,
            status: job.status.clone().unwrap_or_default(),
            pods,
            now,
            newly_succeeded: Vec::new(),
            newly_failed: Vec::new(),
            succeeded: 0,
            failed: 0,
            succeeded_indexes: Indexes::default(),
            failed_indexes: Indexes::default(),
        };
        state.count();
        state
    }

    fn count(&mut self) {
        let (succeeded, failed) = self.uncounted();
        let fresh = |pod: &&&Pod| is_tracked(pod) && !succeeded.contains(uid(pod)) && !failed.contains(uid(pod));
        let fresh: Vec<&Pod> = self.pods.iter().filter(fresh).copied().collect();
        self.newly_succeeded = fresh
            .iter()
            .copied()
            .filter(|pod| pods::phase(pod) == "Succeeded")
            .collect();
        self.newly_failed = fresh.iter().copied().filter(|pod| self.has_failed(pod)).collect();
        let counting = self.newly_failed.iter().filter(|pod| self.counts(pod)).count();
        self.failed = sum(self.status.failed, counting + failed.len());
        self.succeeded = sum(self.status.succeeded, self.newly_succeeded.len() + succeeded.len());
        let Some(completions) = self.indexed() else { return };
        let parsed = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions);
        self.succeeded_indexes = parsed(&self.status.completed_indexes);
        let done = self.newly_succeeded.iter().filter_map(|pod| index(pod));
        done.filter(|index| *index < completions)
            .for_each(|index| self.succeeded_indexes.insert(index));
        self.succeeded = self.succeeded_indexes.total();
        self.failed_indexes = parsed(&self.status.failed_indexes);
        let lost = self.newly_failed.iter().filter(|pod| self.has_lost_its_index(pod));
        let lost: Vec<i32> = lost
            .filter_map(|pod| index(pod))
            .filter(|index| *index < completions)
            .collect();
        lost.into_iter().for_each(|index| self.failed_indexes.insert(index));
    }

    /// The uids that the status names, because their finalizer may still be there.
    pub(super) fn uncounted(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let set = |uids: Option<Vec<String>>| uids.into_iter().flatten().collect();
        (set(uncounted.succeeded), set(uncounted.failed))
    }

    /// The completions of an Indexed Job.
    pub(super) fn indexed(&self) -> Option<i32> {
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        self.spec.completions.filter(|_| is_indexed)
    }

    /// Whether a pod is replaced only when it is over, not already when it is on its way.
    pub(super) fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    /// Whether the pod has failed, or will (`isPodFailed`).
    pub(super) fn has_failed(&self, pod: &Pod) -> bool {
        match pods::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => meta::is_deleting(&pod.metadata) && !self.replaces_only_failed(),
        }
    }

    /// Whether a failure counts against the limit.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        policy::judge(self.job, pod) != Verdict::Ignore
    }

    /// Whether an index is given up with this pod.
    fn has_lost_its_index(&self, pod: &Pod) -> bool {
        let Some(limit) = self.spec.backoff_limit_per_index else {
            return false;
        };
        match policy::judge(self.job, pod) {
            Verdict::Ignore => false,
            Verdict::FailIndex => true,
            _ => number(&pod.metadata, INDEX_FAILURES) >= limit,
        }
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().copied().filter(|pod| pods::is_active(pod))
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether the Job is over: as its status says already, or as its pods say now.
    pub(super) fn end(&self) -> Option<End> {
        self.decided()
            .or_else(|| self.failure())
            .or_else(|| self.index_failure())
            .or_else(|| {
                let message = policy::success(self.job, self.indexed()?, &self.succeeded_indexes)?;
                Some(End::new(true, "SuccessPolicy", message))
            })
    }

    fn decided(&self) -> Option<End> {
        let found = self.status.conditions.iter().flatten().find(|condition| {
            condition.status == "True" && ["FailureTarget", "SuccessCriteriaMet"].contains(&condition.type_.as_str())
        })?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(End {
            success: found.type_ == "SuccessCriteriaMet",
            reason: text(&found.reason),
            message: text(&found.message),
        })
    }

    fn failure(&self) -> Option<End> {
        let failed = self.pods.iter().filter(|pod| self.has_failed(pod));
        let fatal = failed
            .map(|pod| policy::judge(self.job, pod))
            .find_map(|verdict| match verdict {
                Verdict::FailJob(message) => Some(message),
                _ => None,
            });
        if let Some(message) = fatal {
            return Some(End::new(false, "PodFailurePolicy", message));
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed > limit || self.restarts_reach(limit) {
            let message = "Job has reached the specified backoff limit";
            return Some(End::new(false, "BackoffLimitExceeded", message));
        }
        if self.deadline_in() == Some(Duration::ZERO) {
            let message = "Job was active longer than specified deadline";
            return Some(End::new(false, "DeadlineExceeded", message));
        }
        None
    }

    /// Containers that are restarted in place are failures, too (`pastBackoffLimitOnFailure`).
    fn restarts_reach(&self, limit: i32) -> bool {
        let policy = self
            .spec
            .template
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let living = self
            .pods
            .iter()
            .filter(|pod| ["Running", "Pending"].contains(&pods::phase(pod)));
        let restarts = living.filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
            let all = status
                .container_statuses
                .iter()
                .chain(&status.init_container_statuses)
                .flatten();
            all.map(|container| container.restart_count).collect::<Vec<_>>()
        });
        let total = restarts.fold(0_i32, i32::saturating_add);
        total >= limit.max(1)
    }

    /// How long until the deadline of an active Job.
    pub(super) fn deadline_in(&self) -> Option<Duration> {
        let limit = self.spec.active_deadline_seconds.filter(|_| !self.is_suspended())?;
        let started = self.status.start_time.as_ref()?.0;
        let passed = Duration::try_from(self.now.duration_since(started)).unwrap_or(Duration::ZERO);
        Some(Duration::from_secs(u64::try_from(limit).unwrap_or(0)).saturating_sub(passed))
    }

    fn index_failure(&self) -> Option<End> {
        let completions = self.indexed().filter(|_| self.spec.backoff_limit_per_index.is_some())?;
        let failed = self.failed_indexes.total();
        if self.spec.max_failed_indexes.is_some_and(|limit| failed > limit) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(End::new(false, "MaxFailedIndexesExceeded", message));
        }
        if failed > 0 && failed.saturating_add(self.succeeded_indexes.total()) >= completions {
            return Some(End::new(false, "FailedIndexes", "Job has failed indexes"));
        }
        None
    }

    /// Whether nothing is left to do (asked when no pod is active).
    pub(super) fn is_complete(&self) -> bool {
        match self.spec.completions {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0,
        }
    }

    /// How many pods should be active.
    fn wanted(&self, active: i32) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        match self.spec.completions {
            // After the first success the others only end.
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => completions.saturating_sub(self.succeeded).clamp(0, parallelism.max(0)),
        }
    }

    /// The active pods that are too many, and how many are missing.
    pub(super) fn balance(&self) -> (Vec<&'a Pod>, usize) {
        let active: Vec<&Pod> = self.active().collect();
        let number = i32::try_from(active.len()).unwrap_or(i32::MAX);
        let wanted = match self.is_suspended() {
            true => 0,
            false => self.wanted(number),
        };
        let mut useless: Vec<&Pod> = self.indexed().map(|_| self.useless()).unwrap_or_default();
        let excess = usize::try_from(number.saturating_sub(wanted)).unwrap_or(0);
        if excess > useless.len() {
            let rest: Vec<&Pod> = active.iter().copied().filter(|pod| !is_among(pod, &useless)).collect();
            let more = excess - useless.len();
            useless.extend(pods::to_delete(&rest, &[], more));
        }
        if !useless.is_empty() {
            return (useless, 0);
        }
        let leaving = match self.replaces_only_failed() {
            true => self.pods.iter().filter(|pod| pods::is_terminating(pod)).count(),
            false => 0,
        };
        let occupied = active.len().saturating_add(leaving);
        (useless, usize::try_from(wanted).unwrap_or(0).saturating_sub(occupied))
    }

    /// Active pods that work for an index that is not wanted: cut off, done, given up, or another pod's.
    fn useless(&self) -> Vec<&'a Pod> {
        let completions = self.indexed().unwrap_or(0);
        let mut taken = BTreeSet::new();
        let wanted = |index: i32| {
            index < completions && !self.succeeded_indexes.contains(index) && !self.failed_indexes.contains(index)
        };
        let needless = |pod: &&Pod| index(pod).is_none_or(|index| !wanted(index) || !taken.insert(index));
        self.active().filter(needless).collect()
    }

    /// Which of the first indexes that no pod works for may begin, and how long the next of them waits
    /// (`firstPendingIndexes`, then `getPodCreationInfoForIndependentIndexes`). An index that waits keeps its place:
    /// later ones do not go before it.
    pub(super) fn pending_indexes(&self, count: usize) -> (Vec<i32>, Option<Duration>) {
        let busy: BTreeSet<i32> = match self.replaces_only_failed() {
            true => self
                .pods
                .iter()
                .filter(|pod| !pods::is_finished(pod))
                .filter_map(|pod| index(pod))
                .collect(),
            false => self.active().filter_map(index).collect(),
        };
        let (mut found, mut wait) = (Vec::new(), None);
        let is_pending = |index: &i32| {
            !busy.contains(index) && !self.succeeded_indexes.contains(*index) && !self.failed_indexes.contains(*index)
        };
        for index in (0..self.indexed().unwrap_or(0)).filter(is_pending).take(count) {
            match self.index_waits(index) {
                Duration::ZERO => found.push(index),
                left => wait = Some(wait.map_or(left, |known: Duration| known.min(left))),
            }
        }
        (found, wait)
    }

    /// With a limit for each index each has a back-off of its own.
    fn index_waits(&self, index: i32) -> Duration {
        let Some(last) = self.last_of(index) else {
            return Duration::ZERO;
        };
        let failures = u32::try_from(number(&last.metadata, INDEX_FAILURES)).unwrap_or(0);
        let failures = match self.counts(last) {
            true => failures.saturating_add(1),
            false => u32::try_from(number(&last.metadata, INDEX_IGNORED))
                .unwrap_or(0)
                .saturating_add(1),
        };
        super::backoff::remaining(failures, super::backoff::finished(last, self.now), self.now)
    }

    /// The last pod of an index, which carries the count of its failures until another takes it over.
    pub(super) fn last_of(&self, wanted: i32) -> Option<&'a Pod> {
        self.spec.backoff_limit_per_index?;
        let mine = self.pods.iter().copied().filter(|pod| index(pod) == Some(wanted));
        let failed = mine.filter(|pod| is_tracked(pod) && self.has_failed(pod));
        failed.max_by_key(|pod| {
            (
                number(&pod.metadata, INDEX_FAILURES),
                number(&pod.metadata, INDEX_IGNORED),
            )
        })
    }

    /// The pods whose finalizer may go when they are counted.
    pub(super) fn to_count(&self, over: Option<&End>) -> Vec<&'a Pod> {
        // A Job that goes waits for none of its pods (`canRemoveFinalizer`).
        let all = over.is_some() || meta::is_deleting(&self.job.metadata);
        let settled = |pod: &&Pod| {
            let finished = pods::phase(pod) == "Succeeded" || self.has_failed(pod);
            is_tracked(pod) && (all || (finished && !self.carries_a_count(pod)))
        };
        self.pods.iter().copied().filter(settled).collect()
    }

    /// A failed pod whose index comes again, before its successor exists (`podsWithDelayedDeletionPerIndex`).
    fn carries_a_count(&self, pod: &Pod) -> bool {
        let Some(of) = index(pod).filter(|_| self.spec.backoff_limit_per_index.is_some()) else {
            return false;
        };
        let waits = !self.failed_indexes.contains(of) && !self.succeeded_indexes.contains(of);
        let replaces = |other: &Pod| index(other) == Some(of) && pods::is_active(other);
        let below = self.indexed().is_some_and(|completions| of < completions);
        below
            && waits
            && self.has_failed(pod)
            && !self.pods.iter().copied().any(replaces)
            && self.last_of(of).is_some_and(|last| uid(last) == uid(pod))
    }
}

fn sum(counted: Option<i32>, more: usize) -> i32 {
    counted
        .unwrap_or(0)
        .saturating_add(i32::try_from(more).unwrap_or(i32::MAX))
}

fn is_among(pod: &Pod, others: &[&Pod]) -> bool {
    others.iter().any(|other| uid(other) == uid(pod))
}

pub(super) fn uid(pod: &Pod) -> &str {
    meta::uid(&pod.metadata)
}

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|name| name == TRACKING)
}

/// Which completion the pod works for.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    let index: i32 = meta::annotation(&pod.metadata, INDEX)?.parse().ok()?;
    (index >= 0).then_some(index)
}

pub(super) fn number(meta: &ObjectMeta, annotation: &str) -> i32 {
    meta::annotation(meta, annotation)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(metadata: Value, mut spec: Value) -> Job {
        spec["template"] = json!({});
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a Job")
    }

    /// A pod of this index, and the number of its index's failures before it.
    fn pod(name: &str, phase: &str, index: i32, failures: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "finalizers": [TRACKING],
                "annotations": { INDEX: index.to_string(), INDEX_FAILURES: failures.to_string() } },
            "status": { "phase": phase, "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": { "terminated": { "exitCode": 1, "finishedAt": "1970-01-01T00:00:00Z" } } }] },
        }))
        .expect("a pod")
    }

    /// Which pods are let go.
    #[test]
    fn pods_that_are_freed() {
        let check = |metadata: Value, spec: Value, expected: &[&str]| {
            let job = job(metadata.clone(), spec.clone());
            let all = [pod("waits", "Pending", 0, 0), pod("failed", "Failed", 1, 0)];
            let spec = job.spec.as_ref().expect("a spec");
            let state = State::of(&job, spec, all.iter().collect(), Timestamp::UNIX_EPOCH);
            let freed: Vec<&str> = state.to_count(None).into_iter().map(uid).collect();
            assert_eq!(freed, expected, "{metadata} {spec:?}");
        };
        let going = || json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let failed = || json!({ "podReplacementPolicy": "Failed" });
        check(json!({}), json!({}), &["failed"]);
        check(json!({}), failed(), &["failed"]);
        check(going(), json!({}), &["waits", "failed"]);
        check(going(), failed(), &["waits", "failed"]);
    }

    /// An index that waits for its back-off keeps its place.
    #[test]
    fn the_next_indexes() {
        let check = |count: usize, seconds: i64, expected: &[i32], waits: Option<u64>| {
            let spec =
                json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 2, "backoffLimitPerIndex": 3 });
            let job = job(json!({}), spec);
            let all = [pod("a", "Failed", 0, 0)];
            let spec = job.spec.as_ref().expect("a spec");
            let now = Timestamp::from_second(seconds).expect("small");
            let state = State::of(&job, spec, all.iter().collect(), now);
            let (found, wait) = state.pending_indexes(count);
            assert_eq!(
                (found.as_slice(), wait.map(|wait| wait.as_secs())),
                (expected, waits),
                "{count} at {seconds}"
            );
        };
        check(1, 3, &[], Some(7));
        check(1, 10, &[0], None);
        check(2, 3, &[1], Some(7));
        check(3, 10, &[0, 1, 2], None);
    }
}
