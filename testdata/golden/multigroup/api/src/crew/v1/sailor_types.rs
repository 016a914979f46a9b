//! Sailor: what people ask for, and what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Sailor.
// Change it to your liking, then run `kubewright manifests`. Comments with three slashes become the descriptions that `kubectl explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "crew.fleet.example",
    version = "v1",
    kind = "Sailor",
    namespaced,
    status = "SailorStatus",
    shortname = "sail",
    printcolumn(name = "Rank", type_ = "string", json_path = ".spec.rank"),
    derive = "PartialEq",
    doc = "Sailor is the schema of the sailors API."
)]
#[serde(rename_all = "camelCase")]
pub struct SailorSpec {
    /// The rank aboard.
    #[serde(default)]
    pub rank: Rank,

    /// The number of the bunk; a captain has a cabin instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub bunk: Option<i32>,
}

/// What a sailor is aboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Rank {
    /// Works the ship.
    #[default]
    Deckhand,
    /// Sees to it that it is done.
    Bosun,
    /// Answers for it.
    Captain,
}

/// What the operator has observed of a Sailor.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SailorStatus {
    /// The state of the Sailor, one condition for each aspect; the usual types are `Available`, `Progressing` and `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
