//! Pods that no other controller would remove (Kubernetes' pod garbage collector): on nodes that are gone, terminating
//! without ever having had a node, terminating on a node that is out of service, and finished ones beyond
//! [`TERMINATED`].
//!
//! They are set to Failed first, because no kubelet is left to say how they ended, and then deleted without grace.
//!
//! Invariant: a node counts as gone only after it has been missing for [`QUARANTINE`]; a pod may be bound before its
//! node is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::DeleteParams;
use kubewright::{Action, Context, Controller, Event, Reconciler, Request, Result, Watch};
use kubewright_objects::api::core::v1::{Node, Pod};
use serde_json::json;

use kubewright_objects::{disruption_target, pods};
use kubewright_objects::{meta, node};

/// How long a node may be missing (`quarantineTime`).
const QUARANTINE: Duration = Duration::from_secs(40);
/// How long an unbound pod may be terminating: the period in which upstream looks (`gcCheckPeriod`).
const PERIOD: Duration = Duration::from_secs(20);
/// How many finished pods may stay (`--terminated-pod-gc-threshold`).
const TERMINATED: usize = 12_500;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const ORPHANED: (&str, &str) = ("DeletionByPodGC", "PodGC: node no longer exists");

/// Removes left-over pods.
#[derive(Default)]
pub(crate) struct PodGc {
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Since when a node is missing.
    missing: BTreeMap<String, Timestamp>,
    /// Finished pods, oldest first.
    finished: BTreeSet<(Timestamp, Request)>,
    since: BTreeMap<Request, Timestamp>,
}

/// The controller of pods that are left over.
pub(crate) fn controller() -> Controller {
    Controller::of(PodGc::default())
        .named("pod-garbage-collector")
        .source(
            Watch::<Node>::new()
                .when(|event| match event {
                    Event::Modified { old, new } => is_out_of_service(old) != is_out_of_service(new),
                    _ => true,
                })
                .by_index(pods::node_names, node::names),
        )
        .concurrency(4)
}

/// Why a pod is to go.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// Look again then.
    Wait(Duration),
    /// Its node is gone.
    Orphaned,
    /// It is terminating, and no kubelet will end it.
    Abandoned,
}

/// The verdict about a pod. `missing`: for how long its node has been missing.
fn verdict(pod: &Pod, node: Option<&Node>, missing: Duration, now: Timestamp) -> Verdict {
    let deleted = pod.metadata.deletion_timestamp.as_ref();
    match (pods::node_of(pod), node, deleted) {
        (Some(_), None, _) if missing >= QUARANTINE => Verdict::Orphaned,
        (Some(_), None, _) => Verdict::Wait(QUARANTINE.saturating_sub(missing)),
        (Some(_), Some(node), Some(_)) if is_out_of_service(node) => Verdict::Abandoned,
        (None, _, Some(since)) => {
            let age = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
            if age >= PERIOD {
                Verdict::Abandoned
            } else {
                Verdict::Wait(PERIOD.saturating_sub(age))
            }
        }
        _ => Verdict::Stays,
    }
}

/// Not ready, and tainted by a user who says that it will not come back.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !node::is_ready(node) && taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

impl PodGc {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing under this lock can panic half way through a change.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the node has been missing.
    fn missing(&self, name: &str, found: bool, now: Timestamp) -> Duration {
        let mut memory = self.memory();
        if found {
            memory.missing.remove(name);
            return Duration::ZERO;
        }
        let since = *memory.missing.entry(name.to_owned()).or_insert(now);
        Duration::try_from(now.duration_since(since)).unwrap_or_default()
    }

    /// Counts a finished pod, and answers the oldest ones beyond the limit.
    fn count(&self, request: &Request, finished: Option<Timestamp>) -> Vec<Request> {
        let mut memory = self.memory();
        if let Some(before) = memory.since.remove(request) {
            memory.finished.remove(&(before, request.clone()));
        }
        if let Some(created) = finished {
            memory.since.insert(request.clone(), created);
            memory.finished.insert((created, request.clone()));
        }
        let beyond = memory.finished.len().saturating_sub(TERMINATED);
        memory
            .finished
            .iter()
            .take(beyond)
            .map(|(_, request)| request.clone())
            .collect()
    }
}

impl Reconciler for PodGc {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let finished = pods::is_finished(&pod).then(|| meta::created(&pod.metadata));
        for old in self.count(ctx.request(), finished) {
            if let Some(pod) = ctx.client().get::<Pod>(old.namespace(), old.name()).await? {
                remove(&pod, &ctx).await?;
            }
        }
        let (mut node, mut missing) = (None, Duration::ZERO);
        if let Some(name) = pods::node_of(&pod) {
            node = ctx.client().get::<Node>(None, name).await?;
            missing = self.missing(name, node.is_some(), ctx.now());
        }
        match verdict(&pod, node.as_deref(), missing, ctx.now()) {
            Verdict::Stays => return Ok(Action::await_change()),
            Verdict::Wait(wait) => return Ok(Action::requeue_after(wait)),
            Verdict::Orphaned if !pods::is_finished(&pod) => {
                let condition = disruption_target::condition(&pod, &ctx, "True", Some(ORPHANED));
                if !disruption_target::write(&ctx, &pod, &condition, json!({ "phase": "Failed" })).await? {
                    return Ok(Action::await_change());
                }
            }
            Verdict::Abandoned if !pods::is_finished(&pod) => {
                if !disruption_target::patch_status(&ctx, &pod, json!({ "phase": "Failed" })).await? {
                    return Ok(Action::await_change());
                }
            }
            Verdict::Orphaned | Verdict::Abandoned => {}
        }
        remove(&pod, &ctx).await?;
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.count(&request, None);
        Ok(Action::await_change())
    }
}

async fn remove(pod: &Pod, ctx: &Context) -> Result<()> {
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    ctx.client().delete_with(pod, at_once).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, missing: u64, expected: Verdict) {
        let has = |word: &str| words.split(' ').any(|there| there == word);
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let deleted = if has("long") {
            "2026-01-01T00:00:00Z"
        } else {
            "2026-01-01T00:00:55Z"
        };
        let pod = json!({
            "metadata": { "deletionTimestamp": has("going").then_some(deleted) },
            "spec": { "nodeName": has("bound").then_some("n"), "containers": [] },
        });
        let ready = if has("ready") { "True" } else { "Unknown" };
        let taints = if has("out") {
            json!([{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }])
        } else {
            json!([])
        };
        let node =
            json!({ "spec": { "taints": taints }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let node: Node = serde_json::from_value(node).expect("a node");
        let node = has("node").then_some(&node);
        assert_eq!(
            verdict(&pod, node, Duration::from_secs(missing), now),
            expected,
            "{words}"
        );
    }

    #[test]
    fn what_becomes_of_a_pod() {
        check("bound node ready", 0, Verdict::Stays);
        check("bound", 0, Verdict::Wait(QUARANTINE));
        check("bound", 39, Verdict::Wait(Duration::from_secs(1)));
        check("bound", 40, Verdict::Orphaned);
        check("bound going", 40, Verdict::Orphaned);
        check("unbound", 0, Verdict::Stays);
        check("unbound going", 0, Verdict::Wait(Duration::from_secs(15)));
        check("unbound going long", 0, Verdict::Abandoned);
        check("bound node going long", 0, Verdict::Stays);
        check("bound node going out", 0, Verdict::Abandoned);
        check("bound node going out ready", 0, Verdict::Stays);
        check("bound node out", 0, Verdict::Stays);
    }

    #[test]
    fn finished_pods_are_counted() {
        let gc = PodGc::default();
        let key = |number: usize| Request::new(Some("a"), &format!("p{number}"));
        let time = |number: usize| Timestamp::from_second(i64::try_from(number).expect("small")).expect("small");
        let over = (0..=TERMINATED)
            .map(|number| gc.count(&key(number), Some(time(number))).len())
            .sum::<usize>();
        assert_eq!(over, 1);
        assert_eq!(gc.count(&key(TERMINATED), None), []);
        // The same pod twice counts once.
        assert_eq!(gc.count(&key(5), Some(time(5))), []);
        assert_eq!(gc.count(&key(TERMINATED + 9), Some(time(TERMINATED + 9))), [key(0)]);
    }
}
