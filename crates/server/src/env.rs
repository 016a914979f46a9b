//! The world as it is: the API server core asks for time, entropy and timers, and here it gets the machine's.
//!
//! The time of day is that of a clock, which a test may own; delays run on tokio's timers, which a test may pause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kubewright_apiserver::Env;
use kubewright_apiserver::env::BoxFuture;
use rustls::crypto::SecureRandom;

/// The time of an etcd write, about: with kube-apiserver a watch sees an object that ends at once as marked for so
/// long.
const MOMENT: Duration = Duration::from_millis(1);

/// A clock, the operating system's entropy, tokio's timers.
pub struct RealEnv {
    random: Box<dyn Fn() -> u64 + Send + Sync>,
    clock: Box<dyn Fn() -> jiff::Timestamp + Send + Sync>,
}

/// Entropy that was drawn and not yet used: every write needs some, and asking the system each time is a call into it.
#[derive(Default)]
struct Drawn {
    words: [u64; 32],
    left: usize,
}

impl RealEnv {
    /// The machine's world, but for the time of day, which `clock` tells.
    pub fn new(clock: impl Fn() -> jiff::Timestamp + Send + Sync + 'static) -> RealEnv {
        let (random, drawn) = (
            rustls::crypto::ring::default_provider().secure_random,
            Mutex::<Drawn>::default(),
        );
        RealEnv::with_random(clock, move || {
            drawn.lock().unwrap_or_else(PoisonError::into_inner).word(random)
        })
    }

    /// The machine's timers, with a time of day and random numbers from elsewhere: for tests, which want the same uids
    /// in every run.
    pub fn with_random(
        clock: impl Fn() -> jiff::Timestamp + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> RealEnv {
        RealEnv {
            random: Box::new(random),
            clock: Box::new(clock),
        }
    }
}

impl Drawn {
    fn word(&mut self, random: &dyn SecureRandom) -> u64 {
        if self.left == 0 {
            let mut bytes = [[0; 8]; 32];
            random
                .fill(bytes.as_flattened_mut())
                .expect("the operating system has entropy once the process runs");
            *self = Drawn {
                words: bytes.map(u64::from_le_bytes),
                left: bytes.len(),
            };
        }
        self.left -= 1;
        // A word is given out once.
        std::mem::take(&mut self.words[self.left])
    }
}

impl Env for RealEnv {
    fn now(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    fn random(&self) -> u64 {
        (self.random)()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn moment(&self) -> BoxFuture<'static, ()> {
        self.sleep(MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_entropy_does_not_repeat() {
        let env = RealEnv::new(jiff::Timestamp::now);
        let first = env.now();
        assert!(first.as_second() > 1_700_000_000, "{first}");
        assert!(env.now() >= first);
        let drawn: std::collections::BTreeSet<u64> = (0..64).map(|_| env.random()).collect();
        assert_eq!(drawn.len(), 64);
    }
}
