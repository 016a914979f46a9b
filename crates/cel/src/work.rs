//! The memory of an evaluation, charged to the budget of the request.
//!
//! Invariant: the budget of the request never becomes an error of an expression. An expression fails by what it says
//! and by its inputs alone, because its errors are decisions: a policy or webhook whose failures are ignored is not
//! applied. A spent request is cancelled as a whole, and stores nothing.

use kubewright_values::budget;

/// Charges the bytes that an evaluation is about to make: its CEL cost says little about its memory.
pub(crate) fn made(bytes: usize) {
    budget::spend_on_text(bytes);
    budget::produce(bytes);
}

/// The memory of a list item.
pub(crate) const ITEM: usize = 64;
