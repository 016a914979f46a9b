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

/// SidecarSetSpec is the desired state of a SidecarSet: the containers, the pods that get them, and how these are
/// upgraded.
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
    /// The label selector of the pods that get the containers. Required; must not be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// If set, only pods in this namespace get the containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// If set, only pods in namespaces with these labels get the containers. `namespace` takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// Init containers. They are appended to the pod's own when the pod is created, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<SidecarContainer>,

    /// Sidecar containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<SidecarContainer>,

    /// Volumes of the sidecars. A pod gets those that an injected container mounts. A volume of the pod with the same
    /// name takes precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub volumes: Vec<Volume>,

    /// Secrets for pulling the images. They are appended to the pod's own when the pod is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Whether new pods get the containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_strategy: Option<InjectionStrategy>,

    /// How pods that have the containers are upgraded.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,

    /// The number of unused ControllerRevisions to keep. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
}

/// Whether new pods get the containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionStrategy {
    /// If true, new pods do not get the containers. Pods that have them are still upgraded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How pods are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// The type of the update strategy. Default: RollingUpdate.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpdateStrategyType>,

    /// If true, no more pods are upgraded. New pods still get the latest revision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// If set, only pods with these labels are upgraded. Cannot be used together with `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// The number or percentage of pods that keep their revision. A percentage is rounded up, but below 100% at least
    /// one pod is upgraded. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrString>,

    /// The number or percentage of pods that may be unavailable because of the upgrade. A percentage is rounded up.
    /// Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Whether pods are upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Images are upgraded in place, a few pods at a time.
    RollingUpdate,
    /// Only new pods get the latest revision.
    NotUpdate,
}

/// SidecarSetStatus is the observed state of a SidecarSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSetStatus {
    /// The generation that the operator observed last.
    #[serde(default)]
    pub observed_generation: i64,
    /// The number of pods that have the containers.
    #[serde(default)]
    pub matched_pods: i32,
    /// The number of pods of the latest revision.
    #[serde(default)]
    pub updated_pods: i32,
    /// The number of pods that are ready and whose containers run the images of their spec.
    #[serde(default)]
    pub ready_pods: i32,
    /// The number of pods of the latest revision that are ready.
    #[serde(default)]
    pub updated_ready_pods: i32,
    /// The name of the ControllerRevision of the current spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<String>,
    /// The number of hash collisions of ControllerRevision names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// A list of objects whose fields the API server validates elsewhere: the schema of a Volume alone is larger than the
/// rest of the CRD.
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
