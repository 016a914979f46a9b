//! The three kinds of patches that say what shall change, each in a file of its own. All of them leave the original as
//! it is and return the patched document; what the result may be is for decoding and validation to say.
//!
//! Not here: server-side apply, which says what shall be.

pub mod json;
pub mod merge;
pub mod strategic;
