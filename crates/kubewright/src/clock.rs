//! What the runtime is given from outside: wall time, for timestamps in objects, and chance.
//!
//! Durations, delays and deadlines never use the clock: they run on `tokio::time`, which tests can pause. Invariant: with
//! a paused time, a virtual clock and seeded entropy, on one thread, a run is the same twice, down to each request. So
//! nothing else in this crate asks the system for the time or for a random number to decide by, and every
//! `tokio::select!` is biased.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Where random numbers come from: the spread of retries and of watches, the identities in Leases. The default is the
/// system; with a seed they are the same in every run. Clones share one sequence.
#[derive(Clone, Default)]
pub struct Entropy(Option<Arc<AtomicU64>>);

impl Entropy {
    /// The sequence of this seed, for tests: no secret may come from it.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy(Some(Arc::new(AtomicU64::new(seed))))
    }

    /// The next 64 bits.
    pub fn draw(&self) -> u64 {
        /// 2^64 by the golden ratio: the step of the SplitMix64 generator.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let Some(state) = &self.0 else {
            // The standard library seeds every hasher of this kind differently.
            return RandomState::new().build_hasher().finish();
        };
        let mut bits = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the state: whoever reads logs is not to know what comes next.
        f.write_str(match self.0 {
            None => "Entropy(system)",
            Some(_) => "Entropy(seeded)",
        })
    }
}

/// The world of a manager.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Entropy,
}

impl Default for Env {
    fn default() -> Env {
        Env {
            clock: Arc::new(SystemClock),
            entropy: Entropy::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_the_system_is_none() {
        let drawn = |entropy: &Entropy| -> Vec<u64> { (0..4).map(|_| entropy.draw()).collect() };
        assert_eq!(drawn(&Entropy::seeded(7)), drawn(&Entropy::seeded(7)));
        assert_ne!(drawn(&Entropy::seeded(7)), drawn(&Entropy::seeded(8)));
        assert_ne!(drawn(&Entropy::default()), drawn(&Entropy::default()));
        // The published first number of SplitMix64 for the seed 0.
        assert_eq!(Entropy::seeded(0).draw(), 0xe220_a839_7b1d_cdaf);
    }
}
