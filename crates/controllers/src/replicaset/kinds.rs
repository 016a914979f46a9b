//! The two kinds that are "as many pods as wished": ReplicaSet, and its elder ReplicationController, which Kubernetes
//! runs by the same code behind adapters (`pkg/controller/replication`).
//!
//! Pure. Not here: anything that the two have in common.

use std::collections::BTreeMap;

use kubewright::Object;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use kubewright_objects::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};

use kubewright_objects::meta;

/// The view of the controller on an object of either kind.
pub(crate) trait Replicated: Object {
    /// The controller's name, which is also the component of its events.
    const CONTROLLER: &'static str;

    /// The wanted state in the spec; `None` without a spec.
    fn desired(&self) -> Option<Desired>;
    /// The status, in the form of a ReplicaSet's.
    fn present(&self) -> Option<ReplicaSetStatus>;
    /// The same object with another status.
    fn with(&self, status: ReplicaSetStatus) -> Self;
}

/// A spec.
#[derive(Debug, Clone, Default)]
pub(crate) struct Desired {
    pub(crate) replicas: i32,
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplateSpec,
}

impl Desired {
    /// The labels of a pod as the template makes it.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.template.metadata.as_ref().map_or(&NONE, meta::labels)
    }
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";

    fn desired(&self) -> Option<Desired> {
        let spec = self.spec.as_ref()?;
        Some(Desired {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: spec.selector.clone(),
            template: spec.template.clone().unwrap_or_default(),
        })
    }

    fn present(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn with(&self, status: ReplicaSetStatus) -> ReplicaSet {
        ReplicaSet {
            status: Some(status),
            ..self.clone()
        }
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";

    fn desired(&self) -> Option<Desired> {
        let spec = self.spec.as_ref()?;
        Some(Desired {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: LabelSelector {
                match_labels: spec.selector.clone(),
                match_expressions: None,
            },
            template: spec.template.clone().unwrap_or_default(),
        })
    }

    fn present(&self) -> Option<ReplicaSetStatus> {
        let status = self.status.clone()?;
        Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status
                .conditions
                .map(|conditions| conditions.into_iter().map(condition_of_set).collect()),
            terminating_replicas: None,
        })
    }

    fn with(&self, status: ReplicaSetStatus) -> ReplicationController {
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            // It has no count of terminating pods.
            conditions: status
                .conditions
                .map(|conditions| conditions.into_iter().map(condition_of_controller).collect()),
        };
        ReplicationController {
            status: Some(status),
            ..self.clone()
        }
    }
}

fn condition_of_set(condition: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}

fn condition_of_controller(condition: ReplicaSetCondition) -> ReplicationControllerCondition {
    ReplicationControllerCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A status survives the way through the common form.
    #[test]
    fn a_replication_controller_in_the_form_of_a_replica_set() {
        let status = json!({
            "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 4,
            "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no" }],
        });
        let controller: ReplicationController = serde_json::from_value(json!({
            "metadata": { "name": "web" }, "status": status,
            "spec": { "replicas": 3, "selector": { "app": "web" },
                      "template": { "metadata": { "labels": { "app": "web" } } } },
        }))
        .expect("a ReplicationController");
        let there_and_back = controller.with(controller.present().expect("a status"));
        assert_eq!(there_and_back, controller);
        let desired = controller.desired().expect("a spec");
        assert_eq!((desired.replicas, desired.min_ready_seconds), (3, 0));
        assert_eq!(
            desired.selector.match_labels,
            Some([("app".to_owned(), "web".to_owned())].into())
        );
    }
}
