//! Wall time, for timestamps in objects.
//!
//! Durations, delays and deadlines never use it: they run on `tokio::time`, which tests can pause.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Tells the time of day. The default is [`SystemClock`]; tests pass their own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no clock",
    note = "`SystemClock` is the one that operators use"
)]
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Whether the time is a test's, and goes on at once to the next due timer. Then watches stay open and are not
    /// asked for signs of life: most timers would be theirs.
    fn is_virtual(&self) -> bool {
        false
    }
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = i128::try_from(since_epoch.as_nanos()).unwrap_or(i128::MAX);
        Timestamp::from_nanosecond(nanoseconds).unwrap_or(Timestamp::MAX)
    }
}
