//! Whether a pod fits a node, and the message when it fits none.
//!
//! Pure. A node is asked the questions of kube-scheduler in its order, and the first that it fails gives its reasons:
//! unschedulable, taints, node affinity and nodeSelector, ports of the host, number of pods and requests of resources.
//! Not here: affinity between pods and topology spread (`neighbours`), volumes (`volumes`), preemption (`preempt`).

use std::collections::{BTreeMap, BTreeSet};

use kubewright_objects::api::core::v1::{Pod, PodSpec, Taint, Toleration};

use super::cache::NodeInfo;
use kubewright_objects::NodeView;
pub(crate) use kubewright_objects::node_affinity::{selected, selects, term_fits};
use kubewright_objects::requests::{self, Amounts, HostPort};
use kubewright_objects::tolerations::tolerates;

/// The taint that stands for `spec.unschedulable`; a toleration of it makes the node usable all the same.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The reason of a node where preemption would not help.
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// Why a node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// In kube-scheduler's words.
    pub(super) reasons: Vec<String>,
    /// Whether it would do if some of its pods went (`Unschedulable` and not `UnschedulableAndUnresolvable`).
    pub(super) is_full: bool,
}

impl Refusal {
    /// A refusal that no change of the node's pods could lift.
    pub(super) fn lasting(reason: impl Into<String>) -> Refusal {
        Refusal {
            reasons: vec![reason.into()],
            is_full: false,
        }
    }

    /// A refusal because of pods that are there: it would do without them.
    pub(super) fn by_pods(reason: impl Into<String>) -> Refusal {
        Refusal {
            is_full: true,
            ..Refusal::lasting(reason)
        }
    }
}

/// The requirements of a pod for a node, read once for all nodes.
pub(super) struct Requirements<'a> {
    spec: Option<&'a PodSpec>,
    tolerations: &'a [Toleration],
    requests: Amounts,
    ports: BTreeSet<HostPort>,
    /// The only nodes that come into question, because the pod names them.
    named: Option<BTreeSet<&'a str>>,
}

impl<'a> Requirements<'a> {
    pub(super) fn of(pod: &'a Pod) -> Requirements<'a> {
        let spec = pod.spec.as_ref();
        Requirements {
            spec,
            tolerations: spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default(),
            requests: requests::of(pod),
            ports: requests::host_ports(pod),
            named: spec.and_then(named),
        }
    }

    /// Whether the pod names its nodes, and this is none of them (`PreFilterResult`).
    pub(super) fn passes_over(&self, node: &NodeView) -> bool {
        self.named.as_ref().is_some_and(|names| !names.contains(node.name()))
    }

    /// Why the pod cannot run on a node; nothing when it can.
    pub(super) fn refusal(&self, parsed: &NodeView, taken: &NodeInfo) -> Option<Refusal> {
        let node = &parsed.node;
        if self.passes_over(parsed) {
            return Some(Refusal::lasting("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        }
        let cordoned = || Taint {
            key: UNSCHEDULABLE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let node_spec = node.spec.as_ref();
        let is_cordoned = node_spec.is_some_and(|spec| spec.unschedulable == Some(true));
        if is_cordoned && !tolerates(self.tolerations, &cordoned()) {
            return Some(Refusal::lasting("node(s) were unschedulable"));
        }
        let repels = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(self.tolerations, taint)
        };
        let mut taints = node_spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
        if taints.any(|taint| repels(&taint)) {
            return Some(Refusal::lasting("node(s) had untolerated taint(s)"));
        }
        if !self.spec.is_none_or(|spec| selected(spec, node)) {
            return Some(Refusal::lasting("node(s) didn't match Pod's node affinity/selector"));
        }
        if self.has_port_conflict(taken) {
            return Some(Refusal::by_pods(
                "node(s) didn't have free ports for the requested pod ports",
            ));
        }
        self.insufficient(parsed, taken)
    }

    /// Whether a pod of the node has one of the ports already; `0.0.0.0` stands for every address.
    fn has_port_conflict(&self, taken: &NodeInfo) -> bool {
        if self.ports.is_empty() {
            return false;
        }
        let there = || taken.pods.values().flat_map(|pod| &pod.asks.ports);
        self.ports
            .iter()
            .any(|port| there().any(|other| requests::is_same_port(port, other)))
    }

    /// The resources that the node lacks (`fitsRequest`). A resource that it does not list is zero. A request beyond
    /// the empty node's capacity cannot be met by preemption.
    fn insufficient(&self, node: &NodeView, taken: &NodeInfo) -> Option<Refusal> {
        let (mut reasons, mut is_full) = (Vec::new(), true);
        let count = i128::try_from(taken.pods.len()).unwrap_or(i128::MAX);
        if count.saturating_add(1).saturating_mul(1000) > node.room("pods") {
            reasons.push("Too many pods".to_owned());
        }
        for (name, amount) in &self.requests {
            let used = taken.amounts.get(name).copied().unwrap_or(0);
            let there = node.room(name);
            if *amount > 0 && *amount > there.saturating_sub(used) {
                reasons.push(format!("Insufficient {name}"));
                is_full &= *amount <= there;
            }
        }
        (!reasons.is_empty()).then_some(Refusal { reasons, is_full })
    }
}

/// The nodes that the required node affinity names, when each of its terms does (`NodeAffinity.PreFilter`).
fn named(spec: &PodSpec) -> Option<BTreeSet<&str>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut all = BTreeSet::new();
    for term in &required.node_selector_terms {
        let fields = term.match_fields.iter().flatten();
        let names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        let names = names.map(|field| {
            field
                .values
                .iter()
                .flatten()
                .map(String::as_str)
                .collect::<BTreeSet<_>>()
        });
        all.extend(names.reduce(|one, other| &one & &other)?);
    }
    (!all.is_empty()).then_some(all)
}

/// How many nodes there are, and how many of them refuse for which reason (`FitError`).
pub(super) fn available<'a>(nodes: usize, reasons: impl Iterator<Item = &'a [String]>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons.flatten() {
        let count = counted.entry(reason).or_default();
        *count = count.saturating_add(1);
    }
    let mut reasons: Vec<String> = counted
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// The sentence for a pod that fits no node and for which preemption finds no victims: `helpless` says why, of each
/// node that is full, and `claims` what there is to say about claims.
pub(super) fn nowhere(refusals: &[&Refusal], helpless: &[Vec<String>], claims: &str) -> String {
    let nodes = refusals.len();
    let why = available(nodes, refusals.iter().map(|refusal| refusal.reasons.as_slice()));
    if nodes == 0 {
        return why;
    }
    let not_helpful = [NOT_HELPFUL.to_owned()];
    let others = refusals.iter().filter(|refusal| !refusal.is_full);
    let others = others.map(|_| not_helpful.as_slice());
    let helpless = helpless.iter().map(Vec::as_slice).chain(others);
    format!("{why} {claims}, preemption: {}", available(nodes, helpless))
}

/// The sentence for a pod that fits no node for a reason of its own. The plugin for resource claims, which runs at
/// preemption, then says that it did not run before.
pub(super) fn nowhere_because(reason: &str, nodes: usize) -> String {
    match nodes {
        0 => available(0, std::iter::empty()),
        _ => format!("0/{nodes} nodes are available: {reason}. not found"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubewright::{Request, View as _};
    use kubewright_objects::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::pod_info::{Interned, PodInfo};

    const TAINT: &str = "node(s) had untolerated taint(s)";
    const SELECTOR: &str = "node(s) didn't match Pod's node affinity/selector";

    fn check(pod_spec: Value, node: Value, there: usize, expected: Option<&str>) {
        let pod: Pod =
            serde_json::from_value(json!({ "spec": merged(json!({ "containers": [] }), &pod_spec) })).expect("a pod");
        let metadata = json!({
            "metadata": { "name": "n", "labels": { "zone": "a", "size": "8" } },
            "status": { "allocatable": { "pods": "1k", "cpu": "4", "memory": "8Gi" } },
        });
        let typed: Node = serde_json::from_value(merged(metadata, &node)).expect("a node");
        let other: Pod = serde_json::from_value(json!({ "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": "1" } }, "ports": [{ "containerPort": 80, "hostPort": 80 }] },
        ] } }))
        .expect("a pod");
        let mut taken = NodeInfo::default();
        let other = Arc::new(PodInfo::of(&other, &mut Interned::default()));
        for number in 0..there {
            let request = Request::new(None, &number.to_string());
            taken.pods.insert(request, other.clone());
            *taken.amounts.entry("cpu".to_owned()).or_default() += 1000;
        }
        assert_eq!(
            Requirements::of(&pod)
                .refusal(&NodeView::of(&typed), &taken)
                .map(|refusal| refusal.reasons.join(" and "))
                .as_deref(),
            expected,
            "{pod_spec} on {node} with {there}"
        );
    }

    fn merged(mut base: Value, more: &Value) -> Value {
        for (key, value) in more.as_object().expect("an object") {
            base[key] = value.clone();
        }
        base
    }

    #[test]
    fn nodes_that_fit_a_pod() {
        check(json!({}), json!({}), 999, None);
        check(json!({}), json!({}), 1000, Some("Too many pods"));
        check(json!({}), json!({ "status": {} }), 0, Some("Too many pods"));
        check(json!({ "nodeSelector": { "zone": "a" } }), json!({}), 0, None);
        check(json!({ "nodeSelector": { "zone": "b" } }), json!({}), 0, Some(SELECTOR));
        check(
            json!({}),
            json!({ "spec": { "unschedulable": true } }),
            0,
            Some("node(s) were unschedulable"),
        );
        check(
            json!({ "tolerations": [{ "key": UNSCHEDULABLE, "operator": "Exists" }] }),
            json!({ "spec": { "unschedulable": true } }),
            0,
            None,
        );
        check(
            json!({}),
            json!({ "status": { "allocatable": { "pods": "2" } } }),
            2,
            Some("Too many pods"),
        );
        check(
            json!({}),
            json!({ "status": { "allocatable": { "pods": "2" } } }),
            1,
            None,
        );
    }

    #[test]
    fn room() {
        let asking = |cpu: &str, memory: &str| json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] });
        check(asking("3", "8Gi"), json!({}), 1, None);
        check(asking("3001m", "1Gi"), json!({}), 1, Some("Insufficient cpu"));
        check(
            asking("500", "9Gi"),
            json!({}),
            0,
            Some("Insufficient cpu and Insufficient memory"),
        );
        let device = json!({ "containers": [{ "name": "c", "resources": { "requests": { "ex.io/gpu": "1" } } }] });
        check(device, json!({}), 0, Some("Insufficient ex.io/gpu"));
        let port = |address: &str, number: i32| json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": number, "hostIP": address }] }] });
        let taken = "node(s) didn't have free ports for the requested pod ports";
        check(port("", 80), json!({}), 1, Some(taken));
        check(port("127.0.0.1", 80), json!({}), 1, Some(taken));
        check(port("", 81), json!({}), 1, None);
    }

    #[test]
    fn taints_and_tolerations() {
        let tainted =
            |effect: &str| json!({ "spec": { "taints": [{ "key": "dedicated", "value": "db", "effect": effect }] } });
        let tolerating = |toleration: Value| json!({ "tolerations": [toleration] });
        check(json!({}), tainted("NoSchedule"), 0, Some(TAINT));
        check(json!({}), tainted("NoExecute"), 0, Some(TAINT));
        check(json!({}), tainted("PreferNoSchedule"), 0, None);
        check(
            tolerating(json!({ "operator": "Exists" })),
            tainted("NoExecute"),
            0,
            None,
        );
        check(
            tolerating(json!({ "key": "dedicated", "operator": "Exists", "effect": "NoSchedule" })),
            tainted("NoSchedule"),
            0,
            None,
        );
        check(
            tolerating(json!({ "key": "dedicated", "operator": "Exists", "effect": "NoSchedule" })),
            tainted("NoExecute"),
            0,
            Some(TAINT),
        );
        check(
            tolerating(json!({ "key": "dedicated", "value": "db" })),
            tainted("NoSchedule"),
            0,
            None,
        );
        check(
            tolerating(json!({ "key": "dedicated", "value": "web" })),
            tainted("NoSchedule"),
            0,
            Some(TAINT),
        );
    }

    #[test]
    fn node_affinity() {
        let wanting = |terms: Value| json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } });
        let expression = |key: &str, operator: &str, values: &[&str]| json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]);
        check(wanting(expression("zone", "In", &["a", "b"])), json!({}), 0, None);
        check(
            wanting(expression("zone", "NotIn", &["a"])),
            json!({}),
            0,
            Some(SELECTOR),
        );
        check(wanting(expression("rack", "NotIn", &["a"])), json!({}), 0, None);
        check(wanting(expression("rack", "Exists", &[])), json!({}), 0, Some(SELECTOR));
        check(wanting(expression("rack", "DoesNotExist", &[])), json!({}), 0, None);
        check(wanting(expression("size", "Gt", &["4"])), json!({}), 0, None);
        check(wanting(expression("size", "Lt", &["4"])), json!({}), 0, Some(SELECTOR));
        check(wanting(json!([{}])), json!({}), 0, Some(SELECTOR));
        let field = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] }]);
        check(wanting(field.clone()), json!({}), 0, None);
        // A pod that names its nodes is not compared with others, unless a term names none.
        let mut of_others = field;
        of_others[0]["matchFields"][0]["values"] = json!(["other"]);
        let others = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
        check(
            wanting(of_others.clone()),
            json!({ "spec": { "unschedulable": true } }),
            0,
            Some(others),
        );
        let beside = expression("rack", "Exists", &[])[0].clone();
        of_others.as_array_mut().expect("terms").push(beside);
        check(wanting(of_others), json!({}), 0, Some(SELECTOR));
    }

    #[test]
    fn the_sentence() {
        const ALONE: &str = "No preemption victims found for incoming pod";
        let full = |reason: &str| Refusal::by_pods(reason);
        let check = |refusals: &[Refusal], helpless: &[&str], expected: &str| {
            let refusals: Vec<&Refusal> = refusals.iter().collect();
            let helpless: Vec<Vec<String>> = helpless.iter().map(|text| vec![(*text).to_owned()]).collect();
            assert_eq!(nowhere(&refusals, &helpless, "no new claims to deallocate"), expected);
        };
        check(&[], &[], "no nodes available to schedule pods");
        let (taint, selector) = (Refusal::lasting(TAINT), Refusal::lasting(SELECTOR));
        check(
            &[full("Insufficient cpu"), taint.clone()],
            &[ALONE],
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: \
             1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.",
        );
        check(
            &[full("Insufficient cpu"), full("Insufficient cpu")],
            &[ALONE, "Insufficient cpu"],
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: \
             1 Insufficient cpu, 1 No preemption victims found for incoming pod.",
        );
        check(
            &[selector.clone(), taint, selector],
            &[],
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector. \
             no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        );
        let check = |nodes: usize, expected: &str| assert_eq!(nowhere_because("no volume", nodes), expected);
        check(0, "no nodes available to schedule pods");
        check(2, "0/2 nodes are available: no volume. not found");
    }

    #[test]
    fn pods_that_a_change_could_help() {
        let check = |spec: Value, there: usize, expected: Option<bool>| {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
            let node = json!({
                "metadata": { "name": "n", "labels": {} }, "status": { "allocatable": { "pods": "2", "cpu": "4" } },
            });
            let node: Node = serde_json::from_value(node).expect("a node");
            let mut taken = NodeInfo::default();
            for number in 0..there {
                let request = Request::new(None, &number.to_string());
                taken.pods.insert(request, Arc::default());
                *taken.amounts.entry("cpu".to_owned()).or_default() += 2000;
            }
            let found = Requirements::of(&pod)
                .refusal(&NodeView::of(&node), &taken)
                .map(|refusal| refusal.is_full);
            assert_eq!(found, expected, "{spec} with {there}");
        };
        let asking =
            |cpu: &str| json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] });
        check(asking("1"), 1, None);
        check(asking("1"), 2, Some(true));
        check(asking("3"), 1, Some(true));
        check(asking("5"), 0, Some(false));
        check(asking("5"), 2, Some(false));
        check(
            json!({ "containers": [], "nodeSelector": { "a": "b" } }),
            2,
            Some(false),
        );
    }
}
