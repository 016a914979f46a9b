//! RebootPolicy: what people ask for.

use kube::CustomResource;
use kube::core::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RebootPolicyStatus;

/// RebootPolicySpec is the desired state of a RebootPolicy: the value to watch, and the workloads to restart when it
/// changes.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "autoreboot.my.domain",
    version = "v1alpha1",
    kind = "RebootPolicy",
    plural = "rebootpolicies",
    namespaced,
    status = "RebootPolicyStatus",
    derive = "PartialEq",
    doc = "RebootPolicy restarts workloads when a value in a database changes.",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"}"#,
    printcolumn = r#"{"name": "Last restart", "type": "date", "jsonPath": ".status.lastRestart.at"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RebootPolicySpec {
    /// The workloads to restart. They are in the namespace of the policy.
    #[schemars(length(min = 1, max = 16))]
    pub targets: Vec<Target>,

    /// The value to watch.
    pub source: Source,

    /// How long a new value must be stable before the workloads are restarted. Default: 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Duration>,

    /// The minimum time between two restarts. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_restart_interval: Option<Duration>,

    /// What to do with the first value. Default: Record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_first_observation: Option<FirstObservation>,

    /// If true, the value is not read, no workload is restarted, and the connection is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Whether the status shows the value. If false, it shows only a hash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub show_value: bool,
}

/// A reference to a workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The API version of the workload. Only `apps/v1`, the default, is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind of the workload.
    pub kind: TargetKind,
    /// The name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of the workload. Only the namespace of the policy, the default, is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "they are Kubernetes' kinds")]
pub enum TargetKind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// A value in a database.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The type of the database. Use `mysql` for MariaDB, too.
    #[serde(rename = "type")]
    pub type_: DatabaseType,

    /// A Database in the same namespace, whose Secret has the credentials. Set either this or `connectionSecretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_ref: Option<Named>,

    /// A key of a Secret that has the connection string: `postgres://user:password@host:5432/database`. Set either this
    /// or `databaseRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_secret_ref: Option<SecretKey>,

    /// What to read.
    pub watch: Watched,

    /// How changes are detected. Default: Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,

    /// The interval at which the value is read. At least 1s. Default: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<Duration>,

    /// The channel of PostgreSQL's `NOTIFY`. Default: autoreboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
}

/// The type of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseType {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Named {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SecretKey {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// What to read. Exactly one of the fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Watched {
    /// A column of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// A SQL statement that returns one column and at most one row. A user who can write this field can read everything
    /// that the database user can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub query: Option<String>,
}

/// A column of a table, in all rows or in those that match a condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Table {
    /// The schema of the table; in MySQL, its database. Default: that of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub schema: Option<String>,
    /// The name of the table.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The name of the column.
    #[schemars(length(min = 1, max = 64))]
    pub column: String,
    /// A SQL condition that selects rows. At most 1000 rows are read. A user who can write this field can read
    /// everything that the database user can read.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub condition: Option<String>,
}

/// How changes are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Mode {
    /// The value is read every `pollInterval`.
    Poll,
    /// PostgreSQL notifies the operator of changes. The value is also read every `pollInterval`, because notifications
    /// are lost while the connection is down.
    Notify,
    /// Notify if the database supports it, otherwise Poll.
    #[default]
    Auto,
}

/// What to do with the first value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum FirstObservation {
    /// The value is recorded, and nothing is restarted.
    #[default]
    Record,
    /// The workloads are restarted.
    Restart,
}
