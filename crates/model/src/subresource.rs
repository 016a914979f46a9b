//! The subresources of a kind. Their behaviour is defined here as far as it is data or a small function of the object;
//! those that answer with something else than the object, or do something else than write it, are handled in
//! `server::special`.

use std::fmt;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::{StrategyContext, Text};

/// A subresource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`: only `status` is written (and the metadata of
    /// [`Strategy::status_metadata`](super::Strategy::status_metadata)).
    Status,
    /// `/scale`, an `autoscaling/v1` Scale made from these paths.
    Scale(ScalePaths),
    /// Writes a part of the object by rules of its own, such as `/resize` of a pod.
    Part(&'static Portion),
    /// Takes a document of another kind (POST), such as `/eviction` of a pod.
    Document(&'static Document),
    /// Leads to something that runs, such as `log` or `exec`. Where nothing runs it is refused with words.
    Connect(Connection),
}

/// A subresource that leads to something that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The protocol of the connection.
    pub to: Way,
    /// Kind in the discovery entry: for all but the log the kind of the options in the query.
    pub kind: &'static str,
    /// The advice to the user where no pods run.
    pub instead: &'static str,
}

/// The ways to something that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a process of a container as it runs.
    Attach,
    /// To a process that is started for it.
    Exec,
    /// To the log of a container.
    Log,
    /// To ports of a pod.
    PortForward,
    /// To a program over HTTP.
    Proxy,
}

impl Way {
    /// The last path segment.
    pub fn name(self) -> &'static str {
        match self {
            Way::Attach => "attach",
            Way::Exec => "exec",
            Way::Log => "log",
            Way::PortForward => "portforward",
            Way::Proxy => "proxy",
        }
    }

    /// The verbs in the discovery entry.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Way::Attach | Way::Exec | Way::PortForward => &["create", "get"],
            Way::Log => &["get"],
            Way::Proxy => &["create", "delete", "get", "patch", "update"],
        }
    }
}

/// Where the scale subresource finds its numbers (dotted paths with a leading dot, such as `.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: Text,
    /// Replicas that exist.
    pub status_replicas: Text,
    /// The selector: a `LabelSelector` object or a string.
    pub selector: Option<Text>,
}

/// The part of an object that a subresource writes, and its rules (the counterpart of a `rest.Storage` of its own with
/// a strategy of its own).
pub struct Portion {
    /// The last path segment.
    pub name: &'static str,
    /// The verbs that it takes, as discovery lists them.
    pub verbs: &'static [&'static str],
    /// Restricts the new object (first), as it was sent, to the changes that such a write may make of the old one
    /// (second).
    pub restrict: fn(&mut Value, &Value),
    /// Whether all sent fields count as written in `managedFields`, also those that `restrict` removes.
    pub owns_all_that_is_sent: bool,
    /// Whether the status is written.
    pub writes_status: bool,
    /// Whether the generation grows as with a write of the object.
    pub counts_generation: bool,
    /// Fills in the fields that the server sets (new, old).
    pub prepare: fn(&mut Value, &Value, &StrategyContext<'_>),
    /// Errors in the change (new, old).
    pub validate: fn(&Value, &Value) -> Vec<FieldError>,
}

/// A document that a subresource takes; `server::special` answers it.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// The last path segment.
    pub name: &'static str,
    /// The group of its kind; its version is `v1`.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// The name of its schema in OpenAPI documents.
    pub schema_name: &'static str,
    /// Whether the request goes on after its first change, so that it cannot begin again.
    pub changes_twice: bool,
}

/// The verbs of a part that is read and written.
pub const READ_WRITE: &[&str] = &["get", "patch", "update"];

impl Subresource {
    /// The last path segment.
    pub fn name(&self) -> &str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale(_) => "scale",
            Subresource::Part(portion) => portion.name,
            Subresource::Document(document) => document.name,
            Subresource::Connect(connection) => connection.to.name(),
        }
    }

    /// Its verbs, as discovery lists them.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self {
            Subresource::Status | Subresource::Scale(_) => READ_WRITE,
            Subresource::Part(portion) => portion.verbs,
            Subresource::Document(_) => &["create"],
            Subresource::Connect(connection) => connection.to.verbs(),
        }
    }
}

impl PartialEq for Portion {
    fn eq(&self, other: &Portion) -> bool {
        self.name == other.name
    }
}

impl Eq for Portion {}

impl fmt::Debug for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Portion({})", self.name)
    }
}
