//! The types of conversion's API, for the operator and for everybody who talks to it.

pub mod v1;
pub mod v2;
