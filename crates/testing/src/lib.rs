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
//! cluster.wait_for::<ServiceAccount>(&namespace, "default", "exists", |_| true).await?;
//! # Ok(()) }
//! ```
//!
//! # Where to change what
//!
//! | to change | go to |
//! |---|---|
//! | the test cluster: how it starts, its clients, its operators | `cluster.rs`; an operator in the background: `running.rs`; its role: `rights.rs` |
//! | waiting for a state | `wait.rs`; why a wait failed: `failures.rs` |
//! | how a webhook in the same process is called | `routes.rs`; the server's side: `crates/model/src/outbound.rs` (`Inside`); `tests/it/webhooks/doors.rs` compares it with HTTPS |
//! | faults of the API server | `intercept.rs`; the description of a request: `request_info.rs` |
//! | an operator that dies after one of its writes | `dying.rs`, `connection.rs` |
//! | which rules of a role the tests used | `usage.rs` |
//! | playing an operator through faults | `explore/` |
//! | a long life with leaders that go | `soak.rs` |
//! | conversions of random objects | `conversion/` |
//! | time that a test controls | `time.rs` |
//! | pods that misbehave; pods that run as processes | `pods.rs`; `processes.rs` |
//! | metrics for autoscalers | `metrics.rs` |

mod cluster;
mod connection;
pub mod conversion;
mod dying;
mod error;
pub mod explore;
mod failures;
mod intercept;
mod metrics;
mod pods;
pub mod processes;
mod request_info;
mod rights;
mod routes;
mod running;
pub mod soak;
mod time;
mod usage;
mod virtual_time;
mod wait;

pub use cluster::TestCluster;
pub use dying::{DyingOperator, dies_after};
pub use error::{Error, Result};
pub use explore::Explore;
pub use intercept::{Answer, Call, Interceptor, refusal};
pub use kubewright_cluster::{Cluster, ClusterBuilder, Controllers, Images, Minor, Nodes, ProcessRuntime, Stages};
pub use pods::Pods;
pub use running::RunningOperator;
pub use soak::Soak;

/// Compiles the code of the book's chapter on the runtime.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/runtime.md")]
struct RuntimeChapter;

/// Compiles the code of the book's chapter on faults.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/faults.md")]
struct FaultsChapter;

/// Compiles the code of the book's guide to tests of kube-rs projects.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/testing-kube-rs.md")]
struct KubeRsGuide;

/// Compiles the code of the book's guide to logging.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/logging.md")]
struct LoggingGuide;
