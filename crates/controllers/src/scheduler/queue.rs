//! The queue of pods that wait for a node, so that those of a higher priority are placed first (`PrioritySort`).
//!
//! Keys come from the work queue in no such order, and a pod that takes the room of a more important one is only taken
//! away again for it. Before a pod is placed, those above it are therefore asked for; should one of them fit, the pod
//! steps back.
//!
//! Invariant: a pod steps back only so often: one above it may fit and not be placed all the same.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::Request;
use kubewright_objects::api::core::v1::Pod;

use super::preempt::priority;

/// So many pods are asked about.
const LOOK: usize = 10;
/// So often a pod steps back.
const PATIENCE: u32 = 20;

/// The pods that wait.
#[derive(Default)]
pub(super) struct SchedulingQueue(Mutex<QueuedPods>);

#[derive(Default)]
struct QueuedPods {
    pods: BTreeMap<Request, QueuedPod>,
    /// The same, the most important first: thousands may wait, and each placement looks.
    order: BTreeSet<(Reverse<i32>, Request)>,
}

struct QueuedPod {
    pod: Arc<Pod>,
    stepped_back: u32,
}

impl SchedulingQueue {
    fn waiters(&self) -> MutexGuard<'_, QueuedPods> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod waits, as it is now.
    pub(super) fn enter(&self, request: &Request, pod: &Arc<Pod>) {
        let mut waiters = self.waiters();
        let before = waiters.remove(request);
        let waiter = QueuedPod {
            pod: pod.clone(),
            stepped_back: before.map_or(0, |waiter| waiter.stepped_back),
        };
        waiters.order.insert((Reverse(priority(pod)), request.clone()));
        waiters.pods.insert(request.clone(), waiter);
    }

    pub(super) fn leave(&self, request: &Request) {
        self.waiters().remove(request);
    }

    /// The most important pods above this one.
    pub(super) fn above(&self, request: &Request, pod: &Pod) -> Vec<(Request, Arc<Pod>)> {
        let waiters = self.waiters();
        let own = priority(pod);
        let above = waiters
            .order
            .iter()
            .take_while(|(Reverse(priority), _)| *priority > own);
        let others = above.map(|(_, other)| other).filter(|other| *other != request);
        let known = others.filter_map(|other| Some((other.clone(), waiters.pods.get(other)?.pod.clone())));
        known.take(LOOK).collect()
    }

    /// Lets the pod step back; `false` when it has done so often enough.
    pub(super) fn step_back(&self, request: &Request) -> bool {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.pods.get_mut(request) else {
            return false;
        };
        waiter.stepped_back = waiter.stepped_back.saturating_add(1);
        waiter.stepped_back <= PATIENCE
    }
}

impl QueuedPods {
    fn remove(&mut self, request: &Request) -> Option<QueuedPod> {
        let waiter = self.pods.remove(request)?;
        self.order.remove(&(Reverse(priority(&waiter.pod)), request.clone()));
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_important_come_first() {
        let queue = SchedulingQueue::default();
        let pod = |name: &str, priority: i32| -> (Request, Arc<Pod>) {
            let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
            (
                Request::new(Some("a"), name),
                Arc::new(serde_json::from_value(pod).expect("a pod")),
            )
        };
        let all = [pod("a", 0), pod("b", 5), pod("c", 9), pod("d", 5)];
        for (request, pod) in &all {
            queue.enter(request, pod);
        }
        let check = |at: usize, expected: &[&str]| {
            let (request, pod) = &all[at];
            let found = queue.above(request, pod);
            let names: Vec<&str> = found.iter().map(|(request, _)| request.name()).collect();
            assert_eq!(names, expected);
        };
        check(0, &["c", "b", "d"]);
        check(1, &["c"]);
        check(2, &[]);
        queue.leave(&all[2].0);
        check(1, &[]);
        // Its priority changed while it waited.
        queue.enter(&all[3].0, &pod("d", 0).1);
        check(0, &["b"]);
        let request = &all[0].0;
        assert_eq!((0..30).filter(|_| queue.step_back(request)).count(), 20);
        queue.enter(request, &all[0].1);
        assert!(!queue.step_back(request), "it does not begin anew while it waits");
        queue.leave(request);
        assert!(!queue.step_back(request), "who does not wait does not step back");
    }
}
