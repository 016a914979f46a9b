//! The operator plain: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("plain")
        .crd::<plain_api::v1::Guestbook>()
        .controller(controller::guestbook_controller::controller())
        .webhook(webhook::v1::guestbook_webhook::webhook())
}
