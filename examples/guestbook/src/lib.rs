//! An operator for Guestbooks.
//!
//! A [`Guestbook`] asks for a guestbook of a size; the operator keeps a Deployment and a Service for it and says Ready
//! when the pods are. `kubewright demo` runs this operator, `src/main.rs` runs it against any cluster, and `tests/`
//! runs it on a cluster per test: all three take it from [`operator`].

use kubewright::Operator;

pub mod controller;

pub use controller::guestbook_controller::GuestbookReconciler;
pub use guestbook_api::v1::{Guestbook, GuestbookSpec, GuestbookStatus};

/// A Guestbook to try the operator with (`config/samples`).
pub const SAMPLE: &str = include_str!("../config/samples/webapp_v1_guestbook.yaml");

/// The role that the operator runs under (`config/rbac`).
pub const ROLE: &str = include_str!("../config/rbac/role.yaml");

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("guestbook")
        .crd::<guestbook_api::v1::Guestbook>()
        .controller(controller::guestbook_controller::controller())
}
