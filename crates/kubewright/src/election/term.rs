//! A term of leading, for the elector and for the work that it guards.
//!
//! The elector keeps the [`Term`]. Work that must end before another term begins holds a [`Permit`]; a [`Fence`] is
//! only asked whether the term goes on. A term ends by its own clock, whether or not anything reports it: an elector
//! that hangs prolongs nothing (LE2).

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::stop::{Stop, StopSource};

/// The permission to act in a term, held while acting. Without leader election it never ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit {
    fence: Fence,
    /// Open as long as something works in this term.
    _work: Option<mpsc::Sender<Infallible>>,
}

/// A term, for the side that decides its length.
pub(crate) struct Term {
    pub(crate) number: u64,
    until: watch::Sender<Instant>,
    over: StopSource,
    work: Option<Work>,
}

/// Open as long as something works in a term.
type Work = mpsc::Receiver<Infallible>;

impl Term {
    pub(crate) fn begin(number: u64, until: Instant) -> (Term, Permit) {
        let (until, seen) = watch::channel(until);
        let (over, token) = Stop::pair();
        let (working, work) = mpsc::channel(1);
        let permit = Permit::new(number, seen, token, working);
        let term = Term {
            number,
            until,
            over,
            work: Some(work),
        };
        (term, permit)
    }

    /// It was renewed.
    pub(crate) fn renew(&self, until: Instant) {
        self.until
            .send_if_modified(|known| std::mem::replace(known, until) != until);
    }

    /// Ends it; resolves when everything that worked in it has ended.
    pub(crate) fn end(mut self) -> impl Future<Output = ()> + Send + use<> {
        self.over.stop();
        self.ended()
    }

    /// Resolves when everything that works in it has ended, whether it is over or not. To be asked for once.
    pub(crate) fn ended(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let work = self.work.take();
        async move {
            let Some(mut work) = work else { return };
            if let Some(never) = work.recv().await {
                match never {}
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
    /// Until when it lasts if no renewal succeeds any more.
    until: watch::Receiver<Instant>,
    /// Requested when it is known to be over.
    over: Stop,
}

impl Permit {
    fn new(number: u64, until: watch::Receiver<Instant>, over: Stop, work: mpsc::Sender<Infallible>) -> Permit {
        Permit {
            fence: Fence(Some(Arc::new(TermState { number, until, over }))),
            _work: Some(work),
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Resolves when it has ended.
    pub(crate) async fn over(&self) {
        let Some(state) = &self.fence.0 else {
            return std::future::pending().await;
        };
        let mut until = state.until.clone();
        loop {
            let due = *until.borrow_and_update();
            if due <= Instant::now() {
                return;
            }
            tokio::select! {
                () = state.over.requested() => return,
                () = sleep_until(due) => {}
                // An elector that is gone renews nothing: the time that is left counts.
                Ok(()) = until.changed() => {}
            }
        }
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
}

/// The permits of this replica, one for each of its terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits(Option<watch::Receiver<Option<Permit>>>);

impl Permits {
    pub(super) fn of(permits: watch::Receiver<Option<Permit>>) -> Permits {
        Permits(Some(permits))
    }

    /// Resolves in a term that goes on, with its permit.
    pub(crate) async fn next(&mut self) -> Permit {
        let Some(permits) = &mut self.0 else {
            return Permit::default();
        };
        let valid = |permit: &Option<Permit>| permit.as_ref().is_some_and(|permit| !permit.fence.is_over());
        let permit = permits.wait_for(valid).await.ok().and_then(|permit| permit.clone());
        match permit {
            Some(permit) => permit,
            // The elector has ended: this replica leads no more.
            None => std::future::pending().await,
        }
    }
}
