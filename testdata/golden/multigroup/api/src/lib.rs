//! The types of multigroup's API, for the operator and its clients.

pub mod crew;
pub mod dock_harbour;
pub mod sea_lanes;
