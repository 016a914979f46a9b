//! HTTPRoute of `gateway.networking.k8s.io/v1`, a kind of another project.
//!
//! Its CRD belongs to another project. Add the fields that you read or write to the structs; all other fields are kept in
//! `rest`, so a write does not lose them.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The spec of an HTTPRoute.
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

/// The status of an HTTPRoute, which its own controller writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteStatus {
    /// The fields that are not named here.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}
