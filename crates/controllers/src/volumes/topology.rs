//! Where volumes of a class can be used: its `allowedTopologies`, and the zone of the node that one is made for.
//!
//! Pure. Upstream: `MatchTopologySelectorTerms`, and `GenerateVolumeNodeAffinity` of the provisioner of a driver whose
//! disks are of one zone. Invariant: a volume that was made for a node can be used there.

use kubewright_objects::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm, VolumeNodeAffinity,
};
use kubewright_objects::api::storage::v1::StorageClass;

use kubewright_objects::meta;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The terms of a class; one without expressions selects nothing.
fn terms(class: &StorageClass) -> impl Iterator<Item = &TopologySelectorTerm> {
    let all = class.allowed_topologies.iter().flatten();
    all.filter(|term| term.match_label_expressions.iter().flatten().next().is_some())
}

fn is_restricted(class: &StorageClass) -> bool {
    class.allowed_topologies.iter().flatten().next().is_some()
}

fn selects(term: &TopologySelectorTerm, node: &Node) -> bool {
    let mut all = term.match_label_expressions.iter().flatten();
    all.all(|one| {
        let label = meta::labels(&node.metadata).get(&one.key);
        label.is_some_and(|label| one.values.contains(label))
    })
}

/// Whether volumes of the class are made for a node.
pub(crate) fn serves(class: &StorageClass, node: &Node) -> bool {
    !is_restricted(class) || terms(class).any(|term| selects(term, node))
}

/// The nodes that can use a new volume of the class, made for a node or, without one, for any; `None`: all.
pub(super) fn of(class: &StorageClass, node: Option<&Node>) -> Option<VolumeNodeAffinity> {
    let value = |key: &str| meta::labels(&node?.metadata).get(key).cloned();
    let parts: Vec<(String, String)> = match node {
        Some(node) if is_restricted(class) => {
            let term = terms(class).find(|term| selects(term, node))?;
            let keys = term.match_label_expressions.iter().flatten().map(|one| one.key.clone());
            keys.filter_map(|key| Some((key.clone(), value(&key)?))).collect()
        }
        Some(_) => value(ZONE).map(|zone| (ZONE.to_owned(), zone)).into_iter().collect(),
        None => {
            let all = terms(class).next()?.match_label_expressions.iter().flatten();
            all.filter_map(|one| Some((one.key.clone(), one.values.first()?.clone())))
                .collect()
        }
    };
    let requirements = parts.into_iter().map(|(key, value)| NodeSelectorRequirement {
        key,
        operator: "In".to_owned(),
        values: Some(vec![value]),
    });
    let requirements: Vec<NodeSelectorRequirement> = requirements.collect();
    (!requirements.is_empty()).then(|| VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Some(requirements),
                match_fields: None,
            }],
        }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn where_volumes_can_be_used() {
        // Terms as `zone=a,b disk=ssd`, and what the volume is restricted to.
        let check = |allowed: &[&str], node: Option<&str>, serves_it: bool, expected: &[(&str, &str)]| {
            let term = |text: &&str| {
                let parts = text.split(' ').filter_map(|part| part.split_once('='));
                let parts: Vec<Value> = parts
                    .map(|(key, values)| json!({ "key": key, "values": values.split(',').collect::<Vec<_>>() }))
                    .collect();
                json!({ "matchLabelExpressions": parts })
            };
            let terms: Vec<Value> = allowed.iter().map(term).collect();
            let class = json!({ "provisioner": "p", "allowedTopologies": terms });
            let class: StorageClass = serde_json::from_value(class).expect("a class");
            let node = node.map(|labels| {
                let labels = labels.split(' ').filter_map(|part| part.split_once('='));
                let labels: std::collections::BTreeMap<&str, &str> = labels.collect();
                serde_json::from_value::<Node>(json!({ "metadata": { "labels": labels } })).expect("a node")
            });
            if let Some(node) = &node {
                assert_eq!(serves(&class, node), serves_it, "{allowed:?}");
            }
            let found = of(&class, node.as_ref()).and_then(|affinity| affinity.required);
            let found = found.into_iter().flat_map(|required| required.node_selector_terms);
            let found = found.flat_map(|term| term.match_expressions.into_iter().flatten());
            let found: Vec<(String, String)> = found
                .map(|one| (one.key, one.values.expect("values").join(",")))
                .collect();
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, expected, "{allowed:?}");
        };
        check(&[], None, true, &[]);
        check(&[], Some("disk=ssd"), true, &[]);
        check(&[], Some("topology.kubernetes.io/zone=a"), true, &[(ZONE, "a")]);
        check(&["zone=a,b"], Some("zone=b disk=ssd"), true, &[("zone", "b")]);
        check(&["zone=a,b"], Some("zone=c"), false, &[]);
        check(
            &["zone=a disk=hdd", "zone=a"],
            Some("zone=a disk=ssd"),
            true,
            &[("zone", "a")],
        );
        check(&["zone=a disk=hdd"], Some("zone=a disk=ssd"), false, &[]);
        check(&[""], Some("zone=a"), false, &[]);
        check(&["zone=a,b disk=ssd"], None, true, &[("zone", "a"), ("disk", "ssd")]);
    }
}
