//! The documents that were made from a snapshot of the kinds, kept with it: nothing is made twice, and no document
//! outlives its subject.
//!
//! Not here: how the documents are made (`crate::discovery`, `crate::openapi`).

pub(crate) mod discovery;
pub(crate) mod openapi;
