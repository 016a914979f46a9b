//! Spreading pods over nodes and zones: as the pod wishes (`topologySpreadConstraints` with `ScheduleAnyway`), or as
//! kube-scheduler wishes for pods that belong together (`podtopologyspread`, `systemDefaultConstraints`).

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::core::v1::{Pod, PodSpec, TopologySpreadConstraint};

use super::{BEST, Choice, share};
use crate::scheduler::cache::{Cache, NodeInfo};
use crate::scheduler::constraint::{ConstraintSelector, is_looked_at};
use kubewright_objects::NodeView;
use kubewright_objects::node::{HOSTNAME, ZONE};

/// Where fewer of the selected pods are is better.
pub(super) fn scores(choice: &Choice<'_>, spec: &PodSpec) -> Option<Vec<i64>> {
    let Choice {
        pod,
        default_selector,
        nodes,
        all,
        cache,
        ..
    } = *choice;
    let own = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    // A node without a zone is spread over by its name all the same, unless the pod says how it is to be spread.
    let needs_all = !own.is_empty();
    let constraints: Vec<TopologySpreadConstraint> = match needs_all {
        true => own
            .iter()
            .filter(|one| one.when_unsatisfiable == "ScheduleAnyway")
            .cloned()
            .collect(),
        false => [(HOSTNAME, 3), (ZONE, 5)]
            .map(|(key, skew)| default(key, skew, default_selector))
            .into(),
    };
    if constraints.is_empty() || !needs_all && default_selector.is_none() {
        return None;
    }
    let counts = |node: &NodeView| !needs_all || constraints.iter().all(|one| node.label(&one.topology_key).is_some());
    let of_nodes = nodes.iter().map(|(node, _)| *node);
    let counted: Vec<&NodeView> = of_nodes.clone().filter(|node| counts(node)).collect();
    let mut raw: Vec<Option<f64>> = of_nodes.map(|node| counts(node).then_some(0.0)).collect();
    for constraint in &constraints {
        let domains = Domains::of(constraint, pod, &counted);
        let domains = domains.filled(spec, all.iter().copied().filter(|node| counts(node)), cache);
        for ((node, taken), score) in nodes.iter().zip(&mut raw) {
            if let (Some(score), Some(worth)) = (score, domains.worth(node, taken)) {
                *score += worth;
            }
        }
    }
    Some(normalized(&raw))
}

fn default(key: &str, skew: i32, default_selector: Option<&LabelSelector>) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew: skew,
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: default_selector.cloned(),
        ..TopologySpreadConstraint::default()
    }
}

/// How many of the selected pods are in each domain of a constraint.
struct Domains<'a> {
    constraint: &'a TopologySpreadConstraint,
    selector: ConstraintSelector<'a>,
    /// By the value of the label, or by none. A node alone is counted when it is asked about.
    counts: BTreeMap<Option<&'a str>, usize>,
    /// Of few domains each pod counts less (`topologyNormalizingWeight`).
    weight: f64,
}

impl<'a> Domains<'a> {
    fn of(constraint: &'a TopologySpreadConstraint, pod: &'a Pod, nodes: &[&'a NodeView]) -> Domains<'a> {
        let is_node = constraint.topology_key == HOSTNAME;
        let values = nodes.iter().filter(|_| !is_node);
        let counts: BTreeMap<_, _> = values.map(|node| (node.label(&constraint.topology_key), 0)).collect();
        let size = if is_node { nodes.len() } else { counts.len() };
        Domains {
            constraint,
            selector: ConstraintSelector::of(constraint, pod),
            counts,
            weight: (size as f64 + 2.0).ln(),
        }
    }

    fn filled(mut self, spec: &PodSpec, nodes: impl Iterator<Item = &'a NodeView>, cache: &Cache) -> Domains<'a> {
        for node in nodes {
            // A node without the label is given nothing for it, so what is there need not be known.
            let domain = node.label(&self.constraint.topology_key);
            let count = domain.and_then(|_| self.counts.get_mut(&domain));
            if let Some(count) = count.filter(|_| is_looked_at(self.constraint, spec, &node.node)) {
                *count = count.saturating_add(self.selector.on(cache.on(node.name())));
            }
        }
        self
    }

    /// Nothing for a node without the label.
    fn worth(&self, node: &NodeView, taken: &NodeInfo) -> Option<f64> {
        let domain = node.label(&self.constraint.topology_key)?;
        let count = match self.counts.get(&Some(domain)) {
            Some(count) => *count,
            None => self.selector.on(taken),
        };
        Some(count as f64 * self.weight + f64::from(self.constraint.max_skew.saturating_sub(1)))
    }
}

/// From 0, where most are and on nodes that do not count, to 100 (`NormalizeScore`).
fn normalized(raw: &[Option<f64>]) -> Vec<i64> {
    let rounded = raw.iter().map(|score| score.map(|score| score.round() as i64));
    let rounded: Vec<Option<i64>> = rounded.collect();
    let least = rounded.iter().flatten().copied().min().unwrap_or(0);
    let most = rounded.iter().flatten().copied().max().unwrap_or(0);
    let normal = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => BEST,
        Some(score) => share(most.saturating_add(least).saturating_sub(*score), most),
    };
    rounded.iter().map(normal).collect()
}
