//! The operator external: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("external")
        .controller(controller::httproute_controller::controller())
        .webhook(webhook::v1::httproute_webhook::webhook())
}
