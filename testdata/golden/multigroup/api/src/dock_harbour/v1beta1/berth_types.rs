//! Berth: its spec, which users write, and its status, which the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// BerthSpec is the desired state of a Berth.
// Change it to your liking, then run `kubewright manifests`. Comments with three slashes become the descriptions that `kubectl explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "dock.harbour.fleet.example",
    version = "v1beta1",
    kind = "Berth",
    plural = "berths",
    status = "BerthStatus",
    derive = "PartialEq",
    doc = "Berth is the schema of the berths API.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BerthSpec {
    /// An example of a field.
    // Edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// BerthStatus is the observed state of a Berth.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BerthStatus {
    /// Conditions of the Berth, one for each aspect. `Ready` is True when the Berth is as its spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
