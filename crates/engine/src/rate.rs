//! How long a retry waits: rate limiters of a work queue (client-go's `TypedRateLimiter`).
//!
//! The queue counts the failures of an item in a row; a limiter turns that number and the time into a delay.
//! [`Exponential`] and [`FastSlow`] look at the item, a [`Bucket`] at all of them together, [`Max`] waits for the
//! slower of two.
//!
//! Invariants: Q7 a limiter never overflows; a bucket gives away no more than its burst and then one for each interval,
//! however the calls fall.

use crate::backoff::Exponential;
use crate::time::Instant;
use std::fmt;
use std::time::Duration;

/// Says how long a retry of an item waits.
pub trait RateLimiter: Send {
    /// The delay after `failures` earlier failures in a row (0 for the first).
    fn delay(&mut self, failures: u32, now: Instant) -> Duration;
}

impl fmt::Debug for dyn RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RateLimiter")
    }
}

impl RateLimiter for Exponential {
    fn delay(&mut self, failures: u32, _: Instant) -> Duration {
        Exponential::delay(self, failures)
    }
}

/// The delay that a function of the failures computes.
impl<F: FnMut(u32) -> Duration + Send> RateLimiter for F {
    fn delay(&mut self, failures: u32, _: Instant) -> Duration {
        self(failures)
    }
}

/// A token bucket over all items (`BucketRateLimiter`): retries begin at once while there are tokens, and then as they
/// come.
///
/// ```
/// use kubewright_engine::rate::{Bucket, RateLimiter};
/// use kubewright_engine::Instant;
/// use std::time::Duration;
/// let mut bucket = Bucket::new(10, 2);
/// let delays: Vec<u128> = (0..4).map(|_| bucket.delay(0, Instant::ZERO).as_millis()).collect();
/// assert_eq!(delays, [0, 0, 100, 200]);
/// assert_eq!(bucket.delay(0, Instant::ZERO + Duration::from_secs(60)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Between two tokens.
    interval: Duration,
    /// How long it takes to fill.
    fill: Duration,
    /// When it will be full.
    full: Instant,
}

impl Bucket {
    /// A full bucket that gets `per_second` tokens and holds `burst`; both at least 1. controller-runtime's has 10 and
    /// 100.
    pub fn new(per_second: u32, burst: u32) -> Bucket {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Bucket {
            interval,
            fill: interval.saturating_mul(burst.max(1)),
            full: Instant::ZERO,
        }
    }
}

impl RateLimiter for Bucket {
    fn delay(&mut self, _: u32, now: Instant) -> Duration {
        self.full = self.full.max(now) + self.interval;
        self.full.since(now).saturating_sub(self.fill)
    }
}

/// A short delay for the first failures, a long one for those after (`ItemFastSlowRateLimiter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastSlow {
    /// The short delay.
    pub fast: Duration,
    /// How many failures in a row it is for.
    pub attempts: u32,
    /// The long delay.
    pub slow: Duration,
}

impl RateLimiter for FastSlow {
    fn delay(&mut self, failures: u32, _: Instant) -> Duration {
        if failures < self.attempts { self.fast } else { self.slow }
    }
}

/// The longer delay of two (`MaxOfRateLimiter`). Both are always asked, so that a bucket counts also the delays in
/// which the other is longer.
#[derive(Clone, Copy, Debug)]
pub struct Max<A, B>(pub A, pub B);

impl<A: RateLimiter, B: RateLimiter> RateLimiter for Max<A, B> {
    fn delay(&mut self, failures: u32, now: Instant) -> Duration {
        self.0.delay(failures, now).max(self.1.delay(failures, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    proptest! {
        /// In every window no more leave than the burst and one for each interval of it.
        #[test]
        fn q7_a_bucket_keeps_its_rate(burst in 1_u32..6, per_second in 1_u32..50, gaps in prop::collection::vec(0_u64..300, 1..60)) {
            let mut bucket = Bucket::new(per_second, burst);
            let (mut now, mut leave) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                leave.push(millis(now) + bucket.delay(0, millis(now)));
            }
            prop_assert!(leave.is_sorted(), "first come, first served");
            let interval = Duration::from_secs(1) / per_second;
            for (first, from) in leave.iter().enumerate() {
                for (last, to) in leave.iter().enumerate().skip(first) {
                    let count = u128::try_from(last - first + 1).expect("small");
                    let most = u128::from(burst) + to.since(*from).as_nanos() / interval.as_nanos();
                    prop_assert!(count <= most, "{count} leave between {from} and {to}");
                }
            }
        }
    }

    #[test]
    fn q7_limiters_look_at_the_item_or_at_all() {
        let check = |limiter: &mut dyn RateLimiter, failures: &[u32], expected: &[u64]| {
            let delays = failures
                .iter()
                .map(|failures| limiter.delay(*failures, millis(0)).as_millis());
            assert_eq!(
                delays.collect::<Vec<_>>(),
                expected.iter().map(|&n| u128::from(n)).collect::<Vec<_>>()
            );
        };
        let exponential = Exponential {
            base: Duration::from_millis(5),
            max: Duration::from_millis(300),
        };
        let mut fast_slow = FastSlow {
            fast: Duration::from_millis(1),
            attempts: 2,
            slow: Duration::from_millis(9),
        };
        check(&mut exponential.clone(), &[0, 3, 60], &[5, 40, 300]);
        check(&mut fast_slow, &[0, 1, 2, 3], &[1, 1, 9, 9]);
        check(&mut Bucket::new(2, 1), &[0, 7, 0], &[0, 500, 1000]);
        check(
            &mut Max(exponential, Bucket::new(10, 2)),
            &[0, 1, 0, 6],
            &[5, 10, 100, 300],
        );
        check(
            &mut |failures: u32| Duration::from_millis(u64::from(failures)),
            &[3, u32::MAX],
            &[3, u64::from(u32::MAX)],
        );
        check(&mut Bucket::new(0, 0), &[0, 0], &[0, 1000]);
    }
}
