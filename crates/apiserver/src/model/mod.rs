//! What the server speaks of: an object, the row of a resource with its strategy, an operation, a status, a user.
//!
//! Everything else may name these; they name nothing of what is done with them.

mod allocation;
mod custom;
mod ending;
pub(crate) mod fields;
pub(crate) mod form;
pub mod object;
mod operation;
mod resource;
mod service_range;
pub mod status;
mod strategy;
mod subresource;
pub(crate) mod unfit;
pub mod user;

pub use allocation::{Allocate, Allocation, HeldIps, Holding, Taken, Unallocated};
pub(crate) use custom::Source;
pub use custom::{ConversionWebhook, Custom, Several};
pub use ending::{Delete, Ending};
pub use fields::{FieldRule, Must};
pub use operation::Operation;
pub use resource::*;
pub use service_range::ServiceRange;
pub use strategy::{
    Empties, GenerationRule, GracePeriod, Looks, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext,
    UnknownField,
};
pub use subresource::{Connection, Document, Portion, READ_WRITE, ScalePaths, Subresource, Way};

/// The plural of the kind that the objects of others live in.
pub(crate) const NAMESPACES: &str = "namespaces";
