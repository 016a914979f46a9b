//! `shelf.my.domain/v1`.

pub mod book_types;

pub use book_types::{Book, BookSpec, BookStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "shelf.my.domain";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1";
