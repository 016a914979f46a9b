//! Controllers for the group `dock.harbour.fleet.example`.

pub mod berth_controller;
