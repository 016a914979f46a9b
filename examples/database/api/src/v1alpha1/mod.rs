//! `db.example.com/v1alpha1`.

pub mod database_types;

pub use database_types::{
    Backup, Database, DatabaseSpec, DatabaseStatus, DatabaseType, DeletionPolicy, Endpoint, Named, Phase, RestoreFrom,
    SecretKey, Storage,
};

/// The group of the kinds in this module.
pub const GROUP: &str = "db.example.com";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1alpha1";
