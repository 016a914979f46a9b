//! The work and the memory of an evaluation, charged to the budget of the request.

use kubewright_values::budget;

use crate::error::Error;

/// Says that an evaluation did something. Beyond the request's budget it is too expensive, as beyond the limit of its
/// own cost.
pub(crate) fn worked(steps: usize) -> Result<(), Error> {
    if !budget::affords(steps, 0) {
        return Err(Error::CostExceeded);
    }
    budget::spend(steps);
    Ok(())
}

/// Charges the bytes that an evaluation is about to make: its CEL cost says little about its memory.
pub(crate) fn made(bytes: usize) -> Result<(), Error> {
    if !budget::affords(bytes / 32, bytes) {
        return Err(Error::CostExceeded);
    }
    budget::spend_on_text(bytes);
    budget::produce(bytes);
    Ok(())
}

/// The memory of a list item.
pub(crate) const ITEM: usize = 64;
