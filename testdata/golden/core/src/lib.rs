//! The operator core: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("core")
        .controller(controller::pod_controller::controller())
        .webhook(webhook::v1::pod_webhook::webhook())
}
