//! `crew.fleet.example/v1`.

pub mod sailor_types;

pub use sailor_types::{Rank, Sailor, SailorSpec, SailorStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "crew.fleet.example";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1";
