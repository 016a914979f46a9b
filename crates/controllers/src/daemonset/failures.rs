//! How long a node on which a DaemonSet's pod has failed waits for the next one: 1 s, doubled each time, at most 15 min
//! (`failedPodsBackoff`).
//!
//! Pure but for its memory; the time is passed in. After a restart every node is tried at once, as in Kubernetes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::Request;
use kubewright::k8s_openapi::jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// When a pod was last taken from a node, and how long that node waits since.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Timestamp,
    wait: Duration,
}

/// The nodes of each set.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Request, BTreeMap<String, Last>>>);

impl Failures {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Request, BTreeMap<String, Last>>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the node still waits; `None` when its failed pod may go now, which is remembered.
    pub(crate) fn wait(&self, set: &Request, node: &str, now: Timestamp) -> Option<Duration> {
        let mut map = self.map();
        let nodes = map.entry(set.clone()).or_default();
        let last = nodes.get(node).copied();
        let passed = last.map(|last| Duration::try_from(now.duration_since(last.at)).unwrap_or(Duration::ZERO));
        let wait = match (last, passed) {
            (Some(last), Some(passed)) if passed < last.wait => return Some(last.wait.saturating_sub(passed)),
            // Twice the longest wait without a failure: the node is as good as new.
            (Some(last), Some(passed)) if passed <= LONGEST.saturating_mul(2) => {
                last.wait.saturating_mul(2).min(LONGEST)
            }
            _ => FIRST,
        };
        nodes.insert(node.to_owned(), Last { at: now, wait });
        None
    }

    /// The set is gone.
    pub(crate) fn forget(&self, set: &Request) {
        self.map().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_wait_ever_longer() {
        let (failures, set) = (Failures::default(), Request::new(Some("ns"), "agent"));
        let check = |node: &str, at: i64, expected: Option<u64>| {
            let now = Timestamp::from_second(1_000_000 + at).expect("a time");
            assert_eq!(
                failures.wait(&set, node, now),
                expected.map(Duration::from_secs),
                "{node} at {at}"
            );
        };
        check("a", 0, None);
        check("a", 0, Some(1));
        check("b", 0, None);
        check("a", 1, None);
        check("a", 2, Some(1));
        check("a", 3, None);
        check("a", 4, Some(3));
        check("a", 4000, None);
        check("a", 4000, Some(1));
        failures.forget(&set);
        check("a", 4000, None);
    }
}
