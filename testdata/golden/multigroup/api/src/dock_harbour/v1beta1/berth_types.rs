//! Berth: what people ask for, and what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Berth.
// Change it to your liking, then run `kubewright manifests`. Comments with three slashes become the descriptions that `kubectl explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "dock.harbour.fleet.example",
    version = "v1beta1",
    kind = "Berth",
    plural = "berths",
    status = "BerthStatus",
    derive = "PartialEq",
    doc = "Berth is the schema of the berths API."
)]
#[serde(rename_all = "camelCase")]
pub struct BerthSpec {
    /// An example of a field.
    // Edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// What the operator has observed of a Berth.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BerthStatus {
    /// The state of the Berth, one condition for each aspect; the usual types are `Available`, `Progressing` and `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
