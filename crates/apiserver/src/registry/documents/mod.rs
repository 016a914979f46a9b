//! What was made of a snapshot of the kinds, kept with it: nothing is made twice, and nothing outlives what it speaks of.
//!
//! Not here: how the documents are made (`crate::discovery`, `crate::openapi`).

pub(crate) mod discovery;
pub(crate) mod openapi;
