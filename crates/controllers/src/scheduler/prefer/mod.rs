//! Which of the nodes that would do is preferred.
//!
//! Pure. The scoring plugins of kube-scheduler with their weights there. Each gives a node 0 to 100, what its answers
//! are made to lie between where they count something (`RunScorePlugins`). What the real one says of some hundred
//! clusters is recorded in `testdata/scheduler-scores.json`.
//!
//! Not here: devices (`DynamicResources`), which nothing allocates.

mod images;
mod pods;
mod room;
mod spread;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::core::v1::{Pod, PodSpec};

use super::cache::{Cache, NodeInfo};
use super::fit;
use super::term::Namespaces;
use super::volumes::Volumes;
use kubewright_objects::NodeView;
use kubewright_objects::meta;
use kubewright_objects::tolerations::tolerates;

/// The best that one question can say of a node.
pub(super) const BEST: i64 = 100;

/// What is said of each node by one plugin; nothing where it makes no difference between them.
struct Answer {
    plugin: &'static str,
    weight: i64,
    scores: Option<Vec<i64>>,
}

/// A node that would do, and what is used of it.
pub(super) type Feasible<'a> = (&'a NodeView, &'a NodeInfo);

/// The nodes that would do for a pod, and their surroundings.
pub(super) struct Choice<'a> {
    pub(super) pod: &'a Pod,
    /// Selects the pods that belong together with it.
    pub(super) default_selector: Option<&'a LabelSelector>,
    pub(super) nodes: &'a [Feasible<'a>],
    /// These and the others.
    pub(super) all: &'a [&'a NodeView],
    pub(super) cache: &'a Cache,
    pub(super) namespaces: &'a Namespaces,
    /// The volumes that its claims wait for, where they count (`StorageCapacityScoring`, from Kubernetes 1.37 on).
    pub(super) volumes: Option<&'a Volumes>,
}

impl Choice<'_> {
    /// How much each of the nodes is preferred.
    pub(super) fn scores(&self) -> Vec<i64> {
        let mut sums = vec![0; self.nodes.len()];
        for answer in self.answers() {
            let (plugin, weight) = (answer.plugin, answer.weight);
            tracing::trace!(plugin, weight, scores = ?answer.scores, "a plugin scored the nodes for a pod");
            for (sum, score) in sums.iter_mut().zip(answer.scores.into_iter().flatten()) {
                *sum += weight * score;
            }
        }
        sums
    }

    fn answers(&self) -> Vec<Answer> {
        let (Some(spec), [_, _, ..]) = (self.pod.spec.as_ref(), self.nodes) else {
            return vec![];
        };
        let rooms = room::Rooms::of(self.pod, self.nodes);
        let answer = |plugin, weight, scores| Answer { plugin, weight, scores };
        vec![
            answer("TaintToleration", 3, taints(spec, self.nodes)),
            answer("NodeAffinity", 2, affinity_to_nodes(spec, self.nodes)),
            answer("InterPodAffinity", 2, pods::scores(self)),
            answer("PodTopologySpread", 2, spread::scores(self, spec)),
            answer("NodeResourcesFit", 1, Some(rooms.least())),
            answer("NodeResourcesBalancedAllocation", 1, rooms.balance()),
            answer("ImageLocality", 1, images::scores(spec, self.nodes, self.all)),
            answer(
                "VolumeBinding",
                1,
                self.volumes.map(|volumes| volumes.scores(self.nodes)),
            ),
        ]
    }
}

/// Nodes that few would rather keep free are better.
fn taints(spec: &PodSpec, nodes: &[Feasible<'_>]) -> Option<Vec<i64>> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = |(node, _): &Feasible<'_>| {
        let taints = node.node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let unwelcome = taints.filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(tolerations, taint));
        i64::try_from(unwelcome.count()).unwrap_or(i64::MAX)
    };
    let counts: Vec<i64> = nodes.iter().map(untolerated).collect();
    let most = counts.iter().copied().max().filter(|most| *most > 0)?;
    Some(counts.iter().map(|count| BEST - share(*count, most)).collect())
}

fn affinity_to_nodes(spec: &PodSpec, nodes: &[Feasible<'_>]) -> Option<Vec<i64>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = affinity
        .preferred_during_scheduling_ignored_during_execution
        .as_deref()?;
    let worth = |(node, _): &Feasible<'_>| {
        let labels = meta::labels(&node.node.metadata);
        let liked = terms
            .iter()
            .filter(|term| fit::term_fits(&term.preference, &node.node, labels));
        liked.map(|term| i64::from(term.weight)).sum()
    };
    let worths: Vec<i64> = nodes.iter().map(worth).collect();
    let most = worths.iter().copied().max().filter(|most| *most > 0)?;
    Some(worths.iter().map(|worth| share(*worth, most)).collect())
}

fn share(part: i64, of: i64) -> i64 {
    part.saturating_mul(BEST).checked_div(of).unwrap_or(0)
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use kubewright::{Request, View as _};
    use kubewright_objects::api::core::v1::Node;
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
        let mut cache = Cache::default();
        for (number, (app, spec, node)) in there.iter().enumerate() {
            cache.place(&Request::new(Some("n"), &number.to_string()), &pod(app, spec), node);
        }
        let nodes = nodes.map(|node| NodeView::of(&node));
        let all: Vec<&NodeView> = nodes.iter().collect();
        let feasible: Vec<Feasible<'_>> = all.iter().map(|node| (*node, cache.on(node.name()))).collect();
        let choice = Choice {
            pod: &pod("web", &spec),
            default_selector: None,
            nodes: &feasible,
            all: &all,
            cache: &cache,
            namespaces: &Namespaces::new(),
            volumes: None,
        };
        let scores = choice.scores();
        let best = scores.iter().max().expect("three");
        let found = all.iter().zip(&scores).filter(|(_, score)| *score == best);
        let found: Vec<&str> = found.map(|(node, _)| node.name()).collect();
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
