//! The terms of the API server: an object, the row of a resource with its strategy, an operation, a status, a user.
//!
//! The kinds (crate `kinds`) and the pipeline (crate `apiserver`) both depend on this crate, and not on each other, so
//! an edit in a kind compiles the kinds and nothing of the pipeline. [`facts`] has the facts about single kinds that
//! both need.
//!
//! Invariant: nothing here depends on its users, reads a clock, draws entropy or does IO: see [`Env`](env::Env).
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | what a kind can say of itself | `src/resource.rs`, `src/strategy.rs`, `src/subresource.rs` | the tables of the kinds |
//! | the rule of a single field (required, not negative, an enum, a maximum, immutable) | `src/fields.rs`; the kind's rows: `fields` of its strategy | the table there |
//! | an answer of the server, or its text | `src/status.rs` | the table there |
//! | what is checked in the metadata of any object | `src/object.rs`, `src/object/update.rs` | the tables there |
//! | what a quota counts | `src/quota` | `src/quota/tests.rs` |
//! | how a webhook is called, also one in the same process | `src/outbound.rs`, `src/outbound/client.rs` | the tables there |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

pub mod age;
mod allocation;
mod built_in;
mod custom;
pub mod duration;
mod ending;
pub mod env;
pub mod facts;
pub mod fields;
pub mod form;
pub mod object;
mod operation;
pub mod outbound;
pub mod quota;
mod resource;
pub mod scheme;
mod service_range;
pub mod status;
mod strategy;
mod subresource;
pub mod testing;
pub mod unfit;
pub mod user;
pub mod values;

pub use allocation::{Allocate, AllocatedValue, AllocatedValues, Allocation, ReservedIps, Unallocated};
pub use built_in::{BuiltIn, Tell};
pub use custom::{ConversionWebhook, Custom, Source, Versions};
pub use ending::{Delete, Ending};
pub use fields::{FieldRule, Must};
pub use kubewright_schema::{Minor, PerMinor};
pub use operation::Operation;
pub use resource::*;
pub use service_range::ServiceRange;
pub use strategy::{
    Empties, GenerationRule, GracePeriod, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext,
    UnknownField,
};
pub use subresource::{Connection, Document, Portion, READ_WRITE, ScalePaths, Subresource, Way};

/// The plural of the kind that the objects of others live in.
pub const NAMESPACES: &str = "namespaces";
