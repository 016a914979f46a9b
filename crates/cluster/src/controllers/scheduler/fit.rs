//! Whether a pod may run on a node, and what to say when it may run nowhere.
//!
//! Pure. A node is asked the questions of kube-scheduler in its order, and the first that it fails gives its reasons: unschedulable, taints,
//! node affinity and nodeSelector, ports of the host, number of pods and requests of resources.
//! Not here: affinity between pods and topology spread (`neighbours`), volumes (`volumes`), who gives way (`preempt`).

use std::collections::BTreeMap;

use kubewright::k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint,
};

use super::ledger::{self, Taken};
use crate::controllers::meta;
use crate::controllers::tolerations::tolerates;

/// The taint that stands for `spec.unschedulable`; a toleration of it makes the node usable all the same.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a pod cannot run on a node, in kube-scheduler's words; nothing when it can.
pub(super) fn refusals(pod: &Pod, node: &Node, taken: &Taken) -> Vec<String> {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let node_spec = node.spec.clone().unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordoned = Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if node_spec.unschedulable == Some(true) && !tolerates(tolerations, &cordoned) {
        return vec!["node(s) were unschedulable".to_owned()];
    }
    let repels =
        |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(tolerations, taint);
    if let Some(taint) = node_spec.taints.iter().flatten().find(repels) {
        let value = taint.value.as_deref().unwrap_or_default();
        return vec![format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)];
    }
    if !selected(spec, node) {
        return vec!["node(s) didn't match Pod's node affinity/selector".to_owned()];
    }
    if has_port_conflict(pod, taken) {
        return vec!["node(s) didn't have free ports for the requested pod ports".to_owned()];
    }
    insufficient(pod, node, taken)
}

/// Whether a pod of the node has one of the ports already; `0.0.0.0` stands for every address.
fn has_port_conflict(pod: &Pod, taken: &Taken) -> bool {
    let wanted = ledger::host_ports(pod);
    let there = || taken.pods.values().flat_map(|pod| ledger::host_ports(pod));
    let every = |address: &str| address == "0.0.0.0";
    wanted.iter().any(|(address, protocol, number)| {
        there().any(|(other, of, at)| {
            of == *protocol && at == *number && (other == *address || every(&other) || every(address))
        })
    })
}

/// What the node has too little of (`fitsRequest`). What it does not mention it does not have.
fn insufficient(pod: &Pod, node: &Node, taken: &Taken) -> Vec<String> {
    let room = ledger::allocatable(node);
    let there = |name: &str| room.get(name).copied().unwrap_or(0);
    let mut reasons = Vec::new();
    let count = i128::try_from(taken.pods.len()).unwrap_or(i128::MAX);
    if count.saturating_add(1).saturating_mul(1000) > there("pods") {
        reasons.push("Too many pods".to_owned());
    }
    for (name, amount) in ledger::requests(pod) {
        let used = taken.amounts.get(&name).copied().unwrap_or(0);
        if amount > 0 && amount > there(&name).saturating_sub(used) {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    reasons
}

/// Whether nodeSelector and the required node affinity of a pod fit the node.
pub(crate) fn selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    if !spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value))
    {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| selects(required, node))
}

/// Whether one of the terms fits the node.
pub(super) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    selector
        .node_selector_terms
        .iter()
        .any(|term| term_fits(term, node, &labels))
}

/// A term without requirements selects nothing.
fn term_fits(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |key: &str| (key == "metadata.name").then(|| meta::name(&node.metadata));
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|wanted| requirement_fits(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields.iter().all(|wanted| requirement_fits(wanted, field(&wanted.key)))
}

fn requirement_fits(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_one = |value: &str| values.iter().any(|wanted| wanted == value);
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(is_one),
        "NotIn" => !value.is_some_and(is_one),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(is, bound)| is > bound),
        "Lt" => numbers().is_some_and(|(is, bound)| is < bound),
        _ => false,
    }
}

/// The sentence for a pod that fits nowhere, after nobody was found to give way.
pub(super) fn nowhere(refusals: &[Vec<String>]) -> String {
    let total = refusals.len();
    match refusals {
        [] => available(refusals),
        _ => format!(
            "{} preemption: 0/{total} nodes are available: {}.",
            available(refusals),
            helpless(refusals)
        ),
    }
}

/// How many nodes there are, and how many of them refuse for which reason.
pub(super) fn available(refusals: &[Vec<String>]) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in refusals.iter().flatten() {
        *counted.entry(refusal).or_default() += 1;
    }
    let mut reasons: Vec<String> = counted
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    reasons.sort();
    let total = refusals.len();
    format!("0/{total} nodes are available: {}.", reasons.join(", "))
}

/// Whether a node that refuses for these reasons would take the pod when others went.
pub(super) fn is_full(refusal: &[String]) -> bool {
    refusal.iter().all(|reason| is_room(reason))
}

/// Why nobody gives way: which nodes would be helped by room, and have nobody of a lower priority, and which would not.
fn helpless(refusals: &[Vec<String>]) -> String {
    let total = refusals.len();
    let full = refusals.iter().filter(|refusal| is_full(refusal));
    let full = full.count();
    let mut helpless = Vec::new();
    if full > 0 {
        helpless.push(format!("{full} No preemption victims found for incoming pod"));
    }
    if full < total {
        let others = total.saturating_sub(full);
        helpless.push(format!("{others} Preemption is not helpful for scheduling"));
    }
    helpless.sort();
    helpless.join(", ")
}

/// The sentence for a pod that fits nowhere for a reason of its own.
pub(super) fn nowhere_because(reason: &str, nodes: usize) -> String {
    format!(
        "0/{nodes} nodes are available: {reason}. preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )
}

/// Whether the reason would go when pods of the node went.
fn is_room(reason: &str) -> bool {
    let by_pods = reason.contains("anti-affinity") || reason.ends_with("topology spread constraints");
    reason == "Too many pods" || reason.starts_with("Insufficient ") || reason.contains("free ports") || by_pods
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubewright::Request;
    use serde_json::{Value, json};

    use super::*;

    const TAINT: &str = "node(s) had untolerated taint {dedicated: db}";
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
        let mut taken = Taken::default();
        for number in 0..there {
            let request = Request::new(None, &number.to_string());
            taken.pods.insert(request, Arc::new(other.clone()));
            *taken.amounts.entry("cpu".to_owned()).or_default() += 1000;
        }
        assert_eq!(
            Some(refusals(&pod, &typed, &taken).join(" and "))
                .filter(|text| !text.is_empty())
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
    fn who_may_run_where() {
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
        check(wanting(field), json!({}), 0, None);
    }

    #[test]
    fn the_sentence() {
        let check = |refusals: &[&str], expected: &str| {
            assert_eq!(
                nowhere(&refusals.iter().map(|text| vec![(*text).to_owned()]).collect::<Vec<_>>()),
                expected
            );
        };
        check(&[], "no nodes available to schedule pods");
        check(
            &["Insufficient cpu", TAINT],
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: db}. preemption: 0/2 nodes are available: \
             1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.",
        );
        check(
            &[SELECTOR, TAINT, SELECTOR],
            "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: db}, 2 node(s) didn't match Pod's node affinity/selector. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        );
    }
}
