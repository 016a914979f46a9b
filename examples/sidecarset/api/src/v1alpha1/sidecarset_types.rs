//! SidecarSet: what people ask for, and what the operator answers.
//!
//! The fields and their JSON are those of OpenKruise's `apps.kruise.io/v1alpha1`. A field that this operator does not act upon is either absent, so
//! that strict clients are told, or of a type whose values the validating webhook refuses.

#![allow(clippy::duplicated_attributes)] // several printer columns have the same type

use k8s_openapi::api::core::v1::{LocalObjectReference, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::SidecarContainer;

/// What is wanted of a SidecarSet: which containers go into which pods, and how pods that have them are upgraded.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "SidecarSet",
    status = "SidecarSetStatus",
    derive = "PartialEq",
    doc = "SidecarSet injects containers into pods when they are created, and upgrades the images of these containers in place.",
    printcolumn(
        name = "MATCHED",
        type_ = "integer",
        json_path = ".status.matchedPods",
        description = "The number of pods that have the containers."
    ),
    printcolumn(
        name = "UPDATED",
        type_ = "integer",
        json_path = ".status.updatedPods",
        description = "The number of these pods that are of the latest revision."
    ),
    printcolumn(
        name = "READY",
        type_ = "integer",
        json_path = ".status.readyPods",
        description = "The number of these pods that are ready."
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSetSpec {
    /// Pods with these labels get the containers. Required, and not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// Only pods in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Only pods in namespaces with these labels. `namespace` wins when both are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// Init containers, appended to the pod's own in the order of their names when the pod is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<SidecarContainer>,

    /// The sidecars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<SidecarContainer>,

    /// Volumes that the sidecars mount. A pod gets those that an injected container mounts; one of the pod's own of the same name wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub volumes: Vec<Volume>,

    /// Secrets for pulling the images, appended to the pod's own when it is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Whether new pods get the containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_strategy: Option<InjectionStrategy>,

    /// How pods that have the containers are upgraded.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,

    /// How many ControllerRevisions that no pod uses are kept. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
}

/// Whether new pods get the containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionStrategy {
    /// New pods get nothing. Pods that have the containers are upgraded all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How pods are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Whether pods are upgraded at all. Default: RollingUpdate.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpdateStrategyType>,

    /// No further pod is upgraded. New pods get the latest revision all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// Only pods with these labels are upgraded. Not together with a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// How many pods, or which percentage rounded up, keep their revision. Default: 0. Below 100 % at least one pod is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrString>,

    /// How many pods, or which percentage rounded up, may be unavailable because of the upgrade. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Whether pods are upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Images are changed in place, some pods at a time.
    RollingUpdate,
    /// Only new pods get the latest revision.
    NotUpdate,
}

/// What the operator has observed of a SidecarSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSetStatus {
    /// The generation that this status answers.
    #[serde(default)]
    pub observed_generation: i64,
    /// Pods that have the containers.
    #[serde(default)]
    pub matched_pods: i32,
    /// Pods of the latest revision.
    #[serde(default)]
    pub updated_pods: i32,
    /// Pods whose containers run what their spec says, and that are ready.
    #[serde(default)]
    pub ready_pods: i32,
    /// Pods that are both.
    #[serde(default)]
    pub updated_ready_pods: i32,
    /// The name of the ControllerRevision of the present spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<String>,
    /// How often the name of a ControllerRevision was taken by another content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// A list of objects whose fields the API server checks elsewhere: the schema of a Volume alone is larger than the rest of the definition.
fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

impl SidecarSet {
    /// Whether pods that have the containers are upgraded in place.
    pub fn is_rolling(&self) -> bool {
        self.spec.update_strategy.type_ != Some(UpdateStrategyType::NotUpdate)
    }

    /// Whether new pods get the containers.
    pub fn injects(&self) -> bool {
        !self
            .spec
            .injection_strategy
            .as_ref()
            .is_some_and(|strategy| strategy.paused)
    }
}
