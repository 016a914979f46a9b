//! `dock.harbour.fleet.example/v1beta1`.

pub mod berth_types;

pub use berth_types::{Berth, BerthSpec, BerthStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "dock.harbour.fleet.example";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1beta1";
