//! Write Kubernetes operators.
//!
//! ```no_run
//! use kubewright::k8s_openapi::api::core::v1::ConfigMap;
//! use kubewright::prelude::*;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
//! struct GreetingSpec {
//!     name: String,
//! }
//!
//! struct Greeter;
//!
//! impl Reconciler for Greeter {
//!     type Object = Greeting;
//!
//!     async fn reconcile(&self, greeting: Arc<Greeting>, ctx: Context) -> Result<Action> {
//!         let mut text = ConfigMap::default();
//!         text.metadata.name = greeting.metadata.name.clone();
//!         text.data = Some([("text".to_owned(), format!("Hello, {}!", greeting.spec.name))].into());
//!         ctx.apply(text).await?;
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     let controller = Controller::of(Greeter).owns::<ConfigMap>();
//!     kubewright::run(Operator::new("greeter").crd::<Greeting>().controller(controller)).await
//! }
//! ```
//!
//! Each Greeting gets a ConfigMap that it owns. When somebody changes or deletes the ConfigMap, it is made again; when
//! the Greeting is deleted, the garbage collector takes it away. The types and the plain client are those of [`kube`]
//! and [`k8s_openapi`], re-exported here, so that an operator has one dependency; a feature of `k8s-openapi` selects
//! the Kubernetes version.
//!
//! # The concepts, in the order in which an operator needs them
//!
//! * An [`Operator`] declares everything that makes up a program: controllers, the CRDs of its types, webhooks,
//!   [runnables](Runnable). [`run()`] is its main function: flags, environment, logging, signals. From the same
//!   declaration `kubewright manifests` writes CRDs, roles and webhook configurations.
//! * A [`Reconciler`] compares the spec of one object with what exists, and makes the changes that are missing. It
//!   answers an [`Action`]: wait for a change, or run again after a time. An [`Error`] repeats it with growing delays;
//!   any error of another crate becomes one by [`Fails`].
//! * A [`Controller`] runs a reconciler. It says which changes lead to a reconcile: of objects that the kind
//!   [owns](Controller::owns), of others that it [watches](Controller::watches), of a [`Source`] such as a [`Watch`], a
//!   timer or a [`Waker`] outside of the cluster; [`predicate`]s and a [`Scope`] leave some out.
//! * A [`Context`] belongs to one reconcile: its [`Request`], its [`Cause`]s (which object changed, in which fields),
//!   the time, the stop signal, and a recorder of [events](Context::event).
//! * A [`Client`] reads from the [`Cache`], in which one [`Informer`] for each kind and scope follows the API server,
//!   and writes to the API server. A read sees the writes of this process, or fails with [`Error::Stale`].
//! * [`Context::apply`] makes a child be as it is wanted, by server-side apply and owned by the reconciled object; what
//!   would change nothing is not sent. [`Context::status`] applies the controller's part of a status,
//!   [`Context::patch_status`] changes any of it, [`conditions`] keeps conditions.
//! * A [finalizer](Controller::finalizer) is for effects outside of the cluster: the runtime adds it before the first
//!   reconcile, and removes it when [`Reconciler::cleanup`] is done.
//! * [`webhook`] has what the API server asks of an operator: [`Defaulter`]s, [`Validator`]s, and [`Conversion`]s
//!   between the versions of a kind.
//! * A [`Manager`] runs all of it: probes, metrics, webhooks, controllers, the order of start and stop. By
//!   [`LeaderElection`] one replica acts; with [`Sharding`] the replicas share the objects out. [`Controllers`] adds and
//!   removes controllers and clusters meanwhile.
//! * Tests start a cluster each, in milliseconds, with the crate `kubewright-testing`. An [`Observer`] is told all that
//!   the runtime does.
//!
//! # The path of a change
//!
//! ```text
//! API server ─► watch (cache/watch.rs) ─► store + dispatch (cache/shared.rs) ─► keys (controller/sources.rs)
//!            ─► work queue (queue.rs) ─► worker (controller/control_loop.rs) ─► your reconcile ─► Client ─► API server
//! ```
//!
//! List and watch, store, queue, backoff, leader election and sharding are pure state machines in `kubewright-engine`.
//! This crate does the input and output around them, on tokio, with any [`kube::Client`], over HTTPS or in process.
//!
//! # Where to change what
//!
//! | to change | go to | its test |
//! |---|---|---|
//! | what wakes a controller | `controller/sources.rs`, `controller/watch.rs`; from outside: `controller/waker.rs` | `tests/it/runtime` of `kubewright-testing` |
//! | what a reconcile's outcome leads to | `controller/control_loop.rs` | `reconciles.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | how an answer becomes objects | `cache/wire.rs` | the tests there; broken at each byte: `tests/it/streams.rs` |
//! | the size of a cached object, or when it is decoded | `form/packed.rs`; how many stay decoded: `form/packed/decoded.rs`; how bodies are split into objects: `form/cut.rs` | the tests there; `bench/runtime` measures |
//! | what informers of a kind share, and when a watch becomes wider | `cache/shared.rs`; what a view sees of it: `cache/part.rs`; what it needs: `cache/coverage.rs` | `stores.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | when a read waits for an own write | the engine's `receipts.rs`; `cache/core/shared_informer.rs`, `client/read.rs` | `reads.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | when an apply is sent | `client/apply.rs`; what an earlier process has applied: `form/applied.rs` | the tests there; `restart.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | leader election | the engine's `election.rs`; its requests: `election/`; what only the leader runs: `manager/guarded.rs` | the engine's tests, `tests/it/runtime` of `kubewright-testing` |
//! | which replica works on which objects | the engine's `sharding.rs` and `sharding/assign.rs`; its requests: `sharding/` | the same |
//! | the order in which a manager starts and stops | `manager/stages.rs`; how each stage starts: `manager/run.rs` | the tests there |
//! | time and chance | `clock.rs`; a channel that wakes in order: `watch.rs` | `twice.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | how a manager uses several clusters | `manager/clusters.rs`, `fleet.rs`, `client/mod.rs`, `controller/sources.rs` | the same |
//! | the answers of an operator's webhooks | `webhook/handlers.rs`, `webhook/review.rs`; their patches: `webhook/merge.rs` | `webhook/tests.rs`; through the API: `tests/it/webhooks` of `kubewright-testing` |
//! | the certificate that an operator issues itself | `own_certificate/`: decided in `mod.rs`, issued and checked in `issue.rs` | the tests there; `tests/it/webhooks/own_certificate.rs` of `kubewright-testing` |
//! | the schema of a type in its CRD | `crd/`; kubebuilder's markers: `crd/markers.rs` | the tests there; `testdata/fixtures` is compared with controller-gen |
//! | a flag of operators | the table in `run/flags.rs`; the settings made from it: `run/settings.rs` | the tables there |
//! | a metric | `metrics/` | `metrics.rs` in `tests/it/runtime` of `kubewright-testing` |
//! | what is traced | `trace.rs`; export: `run/telemetry.rs` | `tests/it/spans.rs` of `kubewright-testing` |
//! | profiles | `profiles/` (feature `profiling`) | the tests there |
//! | what an operator reports to `kubewright dev` | `observe/` | the tables there |
//!
//! One word means one thing: an `ObjectKey` is a namespace and a name, a [`Request`] the key of a reconcile, an
//! [`ObjectRef`] an object with its kind, for messages; inside, an `ObjectId` borrows what the metadata of an object
//! say of it, and a `Target` is the object of a request to the API server.

pub use jiff;
pub use k8s_openapi;
pub use kube;
pub use kubewright_derive::rbac;
pub use prometheus_client;
pub use schemars;
pub use tracing;

mod action;
mod cache;
mod cause;
mod certificate;
mod client;
mod clock;
pub mod conditions;
mod context;
mod controller;
mod crd;
mod declaration;
mod diff;
mod election;
mod error;
mod event_writer;
mod events;
mod fault;
mod fleet;
mod form;
mod health;
mod manager;
mod metrics;
mod metrics_server;
mod namespace;
mod net;
mod object;
mod observe;
mod operator;
mod own_certificate;
mod own_writes;
mod panic_place;
pub mod predicate;
pub mod prelude;
#[cfg(feature = "profiling")]
mod profiles;
mod queue;
pub mod rate;
mod request;
mod rule;
mod run;
mod runnable;
mod sharding;
mod stop;
mod term;
mod trace;
mod watch;
mod watchdog;
pub mod webhook;
pub mod workloads;

pub use action::Action;
pub use cache::{
    CONTROLLER_UID, Cache, Change, ChangeKind, HandlerId, Health, Informer, SYNC_TIMEOUT, Scope, Store, Unreadable,
};
pub use cause::{Cause, CauseKind, MAX_CAUSES};
pub use client::{ApiScope, Client, FIRST_READ_DEADLINE, READ_DEADLINE, REQUEST_DEADLINE, View, connect};
pub use clock::{Clock, Entropy, SystemClock};
pub use context::Context;
pub use controller::waker::{Waker, WakerFull, Woken};
pub use controller::{Cleanup, Controller, Reconciler, Source, Watch};
pub use crd::Problem;
pub use declaration::{Declaration, DeclaredController, DeclaredCrd, declare};
pub use diff::{FieldChange, MAX_CHANGES, MAX_VALUE, changes_between};
pub use election::LeaderElection;
pub use error::{ApiError, BoxError, Error, Fails, Result};
pub use events::{EventNote, EventRecorder, EventType};
pub use fleet::KubeconfigSecrets;
pub use form::{Event, LazyObject};
pub use manager::{Controllers, GRACEFUL_SHUTDOWN, Manager, ManagerBuilder, shutdown_signal};
pub use metrics::Metrics;
pub use metrics_server::MetricsServer;
pub use namespace::{AllNamespaces, InNamespace, NoNamespace};
pub use object::{AnyObject, Given, Object, ObjectRef, api_resource, is_cluster_scoped};
pub use observe::{Message, OBSERVE_SOCKET, Observation, Observer, Outcome};
pub use operator::Operator;
pub use queue::{WorkItem, WorkQueue};
pub use request::{HOME_CLUSTER, Request};
pub use rule::Rule;
pub use run::{run, run_with};
pub use runnable::Runnable;
pub use sharding::Sharding;
pub use stop::{Stop, StopSource};
pub use webhook::{AdmissionRequest, Conversion, Defaulter, Denied, FieldErrors, Validator, Webhook};
