//! A Kubernetes cluster for every test, in milliseconds.
//!
//! The counterpart of controller-runtime's envtest, without a download: [`TestCluster::start`] starts a cluster in the
//! test's own process. Its controllers make the pods of a Deployment Ready, its clients need no configuration, and a
//! test waits for a state instead of sleeping.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
//! use kubewright::k8s_openapi::api::core::v1::ServiceAccount;
//! use kubewright_testing::TestCluster;
//!
//! let cluster = TestCluster::start().await?;
//! let namespace = cluster.namespace().await?;
//! // The controllers of the cluster give every namespace a service account.
//! cluster.wait_for::<ServiceAccount>(Some(&namespace), "default", "exists", |_| true).await?;
//! # Ok(()) }
//! ```
//!
//! Inside: `cluster` is the test cluster; `wait` watches one object or one kind until it is as expected; `running` is
//! an operator in the background, `rights` its role, `usage` which rules of the role it used; `failures` explains why a
//! wait failed; `routes` connects the API server to the operator's webhooks; [`conversion`] tries conversions on random
//! objects; `time` is the clock that a test controls; `pods` makes pods misbehave; `metrics` sets metrics for autoscalers; `dying` kills an operator after one
//! of its writes; `intercept` answers requests in place of the API server (`request_info` describes them); [`processes`]
//! is for tests whose pods run as processes. Not here: the fault explorer.

mod cluster;
mod connection;
pub mod conversion;
mod dying;
mod error;
mod failures;
mod intercept;
mod metrics;
mod pods;
pub mod processes;
mod request_info;
mod rights;
mod routes;
mod running;
mod time;
mod usage;
mod wait;

pub use cluster::TestCluster;
pub use dying::{DyingOperator, dies_after};
pub use error::{Error, Result};
pub use intercept::{Answer, Call, Interceptor, refusal};
pub use kubewright_cluster::{Cluster, ClusterBuilder, Controllers, Images, Nodes, ProcessRuntime, Stages};
pub use pods::Pods;
pub use running::RunningOperator;

/// Compiles the code of the book's chapter on the runtime.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/runtime.md")]
struct RuntimeChapter;
