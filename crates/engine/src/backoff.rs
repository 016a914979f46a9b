//! How long to wait after a failure.
//!
//! Two shapes: [`Exponential`] per item of a work queue (client-go's `ItemExponentialFailureRateLimiter`), and
//! [`ReflectorBackoff`] for a whole list/watch loop (client-go's reflector backoff manager). Both are monotone up to
//! their cap and never overflow. Jitter is computed from a number that the caller drew.

use crate::time::Instant;
use std::time::Duration;

/// `base * 2^failures`, at most `max`.
///
/// ```
/// use kubewright_engine::backoff::Exponential;
/// use std::time::Duration;
/// let backoff = Exponential::default();
/// assert_eq!(backoff.delay(0), Duration::from_millis(5));
/// assert_eq!(backoff.delay(3), Duration::from_millis(40));
/// assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Exponential {
    /// controller-runtime's default: 5 ms, doubling, up to 1000 s.
    fn default() -> Exponential {
        Exponential {
            base: Duration::from_millis(5),
            max: Duration::from_secs(1000),
        }
    }
}

impl Exponential {
    /// The delay after `failures` earlier failures in a row (0 for the first).
    pub fn delay(&self, failures: u32) -> Duration {
        1u32.checked_shl(failures)
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(if self.base.is_zero() { Duration::ZERO } else { self.max }, |delay| {
                delay.min(self.max)
            })
    }
}

/// Exponential backoff with jitter that forgets after a quiet time.
#[derive(Clone, Debug)]
pub struct ReflectorBackoff {
    base: Duration,
    max: Duration,
    reset: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Default for ReflectorBackoff {
    /// client-go's reflector: 800 ms doubling to 30 s, up to as much again of jitter, back to 800 ms after 2 min
    /// without a failure.
    fn default() -> ReflectorBackoff {
        ReflectorBackoff::new(
            Duration::from_millis(800),
            Duration::from_secs(30),
            Duration::from_secs(120),
        )
    }
}

impl ReflectorBackoff {
    /// A backoff from `base` doubling to `max` (both before jitter), reset when `reset` passed since the last wait
    /// ended.
    pub fn new(base: Duration, max: Duration, reset: Duration) -> ReflectorBackoff {
        ReflectorBackoff {
            base,
            max,
            reset,
            next: base.min(max),
            last: None,
        }
    }

    /// The wait before the next try: between once and twice the present step, by `entropy`. Advances the step.
    pub fn next(&mut self, now: Instant, entropy: u64) -> Duration {
        if self.last.is_some_and(|ended| now.since(ended) > self.reset) {
            self.next = self.base.min(self.max);
        }
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.max);
        // 32 bits of entropy are plenty for a fraction, and keep the product within range.
        let fraction = (entropy >> 32) as f64 / f64::from(u32::MAX);
        let wait = step + step.mul_f64(fraction.min(1.0));
        self.last = Some(now + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q7_exponential_is_monotone_and_never_overflows() {
        let backoff = Exponential::default();
        let delays: Vec<Duration> = (0..200).map(|n| backoff.delay(n)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(delays[17], Duration::from_millis(5 * (1 << 17)));
        assert!(delays[18..].iter().all(|delay| *delay == backoff.max));
        assert_eq!(
            Exponential {
                base: Duration::MAX,
                max: Duration::MAX
            }
            .delay(64),
            Duration::MAX
        );
        assert_eq!(
            Exponential {
                base: Duration::ZERO,
                max: Duration::MAX
            }
            .delay(64),
            Duration::ZERO
        );
    }

    #[test]
    fn rf6_reflector_backoff_doubles_with_jitter_and_resets_after_quiet() {
        let mut backoff = ReflectorBackoff::default();
        let mut now = Instant::ZERO;
        for step in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let step = Duration::from_millis(step);
            let (lowest, highest) = (backoff.clone().next(now, 0), backoff.next(now, u64::MAX));
            assert_eq!((lowest, highest), (step, step * 2));
            now = now + highest;
        }
        assert_eq!(
            backoff.clone().next(now + Duration::from_secs(120), 0),
            Duration::from_secs(30)
        );
        assert_eq!(
            backoff.next(now + Duration::from_secs(121), 0),
            Duration::from_millis(800)
        );
    }
}
