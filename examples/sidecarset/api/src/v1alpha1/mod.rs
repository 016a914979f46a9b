//! `apps.kruise.io/v1alpha1`.

pub mod sidecarset_types;

pub use sidecarset_types::{SidecarSet, SidecarSetSpec, SidecarSetStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "apps.kruise.io";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1alpha1";
