//! How full nodes are, and how evenly their processors and memory are used.
//!
//! Upstream: `leastResourceScorer` (`NodeResourcesFit`) and `balancedResourceScorer` (`NodeResourcesBalancedAllocation`)
//! of processors and memory, the resources that kube-scheduler looks at by default.

use kubewright::k8s_openapi::api::core::v1::{Node, Pod};

use super::BEST;
use crate::controllers::scheduler::ledger::{self, Amounts, Ledger, allocatable};
use crate::objects::meta;

/// The resources that count, and how many thousandths their unit has: processors are compared in thousandths, bytes
/// in whole ones.
const COUNTED: [(&str, i128); 2] = [("cpu", 1), ("memory", 1000)];

/// Nodes with more room left are better. A container that asks for nothing counts as if it asked for a little.
pub(super) fn least(pod: &Pod, nodes: &[&Node], ledger: &Ledger) -> Vec<i64> {
    let asked = ledger::assumed(pod);
    let score = |node: &&Node| {
        let there = ledger.on(meta::name(&node.metadata)).map(|taken| &taken.assumed);
        let shares = COUNTED.map(|resource| {
            let room = room(node, resource);
            let used = units(there, resource).saturating_add(units(Some(&asked), resource));
            let left = room.saturating_sub(used).max(0);
            left.saturating_mul(i128::from(BEST)).checked_div(room)
        });
        let known: Vec<i128> = shares.into_iter().flatten().collect();
        let sum = known.iter().fold(0_i128, |sum, share| sum.saturating_add(*share));
        let mean = sum.checked_div(known.len() as i128).unwrap_or(0);
        i64::try_from(mean).unwrap_or(BEST)
    };
    nodes.iter().map(score).collect()
}

/// Nodes where the pod makes the use of resources more even are better. Nothing for a pod that asks for none of them.
pub(super) fn balance(pod: &Pod, nodes: &[&Node], ledger: &Ledger) -> Option<Vec<i64>> {
    let asked = ledger::requests(pod);
    if COUNTED.iter().all(|resource| units(Some(&asked), *resource) == 0) {
        return None;
    }
    let score = |node: &&Node| {
        let there = ledger.on(meta::name(&node.metadata)).map(|taken| &taken.amounts);
        let (mut before, mut after) = (vec![], vec![]);
        for resource in COUNTED {
            let room = room(node, resource);
            if room != 0 {
                let used = units(there, resource);
                before.push(part(used, room));
                after.push(part(used.saturating_add(units(Some(&asked), resource)), room));
            }
        }
        let gained = evenness(&after).saturating_sub(evenness(&before));
        BEST / 2 + (BEST / 2).saturating_add(gained) / 2
    };
    Some(nodes.iter().map(score).collect())
}

fn room(node: &Node, (name, thousandths): (&str, i128)) -> i128 {
    rounded_up(allocatable(node, name), thousandths)
}

fn units(amounts: Option<&Amounts>, (name, thousandths): (&str, i128)) -> i128 {
    let amount = amounts.and_then(|amounts| amounts.get(name));
    rounded_up(amount.copied().unwrap_or(0), thousandths)
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
