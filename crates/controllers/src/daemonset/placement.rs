//! On which nodes the pods of a DaemonSet belong, and the affinity that ties a pod to its node
//! (`NodeShouldRunDaemonPod`, `CreatePodTemplate`).
//!
//! Pure. Invariant: a pod is tied to one node by a required affinity to the node's name, so that the scheduler binds it
//! there or not at all.

use kubewright_objects::api::apps::v1::DaemonSet;
use kubewright_objects::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use crate::scheduler::fit;
use crate::{history, pod_control};
use kubewright_objects::meta;
use kubewright_objects::{pods, tolerations};

/// The annotation of a DaemonSet that counts its templates.
pub(crate) const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label of a pod with that count.
const POD_GENERATION: &str = "pod-template-generation";
const NODE_NAME: &str = "metadata.name";

/// The tolerations of every pod of a DaemonSet.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The further toleration of those that use the network of the host.
const TOLERATED_ON_HOST: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The use of a node for a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It shall have a pod.
    Wanted,
    /// It gets none, and keeps the one that it has.
    Kept,
    /// It shall have none.
    Unwanted,
}

/// The spec of a pod of the set before it is tied to a node.
fn untied(set: &DaemonSet) -> PodSpec {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut spec = template.and_then(|template| template.spec.clone()).unwrap_or_default();
    let on_host = spec.host_network == Some(true);
    let present = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(on_host.then_some(TOLERATED_ON_HOST)) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !present.contains(&toleration) {
            present.push(toleration);
        }
    }
    spec
}

/// The use of each node for the set, in the order of the nodes.
pub(crate) fn places(set: &DaemonSet, nodes: &[&Node]) -> Vec<Place> {
    let spec = untied(set);
    nodes.iter().map(|node| place(&spec, node)).collect()
}

fn place(spec: &PodSpec, node: &Node) -> Place {
    let named = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if named.is_some_and(|name| name != meta::name(&node.metadata)) || !fit::selected(spec, node) {
        return Place::Unwanted;
    }
    let tolerated = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let repels = |effect: &str| {
        let mut taints = taints.iter().filter(|taint| taint.effect == effect);
        taints.any(|taint| !tolerations::tolerates(tolerated, taint))
    };
    match () {
        () if repels("NoExecute") => Place::Unwanted,
        () if repels("NoSchedule") => Place::Kept,
        () => Place::Wanted,
    }
}

/// The node that a pod runs on, or is tied to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    let bound = Some(pods::node(pod)).filter(|node| !node.is_empty());
    bound.or_else(|| {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let mut fields = required
            .node_selector_terms
            .iter()
            .flat_map(|term| term.match_fields.iter().flatten());
        let tie = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
        match tie.values.as_deref() {
            Some([name]) => Some(name.as_str()),
            _ => None,
        }
    })
}

/// The count of templates, as the annotation says it.
pub(crate) fn generation(set: &DaemonSet) -> Option<i64> {
    meta::annotation(&set.metadata, GENERATION)?.parse().ok()
}

/// Whether the pod is of the present template.
pub(crate) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let counted =
        generation(set).is_some_and(|number| label(POD_GENERATION).is_some_and(|of| *of == number.to_string()));
    counted || (!hash.is_empty() && label(history::POD_LABEL).is_some_and(|of| of == hash))
}

/// A pod of the present template for that node.
pub(crate) fn pod(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pod_control::from_template(&template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(history::POD_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(POD_GENERATION.to_owned(), generation.to_string());
    }
    let mut spec = untied(set);
    let affinity = spec
        .affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default();
    // The node fits the terms of the template already: the name replaces them.
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![NodeSelectorRequirement {
                key: NODE_NAME.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            match_expressions: None,
        }],
    });
    pod.spec = Some(spec);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": { "name": "agent", "namespace": "ns", "uid": "u", "annotations": { GENERATION: "4" } },
            "spec": { "selector": {}, "template": { "metadata": { "labels": { "app": "agent" } }, "spec": spec } },
        }))
        .expect("a DaemonSet")
    }

    #[test]
    fn which_nodes() {
        let check = |spec: Value, node: Value, expected: Place| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let whole = json!({ "metadata": { "name": "n", "labels": { "zone": "a" } }, "spec": node });
            let node: Node = serde_json::from_value(whole).expect("a node");
            assert_eq!(places(&set(spec.clone()), &[&node]), [expected], "{spec} {node:?}");
        };
        let tainted = |effect: &str| json!({ "taints": [{ "key": "k", "effect": effect }] });
        check(json!({}), json!({}), Place::Wanted);
        check(json!({ "nodeSelector": { "zone": "a" } }), json!({}), Place::Wanted);
        check(json!({ "nodeSelector": { "zone": "b" } }), json!({}), Place::Unwanted);
        check(json!({ "nodeName": "other" }), json!({}), Place::Unwanted);
        check(json!({}), tainted("NoSchedule"), Place::Kept);
        check(json!({}), tainted("NoExecute"), Place::Unwanted);
        check(json!({}), tainted("PreferNoSchedule"), Place::Wanted);
        check(
            json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] }),
            tainted("NoExecute"),
            Place::Wanted,
        );
        let taint = json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
        let cordoned = json!({ "unschedulable": true, "taints": [taint] });
        check(json!({}), cordoned, Place::Wanted);
    }

    #[test]
    fn pods_are_tied_to_their_node() {
        let set = set(json!({ "containers": [], "hostNetwork": true }));
        let made = pod(&set, "abc", "n");
        assert_eq!(node_of(&made), Some("n"));
        let labels = serde_json::to_value(&made.metadata.labels).expect("JSON");
        assert_eq!(
            labels,
            json!({ "app": "agent", "controller-revision-hash": "abc", "pod-template-generation": "4" })
        );
        let tolerated = made
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.as_ref())
            .map(Vec::len);
        assert_eq!(tolerated, Some(7));
        assert!(is_updated(&set, &made, "abc") && is_updated(&set, &made, "other"));
        assert_eq!(node_of(&Pod::default()), None);
    }
}
