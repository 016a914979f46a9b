//! The controllers: what happens to objects.

pub mod plan;
pub mod pods;
pub mod revisions;
pub mod sidecarset_controller;
pub mod upgrade;
