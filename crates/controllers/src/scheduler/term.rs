//! The terms of affinity and anti-affinity between pods, with their selectors parsed (`framework.AffinityTerm`).
//!
//! Pure. A pod's terms are asked about every other pod, so they are parsed once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright::kube::core::{Selector, SelectorExt as _};
use kubewright_objects::api::core::v1::{Affinity, Pod, PodAffinityTerm, WeightedPodAffinityTerm};

use super::pod_info::{Labels, Neighbour};

/// The labels of namespaces by name.
pub(super) type Namespaces = BTreeMap<String, Labels>;

/// The weight of a pod that requires another near it (`hardPodAffinityWeight`).
const REQUIRED: i64 = 1;

/// A term of affinity.
#[derive(Debug)]
pub(super) struct Term {
    /// The label of nodes whose value says what is near.
    pub(super) key: String,
    /// A selector that is missing, or cannot be read, selects nothing.
    selector: Option<Selector>,
    namespaces: Vec<String>,
    /// Whether there is one, and what it selects.
    namespace_selector: Option<Option<Selector>>,
}

fn parsed(selector: &LabelSelector) -> Option<Selector> {
    selector.clone().try_into().ok()
}

impl Term {
    fn of(term: &PodAffinityTerm) -> Term {
        Term {
            key: term.topology_key.clone(),
            selector: term.label_selector.as_ref().and_then(parsed),
            namespaces: term.namespaces.clone().unwrap_or_default(),
            namespace_selector: term.namespace_selector.as_ref().map(parsed),
        }
    }

    /// Whether the term of a pod in the namespace `of` means pods with these labels in the namespace `there`.
    pub(super) fn means(
        &self,
        of: Option<&str>,
        there: Option<&str>,
        labels: &Labels,
        namespaces: &Namespaces,
    ) -> bool {
        self.reaches(of, there, namespaces) && self.selects(labels)
    }

    fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    fn reaches(&self, of: Option<&str>, there: Option<&str>, namespaces: &Namespaces) -> bool {
        let (Some(selector), name) = (&self.namespace_selector, there.unwrap_or_default()) else {
            return match self.namespaces.is_empty() {
                true => of == there,
                false => self.namespaces.iter().any(|named| Some(named.as_str()) == there),
            };
        };
        let none = Labels::new();
        let labels = namespaces.get(name).unwrap_or(&none);
        let selected = selector.as_ref().is_some_and(|selector| selector.matches(labels));
        selected || self.namespaces.iter().any(|named| named == name)
    }

    /// Whether the labels of namespaces matter.
    pub(super) fn asks_namespaces(&self) -> bool {
        self.namespace_selector.is_some()
    }
}

/// The terms of a pod.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// The pods that it requires near it.
    pub(super) wanted: Vec<Term>,
    /// The pods that it cannot have near it.
    pub(super) unwanted: Vec<Term>,
    /// The pods that it likes near it, with how much; below zero those that it dislikes.
    pub(super) liked: Vec<(Term, i64)>,
}

impl Terms {
    pub(super) fn of(affinity: Option<&Affinity>) -> Terms {
        let Some(affinity) = affinity else {
            return Terms::default();
        };
        let near = affinity.pod_affinity.as_ref();
        let far = affinity.pod_anti_affinity.as_ref();
        let all = |terms: Option<&Vec<PodAffinityTerm>>| terms.into_iter().flatten().map(Term::of).collect();
        let weighted = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| -> Vec<(Term, i64)> {
            let terms = terms.into_iter().flatten();
            terms
                .map(|one| (Term::of(&one.pod_affinity_term), sign * i64::from(one.weight)))
                .collect()
        };
        let near_preferred = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
        let far_preferred = far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref());
        let mut liked = weighted(near_preferred, 1);
        liked.extend(weighted(far_preferred, -1));
        Terms {
            wanted: all(near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref())),
            unwanted: all(far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref())),
            liked,
        }
    }

    pub(super) fn of_pod(pod: &Pod) -> Terms {
        Terms::of(Neighbour::of(pod).affinity)
    }

    /// Whether the labels of namespaces matter.
    pub(super) fn asks_namespaces(&self) -> bool {
        let liked = self.liked.iter().map(|(term, _)| term);
        let mut all = self.wanted.iter().chain(&self.unwanted).chain(liked);
        all.any(Term::asks_namespaces)
    }

    /// What it is worth to this pod, which has its place, that others are near: what it requires counts as well.
    pub(super) fn worths(&self) -> impl Iterator<Item = (&Term, i64)> {
        let liked = self.liked.iter().map(|(term, weight)| (term, *weight));
        liked.chain(self.wanted.iter().map(|term| (term, REQUIRED)))
    }
}

/// A term that is asked about the pods of many nodes, which share their labels.
pub(super) struct Asked<'a> {
    pub(super) term: &'a Term,
    /// The answers, by where the labels are. They stay there as long as the pods do.
    known: RefCell<BTreeMap<usize, bool>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(term: &'a Term) -> Asked<'a> {
        Asked {
            term,
            known: RefCell::default(),
        }
    }

    /// As [`Term::means`].
    pub(super) fn means(
        &self,
        of: Option<&str>,
        there: Option<&str>,
        labels: &Arc<Labels>,
        namespaces: &Namespaces,
    ) -> bool {
        let address = Arc::as_ptr(labels).addr();
        self.term.reaches(of, there, namespaces)
            && *self
                .known
                .borrow_mut()
                .entry(address)
                .or_insert_with(|| self.term.selects(labels))
    }
}
