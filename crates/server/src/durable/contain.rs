//! Panics of the database, which a damaged file can cause.
//!
//! They are caught and reported as damage. A panic hook can call [`panic_is_reported`] and print nothing, so that they
//! do not look like a crash.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many calls of [`contain`] this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts one call, until it is dropped.
struct CallGuard;

impl CallGuard {
    fn enter() -> CallGuard {
        DEPTH.set(DEPTH.get() + 1);
        CallGuard
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Calls `work`; `None` when it panics.
pub(super) fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    let _inside = CallGuard::enter();
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Whether a panic of this thread would be caught now and reported as an error, so that a panic hook need not print it.
///
/// ```
/// let print = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !kubewright_server::panic_is_reported() {
///         print(panic);
///     }
/// }));
/// ```
#[must_use]
pub fn panic_is_reported() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contained_panic_is_reported_and_no_other() {
        assert!(!panic_is_reported());
        assert_eq!(contain(|| (panic_is_reported(), contain(|| 1))), Some((true, Some(1))));
        let inner = contain(|| {
            assert_eq!(contain(|| std::panic::resume_unwind(Box::new(()))), None::<()>);
            panic_is_reported()
        });
        assert_eq!(inner, Some(true));
        assert!(!panic_is_reported());
    }
}
