//! Controllers for the group `sea-lanes.fleet.example`.

pub mod sailor_controller;
