//! A container of a SidecarSet: a `core/v1` Container with a few words on how it is injected and upgraded.

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A container that is injected.
///
/// All fields of a `core/v1` Container stand beside those listed here; the validating webhook has the API server check them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct SidecarContainer {
    /// The container itself.
    #[serde(flatten)]
    #[schemars(skip)]
    pub container: Container,

    /// Where it stands. Default: BeforeAppContainer, for init containers AfterAppContainer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_inject_policy: Option<PodInjectPolicy>,

    /// How it is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,

    /// Whether it mounts what the pod's own containers mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_volume_policy: Option<ShareVolumePolicy>,

    /// Environment variables that it takes over from the pod's own containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer_env: Vec<TransferEnv>,

    /// OpenKruise's resources by rule. Not supported: the validating webhook refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub resources_policy: Option<Value>,

    /// OpenKruise's sharing of block devices. Not supported: the validating webhook refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub share_volume_device_policy: Option<Value>,
}

/// Where a sidecar stands among the pod's containers.
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
    /// Default: ColdUpgrade. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_type: Option<UpgradeType>,
}

/// How a sidecar is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UpgradeType {
    /// The container is restarted with the new image.
    ColdUpgrade,
    /// Two containers take turns. Not supported: the validating webhook refuses it.
    HotUpgrade,
}

/// Whether a sidecar mounts what the pod's own containers mount.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ShareVolumePolicy {
    /// Default: disabled.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ShareVolumePolicyType>,
}

/// Whether a sidecar mounts what the pod's own containers mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareVolumePolicyType {
    /// It does, unless it mounts something else at the same path.
    Enabled,
    /// It does not.
    Disabled,
}

/// Environment variables that a sidecar takes over from one of the pod's own containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferEnv {
    /// The name of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_container_name: Option<String>,
    /// Where the name of the container is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_container_name_from: Option<SourceContainerName>,
    /// The name of the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_name: Option<String>,
    /// The names of further variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_names: Vec<String>,
}

/// Where the name of a container is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceContainerName {
    /// A label or an annotation of the pod: `metadata.labels['name']`, `metadata.annotations['name']`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
}
