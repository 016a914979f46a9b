//! Database: what people ask for, and what the operator answers.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a Database.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "db.example.com",
    version = "v1alpha1",
    kind = "Database",
    plural = "databases",
    shortname = "dbs",
    namespaced,
    status = "DatabaseStatus",
    derive = "PartialEq",
    doc = "Database is a PostgreSQL, MariaDB or MySQL server with one database and one user.",
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.type"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".status.version"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name": "Endpoint", "type": "string", "jsonPath": ".status.endpoint.host"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// The kind of server. It cannot be changed.
    #[serde(rename = "type")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "type cannot be changed"}]))]
    pub type_: DatabaseType,

    /// The version, as tags of the image have it. It can only grow. Default: by the type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+){0,2}$"))]
    pub version: Option<String>,

    /// The user whom applications log in as. Default app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,30}$"))]
    pub user: Option<String>,

    /// The database. Default: the name of the object, with `_` for `-` and `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,62}$"))]
    pub database: Option<String>,

    /// A key of a Secret with the password. Default: a Secret is made, with a password that nobody has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<SecretKey>,

    /// The password itself. It is moved into the Secret, and removed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub password: Option<String>,

    /// How many servers. Only 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1))]
    pub replicas: Option<i32>,

    /// Where data are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// What the server may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// What becomes of the data when the object is deleted. Default Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// Copies of the data that are made by the clock. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,

    /// The copy with which a new Database begins. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,

    /// No server runs, and no copies are made; data are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// Copies of the data that are made by the clock.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Backup {
    /// When, as a CronJob has it: `0 3 * * *` is every night at three.
    #[schemars(length(min = 1, max = 100))]
    pub schedule: String,
    /// How many copies stay. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub keep: Option<i32>,
    /// Where copies are kept: a claim of its own, of 1Gi by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// A copy of another Database's data, of the same kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct RestoreFrom {
    /// The name of the other Database, in the same namespace. It need not exist any more; the claim with its copies
    /// must.
    #[schemars(length(min = 1, max = 253))]
    pub database: String,
    /// The file. Default: the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$"))]
    pub file: Option<String>,
}

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseType {
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SecretKey {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key. Default password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Where data are kept.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// How much room. It can only grow.
    pub size: Quantity,
    /// The class. Default: that of the cluster. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// What becomes of the data when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The claim and the Secrets stay, for a Database of the same name.
    #[default]
    Retain,
    /// They go.
    Delete,
}

/// What the operator has observed of a Database.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    /// The generation that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// All of it in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The version that was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The Secret that applications use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<Named>,
    /// Which password was set last: a hash, by which nobody finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// `Ready`, `Progressing`, `CredentialsReady`, `StorageReady`, `BackedUp`, `Restored`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A Database in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "they are told by their names")]
pub enum Phase {
    Pending,
    Provisioning,
    Running,
    Updating,
    Degraded,
    Suspended,
    Deleting,
    Failed,
}

/// Where a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Endpoint {
    /// The name of its Service.
    pub host: String,
    /// The port.
    pub port: i32,
}

/// An object of the namespace, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Named {
    /// The name.
    pub name: String,
}
