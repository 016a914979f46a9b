//! What counts as a finding: a disturbed run beside the undisturbed one.
//!
//! Few false alarms matter more than the last find. Invariants: a finding names a state or an action that the
//! undisturbed run shows to be possible, or one that no run may show; what is a matter of chance in any two runs is none.

use std::fmt;

use super::fault::Fault;
use super::history;
use super::log::Named;
use super::play::Run;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Something is lost, or never comes right.
    High,
    /// It comes right, or harms nobody, and is not as it should be.
    Low,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::High => "high",
            Severity::Low => "low",
        })
    }
}

/// What is wrong with a run, in one sentence, and the states that show it.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) details: String,
}

fn verdict(severity: Severity, what: String, details: String) -> Option<Verdict> {
    Some(Verdict {
        severity,
        what,
        details,
    })
}

/// What is wrong with the undisturbed run.
pub(super) fn of_reference(run: &Run) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = of_any(run).into_iter().collect();
    found.extend(in_use(run, run));
    found.extend(restart(run));
    if let Some(write) = &run.busy {
        let what = format!("long after a step it writes again and again: {write}");
        found.extend(verdict(Severity::High, what, String::new()));
    }
    found
}

/// Two undisturbed runs that differ.
pub(super) fn of_chance(run: &Run, again: &Run) -> Option<Verdict> {
    let writes = |run: &Run| {
        let all = run.log.attempts().into_iter();
        all.filter(|entry| entry.is_effective()).count()
    };
    let differing = run.ends.iter().zip(&again.ends).position(|(one, other)| one != other);
    if let Some(step) = differing {
        let details = run.ends[step].differences(&again.ends[step]);
        let what = format!(
            "two undisturbed runs end step {step} differently: something of the operator is a matter of chance"
        );
        return verdict(Severity::Low, what, details);
    }
    let (one, other) = (writes(run), writes(again));
    let what =
        format!("two undisturbed runs make {one} and {other} writes: something of the operator is a matter of chance");
    verdict(Severity::Low, what, String::new()).filter(|_| one != other)
}

/// What is wrong with a disturbed run; the first thing is enough. A fault that never struck shows nothing.
pub(super) fn of_disturbed(fault: &Fault, run: &Run, reference: &Run) -> Option<Verdict> {
    run.struck?;
    // What the undisturbed run does is told there.
    of_any(run)
        .filter(|_| of_any(reference).is_none())
        .or_else(|| deleted(fault, run, reference))
        .or_else(|| ends(fault, run, reference))
        .or_else(|| replaced(run))
        .or_else(|| lost(run))
        .or_else(|| in_use(run, reference).filter(|_| in_use(reference, reference).is_none()))
        .or_else(|| swallowed(run))
        .or_else(|| plain_restart(fault, run))
        .or_else(|| restart(run).filter(|_| restart(reference).is_none()))
}

/// Whether an undisturbed run goes on and on.
pub(super) fn is_restless(run: &Run) -> bool {
    run.restless.is_some() || run.busy.is_some() || !run.late_writes.is_empty()
}

/// What no run may show.
fn of_any(run: &Run) -> Option<Verdict> {
    let high = Severity::High;
    if let Some(panic) = run.panics.first() {
        return verdict(high, format!("a reconcile panicked: {panic}"), String::new());
    }
    if let Some(why) = &run.ended {
        return verdict(high, format!("the operator ended by itself: {why}"), String::new());
    }
    if let Some((what, step)) = &run.broken {
        let what = format!("this does not hold all through step {step}: {what}");
        return verdict(high, what, String::new());
    }
    if let Some(write) = &run.flood {
        let what = format!("it goes on without pause, hundreds of times: {write}");
        return verdict(high, what, String::new());
    }
    if let Some(step) = run.restless {
        return verdict(high, format!("it never comes to rest after step {step}"), String::new());
    }
    if !run.late_writes.is_empty() {
        let what = format!("all is done, and it writes again and again: {}", run.late_writes[0]);
        return verdict(high, what, run.late_writes.join("\n"));
    }
    if !run.failing.is_empty() {
        let what = "all is done, and a reconcile still fails".to_owned();
        return verdict(high, what, run.failing.trim().to_owned());
    }
    None
}

/// A restart when all is done writes nothing.
fn restart(run: &Run) -> Option<Verdict> {
    let first = run.writes_of_a_restart.first()?;
    let what = format!("a restart when all is done writes: {first}");
    verdict(Severity::Low, what, run.writes_of_a_restart.join("\n"))
}

/// A restart that sees what is there writes nothing.
fn plain_restart(fault: &Fault, run: &Run) -> Option<Verdict> {
    let (Fault::Stale { after, sees }, Some(struck)) = (fault, run.struck) else {
        return None;
    };
    let mut writes = run.log.attempts().into_iter().filter(|write| write.is_effective());
    let first = writes.find(|write| after == sees && write.step == *after && write.at >= struck)?;
    let what = format!("a restart when all is done writes: {}", first.plain());
    verdict(Severity::Low, what, String::new())
}

/// An object that lives all through a step of the undisturbed run is not deleted in it.
fn deleted(fault: &Fault, run: &Run, reference: &Run) -> Option<Verdict> {
    if fault.parts().iter().any(|part| matches!(part, Fault::Deleted { .. })) {
        return None;
    }
    for step in 1..reference.ends.len() {
        if run.hurried.is_some_and(|hurried| step >= hurried) {
            return None;
        }
        let (before, after) = (&reference.ends[step - 1], &reference.ends[step]);
        let expected = reference.log.deleted_in(step);
        for named in run.log.deleted_in(step) {
            if before.has(&named) && after.has(&named) && !expected.contains(&named) {
                let what = format!("{} is deleted, which nobody asked for", words(&named));
                return verdict(Severity::High, what, String::new());
            }
        }
    }
    None
}

/// What an older world shows is no reason to make anything anew.
fn replaced(run: &Run) -> Option<Verdict> {
    let what = format!(
        "{} is deleted and made again, which nobody asked for",
        words(run.replaced.as_ref()?)
    );
    verdict(Severity::High, what, String::new())
}

/// What others change meanwhile is read again before it is written.
fn lost(run: &Run) -> Option<Verdict> {
    let what = run.harm.lost.as_ref()?;
    let what =
        format!("what somebody else changes in {what} right before a write is lost: it does not say what it read");
    verdict(Severity::High, what, String::new())
}

/// As long as the user deletes nothing, a volume goes after the pod that uses it.
fn in_use(run: &Run, reference: &Run) -> Option<Verdict> {
    let (step, what) = run.harm.in_use.as_ref()?;
    let count = |step: usize| reference.wanted.get(step).map(|wanted| wanted.targets().count());
    let deletes = step.checked_sub(1).is_none_or(|before| count(before) > count(*step));
    let what = what.clone();
    verdict(Severity::High, what, String::new()).filter(|_| !deletes)
}

/// A write that fails is tried again, or reported.
fn swallowed(run: &Run) -> Option<Verdict> {
    let write = run.swallowed.as_ref()?;
    let what = format!("this fails, and the reconcile ends as if it had not: {write}");
    verdict(Severity::Low, what, String::new())
}

/// After each step the cluster is as after the same step of the undisturbed run.
fn ends(fault: &Fault, run: &Run, reference: &Run) -> Option<Verdict> {
    if matches!(fault, Fault::DeleteEarly(_)) {
        let (end, step) = (run.ends.last()?, run.ends.len() - 1);
        return run
            .hurried
            .and_then(|_| history::left(step, end, reference.ends.get(step)?));
    }
    for (step, (expected, found)) in reference.ends.iter().zip(&run.ends).enumerate() {
        if expected == found {
            continue;
        }
        // A user who did not wait is promised the state that he wants, and no more.
        if let Some(hurried) = run.hurried.filter(|_| step + 1 < reference.ends.len()) {
            let fresh = reference.fresh.get().and_then(|fresh| fresh.get(step)?.as_ref());
            let wanted = reference.wanted.get(step).filter(|_| step > hurried);
            let verdict = wanted.zip(fresh);
            match verdict.and_then(|(wanted, fresh)| history::of_hurry(step, found, (expected, fresh), wanted)) {
                Some(verdict) => return Some(verdict),
                None => continue,
            }
        }
        // After the last step each object must be exactly as in the undisturbed run or in a new cluster. So must what is
        // made again after somebody deleted it.
        let fresh = reference.fresh.get().and_then(|fresh| fresh.get(step)?.as_ref());
        let is_made_anew = fault.parts().iter().any(|part| matches!(part, Fault::Deleted { .. }));
        if (run.hurried.is_some() || is_made_anew) && fresh.is_some_and(|fresh| found.consists_of(expected, fresh)) {
            continue;
        }
        let (expected_names, found_names) = (expected.names(), found.names());
        let details = expected.differences(found);
        let left = found_names.difference(&expected_names).next();
        let missing = expected_names.difference(&found_names).next();
        let when = match step {
            0 => "at the start".to_owned(),
            step => format!("after step {step}"),
        };
        let what = match (left, missing) {
            (_, Some((named, _))) => format!("{} is missing {when}", words(named)),
            (Some((named, 1)), None) => format!("{} is left {when}", words(named)),
            (Some((named, number)), None) => format!("{} is there {number} times {when}", words(named)),
            (None, None) => {
                let mut differing = expected_names
                    .iter()
                    .filter(|(named, _)| expected.text(named) != found.text(named));
                match differing.next() {
                    Some((named, _)) => format!("{} differs {when}", words(named)),
                    // Of several that are called alike it is another one.
                    None => format!("the cluster differs {when}"),
                }
            }
        };
        return verdict(Severity::High, what, details);
    }
    None
}

pub(super) fn words((resource, namespace, name): &Named) -> String {
    match namespace.as_str() {
        "" => format!("{resource} {name}"),
        namespace => format!("{resource} {namespace}/{name}"),
    }
}
