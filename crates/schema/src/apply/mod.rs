//! Server-side apply: who owns which field of an object, and what that means for a write.
//!
//! Every writer has an entry in `metadata.managedFields` with the set of fields that it owns. [`update`] follows an ordinary write: what
//! changed belongs to the writer from now on, and to nobody else. [`apply`] merges a configuration into the live object: the
//! applier owns exactly what it applied; what it gave up and nobody else owns goes; what others own and it would change is a conflict,
//! unless it forces.
//!
//! Invariants: values are looked at through their schema, never by their form alone, so that the same field has the same path whoever
//! wrote it; nothing here panics on any value, schema or set; an update or apply that changes no field changes no entry of others;
//! time is passed in. The recursion is bounded by the depth that decoding allows.
//!
//! Not here: where the manager's name comes from, which fields a subresource may write, answers to clients (the API server).

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
    ApplyError, Conflict, Convert, apply, apply_seen, conflict_message, enter_untracked, fits, scale_managers,
    scale_to_parent, unchanged, update, update_seen,
};
pub use views::{Seen, View, Views, untyped};
