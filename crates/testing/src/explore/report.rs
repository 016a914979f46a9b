//! How an exploration is told: a line for each finding, and for each the timeline of its run.
//!
//! Faults that end alike are one finding: the first of them stands for all. Invariant: the report is the same for the
//! same runs, in whatever order they were played.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::coverage::{Coverage, Site, noticed};
use super::details;
use super::fault::Fault;
use super::log::Log;
use super::oracles::{self, Severity, Verdict};
use super::play::Run;
use super::shrink::{self, Schedule};
use super::steps::Step;

/// What an exploration came to. Its text is for people.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// How many faults the undisturbed run admits.
    pub faults: usize,
    /// How many of them were played.
    pub played: usize,
    /// How many of those never struck: the run took another way before.
    pub missed: usize,
    /// How long all of it took, by the machine's clock.
    pub took: Duration,
    /// The findings, the gravest first.
    pub findings: Vec<Finding>,
    /// How many faults of each class were left out, because the time was over.
    pub left_out: BTreeMap<&'static str, usize>,
    /// What the operator's requests lack. That is no finding.
    pub noticed: Vec<String>,
    /// How a fault is played again; `{}` stands for it.
    pub(super) again: String,
    steps: usize,
    /// Of a replay: the steps that are made, if not all.
    made: Option<Vec<usize>>,
    writes: usize,
    events: usize,
    undisturbed: Log,
    coverage: Coverage,
    by_text: BTreeMap<String, Finding>,
}

/// Something that does not come right.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub what: String,
    /// The faults that lead to it, in their order; empty when the undisturbed run shows it.
    pub faults: Vec<Fault>,
    /// How many faults had been played when it was found.
    pub played: usize,
    /// The states that differ, or the writes.
    pub details: String,
    /// What happened around the first fault, line by line.
    pub timeline: Vec<String>,
    /// The same stretch of the undisturbed run; empty when the undisturbed run shows it.
    pub undisturbed: Vec<String>,
    /// The steps of the workload that are enough to show it, from 1; empty when not fewer than all were found.
    pub steps: Vec<usize>,
    /// Its name: that of the first fault, and of the steps that are enough. Empty when only the whole undisturbed run
    /// shows it.
    pub again: String,
}

/// A finding in fewer steps.
pub(super) struct Shown {
    pub(super) schedule: Schedule,
    pub(super) run: Run,
    /// The run of the same steps without the fault.
    pub(super) undisturbed: Option<Log>,
    pub(super) details: String,
}

impl Report {
    pub(super) fn new(reference: &Run, faults: usize, steps: &[Step]) -> Report {
        Report {
            faults,
            played: 0,
            missed: 0,
            took: Duration::ZERO,
            findings: Vec::new(),
            left_out: BTreeMap::new(),
            noticed: noticed(&reference.log, steps),
            coverage: Coverage::of(&reference.log),
            again: ".replay(\"{}\")".to_owned(),
            undisturbed: reference.log.clone(),
            steps: steps.iter().filter(|step| !step.is_left_out).count(),
            made: shrink::made(steps),
            writes: reference.log.attempts().len(),
            events: reference.log.heard().values().sum(),
            by_text: BTreeMap::new(),
        }
    }

    /// Judges a run.
    pub(super) fn played(&mut self, fault: &Fault, run: &Run, reference: &Run) {
        self.counts(fault, run);
        if let Some(verdict) = oracles::of_disturbed(fault, run, reference) {
            self.found(Some(fault), verdict, Some(run));
        }
    }

    /// Counts a run that was played.
    pub(super) fn counts(&mut self, fault: &Fault, run: &Run) {
        self.played += 1;
        match run.struck {
            Some(_) => self.coverage.counts(fault),
            None => self.missed += 1,
        }
    }

    /// The places where the operator writes, and what was done to them.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.coverage.sites
    }

    /// Whether it was found already.
    pub(super) fn knows(&self, verdict: &Verdict) -> bool {
        self.by_text.contains_key(&verdict.what)
    }

    /// Adds a finding. One that is known already needs no run.
    pub(super) fn found(&mut self, fault: Option<&Fault>, verdict: Verdict, run: Option<&Run>) {
        let new = || Finding {
            severity: verdict.severity,
            what: verdict.what.clone(),
            faults: Vec::new(),
            played: self.played,
            details: verdict.details.clone(),
            timeline: run.map_or_else(Vec::new, |run| run.log.timeline(run.struck)),
            undisturbed: match (fault, run) {
                (Some(_), Some(run)) => self.undisturbed.stretch(&run.log, run.struck),
                _ => Vec::new(),
            },
            steps: Vec::new(),
            again: String::new(),
        };
        let finding = self.by_text.entry(verdict.what.clone()).or_insert_with(new);
        let Some(fault) = fault else { return };
        if run.is_some() && finding.faults.first().is_some_and(|first| fault < first) {
            let (faults, played) = (std::mem::take(&mut finding.faults), finding.played);
            *finding = Finding {
                faults,
                played,
                ..new()
            };
        }
        let at = finding.faults.partition_point(|other| other < fault);
        finding.faults.insert(at, fault.clone());
    }

    /// The end, at which these faults were not played.
    pub(super) fn end<'a>(&mut self, took: Duration, left_out: impl IntoIterator<Item = &'a Fault>) {
        self.took = took;
        for fault in left_out {
            *self.left_out.entry(fault.class()).or_default() += 1;
        }
        self.findings = std::mem::take(&mut self.by_text).into_values().collect();
        for finding in &mut self.findings {
            if finding.again.is_empty() {
                finding.again = named(finding.faults.first(), self.made.as_ref()).unwrap_or_default();
            }
        }
        self.findings.sort_by(|one, other| {
            (one.severity, &one.faults, &one.what).cmp(&(other.severity, &other.faults, &other.what))
        });
    }

    /// What can be looked for in fewer steps, the gravest first: a sentence, and the first fault that leads to it.
    pub(super) fn to_shrink(&self) -> Vec<(String, Option<Fault>)> {
        let told = self.by_text.values().filter(|finding| !finding.timeline.is_empty());
        let mut told: Vec<&Finding> = told.collect();
        told.sort_by_key(|finding| (finding.severity, &finding.faults));
        let of = |finding: &Finding| (finding.what.clone(), finding.faults.first().cloned());
        told.into_iter().map(of).collect()
    }

    /// A finding is told as fewer steps show it.
    pub(super) fn shrunk(&mut self, what: &str, shown: Shown) {
        let Some(finding) = self.by_text.get_mut(what) else {
            return;
        };
        let Shown { run, undisturbed, .. } = &shown;
        finding.timeline = run.log.timeline(run.struck);
        finding.undisturbed = undisturbed
            .as_ref()
            .map_or_else(Vec::new, |log| log.stretch(&run.log, run.struck));
        finding.again = shown.schedule.to_string();
        finding.details = shown.details;
        finding.steps = shown.schedule.steps.unwrap_or_default();
    }

    /// How many findings there are before the end.
    pub(super) fn so_far(&self) -> usize {
        self.by_text.len()
    }

    /// The report for machines. `version` is raised when a field changes its meaning.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            let first = finding.faults.first();
            json!({
                "severity": finding.severity.to_string(),
                "what": finding.what,
                "class": first.map_or("undisturbed", Fault::class),
                "id": named(first, self.made.as_ref()),
                "faults": finding.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "steps": finding.steps,
                "again": finding.again,
                "details": finding.details.lines().collect::<Vec<_>>(),
                "timeline": finding.timeline,
                "undisturbed": finding.undisturbed,
            })
        });
        json!({
            "version": 1,
            "faults": self.faults,
            "played": self.played,
            "missed": self.missed,
            "seconds": self.took.as_secs_f64(),
            "steps": self.steps,
            "writes": self.writes,
            "events": self.events,
            "findings": findings.collect::<Vec<_>>(),
            "sites": self.coverage.to_json(),
            "leftOut": self.left_out,
            "noticed": self.noticed,
        })
    }

    /// Ends a test with the report when there is a finding.
    ///
    /// # Panics
    /// When there is one.
    pub fn assert_none(&self) {
        assert!(self.findings.is_empty(), "{self}");
    }
}

fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// The name of a fault among these steps; all of them without a fault need none.
fn named(fault: Option<&Fault>, steps: Option<&Vec<usize>>) -> Option<String> {
    let (fault, steps) = (fault.cloned(), steps.cloned());
    (fault.is_some() || steps.is_some()).then(|| Schedule { fault, steps }.to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} of {} in {:.1} s, of {}, {}, {}; {} never struck",
            count(self.findings.len(), "finding"),
            self.played,
            count(self.faults, "fault"),
            self.took.as_secs_f64(),
            count(self.steps, "step"),
            count(self.writes, "write"),
            count(self.events, "event"),
            self.missed
        )?;
        writeln!(f, "{}", self.coverage)?;
        if !self.left_out.is_empty() {
            let left = self.left_out.iter().map(|(class, count)| format!("{count} {class}"));
            writeln!(f, "not played: {}", left.collect::<Vec<_>>().join(", "))?;
        }
        if self.played == 0 && self.faults > 0 && self.findings.is_empty() {
            let why =
                "no fault was played, so this says little: the runs without a fault took all the time; give it more";
            writeln!(f, "{why}")?;
        }
        for (number, finding) in self.findings.iter().enumerate() {
            // In fewer steps the fault has another number: that of the timeline and of the replay.
            let name = match (finding.steps.as_slice(), finding.faults.first()) {
                ([], Some(first)) => first.to_string(),
                _ => finding.again.split('/').next().unwrap_or_default().to_owned(),
            };
            let by = match finding.faults.len() {
                0 => "without any fault".to_owned(),
                1 => name,
                all => format!("{name} and {} more", all - 1),
            };
            let enough = match finding.steps.as_slice() {
                [] => String::new(),
                [only] => format!("; step {only} is enough"),
                [first @ .., last] => {
                    let first: Vec<String> = first.iter().map(usize::to_string).collect();
                    format!("; steps {} and {last} are enough", first.join(", "))
                }
            };
            writeln!(
                f,
                "\n{}. {} ({}; {by}{enough})",
                number + 1,
                finding.what,
                finding.severity
            )?;
            for line in details::told(&finding.details) {
                writeln!(f, "     {line}")?;
            }
            for line in &finding.timeline {
                writeln!(f, "   {line}")?;
            }
            if !finding.undisturbed.is_empty() {
                writeln!(f, "   and without the fault:")?;
            }
            for line in &finding.undisturbed {
                writeln!(f, "   {line}")?;
            }
            if !finding.again.is_empty() {
                writeln!(f, "   again: {}", self.again.replace("{}", &finding.again))?;
            }
        }
        if !self.noticed.is_empty() {
            writeln!(f, "\nnoticed, and no finding:")?;
        }
        for line in &self.noticed {
            writeln!(f, "   {line}")?;
        }
        Ok(())
    }
}
