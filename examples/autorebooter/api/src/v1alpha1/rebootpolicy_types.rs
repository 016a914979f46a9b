//! RebootPolicy: what people ask for.

use kube::CustomResource;
use kube::core::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RebootPolicyStatus;

/// What is wanted of a RebootPolicy: which workloads are restarted when which value changes.
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
    /// What is restarted, in the namespace of the policy.
    #[schemars(length(min = 1, max = 16))]
    pub targets: Vec<Target>,

    /// The value that is watched.
    pub source: Source,

    /// How long the value must rest before anything is restarted. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Duration>,

    /// How long a restart keeps the next one waiting. Default 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_restart_interval: Option<Duration>,

    /// What the first value leads to. Default Record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_first_observation: Option<FirstObservation>,

    /// Nothing is read and nothing restarted; the connection is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Whether the status shows the value. Otherwise it shows a hash alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub show_value: bool,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Only `apps/v1`, which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind.
    pub kind: TargetKind,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Only the namespace of the policy, which is also the default.
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
    /// The kind of database; `mysql` is MariaDB, too.
    #[serde(rename = "type")]
    pub type_: DatabaseType,

    /// A Database of the namespace, whose Secret has the credentials. Either this or `connectionSecretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_ref: Option<Named>,

    /// A key of a Secret with the whole address: `postgres://user:password@host:5432/database`. Either this or `databaseRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_secret_ref: Option<SecretKey>,

    /// What is read.
    pub watch: Watched,

    /// How a change is noticed. Default Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,

    /// How long it takes until the value is read again. At least 1s; default 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<Duration>,

    /// The channel that PostgreSQL's `NOTIFY` names. Default autoreboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseType {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

/// An object of the namespace, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Named {
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SecretKey {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// What is read: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Watched {
    /// A column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// One SQL statement with one column and at most one row. Whoever may write it reads whatever the user of the connection may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub query: Option<String>,
}

/// A column of a table, in all of its rows or in some.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Table {
    /// The schema, in MySQL another database. Default: where the connection looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub schema: Option<String>,
    /// The name of the table.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The name of the column.
    #[schemars(length(min = 1, max = 64))]
    pub column: String,
    /// The condition for rows, in SQL, at most 1000 of which are read. Whoever may write it reads whatever the user of the connection may read.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub condition: Option<String>,
}

/// How a change is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Mode {
    /// The value is read at every `pollInterval`.
    Poll,
    /// PostgreSQL tells of changes; the value is read at every `pollInterval` besides, because it does not tell those who are not connected.
    Notify,
    /// Notify where there is such a thing, otherwise Poll.
    #[default]
    Auto,
}

/// What the first value leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum FirstObservation {
    /// It is remembered.
    #[default]
    Record,
    /// The targets are restarted.
    Restart,
}
