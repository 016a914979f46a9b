//! The world as it is: the API server core asks for time, entropy and timers, and here it gets the machine's.
//!
//! Not here: a clock that a test may move. The core takes any [`Env`]; this one is for clusters that live in real time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubewright_apiserver::Env;
use kubewright_apiserver::env::BoxFuture;
use rustls::crypto::SecureRandom;

/// Real time, the operating system's entropy, tokio's timers.
pub(crate) struct RealEnv {
    random: &'static dyn SecureRandom,
    drawn: Mutex<Drawn>,
}

/// Entropy that was drawn and not yet used: every write needs some, and asking the system each time is a call into it.
#[derive(Default)]
struct Drawn {
    words: [u64; 32],
    left: usize,
}

impl RealEnv {
    pub(crate) fn new() -> RealEnv {
        RealEnv {
            random: rustls::crypto::ring::default_provider().secure_random,
            drawn: Mutex::default(),
        }
    }
}

impl Env for RealEnv {
    fn now(&self) -> jiff::Timestamp {
        now()
    }

    fn random(&self) -> u64 {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.left == 0 {
            let mut bytes = [[0; 8]; 32];
            self.random
                .fill(bytes.as_flattened_mut())
                .expect("the operating system has entropy once the process runs");
            *drawn = Drawn {
                words: bytes.map(u64::from_le_bytes),
                left: bytes.len(),
            };
        }
        drawn.left -= 1;
        let at = drawn.left;
        // A word is given out once.
        std::mem::take(&mut drawn.words[at])
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The machine's time. A clock that is set outside of what a time stamp can hold reads as 1970, which is visible and does no harm.
fn now() -> jiff::Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos())
        .ok()
        .and_then(|nanos| jiff::Timestamp::from_nanosecond(nanos).ok())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_entropy_does_not_repeat() {
        let env = RealEnv::new();
        let first = env.now();
        assert!(first.as_second() > 1_700_000_000, "{first}");
        assert!(env.now() >= first);
        let drawn: std::collections::BTreeSet<u64> = (0..64).map(|_| env.random()).collect();
        assert_eq!(drawn.len(), 64);
    }
}
