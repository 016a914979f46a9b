//! Which pods a topology spread constraint counts, and on which nodes.

use std::cell::RefCell;
use std::sync::Arc;

use kubewright::kube::core::{Selector, SelectorExt as _};
use kubewright_objects::api::core::v1::{Node, Pod, PodSpec, TopologySpreadConstraint};

use super::cache::NodeInfo;
use super::fit;
use super::pod_info::{Labels, Neighbour};
use kubewright_objects::tolerations::tolerates;

/// The pods that a constraint of a pod counts.
pub(super) struct ConstraintSelector<'a> {
    selector: Option<Selector>,
    /// Their values are those of the pod itself (`matchLabelKeys`).
    same: Vec<(&'a String, &'a String)>,
    namespace: Option<&'a str>,
    /// The labels that were asked about last, and the answer: the pods of one template share them.
    last: RefCell<Option<(Arc<Labels>, bool)>>,
}

impl<'a> ConstraintSelector<'a> {
    pub(super) fn of(constraint: &'a TopologySpreadConstraint, pod: &'a Pod) -> ConstraintSelector<'a> {
        let own = Neighbour::of(pod);
        let keys = constraint.match_label_keys.iter().flatten();
        let selector = constraint.label_selector.clone();
        ConstraintSelector {
            selector: selector.and_then(|selector| selector.try_into().ok()),
            same: keys.filter_map(|key| Some((key, own.labels.get(key)?))).collect(),
            namespace: own.namespace,
            last: RefCell::default(),
        }
    }

    fn has_shared(&self, labels: &Arc<Labels>) -> bool {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((known, has)) if Arc::ptr_eq(known, labels) => *has,
            _ => {
                let has = self.has(labels);
                *last = Some((labels.clone(), has));
                has
            }
        }
    }

    /// Whether a pod of the namespace with these labels counts.
    pub(super) fn has(&self, labels: &Labels) -> bool {
        let selected = self.selector.as_ref().is_some_and(|selector| selector.matches(labels));
        selected && self.same.iter().all(|(key, value)| labels.get(*key) == Some(value))
    }

    /// How many of them are on a node. Those that go do not count.
    pub(super) fn on(&self, taken: &NodeInfo) -> usize {
        let groups = taken.labels.iter();
        let ours = groups.filter(|(namespace, labels, _)| *namespace == self.namespace && self.has_shared(labels));
        ours.fold(0_usize, |sum, (_, _, count)| sum.saturating_add(count.staying))
    }
}

/// Whether the pods of a node count for a constraint (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
pub(super) fn is_looked_at(constraint: &TopologySpreadConstraint, spec: &PodSpec, node: &Node) -> bool {
    let honored = constraint.node_affinity_policy.as_deref() != Some("Ignore");
    let tainted = constraint.node_taints_policy.as_deref() == Some("Honor") && !tolerated(spec, node);
    (!honored || fit::selected(spec, node)) && !tainted
}

fn tolerated(spec: &PodSpec, node: &Node) -> bool {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.all(|taint| taint.effect == "PreferNoSchedule" || tolerates(tolerations, taint))
}
