//! The task that takes part in an election: obeys the engine's [`Election`], one request at a time, and publishes the
//! terms.
//!
//! The Lease is watched, so that a leader that gives it back is followed at once; without a watch it is read every
//! retry period. A request that hangs delays no stand-down: the end of the term is a timer of its own. Neither does
//! work that blocks its thread keep the replica out of the election: one lease duration after the end of the term,
//! when another replica may lead already, it is waited for no longer.

use futures::future::BoxFuture;
use kube::core::DynamicObject;
use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Next, Write};
use tokio::time::sleep_until;

use super::request::{LeaseUpdate, Outcome, Requests};
use super::watch::{LeaseEvent, Leases};
use super::{LeaderElection, lease};
use crate::cache::Scope;
use crate::client::Client;
use crate::error::Result;
use crate::events::{EventRecorder, EventType};
use crate::metrics::Metrics;
use crate::stop::Stop;
use crate::term::{Ended, Permit, Permits, Term};
use crate::watch;

/// Takes part in one election.
pub(crate) struct Elector {
    requests: Requests,
    of: LeaderElection,
    recorder: EventRecorder,
    metrics: Metrics,
    election: Election,
    /// The Lease as it was last seen; fields of other clients in it are kept.
    present: Option<DynamicObject>,
    permits: watch::Sender<Option<Permit>>,
    leading: Option<Term>,
    /// Resolves when everything that worked in the last term has ended.
    working: Option<BoxFuture<'static, Ended>>,
    leaving: bool,
    /// The last warning that was logged: the same one is not logged every two seconds.
    last_warning: Option<String>,
    origin: tokio::time::Instant,
}

impl Elector {
    pub(crate) fn new(
        of: LeaderElection,
        client: &Client,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> (Elector, Permits) {
        metrics.leads(&of.name, false);
        let requests = Requests::new(client, of.namespace.clone(), of.identity.clone(), of.settings);
        let (permits, seen) = watch::channel(None);
        let elector = Elector {
            election: Election::new(requests.identity.clone(), of.settings),
            requests,
            of,
            recorder,
            metrics,
            present: None,
            permits,
            leading: None,
            working: None,
            leaving: false,
            last_warning: None,
            origin: tokio::time::Instant::now(),
        };
        (elector, Permits::of(seen))
    }

    /// Runs until the stop, then gives the Lease back once everything that worked in the term has ended. `ready`:
    /// whether the work could begin at once (LE7).
    pub(crate) async fn run(mut self, mut ready: watch::Receiver<bool>, stop: Stop) -> Result<()> {
        tracing::info!(
            lease = self.of.name,
            identity = self.requests.identity,
            "stands for election"
        );
        let ours = Scope::all().fields(format!("metadata.name={}", self.of.name));
        let mut leases = Leases::follow(&self.requests, ours);
        let mut flight: Option<BoxFuture<'static, Outcome>> = None;
        loop {
            self.publish();
            if self.leaving && self.working.is_none() {
                self.election.leave();
            }
            if self.election.has_left() && self.working.is_none() {
                return Ok(());
            }
            self.election.set_ready(*ready.borrow_and_update());
            let mut wake = Instant::MAX;
            if flight.is_none() && self.working.is_none() {
                match self.election.next(self.now()) {
                    Next::Read => flight = Some(self.requests.read(&self.of.name)),
                    Next::Write(write) => flight = Some(self.write(write)),
                    Next::Wait(until) => wake = until,
                }
            }
            let origin = self.origin;
            let wake = wake.min(self.election.leads_until(self.now()).unwrap_or(Instant::MAX));
            tokio::select! {
                biased;
                () = stop.requested(), if !self.leaving => {
                    self.leaving = true;
                    self.end_term("the operator stops");
                }
                outcome = pending_or(&mut flight) => {
                    flight = None;
                    self.on_outcome(outcome);
                }
                ended = done_or(&mut self.working) => {
                    self.working = None;
                    if ended == Ended::Blocked {
                        tracing::error!(lease = self.of.name, "work of an earlier term blocks its thread; it is waited for no longer");
                        if self.leaving {
                            return Ok(()); // the Lease runs out by itself
                        }
                    }
                }
                event = leases.next() => self.on_event(event),
                Ok(()) = ready.changed() => {}
                () = sleep_to(origin, wake) => {}
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    /// Publishes the state of the election.
    fn publish(&mut self) {
        let now = self.now();
        let number = self.election.term(now);
        if self
            .leading
            .as_ref()
            .is_some_and(|leading| number != Some(leading.number))
        {
            self.end_term("it was not renewed in time, or another replica took it");
        }
        let (Some(number), Some(until)) = (number, self.election.leads_until(now)) else {
            return;
        };
        let until = self.origin + until.since(Instant::ZERO);
        match &self.leading {
            Some(leading) => leading.renew(until),
            None if !self.leaving && self.working.is_none() => self.begin_term(number, until),
            None => {}
        }
    }

    fn begin_term(&mut self, number: u64, until: tokio::time::Instant) {
        let (term, permit) = Term::begin(number, until, self.of.settings.lease);
        self.leading = Some(term);
        tracing::info!(lease = self.of.name, term = number, "this replica leads");
        self.metrics.leads(&self.of.name, true);
        self.record("became leader");
        // Last (LE9): its work begins with this, on another thread.
        self.permits.send_replace(Some(permit));
    }

    fn end_term(&mut self, why: &str) {
        let Some(leading) = self.leading.take() else { return };
        let number = leading.number;
        let ended = leading.end();
        self.permits.send_replace(None);
        self.working = Some(Box::pin(ended));
        match self.leaving {
            true => tracing::info!(lease = self.of.name, term = number, "this replica stops leading: {why}"),
            false => tracing::warn!(lease = self.of.name, term = number, "this replica stops leading: {why}"),
        }
        self.metrics.leads(&self.of.name, false);
        self.record("stopped leading");
    }

    /// An event on the Lease, as client-go writes it.
    fn record(&self, what: &str) {
        let Some(lease) = &self.present else { return };
        let message = format!("{} {what}", self.requests.identity);
        self.recorder.record(
            &self.requests.identity,
            lease::reference(lease),
            EventType::Normal,
            "LeaderElection",
            message,
        );
    }

    fn write(&self, write: Write) -> BoxFuture<'static, Outcome> {
        let (name, now) = (&self.of.name, self.now());
        self.requests.write(name, self.present.as_ref(), write, now, |_| {})
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        let (now, before) = (self.now(), self.election.holder().map(str::to_owned));
        let update = self.requests.apply(outcome, &mut self.election, &mut self.present, now);
        match update {
            LeaseUpdate::Read => self.log_holder(before.as_deref()),
            LeaseUpdate::Wrote => self.last_warning = None,
            LeaseUpdate::Failed(why) => self.warn_once(why),
        }
    }

    fn warn_once(&mut self, why: String) {
        if self.last_warning.as_ref() != Some(&why) {
            tracing::warn!(lease = self.of.name, "leader election: {why}");
            self.last_warning = Some(why);
        }
    }

    fn on_event(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::Changed(lease) => self.see(*lease),
            LeaseEvent::Deleted(_) => self.election.lost_race(), // it may have been made since; a read tells
            LeaseEvent::Followed => {}
            LeaseEvent::Failed(why) => {
                tracing::debug!(
                    why,
                    lease = self.of.name,
                    "the Lease is neither listed nor watched; it is read"
                );
                self.election.lost_race();
            }
        }
    }

    fn see(&mut self, lease: DynamicObject) {
        let (now, before) = (self.now(), self.election.holder().map(str::to_owned));
        self.requests
            .see(Some(lease), &mut self.election, &mut self.present, now);
        self.log_holder(before.as_deref());
    }

    fn log_holder(&self, before: Option<&str>) {
        let holder = self.election.holder();
        if let Some(now) = holder.filter(|now| before != Some(now) && !now.is_empty()) {
            tracing::info!(lease = self.of.name, holder = now, "the leader is known");
        }
    }
}

/// Resolves at a moment of the election.
pub(crate) async fn sleep_to(origin: tokio::time::Instant, wake: Instant) {
    let due = origin.checked_add(wake.since(Instant::ZERO));
    match due.filter(|_| wake < Instant::MAX) {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The outcome of the request that is under way, if there is one.
async fn pending_or(flight: &mut Option<BoxFuture<'static, Outcome>>) -> Outcome {
    match flight {
        Some(flight) => flight.await,
        None => std::future::pending().await,
    }
}

/// Resolves when it does, if there is something.
async fn done_or(working: &mut Option<BoxFuture<'static, Ended>>) -> Ended {
    match working {
        Some(working) => working.await,
        None => std::future::pending().await,
    }
}
