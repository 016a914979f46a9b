//! Webhooks for the group `crew.fleet.example`.

pub mod v1;
