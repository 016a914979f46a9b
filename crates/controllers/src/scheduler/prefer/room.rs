//! How full nodes are, and how evenly their processors and memory are used.
//!
//! Upstream: `leastResourceScorer` (`NodeResourcesFit`) and `balancedResourceScorer` (`NodeResourcesBalancedAllocation`)
//! of processors and memory, the resources that kube-scheduler looks at by default.

use kubewright_objects::api::core::v1::Pod;

use super::{BEST, Feasible};
use crate::scheduler::cache::{self, NodeInfo};
use kubewright_objects::NodeView;
use kubewright_objects::requests::{self, Amounts};

/// The resources that count, and how many thousandths their unit has: processors are compared in thousandths, bytes
/// in whole ones.
const COUNTED: [(&str, i128); 2] = [("cpu", 1), ("memory", 1000)];

/// What nodes have of the resources that count, read once for both questions.
pub(super) struct Rooms<'a> {
    pod: &'a Pod,
    nodes: Vec<([i128; 2], &'a NodeInfo)>,
}

impl<'a> Rooms<'a> {
    pub(super) fn of(pod: &'a Pod, nodes: &[Feasible<'a>]) -> Rooms<'a> {
        let facts = |(node, taken): &Feasible<'a>| (COUNTED.map(|resource| room(node, resource)), *taken);
        Rooms {
            pod,
            nodes: nodes.iter().map(facts).collect(),
        }
    }

    /// Nodes with more room left are better. A container that asks for nothing counts as if it asked for a little.
    pub(super) fn least(&self) -> Vec<i64> {
        let assumed = cache::assumed(self.pod);
        let asked = COUNTED.map(|resource| units(&assumed, resource));
        let score = |(rooms, taken): &([i128; 2], &NodeInfo)| {
            let (mut sum, mut known) = (0_i128, 0_i128);
            for ((resource, room), asked) in COUNTED.into_iter().zip(rooms).zip(asked) {
                let used = units(&taken.assumed, resource).saturating_add(asked);
                let left = room.saturating_sub(used).max(0);
                if let Some(share) = left.saturating_mul(i128::from(BEST)).checked_div(*room) {
                    (sum, known) = (sum.saturating_add(share), known.saturating_add(1));
                }
            }
            i64::try_from(sum.checked_div(known).unwrap_or(0)).unwrap_or(BEST)
        };
        self.nodes.iter().map(score).collect()
    }

    /// Nodes where the pod makes the use of resources more even are better. Nothing for a pod that asks for none of
    /// them.
    pub(super) fn balance(&self) -> Option<Vec<i64>> {
        let requested = requests::of(self.pod);
        let asked = COUNTED.map(|resource| units(&requested, resource));
        if asked == [0, 0] {
            return None;
        }
        let score = |(rooms, taken): &([i128; 2], &NodeInfo)| {
            let (mut before, mut after) = (vec![], vec![]);
            for ((resource, room), asked) in COUNTED.into_iter().zip(rooms).zip(asked) {
                if *room != 0 {
                    let used = units(&taken.amounts, resource);
                    before.push(part(used, *room));
                    after.push(part(used.saturating_add(asked), *room));
                }
            }
            let gained = evenness(&after).saturating_sub(evenness(&before));
            BEST / 2 + (BEST / 2).saturating_add(gained) / 2
        };
        Some(self.nodes.iter().map(score).collect())
    }
}

fn room(node: &NodeView, resource: (&str, i128)) -> i128 {
    units(&node.allocatable, resource)
}

fn units(amounts: &Amounts, (name, thousandths): (&str, i128)) -> i128 {
    rounded_up(amounts.get(name).copied().unwrap_or(0), thousandths)
}

/// `Quantity.Value` rounds up.
fn rounded_up(amount: i128, thousandths: i128) -> i128 {
    let rest = i128::from(amount.rem_euclid(thousandths) > 0);
    amount.div_euclid(thousandths).saturating_add(rest)
}

fn part(used: i128, room: i128) -> f64 {
    (used as f64 / room as f64).min(1.0)
}

/// One hundred when all parts are equal, less the further they stand apart (their standard deviation).
fn evenness(parts: &[f64]) -> i64 {
    let deviation = match parts {
        [one, other] => ((one - other) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * BEST as f64) as i64
}
