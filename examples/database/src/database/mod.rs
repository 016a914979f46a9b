//! The parts of a Database. Nothing here does anything.

pub mod children;
pub mod copies;
pub mod drift;
pub mod password;
pub mod shape;
pub mod validation;
