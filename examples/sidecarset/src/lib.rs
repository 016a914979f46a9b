//! The operator sidecarset: what it consists of.

use kubewright::k8s_openapi::api::core::v1::Namespace;
use kubewright::{Operator, Scope};

pub mod controller;
pub mod sidecar;
pub mod webhook;

/// The role that the operator runs under (`config/rbac`).
pub const ROLE: &str = include_str!("../config/rbac/role.yaml");

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("sidecarset")
        .crd::<sidecarset_api::v1alpha1::SidecarSet>()
        .controller(controller::sidecarset_controller::controller())
        .webhook(webhook::v1alpha1::sidecarset_webhook::webhook())
        .webhook(webhook::v1::pod_webhook::webhook())
        .reads::<Namespace>(Scope::all())
}
