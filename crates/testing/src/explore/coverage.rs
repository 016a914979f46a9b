//! What was done to each place where the operator writes, and what an attentive reader of its requests would say.
//!
//! A search that finds nothing shows by this that it has looked. What is noticed is no finding: it says where a mistake
//! would be easy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use super::fault::{AT_WRITE, Fault};
use super::log::{CONNECTS, Entry, Log, What};
use super::order::site;
use super::steps::Step;

/// A place in the operator's code where it writes, as far as that can be seen: a verb, a kind and a name, in which
/// numbers are alike.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Site {
    /// In words: `update deployments.apps default/web`.
    pub what: String,
    /// How often the undisturbed run wrote there.
    pub writes: usize,
    /// How many faults of each class struck there.
    pub struck: BTreeMap<&'static str, usize>,
}

/// The places where the operator writes, and what was done to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    pub(super) sites: Vec<Site>,
    /// The site of each write of the undisturbed run.
    of_write: Vec<usize>,
}

impl Coverage {
    pub(super) fn of(log: &Log) -> Coverage {
        let mut coverage = Coverage::default();
        for entry in log.attempts() {
            let what = site(entry);
            let known = coverage.sites.iter().position(|site| site.what == what);
            let at = known.unwrap_or_else(|| {
                coverage.sites.push(Site {
                    what,
                    ..Site::default()
                });
                coverage.sites.len() - 1
            });
            coverage.sites[at].writes += 1;
            coverage.of_write.push(at);
        }
        coverage
    }

    /// Counts a fault that struck.
    pub(super) fn counts(&mut self, fault: &Fault) {
        for part in fault.parts() {
            let write = part.write().and_then(|number| number.checked_sub(1));
            if let Some(site) = write.and_then(|at| self.of_write.get(at)) {
                *self.sites[*site].struck.entry(part.class()).or_default() += 1;
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let sites = self.sites.iter();
        sites
            .map(|site| json!({"what": site.what, "writes": site.writes, "struck": site.struck}))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = AT_WRITE.len();
        let most = self
            .sites
            .iter()
            .map(|site| site.struck.len())
            .max()
            .unwrap_or_default();
        let least = self
            .sites
            .iter()
            .map(|site| site.struck.len())
            .min()
            .unwrap_or_default();
        write!(
            f,
            "{} write sites, each struck by {least} to {most} of {classes} classes of faults",
            self.sites.len()
        )?;
        let untouched = self.sites.iter().filter(|site| site.struck.is_empty());
        let untouched: Vec<&str> = untouched.map(|site| site.what.as_str()).collect();
        match untouched.len() {
            0 => Ok(()),
            1..4 => write!(f, "; by none: {}", untouched.join(", ")),
            count => write!(f, "; by none: {} and {} more", untouched[..2].join(", "), count - 2),
        }
    }
}

/// What the operator's requests lack, each with how often.
pub(super) fn noticed(log: &Log, steps: &[Step]) -> Vec<String> {
    let of_user: BTreeSet<String> = steps.iter().map(|step| step.target().namespace).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in log.attempts() {
        let What::Write {
            code, effective, lacks, ..
        } = &entry.what
        else {
            continue;
        };
        let namespace = &entry.call.namespace;
        let is_elsewhere = !namespace.is_empty() && !of_user.contains(namespace);
        let is_idle = !effective && code.is_some_and(|code| (200..300).contains(&code));
        let all = [
            *lacks,
            is_elsewhere.then_some("is in a namespace in which the user has nothing"),
            is_idle.then_some("changes nothing"),
        ];
        for what in all.into_iter().flatten() {
            *counts.entry(format!("{} {what}", site(entry))).or_default() += 1;
        }
    }
    let connects = |entry: &&Entry| matches!(&entry.what, What::Told(text) if text.trim_start().starts_with(CONNECTS));
    let connections = log.entries.iter().filter(connects).count();
    if connections > 0 {
        let what = "connects with a container, in which nothing runs: a command prints nothing and succeeds";
        counts.insert(what.to_owned(), connections);
    }
    let lines = counts.into_iter().map(|(what, count)| match count {
        1 => what,
        count => format!("{what}, {count} times"),
    });
    lines.chain(failing(log)).collect()
}

/// How many failing reconciles are noticed.
const FAILING: usize = 3;

/// The reconciles that still fail when a step has come to rest, each once; after the last step that is a finding.
fn failing(log: &Log) -> Vec<String> {
    let mut last: BTreeMap<(usize, &str), &str> = BTreeMap::new();
    for entry in &log.entries {
        if let What::Reconcile { begins: false, text } = &entry.what
            && let Some((of, outcome)) = text.split_once(": ")
        {
            last.insert((entry.step, of), outcome);
        }
    }
    let end = log.entries.last().map_or(0, |entry| entry.step);
    let mut told = BTreeSet::new();
    let failing = last
        .into_iter()
        .filter(|((step, of), outcome)| *step < end && outcome.starts_with("failed") && told.insert((*of).to_owned()));
    let lines = failing.map(|((step, of), outcome)| {
        let error = outcome.split_once(": ").map_or(outcome, |(_, error)| error);
        format!(
            "after step {step} a reconcile fails: {}: {error}",
            of.replace(" ends ", " ")
        )
    });
    lines.take(FAILING).collect()
}

/// Of a create.
pub(super) const GENERATED: &str = "has a generated name: who dies before he notes it makes another one";

/// What a write does not say, and should.
pub(super) fn lacks(verb: &str, sent: &Value) -> Option<&'static str> {
    match verb {
        "delete" if sent["preconditions"]["uid"].is_null() => {
            Some("names no uid: what has that name then is deleted, whichever object it is")
        }
        "update" if sent["metadata"]["resourceVersion"].is_null() => {
            Some("names no resourceVersion: what others wrote since it was read is lost")
        }
        "create" if !sent["metadata"]["generateName"].is_null() => Some(GENERATED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconcile_that_fails_between_the_steps_is_noticed() {
        let check = |ends: &[(usize, &str)], expected: &[&str]| {
            let ends = ends.iter().map(|(step, text)| Entry {
                step: *step,
                what: What::Reconcile {
                    begins: false,
                    text: (*text).to_owned(),
                },
                ..Entry::default()
            });
            let mut entries: Vec<Entry> = ends.collect();
            // The user goes on.
            entries.push(Entry {
                step: 3,
                ..Entry::default()
            });
            assert_eq!(failing(&Log { entries }), expected);
        };
        let (good, bad) = ("shop ends default/a: done", "shop ends default/a: failed for good: no");
        let told = "after step 1 a reconcile fails: shop default/a: no";
        check(&[(1, good)], &[]);
        check(&[(1, bad), (1, good)], &[]);
        check(&[(1, good), (1, bad), (2, bad)], &[told]);
        check(&[(1, bad), (2, good)], &[told]);
        check(&[(3, bad)], &[]);
    }
}
