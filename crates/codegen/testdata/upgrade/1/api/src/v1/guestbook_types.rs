//! Guestbook: what people ask for, and what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Guestbook.
///
/// Change it to your liking, then run `kubewright manifests`. The comments become the descriptions that `kubectl
/// explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "webapp.my.domain",
    version = "v1",
    kind = "Guestbook",
    namespaced,
    status = "GuestbookStatus",
    derive = "PartialEq",
    doc = "Guestbook is the schema of the guestbooks API."
)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookSpec {
    /// An example of a field: edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// What the operator has observed of a Guestbook.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookStatus {
    /// The state of the Guestbook, one condition for each aspect; the usual types are `Available`, `Progressing` and
    /// `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
