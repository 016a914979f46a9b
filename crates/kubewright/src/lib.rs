//! kubewright: write Kubernetes operators.
//!
//! An operator has a [`Reconciler`] for each kind. A [`Controller`] runs a reconciler, and a [`Manager`] runs the
//! controllers; an [`Operator`] declares all of them. A reconciler gets an object and a [`Context`], compares the spec
//! with what exists, and makes the changes that are missing. It reads through a [`Client`], from a shared [`Cache`] in
//! which it sees its own writes. Types and the plain client are those of kube and k8s-openapi, re-exported here, so
//! that an operator has one dependency; a feature of `k8s-openapi` selects the Kubernetes version.
//!
//! This crate makes no decisions: list and watch, store, queue and backoff are pure state machines in
//! `kubewright-engine`, and this crate does the input and output around them, on tokio. It works with any
//! [`kube::Client`], over HTTPS or in process.
//!
//! # The path of a change
//!
//! ```text
//! API server ─► watch (cache/watch.rs) ─► store + dispatch (cache/informer.rs) ─► keys (controller/sources.rs)
//!            ─► work queue (queue.rs) ─► worker (controller/control_loop.rs) ─► your reconcile ─► Client ─► API server
//! ```
//!
//! The API server also calls the operator: webhooks and conversions ([`webhook`]) are declared with the operator and
//! served by its manager. [`run()`] is the main function of an operator: flags, environment, logging, signals.
//!
//! # Which test checks which invariant
//!
//! | invariant | test |
//! |---|---|
//! | K1 reads see own writes | the engine's `receipts::tests` (exhaustive), `tests/it/runtime.rs::k1_…` |
//! | K2 out-of-scope writes do not block | the engine's `receipts::tests`, `cache::scope::tests::k2_…`, `tests/it/runtime.rs::k2_…` |
//! | K3 deletes | the engine's `receipts::tests`, `tests/it/runtime.rs::k3_…` |
//! | K4 unknown outcomes, dry runs, dropped futures, restores | the engine's `receipts::tests`, `tests/it/runtime.rs::k4_…` |
//! | K5 a delete means one uid | `tests/it/runtime.rs::k5_…` |
//! | RF5, RF11 lists, bad frames, objects that do not decode | `tests/it/runtime.rs::rf5_…`, `rf11_…`, `cache::wire::tests::rf11_…` |
//! | objects at rest, lists cut as they arrive | `form::packed::tests`, `form::cut::tests` |
//! | a controller that wakes itself is told | the engine's `loops::tests`, `tests/it/runtime.rs::a_controller_that_wakes_…` |
//! | DF2 missed deletions | `tests/it/runtime.rs::df2_…`, `tests/it/runtime.rs::causes_lead_from_a_change_to_its_reconcile` |
//! | C8 a failing kind fails alone | `tests/it/runtime.rs::c8_…` |
//! | SI10 one watch for all users, gone with the last | `tests/it/runtime.rs::si10_…` |
//! | several namespaces are one view, K1 in each | `crates/testing/tests/it/runtime/namespaces.rs`, `tests/it/runtime.rs::c_a_manager_of_some_…` |
//! | Q5, Q6 waiting and waking, without starving others | `queue::tests` |
//! | profiles: one at a time, bounded, loopback | `profiles::tests` (feature `profiling`) |
//! | R1–R3 one at a time, nothing lost | `tests/it/runtime.rs::r1_…` |
//! | R3 mappings that look things up | the engine's `states::tests`; with a server: `crates/testing/tests/it/runtime/sources.rs::r3_…` |
//! | sources from outside: bounded, kept until a worker has them | `crates/testing/tests/it/runtime/sources.rs` |
//! | predicates and selectors of one source | `predicate::tests`; with a server: `crates/testing/tests/it/runtime/sources.rs` |
//! | R4 sources first | `tests/it/runtime.rs::r4_…` |
//! | R5 errors and backoff | `tests/it/runtime.rs::r5_…`; errors of any type: `crates/testing/tests/it/runtime/controllers.rs::r5_…` |
//! | M6 controllers come and go | `crates/testing/tests/it/runtime/controllers.rs::m6_…` |
//! | R6, M7 stop | `tests/it/runtime.rs::m7_…` |
//! | R7 panics | `tests/it/runtime.rs::r7_…` |
//! | M3 runnables after caches | `tests/it/runtime.rs::m3_…` |
//! | LE1–LE6 leader election | the engine's `election::tests`, `tests/it/election.rs` there; with a server: `crates/testing/tests/it/runtime/election.rs` |
//! | SH1–SH5 sharding | the engine's `tests/it/sharding.rs`, `sharding::assign::tests`; with a server, and SH6–SH8: `crates/testing/tests/it/runtime/sharding.rs`, `sharding::shards::tests` |
//! | LE8 fields of others in a Lease | `election::lease::tests::le8_…` |
//! | finalizers | `controller::finalizer::tests`; with a server: `crates/testing/tests/it/runtime/finalizers.rs` |
//! | M5 the first error | `tests/it/runtime.rs::m5_…` |
//! | M2 probes first | `tests/it/runtime.rs::m2_…` |
//! | W1 an answer carries its request's uid | `webhook::tests::w1_…` |
//! | W2 patches keep what the type does not know | `webhook::merge::tests::w2_…`, `webhook::json_patch::tests::w2_…`; with a server: `crates/testing/tests/it/webhooks` |
//! | W3 dry runs | `webhook::tests::w3_…` |
//! | W4 conversions keep order and metadata | `webhook::tests::w4_…`; lossless: `crates/testing/tests/it/webhooks/round_trip.rs` |
//! | W5 certificates are read again, W6 webhooks before caches, W7 limits | `crates/testing/tests/it/webhooks/https.rs`, `webhook::body::tests`, `health::tests` |
//! | E3, E4 events | `tests/it/runtime.rs::e3_…` |
//! | one layer retries, every request ends | the engine's `retry::tests`, `client::send::tests`, `tests/it/runtime.rs::a_write_is_repeated_…`, `every_request_…` |
//! | nothing is sent that changes nothing | `apply::tests::an_apply_is_sent_when_it_could_change_something`, `tests/it/runtime.rs::apply_…` |

pub use jiff;
pub use k8s_openapi;
pub use kube;
pub use kubewright_derive::rbac;
pub use prometheus_client;
pub use schemars;

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
mod events;
mod fault;
mod form;
mod health;
mod loops;
mod manager;
mod metrics;
mod net;
mod object;
mod observe;
mod operator;
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
mod trace;
pub mod webhook;
pub mod workloads;

pub use action::Action;
pub use cache::{
    CONTROLLER_UID, Cache, Change, ChangeKind, Event, HandlerId, Health, Informer, SYNC_TIMEOUT, Scope, Store,
    Unreadable,
};
pub use cause::{Cause, CauseKind, MAX_CAUSES};
pub use client::{Client, FIRST_READ_DEADLINE, HOME_CLUSTER, READ_DEADLINE, REQUEST_DEADLINE, View, connect};
pub use clock::{Clock, SystemClock};
pub use context::Context;
pub use controller::waker::{Waker, WakerFull};
pub use controller::{Cleanup, Controller, Reconciler, Source, Watch};
pub use crd::Problem;
pub use declaration::{Declaration, DeclaredController, DeclaredCrd, declare};
pub use diff::{FieldChange, MAX_CHANGES, MAX_VALUE, changes_between};
pub use election::LeaderElection;
pub use error::{ApiError, BoxError, Error, Fails, Result};
pub use events::{EventRecorder, EventType};
pub use manager::{Controllers, GRACEFUL_SHUTDOWN, Manager, ManagerBuilder, shutdown_signal};
pub use metrics::{Metrics, MetricsServer};
pub use object::{AnyObject, Object, ObjectRef, api_resource, is_cluster_scoped};
pub use observe::{Message, OBSERVE_SOCKET, Observation, Observer, Outcome};
pub use operator::Operator;
pub use queue::WorkQueue;
pub use request::Request;
pub use rule::Rule;
pub use run::run;
pub use runnable::Runnable;
pub use sharding::Sharding;
pub use stop::{Stop, StopSource};
pub use webhook::{AdmissionRequest, Conversion, Defaulter, Denied, FieldErrors, Validator, Webhook};
