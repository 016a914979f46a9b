//! RebootPolicy: what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TargetKind;

/// What the operator has observed of a RebootPolicy.
// When the value is read next is not here: it would be a write at each reading.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebootPolicyStatus {
    /// The generation that this is about.
    #[serde(default)]
    pub observed_generation: i64,

    /// All of it in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The newest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed: Option<Observed>,

    /// The hash of the value that the targets run with: that of the last restart, or the first that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_hash: Option<String>,

    /// Since when the newest value waits for a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_since: Option<Time>,

    /// The last restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<LastRestart>,

    /// How many restarts there were.
    #[serde(default)]
    pub restarts: i64,

    /// How often in a row the database did not answer with a value. Waiting for one that is not there is no error.
    #[serde(default)]
    pub consecutive_errors: i32,

    /// `Ready`, `DatabaseReachable`, `TargetsFound`, `RestartPending`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A policy in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// The targets run with the newest value.
    Watching,
    /// There is a new value, which must rest for a while.
    Debouncing,
    /// There is a new value; the last restart is too young.
    RateLimited,
    /// The value cannot be read.
    Degraded,
    /// Nothing is done, as asked for.
    Suspended,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Observed {
    /// `sha256:` and the hash.
    pub hash: String,
    /// When it was new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// The value itself, where `showValue` asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

/// A restart.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRestart {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// The hash of the value before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hash: Option<String>,
    /// The hash of the value that led to it.
    #[serde(default)]
    pub to_hash: String,
    /// What was restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<RestartedTarget>,
}

/// A target that was restarted.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartedTarget {
    /// The kind.
    pub kind: TargetKind,
    /// The name.
    pub name: String,
    /// Which object of that name.
    #[serde(default)]
    pub uid: String,
    /// Whether all of its pods are new.
    #[serde(default)]
    pub rolled_out: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
