//! The group `dock.harbour.fleet.example`.

pub mod v1beta1;
