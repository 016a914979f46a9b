//! Where a pod may run because of the pods that run already: affinity and anti-affinity between pods, and topology
//! spread.
//!
//! Pure. Only required terms count here; preferred ones are in `prefer`. Upstream: `interpodaffinity`,
//! `podtopologyspread`. ConstraintSelector once for each pod that is placed, and then asked for each node. Invariant: the
//! anti-affinity of a running pod is checked for each new pod, also for one without affinity of its own.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright::kube::core::{Selector, SelectorExt as _};
use kubewright_objects::api::core::v1::{Affinity, Node, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};

use super::cache::Cache;
use super::constraint::{ConstraintSelector, is_looked_at};
use super::fit::Refusal;
use super::pod_info::{Labels, Neighbour};
use kubewright_objects::meta;

/// The labels of namespaces by name.
pub(super) type Namespaces = BTreeMap<String, Labels>;

/// A label of nodes and its value.
type Pair = (String, String);

/// The constraints of the running pods on a new one.
#[derive(Default)]
pub(super) struct Neighbours {
    wanted: Vec<String>,
    near: BTreeMap<Pair, usize>,
    is_first: bool,
    unwanted: BTreeSet<Pair>,
    repelled: BTreeSet<Pair>,
    spread: Vec<Spread>,
}

struct Spread {
    key: String,
    most: i32,
    own: usize,
    least: usize,
    counts: BTreeMap<String, usize>,
}

/// The pods that a pod requires near it.
pub(super) fn wanted(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_deref());
    required.unwrap_or_default()
}

/// The pods that it cannot have near it.
fn unwanted(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_deref());
    required.unwrap_or_default()
}

/// Whether a pod with this affinity repels others.
pub(super) fn repels(affinity: Option<&Affinity>) -> bool {
    !unwanted(affinity).is_empty()
}

/// Whether a pod that comes to a node may make room for this one.
pub(super) fn looks_around(pod: &Pod) -> bool {
    let spread = |spec: &PodSpec| {
        spec.topology_spread_constraints
            .as_ref()
            .is_some_and(|all| !all.is_empty())
    };
    pod.spec
        .as_ref()
        .is_some_and(|spec| !wanted(spec.affinity.as_ref()).is_empty() || spread(spec))
}

/// Whether the labels of namespaces matter for this pod.
pub(super) fn asks_namespaces(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let mut terms = wanted(affinity).iter().chain(unwanted(affinity));
    terms.any(|term| term.namespace_selector.is_some())
}

/// A selector that is missing selects nothing, an empty one everything.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let selector: Option<Selector> = selector.and_then(|selector| selector.clone().try_into().ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

/// Whether a term of the pod `of` means the pod `other`.
pub(super) fn means(term: &PodAffinityTerm, of: Neighbour<'_>, other: Neighbour<'_>, namespaces: &Namespaces) -> bool {
    let there = other.namespace.unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    let none = BTreeMap::new();
    let labels = namespaces.get(there).unwrap_or(&none);
    let in_reach = match (&term.namespace_selector, named) {
        (None, []) => of.namespace == other.namespace,
        (selector, named) => {
            named.iter().any(|name| name == there) || (selector.is_some() && selects(selector.as_ref(), labels))
        }
    };
    in_reach && selects(term.label_selector.as_ref(), other.labels)
}

impl Neighbours {
    /// Counts the pods of the cache, as far as they matter for this pod.
    pub(super) fn of(pod: &Pod, nodes: &[&Node], cache: &Cache, namespaces: &Namespaces) -> Neighbours {
        let Some(spec) = pod.spec.as_ref() else {
            return Neighbours::default();
        };
        let own = Neighbour::of(pod);
        let (wanted, unwanted) = (wanted(own.affinity), self::unwanted(own.affinity));
        let spreads: Vec<&TopologySpreadConstraint> = spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
            .collect();
        let mut found = Neighbours {
            wanted: wanted.iter().map(|term| term.topology_key.clone()).collect(),
            is_first: wanted.iter().all(|term| means(term, own, own, namespaces)),
            ..Neighbours::default()
        };
        if wanted.is_empty() && unwanted.is_empty() && spreads.is_empty() && !cache.has_repelling() {
            return found;
        }
        for node in nodes {
            let labels = meta::labels(&node.metadata);
            let pair = |key: &str| labels.get(key).map(|value| (key.to_owned(), value.clone()));
            let there = cache.on(meta::name(&node.metadata)).into_iter();
            for (request, other) in there.flat_map(|taken| &taken.pods) {
                let other = other.beside(request.namespace());
                if !wanted.is_empty() && wanted.iter().all(|term| means(term, own, other, namespaces)) {
                    for pair in wanted.iter().filter_map(|term| pair(&term.topology_key)) {
                        let count = found.near.entry(pair).or_default();
                        *count = count.saturating_add(1);
                    }
                }
                let repelled = unwanted.iter().filter(|term| means(term, own, other, namespaces));
                found
                    .unwanted
                    .extend(repelled.filter_map(|term| pair(&term.topology_key)));
                let terms = self::unwanted(other.affinity).iter();
                let repelling = terms.filter(|term| means(term, other, own, namespaces));
                found
                    .repelled
                    .extend(repelling.filter_map(|term| pair(&term.topology_key)));
            }
        }
        let keys: Vec<&str> = spreads.iter().map(|one| one.topology_key.as_str()).collect();
        found.spread = spreads
            .iter()
            .map(|one| spread(one, pod, spec, &keys, nodes, cache))
            .collect();
        found
    }

    /// Why the node will not do.
    pub(super) fn refusal(&self, node: &Node) -> Option<Refusal> {
        let is_quiet = self.wanted.is_empty() && self.unwanted.is_empty();
        if is_quiet && self.repelled.is_empty() && self.spread.is_empty() {
            return None;
        }
        let labels = meta::labels(&node.metadata);
        let mut pairs = labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        for spread in &self.spread {
            let Some(value) = labels.get(&spread.key) else {
                return Some(Refusal::lasting(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let there = spread.counts.get(value).copied().unwrap_or(0);
            let skew = there.saturating_add(spread.own).saturating_sub(spread.least);
            if skew > usize::try_from(spread.most).unwrap_or(0) {
                return Some(Refusal::by_pods("node(s) didn't match pod topology spread constraints"));
            }
        }
        let near = |key: &String| {
            let pair = (key.clone(), labels.get(key)?.clone());
            Some(self.near.contains_key(&pair))
        };
        let nears: Option<Vec<bool>> = self.wanted.iter().map(near).collect();
        let alone = self.near.is_empty() && self.is_first;
        if !nears.is_some_and(|nears| alone || nears.iter().all(|near| *near)) {
            return Some(Refusal::lasting("node(s) didn't match pod affinity rules"));
        }
        if pairs.clone().any(|pair| self.unwanted.contains(&pair)) {
            return Some(Refusal::by_pods("node(s) didn't match pod anti-affinity rules"));
        }
        pairs
            .any(|pair| self.repelled.contains(&pair))
            .then(|| Refusal::by_pods("node(s) didn't satisfy existing pods anti-affinity rules"))
    }
}

/// Counts the pods that a constraint selects, by the value of its label (`calPreFilterState`).
fn spread(
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
    spec: &PodSpec,
    keys: &[&str],
    nodes: &[&Node],
    cache: &Cache,
) -> Spread {
    let own = Neighbour::of(pod).labels;
    let counted = ConstraintSelector::of(constraint, pod);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let labels = meta::labels(&node.metadata);
        if !keys.iter().all(|key| labels.contains_key(*key)) || !is_looked_at(constraint, spec, node) {
            continue;
        }
        let Some(value) = labels.get(&constraint.topology_key) else {
            continue;
        };
        let count = counts.entry(value.clone()).or_default();
        *count = count.saturating_add(counted.on(node, cache));
    }
    let domains = i32::try_from(counts.len()).unwrap_or(i32::MAX);
    let few = constraint.min_domains.is_some_and(|least| domains < least);
    Spread {
        key: constraint.topology_key.clone(),
        most: constraint.max_skew,
        own: usize::from(counted.has(own)),
        least: if few {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        },
        counts,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use kubewright::Request;

    const AFFINITY: &str = "node(s) didn't match pod affinity rules";
    const ANTI: &str = "node(s) didn't match pod anti-affinity rules";
    const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
    const SPREAD: &str = "node(s) didn't match pod topology spread constraints";

    fn pod(app: &str, namespace: &str, spec: Value) -> Pod {
        let mut whole = json!({ "containers": [] });
        whole
            .as_object_mut()
            .expect("an object")
            .extend(spec.as_object().expect("an object").clone());
        let pod =
            json!({ "metadata": { "name": app, "namespace": namespace, "labels": { "app": app } }, "spec": whole });
        serde_json::from_value(pod).expect("a pod")
    }

    /// Three nodes, `a` and `b` in the zone `x`, `c` in `y`; the answer for each.
    fn check(coming: &Pod, there: &[(&Pod, &str)], expected: [Option<&str>; 3]) {
        let node = |name: &str, zone: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "host": name, "zone": zone } } }))
                .expect("a node")
        };
        let nodes = [node("a", "x"), node("b", "x"), node("c", "y")];
        let mut cache = Cache::default();
        for (number, (pod, node)) in there.iter().enumerate() {
            let namespace = pod.metadata.namespace.as_deref();
            cache.place(&Request::new(namespace, &number.to_string()), pod, node);
        }
        let namespaces: Namespaces = [("other".to_owned(), [("team".to_owned(), "db".to_owned())].into())].into();
        let neighbours = Neighbours::of(coming, &nodes.iter().collect::<Vec<_>>(), &cache, &namespaces);
        let found = nodes.each_ref().map(|node| neighbours.refusal(node));
        // Pods that repel and pods that crowd a zone can be preempted; pods that are missing cannot.
        let expected = expected.map(|reason| match reason {
            Some(lasting) if lasting == AFFINITY || lasting.ends_with("(missing required label)") => {
                Some(Refusal::lasting(lasting))
            }
            other => other.map(Refusal::by_pods),
        });
        assert_eq!(found, expected, "{coming:?}");
    }

    fn term(kind: &str, app: &str, key: &str, more: &Value) -> Value {
        let mut term = json!({ "labelSelector": { "matchLabels": { "app": app } }, "topologyKey": key });
        term.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
    }

    #[test]
    fn affinity_between_pods() {
        let (web, db) = (pod("web", "a", json!({})), pod("db", "a", json!({})));
        let near = |key: &str| pod("web", "a", term("podAffinity", "db", key, &json!({})));
        check(&web, &[(&db, "a")], [None, None, None]);
        check(&near("host"), &[(&db, "a")], [None, Some(AFFINITY), Some(AFFINITY)]);
        check(&near("zone"), &[(&db, "a")], [None, None, Some(AFFINITY)]);
        check(&near("rack"), &[(&db, "a")], [Some(AFFINITY); 3]);
        check(&near("zone"), &[], [Some(AFFINITY); 3]);
        // The first of those that want to be together may run anywhere.
        check(
            &pod("web", "a", term("podAffinity", "web", "zone", &json!({}))),
            &[],
            [None; 3],
        );
        let elsewhere = pod("db", "other", json!({}));
        check(&near("zone"), &[(&elsewhere, "a")], [Some(AFFINITY); 3]);
        for reach in [
            json!({ "namespaces": ["other"] }),
            json!({ "namespaceSelector": { "matchLabels": { "team": "db" } } }),
        ] {
            let far = pod("web", "a", term("podAffinity", "db", "zone", &reach));
            check(&far, &[(&elsewhere, "a")], [None, None, Some(AFFINITY)]);
        }
    }

    #[test]
    fn anti_affinity_between_pods() {
        let (web, alone) = (
            pod("web", "a", json!({})),
            pod("web", "a", term("podAntiAffinity", "web", "host", &json!({}))),
        );
        check(&alone, &[(&web, "b")], [None, Some(ANTI), None]);
        check(&web, &[(&alone, "b")], [None, Some(EXISTING), None]);
        check(&pod("db", "a", json!({})), &[(&alone, "b")], [None; 3]);
    }

    #[test]
    fn topology_spread() {
        let spreading = |key: &str, more: Value| {
            let mut constraint = json!({
                "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } },
            });
            constraint
                .as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            pod("web", "a", json!({ "topologySpreadConstraints": [constraint] }))
        };
        let (web, db) = (pod("web", "a", json!({})), pod("db", "a", json!({})));
        check(
            &spreading("zone", json!({})),
            &[(&web, "a")],
            [Some(SPREAD), Some(SPREAD), None],
        );
        check(
            &spreading("host", json!({})),
            &[(&web, "a"), (&db, "b")],
            [Some(SPREAD), None, None],
        );
        check(&spreading("zone", json!({})), &[(&web, "a"), (&web, "c")], [None; 3]);
        check(
            &spreading("zone", json!({ "minDomains": 3 })),
            &[(&web, "a"), (&web, "c")],
            [Some(SPREAD); 3],
        );
        check(
            &spreading("zone", json!({ "whenUnsatisfiable": "ScheduleAnyway" })),
            &[(&web, "a")],
            [None; 3],
        );
        check(
            &spreading("rack", json!({})),
            &[],
            [Some("node(s) didn't match pod topology spread constraints (missing required label)"); 3],
        );
    }
}
