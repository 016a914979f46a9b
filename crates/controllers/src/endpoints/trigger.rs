//! The time of the change that an update of endpoints shows, for metrics of its latency (`TriggerTimeTracker`).
//!
//! The time is the earliest change of a pod's readiness since the last look, and at the first look the Service's own
//! beginning.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::Request;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::{Pod, Service};

use kubewright_objects::meta;
use kubewright_objects::pods;

type Seen = BTreeMap<String, Timestamp>;

/// The last seen states of the pods of each Service.
#[derive(Clone, Default)]
pub(super) struct Triggers(Arc<Mutex<BTreeMap<Request, Seen>>>);

impl Triggers {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Request, Seen>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the change that is looked at now; none when nothing has a time.
    pub(super) fn of(&self, request: &Request, service: &Service, pods: &[&Pod]) -> Option<String> {
        let now: Seen = pods
            .iter()
            .filter_map(|pod| Some((meta::name(&pod.metadata).to_owned(), changed(pod)?)))
            .collect();
        let before = self.map().insert(request.clone(), now.clone());
        let first = before.is_none().then(|| meta::created(&service.metadata));
        let before = before.unwrap_or_default();
        let fresh = now
            .iter()
            .filter(|(name, time)| before.get(*name) != Some(time))
            .map(|(_, time)| *time);
        let earliest = fresh.chain(first.filter(|time| *time != Timestamp::MAX)).min()?;
        Some(earliest.to_string())
    }

    pub(super) fn forget(&self, request: &Request) {
        self.map().remove(request);
    }
}

/// When readiness last changed.
fn changed(pod: &Pod) -> Option<Timestamp> {
    let ready = pods::condition(pod, "Ready")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_earliest_change_since_the_last_look() {
        let service = json!({ "metadata": { "name": "s", "creationTimestamp": "2026-01-01T00:00:05Z" } });
        let service: Service = serde_json::from_value(service).expect("a Service");
        let triggers = Triggers::default();
        let check = |pods: &[(&str, &str)], expected: Option<&str>| {
            let pod = |(name, second): &(&str, &str)| -> Pod {
                let time = format!("2026-01-01T00:00:{second}Z");
                let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": time });
                let pod = json!({ "metadata": { "name": name }, "status": { "conditions": [condition] } });
                serde_json::from_value(pod).expect("a pod")
            };
            let pods: Vec<Pod> = pods.iter().map(pod).collect();
            let found = triggers.of(
                &Request::new(Some("a"), "s"),
                &service,
                &pods.iter().collect::<Vec<_>>(),
            );
            assert_eq!(found.as_deref(), expected);
        };
        check(&[("a", "09")], Some("2026-01-01T00:00:05Z"));
        check(&[("a", "09")], None);
        check(&[("a", "09"), ("b", "12"), ("c", "11")], Some("2026-01-01T00:00:11Z"));
        check(&[("a", "13")], Some("2026-01-01T00:00:13Z"));
    }
}
