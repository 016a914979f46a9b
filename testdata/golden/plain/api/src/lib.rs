//! The types of plain's API, for the operator and its clients.

pub mod v1;
