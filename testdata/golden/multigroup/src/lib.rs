//! The operator multigroup: what it consists of.

use kubewright::Operator;

pub mod controller;
pub mod webhook;

/// The operator, declared once: the program runs it, `kubewright manifests` writes it down, and the tests test it.
pub fn operator() -> Operator {
    Operator::new("multigroup")
        .crd::<multigroup_api::crew::v1::Sailor>()
        .controller(controller::crew::sailor_controller::controller())
        .crd::<multigroup_api::dock_harbour::v1beta1::Berth>()
        .controller(controller::dock_harbour::berth_controller::controller())
        .crd::<multigroup_api::sea_lanes::v1::Sailor>()
        .controller(controller::sea_lanes::sailor_controller::controller())
        .webhook(webhook::crew::v1::sailor_webhook::webhook())
}
