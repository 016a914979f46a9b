//! The decision about a value. Pure: it takes the value, the remembered state and the time.
//!
//! Level-triggered: it matters only whether the value is another than the one that the targets run with. An operator
//! that was away, or got a change twice, comes to the same decision.

use std::time::Duration;

use autorebooter_api::v1alpha1::{FirstObservation, RebootPolicyStatus};
use kubewright::jiff::Timestamp;

use super::terms::Terms;

/// The step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: the targets run with this value.
    Rest,
    /// Remember the value as the one that the targets run with.
    Record,
    /// Wait until the value has rested.
    Debounce {
        /// When the value was new.
        since: Timestamp,
        /// How long from now.
        wait: Duration,
    },
    /// Wait until the last restart is old enough.
    Limit {
        /// When the value was new.
        since: Timestamp,
        /// When.
        until: Timestamp,
        /// How long from now.
        wait: Duration,
    },
    /// Restart the targets.
    Restart {
        /// When the value was new.
        since: Timestamp,
    },
}

// ANCHOR: decide
/// Decides.
pub fn decide(terms: &Terms, status: &RebootPolicyStatus, hash: &str, now: Timestamp) -> Decision {
    match &status.applied_hash {
        Some(applied) if applied == hash => return Decision::Rest,
        None if terms.first == FirstObservation::Record => return Decision::Record,
        _ => {}
    }
    let is_known = status
        .last_observed
        .as_ref()
        .is_some_and(|observed| observed.hash == hash);
    let pending = status.pending_since.as_ref().map(|time| time.0);
    let since = pending.filter(|_| is_known).unwrap_or(now);
    if let Some(wait) = left(since, terms.debounce, now) {
        return Decision::Debounce { since, wait };
    }
    let last = status.last_restart.as_ref().and_then(|restart| restart.at.as_ref());
    if let Some(last) = last
        && let Some(wait) = left(last.0, terms.min_restart_interval, now)
    {
        let until = now.saturating_add(wait).unwrap_or(now);
        return Decision::Limit { since, until, wait };
    }
    Decision::Restart { since }
}
// ANCHOR_END: decide

/// How long it still is until `delay` after `begin`; `None` when it is over.
fn left(begin: Timestamp, delay: Duration, now: Timestamp) -> Option<Duration> {
    // A clock that was set back must not make a target wait for longer than the delay.
    let passed = Duration::try_from(now.duration_since(begin)).unwrap_or(Duration::ZERO);
    delay.checked_sub(passed).filter(|left| !left.is_zero())
}

/// How long until a value is read again that could not be read so many times: 1, 2, 4 … 120 s, and up to a tenth more,
/// by the name of the policy.
pub fn backoff(errors: i32, seed: &str) -> Duration {
    let exponent = u32::try_from(errors.saturating_sub(1)).unwrap_or(0).min(7);
    let seconds = (1_u64 << exponent).min(120);
    let spread = seed
        .bytes()
        .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
        % 100;
    Duration::from_millis(seconds * 1000 + seconds * spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use autorebooter_api::v1alpha1::{LastRestart, Observed};
    use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn terms(first: FirstObservation) -> Terms {
        Terms {
            poll_interval: Duration::from_secs(30),
            debounce: Duration::from_secs(10),
            min_restart_interval: Duration::from_secs(300),
            first,
        }
    }

    fn status(
        applied: Option<&str>,
        observed: &str,
        pending: Option<i64>,
        restarted: Option<i64>,
    ) -> RebootPolicyStatus {
        RebootPolicyStatus {
            applied_hash: applied.map(str::to_owned),
            last_observed: Some(Observed {
                hash: observed.to_owned(),
                ..Observed::default()
            }),
            pending_since: pending.map(|second| Time(at(second))),
            last_restart: restarted.map(|second| LastRestart {
                at: Some(Time(at(second))),
                ..LastRestart::default()
            }),
            ..RebootPolicyStatus::default()
        }
    }

    #[test]
    fn decisions() {
        let check = |first, status: RebootPolicyStatus, hash: &str, now, expected| {
            assert_eq!(
                decide(&terms(first), &status, hash, at(now)),
                expected,
                "{status:?} {hash} {now}"
            );
        };
        let (record, restart) = (FirstObservation::Record, FirstObservation::Restart);
        let seconds = Duration::from_secs;
        let debounce = |since, left| Decision::Debounce {
            since: at(since),
            wait: seconds(left),
        };
        check(record, RebootPolicyStatus::default(), "a", 100, Decision::Record);
        check(restart, RebootPolicyStatus::default(), "a", 100, debounce(100, 10));
        check(record, status(Some("a"), "a", None, None), "a", 100, Decision::Rest);
        check(record, status(Some("a"), "a", None, None), "b", 100, debounce(100, 10));
        check(
            record,
            status(Some("a"), "b", Some(100), None),
            "b",
            104,
            debounce(100, 6),
        );
        // Another change begins the rest anew; a change back ends it.
        check(
            record,
            status(Some("a"), "b", Some(100), None),
            "c",
            104,
            debounce(104, 10),
        );
        check(
            record,
            status(Some("a"), "b", Some(100), None),
            "a",
            104,
            Decision::Rest,
        );
        let due = Decision::Restart { since: at(100) };
        check(record, status(Some("a"), "b", Some(100), None), "b", 110, due.clone());
        check(record, status(Some("a"), "b", Some(100), Some(-190)), "b", 110, due);
        let limit = Decision::Limit {
            since: at(100),
            until: at(350),
            wait: seconds(240),
        };
        check(record, status(Some("a"), "b", Some(100), Some(50)), "b", 110, limit);
        // A clock that was set back.
        check(
            record,
            status(Some("a"), "b", Some(200), None),
            "b",
            110,
            debounce(200, 10),
        );
    }

    #[test]
    fn errors_wait_longer_and_longer() {
        let waits = [1, 2, 3, 4, 7, 8, 1000].map(|errors| backoff(errors, "").as_secs());
        assert_eq!(waits, [1, 2, 4, 8, 64, 120, 120]);
        assert!(backoff(8, "default/prices") <= Duration::from_secs(132));
    }
}
