//! Who gives way to a pod of a higher priority that fits nowhere (`defaultpreemption`).
//!
//! Pure. A node is a candidate when the pod fits there without those of lower priority; as many of them as can be are then left in place,
//! first those that a disruption budget protects, the more important before the less. Of several candidates the one is taken that
//! violates the fewest budgets, then whose dearest victim, sum of priorities and number of victims are least, then whose dearest victims
//! are youngest.

use std::cmp::Reverse;
use std::sync::Arc;

use kubewright::Request;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kubewright::k8s_openapi::jiff::Timestamp;

use super::ledger::Ledger;
use crate::controllers::meta;

/// A node and who would have to go.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) node: String,
    pub(super) victims: Vec<Arc<Pod>>,
    violations: usize,
}

/// The priority of a pod.
pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn started(pod: &Pod) -> Timestamp {
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    start.map_or(Timestamp::MAX, |time| time.0)
}

/// The more important first (`MoreImportantPod`): of a higher priority, then the older.
fn importance(pod: &Arc<Pod>) -> (Reverse<i32>, Timestamp) {
    (Reverse(priority(pod)), started(pod))
}

/// Why a pod may take nobody's place.
pub(super) fn ineligible(pod: &Pod, ledger: &Ledger) -> Option<&'static str> {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    if policy == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_deref());
    let there = nominated
        .and_then(|node| ledger.on(node))
        .map(|taken| taken.pods.values());
    let goes = |other: &Arc<Pod>| meta::is_deleting(&other.metadata) && priority(other) < priority(pod);
    let waits = there.is_some_and(|mut there| there.any(goes));
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Those of the pods that a budget protects, and the others; each in order of importance (`filterPodsWithPDBViolation`).
fn protected(victims: Vec<Arc<Pod>>, budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut left: Vec<(&PodDisruptionBudget, i32)> = budgets
        .iter()
        .map(|budget| {
            (
                &**budget,
                budget
                    .status
                    .as_ref()
                    .map_or(0, |status| status.disruptions_allowed.unwrap_or(0)),
            )
        })
        .collect();
    victims.into_iter().partition(|pod| {
        let mut violates = false;
        for (budget, allowed) in &mut left {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(Ok(selector)) = selector.map(|selector| meta::selector("a budget", selector)) else {
                continue;
            };
            let is_same = budget.metadata.namespace == pod.metadata.namespace;
            if is_same && meta::fits(&selector, &pod.metadata) {
                *allowed = allowed.saturating_sub(1);
                violates |= *allowed < 0;
            }
        }
        violates
    })
}

/// Who has to go from a node so that the pod fits there (`SelectVictimsOnNode`); nothing when it does not fit even then.
pub(super) fn victims(
    pod: &Pod,
    node: &str,
    ledger: &Ledger,
    budgets: &[Arc<PodDisruptionBudget>],
    fits: impl Fn(&Ledger) -> bool,
) -> Option<Candidate> {
    let there = ledger.on(node)?.pods.values();
    let mut lower: Vec<Arc<Pod>> = there.filter(|other| priority(other) < priority(pod)).cloned().collect();
    if lower.is_empty() {
        return None;
    }
    let mut left = ledger.clone();
    lower.iter().for_each(|victim| left.remove(&Request::of(&**victim)));
    if !fits(&left) {
        return None;
    }
    lower.sort_by_key(importance);
    let (violating, others) = protected(lower, budgets);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (victim, is_protected) in violating
        .into_iter()
        .map(|pod| (pod, true))
        .chain(others.into_iter().map(|pod| (pod, false)))
    {
        let request = Request::of(&*victim);
        left.place(&request, &victim, node);
        if fits(&left) {
            continue;
        }
        left.remove(&request);
        violations += usize::from(is_protected);
        victims.push(victim);
    }
    victims.sort_by_key(importance);
    (!victims.is_empty()).then(|| Candidate {
        node: node.to_owned(),
        victims,
        violations,
    })
}

/// The candidate that hurts least (`pickOneNodeForPreemption`).
pub(super) fn best(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let all = &candidate.victims;
        let dearest = all.first().map_or(i32::MIN, |victim| priority(victim));
        let sum = all
            .iter()
            .fold(0_i64, |sum, victim| sum.saturating_add(i64::from(priority(victim))));
        let dear = all.iter().filter(|victim| priority(victim) == dearest);
        let oldest = dear.map(|victim| started(victim)).min().unwrap_or(Timestamp::MAX);
        (candidate.violations, dearest, sum, all.len(), Reverse(oldest))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, priority: i32, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "a", "labels": { "app": name.split('-').next() } },
            "spec": { "nodeName": node, "priority": priority, "containers": [{ "name": "c" }] },
            "status": {},
        });
        for (key, value) in more.as_object().expect("an object") {
            pod["status"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    /// Each node has room for two pods; the pod that comes has priority 10.
    fn check(there: &[(&str, &str, i32)], budgets: &[(&str, i32)], expected: Option<(&str, &[&str])>) {
        let mut ledger = Ledger::default();
        for (at, (name, node, priority)) in there.iter().enumerate() {
            let start = Timestamp::from_second(i64::try_from(at).expect("few"))
                .expect("small")
                .to_string();
            ledger.enter(&pod(name, node, *priority, json!({ "startTime": start })));
        }
        let budget = |(app, allowed): &(&str, i32)| {
            let budget = json!({
                "metadata": { "namespace": "a" }, "spec": { "selector": { "matchLabels": { "app": app } } },
                "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
            });
            Arc::new(serde_json::from_value(budget).expect("a budget"))
        };
        let budgets: Vec<Arc<PodDisruptionBudget>> = budgets.iter().map(budget).collect();
        let comes = pod("new", "", 10, json!({}));
        let candidates = ["x", "y"].into_iter().filter_map(|node| {
            let room = |ledger: &Ledger| ledger.on(node).map_or(0, |taken| taken.pods.len()) < 2;
            victims(&comes, node, &ledger, &budgets, room)
        });
        let found = best(candidates.collect()).map(|found| {
            let names: Vec<String> = found
                .victims
                .iter()
                .map(|pod| meta::name(&pod.metadata).to_owned())
                .collect();
            (found.node, names)
        });
        let found = found
            .as_ref()
            .map(|(node, names)| (node.as_str(), names.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(found, expected.map(|(node, names)| (node, names.to_vec())), "{there:?}");
    }

    #[test]
    fn who_gives_way() {
        check(&[("a", "x", 10), ("b", "x", 20)], &[], None);
        check(&[("a", "x", 5), ("b", "x", 1)], &[], Some(("x", &["b"])));
        // The younger of two of the same priority.
        check(&[("a", "x", 5), ("b", "x", 5)], &[], Some(("x", &["b"])));
        check(
            &[("a", "x", 5), ("b", "x", 5), ("c", "y", 1), ("d", "y", 20)],
            &[],
            Some(("y", &["c"])),
        );
        // A budget goes before priorities.
        check(
            &[("a", "x", 5), ("b", "x", 5), ("c", "y", 1), ("d", "y", 20)],
            &[("c", 0)],
            Some(("x", &["b"])),
        );
        check(&[("a", "x", 5), ("b", "x", 1)], &[("b", 0)], Some(("x", &["a"])));
        check(&[("a", "x", 5), ("b", "x", 1)], &[("b", 1)], Some(("x", &["b"])));
    }

    #[test]
    fn who_may_ask() {
        let check = |policy: &str, nominated: Option<&str>, expected: Option<&str>| {
            let mut ledger = Ledger::default();
            let mut going = (*pod("old", "x", 1, json!({}))).clone();
            going.metadata.deletion_timestamp = Some(meta::time(Timestamp::UNIX_EPOCH));
            ledger.enter(&Arc::new(going));
            let mut comes = (*pod("new", "", 10, json!({ "nominatedNodeName": nominated }))).clone();
            comes.spec.get_or_insert_default().preemption_policy = Some(policy.to_owned());
            assert_eq!(ineligible(&comes, &ledger), expected, "{policy} {nominated:?}");
        };
        check("PreemptLowerPriority", None, None);
        check("PreemptLowerPriority", Some("y"), None);
        check(
            "PreemptLowerPriority",
            Some("x"),
            Some("not eligible due to a terminating pod on the nominated node."),
        );
        check("Never", None, Some("not eligible due to preemptionPolicy=Never."));
    }
}
