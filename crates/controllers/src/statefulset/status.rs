//! The status of a StatefulSet, out of its pods and revisions.
//!
//! Pure. Invariants: `availableReplicas` and `collisionCount` are always there, other counters only when they are not
//! 0, besides `replicas`; `currentRevision` becomes `updateRevision` when every pod is updated and ready, before
//! Kubernetes 1.37 never with OnDelete.

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::apps::v1::{StatefulSet, StatefulSetStatus};
use kubewright_objects::api::core::v1::Pod;

use super::plan;
use kubewright_model::Minor;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The names of the revisions that a status speaks of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revisions<'a> {
    pub(crate) current: &'a str,
    pub(crate) update: &'a str,
    /// Names that were taken by other templates.
    pub(crate) collisions: i32,
}

impl<'a> Revisions<'a> {
    /// Those of the last status.
    pub(crate) fn of(set: &'a StatefulSet) -> Revisions<'a> {
        let status = set.status.as_ref();
        Revisions {
            current: status
                .and_then(|status| status.current_revision.as_deref())
                .unwrap_or_default(),
            update: status
                .and_then(|status| status.update_revision.as_deref())
                .unwrap_or_default(),
            collisions: status.and_then(|status| status.collision_count).unwrap_or(0),
        }
    }
}

/// The status that these pods (those with an ordinal) make.
pub(crate) fn of(
    set: &StatefulSet,
    pods: &[&Pod],
    revisions: Revisions<'_>,
    now: Timestamp,
    minor: Minor,
) -> StatefulSetStatus {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let count =
        |fits: &dyn Fn(&Pod) -> bool| i32::try_from(pods.iter().filter(|pod| fits(pod)).count()).unwrap_or(i32::MAX);
    let some = |number: i32| (number != 0).then_some(number);
    let of_revision = |name: &str| count(&|pod| !meta::is_deleting(&pod.metadata) && plan::revision(pod) == name);
    let replicas = count(&|_| true);
    let ready = count(&plan::is_running_and_ready);
    let available = count(&|pod| plan::is_running_and_ready(pod) && pods::is_available(pod, min_ready, now));
    let updated = of_revision(revisions.update);
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let complete = (minor >= Minor::V37 || !on_delete) && updated == wanted && ready == wanted && replicas == wanted;
    let (current_revision, current) = match complete {
        true => (revisions.update, updated),
        false => (revisions.current, of_revision(revisions.current)),
    };
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(available),
        current_replicas: some(current),
        updated_replicas: some(updated),
        current_revision: Some(current_revision.to_owned()),
        update_revision: Some(revisions.update.to_owned()),
        observed_generation: set.metadata.generation,
        collision_count: Some(revisions.collisions),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::POD_LABEL;
    use serde_json::json;

    fn pod(revision: &str, ready: bool, deleting: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "labels": { POD_LABEL: revision }, "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"),
            },
            "status": { "phase": "Running", "conditions": [{
                "type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "status": if ready { "True" } else { "False" },
            }] },
        }))
        .expect("a pod")
    }

    #[test]
    fn counters() {
        let check_in = |minor: Minor, strategy: &str, pods: &[Pod], expected: serde_json::Value| {
            let set: StatefulSet = serde_json::from_value(json!({
                "metadata": { "generation": 2 },
                "spec": { "replicas": 2, "serviceName": "", "selector": {}, "template": {},
                          "updateStrategy": { "type": strategy } },
            }))
            .expect("a StatefulSet");
            let pods: Vec<&Pod> = pods.iter().collect();
            let revisions = Revisions {
                current: "one",
                update: "two",
                collisions: 0,
            };
            let now = "2026-01-01T00:00:05Z".parse().expect("a time");
            let mut status = serde_json::to_value(of(&set, &pods, revisions, now, minor)).expect("JSON");
            for (key, value) in [
                ("collisionCount", json!(0)),
                ("observedGeneration", json!(2)),
                ("updateRevision", json!("two")),
            ] {
                assert_eq!(status[key], value, "{key}");
                status.as_object_mut().expect("an object").remove(key);
            }
            assert_eq!(status, expected, "{strategy} {pods:?}");
        };
        let check = |strategy: &str, pods: &[Pod], expected| check_in(Minor::V36, strategy, pods, expected);
        let rolling = "RollingUpdate";
        check(
            rolling,
            &[],
            json!({ "replicas": 0, "availableReplicas": 0, "currentRevision": "one" }),
        );
        check(
            rolling,
            &[pod("one", true, false), pod("two", false, false)],
            json!({ "replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "currentReplicas": 1, "updatedReplicas": 1,
                    "currentRevision": "one" }),
        );
        check(
            rolling,
            &[pod("one", true, true)],
            json!({ "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "currentRevision": "one" }),
        );
        let new = [pod("two", true, false), pod("two", true, false)];
        check(
            rolling,
            &new,
            json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
                    "currentRevision": "two" }),
        );
        check(
            "OnDelete",
            &new,
            json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2,
                    "currentRevision": "one" }),
        );
        check_in(
            Minor::V37,
            "OnDelete",
            &new,
            json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
                    "currentRevision": "two" }),
        );
    }
}
