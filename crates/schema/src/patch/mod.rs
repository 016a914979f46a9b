//! The three kinds of patches that describe a change, each in a file of its own. All of them leave the original as it
//! is and return the patched document; decoding and validation judge the result.
//!
//! Not here: server-side apply, which describes a result.

pub mod json;
pub mod merge;
pub mod shown;
pub mod strategic;
