//! Book: what people ask for, and what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Book.
///
/// Change it to your liking, then run `kubewright manifests`. The comments become the descriptions that `kubectl
/// explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "shelf.my.domain",
    version = "v1",
    kind = "Book",
    namespaced,
    status = "BookStatus",
    derive = "PartialEq",
    doc = "Book is the schema of the books API."
)]
#[serde(rename_all = "camelCase")]
pub struct BookSpec {
    /// An example of a field: edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// What the operator has observed of a Book.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BookStatus {
    /// The state of the Book, one condition for each aspect; the usual types are `Available`, `Progressing` and
    /// `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
