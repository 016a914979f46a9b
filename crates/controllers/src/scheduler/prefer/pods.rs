//! Preferred affinity and anti-affinity between pods: those of the pod, and those of the pods that are there
//! (`interpodaffinity`).

use std::collections::BTreeMap;

use kubewright_objects::api::core::v1::{Affinity, Node, Pod, PodAffinityTerm};

use super::{Choice, share};
use crate::scheduler::neighbours;
use crate::scheduler::pod_info::Neighbour;
use kubewright_objects::meta;

/// The weight of a pod that requires this one near it (`hardPodAffinityWeight`).
const REQUIRED: i64 = 1;

/// The preferred terms of affinity and anti-affinity, with their weights.
fn wishes(affinity: &Affinity) -> Vec<(&PodAffinityTerm, i64)> {
    let liked = affinity.pod_affinity.iter();
    let liked = liked.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let disliked = affinity.pod_anti_affinity.iter();
    let disliked = disliked.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let liked = liked.map(|one| (&one.pod_affinity_term, i64::from(one.weight)));
    liked
        .chain(disliked.map(|one| (&one.pod_affinity_term, -i64::from(one.weight))))
        .collect()
}

fn wishes_of(affinity: Option<&Affinity>) -> Vec<(&PodAffinityTerm, i64)> {
    affinity.map(wishes).unwrap_or_default()
}

/// Whether a pod with this affinity matters to others because it wants them near it or not.
pub(in super::super) fn is_choosy(affinity: Option<&Affinity>) -> bool {
    !wishes_of(affinity).is_empty() || !neighbours::wanted(affinity).is_empty()
}

/// Whether the labels of namespaces matter for a pod's preferences.
pub(in super::super) fn asks_namespaces(pod: &Pod) -> bool {
    let mut wishes = wishes_of(Neighbour::of(pod).affinity).into_iter();
    wishes.any(|(term, _)| term.namespace_selector.is_some())
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
    let pod = Neighbour::of(choice.pod);
    let own = wishes_of(pod.affinity);
    if own.is_empty() && !cache.has_choosy() {
        return None;
    }
    let mut worths: BTreeMap<(&str, String), i64> = BTreeMap::new();
    for node in all {
        let labels = meta::labels(&node.metadata);
        let there = cache.on(meta::name(&node.metadata)).into_iter();
        for (request, other) in there.flat_map(|taken| &taken.pods) {
            let other = other.beside(request.namespace());
            let theirs = wishes_of(other.affinity);
            let required = neighbours::wanted(other.affinity).iter();
            let ours = own
                .iter()
                .filter(|(term, _)| neighbours::means(term, pod, other, namespaces));
            let theirs = theirs.into_iter().chain(required.map(|term| (term, REQUIRED)));
            let theirs = theirs.filter(|(term, _)| neighbours::means(term, other, pod, namespaces));
            for (term, weight) in ours.copied().chain(theirs) {
                if let Some(value) = labels.get(&term.topology_key) {
                    *worths.entry((term.topology_key.as_str(), value.clone())).or_default() += weight;
                }
            }
        }
    }
    let worth = |node: &&Node| {
        let labels = meta::labels(&node.metadata);
        let here = labels.iter().map(|(key, value)| (key.as_str(), value.clone()));
        here.filter_map(|pair| worths.get(&pair)).sum()
    };
    let worths: Vec<i64> = nodes.iter().map(worth).collect();
    let (least, most) = (worths.iter().copied().min()?, worths.iter().copied().max()?);
    (most > least).then(|| worths.iter().map(|worth| share(worth - least, most - least)).collect())
}
