//! An operator for Guestbooks.
//!
//! A [`Guestbook`] asks for a guestbook of a size; the operator keeps a Deployment and a Service for it and says Ready when the pods
//! are. `kubewright demo` runs this operator, `src/main.rs` runs it against any cluster, and `tests/` runs it on a cluster per test:
//! all three take it from [`operator`].

use kubewright::{Controller, Operator, predicate};

pub mod controller;
pub mod v1;

pub use controller::guestbook_controller::GuestbookReconciler;
pub use v1::{Guestbook, GuestbookSpec, GuestbookStatus};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;

/// A Guestbook to try the operator with (`config/samples`).
pub const SAMPLE: &str = include_str!("../config/samples/webapp_v1_guestbook.yaml");

// ANCHOR: operator
/// The operator, declared once.
pub fn operator() -> Operator {
    Operator::new("guestbook").crd::<Guestbook>().controller(
        Controller::of(GuestbookReconciler)
            // Its own status writes are no reason to look again.
            .with_predicate::<Guestbook>(predicate::generation_changed)
            .owns::<Deployment>()
            .owns::<Service>(),
    )
}
// ANCHOR_END: operator
