//! Plays an operator of another program through one run with a fault.
//!
//! A run begins where the undisturbed one was at rest before the fault, with a new process, and ends as soon as all is as
//! in the undisturbed run. What such a run finds is played from the beginning before it is told. Invariants: a run that
//! does not start from nothing counts writes and events as the undisturbed run does; it is thrown away when the operator,
//! started anew, does not stay at rest there.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::super::children::identities;
use super::super::fault::Fault;
use super::super::oracles::{self, Verdict};
use super::super::place::{Place, is_idle};
use super::super::play::{Run, replaced};
use super::Failed;
use super::play::{EXITS, Player, RESTART, Reference, Stage, TICK, WATCHED};
use super::waiting::Waiting;

/// A run with a fault.
pub(super) struct Disturbed {
    pub(super) run: Run,
    /// What is wrong with it.
    pub(super) verdict: Option<Verdict>,
    /// Whether the report may show it: it was played from the beginning.
    pub(super) is_told: bool,
}

/// Plays a run with a fault: from the moment before it, and once more from the beginning when that shows something new.
pub(super) async fn disturbed(
    stage: &Stage,
    fault: &Fault,
    reference: &Reference,
    mut permit: Option<OwnedSemaphorePermit>,
) -> Result<Disturbed, Failed> {
    let before = Place::before(fault, &reference.run.log);
    // Without a moment for each end the cluster cannot be forked, and one that writes when it starts is another one then.
    let has_places =
        reference.run.places.len() == reference.run.ends.len() && reference.run.writes_of_a_restart.is_empty();
    if let Some(step) = before.filter(|_| has_places)
        && let Some(run) = played(stage, fault, reference, &mut permit, Some(step)).await?
    {
        let verdict = oracles::of_disturbed(fault, &run, &reference.run);
        if verdict.as_ref().is_none_or(|verdict| stage.knows(verdict)) {
            return Ok(Disturbed {
                run,
                verdict,
                is_told: false,
            });
        }
    }
    if permit.is_none() {
        permit = stage.active.clone().acquire_owned().await.ok();
    }
    let run = played(stage, fault, reference, &mut permit, None).await?;
    let run = run.expect("a run from the beginning is never thrown away");
    Ok(Disturbed {
        verdict: oracles::of_disturbed(fault, &run, &reference.run),
        run,
        is_told: true,
    })
}

/// Plays a run, from the moment after a step if one is given; `None` when such a run is thrown away.
async fn played(
    stage: &Stage,
    fault: &Fault,
    reference: &Reference,
    permit: &mut Option<OwnedSemaphorePermit>,
    begin: Option<usize>,
) -> Result<Option<Run>, Failed> {
    let places = &reference.run.places;
    let mut player = Player::new(
        stage,
        Some(fault),
        reference.noise.clone(),
        begin.map(|step| (&places[..], step)),
    )
    .await?;
    let mut run = Run::default();
    let steps = steps(
        &mut player,
        &mut run,
        fault,
        Waiting {
            reference,
            permit: &mut *permit,
        },
        begin,
    )
    .await;
    let counts = match (steps, begin) {
        (Ok(counts), _) => counts,
        (Err(_), Some(_)) => false,
        (Err(failed), None) => {
            // A fault is no excuse for an operator that does not stay.
            if player.exits <= EXITS {
                return Err(failed);
            }
            run.ended = Some(failed.because.first().cloned().unwrap_or_default());
            true
        }
    };
    let counts = counts && begin.is_none_or(|step| is_idle(places, step, player.cluster.cluster().api()));
    player.finish(&mut run).await;
    Ok(counts.then_some(run))
}

/// Makes the steps that are left, until nothing can be found any more; `false` when the operator does not stay at rest
/// where the run begins.
async fn steps(
    player: &mut Player<'_>,
    run: &mut Run,
    fault: &Fault,
    mut waiting: Waiting<'_>,
    begin: Option<usize>,
) -> Result<bool, Failed> {
    let (stage, reference) = (player.stage, waiting.reference);
    let parts = fault.parts();
    let mut number = begin.unwrap_or(0);
    run.ends.extend_from_slice(&reference.run.ends[..number]);
    let earlier = reference.run.places.iter().take(number);
    let mut revisions: Vec<u64> = earlier.map(|place| place.revision).collect();
    if begin.is_some() && reference.elects {
        player.expire(&reference.locks).await;
    }
    player.start_all().await?;
    let started = Instant::now();
    while !player.is_up() && started.elapsed() < stage.start {
        player.pass(TICK).await?;
    }
    let mut is_right = waiting.comes_right(player, run, number).await?;
    if !is_right {
        return Ok(begin.is_none());
    }
    if let Some(step) = begin {
        let (attempts, heard) = reference.run.log.counted_until(step);
        player.seam.goes_on(step, attempts, heard);
    }
    let mut is_down = false;
    loop {
        for part in parts {
            let mut before = None;
            let strikes = match part {
                Fault::Stale { after, .. } | Fault::Past { after, .. } if *after == number => {
                    let shown = match part {
                        Fault::Past { resource, event, .. } => match begin {
                            Some(_) => reference.run.log.revision_of_event(resource, *event),
                            None => player.seam.look(|log| log.revision_of_event(resource, *event)),
                        },
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
                    let made = match begin {
                        Some(_) => reference.run.children[number].get(object - 1).cloned(),
                        None => player.children(number).get(object - 1).cloned(),
                    };
                    if let Some(made) = &made {
                        player.delete(made, part).await;
                    }
                    made.is_some()
                }
                _ => false,
            };
            if strikes {
                run.ends.pop();
                is_right = waiting.comes_right(player, run, number).await?;
                let now = || identities(player.cluster.cluster().api());
                run.replaced = before.and_then(|before| replaced(before, &now()));
                if !is_right {
                    return Ok(true);
                }
            }
        }
        revisions.push(player.revision());
        let is_hurried = run.hurried == Some(number);
        let lasts = parts.len() > 1 || matches!(fault, Fault::Late { .. });
        if player.seam.struck().is_some() && is_right && !is_hurried && !lasts {
            // All is as it would be without the fault, and goes on so.
            break;
        }
        let Some(step) = stage.steps.get(number) else { break };
        if step.is_left_out {
            // A user who did not wait has not waited yet.
            run.hurried = run.hurried.map(|hurried| hurried + usize::from(hurried == number));
            number += 1;
            player.seam.skip_to(number);
            run.ends.push(run.ends.last().cloned().unwrap_or_default());
            continue;
        }
        number = player.seam.next_step(step.what());
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
            is_down = true;
            continue;
        }
        step.make(&player.cluster).await?;
        if std::mem::take(&mut is_down) {
            player.leases_expire().await;
            player.start_all().await?;
        }
        is_right = waiting.comes_right(player, run, number).await?;
        if std::mem::take(&mut player.is_hurried) && number < stage.steps.len() {
            run.hurried = Some(number);
        } else if !is_right {
            return Ok(true);
        }
    }
    let from = player.seam.look(|log| log.entries.len());
    player.pass(WATCHED).await?;
    run.late_writes = player.seam.effective_writes(from);
    Ok(true)
}
