//! The disruptions that a PodDisruptionBudget allows.
//!
//! Pure. How many pods are expected comes from outside, because owners have to be asked for it. Upstream:
//! `updatePdbStatus`, `countHealthyPods`, `buildDisruptedPodMap`.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright::k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubewright_objects::api::core::v1::Pod;
use kubewright_objects::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};

use kubewright_objects::meta;
use kubewright_objects::pods;

/// How long an evicted pod may take to be deleted until it counts again (`DeletionTimeout`).
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const ALLOWED: &str = "DisruptionAllowed";

/// Whether the expected number follows from the owners of the pods, and not from the pods that there are.
pub(super) fn asks_owners(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// How many healthy pods are wanted, of so many expected ones.
pub(super) fn desired_healthy(spec: &PodDisruptionBudgetSpec, expected: i32) -> i32 {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => expected.saturating_sub(resolve(most, expected)).max(0),
        (None, Some(least)) => resolve(least, expected),
        (None, None) => 0,
    }
}

/// A number, or a percentage that is rounded up. The API server has validated it; a value that cannot be read all the
/// same counts as 0.
fn resolve(value: &IntOrString, total: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let hundredths = percent.saturating_mul(i64::from(total));
            i32::try_from(hundredths.saturating_add(99).max(0) / 100).unwrap_or(i32::MAX)
        }
    }
}

/// The status of a budget, and its effects.
pub(super) struct Outcome {
    pub(super) status: PodDisruptionBudgetStatus,
    /// When an evicted pod that is still there counts again.
    pub(super) recheck: Option<Duration>,
    /// Evicted pods that were not deleted in time.
    pub(super) not_deleted: Vec<String>,
}

/// The new status, with so many pods expected.
pub(super) fn outcome(budget: &PodDisruptionBudget, pods: &[&Pod], expected: i32, now: Timestamp) -> Outcome {
    let empty = PodDisruptionBudgetSpec::default();
    let desired = desired_healthy(budget.spec.as_ref().unwrap_or(&empty), expected);
    let before = budget.status.clone().unwrap_or_default();
    let (mut disrupted, mut not_deleted, mut recheck) = (BTreeMap::<String, Time>::new(), vec![], None::<Duration>);
    let mut healthy = 0_i32;
    for pod in pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata)) {
        let name = meta::name(&pod.metadata);
        let evicted = before.disrupted_pods.as_ref().and_then(|pods| pods.get(name));
        let due = evicted.map(|time| time.0.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX));
        match (evicted, due) {
            (Some(time), Some(due)) if due > now => {
                let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                recheck = Some(recheck.map_or(wait, |earlier| earlier.min(wait)));
                disrupted.insert(name.to_owned(), time.clone());
                continue;
            }
            (Some(_), _) => not_deleted.push(name.to_owned()),
            (None, _) => {}
        }
        healthy = healthy.saturating_add(i32::from(pods::is_ready(pod)));
    }
    let spare = healthy.saturating_sub(desired).max(0);
    let allowed = if expected > 0 { spare } else { 0 };
    let mut conditions = before.conditions.unwrap_or_default();
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    set(
        &mut conditions,
        allowed > 0,
        reason,
        "",
        budget.metadata.generation,
        now,
    );
    Outcome {
        status: PodDisruptionBudgetStatus {
            conditions: Some(conditions),
            current_healthy: Some(healthy),
            desired_healthy: Some(desired),
            disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
            disruptions_allowed: Some(allowed),
            expected_pods: Some(expected),
            observed_generation: budget.metadata.generation,
        },
        recheck,
        not_deleted,
    }
}

/// The status when the number of expected pods cannot be known: nothing may go (`failSafe`).
pub(super) fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    let generation = status.observed_generation;
    set(
        status.conditions.get_or_insert_default(),
        false,
        "SyncFailed",
        why,
        generation,
        now,
    );
    status
}

fn set(
    conditions: &mut Vec<Condition>,
    holds: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if holds { "True" } else { "False" };
    let present = conditions.iter_mut().find(|condition| condition.type_ == ALLOWED);
    let since = present.as_ref().filter(|present| present.status == status);
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.map_or_else(|| meta::time(now), |present| present.last_transition_time.clone()),
    };
    match present {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().expect("a time")
    }

    fn check(spec: Value, pods: &[&str], expected: i32, want: &str) {
        let evicted = |minutes: i64| (now() - SignedDuration::from_mins(minutes)).to_string();
        let budget = json!({
            "metadata": { "generation": 3 }, "spec": spec,
            "status": { "disruptedPods": { "late": evicted(3), "leaving": evicted(1) } },
        });
        let budget: PodDisruptionBudget = serde_json::from_value(budget).expect("a budget");
        let pod = |text: &&str| -> Pod {
            let ready = if text.contains("unready") { "False" } else { "True" };
            let name = text.split(' ').next().expect("a name");
            let going = text.contains("going").then_some("2026-01-01T00:00:00Z");
            serde_json::from_value(json!({
                "metadata": { "name": name, "deletionTimestamp": going },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .expect("a pod")
        };
        let pods: Vec<Pod> = pods.iter().map(pod).collect();
        let found = outcome(&budget, &pods.iter().collect::<Vec<_>>(), expected, now());
        let status = &found.status;
        let condition = &status.conditions.as_ref().expect("one")[0];
        let text = format!(
            "{} of {}, {} wanted, {} may go, {}; late {:?}, again {:?}",
            status.current_healthy.expect("a number"),
            status.expected_pods.expect("a number"),
            status.desired_healthy.expect("a number"),
            status.disruptions_allowed.expect("a number"),
            condition.reason,
            found.not_deleted,
            found.recheck.map(|wait| wait.as_secs()),
        );
        assert_eq!(text, want);
    }

    #[test]
    fn what_a_budget_allows() {
        let least = |least: Value| json!({ "minAvailable": least });
        let most = |most: Value| json!({ "maxUnavailable": most });
        let rest = "late [], again None";
        check(
            least(json!(2)),
            &[],
            0,
            &format!("0 of 0, 2 wanted, 0 may go, InsufficientPods; {rest}"),
        );
        check(
            least(json!(2)),
            &["a", "b", "c"],
            3,
            &format!("3 of 3, 2 wanted, 1 may go, SufficientPods; {rest}"),
        );
        check(
            least(json!(1)),
            &["a", "b unready", "c going"],
            3,
            &format!("1 of 3, 1 wanted, 0 may go, InsufficientPods; {rest}"),
        );
        check(
            most(json!("40%")),
            &["a", "b", "c"],
            5,
            &format!("3 of 5, 3 wanted, 0 may go, InsufficientPods; {rest}"),
        );
        check(
            most(json!("40%")),
            &["a", "b", "c"],
            3,
            &format!("3 of 3, 1 wanted, 2 may go, SufficientPods; {rest}"),
        );
        check(
            most(json!(1)),
            &["a"],
            0,
            &format!("1 of 0, 0 wanted, 0 may go, InsufficientPods; {rest}"),
        );
        check(
            least(json!(1)),
            &["a", "late", "leaving"],
            3,
            "2 of 3, 1 wanted, 1 may go, SufficientPods; late [\"late\"], again Some(60)",
        );
    }
}
