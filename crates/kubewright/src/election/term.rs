//! A time of leading, as the work that it guards sees it.
//!
//! Two handles: a [`Term`] is held by work that must end before another term begins, a [`Lead`] is only asked whether
//! the term goes on. A term ends by its own clock, whether or not anything tells it so: an elector that hangs prolongs
//! nothing (LE2).

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::stop::{Stop, StopSource};

/// The right to act, held while acting. Without leader election it never ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Term {
    lead: Lead,
    /// Open as long as something works in this term.
    _work: Option<mpsc::Sender<Infallible>>,
}

/// A term from the side that decides its length.
pub(crate) struct Reign {
    pub(crate) number: u64,
    until: watch::Sender<Instant>,
    over: StopSource,
    work: Option<Work>,
}

/// Open as long as something works in a term.
type Work = mpsc::Receiver<Infallible>;

impl Reign {
    pub(crate) fn begin(number: u64, until: Instant) -> (Reign, Term) {
        let (until, seen) = watch::channel(until);
        let (over, token) = Stop::pair();
        let (working, work) = mpsc::channel(1);
        let term = Term::new(number, seen, token, working);
        let reign = Reign {
            number,
            until,
            over,
            work: Some(work),
        };
        (reign, term)
    }

    /// It was renewed.
    pub(crate) fn lasts(&self, until: Instant) {
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
pub(crate) struct Lead(Option<Arc<Held>>);

#[derive(Debug)]
struct Held {
    number: u64,
    /// Until when it lasts if no renewal succeeds any more.
    until: watch::Receiver<Instant>,
    /// Requested when it is known to be over.
    over: Stop,
}

impl Term {
    fn new(number: u64, until: watch::Receiver<Instant>, over: Stop, work: mpsc::Sender<Infallible>) -> Term {
        Term {
            lead: Lead(Some(Arc::new(Held { number, until, over }))),
            _work: Some(work),
        }
    }

    pub(crate) fn lead(&self) -> Lead {
        self.lead.clone()
    }

    /// Resolves when it has ended.
    pub(crate) async fn over(&self) {
        let Some(held) = &self.lead.0 else {
            return std::future::pending().await;
        };
        let mut until = held.until.clone();
        loop {
            let due = *until.borrow_and_update();
            if due <= Instant::now() {
                return;
            }
            tokio::select! {
                () = held.over.requested() => return,
                () = sleep_until(due) => {}
                // An elector that is gone renews nothing: the time that is left counts.
                Ok(()) = until.changed() => {}
            }
        }
    }
}

impl Lead {
    /// The term's number (`leaseTransitions`); `None` without leader election.
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|held| held.number)
    }

    /// Whether the term has ended.
    pub(crate) fn is_over(&self) -> bool {
        let Some(held) = &self.0 else { return false };
        held.over.is_requested() || *held.until.borrow() <= Instant::now()
    }
}

/// The terms of this replica, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms(Option<watch::Receiver<Option<Term>>>);

impl Terms {
    pub(super) fn of(terms: watch::Receiver<Option<Term>>) -> Terms {
        Terms(Some(terms))
    }

    /// Resolves in a term that goes on.
    pub(crate) async fn begun(&mut self) -> Term {
        let Some(terms) = &mut self.0 else {
            return Term::default();
        };
        let begun = |term: &Option<Term>| term.as_ref().is_some_and(|term| !term.lead.is_over());
        let term = terms.wait_for(begun).await.ok().and_then(|term| term.clone());
        match term {
            Some(term) => term,
            // The elector has ended: this replica leads no more.
            None => std::future::pending().await,
        }
    }
}
