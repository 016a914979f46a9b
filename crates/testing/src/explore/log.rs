//! What one run did: requests of the operator, what its watches delivered, its reconciles, and the steps of its user.
//!
//! Entries stand in the order in which they happened. A write is an attempt: it has a number whether it was carried out
//! or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use kubewright::Outcome;

use crate::intercept::Call;

/// Everything that happened in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) entries: Vec<Entry>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Since the start of the run, in its own time.
    pub(super) at: Duration,
    /// After which step of the user; the steps count from 1.
    pub(super) step: usize,
    /// Which process of the operator; they count from 1, and 0 is everybody else.
    pub(super) process: usize,
    pub(super) what: What,
    /// Of requests and events; empty otherwise.
    pub(super) call: Call,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A write, and what came of it.
    Write {
        /// The status code; `None` when there was no answer.
        code: Option<u16>,
        /// Whether it changed anything.
        effective: bool,
        /// What it does not say, and should.
        lacks: Option<&'static str>,
    },
    /// A watch delivered an event.
    Event {
        /// Its kind: `ADDED`.
        kind: String,
        /// The revision of the object.
        revision: u64,
    },
    /// A reconcile begins or ends.
    Reconcile {
        /// Whether it begins.
        begins: bool,
        /// Of what, and why or how.
        text: String,
    },
    /// A line for people: a step, a fault.
    Told(String),
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

/// The objects that a call can be about: resource with its group, namespace, name.
pub(super) type Named = (String, String, String);

impl Entry {
    /// The object that the call names.
    pub(super) fn named(&self) -> Named {
        let Call { namespace, name, .. } = &self.call;
        (resource(&self.call), namespace.clone(), name.clone())
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self.what, What::Write { .. })
    }

    /// Whether this is the line of the fault that struck then.
    fn tells_of_fault(&self, at: Duration) -> bool {
        self.at >= at && matches!(&self.what, What::Told(text) if text.starts_with(STRUCK))
    }

    pub(super) fn is_effective(&self) -> bool {
        matches!(self.what, What::Write { effective: true, .. })
    }

    /// Without the end that the server made up: what two runs have in common.
    pub(super) fn plain(&self) -> String {
        let (resource, namespace, name) = self.named();
        let subresource = match self.call.subresource.as_str() {
            "" => String::new(),
            subresource => format!("/{subresource}"),
        };
        format!("{} {resource}{subresource} {namespace}/{name}", self.call.verb)
    }

    /// One line of a timeline.
    pub(super) fn line(&self) -> String {
        let (minutes, rest) = (self.at.as_secs() / 60, self.at.as_secs() % 60);
        let mut line = format!("{minutes:>3}:{rest:02}.{:03} ", self.at.subsec_millis());
        let _ = match self.process {
            0 => write!(line, "        "),
            process => write!(line, "proc {process}  "),
        };
        let _ = match &self.what {
            What::Told(text) | What::Reconcile { text, .. } => write!(line, "{text}"),
            What::Event { kind, .. } => {
                let (resource, namespace, name) = self.named();
                write!(line, "  hears {kind} {resource} {}", place(&namespace, &name))
            }
            What::Write { code, effective, .. } => {
                let came = match (code, effective) {
                    (Some(code), true) => format!("{code}"),
                    (Some(code @ 200..300), false) => format!("{code}, no change"),
                    (Some(code), false) => format!("{code}"),
                    (None, true) => "carried out, no answer".to_owned(),
                    (None, false) => "no answer".to_owned(),
                };
                write!(line, "  {} → {came}", self.plain())
            }
        };
        line
    }
}

fn place(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// The plural with its group, as kubectl takes it.
pub(super) fn resource(call: &Call) -> String {
    match call.group.as_str() {
        "" => call.resource.clone(),
        group => format!("{}.{group}", call.resource),
    }
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
            let line = told.iter().position(|entry| entry.tells_of_fault(at));
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
        let before = struck.entries.iter().take_while(|entry| !entry.tells_of_fault(at));
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

/// The end of a reconcile in words.
pub(super) fn told(outcome: &Outcome) -> String {
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
