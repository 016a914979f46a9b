//! What an evaluation says that it does and makes, against what the request may cost.

use kubewright_values::budget;

use crate::error::Error;

/// Says that an evaluation did something. Beyond what the request may cost it is too expensive, as beyond the limit of
/// its own cost.
pub(crate) fn worked(steps: usize) -> Result<(), Error> {
    if !budget::affords(steps, 0) {
        return Err(Error::CostExceeded);
    }
    budget::spend(steps);
    Ok(())
}

/// Says that an evaluation makes so many bytes, before it does: what it costs says little about what it makes.
pub(crate) fn made(bytes: usize) -> Result<(), Error> {
    if !budget::affords(bytes / 32, bytes) {
        return Err(Error::CostExceeded);
    }
    budget::spend_on_text(bytes);
    budget::produce(bytes);
    Ok(())
}

/// What an item of a list takes.
pub(crate) const ITEM: usize = 64;
