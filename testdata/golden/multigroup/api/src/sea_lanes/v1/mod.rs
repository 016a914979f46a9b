//! `sea-lanes.fleet.example/v1`.

pub mod sailor_types;

pub use sailor_types::{Sailor, SailorSpec, SailorStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "sea-lanes.fleet.example";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1";
