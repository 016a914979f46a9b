//! Monotonic time as a number that the shell reads.
//!
//! The shell maps its clock to nanoseconds since an origin of its choice (the start of the process, of a simulation).
//! Arithmetic saturates: a delay beyond the end of time is the end of time, never a panic. Not here: wall-clock time,
//! sleeping.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment of a monotonic clock: nanoseconds since an origin that the caller chose.
///
/// ```
/// use kubewright_engine::Instant;
/// use std::time::Duration;
/// let start = Instant::ZERO;
/// let later = start + Duration::from_millis(5);
/// assert_eq!(later.since(start), Duration::from_millis(5));
/// assert_eq!(start.since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// The end of time, about 584 years after the origin.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The moment `elapsed` after the origin; [`Instant::MAX`] when that does not fit.
    pub fn from_origin(elapsed: Duration) -> Instant {
        Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, delay: Duration) -> Instant {
        Instant(
            self.0
                .saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::from_origin(Duration::MAX), Instant::MAX);
        assert_eq!(Instant(3).since(Instant(5)), Duration::ZERO);
    }
}
