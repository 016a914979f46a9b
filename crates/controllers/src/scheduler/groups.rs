//! Pods that are alike, counted together: those with the same labels, which every selector selects or leaves out
//! together, and those with the same terms of affinity, which mean the same pods. A cluster of thousands of pods has a
//! few of each.
//!
//! Pure. Invariant: a group is there as long as one of its pods is.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::Request;

use super::pod_info::{Asks, Labels, PodInfo};
use super::term::Terms;

/// How many pods of a node have the same labels in one namespace: all of them, and those that are not being deleted.
#[derive(Debug, Default)]
pub(super) struct LabelCounts(BTreeMap<(Option<Arc<str>>, Arc<Labels>), LabelCount>);

/// How many pods have the same labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelCount {
    pub(super) all: usize,
    pub(super) staying: usize,
}

impl LabelCounts {
    pub(super) fn add(&mut self, request: &Request, pod: &PodInfo) {
        let count = self
            .0
            .entry((request.namespace.clone(), pod.labels.clone()))
            .or_default();
        count.all = count.all.saturating_add(1);
        count.staying = count.staying.saturating_add(usize::from(!pod.is_deleting));
    }

    pub(super) fn remove(&mut self, request: &Request, pod: &PodInfo) {
        let key = (request.namespace.clone(), pod.labels.clone());
        let Some(count) = self.0.get_mut(&key) else { return };
        count.all = count.all.saturating_sub(1);
        count.staying = count.staying.saturating_sub(usize::from(!pod.is_deleting));
        if count.all == 0 {
            self.0.remove(&key);
        }
    }

    /// Namespace, labels and number of each group.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Arc<Labels>, LabelCount)> {
        let groups = self.0.iter();
        groups.map(|((namespace, labels), count)| (namespace.as_deref(), labels, *count))
    }
}

/// The pods that have terms of affinity.
#[derive(Debug, Default)]
pub(super) struct AffinityGroups(BTreeMap<GroupKey, AffinityGroup>);

/// A namespace, and where the shared requests of its pods are: the group keeps them, so that they stay there.
type GroupKey = (Option<Arc<str>>, usize);

/// The pods with the same terms in one namespace.
#[derive(Debug)]
pub(super) struct AffinityGroup {
    pub(super) terms: Terms,
    /// How many are on each node.
    pub(super) nodes: BTreeMap<String, usize>,
    _asks: Arc<Asks>,
}

fn key(request: &Request, pod: &PodInfo) -> GroupKey {
    (request.namespace.clone(), Arc::as_ptr(&pod.asks).addr())
}

impl AffinityGroups {
    pub(super) fn add(&mut self, request: &Request, pod: &PodInfo, node: &str) {
        let affinity = pod.asks.affinity.as_ref();
        // Affinity to nodes matters to no other pod, and is of each pod of a DaemonSet another.
        if affinity.is_none_or(|affinity| affinity.pod_affinity.is_none() && affinity.pod_anti_affinity.is_none()) {
            return;
        }
        let new = || AffinityGroup {
            terms: Terms::of(affinity),
            nodes: BTreeMap::new(),
            _asks: pod.asks.clone(),
        };
        let group = self.0.entry(key(request, pod)).or_insert_with(new);
        match group.nodes.get_mut(node) {
            Some(count) => *count = count.saturating_add(1),
            None => drop(group.nodes.insert(node.to_owned(), 1)),
        }
    }

    pub(super) fn remove(&mut self, request: &Request, pod: &PodInfo, node: &str) {
        let key = key(request, pod);
        let Some(group) = self.0.get_mut(&key) else { return };
        match group.nodes.get_mut(node) {
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            _ => drop(group.nodes.remove(node)),
        }
        if group.nodes.is_empty() {
            self.0.remove(&key);
        }
    }

    /// Namespace and group.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &AffinityGroup)> {
        let groups = self.0.iter();
        groups.map(|((namespace, _), group)| (namespace.as_deref(), group))
    }

    /// Whether the labels of namespaces matter to any of them.
    pub(super) fn asks_namespaces(&self) -> bool {
        self.0.values().any(|group| group.terms.asks_namespaces())
    }
}
