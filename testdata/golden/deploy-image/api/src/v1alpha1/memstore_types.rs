//! Memstore: its spec, which users write, and its status, which the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// MemstoreSpec is the desired state of a Memstore.
// Change it to your liking, then run `kubewright manifests`. Comments with three slashes become the descriptions that `kubectl explain` shows.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cache.my.domain",
    version = "v1alpha1",
    kind = "Memstore",
    plural = "memstores",
    namespaced,
    status = "MemstoreStatus",
    derive = "PartialEq",
    doc = "Memstore is the schema of the memstores API.",
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MemstoreSpec {
    /// How many pods run the image.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub size: i32,

    /// The port that the container listens on.
    pub container_port: i32,
}

fn one() -> i32 {
    1
}

impl Default for MemstoreSpec {
    fn default() -> Self {
        MemstoreSpec {
            size: one(),
            container_port: 11211,
        }
    }
}

/// MemstoreStatus is the observed state of a Memstore.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemstoreStatus {
    /// Conditions of the Memstore, one for each aspect. `Available` is True when the Memstore is as its spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
