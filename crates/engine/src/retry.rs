//! Whether a request is sent again, and when.
//!
//! One layer retries, this one. A read is repeated after every fault that may pass. A write is repeated only when the
//! server cannot have carried it out: it was turned away (429), or no connection came about. Everything else is the
//! caller's to judge, because only the caller knows the write's meaning: a POST that is sent twice makes two objects, a
//! PUT that is sent twice finds its own first attempt as a conflict.
//!
//! Invariants: no wait reaches past the deadline; waits grow, are jittered, and are at least the server's
//! `Retry-After`.
//!
//! Not here: sending, the clock, and the time after the last attempt, which is the work queue's.

use std::time::Duration;

/// At most so many times is a request sent.
pub const ATTEMPTS: u32 = 5;
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The effect of a request on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing (GET, LIST), or nothing that lasts (dry run).
    Read,
    /// It may change something.
    Write,
}

/// Why a request failed, as far as repeating it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection came about, so that nothing was sent.
    NotSent,
    /// It was sent, and the connection broke before the answer was complete.
    Lost,
    /// The server answered with this HTTP status, and in `Retry-After` perhaps with a wish.
    Status {
        /// The HTTP status code.
        code: u16,
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Something that is the same at the next attempt: the request cannot be built, the answer cannot be understood.
    Lasting,
}

impl Fault {
    /// Whether the server cannot have carried the request out.
    pub fn not_applied(&self) -> bool {
        match self {
            Fault::NotSent => true,
            // Below 500 the server has judged the request and refused it.
            Fault::Status { code, .. } => *code < 500,
            Fault::Lost | Fault::Lasting => false,
        }
    }

    fn may_pass(&self) -> bool {
        match self {
            Fault::NotSent | Fault::Lost => true,
            Fault::Status { code, .. } => matches!(code, 429 | 502 | 503 | 504),
            Fault::Lasting => false,
        }
    }

    fn retry_after(&self) -> Duration {
        match self {
            Fault::Status {
                retry_after: Some(wait),
                ..
            } => *wait,
            _ => Duration::ZERO,
        }
    }
}

/// How long to wait before the request is sent again; `None` when it is not. `attempt`: how many were made, from 1;
/// `left`: the time until the caller's deadline; `entropy`: a fresh random number, for jitter.
pub fn again(effect: Effect, fault: Fault, attempt: u32, left: Duration, entropy: u64) -> Option<Duration> {
    let harmless = effect == Effect::Read || fault.not_applied();
    if attempt >= ATTEMPTS || !harmless || !fault.may_pass() {
        return None;
    }
    let step = FIRST
        .saturating_mul(1 << attempt.saturating_sub(1).min(16))
        .min(LONGEST);
    // 32 bits of entropy are plenty for a fraction, and keep the product within range.
    let fraction = (entropy >> 32) as f64 / f64::from(u32::MAX);
    let wait = (step + step.mul_f64(fraction.min(1.0))).max(fault.retry_after());
    (wait < left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Duration = Duration::from_secs(60);

    fn status(code: u16) -> Fault {
        Fault::Status {
            code,
            retry_after: None,
        }
    }

    #[test]
    fn writes_are_repeated_only_when_they_cannot_have_been_applied() {
        let check = |fault: Fault, read: bool, write: bool| {
            let repeated = |effect| again(effect, fault, 1, LEFT, 0).is_some();
            assert_eq!(
                (repeated(Effect::Read), repeated(Effect::Write)),
                (read, write),
                "{fault:?}"
            );
        };
        check(Fault::NotSent, true, true);
        check(Fault::Lost, true, false);
        check(status(429), true, true);
        check(status(503), true, false);
        check(status(504), true, false);
        check(status(500), false, false);
        check(status(403), false, false);
        check(status(409), false, false);
        check(Fault::Lasting, false, false);
    }

    #[test]
    fn waits_grow_obey_the_server_and_end_before_the_deadline() {
        let wait =
            |attempt, entropy| again(Effect::Read, Fault::Lost, attempt, LEFT, entropy).map(|wait| wait.as_millis());
        let waits: Vec<_> = (1..=ATTEMPTS).map(|attempt| wait(attempt, 0)).collect();
        assert_eq!(waits, [Some(50), Some(100), Some(200), Some(400), None]);
        assert_eq!(wait(1, u64::MAX), Some(100));
        let asked = |seconds, left| {
            let retry_after = Some(Duration::from_secs(seconds));
            again(Effect::Write, Fault::Status { code: 429, retry_after }, 1, left, 0)
        };
        assert_eq!(asked(7, LEFT), Some(Duration::from_secs(7)));
        assert_eq!(
            asked(7, Duration::from_secs(7)),
            None,
            "the caller would not live to see it"
        );
    }
}
