//! The fewest steps of the workload that show a finding.
//!
//! Steps are left out, half of them at first and single ones at the end, as long as the rest shows the same finding
//! (delta debugging, Zeller and Hildebrandt, 2002). A step keeps its number, so that a finding is called as before.
//! Invariants: what is left shows the finding in a run from the beginning; each of the steps that are left is needed,
//! unless the tries came to an end. Not here: how a try is played (`mod.rs`, `outside/shrunk.rs`).

use std::fmt;
use std::str::FromStr;

use super::fault::Fault;
use super::log::{Entry, Log, Made};
use super::may_start_anew;
use super::order::{alike, site};
use super::place::Place;
use super::play::Run;
use super::steps::Step;

/// What is played again: a fault or none, in the whole workload or in some of its steps. Its name is that of the fault,
/// and the steps: `crash-after@1/1,3`, `undisturbed/2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) fault: Option<Fault>,
    /// The steps that are made, from 1; `None` for all.
    pub(super) steps: Option<Vec<usize>>,
}

const UNDISTURBED: &str = "undisturbed";

impl Schedule {
    /// The workload without the steps that are not made.
    ///
    /// # Errors
    /// When it has fewer steps, in words.
    pub(super) fn of(&self, steps: &[Step]) -> Result<Vec<Step>, String> {
        let Some(kept) = &self.steps else {
            return Ok(steps.to_vec());
        };
        match kept.iter().find(|step| **step > steps.len()) {
            Some(step) => Err(format!(
                "{self} names step {step}, and the workload has {} steps",
                steps.len()
            )),
            None => Ok(with(kept, steps)),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Some(fault) => write!(f, "{fault}")?,
            None => f.write_str(UNDISTURBED)?,
        }
        match &self.steps {
            Some(steps) => {
                let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
                write!(f, "/{}", steps.join(","))
            }
            None => Ok(()),
        }
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let (fault, steps) = match text.split_once('/') {
            Some((fault, steps)) => (fault, Some(steps)),
            None => (text, None),
        };
        let number = |text: &str| text.parse().ok().filter(|step| *step > 0);
        let read = |steps: &str| steps.split(',').map(number).collect::<Option<Vec<usize>>>();
        let steps = steps.map(|steps| {
            read(steps).ok_or_else(|| format!("{text:?} names no steps after the \"/\": write crash-after@1/1,3"))
        });
        Ok(Schedule {
            fault: (fault != UNDISTURBED).then(|| fault.parse()).transpose()?,
            steps: steps.transpose()?,
        })
    }
}

/// The workload of which only these steps are made.
pub(super) fn with(kept: &[usize], steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    for (at, step) in steps.iter_mut().enumerate() {
        step.is_left_out |= !kept.contains(&(at + 1));
    }
    steps
}

/// The steps of a workload that are made; `None` for all.
pub(super) fn made(steps: &[Step]) -> Option<Vec<usize>> {
    let made = steps.iter().enumerate().filter(|(_, step)| !step.is_left_out);
    let made: Vec<usize> = made.map(|(at, _)| at + 1).collect();
    (made.len() < steps.len()).then_some(made)
}

/// The steps that are likely enough: those that create what the user begins with, and those at which the fault strikes.
pub(super) fn likely(fault: Option<&Fault>, log: &Log, steps: &[Step]) -> Vec<usize> {
    let Some(fault) = fault else { return Vec::new() };
    let mut likely: Vec<usize> = (1..=steps.len()).take_while(|step| steps[step - 1].creates()).collect();
    for part in fault.parts() {
        match part {
            Fault::Stale { after, sees } => likely.extend([*after, *sees]),
            Fault::Past { after, .. } | Fault::Deleted { after, .. } => likely.push(*after),
            part => {
                let struck = Place::before(part, log).map_or(0, |before| before + 1);
                likely.push(struck);
                if may_start_anew(part) || matches!(part, Fault::DeleteEarly(_)) {
                    likely.push(struck + 1);
                }
            }
        }
    }
    likely.retain(|step| (1..=steps.len()).contains(step));
    likely.sort_unstable();
    likely.dedup();
    likely
}

/// The search: it asks for workloads, and is told which of them show the finding.
pub(super) struct Shrink {
    /// Fewer steps, which are tried first; empty when they were tried.
    likely: Vec<usize>,
    /// The fewest steps so far.
    pub(super) kept: Vec<usize>,
    /// How many are left out at once.
    chunk: usize,
    /// Behind the chunk that is tried next; the last steps are tried first, since most findings show early.
    end: usize,
    has_dropped: bool,
    tries: usize,
}

impl Shrink {
    /// A search in a workload of so many steps, with so many tries at most, of which the first is this one.
    pub(super) fn new(steps: usize, tries: usize, likely: Vec<usize>) -> Shrink {
        let is_fewer = likely.len() < steps;
        Shrink {
            likely: if is_fewer { likely } else { Vec::new() },
            kept: (1..=steps).collect(),
            chunk: steps.div_ceil(2).max(1),
            end: steps,
            has_dropped: false,
            tries,
        }
    }

    /// The steps to be tried next; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Vec<usize>> {
        loop {
            if self.tries == 0 || self.kept.len() < 2 {
                return None;
            }
            if !self.likely.is_empty() {
                self.tries -= 1;
                return Some(self.likely.clone());
            }
            if self.end == 0 {
                if self.chunk == 1 && !self.has_dropped {
                    return None;
                }
                self.chunk = (self.chunk / 2).max(1);
                (self.end, self.has_dropped) = (self.kept.len(), false);
            }
            let chunk = self.begin()..self.end;
            if chunk.len() == self.kept.len() {
                self.end = 0;
                continue;
            }
            self.tries -= 1;
            let (before, after) = (&self.kept[..chunk.start], &self.kept[chunk.end..]);
            return Some([before, after].concat());
        }
    }

    /// Whether the steps that were tried show the finding.
    pub(super) fn answer(&mut self, shows: bool) {
        let likely = std::mem::take(&mut self.likely);
        if !likely.is_empty() {
            if shows {
                *self = Shrink::new(likely.len(), self.tries, Vec::new());
                self.kept = likely;
            }
            return;
        }
        let begin = self.begin();
        if shows {
            self.kept.drain(begin..self.end);
            self.has_dropped = true;
        }
        self.end = begin;
    }

    fn begin(&self) -> usize {
        self.end.saturating_sub(self.chunk)
    }
}

/// The fault of another undisturbed run, with fewer steps, that strikes where this one does; `None` when that run has no
/// such place.
pub(super) fn carried(fault: &Fault, from: &Run, to: &Run, kept: &[usize]) -> Option<Fault> {
    let carried = moved(fault, from, to)?;
    // A user who does not wait makes a next step.
    let goes_on = |step: usize| kept.last().is_some_and(|last| *last > step);
    let has_next = |part: &Fault| match part {
        Fault::NextStep(write) | Fault::Overtaken(write) | Fault::DeleteEarly(write) => to
            .log
            .attempts()
            .get(write - 1)
            .is_some_and(|write| goes_on(write.step)),
        Fault::Down { step } => kept.contains(step) && goes_on(*step),
        _ => true,
    };
    carried.parts().iter().all(has_next).then_some(carried)
}

fn moved(fault: &Fault, from: &Run, to: &Run) -> Option<Fault> {
    let event = |resource: &str, event: usize| event_of(resource, event, &from.log, &to.log);
    Some(match fault {
        Fault::Held { resource, event: at } => Fault::Held {
            resource: resource.clone(),
            event: event(resource, *at)?,
        },
        Fault::Missed { resource, event: at } => Fault::Missed {
            resource: resource.clone(),
            event: event(resource, *at)?,
        },
        Fault::Cut { resource, event: at } => Fault::Cut {
            resource: resource.clone(),
            event: event(resource, *at)?,
        },
        Fault::Past {
            after,
            resource,
            event: at,
            alone,
        } => Fault::Past {
            after: *after,
            resource: resource.clone(),
            event: event(resource, *at)?,
            alone: *alone,
        },
        Fault::Deleted { after, object } => {
            let named = |made: &Made| alike(&made.named.2);
            let all = &from.children.get(*after)?[..*object];
            let (last, before) = all.split_last()?;
            let nth = before.iter().filter(|made| named(made) == named(last)).count();
            let there = to.children.get(*after)?.iter().enumerate();
            let mut there = there.filter(|(_, made)| named(made) == named(last) && made.named.0 == last.named.0);
            Fault::Deleted {
                after: *after,
                object: there.nth(nth)?.0 + 1,
            }
        }
        Fault::Late { .. } | Fault::Stale { .. } | Fault::Down { .. } => fault.clone(),
        Fault::Pair(pair) => {
            let [one, other] = pair.as_ref();
            Fault::Pair(Box::new([moved(one, from, to)?, moved(other, from, to)?]))
        }
        at_write => at_write.at(write_of(at_write.write()?, &from.log, &to.log)?),
    })
}

/// The number of the write at the same place: in the same step, of the same site, as often as before.
fn write_of(number: usize, from: &Log, to: &Log) -> Option<usize> {
    let (all, there) = (from.attempts(), to.attempts());
    let (write, before) = all.get(..number)?.split_last()?;
    let is_there = |other: &Entry| other.step == write.step && site(other) == site(write);
    let nth = before.iter().filter(|other| is_there(other)).count();
    let mut there = there.iter().enumerate().filter(|(_, other)| is_there(other));
    Some(there.nth(nth)?.0 + 1)
}

/// The number of the event at the same place: in the same step, about the same object, as often as before. An object
/// whose name was made up has another one now; then it is the event that came as late in its step.
fn event_of(resource: &str, number: usize, from: &Log, to: &Log) -> Option<usize> {
    let places = |log: &Log| -> Vec<(usize, String)> {
        let of_kind = log.events().map(|(entry, _)| (entry.step, entry.named()));
        let of_kind = of_kind.filter(|(_, named)| named.0 == resource);
        of_kind
            .map(|(step, (_, namespace, name))| (step, format!("{namespace}/{}", alike(&name))))
            .collect()
    };
    let (all, there) = (places(from), places(to));
    let (place, before) = all.get(..number)?.split_last()?;
    let nth = |is_like: &dyn Fn(&(usize, String)) -> bool| {
        let nth = before.iter().filter(|other| is_like(other)).count();
        let mut there = there.iter().enumerate().filter(|(_, other)| is_like(other));
        Some(there.nth(nth)?.0 + 1)
    };
    nth(&|other| other == place).or_else(|| nth(&|(step, _)| *step == place.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search finds the steps that are needed, whatever they are, and asks for few workloads.
    #[test]
    fn what_is_left_is_what_is_needed() {
        for steps in 1..=9_usize {
            for needed in 1_u32..1 << steps {
                let needs: Vec<usize> = (1..=steps).filter(|step| needed & (1 << (step - 1)) != 0).collect();
                // A guess that is right, or wrong, changes nothing but the number of tries.
                let likely = (1..=steps).filter(|step| step % 3 != 0).collect();
                let mut shrink = Shrink::new(steps, usize::MAX, likely);
                let mut tries = 0;
                while let Some(kept) = shrink.next() {
                    assert!(kept.len() < shrink.kept.len() && !kept.is_empty(), "{kept:?}");
                    shrink.answer(needs.iter().all(|step| kept.contains(step)));
                    tries += 1;
                }
                assert_eq!(shrink.kept, needs, "of {steps}");
                assert!(tries <= 6 * steps + 1, "{tries} tries for {needs:?} of {steps}");
            }
        }
    }

    #[test]
    fn tries_come_to_an_end() {
        let mut shrink = Shrink::new(100, 7, Vec::new());
        let mut tries = 0;
        while shrink.next().is_some() {
            shrink.answer(false);
            tries += 1;
        }
        assert_eq!((tries, shrink.kept.len()), (7, 100));
    }

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        for name in [
            "crash-after@3",
            "crash-after@3/1",
            "held@pods#2/2,10",
            "undisturbed/1,3",
            "outage@3+late@pods/4",
        ] {
            let schedule: Schedule = name.parse().expect(name);
            assert_eq!(schedule.to_string(), name);
        }
        for wrong in [
            "",
            "crash-after@1/",
            "crash-after@1/0",
            "crash-after@1/1;2",
            "undisturbed/x",
            "meteor@1/1",
        ] {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
