//! Book: its spec, which users write, and its status, which the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// BookSpec is the desired state of a Book.
// Change it to your liking, then run `kubewright manifests`. Comments with three slashes become the descriptions that `kubectl explain` shows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "shelf.my.domain",
    version = "v1",
    kind = "Book",
    namespaced,
    status = "BookStatus",
    derive = "PartialEq",
    doc = "Book is the schema of the books API.",
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
pub struct BookSpec {
    /// An example of a field.
    // Edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// BookStatus is the observed state of a Book.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BookStatus {
    /// Conditions of the Book, one for each aspect. `Ready` is True when the Book is as its spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
