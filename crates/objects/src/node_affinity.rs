//! Which nodes a pod's nodeSelector and required node affinity select, and a volume's.
//!
//! Pure. Not here: what a pod prefers, which the scheduler weighs.

use std::collections::BTreeMap;

use crate::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use crate::meta;

/// Whether nodeSelector and the required node affinity of a pod fit the node.
pub fn selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let mut wanted = spec.node_selector.iter().flatten();
    if !wanted.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)) {
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
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    selector
        .node_selector_terms
        .iter()
        .any(|term| term_fits(term, node, labels))
}

/// A term without requirements selects nothing.
pub fn term_fits(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
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
