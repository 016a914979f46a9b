//! The operator database: what it consists of.

use std::sync::Arc;

use kubewright::Operator;

pub mod controller;
pub mod database;
pub mod webhook;
pub mod world;

use world::World;
use world::servers::Servers;

/// The role that the operator runs under (`config/rbac`).
pub const ROLE: &str = include_str!("../config/rbac/role.yaml");

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    operator_in(Arc::new(Servers))
}

/// The operator in another world than that of real servers, for tests.
pub fn operator_in(world: Arc<dyn World>) -> Operator {
    Operator::new("database")
        .crd::<database_api::v1alpha1::Database>()
        .controller(controller::database_controller::controller(world))
        .webhook(webhook::v1alpha1::database_webhook::webhook())
}
