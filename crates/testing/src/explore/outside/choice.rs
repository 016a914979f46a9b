//! Which faults are worth a run that takes seconds, and in which order.
//!
//! What is like another fault comes last, for those who want all, and so does what only costs time: a paused process of
//! an operator of which one is there in any case.

use super::super::fault::Fault;
use super::super::order::{self, Round};
use super::super::play::Run;
use super::super::steps::Step;

/// The faults that a run admits, the more promising ones first.
pub(super) fn of(run: &Run, steps: &[Step], elects: bool, all: bool, seed: Option<u64>) -> Vec<Fault> {
    let children: Vec<usize> = run.children.iter().map(Vec::len).collect();
    let is_possible = |fault: &Fault| elects || !matches!(fault, Fault::Paused(_));
    let faults = order::of(&run.log, steps, &children).into_iter();
    let faults = faults.filter(|(_, fault)| is_possible(fault));
    let (first, rest): (Vec<_>, Vec<_>) = faults.partition(|(round, _)| *round != Round::Rest);
    let plain = |faults: Vec<(Round, Fault)>| faults.into_iter().map(|(_, fault)| fault).collect::<Vec<_>>();
    let (mut first, mut rest) = (plain(first), plain(rest));
    if let Some(seed) = seed {
        shuffle(&mut first, seed);
        shuffle(&mut rest, seed);
    }
    if all {
        first.append(&mut rest);
    }
    first
}

/// Another order, always the same of one number.
fn shuffle(faults: &mut [Fault], seed: u64) {
    let mut state = seed;
    let mut next = |below: usize| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap_or_default()
    };
    for at in (1..faults.len()).rev() {
        faults.swap(at, next(at + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::log::{Entry, Log, What};
    use super::*;
    use crate::intercept::Call;

    fn run() -> Run {
        let write = |number| Entry {
            at: Duration::ZERO,
            step: 1,
            process: 1,
            what: What::Write {
                code: Some(200),
                effective: true,
            },
            call: Call {
                verb: "create".to_owned(),
                resource: "pods".to_owned(),
                name: format!("db-{number}"),
                ..Call::default()
            },
        };
        Run {
            log: Log {
                entries: (0..5).map(write).collect(),
            },
            ..Run::default()
        }
    }

    #[test]
    fn what_is_like_another_fault_is_for_those_who_want_all() {
        let names = |all| -> Vec<String> { of(&run(), &[], false, all, None).iter().map(Fault::to_string).collect() };
        let (some, all) = (names(false), names(true));
        for (name, is_worth_it) in [
            ("crash-after@1", true),
            ("crash-after@5", true),
            ("crash-after@3", false),
        ] {
            assert_eq!(some.iter().any(|fault| fault == name), is_worth_it, "{name}: {some:?}");
            assert!(all.iter().any(|fault| fault == name), "{name}: {all:?}");
        }
        assert_eq!(all[..some.len()], some);
        assert!(
            !all.iter().any(|name| name.starts_with("paused")),
            "nobody holds a Lease"
        );
    }

    #[test]
    fn a_seed_is_an_order() {
        let of = |seed| of(&run(), &[], false, false, Some(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
