//! The operator conversion: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("conversion")
        .crd::<conversion_api::v1::Book>()
        .controller(controller::book_controller::controller())
        .crd::<conversion_api::v2::Book>()
        .webhook(webhook::v1::book_webhook::webhook())
        .conversion(webhook::v1::book_webhook::conversion())
}
