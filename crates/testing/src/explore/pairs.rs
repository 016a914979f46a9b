//! Two faults in one run: some of very many, chosen by a seed.
//!
//! One that lasts changes how the operator sees the cluster, or what it may do, and one that is sudden strikes meanwhile,
//! in the same step or the next one. Invariant: a seed is a choice, and no pair comes twice.

use std::collections::BTreeSet;

use super::fault::Fault;
use super::log::Log;
use super::order::Round;
use super::place::Place;

/// Those that last.
const LASTING: [&str; 12] = [
    "outage", "timeouts", "held", "past", "lagging", "stale", "late", "down", "slow", "missed", "touched", "paused",
];
/// Those that are sudden.
const SUDDEN: [&str; 8] = [
    "crash-after",
    "crash-before",
    "unanswered",
    "refused",
    "outage",
    "next-step",
    "deleted",
    "touched",
];
/// More than anybody plays.
const MOST: usize = 4096;

/// Chance, always the same of one seed (splitmix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number below this one, which is not 0.
    pub(super) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap_or_default()
    }
}

/// Pairs of these faults, which an undisturbed run admits.
pub(super) fn of(singles: &[(Round, Fault)], log: &Log, seed: u64) -> Vec<Fault> {
    let known = singles.iter().filter(|(round, _)| *round != Round::Rest);
    let placed: Vec<(&Fault, usize)> = known
        .map(|(_, fault)| (fault, Place::before(fault, log).unwrap_or(0)))
        .collect();
    let of = |classes: &[&str]| -> Vec<(&Fault, usize)> {
        let of_class = placed.iter().filter(|(fault, _)| classes.contains(&fault.class()));
        of_class.copied().collect()
    };
    let (lasting, sudden) = (of(&LASTING), of(&SUDDEN));
    let (mut chance, mut seen, mut pairs) = (Chance(seed), BTreeSet::new(), Vec::new());
    if lasting.is_empty() || sudden.is_empty() {
        return pairs;
    }
    for _ in 0..MOST * 16 {
        let (one, begin) = lasting[chance.below(lasting.len())];
        let (other, at) = sudden[chance.below(sudden.len())];
        let meets = at.checked_sub(begin).is_some_and(|later| later <= 1);
        if !meets || one == other || one.write().is_some_and(|write| Some(write) == other.write()) {
            continue;
        }
        let pair = Fault::Pair(Box::new([one.clone(), other.clone()]));
        if seen.insert(pair.clone()) {
            pairs.push(pair);
        }
        if pairs.len() == MOST {
            break;
        }
    }
    pairs
}
