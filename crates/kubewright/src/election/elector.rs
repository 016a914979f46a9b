//! The task that takes part in an election: obeys the engine's [`Election`], one request at a time, and publishes the
//! terms.
//!
//! The Lease is watched, so that a leader that gives it back is followed at once; without a watch it is read every
//! retry period. A request that hangs delays no stand-down: the end of the term is a timer of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::WatchParams;
use kube::core::{DynamicObject, WatchEvent};
use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Next, Write};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use super::request::{LeaseUpdate, Outcome, Requests};
use super::term::{Permit, Permits, Term};
use super::{LeaderElection, identity, lease};
use crate::clock::Clock;
use crate::error::{Chain, Result};
use crate::events::{EventRecorder, EventType};
use crate::metrics::Metrics;
use crate::stop::Stop;

/// How long one watch of the Lease lasts, in seconds.
const WATCH_SECONDS: u32 = 290;

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
    working: Option<BoxFuture<'static, ()>>,
    leaving: bool,
    /// The last warning that was logged: the same one is not logged every two seconds.
    last_warning: Option<String>,
    origin: tokio::time::Instant,
}

/// An event of the watch of the Lease.
enum LeaseEvent {
    Changed(Box<DynamicObject>),
    Deleted,
    /// There is no watch.
    Failed(kube::Error),
}

impl Elector {
    pub(crate) fn new(
        of: LeaderElection,
        kube: &kube::Client,
        clock: Arc<dyn Clock>,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> (Elector, Permits) {
        metrics.leads(&of.name, false);
        let namespace = of.namespace.as_deref().unwrap_or(kube.default_namespace());
        let api = Api::namespaced_with(kube.clone(), namespace, &lease::resource());
        let identity = of.identity.clone().unwrap_or_else(identity);
        let (permits, seen) = watch::channel(None);
        let elector = Elector {
            election: Election::new(identity.clone(), of.settings),
            requests: Requests {
                api,
                identity,
                settings: of.settings,
                clock,
            },
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

    /// Runs until the stop, then gives the Lease back once everything that worked in the term has ended.
    pub(crate) async fn run(mut self, stop: Stop) -> Result<()> {
        tracing::info!(
            lease = self.of.name,
            identity = self.requests.identity,
            "stands for election"
        );
        let mut events = lease_events(self.requests.api.clone(), &self.of.name, self.of.settings.retry);
        let mut flight: Option<BoxFuture<'static, Outcome>> = None;
        loop {
            self.publish();
            if self.leaving && self.working.is_none() {
                self.election.leave();
            }
            if self.election.has_left() && self.working.is_none() {
                return Ok(());
            }
            let mut wake = Instant::MAX;
            if flight.is_none() && self.working.is_none() {
                match self.election.next(self.now()) {
                    Next::Read => flight = Some(self.requests.read(&self.of.name)),
                    Next::Write(write) => flight = Some(self.write(write)),
                    Next::Wait(until) => wake = until,
                }
            }
            let origin = self.origin;
            let wake = wake.min(self.election.leads_until().unwrap_or(Instant::MAX));
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
                () = done_or(&mut self.working) => self.working = None,
                Some(event) = events.next() => self.on_event(event),
                () = sleep_to(origin, wake) => {}
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    /// Publishes the state of the election.
    fn publish(&mut self) {
        let number = self.election.term(self.now());
        if self
            .leading
            .as_ref()
            .is_some_and(|leading| number != Some(leading.number))
        {
            self.end_term("it was not renewed in time, or another replica took it");
        }
        let (Some(number), Some(until)) = (number, self.election.leads_until()) else {
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
        let (term, permit) = Term::begin(number, until);
        self.leading = Some(term);
        self.permits.send_replace(Some(permit));
        tracing::info!(lease = self.of.name, term = number, "this replica leads");
        self.metrics.leads(&self.of.name, true);
        self.record("became leader");
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
            LeaseEvent::Changed(lease) => self.see(Some(*lease)),
            LeaseEvent::Deleted => self.election.lost_race(),
            LeaseEvent::Failed(error) => {
                tracing::debug!(error = %Chain(&error), lease = self.of.name, "the Lease is not watched; it is read");
                self.election.lost_race();
            }
        }
    }

    fn see(&mut self, lease: Option<DynamicObject>) {
        let (now, before) = (self.now(), self.election.holder().map(str::to_owned));
        self.requests.see(lease, &mut self.election, &mut self.present, now);
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
async fn done_or(working: &mut Option<BoxFuture<'static, ()>>) {
    match working {
        Some(working) => working.await,
        None => std::future::pending().await,
    }
}

/// The events of the Lease, for ever. A watch that ends or fails is opened again after the retry period, which is said
/// first.
fn lease_events(api: Api<DynamicObject>, name: &str, retry: Duration) -> BoxStream<'static, LeaseEvent> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    let params = Arc::new(params);
    stream::unfold(0_u64, move |round| {
        let (api, params) = (api.clone(), params.clone());
        async move {
            if round > 0 {
                sleep(retry).await;
            }
            let events = match api.watch(&params, "0").await {
                Ok(events) => events
                    .try_filter_map(|event| async { event_of(event) })
                    .map(or_failed)
                    .boxed(),
                Err(error) => stream::iter([LeaseEvent::Failed(error)]).boxed(),
            };
            Some((events, round.saturating_add(1)))
        }
    })
    .flatten()
    .boxed()
}

fn event_of(event: WatchEvent<DynamicObject>) -> Result<Option<LeaseEvent>, kube::Error> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Ok(Some(LeaseEvent::Changed(Box::new(lease)))),
        WatchEvent::Deleted(_) => Ok(Some(LeaseEvent::Deleted)),
        WatchEvent::Bookmark(_) => Ok(None),
        WatchEvent::Error(status) => Err(kube::Error::Api(status)),
    }
}

fn or_failed(event: Result<LeaseEvent, kube::Error>) -> LeaseEvent {
    event.unwrap_or_else(LeaseEvent::Failed)
}
