//! Pods leave nodes that have a `NoExecute` taint which they do not tolerate (Kubernetes' taint eviction controller).
//!
//! A pod that tolerates all taints for a time goes when the shortest of these times has passed since the taint was
//! first seen; if the taint goes first, so does the plan. After a restart the time begins anew, as upstream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::{Action, Context, Controller, Event, EventType, Reconciler, Request, Result, Watch};
use kubewright_objects::api::core::v1::{Node, Pod, Taint, Toleration};
use serde_json::json;

use kubewright_objects::meta;
use kubewright_objects::{disruption_target, node, pods, tolerations};

const REASON: (&str, &str) = (
    "DeletionByTaintManager",
    "Taint manager: deleting due to NoExecute taint",
);
const EVENT: &str = "TaintManagerEviction";

/// Evicts pods from tainted nodes.
#[derive(Default)]
pub(crate) struct TaintEviction {
    /// Since when the eviction of a pod is planned.
    planned: Mutex<BTreeMap<Request, Timestamp>>,
}

/// The controller of pods on tainted nodes.
pub(crate) fn controller() -> Controller {
    Controller::of(TaintEviction::default())
        .named("taint-eviction-controller")
        .source(Watch::<Node>::new().by_index(pods::node_names, node::names))
        .with_predicate(|event: &Event<Node>| match event {
            Event::Modified { old, new } => no_execute(old) != no_execute(new),
            _ => true,
        })
        .concurrency(4)
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// The verdict about a pod on its node.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    Goes,
    GoesAfter(Duration),
}

fn verdict(taints: &[Taint], tolerations: &[Toleration]) -> Verdict {
    let Some(used) = tolerations::of_all(taints, tolerations) else {
        return Verdict::Goes;
    };
    match used.iter().filter_map(|toleration| toleration.toleration_seconds).min() {
        None => Verdict::Stays,
        Some(seconds) => match u64::try_from(seconds) {
            Err(_) | Ok(0) => Verdict::Goes,
            Ok(seconds) => Verdict::GoesAfter(Duration::from_secs(seconds)),
        },
    }
}

impl TaintEviction {
    fn planned(&self) -> MutexGuard<'_, BTreeMap<Request, Timestamp>> {
        // Nothing under this lock can panic half way through a change.
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the pod stays.
    fn left(&self, request: &Request, wait: Duration, now: Timestamp) -> Duration {
        let since = *self.planned().entry(request.clone()).or_insert(now);
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        wait.saturating_sub(passed)
    }
}

impl Reconciler for TaintEviction {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let request = ctx.request();
        let Some(name) = pods::node_of(&pod).filter(|_| !meta::is_deleting(&pod.metadata)) else {
            self.planned().remove(request);
            return Ok(Action::await_change());
        };
        let node = ctx.client().get::<Node>(None, name).await?;
        let taints = node.map(|node| no_execute(&node)).unwrap_or_default();
        let spec = pod.spec.as_ref();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        match verdict(&taints, tolerations) {
            Verdict::Stays => {
                if self.planned().remove(request).is_some() {
                    ctx.event(
                        &*pod,
                        EventType::Normal,
                        EVENT,
                        format!("Cancelling deletion of Pod {request}"),
                    );
                }
                return Ok(Action::await_change());
            }
            Verdict::GoesAfter(wait) => {
                let left = self.left(request, wait, ctx.now());
                if !left.is_zero() {
                    return Ok(Action::requeue_after(left));
                }
            }
            Verdict::Goes => {}
        }
        ctx.event(
            &*pod,
            EventType::Normal,
            EVENT,
            format!("Marking for deletion Pod {request}"),
        );
        evict(&pod, &ctx).await?;
        self.planned().remove(request);
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.planned().remove(&request);
        Ok(Action::await_change())
    }
}

async fn evict(pod: &Pod, ctx: &Context) -> Result<()> {
    if pods::condition(pod, disruption_target::DISRUPTION_TARGET).is_none_or(|present| present.status != "True") {
        let condition = disruption_target::condition(pod, ctx, "True", Some(REASON));
        if !disruption_target::write(ctx, pod, &condition, json!({})).await? {
            return Ok(());
        }
    }
    ctx.client().delete(pod).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn pods_that_stay() {
        let check = |taints: &[&str], tolerations: Value, expected: Verdict| {
            let taint = |key: &&str| Taint {
                key: (*key).to_owned(),
                effect: "NoExecute".to_owned(),
                ..Taint::default()
            };
            let taints: Vec<Taint> = taints.iter().map(taint).collect();
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).expect("tolerations");
            assert_eq!(verdict(&taints, &tolerations), expected, "{tolerations:?}");
        };
        let exists = |key: &str, seconds: Option<i64>| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let after = |seconds| Verdict::GoesAfter(Duration::from_secs(seconds));
        check(&[], json!([]), Verdict::Stays);
        check(&["k"], json!([]), Verdict::Goes);
        check(&["k"], json!([exists("k", None)]), Verdict::Stays);
        check(&["k"], json!([exists("k", Some(3))]), after(3));
        check(&["k"], json!([exists("k", Some(0))]), Verdict::Goes);
        check(&["k"], json!([exists("k", Some(-1))]), Verdict::Goes);
        check(&["k", "l"], json!([exists("k", Some(3))]), Verdict::Goes);
        check(
            &["k", "l"],
            json!([exists("k", Some(9)), exists("l", Some(4))]),
            after(4),
        );
        check(
            &["k"],
            json!([exists("other", Some(1)), exists("k", None)]),
            Verdict::Stays,
        );
    }
}
