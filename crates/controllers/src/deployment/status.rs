//! The status of a Deployment: counters, conditions, and whether its rollout makes progress.
//!
//! Pure. Invariants: `observedGeneration` is the generation that the counters were computed for; a condition's
//! lastTransitionTime moves only with its status; counters that are 0 are absent, except `terminatingReplicas`.

use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::rollout::Bounds;
use kubewright_objects::meta;

/// Condition types.
pub(crate) const AVAILABLE: &str = "Available";
/// Whether the rollout moves.
pub(crate) const PROGRESSING: &str = "Progressing";
/// Pods could not be made or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of Progressing.
pub(crate) const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(crate) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(crate) const PAUSED: &str = "DeploymentPaused";

/// The counters of a status as plain numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replicas: i32,
    pub(crate) updated: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
}

impl Counts {
    /// Reads them back out of a status.
    pub(crate) fn of(status: &DeploymentStatus) -> Counts {
        Counts {
            replicas: status.replicas.unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
        }
    }

    fn is_complete(&self, wanted: i32) -> bool {
        self.updated == wanted && self.replicas == wanted && self.available == wanted
    }

    /// More of the new, or fewer of the old, or more that work: the rollout moved.
    fn moved_since(&self, before: &Counts) -> bool {
        self.updated > before.updated
            || self.replicas - self.updated < before.replicas - before.updated
            || self.ready > before.ready
            || self.available > before.available
    }
}

fn some(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// Counters and the condition Available, out of the ReplicaSets; other conditions stay as they are.
pub(crate) fn count(
    deployment: &Deployment,
    all: &[&ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let bounds = deployment.spec.as_ref().map(Bounds::of);
    let of = |number: fn(&kubewright_objects::api::apps::v1::ReplicaSetStatus) -> i32| -> i32 {
        all.iter().filter_map(|set| set.status.as_ref()).map(number).sum()
    };
    let available = of(|status| status.available_replicas.unwrap_or(0));
    let wanted: i32 = all
        .iter()
        .filter_map(|set| set.spec.as_ref())
        .map(|spec| spec.replicas.unwrap_or(1))
        .sum();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(of(|status| status.replicas)),
        updated_replicas: some(
            new.and_then(|set| set.status.as_ref())
                .map_or(0, |status| status.replicas),
        ),
        ready_replicas: some(of(|status| status.ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some((wanted - available).max(0)),
        terminating_replicas: Some(of(|status| status.terminating_replicas.unwrap_or(0))),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let enough = bounds.is_some_and(|bounds| available >= bounds.min_available());
    let available = if enough {
        condition(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
            now,
        )
    } else {
        condition(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
            now,
        )
    };
    set(&mut status, available);
    status
}

/// Conditions Progressing and ReplicaFailure after a step of a rollout.
pub(crate) fn judge(
    deployment: &Deployment,
    all: &[&ReplicaSet],
    new: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let what = || match new {
        Some(set) => format!("ReplicaSet {:?}", meta::name(&set.metadata)),
        None => format!("Deployment {:?}", meta::name(&deployment.metadata)),
    };
    let counts = Counts::of(status);
    let before = deployment.status.as_ref().map(Counts::of).unwrap_or_default();
    let present = get(status, PROGRESSING).cloned();
    // Complete and reported so, with nothing of an old ReplicaSet left: later changes of its pods are not a rollout.
    let over = counts.replicas == counts.updated
        && present
            .as_ref()
            .is_some_and(|present| present.reason.as_deref() == Some(NEW_AVAILABLE));
    if deadline(deployment).is_none() {
        remove(status, PROGRESSING);
    } else if !over {
        if counts.is_complete(wanted(deployment)) {
            set(
                status,
                condition(
                    PROGRESSING,
                    "True",
                    NEW_AVAILABLE,
                    &format!("{} has successfully progressed.", what()),
                    now,
                ),
            );
        } else if counts.moved_since(&before) {
            let mut moved = condition(
                PROGRESSING,
                "True",
                "ReplicaSetUpdated",
                &format!("{} is progressing.", what()),
                now,
            );
            if let Some(present) = present.filter(|present| present.status == "True") {
                moved.last_transition_time = present.last_transition_time;
            }
            // Removed first: lastUpdateTime has to move with every progress, the deadline counts from it.
            remove(status, PROGRESSING);
            set(status, moved);
        } else if time_left(deployment, present.as_ref(), now).is_some_and(|left| left.is_zero()) {
            set(
                status,
                condition(
                    PROGRESSING,
                    "False",
                    TIMED_OUT,
                    &format!("{} has timed out progressing.", what()),
                    now,
                ),
            );
        }
    }
    match failure(all, new) {
        Some((status_, reason, message)) => set(status, condition(REPLICA_FAILURE, &status_, &reason, &message, now)),
        None => remove(status, REPLICA_FAILURE),
    }
}

/// Whether all pods are of the present template and available: the rollout is over and history may be cleaned.
pub(crate) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    Counts::of(status).is_complete(wanted(deployment)) && status.observed_generation >= deployment.metadata.generation
}

/// How long until the rollout has to be looked at again because its deadline will have passed; `None` when no deadline
/// runs.
pub(crate) fn deadline_in(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let present = get(status, PROGRESSING)?;
    if Counts::of(status).is_complete(wanted(deployment)) || present.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    time_left(deployment, Some(present), now)
}

/// The condition that a pause brings, and that its end takes away; `None` when it says so already.
pub(crate) fn pause(deployment: &Deployment, now: Timestamp) -> Option<DeploymentCondition> {
    deadline(deployment)?;
    let present = deployment.status.as_ref().and_then(|status| get(status, PROGRESSING));
    let reason = present.and_then(|present| present.reason.as_deref());
    let paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
    match (paused, reason) {
        // A missed deadline is news that a pause must not hide.
        (_, Some(TIMED_OUT)) => None,
        (true, Some(PAUSED)) => None,
        (true, _) => Some(condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)),
        (false, Some(PAUSED)) => Some(condition(
            PROGRESSING,
            "Unknown",
            "DeploymentResumed",
            "Deployment is resumed",
            now,
        )),
        (false, _) => None,
    }
}

/// A condition as of now.
pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(meta::time(now)),
        last_update_time: Some(meta::time(now)),
    }
}

/// Puts a condition into a status. One of the same status and reason stays as it is, message included.
pub(crate) fn set(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|present| present.type_ == new.type_) {
        Some(present) if present.status == new.status && present.reason == new.reason => {}
        Some(present) => {
            if present.status == new.status {
                new.last_transition_time = present.last_transition_time.clone();
            }
            *present = new;
        }
        None => conditions.push(new),
    }
}

/// Takes a condition away.
pub(crate) fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

/// The condition of that type.
pub(crate) fn get<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// `spec.progressDeadlineSeconds`; the largest number stands for no deadline.
pub(crate) fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How long the rollout may still stand still; zero when it stood still for too long.
fn time_left(deployment: &Deployment, present: Option<&DeploymentCondition>, now: Timestamp) -> Option<Duration> {
    let (deadline, present) = (deadline(deployment)?, present?);
    match present.reason.as_deref() {
        Some(NEW_AVAILABLE | PAUSED) => None,
        Some(TIMED_OUT) => Some(Duration::ZERO),
        _ => {
            let moved = present.last_update_time.as_ref()?.0;
            let stood = Duration::try_from(now.duration_since(moved)).unwrap_or(Duration::ZERO);
            Some(deadline.saturating_sub(stood))
        }
    }
}

/// Status, reason and message of the ReplicaFailure of the new ReplicaSet, else of any other.
fn failure(all: &[&ReplicaSet], new: Option<&ReplicaSet>) -> Option<(String, String, String)> {
    new.into_iter()
        .chain(all.iter().copied())
        .filter_map(|set| set.status.as_ref()?.conditions.as_ref())
        .flatten()
        .find(|condition| condition.type_ == REPLICA_FAILURE)
        .map(|condition| {
            (
                condition.status.clone(),
                condition.reason.clone().unwrap_or_default(),
                condition.message.clone().unwrap_or_default(),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright_objects::api::apps::v1::{DeploymentSpec, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).expect("small")
    }

    fn deployment(replicas: i32) -> Deployment {
        Deployment {
            spec: Some(DeploymentSpec {
                replicas: Some(replicas),
                progress_deadline_seconds: Some(10),
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn set_of(name: &str, wanted: i32, there: i32, ready: i32) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        set.metadata.name = Some(name.to_owned());
        set.spec = Some(ReplicaSetSpec {
            replicas: Some(wanted),
            ..ReplicaSetSpec::default()
        });
        set.status = Some(ReplicaSetStatus {
            replicas: there,
            ready_replicas: some(ready),
            available_replicas: some(ready),
            ..ReplicaSetStatus::default()
        });
        set
    }

    fn next(
        deployment: &Deployment,
        old: &[&ReplicaSet],
        new: Option<&ReplicaSet>,
        now: Timestamp,
    ) -> DeploymentStatus {
        let all: Vec<&ReplicaSet> = old.iter().copied().chain(new).collect();
        let mut status = count(deployment, &all, new, now);
        judge(deployment, &all, new, &mut status, now);
        status
    }

    fn text(status: &DeploymentStatus) -> String {
        let conditions = status.conditions.iter().flatten();
        let mut words: Vec<String> = conditions
            .map(|c| format!("{}={}:{}", c.type_, c.status, c.reason.as_deref().unwrap_or_default()))
            .collect();
        words.sort();
        words.join(" ")
    }

    #[test]
    fn a_rollout_from_nothing_to_complete() {
        let mut deployment = deployment(2);
        let mut check = |seconds: i64, set: &ReplicaSet, expected: &str| {
            let status = next(&deployment, &[], Some(set), at(seconds));
            assert_eq!(text(&status), expected, "after {seconds} s with {:?}", set.status);
            deployment.status = Some(status);
        };
        const UNAVAILABLE: &str = "Available=False:MinimumReplicasUnavailable";
        check(0, &set_of("web-h", 2, 0, 0), UNAVAILABLE);
        check(
            1,
            &set_of("web-h", 2, 2, 0),
            &format!("{UNAVAILABLE} Progressing=True:ReplicaSetUpdated"),
        );
        check(
            5,
            &set_of("web-h", 2, 2, 1),
            &format!("{UNAVAILABLE} Progressing=True:ReplicaSetUpdated"),
        );
        // Ten seconds after the last progress, not after the beginning.
        check(
            14,
            &set_of("web-h", 2, 2, 1),
            &format!("{UNAVAILABLE} Progressing=True:ReplicaSetUpdated"),
        );
        check(
            15,
            &set_of("web-h", 2, 2, 1),
            &format!("{UNAVAILABLE} Progressing=False:ProgressDeadlineExceeded"),
        );
        check(
            20,
            &set_of("web-h", 2, 2, 1),
            &format!("{UNAVAILABLE} Progressing=False:ProgressDeadlineExceeded"),
        );
        const COMPLETE: &str = "Available=True:MinimumReplicasAvailable Progressing=True:NewReplicaSetAvailable";
        check(21, &set_of("web-h", 2, 2, 2), COMPLETE);
        // A pod that fails later is not a rollout.
        check(
            99,
            &set_of("web-h", 2, 2, 1),
            &format!("{UNAVAILABLE} Progressing=True:NewReplicaSetAvailable"),
        );
    }

    #[test]
    fn counters() {
        let (old, new) = (set_of("a", 2, 2, 2), set_of("b", 2, 2, 0));
        let status = count(&deployment(3), &[&old, &new], Some(&new), at(0));
        assert_eq!(
            Counts::of(&status),
            Counts {
                replicas: 4,
                updated: 2,
                ready: 2,
                available: 2
            }
        );
        assert_eq!(
            (status.unavailable_replicas, status.terminating_replicas),
            (Some(2), Some(0))
        );
        let none = count(&deployment(0), &[], None, at(0));
        assert_eq!(
            (none.replicas, none.updated_replicas, none.terminating_replicas),
            (None, None, Some(0))
        );
    }

    #[test]
    fn nothing_wanted_is_complete_at_once() {
        let status = next(&deployment(0), &[], Some(&set_of("a", 0, 0, 0)), at(0));
        assert_eq!(
            text(&status),
            "Available=True:MinimumReplicasAvailable Progressing=True:NewReplicaSetAvailable"
        );
    }

    #[test]
    fn failures_of_replica_sets_are_passed_on_and_taken_back() {
        let mut deployment = deployment(2);
        let mut set = set_of("a", 2, 1, 1);
        set.status.as_mut().expect("set above").conditions = Some(vec![ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some("FailedCreate".to_owned()),
            message: Some("no".to_owned()),
            last_transition_time: None,
        }]);
        let status = next(&deployment, &[], Some(&set), at(0));
        assert!(
            text(&status).ends_with("ReplicaFailure=True:FailedCreate"),
            "{}",
            text(&status)
        );
        deployment.status = Some(status);
        set.status.as_mut().expect("set above").conditions = None;
        assert!(!text(&next(&deployment, &[], Some(&set), at(1))).contains(REPLICA_FAILURE));
    }

    #[test]
    fn pausing() {
        let mut deployment = deployment(1);
        let mut check = |paused: bool, reason: Option<&str>, expected: Option<&str>| {
            deployment.spec.as_mut().expect("set").paused = Some(paused);
            deployment.status = reason.map(|reason| DeploymentStatus {
                conditions: Some(vec![condition(PROGRESSING, "True", reason, "", at(0))]),
                ..DeploymentStatus::default()
            });
            let condition = pause(&deployment, at(1));
            assert_eq!(
                condition.as_ref().and_then(|condition| condition.reason.as_deref()),
                expected,
                "{paused} {reason:?}"
            );
        };
        check(true, None, Some(PAUSED));
        check(true, Some("ReplicaSetUpdated"), Some(PAUSED));
        check(true, Some(PAUSED), None);
        check(true, Some(TIMED_OUT), None);
        check(false, Some(PAUSED), Some("DeploymentResumed"));
        check(false, Some("DeploymentResumed"), None);
        check(false, None, None);
    }

    #[test]
    fn the_deadline_wakes_the_controller() {
        let mut deployment = deployment(1);
        let status = next(&deployment, &[], Some(&set_of("a", 1, 1, 0)), at(0));
        assert_eq!(deadline_in(&deployment, &status, at(3)), Some(Duration::from_secs(7)));
        assert_eq!(deadline_in(&deployment, &status, at(30)), Some(Duration::ZERO));
        deployment.spec.as_mut().expect("set").progress_deadline_seconds = Some(i32::MAX);
        assert_eq!(deadline_in(&deployment, &status, at(3)), None);
    }
}
