//! The group `sea-lanes.fleet.example`.

pub mod v1;
