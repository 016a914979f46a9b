//! The meaning of a SidecarSet, without a cluster: pure functions, which the webhooks and the controller share.
//!
//! - `selecting.rs`: which pods a set selects,
//! - `hash.rs`: the state of a set, in a few letters,
//! - `record.rs`: a pod's record of the sets that were injected into it,
//! - `inject.rs`: how containers come into a pod,
//! - `source.rs`: the parts that they take over from the pod's own,
//! - `defaults.rs`, `rules.rs`: the defaults and the rules,
//! - `conflicts.rs`: which sets cannot be together.

pub mod conflicts;
pub mod defaults;
pub mod hash;
pub mod inject;
pub mod record;
pub mod rules;
pub mod selecting;
mod source;
