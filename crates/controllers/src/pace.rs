//! Rests between two looks at thousands of pods.
//!
//! A controller that counts the pods of a Service, a budget or a DaemonSet looks at all of them when one changes. If
//! thousands change one after the other, that is the square of their number. After a rest, one look serves all changes.
//!
//! Invariant: an object with few pods is looked at at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::Request;
use kubewright::k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Fewer pods are looked at at once.
const FEW: usize = 200;
/// The rest for each pod that was looked at: some ten times what the look costs.
const REST: Duration = Duration::from_micros(25);

/// When each object may be looked at again, and how long it rests in all.
#[derive(Default)]
pub(crate) struct Pace(Mutex<BTreeMap<Request, (Timestamp, Duration)>>);

impl Pace {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Request, (Timestamp, Duration)>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an object still rests.
    pub(crate) fn rest(&self, request: &Request, now: Timestamp) -> Option<Duration> {
        let (until, whole) = *self.map().get(request)?;
        let rest = Duration::try_from(until.duration_since(now)).ok()?;
        // If the clock was set back, no longer than the whole rest.
        Some(rest.min(whole)).filter(|rest| !rest.is_zero())
    }

    /// So many pods of an object were looked at.
    pub(crate) fn looked(&self, request: &Request, now: Timestamp, pods: usize) {
        if pods < FEW {
            return self.forget(request);
        }
        let rest = REST.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX));
        let until = SignedDuration::try_from(rest)
            .ok()
            .and_then(|rest| now.checked_add(rest).ok());
        self.map().insert(request.clone(), (until.unwrap_or(now), rest));
    }

    /// The object is gone.
    pub(crate) fn forget(&self, request: &Request) {
        self.map().remove(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_are_not_looked_at_again_at_once() {
        let (pace, request) = (Pace::default(), Request::new(Some("a"), "web"));
        let at = |millis: i64| Timestamp::from_millisecond(millis).expect("small");
        let check = |millis: i64, expected: Option<u64>| {
            let rest = pace.rest(&request, at(millis));
            assert_eq!(rest, expected.map(Duration::from_millis), "{millis}");
        };
        check(0, None);
        pace.looked(&request, at(0), 4_000);
        check(0, Some(100));
        check(70, Some(30));
        check(100, None);
        // The clock was set back.
        check(-50, Some(100));
        pace.looked(&request, at(1_000), 4_000);
        pace.looked(&request, at(1_050), 199);
        check(1_050, None);
        pace.looked(&request, at(0), 200);
        check(0, Some(5));
        pace.forget(&request);
        check(0, None);
    }
}
