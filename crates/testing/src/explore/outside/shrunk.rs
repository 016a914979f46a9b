//! A finding in fewer steps: each try is an undisturbed run of them, and one with the fault.
//!
//! Tries take seconds, in the machine's time. What is a matter of chance in the whole workload is so in a part of it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::super::fault::Fault;
use super::super::may_start_anew;
use super::super::oracles;
use super::super::report::Shown;
use super::super::shrink::{self, Schedule, Shrink};
use super::disturbed::disturbed;
use super::fresh;
use super::play::{Reference, Stage, undisturbed};

/// How many workloads are played to find the fewest steps of a finding.
const TRIES: usize = 12;

/// Looks for a finding in fewer steps, until this moment.
pub(super) async fn shrunk(
    stage: Arc<Stage>,
    reference: Arc<Reference>,
    (what, fault): (String, Option<Fault>),
    end: Option<Instant>,
) -> (String, Option<Shown>) {
    let likely = shrink::likely(fault.as_ref(), &reference.run.log, &stage.steps);
    let mut shrink = Shrink::new(stage.steps.len(), TRIES, likely);
    let mut best = None;
    while let Some(kept) = shrink.next() {
        let shown = shown(&stage, &reference, &what, fault.as_ref(), kept);
        let shown = match end {
            None => shown.await,
            Some(end) => match timeout_at(end, shown).await {
                Ok(shown) => shown,
                Err(_) => break,
            },
        };
        shrink.answer(shown.is_some());
        best = shown.or(best);
    }
    (what, best)
}

/// The finding in a workload of which only these steps are made. A workload that cannot be played does not show it: a
/// step may need one that is left out.
async fn shown(
    stage: &Stage,
    reference: &Reference,
    what: &str,
    fault: Option<&Fault>,
    kept: Vec<usize>,
) -> Option<Shown> {
    let stage = stage.with(shrink::with(&kept, &stage.steps));
    let mut part = undisturbed(&stage, false).await.ok()?;
    part.takes_over(reference);
    let fault = match fault {
        Some(_) if oracles::is_restless(&part.run) => return None,
        Some(fault) => Some(shrink::carried(fault, &reference.run, &part.run, &kept)?),
        None => None,
    };
    let mut found = match fault.as_ref().is_none_or(may_start_anew) && !oracles::is_restless(&part.run) {
        true => fresh::of_history(&stage, &part).await.ok()?,
        false => Vec::new(),
    };
    let (run, undisturbed) = match &fault {
        Some(fault) => {
            let permit = stage.active.clone().acquire_owned().await.ok();
            let disturbed = disturbed(&stage, fault, &part, permit).await.ok()?;
            found = disturbed.verdict.into_iter().collect();
            (disturbed.run, Some(part.run.log))
        }
        None => {
            found.extend(oracles::of_reference(&part.run));
            (part.run, None)
        }
    };
    let found = found.into_iter().find(|found| found.what == what)?;
    let steps = Some(kept);
    Some(Shown {
        schedule: Schedule { fault, steps },
        run,
        undisturbed,
        details: found.details,
    })
}
