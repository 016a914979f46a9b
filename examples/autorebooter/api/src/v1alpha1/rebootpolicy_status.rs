//! RebootPolicy: what the operator answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TargetKind;

/// RebootPolicyStatus is the observed state of a RebootPolicy.
// When the value is read next is not here: it would be a write at each reading.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebootPolicyStatus {
    /// The generation that the operator observed last.
    #[serde(default)]
    pub observed_generation: i64,

    /// A summary of the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The last value that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed: Option<Observed>,

    /// The hash of the value that the targets run with: the value at the last restart, or the first recorded value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_hash: Option<String>,

    /// The time since which a new value has been waiting for a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_since: Option<Time>,

    /// The last restart of the targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<LastRestart>,

    /// The number of restarts.
    #[serde(default)]
    pub restarts: i64,

    /// The number of consecutive failed reads. A value that does not exist yet is not an error.
    #[serde(default)]
    pub consecutive_errors: i32,

    /// The conditions `Ready`, `DatabaseReachable`, `TargetsFound` and `RestartPending`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A summary of a policy's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// The targets run with the newest value.
    Watching,
    /// There is a new value. The restart waits until it has been stable for `debounce`.
    Debouncing,
    /// There is a new value. The restart waits until `minRestartInterval` has passed since the last one.
    RateLimited,
    /// The value cannot be read.
    Degraded,
    /// The policy is suspended.
    Suspended,
}

/// A value that was read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Observed {
    /// The hash of the value, with the prefix `sha256:`.
    pub hash: String,
    /// The time when the value was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// The value itself. Only set if `showValue` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

/// A restart of the targets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRestart {
    /// The time of the restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// The reason for the restart.
    #[serde(default)]
    pub reason: String,
    /// The hash of the previous value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hash: Option<String>,
    /// The hash of the value that caused the restart.
    #[serde(default)]
    pub to_hash: String,
    /// The workloads that were restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<RestartedTarget>,
}

/// A workload that was restarted.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartedTarget {
    /// The kind of the workload.
    pub kind: TargetKind,
    /// The name of the workload.
    pub name: String,
    /// The UID of the workload.
    #[serde(default)]
    pub uid: String,
    /// Whether the rollout is complete.
    #[serde(default)]
    pub rolled_out: bool,
    /// Why the rollout is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
