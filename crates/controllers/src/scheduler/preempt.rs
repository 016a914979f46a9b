//! The victims of preemption: pods that give way to one of a higher priority that fits no node (`defaultpreemption`).
//!
//! Pure. A node is a candidate when the pod fits there without those of lower priority; as many of them as can be are
//! then left in place, first those that a disruption budget protects, the more important before the less. Of several
//! candidates the one is taken that violates the fewest budgets, then whose dearest victim, sum of priorities and
//! number of victims are least, then whose dearest victims are youngest.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright::Request;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::core::Selector;
use kubewright_objects::api::core::v1::Pod;
use kubewright_objects::api::policy::v1::PodDisruptionBudget;

use super::cache::Cache;
use super::fit::Refusal;
use super::pod_info::PodInfo;
use kubewright_objects::NodeView;
use kubewright_objects::disruption_target::DISRUPTION_TARGET;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The reason of the condition of those that have to go.
pub(super) const REASON: &str = "PreemptionByScheduler";

/// The reason of a node with only pods that are as important.
pub(super) const NOBODY: &str = "No preemption victims found for incoming pod";

/// A pod that is there.
type Placed = (Request, Arc<PodInfo>);

/// A node and the victims there.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) node: String,
    pub(super) victims: Vec<Placed>,
    violations: usize,
}

/// The priority of a pod.
pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn started(pod: &PodInfo) -> Timestamp {
    pod.started.unwrap_or(Timestamp::MAX)
}

/// The more important first (`MoreImportantPod`): of a higher priority, then the older.
fn importance((_, pod): &Placed) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority()), started(pod))
}

/// A pod that we have told to go, and that is about to (`podTerminatingByPreemption`).
pub(super) fn is_going(pod: &Pod) -> bool {
    let told = pods::condition(pod, DISRUPTION_TARGET);
    let told = told.is_some_and(|told| told.status == "True" && told.reason.as_deref() == Some(REASON));
    told && meta::is_deleting(&pod.metadata)
}

/// Why a pod may not preempt others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ineligible {
    /// For this reason.
    For(&'static str),
    /// Pods that it has displaced are still on the node for which it is nominated.
    UntilGone,
}

/// Why a pod may not preempt others (`PodEligibleToPreemptOthers`).
pub(super) fn ineligible(pod: &Pod, refusals: &[(&NodeView, Refusal)], cache: &Cache) -> Option<Ineligible> {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    if policy == Some("Never") {
        return Some(Ineligible::For("not eligible due to preemptionPolicy=Never."));
    }
    let status = pod.status.as_ref();
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref())?;
    let refuses = |(node, refusal): &(&NodeView, Refusal)| node.name() == nominated && !refusal.is_full;
    if refusals.iter().any(refuses) {
        return None;
    }
    let mut there = cache.on(nominated).pods.values();
    let waits = there.any(|other| other.makes_room && other.priority() < priority(pod));
    waits.then_some(Ineligible::UntilGone)
}

/// Those of the pods that a budget protects, and the others; each in order of importance
/// (`filterPodsWithPDBViolation`).
fn protected(victims: Vec<Placed>, budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Placed>, Vec<Placed>) {
    let status = |budget: &PodDisruptionBudget| budget.status.clone().unwrap_or_default();
    let mut left: Vec<Budget<'_>> = budgets
        .iter()
        .filter_map(|budget| {
            let selector = budget.spec.as_ref()?.selector.as_ref()?;
            Some(Budget {
                namespace: budget.metadata.namespace.as_deref(),
                selector: meta::selector("a PodDisruptionBudget", selector).ok()?,
                disrupted: status(budget).disrupted_pods.unwrap_or_default().into_keys().collect(),
                allowed: status(budget).disruptions_allowed.unwrap_or(0),
            })
        })
        .collect();
    // A pod that violates one budget is not counted against the budgets that follow.
    victims
        .into_iter()
        .partition(|victim| left.iter_mut().any(|budget| budget.is_violated_by(victim)))
}

/// A budget, and how many of its pods may still go.
struct Budget<'a> {
    namespace: Option<&'a str>,
    selector: Selector,
    disrupted: BTreeSet<String>,
    allowed: i32,
}

impl Budget<'_> {
    /// Counts the pod, if the budget is about it and has not been told that it goes.
    fn is_violated_by(&mut self, (request, pod): &Placed) -> bool {
        let fits = meta::fits_labels(&self.selector, &pod.labels);
        let is_ours = self.namespace == request.namespace() && fits;
        if !is_ours || pod.labels.is_empty() || self.disrupted.contains(request.name()) {
            return false;
        }
        self.allowed = self.allowed.saturating_sub(1);
        self.allowed < 0
    }
}

/// The pods that must leave a node so that the pod fits there (`SelectVictimsOnNode`), or why it still does not fit.
///
/// `asks` says why the node refuses, as the cache is. The cache is as before in the end.
pub(super) fn victims(
    pod: &Pod,
    node: &str,
    cache: &mut Cache,
    budgets: &[Arc<PodDisruptionBudget>],
    asks: impl Fn(&Cache) -> Option<Refusal>,
) -> Result<Candidate, Vec<String>> {
    let lower = cache
        .on(node)
        .pods
        .iter()
        .filter(|(_, other)| other.priority() < priority(pod));
    let mut lower: Vec<Placed> = lower.map(|(request, other)| (request.clone(), other.clone())).collect();
    if lower.is_empty() {
        return Err(vec![NOBODY.to_owned()]);
    }
    for (request, _) in &lower {
        cache.remove(request);
    }
    if let Some(refusal) = asks(cache) {
        for (request, victim) in lower {
            cache.put(&request, victim, node);
        }
        return Err(refusal.reasons);
    }
    lower.sort_by_key(importance);
    let (violating, others) = protected(lower, budgets);
    let violating = violating.into_iter().map(|pod| (pod, true));
    let (mut victims, mut violations) = (Vec::new(), 0_usize);
    for ((request, victim), is_protected) in violating.chain(others.into_iter().map(|pod| (pod, false))) {
        cache.put(&request, victim.clone(), node);
        if asks(cache).is_some() {
            cache.remove(&request);
            violations = violations.saturating_add(usize::from(is_protected));
            victims.push((request, victim));
        }
    }
    for (request, victim) in &victims {
        cache.put(request, victim.clone(), node);
    }
    victims.sort_by_key(importance);
    if victims.is_empty() {
        return Err(vec![NOBODY.to_owned()]);
    }
    Ok(Candidate {
        node: node.to_owned(),
        victims,
        violations,
    })
}

/// A priority that is never below nothing, so that a sum of more is more.
fn weight(pod: &PodInfo) -> i64 {
    i64::from(pod.priority())
        .saturating_add(i64::from(i32::MAX))
        .saturating_add(1)
}

/// The candidate that hurts least (`pickOneNodeForPreemption`).
pub(super) fn best(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let all = || candidate.victims.iter().map(|(_, victim)| &**victim);
        let dearest = all().next().map_or(i32::MIN, PodInfo::priority);
        let sum = all().fold(0_i64, |sum, victim| sum.saturating_add(weight(victim)));
        let dear = all().filter(|victim| victim.priority() == dearest);
        let oldest = dear.map(started).min().unwrap_or(Timestamp::MAX);
        (
            candidate.violations,
            dearest,
            sum,
            candidate.victims.len(),
            Reverse(oldest),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, priority: i32, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "a", "labels": { "app": name.split('-').next() } },
            "spec": { "nodeName": node, "priority": priority, "containers": [{ "name": "c" }] },
            "status": {},
        });
        for (key, value) in more.as_object().expect("an object") {
            pod["status"][key] = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    /// Each node has room for two pods; the pod that comes has priority 10.
    fn check(there: &[(&str, &str, i32)], budgets: &[(&str, i32)], expected: Option<(&str, &[&str])>) {
        let mut cache = Cache::default();
        for (at, (name, node, priority)) in there.iter().enumerate() {
            let start = Timestamp::from_second(i64::try_from(at).expect("few"))
                .expect("small")
                .to_string();
            cache.enter(&pod(name, node, *priority, json!({ "startTime": start })));
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
            let asks = |cache: &Cache| {
                let there = cache.on(node).pods.len();
                (there > 1).then(|| Refusal::lasting("full"))
            };
            let before = format!("{cache:?}");
            let found = victims(&comes, node, &mut cache, &budgets, asks).ok();
            assert_eq!(format!("{cache:?}"), before);
            found
        });
        let found = best(candidates.collect()).map(|found| {
            let names: Vec<String> = found
                .victims
                .iter()
                .map(|(request, _)| request.name().to_owned())
                .collect();
            (found.node, names)
        });
        let found = found
            .as_ref()
            .map(|(node, names)| (node.as_str(), names.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(found, expected.map(|(node, names)| (node, names.to_vec())), "{there:?}");
    }

    #[test]
    fn pods_that_give_way() {
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
        // Of equals the one whose victims are younger.
        check(
            &[("a", "x", -5), ("b", "x", 20), ("c", "y", -5), ("d", "y", 20)],
            &[],
            Some(("y", &["c"])),
        );
    }

    #[test]
    fn pods_that_may_preempt() {
        let check = |policy: &str, nominated: Option<&str>, expected: Option<Ineligible>| {
            let mut cache = Cache::default();
            let told = json!([{ "type": DISRUPTION_TARGET, "status": "True", "reason": REASON }]);
            let mut going = pod("old", "x", 1, json!({ "conditions": told }));
            going.metadata.deletion_timestamp = Some(meta::time(Timestamp::UNIX_EPOCH));
            cache.enter(&going);
            let mut comes = pod("new", "", 10, json!({ "nominatedNodeName": nominated }));
            comes.spec.get_or_insert_default().preemption_policy = Some(policy.to_owned());
            assert_eq!(ineligible(&comes, &[], &cache), expected, "{policy} {nominated:?}");
        };
        check("PreemptLowerPriority", None, None);
        check("PreemptLowerPriority", Some("y"), None);
        check("PreemptLowerPriority", Some("x"), Some(Ineligible::UntilGone));
        let never = Ineligible::For("not eligible due to preemptionPolicy=Never.");
        check("Never", None, Some(never));
    }
}
