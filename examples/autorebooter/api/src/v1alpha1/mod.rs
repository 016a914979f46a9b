//! `autoreboot.my.domain/v1alpha1`.

mod rebootpolicy_status;
pub mod rebootpolicy_types;

pub use rebootpolicy_status::{LastRestart, Observed, Phase, RebootPolicyStatus, RestartedTarget};
pub use rebootpolicy_types::{
    DatabaseType, FirstObservation, Mode, Named, RebootPolicy, RebootPolicySpec, SecretKey, Source, Table, Target,
    TargetKind, Watched,
};

/// The group of the kinds in this module.
pub const GROUP: &str = "autoreboot.my.domain";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1alpha1";
