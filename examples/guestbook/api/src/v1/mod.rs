//! `webapp.my.domain/v1`.

pub mod guestbook_types;

pub use guestbook_types::{Guestbook, GuestbookSpec, GuestbookStatus};

/// The group of the kinds in this module.
pub const GROUP: &str = "webapp.my.domain";

/// The version of the kinds in this module.
pub const VERSION: &str = "v1";
