//! The meaning of a RebootPolicy. Nothing here does anything.

pub mod decide;
pub mod terms;
pub mod validation;
pub mod value;
