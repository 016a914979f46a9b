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
//! Inside: `front` answers a request from any entry point; `inprocess` and `listen` are the entry points; `control`
//! runs the controllers; `processes` runs pods that are not simulated; `durable` persists a cluster in a folder. Not
//! here: the semantics of a request (`kubewright-apiserver`), a clock that a test controls.

mod absent;
mod audit;
mod certificates;
mod cluster;
mod control;
pub mod controllers;
mod csr;
mod durable;
mod env;
mod error;
mod front;
mod held;
mod inprocess;
mod keys;
mod kinds;
pub mod kubeconfig;
mod listen;
mod meter;
pub mod metrics;
mod objects;
mod outbound;
mod pieces;
mod pki;
mod places;
pub mod processes;
mod regular;
mod response;
mod reviewer;
mod signer;
mod streams;
mod tls;
mod webhook_certificates;
mod work;

pub use audit::{AuditFile, AuditStdout, Rotation};
pub use cluster::{Cluster, ClusterBuilder, legacy_tokens};
pub use control::{ControllerManager, Controllers};
pub use controllers::{Behaviours, Nodes, Stages};
pub use csr::Wish as CertificateWish;
pub use durable::{DataDirError, Report, panic_is_reported, repair};
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
pub use kubewright_apiserver::{ApiServer, Config, ServiceRange};
pub use kubewright_apiserver::{OPTIONAL_PLUGINS, SEPARABLE_PLUGINS};
pub use listen::Listening;
pub use pki::Pki;
pub use places::Limits;
pub use processes::{Images, ProcessRuntime};
pub use regular::require_regular;
pub use reviewer::KubeconfigReviewer;
pub use webhook_certificates::WebhookCertificates;

/// The version of Kubernetes whose API is served, as `/version` says it.
pub const KUBERNETES_VERSION: &str = "v1.36.3";
