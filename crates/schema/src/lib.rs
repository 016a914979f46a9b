//! Schemas of Kubernetes objects: which values they allow, and how objects change.
//!
//! Pure: no clock, no IO, ordered collections only.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

// values and patches
pub mod apply;
pub mod decode;
pub mod fields;
pub mod internal;
pub mod jsonpath;
pub mod labels;
pub mod patch;
pub mod protobuf;
// schemas and rules
pub mod check;
mod correlate;
pub mod declare;
pub mod definition;
pub mod rules;
pub mod schema;
mod sorted;
pub mod structural;
mod times;

// The types in the interface of this crate.
pub use kubewright_values::{base64, budget, error, go, measure, names, path, quantity, stack, zones};
pub use schema::{Schema, SchemaRef, catalog};
