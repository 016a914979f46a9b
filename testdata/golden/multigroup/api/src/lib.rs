//! The types of multigroup's API, for the operator and for everybody who talks to it.

pub mod crew;
pub mod dock_harbour;
pub mod sea_lanes;
