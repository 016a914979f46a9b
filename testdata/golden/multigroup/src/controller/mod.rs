//! The controllers: what happens to objects.

pub mod crew;
pub mod dock_harbour;
pub mod sea_lanes;
