//! Room on the stack for nested values.
//!
//! Everything that looks at an object recurses into it, and an object may nest `kubewright_schema::decode::MAX_DEPTH`
//! levels deep, a stored one twice that. How much stack the caller's thread has is the caller's matter: a test runs on
//! two megabytes. So the code that answers a request asks for room first.

/// The stack that a walk over the deepest object may take. Without optimization a level takes several kilobytes.
const NEEDED: usize = if cfg!(debug_assertions) { 8 << 20 } else { 3 << 19 };

/// The size of a stack that is made where less is left.
const MADE: usize = 16 << 20;

/// Runs `work` on this stack when enough of it is left, otherwise on one that is made for it.
///
/// ```
/// fn depth(levels: usize) -> usize {
///     if levels == 0 { 0 } else { 1 + kubewright_values::stack::with_room(|| depth(levels - 1)) }
/// }
/// assert_eq!(depth(20), 20);
/// ```
pub fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(NEEDED, MADE, work)
}
