//! Controllers for the group `crew.fleet.example`.

pub mod sailor_controller;
