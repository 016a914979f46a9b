//! Small readings of objects that controllers and processes share: what is in metadata, what a quantity says, what
//! annotations say of use.
//!
//! Pure, and below both: nothing here knows a controller or a pod that runs.

pub(crate) mod meta;
pub(crate) mod quantity;
pub(crate) mod usage;
