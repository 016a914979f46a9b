//! The types of guestbook's API, for the operator and for everybody who talks to it.

pub mod v1;
