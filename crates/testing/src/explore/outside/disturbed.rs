//! Plays an operator of another program through one run with a fault.
//!
//! Steps before the fault that lead back to where they began are left out, and those after it as soon as all is as in the
//! undisturbed run. Invariant: what is left out changes neither the number of a write nor that of an event.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::super::children::identities;
use super::super::fault::Fault;
use super::super::place::Place;
use super::super::play::{Run, replaced};
use super::Failed;
use super::play::{EXITS, Player, RESTART, Reference, Stage, TICK, WATCHED};
use super::waiting::Waiting;

/// Plays a run with a fault.
pub(super) async fn disturbed(
    stage: &Stage,
    fault: &Fault,
    reference: &Reference,
    mut permit: Option<OwnedSemaphorePermit>,
) -> Result<Run, Failed> {
    let mut player = Player::new(stage, Some(fault), reference.noise.clone()).await?;
    let mut run = Run::default();
    let played = steps(&mut player, &mut run, fault, reference, &mut permit).await;
    if let Err(failed) = played {
        // A fault is no excuse for an operator that does not stay.
        if player.exits <= EXITS {
            return Err(failed);
        }
        run.ended = Some(failed.because.first().cloned().unwrap_or_default());
    }
    player.finish(&mut run).await;
    Ok(run)
}

/// The steps before the fault that lead back to where they began: they need not be made. From where, and to where.
fn detour(fault: &Fault, run: &Run) -> Option<(usize, usize)> {
    // These go by what was seen or made on the way.
    let is_seen = |part: &Fault| {
        matches!(
            part,
            Fault::Stale { .. } | Fault::Past { .. } | Fault::Late { .. } | Fault::Deleted { .. }
        )
    };
    if fault.parts().iter().any(is_seen) {
        return None;
    }
    let before = Place::before(fault, &run.log)?;
    let from = run.ends.iter().position(|end| *end == run.ends[before])?;
    (from < before).then_some((from, before))
}

async fn steps(
    player: &mut Player<'_>,
    run: &mut Run,
    fault: &Fault,
    reference: &Reference,
    permit: &mut Option<OwnedSemaphorePermit>,
) -> Result<(), Failed> {
    let (stage, mut revisions) = (player.stage, Vec::new());
    player.start_all().await?;
    let begin = Instant::now();
    while !player.is_up() && begin.elapsed() < stage.start {
        player.pass(TICK).await?;
    }
    let mut waiting = Waiting { reference, permit };
    if !waiting.comes_right(player, run, 0).await? {
        return Ok(());
    }
    revisions.push(player.revision());
    let parts = fault.parts();
    let skipped = detour(fault, &reference.run);
    for (at, step) in stage.steps.iter().enumerate() {
        if skipped.is_some_and(|(from, to)| (from..to).contains(&at)) {
            run.ends.push(reference.run.ends[at + 1].clone());
            revisions.push(player.revision());
            if skipped.is_some_and(|(_, to)| to == at + 1) {
                let (attempts, heard) = reference.run.log.counted_until(at + 1);
                player.seam.goes_on(at + 1, attempts, heard);
            }
            continue;
        }
        let number = player.seam.next_step(step.what());
        let down = parts
            .iter()
            .find(|part| matches!(part, Fault::Down { step } if *step == number));
        if let Some(down) = down {
            player.end_all();
            player.seam.strike(0, down);
            step.make(&player.cluster).await?;
            tokio::time::sleep(RESTART).await; // no process is to be there
            run.hurried = Some(number);
            run.ends.push(player.snapshot());
            revisions.push(player.revision());
            continue;
        }
        step.make(&player.cluster).await?;
        if parts
            .iter()
            .any(|part| matches!(part, Fault::Down { step } if step + 1 == number))
        {
            player.leases_expire().await;
            player.start_all().await?;
        }
        let is_right = waiting.comes_right(player, run, number).await?;
        if std::mem::take(&mut player.is_hurried) && at + 1 < stage.steps.len() {
            run.hurried = Some(number);
        } else if !is_right {
            return Ok(());
        }
        for part in parts {
            let mut before = None;
            let strikes = match part {
                Fault::Stale { after, .. } | Fault::Past { after, .. } if *after == number => {
                    let shown = match part {
                        Fault::Past { resource, event, .. } => player.seam.log().0.revision_of_event(resource, *event),
                        Fault::Stale { sees, .. } => revisions.get(*sees).copied(),
                        _ => None,
                    };
                    player.end_all();
                    tokio::time::sleep(RESTART).await; // no process is to be there
                    player.leases_expire().await;
                    before = Some(identities(player.cluster.cluster().api()));
                    player.seam.show(shown.unwrap_or_else(|| player.revision()), part);
                    player.start_all().await?;
                    true
                }
                Fault::Deleted { after, object } if *after == number => {
                    let made = player.children(number).get(object - 1).cloned();
                    if let Some(made) = &made {
                        player.delete(made, part).await;
                    }
                    made.is_some()
                }
                _ => false,
            };
            if strikes {
                run.ends.pop();
                let is_right = waiting.comes_right(player, run, number).await?;
                let now = || identities(player.cluster.cluster().api());
                run.replaced = before.and_then(|before| replaced(before, &now()));
                if !is_right {
                    return Ok(());
                }
            }
        }
        revisions.push(player.revision());
        let is_hurried = run.hurried == Some(number);
        let lasts = parts.len() > 1 || matches!(fault, Fault::Late { .. });
        if player.seam.log().1.is_some() && is_right && !is_hurried && !lasts {
            // All is as it would be without the fault, and goes on so.
            break;
        }
    }
    let from = player.seam.log().0.entries.len();
    player.pass(WATCHED).await?;
    run.late_writes = player.effective_writes(from);
    Ok(())
}
