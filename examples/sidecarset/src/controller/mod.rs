//! The controllers: what happens to objects.

pub mod sidecarset_controller;
