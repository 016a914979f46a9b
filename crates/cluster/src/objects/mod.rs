//! Small readings of objects that controllers and processes share: metadata, nodes, quantities, and annotations
//! of usage.
//!
//! Pure, and below both: nothing here knows a controller or a pod that runs.

pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod quantity;
pub(crate) mod usage;
