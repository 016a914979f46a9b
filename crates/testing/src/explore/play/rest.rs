//! How time passes in a run: what the seam asks for meanwhile, and when the cluster has come to rest.
//!
//! Invariant: every wait has an end.

use std::time::Duration;

use tokio::time::Instant;

use super::super::seam::Ask;
use super::{Player, RESTART};
use crate::error::Result;
use crate::time::QUIET;

/// How long the cluster is left alone after a step: longer than any fault and the longest retry after it.
pub(super) const PATIENCE: Duration = Duration::from_secs(150);
/// The end of that time, in which an operator that nothing disturbed has nothing left to write.
const LAST: Duration = Duration::from_secs(60);
/// How long it may take from then on until nothing changes.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// How long nothing may change until an undisturbed run has come to rest, longer than most probes wait, and how long that
/// may take.
const STILL: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(900));
/// How long a process that stood still goes on at most.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Player {
    /// A number that changes with every change of the cluster but for renewals of Leases.
    pub(super) fn changes(&self) -> u64 {
        self.revision().saturating_sub(self.seam.renewals())
    }

    /// Lets time pass, and does what the seam asks for meanwhile. Ends early when the user does not wait.
    pub(super) async fn pass(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while !self.is_hurried {
            let ask = tokio::select! {
                biased;
                ask = self.asked.recv() => ask,
                () = tokio::time::sleep_until(until) => return Ok(()),
            };
            match ask {
                Some(Ask::Crash { process }) => {
                    self.end(process);
                    tokio::time::sleep(RESTART).await;
                    self.start().await?;
                }
                Some(Ask::TakeOver { .. }) => {
                    tokio::time::sleep(RESTART).await;
                    self.start().await?;
                }
                Some(Ask::GoesOn { process }) => {
                    let seam = self.seam.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(LAST_WORDS).await;
                        seam.ask_end(process);
                    });
                }
                Some(Ask::End { process }) => self.end(process),
                Some(Ask::NextStep) => self.is_hurried = true,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until all is done; `false` when it never is.
    pub(super) async fn rest(&mut self) -> Result<bool> {
        self.pass(PATIENCE - LAST).await?;
        let writes = self.writes_within(LAST).await?;
        if writes.len() > 1 && self.busy.is_none() {
            self.busy = writes.into_iter().next();
        }
        let (quiet, longest) = match self.seam.fault {
            Some(_) => (QUIET, LONGEST),
            None => STILL,
        };
        let begin = Instant::now();
        let (mut before, mut state) = (self.changes(), None);
        while begin.elapsed() < longest && !self.is_hurried {
            self.pass(quiet).await?;
            let now = self.changes();
            // A scheduler that tries again and again tells so in events, which are no part of the state.
            let found = (now != before).then(|| self.reader.read(&self.cluster));
            if found.is_none() || found == state {
                return Ok(true);
            }
            (before, state) = (now, found);
        }
        Ok(self.is_hurried)
    }

    /// The operator's writes that changed something while this time passed.
    pub(super) async fn writes_within(&mut self, time: Duration) -> Result<Vec<String>> {
        let before = self.seam.look(|log| log.entries.len());
        self.pass(time).await?;
        Ok(self.seam.effective_writes(before))
    }
}
