//! How a disturbed run waits for the state in which the undisturbed one came to rest.
//!
//! Invariant: the wait has an end, and a shorter one for a difference that others have waited for in vain.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::super::play::Run;
use super::super::snapshot::Snapshot;
use super::Failed;
use super::play::{Player, Reference, Stage, TICK};

/// How long is waited for a state that other runs have waited for in vain.
const IMPATIENCE: Duration = Duration::from_secs(8);

/// Waits for the states of the undisturbed run.
pub(super) struct Waiting<'a> {
    pub(super) reference: &'a Reference,
    pub(super) permit: &'a mut Option<OwnedSemaphorePermit>,
}

impl Waiting<'_> {
    /// Waits until all is as in the undisturbed run after this step, and says whether it ever was.
    pub(super) async fn comes_right(
        &mut self,
        player: &mut Player<'_>,
        run: &mut Run,
        step: usize,
    ) -> Result<bool, Failed> {
        let stage = player.stage;
        let expected = &self.reference.run.ends[step];
        let begin = Instant::now();
        let (mut seen, mut state) = (None, Snapshot::default());
        let mut changed = begin;
        loop {
            player.pass(TICK).await?;
            if player.is_hurried {
                run.ends.push(self.reference.mask.apply(player.snapshot()));
                return Ok(false);
            }
            let is_quiet = player.is_up() && player.seam.quiet().is_some_and(|quiet| quiet >= self.reference.quiet);
            if is_quiet && seen != Some(player.revision()) {
                seen = Some(player.revision());
                let found = self.reference.mask.apply(player.snapshot());
                if found == *expected {
                    if self.permit.is_none() {
                        *self.permit = stage.active.clone().acquire_owned().await.ok();
                    }
                    run.ends.push(found);
                    return Ok(true);
                }
                if found != state {
                    state = found;
                    changed = Instant::now();
                }
            }
            if changed.elapsed() > self.reference.quiet * 4 {
                // It waits, and others may play.
                *self.permit = None;
            }
            let difference = || expected.differences(&state);
            let is_known = || lasting(stage).contains(&difference());
            let patience = match seen.is_some() && changed.elapsed() > IMPATIENCE && is_known() {
                true => IMPATIENCE,
                false => stage.patience,
            };
            if changed.elapsed() > patience || begin.elapsed() > stage.patience * 2 {
                if seen.is_none() || !is_quiet {
                    run.restless = Some(step);
                }
                lasting(stage).insert(difference());
                run.ends.push(match seen {
                    Some(_) => state,
                    None => self.reference.mask.apply(player.snapshot()),
                });
                return Ok(false);
            }
        }
    }
}

fn lasting(stage: &Stage) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    stage.lasting.lock().unwrap_or_else(PoisonError::into_inner)
}
