//! The types of conversion's API, for the operator and its clients.

pub mod v1;
pub mod v2;
