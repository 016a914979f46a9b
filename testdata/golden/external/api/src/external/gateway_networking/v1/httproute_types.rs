//! HTTPRoute of `gateway.networking.k8s.io/v1`, a kind of another project.
//!
//! Its CRD is not this project's, so only what is needed stands here: name the fields that you read or write as fields of the structs; all
//! others are kept in `rest` and survive a write.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is wanted of a HTTPRoute.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    status = "HTTPRouteStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
    /// The hosts that the route is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,

    /// The fields that are not named here.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// What its own controller says about a HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteStatus {
    /// The fields that are not named here.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}
