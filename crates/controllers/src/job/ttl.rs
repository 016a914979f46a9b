//! The TTL controller: deletes Jobs some time after they have finished (`ttlafterfinished`, KEP-592), in the
//! foreground, so that their pods go first.

use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{DeleteParams, PropagationPolicy};
use kubewright::{Action, Context, Controller, Reconciler, Result};
use kubewright_objects::api::batch::v1::Job;

use kubewright_objects::meta;

struct TtlReconciler;

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    Controller::of(TtlReconciler).named("ttl-after-finished-controller")
}

impl Reconciler for TtlReconciler {
    type Object = Job;

    async fn reconcile(&self, job: Arc<Job>, ctx: Context) -> Result<Action> {
        match left(&job, ctx.now()) {
            None => Ok(Action::await_change()),
            Some(Duration::ZERO) => {
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Foreground),
                    ..DeleteParams::default()
                };
                ctx.client().delete_with(&*job, params).await?;
                Ok(Action::await_change())
            }
            Some(left) => Ok(Action::requeue_after(left)),
        }
    }
}

/// How long a finished Job has left; `None` when it is kept, not finished, or on its way already.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if meta::is_deleting(&job.metadata) {
        return None;
    }
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let mut ends = conditions
        .iter()
        .filter(|condition| condition.status == "True" && ["Complete", "Failed"].contains(&condition.type_.as_str()));
    let finished = ends.next()?.last_transition_time.as_ref()?.0;
    let passed = Duration::try_from(now.duration_since(finished)).unwrap_or(Duration::ZERO);
    Some(Duration::from_secs(u64::try_from(ttl).unwrap_or(0)).saturating_sub(passed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_what_has_finished_has_a_time_to_live() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let check = |ttl: Value, type_: &str, status: &str, expected: Option<u64>| {
            let job: Job = serde_json::from_value(json!({
                "metadata": {"name": "work"},
                "spec": {"template": {}, "ttlSecondsAfterFinished": ttl},
                "status": {"conditions": [{"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .expect("a Job");
            assert_eq!(
                left(&job, now).map(|left| left.as_secs()),
                expected,
                "{ttl} {type_} {status}"
            );
        };
        check(json!(100), "Complete", "True", Some(40));
        check(json!(100), "Failed", "True", Some(40));
        check(json!(60), "Complete", "True", Some(0));
        check(json!(0), "Complete", "True", Some(0));
        check(Value::Null, "Complete", "True", None);
        check(json!(100), "Suspended", "True", None);
        check(json!(100), "Complete", "False", None);
    }
}
