//! Which faults are worth a run that takes seconds, and in which order.
//!
//! Of writes that are like each other, the first and the last stand for all, and so of events. What nobody heeds is
//! not disturbed: an event after which nothing is written in its step, a write that changes nothing. What is not worth
//! it comes last, for those who want all.

use std::collections::{BTreeMap, BTreeSet};

use super::super::fault::Fault;
use super::super::log::{Entry, Log, What, resource};

/// The faults that a run admits, the more promising ones first.
pub(super) fn of(log: &Log, steps: usize, elects: bool, all: bool, seed: Option<u64>) -> Vec<Fault> {
    let is_possible = |fault: &Fault| elects || !matches!(fault, Fault::Paused(_));
    let faults = Fault::all_of(log, steps).into_iter().filter(is_possible);
    let worth = Worth::of(log);
    let (mut first, mut rest): (Vec<Fault>, Vec<Fault>) = faults.partition(|fault| worth.has(fault));
    if let Some(seed) = seed {
        shuffle(&mut first, seed);
        shuffle(&mut rest, seed);
    }
    if all {
        first.append(&mut rest);
    }
    first
}

/// The numbers of writes and events that stand for those like them.
struct Worth {
    writes: BTreeSet<usize>,
    events: BTreeSet<(String, usize)>,
}

impl Worth {
    fn of(log: &Log) -> Worth {
        let mut writes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, entry) in log
            .attempts()
            .into_iter()
            .enumerate()
            .filter(|(_, entry)| entry.is_effective())
        {
            writes.entry(alike(entry)).or_default().push(at + 1);
        }
        let mut heard: BTreeMap<String, usize> = BTreeMap::new();
        let mut events: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
        for (at, entry) in log.entries.iter().enumerate() {
            let What::Event(kind) = &entry.what else { continue };
            let of = resource(&entry.call);
            let number = heard.entry(of.clone()).or_default();
            *number += 1;
            let mut later = log.entries[at..].iter().take_while(|later| later.step == entry.step);
            if later.any(Entry::is_effective) {
                let alike = format!("{kind} {}", alike(entry));
                events.entry(alike).or_default().push((of, *number));
            }
        }
        let ends = |numbers: Vec<usize>| [numbers[0], numbers[numbers.len() - 1]];
        let ends_of_events = |all: Vec<(String, usize)>| [all[0].clone(), all[all.len() - 1].clone()];
        Worth {
            writes: writes.into_values().flat_map(ends).collect(),
            events: events.into_values().flat_map(ends_of_events).collect(),
        }
    }

    fn has(&self, fault: &Fault) -> bool {
        match fault {
            Fault::Held { resource, event } | Fault::Missed { resource, event } | Fault::Cut { resource, event } => {
                self.events.contains(&(resource.clone(), *event))
            }
            // The end of one step, and the beginning of all.
            Fault::Stale { after, sees } => sees + 1 == *after || *sees == 0,
            other => other.write().is_none_or(|write| self.writes.contains(&write)),
        }
    }
}

/// What writes or events have in common that are like each other.
fn alike(entry: &Entry) -> String {
    let call = &entry.call;
    format!("{} {} {} {}", entry.step, call.verb, resource(call), call.subresource)
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

    use super::*;
    use crate::intercept::Call;

    fn log() -> Log {
        let entry = |step, verb: &str, what| Entry {
            at: Duration::ZERO,
            step,
            process: 1,
            what,
            call: Call {
                verb: verb.to_owned(),
                resource: "pods".to_owned(),
                ..Call::default()
            },
        };
        let write = |effective| What::Write {
            code: Some(200),
            effective,
        };
        let event = || What::Event("MODIFIED".to_owned());
        let mut entries = vec![entry(1, "watch", event())];
        entries.extend((0..5).map(|_| entry(1, "create", write(true))));
        entries.push(entry(1, "update", write(false)));
        entries.push(entry(1, "watch", event()));
        Log { entries }
    }

    #[test]
    fn the_first_and_the_last_of_a_kind_stand_for_all() {
        let names = |all| -> Vec<String> { of(&log(), 1, false, all, None).iter().map(Fault::to_string).collect() };
        let (some, all) = (names(false), names(true));
        for (name, is_worth_it) in [
            ("crash-after@1", true),
            ("crash-after@5", true),
            ("crash-after@3", false),
            ("crash-after@6", false),
            ("held@pods#1", true),
            ("held@pods#2", false),
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
        let of = |seed| of(&log(), 1, false, false, Some(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
