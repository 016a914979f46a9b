//! A Kubernetes cluster in one process: the API server, HTTPS for all clients, and the built-in controllers.
//!
//! [`Cluster::start`] starts an API server in this process, which a [`kube::Client`](kubewright::kube::Client) reaches
//! without a socket. [`Cluster::listen`] adds HTTPS with its own certificate authority, for kubectl and for clients in
//! any language. The controllers (namespaces, garbage collection, Deployments, …) are ordinary operators, written with
//! the `kubewright` crate like any other.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use kubewright_cluster::{Cluster, kubeconfig};
//!
//! let cluster = Cluster::start().await?;
//! let listening = cluster.listen("127.0.0.1:0".parse()?).await?;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("kubeconfig");
//! kubeconfig::write(&path, &listening.kubeconfig)?; // export KUBECONFIG=…; kubectl get namespaces
//! cluster.stop().await;
//! # Ok(()) }
//! ```
//!
//! It joins three crates that do not know each other: the server's shell (`kubewright-server`), the controllers
//! (`kubewright-controllers`) and the nodes (`kubewright-nodes`).
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | how a cluster is started and stopped | `cluster.rs`, `cluster/builder.rs` | `crates/cluster/tests` |
//! | how the controllers run against another API server, or their role there | `control.rs`, `crates/cluster/data/controllers-role.yaml`; the command: `crates/cli/src/commands/controllers.rs` | `crates/cli/tests/it/cluster.rs` |
//! | which controllers there are, and their settings | `controllers.rs` | the test there |
//! | logs, `kubectl exec`, `attach`, `cp` and `port-forward` | `streams`; the protocols: `kubewright_server::streams` | `crates/cli/tests/it/processes/streams.rs` |
//! | what `kubectl top` gets | `meter.rs`; measured in `kubewright-nodes`, served in `crates/apiserver/src/server/special/metrics.rs` | the tests there; `crates/testing/tests/it/autoscaling.rs` |
//! | the requests of the authorization webhook | `reviewer.rs` | `crates/cli/tests/it/dropin.rs` |
//! | the warnings about kinds, fields and values on which nothing acts | `absent/rows.rs` | the table in `absent.rs`; `xtask/tests/it/honesty.rs` |
//!
//! Invariants: see `cluster.rs`. Not here: the semantics of a request (`kubewright-apiserver`), the built-in kinds
//! (`kubewright-kinds`), a clock that a test controls (`kubewright-testing`).

mod absent;
mod cluster;
mod control;
pub mod controllers;
mod error;
mod inprocess;
mod kinds;
mod meter;
mod reviewer;
mod streams;

pub use cluster::{Cluster, ClusterBuilder, ForkPoint, legacy_tokens};
pub use control::{ControllerManager, Controllers};
pub use error::{Error, Result};
pub use kubewright_apiserver::audit::{
    AuditLog, AuditSink, Format as AuditFormat, Policy as AuditPolicy, PolicyError as AuditPolicyError,
};
pub use kubewright_apiserver::authentication::{StaticTokens, TokenFileError};
/// The authorizers of requests, and how another server is asked.
pub mod authorization {
    pub use kubewright_apiserver::authorization::Verdict;
    pub use kubewright_apiserver::authorization::webhook::{
        Conditions, ReviewError, Reviewer, Settings, Version, Webhook,
    };
}
pub use kubewright_apiserver::admission::Operation as AdmissionOperation;
pub use kubewright_apiserver::authorization::Mode as AuthorizationMode;
/// Reads a duration in Go's form, as flags and files of Kubernetes have it; nanoseconds.
pub use kubewright_apiserver::model::duration::parse as go_duration;
pub use kubewright_apiserver::outbound::{AdmissionQuestion, AdmissionVerdict};
pub use kubewright_apiserver::{ApiServer, Config, Minor, ServiceRange};
pub use kubewright_apiserver::{OPTIONAL_PLUGINS, SEPARABLE_PLUGINS};
pub use kubewright_controllers::metrics;
pub use kubewright_nodes::{Behaviours, Images, Nodes, ProcessRuntime, Stages};
pub use kubewright_server::{
    AuditFile, AuditStdout, DataDirError, Error as ServerError, Limits, Listening, Pki, Report, Rotation, RunLog,
    WebhookCertificates, kubeconfig, panic_is_reported, repair, require_regular,
};
pub use reviewer::KubeconfigReviewer;
/// Containers as processes of this machine.
pub mod processes {
    pub use kubewright_nodes::{Images, ProcessRuntime, Processes, called};
}
