//! What kube-scheduler 1.36 says of clusters that were made at random: every plugin's score of every node that would do.

use std::collections::BTreeMap;

use kubewright::View as _;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::core::v1::{Node, Service};
use serde::Deserialize;

use super::*;
use crate::scheduler::default_selector;

const CASES: &str = include_str!("../../../testdata/scheduler-scores.json");

#[derive(Deserialize)]
struct Case {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    services: Vec<Service>,
    /// The selector of the pod's controller, if it is of a kind that spreads its pods.
    selector: Option<LabelSelector>,
    pod: Pod,
    /// Node, plugin, score with the plugin's weight.
    scores: BTreeMap<String, BTreeMap<String, i64>>,
}

/// The scores by plugin and node, less the least of each plugin: a plugin that is skipped says as much as one that says
/// the same of all nodes.
fn relative(scores: impl IntoIterator<Item = (String, Vec<i64>)>) -> BTreeMap<String, Vec<i64>> {
    let relative = scores.into_iter().map(|(plugin, scores)| {
        let least = scores.iter().copied().min().unwrap_or(0);
        (plugin, scores.iter().map(|score| score - least).collect::<Vec<i64>>())
    });
    relative
        .filter(|(_, scores)| scores.iter().any(|score| *score > 0))
        .collect()
}

fn check(number: usize, case: &Case) {
    let mut cache = Cache::default();
    for pod in &case.pods {
        cache.enter(pod);
    }
    let nodes: Vec<NodeView> = case.nodes.iter().map(NodeView::of).collect();
    let all: Vec<&NodeView> = nodes.iter().collect();
    let fitting = all.iter().filter(|node| case.scores.contains_key(node.name()));
    let fitting: Vec<Feasible<'_>> = fitting.map(|node| (*node, cache.on(node.name()))).collect();
    let default_selector = default_selector::selector(&case.pod, &case.services, case.selector.clone());
    let choice = Choice {
        pod: &case.pod,
        default_selector: default_selector.as_ref(),
        nodes: &fitting,
        all: &all,
        cache: &cache,
        namespaces: &Namespaces::new(),
        volumes: None,
    };
    let found = choice.answers().into_iter().filter_map(|answer| {
        let scores = answer.scores?.iter().map(|score| score * answer.weight).collect();
        Some((answer.plugin.to_owned(), scores))
    });
    let mut recorded: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (node, _) in &fitting {
        for (plugin, score) in &case.scores[node.name()] {
            recorded.entry(plugin.clone()).or_default().push(*score);
        }
    }
    let names: Vec<&str> = fitting.iter().map(|(node, _)| node.name()).collect();
    assert_eq!(relative(found), relative(recorded), "case {number} of {names:?}");
}

#[test]
fn nodes_are_preferred_as_by_kube_scheduler() {
    let cases: Vec<Case> = serde_json::from_str(CASES).expect("recorded cases");
    assert!(cases.len() >= 100, "{}", cases.len());
    for (number, case) in cases.iter().enumerate() {
        check(number, case);
    }
}
