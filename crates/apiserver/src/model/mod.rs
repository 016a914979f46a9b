//! What the server speaks of: an object, the row of a resource with its strategy, an operation, a status, a user.
//!
//! Everything else may name these; they name nothing of what is done with them.

pub(crate) mod form;
pub mod object;
mod operation;
mod resource;
mod service_range;
pub mod status;
pub(crate) mod unfit;
pub mod user;

pub use operation::Operation;
pub use resource::*;
pub use service_range::ServiceRange;
