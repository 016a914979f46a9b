//! A term of leading, for the elections and for the work that they guard.
//!
//! An election keeps the [`Term`]. Work that must end before another term begins holds a [`Permit`]; a [`Fence`] is
//! only asked whether the term goes on. A term ends by its own clock, whether or not anything reports it: an election
//! that hangs prolongs nothing (LE2). A write that was cut off while it was under way may still reach the API server:
//! the work of its term counts as ended one lease duration later, so that it does not arrive in the next one.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::stop::{Stop, StopSource};
use crate::watch;

/// The permission to act in a term, held while acting. Without leader election it never ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit {
    fence: Fence,
    /// Open as long as something works in this term.
    _work: Option<mpsc::Sender<Infallible>>,
}

/// A term, for the side that decides its length. Dropped, it is over.
pub(crate) struct Term {
    pub(crate) number: u64,
    until: watch::Sender<Instant>,
    _over: StopSource,
    fence: Fence,
    /// How long others wait for a holder of the Lease that they do not hear of.
    lease: Duration,
    work: Option<Work>,
}

/// Open as long as something works in a term.
type Work = mpsc::Receiver<Infallible>;

/// What became of the work of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has ended.
    All,
    /// The term has been over for a lease duration, so that another replica may work already, and something does not
    /// end: code that blocks its thread cannot be dropped. What it sends is refused by the [`Fence`].
    Blocked,
}

impl Term {
    pub(crate) fn begin(number: u64, until: Instant, lease: Duration) -> (Term, Permit) {
        let (until, seen) = watch::channel(until);
        let (over, token) = Stop::pair();
        let (working, work) = mpsc::channel(1);
        let fence = Fence(Some(Arc::new(TermState {
            number,
            began: Instant::now(),
            until: seen,
            over: token,
            cut: AtomicBool::new(false),
        })));
        let permit = Permit {
            fence: fence.clone(),
            _work: Some(working),
        };
        let term = Term {
            number,
            until,
            _over: over,
            fence,
            lease,
            work: Some(work),
        };
        (term, permit)
    }

    /// It was renewed.
    pub(crate) fn renew(&self, until: Instant) {
        self.until
            .send_if_modified(|known| std::mem::replace(known, until) != until);
    }

    /// Resolves when everything that works in it has ended, whether it is over or not. To be asked for once.
    pub(crate) fn ended(&mut self) -> impl Future<Output = Ended> + Send + use<> {
        let (work, fence, lease) = (self.work.take(), self.fence.clone(), self.lease);
        async move {
            let Some(mut work) = work else { return Ended::All };
            tokio::select! {
                biased;
                never = work.recv() => {
                    if let Some(never) = never {
                        match never {}
                    }
                    if fence.was_cut() {
                        sleep(lease).await;
                    }
                    Ended::All
                }
                () = async { fence.over().await; sleep(lease).await } => Ended::Blocked,
            }
        }
    }
}

/// Whether this replica leads, asked before every write. Cheap to clone; prolongs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fence(Option<Arc<TermState>>);

#[derive(Debug)]
struct TermState {
    number: u64,
    /// When this replica knew that it has the Lease: everything that earlier holders wrote was written before.
    began: Instant,
    /// Until when it lasts if no renewal succeeds any more.
    until: watch::Receiver<Instant>,
    /// Requested when it is known to be over.
    over: Stop,
    /// A write was dropped while it was under way.
    cut: AtomicBool,
}

impl Permit {
    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// When the term began; `None` without leader election.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.fence.0.as_ref().map(|state| state.began)
    }

    /// Resolves when it has ended.
    pub(crate) async fn over(&self) {
        self.fence.over().await;
    }
}

impl Fence {
    /// The term's number (`leaseTransitions`); `None` without leader election.
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|state| state.number)
    }

    /// Whether the term has ended.
    pub(crate) fn is_over(&self) -> bool {
        let Some(state) = &self.0 else { return false };
        state.over.is_requested() || *state.until.borrow() <= Instant::now()
    }

    /// Resolves when the term has ended.
    async fn over(&self) {
        let Some(state) = &self.0 else {
            return std::future::pending().await;
        };
        let mut until = state.until.clone();
        loop {
            let due = *until.borrow_and_update();
            if due <= Instant::now() {
                return;
            }
            tokio::select! {
                biased;
                () = state.over.requested() => return,
                // An election that is gone renews nothing: the time that is left counts.
                Ok(()) = until.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// A write begins in this term.
    pub(crate) fn writing(&self) -> Writing {
        Writing(self.0.clone())
    }

    fn was_cut(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.cut.load(Ordering::Acquire))
    }
}

/// A write that is under way. Dropped before [`Writing::ended`], it may still be carried out.
#[must_use]
pub(crate) struct Writing(Option<Arc<TermState>>);

impl Writing {
    /// It was answered, or failed.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            state.cut.store(true, Ordering::Release);
        }
    }
}

/// The right to work on what one Lease guards.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Grows each time that work begins, perhaps again in the same term.
    pub(crate) generation: u64,
    pub(crate) permit: Permit,
}

/// What this replica may work on now, in the order of the Leases.
pub(crate) type AllHeld = Vec<Option<Held>>;

/// The permits of this replica, one for each of its terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits(Option<watch::Receiver<AllHeld>>);

impl Permits {
    /// Those of the first Lease.
    pub(crate) fn of(held: watch::Receiver<AllHeld>) -> Permits {
        Permits(Some(held))
    }

    /// Resolves in a term that goes on, with its permit.
    pub(crate) async fn next(&mut self) -> Permit {
        let Some(permits) = &mut self.0 else {
            return Permit::default();
        };
        let first = |held: &AllHeld| held.first().cloned().flatten().map(|held| held.permit);
        let valid = |held: &AllHeld| first(held).is_some_and(|permit| !permit.fence.is_over());
        match permits.wait_for(valid).await.ok().as_ref().and_then(first) {
            Some(permit) => permit,
            // The election has ended: this replica leads no more.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    /// When the work of a term counts as ended, and how: counted from the end of the term.
    #[tokio::test(start_paused = true)]
    async fn m4_a_write_that_was_cut_off_and_work_that_blocks_delay_the_end() {
        let check = async |cut: bool, blocks: bool, ended: Ended, after: Duration| {
            let begin = Instant::now();
            let (mut term, permit) = Term::begin(1, begin + Duration::from_secs(10), LEASE);
            let writing = permit.fence().writing();
            match cut {
                true => drop(writing),
                false => writing.ended(),
            }
            let blocked = blocks.then(|| permit.clone());
            let end = term.ended();
            drop((permit, term));
            assert_eq!(
                (end.await, begin.elapsed()),
                (ended, after),
                "cut {cut}, blocks {blocks}"
            );
            drop(blocked);
        };
        check(false, false, Ended::All, Duration::ZERO).await;
        check(true, false, Ended::All, LEASE).await;
        check(false, true, Ended::Blocked, LEASE).await;
    }
}
