//! Rate limiters: how long a controller waits before a retry ([`crate::Controller::rate_limiter`]).
//!
//! | limiter | client-go's |
//! |---|---|
//! | [`Exponential`]: 5 ms, twice as long each time, up to 1000 s; the default | `ItemExponentialFailureRateLimiter` |
//! | [`FastSlow`]: a few quick attempts, then slow ones | `ItemFastSlowRateLimiter` |
//! | [`Bucket`]: a number of retries a second, for all objects together | `BucketRateLimiter` |
//! | [`Max`]: the longer delay of two | `MaxOfRateLimiter` |
//! | a function of the number of failures, or anything else that is a [`RateLimiter`] | |

pub use kubewright_engine::Instant;
pub use kubewright_engine::backoff::Exponential;
pub use kubewright_engine::rate::{Bucket, FastSlow, Max, RateLimiter};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::end_of_panic;

/// A limiter of a user, whose panic must not take the worker along.
pub(crate) struct Guarded<L>(pub(crate) L);

impl<L: RateLimiter> RateLimiter for Guarded<L> {
    fn delay(&mut self, failures: u32, now: Instant) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.0.delay(failures, now))).unwrap_or_else(|payload| {
            let error = end_of_panic(payload);
            tracing::error!(error, "a rate limiter panicked; the default delay counts");
            Exponential::default().delay(failures)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_a_limiter_that_panics_leaves_the_default() {
        let mut limiter = Guarded(|failures: u32| -> Duration { panic!("{failures} failures are too many") });
        assert_eq!(limiter.delay(1, Instant::ZERO), Duration::from_millis(10));
    }
}
