//! Preferred affinity and anti-affinity between pods: those of the pod, and those of the pods that are there
//! (`interpodaffinity`).

use std::collections::BTreeMap;

use super::{Choice, Feasible, share};
use crate::scheduler::pod_info::{Labels, Neighbour};
use crate::scheduler::term::{Asked, Terms};
use kubewright_objects::meta;

/// What nodes are worth, by a label and its value.
#[derive(Default)]
struct Worths<'a>(BTreeMap<&'a str, BTreeMap<&'a str, i64>>);

impl<'a> Worths<'a> {
    fn add(&mut self, key: &'a str, labels: &'a Labels, worth: i64) {
        if let Some(value) = labels.get(key) {
            *self.0.entry(key).or_default().entry(value).or_default() += worth;
        }
    }

    fn of(&self, labels: &Labels) -> i64 {
        let worths = self
            .0
            .iter()
            .filter_map(|(key, worths)| worths.get(labels.get(*key)?.as_str()));
        worths.sum()
    }
}

/// How much a pod wants to be near those of each node, and they near it.
pub(super) fn scores(choice: &Choice<'_>) -> Option<Vec<i64>> {
    let Choice {
        nodes,
        all,
        cache,
        namespaces,
        ..
    } = *choice;
    let (pod, terms) = (Neighbour::of(choice.pod), Terms::of_pod(choice.pod));
    let own: Vec<(Asked<'_>, i64)> = terms
        .liked
        .iter()
        .map(|(term, weight)| (Asked::new(term), *weight))
        .collect();
    let mut worths = Worths::default();
    for node in all.iter().filter(|_| !own.is_empty()) {
        let labels = meta::labels(&node.node.metadata);
        for (namespace, of_pods, count) in cache.on(node.name()).labels.iter() {
            let count = i64::try_from(count.all).unwrap_or(i64::MAX);
            for (asked, weight) in &own {
                if asked.means(pod.namespace, namespace, of_pods, namespaces) {
                    worths.add(&asked.term.key, labels, weight.saturating_mul(count));
                }
            }
        }
    }
    for (namespace, group) in cache.affinity.iter() {
        let worth = group.terms.worths();
        let meant = worth.filter(|(term, _)| term.means(namespace, pod.namespace, pod.labels, namespaces));
        for (term, weight) in meant {
            for node in all {
                if let Some(count) = group.nodes.get(node.name()) {
                    let count = i64::try_from(*count).unwrap_or(i64::MAX);
                    worths.add(
                        &term.key,
                        meta::labels(&node.node.metadata),
                        weight.saturating_mul(count),
                    );
                }
            }
        }
    }
    let worth = |(node, _): &Feasible<'_>| worths.of(meta::labels(&node.node.metadata));
    let worths: Vec<i64> = nodes.iter().map(worth).collect();
    let (least, most) = (worths.iter().copied().min()?, worths.iter().copied().max()?);
    (most > least).then(|| worths.iter().map(|worth| share(worth - least, most - least)).collect())
}
