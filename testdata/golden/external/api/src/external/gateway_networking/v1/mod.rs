//! `gateway.networking.k8s.io/v1`.

pub mod httproute_types;

pub use httproute_types::{HTTPRoute, HTTPRouteSpec, HTTPRouteStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1";
