//! Whether a pod may run on a node, and what to say when it may run nowhere.
//!
//! Pure. A node is asked the questions of kube-scheduler in its order, and the first that it fails is its reason: nodeName, unschedulable,
//! taints, node affinity and nodeSelector, number of pods. Not here: requests of cpu and memory, affinity between pods, topology spread,
//! volumes and preemption; they are not looked at.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint};

use crate::controllers::meta;
use crate::controllers::tolerations::tolerates;

/// The taint that stands for `spec.unschedulable`; a toleration of it makes the node usable all the same.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a pod cannot run on a node, in kube-scheduler's words.
pub(crate) fn refusal(pod: &Pod, node: &Node, pods_there: usize) -> Option<String> {
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
        return Some("node(s) were unschedulable".to_owned());
    }
    let repels =
        |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(tolerations, taint);
    if let Some(taint) = node_spec.taints.iter().flatten().find(repels) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
    }
    if !selected(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let status = node.status.as_ref();
    let room = status
        .and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()))
        .and_then(|room| room.get("pods"));
    // A node that does not say how many pods it takes takes them all.
    if room
        .and_then(|room| room.0.parse::<usize>().ok())
        .is_some_and(|room| pods_there >= room)
    {
        return Some("Too many pods".to_owned());
    }
    None
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
    required.is_none_or(|selector| {
        selector
            .node_selector_terms
            .iter()
            .any(|term| term_fits(term, node, &labels))
    })
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

/// The sentence for a pod that fits nowhere: how many nodes there are, and how many of them refuse for which reason.
pub(crate) fn nowhere(refusals: &[String]) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in refusals {
        *counted.entry(refusal).or_default() += 1;
    }
    let mut reasons: Vec<String> = counted
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    reasons.sort();
    let total = refusals.len();
    // Nothing is ever preempted here, and the real scheduler says so in these words when it would not help.
    format!(
        "0/{total} nodes are available: {}. preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling.",
        reasons.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TAINT: &str = "node(s) had untolerated taint {dedicated: db}";
    const SELECTOR: &str = "node(s) didn't match Pod's node affinity/selector";

    fn check(pod_spec: Value, node: Value, there: usize, expected: Option<&str>) {
        let pod: Pod =
            serde_json::from_value(json!({ "spec": merged(json!({ "containers": [] }), &pod_spec) })).expect("a pod");
        let metadata = json!({ "metadata": { "name": "n", "labels": { "zone": "a", "size": "8" } } });
        let typed: Node = serde_json::from_value(merged(metadata, &node)).expect("a node");
        assert_eq!(
            refusal(&pod, &typed, there).as_deref(),
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
        check(json!({}), json!({}), 1000, None);
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
                nowhere(&refusals.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()),
                expected
            );
        };
        check(&[], "no nodes available to schedule pods");
        check(
            &[SELECTOR, TAINT, SELECTOR],
            "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: db}, 2 node(s) didn't match Pod's node affinity/selector. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        );
    }
}
