//! A container of a SidecarSet: a `core/v1` Container with a few words on how it is injected and upgraded.

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A container to inject.
///
/// It also has all fields of a `core/v1` Container. The validating webhook lets the API server validate them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct SidecarContainer {
    /// The container itself.
    #[serde(flatten)]
    #[schemars(skip)]
    pub container: Container,

    /// The position of the container. Default: BeforeAppContainer; AfterAppContainer for init containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_inject_policy: Option<PodInjectPolicy>,

    /// How the container is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,

    /// Whether the container gets the volume mounts of the pod's own containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_volume_policy: Option<ShareVolumePolicy>,

    /// Environment variables to copy from the pod's own containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer_env: Vec<TransferEnv>,

    /// OpenKruise's resource policy. Not supported: the validating webhook rejects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub resources_policy: Option<Value>,

    /// OpenKruise's sharing of block devices. Not supported: the validating webhook rejects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub share_volume_device_policy: Option<Value>,
}

/// The position of a sidecar among the pod's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PodInjectPolicy {
    /// Before the pod's own containers.
    #[serde(rename = "BeforeAppContainer")]
    Before,
    /// After the pod's own containers.
    #[serde(rename = "AfterAppContainer")]
    After,
}

/// How a sidecar is upgraded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStrategy {
    /// The type of the upgrade. Default: ColdUpgrade. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_type: Option<UpgradeType>,
}

/// How a sidecar is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UpgradeType {
    /// The container is restarted with the new image.
    ColdUpgrade,
    /// Two containers alternate. Not supported: the validating webhook rejects it.
    HotUpgrade,
}

/// Whether a sidecar gets the volume mounts of the pod's own containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ShareVolumePolicy {
    /// Whether volume mounts are shared. Default: disabled.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ShareVolumePolicyType>,
}

/// Whether a sidecar gets the volume mounts of the pod's own containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareVolumePolicyType {
    /// They are shared, except those at a path where the sidecar mounts something else.
    Enabled,
    /// They are not shared.
    Disabled,
}

/// Environment variables to copy from one of the pod's own containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferEnv {
    /// The name of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_container_name: Option<String>,
    /// The source of the container's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_container_name_from: Option<SourceContainerName>,
    /// The name of the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_name: Option<String>,
    /// The names of more variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_names: Vec<String>,
}

/// The source of a container's name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceContainerName {
    /// A label or an annotation of the pod: `metadata.labels['name']` or `metadata.annotations['name']`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
}
