//! Server-side apply: the field managers of an object's fields, and their effect on a write.
//!
//! Every writer has an entry in `metadata.managedFields` with the set of fields that it owns. [`update`] follows an
//! ordinary write: each changed field belongs to the writer from now on, and to no other manager. [`apply`] merges a
//! configuration into the live object: the applier owns exactly the applied fields; a field that it gives up is removed
//! unless another manager owns it; a change of a field of another manager is a conflict, unless the applier forces.
//!
//! Invariants: values are looked at through their schema, never by their form alone, so that the same field has the
//! same path for every manager; nothing here panics on any value, schema or set; an update or apply that changes no
//! field changes no entry of others; time is passed in. The recursion is bounded by the depth that decoding allows.
//!
//! Not here: where the manager's name comes from, which fields a subresource may write, answers to clients (the API
//! server).

mod check;
mod configuration;
mod diff;
mod managers;
mod merge;
mod pruning;
mod set;
mod shape;
mod updater;
mod views;
mod written;

pub(crate) use check::go_syntax;
pub use configuration::merge_configuration;
pub use managers::{ManagedFields, Manager, Operation, Owned, is_reset};
pub use set::FieldSet;
pub use shape::ObjectType;
pub use updater::{
    ApplyError, Conflict, Convert, Live, apply, apply_seen, conflict_message, enter_untracked, fits, scale_managers,
    scale_to_parent, unchanged, update, update_seen, would_change,
};
pub use views::{VersionView, View, Views, untyped};
