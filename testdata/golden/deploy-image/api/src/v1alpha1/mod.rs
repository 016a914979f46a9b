//! `cache.my.domain/v1alpha1`.

pub mod memstore_types;

pub use memstore_types::{Memstore, MemstoreSpec, MemstoreStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "cache.my.domain";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1alpha1";
