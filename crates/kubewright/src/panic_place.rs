//! Where a panic of the operator's code happened, for the error that it becomes.
//!
//! A caught panic carries its message alone; only the panic hook hears of the place. Ours notes it and calls the hook
//! that was there. Invariant: a place is told once, with the panic that it belongs to.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Once;

use crate::error::end_of_panic;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on places are noted. Called by each manager that runs.
pub(crate) fn note() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(ToString::to_string);
            // Gone at the end of a thread, when nobody asks any more.
            let _ = LAST.try_with(|last| last.replace(place));
            before(panic);
        }));
    });
}

/// The message of a panic that was caught on this thread, with its place.
pub(crate) fn end_with_place(payload: Box<dyn Any + Send>) -> String {
    let place = LAST.try_with(RefCell::take).ok().flatten();
    let message = end_of_panic(payload);
    match place {
        Some(place) => format!("{message} (at {place})"),
        None => message,
    }
}
