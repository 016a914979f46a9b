//! The world that the server needs: time, entropy and timers, passed in.
//!
//! Nothing in this crate reads a clock or draws a random number by itself, so a test that fixes both sees the same
//! bytes every time.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Time, entropy and timers.
pub trait Env: Send + Sync + 'static {
    /// The present time: creation and deletion timestamps, ages in tables.
    fn now(&self) -> jiff::Timestamp;

    /// 64 random bits: uids and the suffix of `generateName`.
    fn random(&self) -> u64;

    /// A future that is ready after `duration`: the end of a watch, the next bookmark. It may be dropped at any time.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Lets others compute, between two objects of a request that changes many. By default at once.
    fn give_way(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// A pause between two writes, long enough for watchers to see the first before the second. By default there is
    /// none: only a server with clients of its own needs it.
    fn moment(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A version 4 UUID out of the environment's entropy, as `metadata.uid` holds it.
pub fn uuid(env: &dyn Env) -> String {
    let high = env.random();
    let low = env.random();
    let high = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    // Every object gets one: digit by digit is a tenth of the cost of the formatter.
    let bits = (u128::from(high) << 64) | u128::from(low);
    let mut text = String::with_capacity(36);
    for digit in 0..32 {
        if matches!(digit, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        let value = u32::try_from((bits >> (124 - 4 * digit)) & 0xf).unwrap_or(0);
        text.extend(char::from_digit(value, 16));
    }
    text
}

/// `count` characters that `generateName` appends: consonants and digits only, so that no word arises (`rand.String` of
/// apimachinery).
pub fn name_suffix(env: &dyn Env, count: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bits = env.random();
    let mut suffix = String::with_capacity(count);
    for index in 0..count {
        if index % 8 == 7 {
            bits = env.random();
        }
        let base = ALPHABET.len() as u64;
        let at = usize::try_from(bits % base).unwrap_or(0);
        suffix.push(char::from(ALPHABET[at]));
        bits /= base;
    }
    suffix
}

/// A time as Kubernetes writes `metav1.Time`: whole seconds, UTC.
pub fn rfc3339(time: jiff::Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

/// A time as Kubernetes writes `metav1.MicroTime`: six digits of a second, UTC.
pub fn rfc3339_micros(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The time so many seconds after another, or before it; the first or the last that there is where that would be beyond
/// it. Numbers from clients are added to times only by this function, because they may be of any size.
pub fn later(time: jiff::Timestamp, seconds: i64) -> jiff::Timestamp {
    let end = if seconds < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    };
    time.checked_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeEnv, Shared};

    #[test]
    fn uids_have_the_form_of_version_4() {
        let env = Shared(FakeEnv::new());
        for _ in 0..64 {
            let uid = uuid(&env);
            assert_eq!(uid.len(), 36, "{uid}");
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }

    #[test]
    fn a_time_has_whole_seconds() {
        let time: jiff::Timestamp = "2026-01-02T03:04:05.678Z".parse().expect("a time");
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn suffixes_use_the_safe_alphabet() {
        let env = Shared(FakeEnv::new());
        let suffix = name_suffix(&env, 10);
        assert_eq!(suffix.len(), 10);
        assert!(
            suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
            "{suffix}"
        );
    }
}
