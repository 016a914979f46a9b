//! Database: what people ask for, and what the operator answers.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// DatabaseSpec is the desired state of a Database.
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
    /// The type of the server. Immutable.
    #[serde(rename = "type")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "type cannot be changed"}]))]
    pub type_: DatabaseType,

    /// The version of the server, which is the tag of its image. It can only be increased. The default depends on the
    /// type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+){0,2}$"))]
    pub version: Option<String>,

    /// The user that applications log in as. Default: app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,30}$"))]
    pub user: Option<String>,

    /// The name of the database. Default: the name of the object, with `_` in place of `-` and `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,62}$"))]
    pub database: Option<String>,

    /// A key of a Secret that has the password. Default: a Secret with a random password is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<SecretKey>,

    /// The password in plain text. The operator moves it to the Secret and removes it from the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub password: Option<String>,

    /// The number of servers. Only 1 is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1))]
    pub replicas: Option<i32>,

    /// The storage of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// The compute resources of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// What happens to the data when the object is deleted. Default: Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// Scheduled backups of the data. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,

    /// The backup that a new Database is restored from. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,

    /// If true, no server runs and no backups are made. The data is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// Scheduled backups of the data.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Backup {
    /// The schedule in cron format, as in a CronJob: `0 3 * * *` is every night at three.
    #[schemars(length(min = 1, max = 100))]
    pub schedule: String,
    /// The number of backups to keep. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub keep: Option<i32>,
    /// The storage of the backups: a separate claim, of 1Gi by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// A backup of another Database with the same type of server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct RestoreFrom {
    /// The name of the other Database, in the same namespace. The Database may be gone, but the claim with its backups
    /// must exist.
    #[schemars(length(min = 1, max = 253))]
    pub database: String,
    /// The name of the backup file. Default: the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$"))]
    pub file: Option<String>,
}

/// The type of a server.
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

/// A reference to a key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SecretKey {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret. Default: password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The storage of the data.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The requested size. It can only be increased.
    pub size: Quantity,
    /// The StorageClass. Default: that of the cluster. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// What happens to the data when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The claim and the Secrets are kept. A new Database of the same name uses them.
    #[default]
    Retain,
    /// The claim and the Secrets are deleted.
    Delete,
}

/// DatabaseStatus is the observed state of a Database.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    /// The generation that the operator observed last.
    #[serde(default)]
    pub observed_generation: i64,
    /// A summary of the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The last requested version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The address of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The Secret with the credentials for applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<Named>,
    /// A hash of the last password that was set. The password cannot be derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// The conditions `Ready`, `Progressing`, `CredentialsReady`, `StorageReady`, `BackedUp`, `Restored` and
    /// `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A summary of a Database's state.
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

/// The address of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Endpoint {
    /// The name of the Service.
    pub host: String,
    /// The port of the Service.
    pub port: i32,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Named {
    /// The name of the object.
    pub name: String,
}
