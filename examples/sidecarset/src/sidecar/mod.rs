//! What a SidecarSet means, without a cluster: pure functions, which the webhooks and the controller share.
//!
//! - `selecting.rs`: which pods a set is for, - `hash.rs`: what a set is at the moment, in a few letters, - `record.rs`: what a pod says of the
//!   sets that it was injected by, - `inject.rs`: how containers come into a pod, - `source.rs`: what they take over from the pod's own,
//! - `defaults.rs`, `rules.rs`: what is filled in and what is refused, - `conflicts.rs`: which sets cannot be together.

pub mod conflicts;
pub mod defaults;
pub mod hash;
pub mod inject;
pub mod record;
pub mod rules;
pub mod selecting;
mod source;
