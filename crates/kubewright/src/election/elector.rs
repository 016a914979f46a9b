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

use super::request::{Learnt, Outcome, Requests};
use super::term::{Reign, Term, Terms};
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
    terms: watch::Sender<Option<Term>>,
    leading: Option<Reign>,
    /// Resolves when everything that worked in the last term has ended.
    working: Option<BoxFuture<'static, ()>>,
    leaving: bool,
    /// The last failure that was logged, so that the same is not said every two seconds.
    told: Option<String>,
    origin: tokio::time::Instant,
}

/// An event of the watch of the Lease.
enum Told {
    Lease(Box<DynamicObject>),
    Deleted,
    /// There is no watch.
    Blind(kube::Error),
}

impl Elector {
    pub(crate) fn new(
        of: LeaderElection,
        kube: &kube::Client,
        clock: Arc<dyn Clock>,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> (Elector, Terms) {
        metrics.leads(&of.name, false);
        let namespace = of.namespace.as_deref().unwrap_or(kube.default_namespace());
        let api = Api::namespaced_with(kube.clone(), namespace, &lease::resource());
        let identity = of.identity.clone().unwrap_or_else(identity);
        let (terms, seen) = watch::channel(None);
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
            terms,
            leading: None,
            working: None,
            leaving: false,
            told: None,
            origin: tokio::time::Instant::now(),
        };
        (elector, Terms::of(seen))
    }

    /// Runs until the stop, then gives the Lease back once everything that worked in the term has ended.
    pub(crate) async fn run(mut self, stop: Stop) -> Result<()> {
        tracing::info!(
            lease = self.of.name,
            identity = self.requests.identity,
            "stands for election"
        );
        let mut told = watching(self.requests.api.clone(), &self.of.name, self.of.settings.retry);
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
                    self.learn(outcome);
                }
                () = done_or(&mut self.working) => self.working = None,
                Some(told) = told.next() => self.hear(told),
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
            Some(leading) => leading.lasts(until),
            None if !self.leaving && self.working.is_none() => self.begin_term(number, until),
            None => {}
        }
    }

    fn begin_term(&mut self, number: u64, until: tokio::time::Instant) {
        let (reign, term) = Reign::begin(number, until);
        self.leading = Some(reign);
        self.terms.send_replace(Some(term));
        tracing::info!(lease = self.of.name, term = number, "this replica leads");
        self.metrics.leads(&self.of.name, true);
        self.record("became leader");
    }

    fn end_term(&mut self, why: &str) {
        let Some(leading) = self.leading.take() else { return };
        let number = leading.number;
        let ended = leading.end();
        self.terms.send_replace(None);
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

    fn learn(&mut self, outcome: Outcome) {
        let (now, before) = (self.now(), self.election.holder().map(str::to_owned));
        let learnt = self.requests.learn(outcome, &mut self.election, &mut self.present, now);
        match learnt {
            Learnt::Seen => self.tell_holder(before.as_deref()),
            Learnt::Wrote => self.told = None,
            Learnt::Failed(why) => self.complain(why),
        }
    }

    fn complain(&mut self, why: String) {
        if self.told.as_ref() != Some(&why) {
            tracing::warn!(lease = self.of.name, "leader election: {why}");
            self.told = Some(why);
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Lease(lease) => self.see(Some(*lease)),
            Told::Deleted => self.election.lost_race(),
            Told::Blind(error) => {
                tracing::debug!(error = %Chain(&error), lease = self.of.name, "the Lease is not watched; it is read");
                self.election.lost_race();
            }
        }
    }

    fn see(&mut self, lease: Option<DynamicObject>) {
        let (now, before) = (self.now(), self.election.holder().map(str::to_owned));
        self.requests.see(lease, &mut self.election, &mut self.present, now);
        self.tell_holder(before.as_deref());
    }

    fn tell_holder(&self, before: Option<&str>) {
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
fn watching(api: Api<DynamicObject>, name: &str, retry: Duration) -> BoxStream<'static, Told> {
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
                Ok(events) => events.try_filter_map(|event| async { heard(event) }).map(said).boxed(),
                Err(error) => stream::iter([Told::Blind(error)]).boxed(),
            };
            Some((events, round.saturating_add(1)))
        }
    })
    .flatten()
    .boxed()
}

fn heard(event: WatchEvent<DynamicObject>) -> Result<Option<Told>, kube::Error> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Ok(Some(Told::Lease(Box::new(lease)))),
        WatchEvent::Deleted(_) => Ok(Some(Told::Deleted)),
        WatchEvent::Bookmark(_) => Ok(None),
        WatchEvent::Error(status) => Err(kube::Error::Api(status)),
    }
}

fn said(heard: Result<Told, kube::Error>) -> Told {
    heard.unwrap_or_else(Told::Blind)
}
