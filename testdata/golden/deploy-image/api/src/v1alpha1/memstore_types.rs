//! Memstore: what people ask for, and what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Memstore.
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
    doc = "Memstore is the schema of the memstores API."
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

/// What the operator has observed of a Memstore.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemstoreStatus {
    /// The state of the Memstore, one condition for each aspect; the usual types are `Available`, `Progressing` and `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
