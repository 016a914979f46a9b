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
    // Every object and every answer gets one, so it is not left to the formatter.
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(36);
    for (index, byte) in [high, low].map(u64::to_be_bytes).as_flattened().iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0xf)]));
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
    let date = jiff::tz::Offset::UTC.to_datetime(whole);
    let year = date.year();
    if year < 0 {
        return whole.to_string();
    }
    // Every write has some, so they are not left to the formatter.
    let mut text = String::with_capacity(20);
    let clock = [date.month(), date.day(), date.hour(), date.minute(), date.second()].map(i16::from);
    let numbers = [year / 100, year % 100].into_iter().chain(clock);
    for (number, end) in numbers.zip(["", "-", "-", "T", ":", ":", "Z"]) {
        for digit in [number / 10, number % 10] {
            text.extend(u32::try_from(digit).ok().and_then(|digit| char::from_digit(digit, 10)));
        }
        text.push_str(end);
    }
    text
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
        // As the formatter writes them.
        let (step, mut second) = (86_399 * 977, jiff::Timestamp::MIN.as_second());
        while second < jiff::Timestamp::MAX.as_second() {
            let time = jiff::Timestamp::from_second(second).expect("a time in range");
            assert_eq!(rfc3339(time), time.to_string());
            second += step;
        }
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
