//! The pods that name a Job and have its finalizer, so that those which it left behind are found without a look at all
//! pods.
//!
//! Invariant: a pod is here before any reconcile can miss it, because the watch tells of it first. A pod that is here
//! too long does no harm: the reader looks at the pod itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::Request;
use kubewright_objects::api::core::v1::Pod;

use super::job_of;
use super::state::is_tracked;
use kubewright_objects::meta;

/// Names of pods, by the Job that they name. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Tracked(Arc<Mutex<BTreeMap<Request, BTreeSet<String>>>>);

impl Tracked {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Request, BTreeSet<String>>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a pod is now.
    pub(super) fn see(&self, pod: &Pod) {
        let Some(job) = job_of(pod) else { return };
        let (name, mut map) = (meta::name(&pod.metadata), self.map());
        if is_tracked(pod) {
            map.entry(job).or_default().insert(name.to_owned());
        } else if let Some(names) = map.get_mut(&job) {
            names.remove(name);
            if names.is_empty() {
                map.remove(&job);
            }
        }
    }

    /// The pods that name this Job.
    pub(super) fn of(&self, job: &Request) -> Vec<String> {
        self.map().get(job).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_are_found_by_their_job() {
        let tracked = Tracked::default();
        let see = |name: &str, job: &str, finalizers: Value| {
            let labels = json!({ "batch.kubernetes.io/job-name": job });
            let meta = json!({ "namespace": "a", "name": name, "labels": labels, "finalizers": finalizers });
            let pod: Pod = serde_json::from_value(json!({ "metadata": meta })).expect("a pod");
            tracked.see(&pod);
        };
        let check = |job: &str, expected: &[&str]| assert_eq!(tracked.of(&Request::new(Some("a"), job)), expected);
        let finalizer = || json!(["batch.kubernetes.io/job-tracking"]);
        see("p0", "once", finalizer());
        see("p1", "once", finalizer());
        see("q0", "other", finalizer());
        see("r0", "none", Value::Null);
        check("once", &["p0", "p1"]);
        check("other", &["q0"]);
        see("p0", "once", json!(["example.com/hold"]));
        see("q0", "other", Value::Null);
        check("once", &["p1"]);
        check("other", &[]);
        check("none", &[]);
        assert_eq!(tracked.map().len(), 1);
    }
}
