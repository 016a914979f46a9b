//! Group `webapp.my.domain`, version `v1`.

mod guestbook_types;

pub use guestbook_types::{Guestbook, GuestbookSpec, GuestbookStatus};
