//! The group `crew.fleet.example`.

pub mod v1;
