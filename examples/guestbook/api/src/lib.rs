//! The types of guestbook's API, for the operator and its clients.

pub mod v1;
