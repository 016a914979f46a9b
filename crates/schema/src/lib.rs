//! What a Kubernetes object may be and how it changes.
//!
//! Pure: no clock, no IO, ordered collections only.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

// what it may cost
pub mod budget;
pub mod measure;
pub mod stack;
// values and patches
pub mod apply;
pub mod decode;
pub mod error;
pub mod fields;
pub mod go;
pub mod internal;
pub mod jsonpath;
pub mod labels;
pub mod names;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod quantity;
pub mod zones;
// schemas
pub mod catalog;
pub mod cel;
pub mod check;
pub mod definition;
pub mod schema;
pub mod structural;

pub use schema::{Schema, SchemaRef};
