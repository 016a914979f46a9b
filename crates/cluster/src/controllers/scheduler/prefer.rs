//! Which of the nodes that would do is preferred.
//!
//! Pure. The scoring plugins of kube-scheduler that follow a wish in an object, each normalized to 0–100 and with its
//! weight there: taints with `PreferNoSchedule` (3), preferred node affinity (2), preferred affinity and anti-affinity
//! between pods (2) and topology spread with `ScheduleAnyway` (2). Upstream: `tainttoleration`, `nodeaffinity`,
//! `interpodaffinity`, `podtopologyspread`, `RunScorePlugins`.
//!
//! Not here: how full nodes are (of equals the one with the fewest pods is taken), images that are there already, the
//! default spreading of Services.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::api::core::v1::{Affinity, Node, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};

use super::fit;
use super::ledger::Ledger;
use super::neighbours::{self, Namespaces};
use super::resident::Neighbour;
use crate::controllers::tolerations::tolerates;
use crate::objects::meta;

/// The weights of the plugins in kube-scheduler's defaults.
const TAINTS: i64 = 3;
const NODES: i64 = 2;
const PODS: i64 = 2;
const SPREAD: i64 = 2;
/// The weight of a pod that requires this one near it (`hardPodAffinityWeight`).
const REQUIRED: i64 = 1;

/// The best that one question can say of a node.
const BEST: i64 = 100;

/// How much each of the nodes that would do is preferred. `all`: these and the others.
pub(super) fn scores(
    pod: &Pod,
    fitting: &[(&Node, usize)],
    all: &[&Node],
    ledger: &Ledger,
    namespaces: &Namespaces,
) -> Vec<i64> {
    let mut sums = vec![0; fitting.len()];
    let (Some(spec), [_, _, ..]) = (pod.spec.as_ref(), fitting) else {
        return sums;
    };
    let nodes: Vec<&Node> = fitting.iter().map(|(node, _)| *node).collect();
    let answers = [
        (TAINTS, taints(spec, &nodes)),
        (NODES, affinity_to_nodes(spec, &nodes)),
        (PODS, affinity_to_pods(pod, &nodes, all, ledger, namespaces)),
        (SPREAD, spread(pod, spec, &nodes, all, ledger)),
    ];
    for (weight, answer) in answers {
        for (sum, score) in sums.iter_mut().zip(answer.into_iter().flatten()) {
            *sum += weight * score;
        }
    }
    sums
}

/// Nodes that few would rather keep free are better.
fn taints(spec: &PodSpec, nodes: &[&Node]) -> Option<Vec<i64>> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = |node: &&Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let unwelcome = taints.filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(tolerations, taint));
        i64::try_from(unwelcome.count()).unwrap_or(i64::MAX)
    };
    let counts: Vec<i64> = nodes.iter().map(untolerated).collect();
    let most = counts.iter().copied().max().filter(|most| *most > 0)?;
    Some(counts.iter().map(|count| BEST - share(*count, most)).collect())
}

fn affinity_to_nodes(spec: &PodSpec, nodes: &[&Node]) -> Option<Vec<i64>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = affinity
        .preferred_during_scheduling_ignored_during_execution
        .as_deref()?;
    let worth = |node: &&Node| {
        let labels = meta::labels(&node.metadata);
        let liked = terms
            .iter()
            .filter(|term| fit::term_fits(&term.preference, node, &labels));
        liked.map(|term| i64::from(term.weight)).sum()
    };
    let worths: Vec<i64> = nodes.iter().map(worth).collect();
    let most = worths.iter().copied().max().filter(|most| *most > 0)?;
    Some(worths.iter().map(|worth| share(*worth, most)).collect())
}

/// The preferred terms of affinity and anti-affinity, with their weights.
fn wishes(affinity: &Affinity) -> Vec<(&PodAffinityTerm, i64)> {
    let liked = affinity.pod_affinity.iter();
    let liked = liked.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let disliked = affinity.pod_anti_affinity.iter();
    let disliked = disliked.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let liked = liked.map(|one| (&one.pod_affinity_term, i64::from(one.weight)));
    liked
        .chain(disliked.map(|one| (&one.pod_affinity_term, -i64::from(one.weight))))
        .collect()
}

fn wishes_of(affinity: Option<&Affinity>) -> Vec<(&PodAffinityTerm, i64)> {
    affinity.map(wishes).unwrap_or_default()
}

/// Whether a pod with this affinity matters to others because it wants them near it or not.
pub(super) fn is_choosy(affinity: Option<&Affinity>) -> bool {
    !wishes_of(affinity).is_empty() || !neighbours::wanted(affinity).is_empty()
}

/// Whether the labels of namespaces matter for a pod's preferences.
pub(super) fn asks_namespaces(pod: &Pod) -> bool {
    let mut wishes = wishes_of(Neighbour::of(pod).affinity).into_iter();
    wishes.any(|(term, _)| term.namespace_selector.is_some())
}

fn affinity_to_pods(
    pod: &Pod,
    nodes: &[&Node],
    all: &[&Node],
    ledger: &Ledger,
    namespaces: &Namespaces,
) -> Option<Vec<i64>> {
    let pod = Neighbour::of(pod);
    let own = wishes_of(pod.affinity);
    if own.is_empty() && !ledger.has_choosy() {
        return None;
    }
    let mut worths: BTreeMap<(&str, String), i64> = BTreeMap::new();
    for node in all {
        let labels = meta::labels(&node.metadata);
        let there = ledger.on(meta::name(&node.metadata)).into_iter();
        for (request, other) in there.flat_map(|taken| &taken.pods) {
            let other = other.beside(request.namespace());
            let theirs = wishes_of(other.affinity);
            let required = neighbours::wanted(other.affinity).iter();
            let ours = own
                .iter()
                .filter(|(term, _)| neighbours::means(term, pod, other, namespaces));
            let theirs = theirs.into_iter().chain(required.map(|term| (term, REQUIRED)));
            let theirs = theirs.filter(|(term, _)| neighbours::means(term, other, pod, namespaces));
            for (term, weight) in ours.copied().chain(theirs) {
                if let Some(value) = labels.get(&term.topology_key) {
                    *worths.entry((term.topology_key.as_str(), value.clone())).or_default() += weight;
                }
            }
        }
    }
    let worth = |node: &&Node| {
        let labels = meta::labels(&node.metadata);
        let here = labels.iter().map(|(key, value)| (key.as_str(), value.clone()));
        here.filter_map(|pair| worths.get(&pair)).sum()
    };
    let worths: Vec<i64> = nodes.iter().map(worth).collect();
    let (least, most) = (worths.iter().copied().min()?, worths.iter().copied().max()?);
    (most > least).then(|| worths.iter().map(|worth| share(worth - least, most - least)).collect())
}

/// Where fewer of the selected pods are is better. A node without one of the labels is worth nothing.
fn spread(pod: &Pod, spec: &PodSpec, nodes: &[&Node], all: &[&Node], ledger: &Ledger) -> Option<Vec<i64>> {
    let constraints: Vec<&TopologySpreadConstraint> = spec
        .topology_spread_constraints
        .iter()
        .flatten()
        .filter(|constraint| constraint.when_unsatisfiable == "ScheduleAnyway")
        .collect();
    if constraints.is_empty() {
        return None;
    }
    let has_all = |node: &Node| {
        let labels = node.metadata.labels.as_ref();
        let has = |key: &String| labels.is_some_and(|labels| labels.contains_key(key));
        constraints.iter().all(|one| has(&one.topology_key))
    };
    let value = |node: &Node, key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .cloned()
    };
    let mut raw: Vec<Option<f64>> = nodes.iter().map(|node| has_all(node).then_some(0.0)).collect();
    for one in &constraints {
        let domain = |node: &Node| value(node, &one.topology_key);
        let domains: BTreeSet<String> = nodes
            .iter()
            .filter(|node| has_all(node))
            .filter_map(|node| domain(node))
            .collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for node in all
            .iter()
            .filter(|node| has_all(node) && neighbours::is_looked_at(one, spec, node))
        {
            let count = counts.entry(domain(node).unwrap_or_default()).or_default();
            *count = count.saturating_add(neighbours::selected_on(one, pod, node, ledger));
        }
        // Of few domains each pod counts less (`topologyNormalizingWeight`).
        let weight = (domains.len() as f64 + 2.0).ln();
        for (node, score) in nodes.iter().zip(&mut raw) {
            let there = domain(node).and_then(|value| counts.get(&value)).copied().unwrap_or(0);
            if let Some(score) = score {
                *score += there as f64 * weight + f64::from(one.max_skew - 1);
            }
        }
    }
    let rounded: Vec<Option<i64>> = raw
        .iter()
        .map(|score| score.map(|score| score.round() as i64))
        .collect();
    let (least, most) = (rounded.iter().flatten().min()?, rounded.iter().flatten().max()?);
    let normal = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if *most == 0 => BEST,
        Some(score) => share(most + least - score, *most),
    };
    Some(rounded.iter().map(normal).collect())
}

fn share(part: i64, of: i64) -> i64 {
    part.saturating_mul(BEST).checked_div(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use kubewright::Request;
    use serde_json::{Value, json};

    use super::*;

    /// Three nodes, `a` and `b` in the zone `x`, `c` in `y` and a little unwelcome; those that a pod prefers.
    fn check(spec: Value, there: &[(&str, Value, &str)], expected: &[&str]) {
        let node = |name: &str, zone: &str, taints: Value| -> Node {
            let node = json!({ "metadata": { "name": name, "labels": { "host": name, "zone": zone } }, "spec": { "taints": taints } });
            serde_json::from_value(node).expect("a node")
        };
        let unwelcome = json!([{ "key": "k", "effect": "PreferNoSchedule" }]);
        let nodes = [
            node("a", "x", json!(null)),
            node("b", "x", json!(null)),
            node("c", "y", unwelcome),
        ];
        let pod = |app: &str, spec: &Value| -> Pod {
            let pod = json!({ "metadata": { "name": app, "namespace": "n", "labels": { "app": app } }, "spec": spec });
            serde_json::from_value(pod).expect("a pod")
        };
        let mut ledger = Ledger::default();
        for (number, (app, spec, node)) in there.iter().enumerate() {
            ledger.place(&Request::new(Some("n"), &number.to_string()), &pod(app, spec), node);
        }
        let all: Vec<&Node> = nodes.iter().collect();
        let fitting: Vec<(&Node, usize)> = all.iter().map(|node| (*node, 0)).collect();
        let scores = scores(&pod("web", &spec), &fitting, &all, &ledger, &Namespaces::new());
        let best = scores.iter().max().expect("three");
        let found = all.iter().zip(&scores).filter(|(_, score)| *score == best);
        let found: Vec<&str> = found.map(|(node, _)| meta::name(&node.metadata)).collect();
        assert_eq!(found, expected, "{spec} beside {there:?}: {scores:?}");
    }

    fn with(more: Value) -> Value {
        let mut spec = json!({ "containers": [], "tolerations": [{ "operator": "Exists" }] });
        let spec_of = spec.as_object_mut().expect("an object");
        spec_of.extend(more.as_object().expect("an object").clone());
        spec
    }

    fn near(kind: &str, app: &str, key: &str) -> Value {
        let term = json!({ "labelSelector": { "matchLabels": { "app": app } }, "topologyKey": key });
        with(
            json!({ "affinity": { kind: { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 5, "podAffinityTerm": term }] } } }),
        )
    }

    #[test]
    fn of_nodes() {
        check(with(json!({})), &[], &["a", "b", "c"]);
        check(json!({ "containers": [] }), &[], &["a", "b"]);
        let like = |key: &str, value: &str, weight: i32| json!({ "weight": weight, "preference": { "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] } });
        let liking = |terms: Value| {
            with(
                json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } } }),
            )
        };
        check(liking(json!([like("zone", "y", 1)])), &[], &["c"]);
        check(liking(json!([like("zone", "x", 3), like("host", "b", 1)])), &[], &["b"]);
        check(liking(json!([like("zone", "x", 1), like("host", "c", 9)])), &[], &["c"]);
        check(liking(json!([like("rack", "1", 9)])), &[], &["a", "b", "c"]);
    }

    #[test]
    fn of_pods() {
        let plain = || with(json!({}));
        check(near("podAffinity", "db", "host"), &[("db", plain(), "b")], &["b"]);
        check(near("podAffinity", "db", "zone"), &[("db", plain(), "b")], &["a", "b"]);
        check(near("podAntiAffinity", "web", "zone"), &[("web", plain(), "b")], &["c"]);
        // A running pod prefers the new one near it, or not; a required term counts as a preference as well.
        check(plain(), &[("db", near("podAffinity", "web", "host"), "a")], &["a"]);
        check(plain(), &[("db", near("podAntiAffinity", "web", "zone"), "a")], &["c"]);
        let mut needing = near("podAffinity", "web", "host");
        let term =
            needing["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
                .take();
        needing["affinity"]["podAffinity"] = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        check(plain(), &[("db", needing, "c")], &["c"]);
    }

    #[test]
    fn of_topologies() {
        let spreading = |key: &str| {
            with(json!({ "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": { "app": "web" } } }] }))
        };
        let plain = || with(json!({}));
        check(spreading("zone"), &[], &["a", "b", "c"]);
        check(spreading("zone"), &[("web", plain(), "a")], &["c"]);
        check(
            spreading("host"),
            &[("web", plain(), "a"), ("db", plain(), "b")],
            &["b", "c"],
        );
        check(
            spreading("zone"),
            &[("web", plain(), "a"), ("web", plain(), "c")],
            &["a", "b", "c"],
        );
        check(spreading("rack"), &[("web", plain(), "a")], &["a", "b", "c"]);
    }
}
