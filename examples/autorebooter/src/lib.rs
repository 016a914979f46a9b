//! The operator autorebooter: what it consists of.

use std::sync::Arc;

use kubewright::{Operator, Waker};

pub mod controller;
pub mod policy;
pub mod webhook;
pub mod world;

use world::World;
use world::databases::Databases;

/// The role that the operator runs under (`config/rbac`).
pub const ROLE: &str = include_str!("../config/rbac/role.yaml");

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    let waker = Waker::new();
    operator_in(Arc::new(Databases::new(waker.clone())), &waker)
}

/// The operator in another world than that of real databases, for tests.
pub fn operator_in(world: Arc<dyn World>, waker: &Waker) -> Operator {
    Operator::new("autorebooter")
        .crd::<autorebooter_api::v1alpha1::RebootPolicy>()
        .controller(controller::rebootpolicy_controller::controller(world, waker))
        .webhook(webhook::v1alpha1::rebootpolicy_webhook::webhook())
}
