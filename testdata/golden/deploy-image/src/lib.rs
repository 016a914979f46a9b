//! The operator deploy-image: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("deploy-image")
        .crd::<deploy_image_api::v1alpha1::Memstore>()
        .controller(controller::memstore_controller::controller())
        .webhook(webhook::v1alpha1::memstore_webhook::webhook())
}
