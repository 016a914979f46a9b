//! How long the next pod waits after failures: 10 s, doubled with each failure since the last success, at most 10
//! minutes (`backoff_utils.go` in kube-controller-manager).
//!
//! Pure but for the table of records, which is lost with the process as upstream's is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::Request;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::Pod;

use kubewright_objects::pods;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

/// By Job and uid, so that a namesake begins anew.
#[derive(Clone, Default)]
pub(super) struct Records(Arc<Mutex<BTreeMap<Request, (String, Record)>>>);

impl Records {
    pub(super) fn of(&self, request: &Request, uid: &str) -> Record {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = records.get(request).filter(|(of, _)| of == uid);
        found.map(|(_, record)| *record).unwrap_or_default()
    }

    pub(super) fn keep(&self, request: &Request, uid: &str, record: Record) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert(request.clone(), (uid.to_owned(), record));
    }

    pub(super) fn forget(&self, request: &Request) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(request);
    }
}

impl Record {
    /// With pods that have finished since.
    pub(super) fn after(mut self, succeeded: &[&Pod], failed: &[&Pod], now: Timestamp) -> Record {
        let mut ends: Vec<(Timestamp, bool)> = succeeded.iter().map(|pod| (finished(pod, now), true)).collect();
        ends.extend(failed.iter().map(|pod| (finished(pod, now), false)));
        ends.sort_unstable();
        for (at, success) in ends {
            match success {
                true => self.failures = 0,
                false => {
                    self.failures = self.failures.saturating_add(1);
                    self.last = self.last.max(Some(at));
                }
            }
        }
        self
    }

    /// How long to wait from now.
    pub(super) fn remaining(&self, now: Timestamp) -> Duration {
        match (self.failures, self.last) {
            (0, _) | (_, None) => Duration::ZERO,
            (failures, Some(last)) => remaining(failures, last, now),
        }
    }
}

/// How long to wait from now after this many failures, of which the last was at `last`.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = FIRST.saturating_mul(doubled).min(LONGEST);
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO);
    whole.saturating_sub(passed)
}

/// When a pod has finished (`getFinishedTime`): its last container, its unreadiness, its deletion, or now.
pub(super) fn finished(pod: &Pod, now: Timestamp) -> Timestamp {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let containers = statuses.into_iter().flatten().filter_map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|time| time.0)
    });
    let unready =
        || pods::condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref().map(|time| time.0));
    let deleted = || pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.min(now));
    containers.max().or_else(unready).or_else(deleted).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_wait() {
        let at = |second: i64| Timestamp::from_second(second).expect("a small number");
        let check = |failures: u32, now: i64, seconds: u64| {
            assert_eq!(
                remaining(failures, at(100), at(now)).as_secs(),
                seconds,
                "{failures} failures at {now}"
            );
        };
        check(1, 100, 10);
        check(1, 104, 6);
        check(1, 110, 0);
        check(2, 100, 20);
        check(3, 100, 40);
        check(7, 100, 600);
        check(u32::MAX, 100, 600);
        // A clock that was set back makes it no longer than the whole.
        check(1, 50, 10);
    }

    #[test]
    fn a_success_forgives() {
        let now = Timestamp::from_second(100).expect("a small number");
        let pod = Pod::default();
        let record = Record::default().after(&[], &[&pod, &pod], now);
        assert_eq!(record.remaining(now).as_secs(), 20);
        let later = Timestamp::from_second(101).expect("a small number");
        assert_eq!(record.after(&[&pod], &[], later).remaining(later), Duration::ZERO);
    }
}
