//! Which faults are worth a run that takes seconds, and in which order.
//!
//! What is like another fault comes last, for those who want all, and so does what only costs time: a paused process of
//! an operator of which one is there in any case.

use super::super::fault::Fault;
use super::super::order::{self, Known, Round};
use super::super::pairs::{self, Chance};
use super::super::play::Run;
use super::super::steps::Step;

/// Which faults are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// Also those that are like others.
    pub(super) all: bool,
    /// Also pairs.
    pub(super) pairs: bool,
    /// In an order of this number's.
    pub(super) seed: Option<u64>,
}

/// The faults that a run admits, the more promising ones first.
pub(super) fn of(run: &Run, steps: &[Step], elects: bool, wish: Wish) -> Vec<Fault> {
    let children: Vec<usize> = run.children.iter().map(Vec::len).collect();
    let is_possible = |fault: &Fault| match fault {
        Fault::Paused(_) => elects,
        // It takes a state of which nothing is known from outside.
        Fault::DeleteEarly(_) => false,
        _ => true,
    };
    let known = Known {
        log: &run.log,
        steps,
        children: &children,
        ends: &run.ends,
    };
    let mut faults = order::of(&known);
    faults.retain(|(_, fault)| is_possible(fault));
    let pairs = match wish.pairs {
        true => pairs::of(&faults, &run.log, wish.seed.unwrap_or_default()),
        false => Vec::new(),
    };
    let (first, rest): (Vec<_>, Vec<_>) = faults.into_iter().partition(|(round, _)| *round != Round::Rest);
    let plain = |faults: Vec<(Round, Fault)>| faults.into_iter().map(|(_, fault)| fault).collect::<Vec<_>>();
    let (mut first, mut rest) = (plain(first), plain(rest));
    if let Some(seed) = wish.seed {
        shuffle(&mut first, seed);
        shuffle(&mut rest, seed);
    }
    first.extend(pairs);
    if wish.all {
        first.append(&mut rest);
    }
    first
}

/// Another order, always the same of one number.
fn shuffle(faults: &mut [Fault], seed: u64) {
    let mut chance = Chance(seed);
    for at in (1..faults.len()).rev() {
        faults.swap(at, chance.below(at + 1));
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
                revision: None,
                lacks: None,
            },
            call: Call {
                verb: "create".to_owned(),
                resource: "pods".to_owned(),
                name: format!("db-{number}"),
                ..Call::default()
            },
            ..Entry::default()
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
        let names = |all| -> Vec<String> {
            let wish = Wish { all, ..Wish::default() };
            of(&run(), &[], false, wish).iter().map(Fault::to_string).collect()
        };
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
        let of = |seed| {
            let wish = Wish {
                seed: Some(seed),
                ..Wish::default()
            };
            of(&run(), &[], false, wish)
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
