//! `apps.kruise.io/v1alpha1`.

pub mod container;
pub mod sidecarset_types;

pub use container::{
    PodInjectPolicy, ShareVolumePolicy, ShareVolumePolicyType, SidecarContainer, SourceContainerName, TransferEnv,
    UpgradeStrategy, UpgradeType,
};
pub use sidecarset_types::{
    InjectionStrategy, SidecarSet, SidecarSetSpec, SidecarSetStatus, UpdateStrategy, UpdateStrategyType,
};

/// The group of the kinds in this module.
pub const GROUP: &str = "apps.kruise.io";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1alpha1";
