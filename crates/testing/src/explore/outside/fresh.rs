//! New clusters in which the user wants from the beginning what he wants after a step of the workload.
//!
//! Such a run knows what it waits for, as one with a fault does: the state of the undisturbed run. Only what is still
//! different after all patience is told.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::super::history::{self, Fresh};
use super::super::oracles::Verdict;
use super::super::snapshot::Snapshot;
use super::Failed;
use super::play::{Player, Reference, Stage, TICK};

/// What the steps alone show. The undisturbed run learns how the new clusters end.
pub(super) async fn of_history(stage: &Stage, reference: &Reference) -> Result<Vec<Verdict>, Failed> {
    let mut fresh = Fresh::of(&reference.run);
    let played = fresh.open().into_iter().map(|step| async move {
        let end = end(stage, reference, step).await?;
        Ok::<_, Failed>((step, end))
    });
    for (step, end) in futures::future::try_join_all(played).await? {
        fresh.ends(step, end);
    }
    let _: Result<(), _> = reference.run.fresh.set(fresh.all()); // nobody else sets it
    Ok(fresh.verdicts())
}

async fn end(stage: &Stage, reference: &Reference, step: usize) -> Result<Option<Snapshot>, Failed> {
    let permit = stage.active.clone().acquire_owned().await;
    let mut player = Player::new(stage, None, BTreeSet::new(), None).await?;
    player.start_all().await?;
    let begin = Instant::now();
    while !player.is_up() && begin.elapsed() < stage.start {
        player.pass(TICK).await?;
    }
    let wanted = &reference.run.wanted[step];
    for step in wanted.steps() {
        step.made(&player.cluster).await?;
    }
    let mut permit = permit.ok();
    let (begin, mut seen, mut state) = (Instant::now(), None, Snapshot::default());
    let mut is_right = false;
    while !is_right && begin.elapsed() < stage.patience {
        player.pass(TICK * 3).await?;
        if seen != Some(player.revision()) {
            seen = Some(player.revision());
            state = reference.mask.apply(player.snapshot());
            is_right = history::is_reached(&reference.run.ends[step], &state, wanted);
        }
        if begin.elapsed() > reference.quiet * 4 {
            // It waits, and others may play.
            permit = None;
        }
    }
    drop(permit);
    player.stop().await;
    Ok(Some(state))
}
