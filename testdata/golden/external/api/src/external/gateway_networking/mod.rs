//! The group `gateway.networking.k8s.io`.

pub mod v1;
