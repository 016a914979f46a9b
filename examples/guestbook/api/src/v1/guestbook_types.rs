//! The Guestbook: what a user writes, what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GuestbookSpec is the desired state of a Guestbook.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "webapp.my.domain",
    version = "v1",
    kind = "Guestbook",
    namespaced,
    status = "GuestbookStatus",
    doc = "A guestbook on the web.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookSpec {
    /// The number of pods that serve the guestbook.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub size: i32,

    /// The container image of these pods.
    #[serde(default = "default_image")]
    #[schemars(length(min = 1))]
    pub image: String,

    /// The message that visitors see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub greeting: Option<String>,
}

/// GuestbookStatus is the observed state of a Guestbook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookStatus {
    /// The generation that the operator observed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The number of pods.
    #[serde(default)]
    pub replicas: i32,

    /// The number of ready pods.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The label selector of the pods, for `kubectl scale` and autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The condition `Ready` is True when the requested number of pods is ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn one() -> i32 {
    1
}

fn default_image() -> String {
    "registry.k8s.io/e2e-test-images/guestbook:1.0".to_string()
}

impl Guestbook {
    /// The condition `Ready`, if it is set.
    pub fn ready(&self) -> Option<&Condition> {
        self.status
            .as_ref()?
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
    }

    /// Whether the current generation is ready.
    pub fn is_ready(&self) -> bool {
        self.ready()
            .is_some_and(|ready| ready.status == "True" && ready.observed_generation == self.metadata.generation)
    }
}
