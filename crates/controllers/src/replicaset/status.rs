//! The status of a ReplicaSet, out of its pods.
//!
//! Pure. Invariant: counters that are 0 are absent, except `replicas` and `terminatingReplicas`.

use std::sync::Arc;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};

use super::kinds::{Desired, Replicated};
use super::replica::{Labels, Replica};
use kubewright_objects::meta;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Pods could not be made or deleted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub(crate) reason: &'static str,
    /// The API server's sentence.
    pub(crate) message: String,
}

/// The status that these pods (all that the owner has) make.
pub(crate) fn of<K: Replicated>(
    set: &K,
    desired: &Desired,
    owned: &[Arc<Replica>],
    labels: &Labels<'_>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let min_ready = desired.min_ready_seconds;
    let all = |fits: &dyn Fn(&Replica) -> bool| {
        i32::try_from(owned.iter().filter(|replica| fits(replica)).count()).unwrap_or(i32::MAX)
    };
    let active = |fits: &dyn Fn(&Replica) -> bool| all(&|replica| replica.is_active() && fits(replica));
    let some = |number: i32| (number != 0).then_some(number);
    let before = set.present().and_then(|status| status.conditions);
    ReplicaSetStatus {
        replicas: active(&|_| true),
        fully_labeled_replicas: some(active(&|replica| labels.are_full(replica))),
        ready_replicas: some(active(&Replica::is_ready)),
        available_replicas: some(active(&|replica| replica.is_available(min_ready, now))),
        terminating_replicas: Some(all(&Replica::is_terminating)),
        observed_generation: set.meta().generation,
        conditions: conditions(before, failure, now),
    }
}

fn conditions(
    before: Option<Vec<ReplicaSetCondition>>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = before.unwrap_or_default();
    let there = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        // The first failure stays until it is over: the names in later messages differ, and each would be a write that
        // causes the next.
        Some(_) if there => {}
        Some(failure) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(meta::time(now)),
        }),
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::View;
    use kubewright_objects::api::apps::v1::ReplicaSet;
    use kubewright_objects::api::core::v1::Pod;
    use serde_json::json;

    fn pod(app: &str, phase: &str, ready: bool, deleting: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "labels": { "app": app }, "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z") },
            "status": {
                "phase": phase,
                "conditions": [{
                    "type": "Ready",
                    "status": if ready { "True" } else { "False" },
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .expect("a pod")
    }

    fn set(min_ready: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": { "generation": 3 },
            "spec": {
                "minReadySeconds": min_ready,
                "selector": {},
                "template": { "metadata": { "labels": { "app": "web" } } },
            },
        }))
        .expect("a ReplicaSet")
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:02Z".parse().expect("a time")
    }

    fn status_of(set: &ReplicaSet, pods: &[Pod], failure: Option<&Failure>) -> ReplicaSetStatus {
        let desired = set.desired().expect("a spec");
        let selector = meta::selector("x", &desired.selector).expect("a good selector");
        let replicas: Vec<Arc<Replica>> = pods.iter().map(Replica::of).map(Arc::new).collect();
        of(
            set,
            &desired,
            &replicas,
            &Labels::of(&selector, desired.labels()),
            failure,
            now(),
        )
    }

    #[test]
    fn counters() {
        let check = |min_ready: i32, pods: &[Pod], expected: serde_json::Value| {
            let set = set(min_ready);
            let status = status_of(&set, pods, None);
            assert_eq!(serde_json::to_value(status).expect("JSON"), expected, "{pods:?}");
        };
        check(
            0,
            &[],
            json!({ "replicas": 0, "terminatingReplicas": 0, "observedGeneration": 3 }),
        );
        let pods = [
            pod("web", "Running", true, false),
            pod("web", "Pending", false, false),
            pod("lab", "Running", true, false),
            pod("web", "Running", true, true),
            pod("web", "Failed", false, false),
            pod("web", "Succeeded", false, true),
        ];
        check(
            0,
            &pods,
            json!({ "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
                    "terminatingReplicas": 1, "observedGeneration": 3 }),
        );
        check(
            3,
            &pods[..1],
            json!({ "replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "terminatingReplicas": 0, "observedGeneration": 3 }),
        );
    }

    #[test]
    fn a_failure_stays_as_first_said_and_goes() {
        let mut set = set(0);
        let mut check = |failure: Option<&str>, expected: Option<&str>| {
            let failure = failure.map(|message| Failure {
                reason: "FailedCreate",
                message: message.to_owned(),
            });
            let status = status_of(&set, &[], failure.as_ref());
            let said = status
                .conditions
                .as_ref()
                .and_then(|conditions| conditions[0].message.as_deref());
            assert_eq!(said, expected);
            set.status = Some(status);
        };
        check(Some("first"), Some("first"));
        check(Some("second"), Some("first"));
        check(None, None);
    }
}
