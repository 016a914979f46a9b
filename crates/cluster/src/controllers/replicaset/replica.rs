//! A pod as those see it who want so many of it: whose it is, whether it counts, and how dear it is.
//!
//! Each look at a ReplicaSet is one at all its pods, hundreds of times while they come up. A whole pod takes ten
//! thousand bytes in memory, and to read it takes three times as long.
//!
//! Pure. Invariant: whatever [`pods`], `status` and `claim` ask of a pod is answered as by the whole one.

use kubewright::k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

use crate::controllers::pods;

/// A pod without what does not matter here.
#[derive(Debug, Deserialize)]
#[serde(from = "Whole")]
pub(super) struct Replica(pub(super) Pod);

/// What is read of it.
#[derive(Deserialize)]
struct Whole {
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<Container>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    last_transition_time: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    restart_count: i32,
}

impl From<Whole> for Replica {
    fn from(whole: Whole) -> Replica {
        let mut metadata = whole.metadata;
        metadata.managed_fields = None;
        metadata.annotations = metadata.annotations.and_then(|mut all| {
            let (name, cost) = all.remove_entry(pods::DELETION_COST)?;
            Some([(name, cost)].into())
        });
        Replica(Pod {
            metadata,
            spec: whole.spec.map(|spec| PodSpec {
                node_name: spec.node_name,
                ..PodSpec::default()
            }),
            status: whole.status.map(PodStatus::from),
        })
    }
}

impl From<Status> for PodStatus {
    fn from(status: Status) -> PodStatus {
        let mut conditions = status.conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let ready = ready.map(|ready| PodCondition {
            type_: ready.type_,
            status: ready.status,
            last_transition_time: ready.last_transition_time,
            ..PodCondition::default()
        });
        let containers = status.container_statuses.into_iter().flatten();
        let restarts = containers.map(|container| container.restart_count).max();
        // Those that were never restarted are nearly all.
        let restarts = restarts.filter(|restarts| *restarts > 0);
        PodStatus {
            phase: status.phase,
            conditions: ready.map(|ready| vec![ready]),
            container_statuses: restarts.map(|restart_count| {
                vec![ContainerStatus {
                    restart_count,
                    ..ContainerStatus::default()
                }]
            }),
            ..PodStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use kubewright::k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    /// Everything that is asked of a pod here.
    fn answers(pod: &Pod) -> Value {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
        let wait = pods::available_in(pod, 30, now).map(|wait| wait.as_secs());
        let other: Pod = serde_json::from_value(json!({
            "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { pods::DELETION_COST: "3" } },
            "spec": { "nodeName": "n", "containers": [] },
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z" }],
                "containerStatuses": [{ "name": "c", "ready": true, "restartCount": 2, "image": "i", "imageID": "i" }],
            },
        }))
        .expect("a pod");
        let order = match pods::deletion_order(pod, &other, |_| 0) {
            Ordering::Less => "before",
            Ordering::Equal => "with",
            Ordering::Greater => "after",
        };
        let meta = &pod.metadata;
        json!({
            "of": [meta.namespace, meta.name, meta.uid, meta.resource_version, meta.labels, meta.owner_references],
            "is": [pods::is_finished(pod), pods::is_active(pod), pods::is_terminating(pod), pods::is_ready(pod)],
            "phase": pods::phase(pod), "node": pods::node(pod), "available in": wait, "goes": order,
        })
    }

    #[test]
    fn it_answers_as_the_whole_pod() {
        let check = |what: &str, pod: Value| {
            let whole: Pod = serde_json::from_value(pod.clone()).expect("a pod");
            let Replica(part) = serde_json::from_value(pod).expect("a pod");
            assert_eq!(answers(&part), answers(&whole), "{what}");
        };
        let metadata = json!({
            "name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": { "app": "web" },
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true }],
        });
        let with = |name: &str, value: Value| {
            let mut metadata = metadata.clone();
            metadata[name] = value;
            metadata
        };
        let spec = json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "app:1" }] });
        let status = |phase: &str, ready: &str, restarts: &[i32]| {
            let containers: Vec<Value> = restarts
                .iter()
                .map(|count| json!({ "name": "c", "ready": true, "restartCount": count, "image": "i", "imageID": "i" }))
                .collect();
            json!({ "phase": phase, "containerStatuses": containers, "conditions": [
                { "type": "PodScheduled", "status": "True" },
                { "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:05Z" },
            ] })
        };
        check("new", json!({ "metadata": metadata }));
        check("nulls", json!({ "metadata": metadata, "spec": null, "status": null }));
        check(
            "not placed",
            json!({ "metadata": metadata, "spec": { "containers": [] }, "status": {} }),
        );
        let ready = status("Running", "True", &[0, 0]);
        check("ready", json!({ "metadata": metadata, "spec": spec, "status": ready }));
        let cheap = with("annotations", json!({ pods::DELETION_COST: "-1", "a": "b" }));
        check("cheap", json!({ "metadata": cheap, "spec": spec, "status": ready }));
        let going = with("deletionTimestamp", json!("2026-01-01T00:00:09Z"));
        check("going", json!({ "metadata": going, "spec": spec, "status": ready }));
        for (phase, is_ready, restarts) in [
            ("Running", "False", &[][..]),
            ("Running", "True", &[2]),
            ("Running", "True", &[0, 3]),
            ("Failed", "False", &[0]),
            ("Succeeded", "False", &[0]),
            ("Unknown", "Unknown", &[1]),
        ] {
            let what = format!("{phase} {is_ready} {restarts:?}");
            let equal_cost = with("annotations", json!({ pods::DELETION_COST: "3" }));
            let status = status(phase, is_ready, restarts);
            check(&what, json!({ "metadata": equal_cost, "spec": spec, "status": status }));
        }
    }
}
