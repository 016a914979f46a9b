//! Where a pod may run because of the pods that run already: affinity and anti-affinity between pods, and topology
//! spread.
//!
//! Pure. Only required terms count here; preferred ones are in `prefer`. Upstream: `interpodaffinity`,
//! `podtopologyspread`. Made once for each pod that is placed, and then asked for each node. Invariant: the
//! anti-affinity of a running pod is checked for each new pod, also for one without affinity of its own.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_objects::api::core::v1::{Node, Pod, PodSpec, TopologySpreadConstraint};

use super::cache::Cache;
use super::constraint::{ConstraintSelector, is_looked_at};
use super::fit::Refusal;
use super::pod_info::{Labels, Neighbour};
use super::term::{Asked, Namespaces, Term, Terms};
use kubewright_objects::NodeView;
use kubewright_objects::meta;

/// Values of labels of nodes, by the label.
#[derive(Default)]
struct Topologies(BTreeMap<String, BTreeSet<String>>);

impl Topologies {
    /// Adds the value of a node, if it has the label.
    fn insert(&mut self, key: &str, labels: &Labels) {
        let Some(value) = labels.get(key) else { return };
        match self.0.get_mut(key) {
            Some(values) if values.contains(value) => {}
            Some(values) => drop(values.insert(value.clone())),
            None => drop(self.0.insert(key.to_owned(), [value.clone()].into())),
        }
    }

    /// Whether the value of a node is one of them.
    fn has(&self, key: &str, labels: &Labels) -> bool {
        let values = self.0.get(key).zip(labels.get(key));
        values.is_some_and(|(values, value)| values.contains(value))
    }

    /// Whether a node has any of them.
    fn has_any(&self, labels: &Labels) -> bool {
        self.0.keys().any(|key| self.has(key, labels))
    }
}

/// The constraints of the running pods on a new one.
#[derive(Default)]
pub(super) struct Neighbours {
    wanted: Vec<String>,
    near: Topologies,
    is_first: bool,
    unwanted: Topologies,
    repelled: Topologies,
    spread: Vec<Spread>,
}

struct Spread {
    key: String,
    most: i32,
    own: usize,
    least: usize,
    counts: BTreeMap<String, usize>,
}

/// Whether a pod that comes to a node may make room for this one.
pub(super) fn looks_around(pod: &Pod) -> bool {
    let spread = |spec: &PodSpec| {
        spec.topology_spread_constraints
            .as_ref()
            .is_some_and(|all| !all.is_empty())
    };
    pod.spec.as_ref().is_some_and(spread) || !Terms::of_pod(pod).wanted.is_empty()
}

impl Neighbours {
    /// Counts the pods of the cache, as far as they matter for this pod.
    pub(super) fn of(pod: &Pod, nodes: &[&NodeView], cache: &Cache, namespaces: &Namespaces) -> Neighbours {
        let Some(spec) = pod.spec.as_ref() else {
            return Neighbours::default();
        };
        let (own, terms) = (Neighbour::of(pod), Terms::of_pod(pod));
        let wanted: Vec<Asked<'_>> = terms.wanted.iter().map(Asked::new).collect();
        let unwanted: Vec<Asked<'_>> = terms.unwanted.iter().map(Asked::new).collect();
        let mut wants = terms.wanted.iter();
        let mut found = Neighbours {
            wanted: terms.wanted.iter().map(|term| term.key.clone()).collect(),
            is_first: wants.all(|term| term.means(own.namespace, own.namespace, own.labels, namespaces)),
            ..Neighbours::default()
        };
        let is_asked = !(wanted.is_empty() && unwanted.is_empty());
        for node in nodes.iter().filter(|_| is_asked) {
            let labels = meta::labels(&node.node.metadata);
            for (namespace, of_pods, _) in cache.on(node.name()).labels.iter() {
                let means = |asked: &Asked<'_>| asked.means(own.namespace, namespace, of_pods, namespaces);
                if wanted.iter().all(means) {
                    wanted
                        .iter()
                        .for_each(|asked| found.near.insert(&asked.term.key, labels));
                }
                let repelled = unwanted.iter().filter(|asked| means(asked));
                repelled.for_each(|asked| found.unwanted.insert(&asked.term.key, labels));
            }
        }
        for (namespace, group) in cache.affinity.iter() {
            let means = |term: &&Term| term.means(namespace, own.namespace, own.labels, namespaces);
            let repelling: Vec<&Term> = group.terms.unwanted.iter().filter(means).collect();
            if repelling.is_empty() {
                continue;
            }
            for node in nodes.iter().filter(|node| group.nodes.contains_key(node.name())) {
                let labels = meta::labels(&node.node.metadata);
                repelling
                    .iter()
                    .for_each(|term| found.repelled.insert(&term.key, labels));
            }
        }
        let spreads = spec.topology_spread_constraints.iter().flatten();
        let spreads: Vec<&TopologySpreadConstraint> = spreads
            .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
            .collect();
        let keys: Vec<&str> = spreads.iter().map(|one| one.topology_key.as_str()).collect();
        found.spread = spreads
            .iter()
            .map(|one| spread(one, pod, spec, &keys, nodes, cache))
            .collect();
        found
    }

    /// Why the node will not do.
    pub(super) fn refusal(&self, node: &Node) -> Option<Refusal> {
        let labels = meta::labels(&node.metadata);
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
        let alone = self.near.0.is_empty() && self.is_first;
        let is_near = |key: &String| labels.contains_key(key) && (alone || self.near.has(key, labels));
        if !self.wanted.iter().all(is_near) {
            return Some(Refusal::lasting("node(s) didn't match pod affinity rules"));
        }
        if self.unwanted.has_any(labels) {
            return Some(Refusal::by_pods("node(s) didn't match pod anti-affinity rules"));
        }
        let is_repelled = self.repelled.has_any(labels);
        is_repelled.then(|| Refusal::by_pods("node(s) didn't satisfy existing pods anti-affinity rules"))
    }
}

/// Counts the pods that a constraint selects, by the value of its label (`calPreFilterState`).
fn spread(
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
    spec: &PodSpec,
    keys: &[&str],
    nodes: &[&NodeView],
    cache: &Cache,
) -> Spread {
    let own = Neighbour::of(pod).labels;
    let counted = ConstraintSelector::of(constraint, pod);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let labels = meta::labels(&node.node.metadata);
        if !keys.iter().all(|key| labels.contains_key(*key)) || !is_looked_at(constraint, spec, &node.node) {
            continue;
        }
        let Some(value) = labels.get(&constraint.topology_key) else {
            continue;
        };
        let count = counts.entry(value.clone()).or_default();
        *count = count.saturating_add(counted.on(cache.on(node.name())));
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
    use kubewright::{Request, View as _};

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
        let nodes = [node("a", "x"), node("b", "x"), node("c", "y")].map(|node| NodeView::of(&node));
        let mut cache = Cache::default();
        for (number, (pod, node)) in there.iter().enumerate() {
            let namespace = pod.metadata.namespace.as_deref();
            cache.place(&Request::new(namespace, &number.to_string()), pod, node);
        }
        let namespaces: Namespaces = [("other".to_owned(), [("team".to_owned(), "db".to_owned())].into())].into();
        let neighbours = Neighbours::of(coming, &nodes.iter().collect::<Vec<_>>(), &cache, &namespaces);
        let found = nodes.each_ref().map(|node| neighbours.refusal(&node.node));
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
