//! What one run did: requests of the operator, what its watches delivered, its reconciles, and the steps of its user.
//!
//! The entries are those of a run log (`kubewright-runlog`), in the order in which they happened. A write is an attempt: it
//! has a number whether it was carried out or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kubewright::{Observation, Outcome};
use kubewright_cluster::RunLog;
pub(super) use kubewright_runlog::{Entry, Named, What, resource};

use super::fault::Fault;

/// Everything that happened in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) entries: Vec<Entry>,
}

/// Where all runs are written, if anywhere.
#[derive(Debug, Default)]
pub(super) struct Runs {
    to: Option<RunLog>,
    /// How many of each name there were.
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Runs {
    /// Into this file, behind what is there.
    pub(super) fn open(path: &Path) -> std::io::Result<Runs> {
        Ok(Runs {
            to: Some(RunLog::open(path, RunLog::MAX_BYTES)?),
            counts: Mutex::default(),
        })
    }

    /// Writes a run, and what its processes printed, under the name of its fault; one that is played again gets a number.
    pub(super) fn add(&self, fault: Option<&Fault>, log: &Log, printed: impl IntoIterator<Item = Entry>) {
        let Some(to) = &self.to else { return };
        let name = fault.map_or_else(|| "undisturbed".to_owned(), ToString::to_string);
        let number = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            *count
        };
        let run = if number == 1 { name } else { format!("{name}({number})") };
        let mut entries: Vec<Entry> = log.entries.iter().cloned().chain(printed).collect();
        entries.sort_by_key(|entry| entry.at);
        for entry in entries {
            to.add(Entry {
                run: run.clone(),
                ..entry
            });
        }
    }

    /// Waits until all is written.
    pub(super) fn finish(&self) -> Result<(), String> {
        self.to.as_ref().map_or(Ok(()), RunLog::finish)
    }
}

/// A line that a process printed.
pub(super) fn printed(process: usize, at: Duration, line: String) -> Entry {
    Entry {
        at,
        process,
        what: What::Printed(line),
        ..Entry::default()
    }
}

/// A line that tells of a fault begins with this.
pub(super) const STRUCK: &str = "  ✗ ";
/// So does, after spaces, a line that tells of a connection that a client takes over.
pub(super) const CONNECTS: &str = "connects with ";

/// An object that the operator made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) named: Named,
    /// Where it is.
    pub(super) path: String,
}

/// Whether this is the line of the fault that struck then.
fn tells_of_fault(entry: &Entry, at: Duration) -> bool {
    entry.at >= at && matches!(&entry.what, What::Told(text) if text.starts_with(STRUCK))
}

impl Log {
    /// The writes, carried out or not, in their order.
    pub(super) fn attempts(&self) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.is_write()).collect()
    }

    /// How many events the watches of each resource delivered.
    pub(super) fn heard(&self) -> BTreeMap<String, usize> {
        let mut heard = BTreeMap::new();
        for (entry, _) in self.events() {
            *heard.entry(resource(&entry.call)).or_default() += 1;
        }
        heard
    }

    /// How many writes there were until the end of a step, and how many events of each resource.
    pub(super) fn counted_until(&self, step: usize) -> (usize, BTreeMap<String, usize>) {
        let entries = self.entries.iter().filter(|entry| entry.step <= step).cloned();
        let until = Log {
            entries: entries.collect(),
        };
        (until.attempts().len(), until.heard())
    }

    /// The step in which the watch of a resource delivered this event; they count from 1.
    pub(super) fn step_of_event(&self, of: &str, event: usize) -> Option<usize> {
        let mut events = self.events().filter(|(entry, _)| resource(&entry.call) == of);
        Some(events.nth(event.checked_sub(1)?)?.0.step)
    }

    /// The events of all watches, and the revisions of their objects.
    pub(super) fn events(&self) -> impl Iterator<Item = (&Entry, u64)> {
        self.entries.iter().filter_map(|entry| match entry.what {
            What::Event { revision, .. } => Some((entry, revision)),
            _ => None,
        })
    }

    /// The revision of an event of a resource.
    pub(super) fn revision_of_event(&self, of: &str, event: usize) -> Option<u64> {
        let mut events = self.events().filter(|(entry, _)| resource(&entry.call) == of);
        Some(events.nth(event.checked_sub(1)?)?.1)
    }

    /// The objects that the operator had made after a step and had not deleted, in the order of their making.
    pub(super) fn made_until(&self, step: usize) -> Vec<Made> {
        let mut all: Vec<Made> = Vec::new();
        let writes = self
            .entries
            .iter()
            .filter(|entry| entry.step <= step && entry.is_effective());
        for entry in writes.filter(|entry| entry.call.subresource.is_empty()) {
            let named = entry.named();
            let is_new = matches!(entry.what, What::Write { code: Some(201), .. });
            if entry.call.verb == "delete" {
                all.retain(|made| made.named != named);
            } else if is_new && !all.iter().any(|made| made.named == named) {
                let path = match entry.call.verb.as_str() {
                    "create" => format!("{}/{}", entry.call.path, entry.call.name),
                    _ => entry.call.path.clone(),
                };
                all.push(Made { named, path });
            }
        }
        all
    }

    /// What the operator deleted in a step.
    pub(super) fn deleted_in(&self, step: usize) -> BTreeSet<Named> {
        let deleting = self
            .entries
            .iter()
            .filter(|entry| entry.step == step && entry.is_effective() && entry.call.verb == "delete");
        deleting.map(Entry::named).collect()
    }

    /// The part that a person needs to see: everything from a while before the fault to a while after it, or the end.
    pub(super) fn timeline(&self, fault_at: Option<Duration>) -> Vec<String> {
        const BEFORE: usize = 8;
        const AFTER: usize = 24;
        let told: Vec<&Entry> = self.telling().collect();
        let middle = fault_at.map_or(0, |at| {
            let line = told.iter().position(|entry| tells_of_fault(entry, at));
            line.unwrap_or_else(|| told.partition_point(|entry| entry.at < at))
        });
        let from = middle.saturating_sub(BEFORE);
        let to = (middle + AFTER).min(told.len());
        let mut lines: Vec<String> = told[from..to].iter().map(|entry| entry.line()).collect();
        if to < told.len() {
            lines.push(format!("        … {} more", told.len() - to));
        }
        lines
    }

    /// The stretch of this run that goes on where another one was struck: after as many writes in the same step.
    pub(super) fn stretch(&self, struck: &Log, fault_at: Option<Duration>) -> Vec<String> {
        const BEFORE: usize = 3;
        const AFTER: usize = 9;
        let Some(at) = fault_at else { return Vec::new() };
        // Much happens in one moment of a time that stands still: what stands before the fault came before it.
        let before = struck.entries.iter().take_while(|entry| !tells_of_fault(entry, at));
        let before: Vec<&Entry> = before.collect();
        let step = before.last().map_or(0, |entry| entry.step);
        let in_step = |entry: &&Entry| entry.step == step;
        let writes = before
            .iter()
            .copied()
            .filter(in_step)
            .filter(|entry| entry.is_write())
            .count();
        let told: Vec<&Entry> = self.telling().filter(in_step).collect();
        let places = told.iter().enumerate().filter(|(_, entry)| entry.is_write());
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        // The struck write may have been the last one.
        let middle = places.get(writes).or(places.last()).copied().unwrap_or_default();
        let to = (middle + AFTER).min(told.len());
        told[middle.saturating_sub(BEFORE)..to]
            .iter()
            .map(|entry| entry.line())
            .collect()
    }

    /// The entries without reconciles in which nothing happened.
    fn telling(&self) -> impl Iterator<Item = &Entry> {
        let begins = |at: usize| match self.entries.get(at).map(|entry| (&entry.what, entry.process)) {
            Some((What::Reconcile { begins, .. }, process)) => Some((*begins, process)),
            _ => None,
        };
        let is_dull = move |at: usize| match begins(at) {
            Some((true, process)) => begins(at + 1) == Some((false, process)),
            Some((false, process)) => at > 0 && begins(at - 1) == Some((true, process)),
            None => false,
        };
        self.entries
            .iter()
            .enumerate()
            .filter(move |(at, _)| !is_dull(*at))
            .map(|(_, entry)| entry)
    }
}

/// What a run log says of an observation of the runtime: of the begin and the end of reconciles, with causes and outcomes.
#[must_use]
pub fn recorded(observation: &Observation) -> Option<What> {
    match observation {
        Observation::ReconcileStarted {
            controller,
            request,
            causes,
            ..
        } => {
            let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
            Some(What::Reconcile {
                begins: true,
                text: format!("{controller} reconciles {request}: {}", causes.join("; ")),
            })
        }
        Observation::ReconcileFinished {
            controller,
            request,
            outcome,
            ..
        } => Some(What::Reconcile {
            begins: false,
            text: format!("{controller} ends {request}: {}", told(outcome)),
        }),
        _ => None,
    }
}

/// The end of a reconcile in words.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::RequeueAfter(after) => format!("done, again after {after:?}"),
        Outcome::Conflict { error, after } => format!("conflict, again after {after:?}: {error}"),
        Outcome::Retry { error, after, .. } => format!("failed, again after {after:?}: {error}"),
        Outcome::Terminal { error } => format!("failed for good: {error}"),
        Outcome::NotLeading { error } => format!("not leading: {error}"),
        other => format!("{other:?}"),
    }
}
