//! Takes part in the sharding: obeys the engine's [`Machine`], one request a Lease at a time, and publishes the terms.
//!
//! One watch shows all Leases of the operator; without one they are listed every retry period. A term ends by a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::{DeleteParams, Preconditions};
use kube::core::DynamicObject;
use kubewright_engine::Instant;
use kubewright_engine::election::Next;
use kubewright_engine::sharding::{LeaseId, Sharding as Machine, fnv1a};
use tokio::time::{sleep, timeout};

use super::shards::{HeldShard, Publisher, Shards};
use super::{MOST, Sharding};
use crate::cache::Scope;
use crate::client::Client;
use crate::election::request::{LeaseUpdate, Outcome, Requests};
use crate::election::watch::{LeaseEvent, Leases};
use crate::election::{lease, sleep_to};
use crate::error::{Chain, Error, Result};
use crate::metrics::Metrics;
use crate::stop::Stop;
use crate::term::{Ended, Term};
use crate::watch;

/// The label of all Leases of one operator; its value is their name.
const LABEL: &str = "kubewright.dev/sharding";
/// The annotation that says how many shards there are.
const COUNT: &str = "kubewright.dev/shards";
/// How long reconciles may go on that run when a shard is to change hands; then they are dropped.
const HAND_OVER: Duration = Duration::from_secs(30);

/// Takes part in one sharding.
pub(crate) struct Sharder {
    of: Sharding,
    requests: Requests,
    metrics: Metrics,
    held: Publisher,
    origin: tokio::time::Instant,
    /// The last warning that was logged: the same one is not logged every two seconds.
    last_warning: Option<String>,
}

impl Sharder {
    pub(crate) fn new(of: Sharding, client: &Client, metrics: Metrics) -> (Sharder, Shards) {
        let requests = Requests::new(client, of.namespace.clone(), of.identity.clone(), of.settings);
        let (held, shards) = Shards::pair();
        let sharder = Sharder {
            of,
            requests,
            metrics,
            held,
            origin: tokio::time::Instant::now(),
            last_warning: None,
        };
        (sharder, shards)
    }

    /// Joins when the caches are synced, or have been waited for one lease duration: controllers whose caches are synced
    /// must not wait for the others for ever. Runs until the stop, then gives every shard back once its work has ended.
    pub(crate) async fn run(mut self, mut synced: watch::Receiver<bool>, stop: Stop) -> Result<()> {
        let agreed = async {
            // A replica that is not ready to work leaves it to others at first.
            let all = async { synced.wait_for(|synced| *synced).await.is_ok() };
            match timeout(self.of.settings.lease, all).await {
                Ok(true) => {}
                Ok(false) => std::future::pending().await,
                Err(_) => tracing::warn!(
                    sharding = self.of.name,
                    "takes its share although not all caches are synced; controllers without their caches wait"
                ),
            }
            self.agree().await
        };
        let shards = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            agreed = agreed => agreed?,
        };
        let settings = self.of.settings;
        let member = format!("{}-member-{:016x}", self.of.name, fnv1a(self.requests.identity.bytes()));
        tracing::info!(
            sharding = self.of.name,
            identity = self.requests.identity,
            shards,
            "takes its share of the objects"
        );
        self.held.send_replace(vec![None; shards]);
        let part = Part {
            machine: Machine::new(&member, &self.requests.identity, shards, settings),
            member,
            sharder: self,
            present: BTreeMap::new(),
            terms: std::iter::repeat_with(|| None).take(shards).collect(),
            busy: BTreeSet::new(),
            closing: BTreeMap::new(),
            flights: FuturesUnordered::new(),
            ending: FuturesUnordered::new(),
            begun: 0,
            leaving: false,
        };
        part.run(stop).await
    }

    /// The number of shards, which all replicas agree on before any of them works (SH6).
    async fn agree(&mut self) -> Result<usize> {
        let name = format!("{}-shards", self.of.name);
        loop {
            match agreed(&self.requests, &self.of, &name).await {
                Ok(Some(count)) => return self.take(&name, count),
                Ok(None) => {} // somebody else made it
                Err(error) => self.warn_once(format!("cannot read or create Lease {name}: {}", Chain(&error))),
            }
            sleep(self.of.settings.retry).await;
        }
    }

    /// The Lease's number counts.
    fn take(&self, name: &str, count: Count) -> Result<usize> {
        let wanted = self.of.shards;
        match count {
            Count(Some(shards)) => {
                if shards != wanted {
                    tracing::warn!(
                        sharding = self.of.name,
                        "there are {shards} shards, as Lease {name} says, and not {wanted}; to change it, end all replicas and delete that Lease"
                    );
                }
                Ok(shards)
            }
            Count(None) => Err(Error::Configuration(format!(
                "sharding by Leases {:?}: Lease {name} does not say how many shards there are: its annotation {COUNT} is to be a number from 1 to \
                 {MOST}; end all replicas and delete it",
                self.of.name
            ))),
        }
    }

    fn warn_once(&mut self, why: String) {
        if self.last_warning.as_ref() != Some(&why) {
            tracing::warn!(sharding = self.of.name, "sharding: {why}");
            self.last_warning = Some(why);
        }
    }
}

/// The number of shards in a Lease, if it is one.
struct Count(Option<usize>);

fn count_of(lease: &DynamicObject) -> Count {
    let annotation = lease
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == COUNT);
    Count(
        annotation
            .and_then(|(_, value)| value.parse().ok())
            .filter(|count| (1..=MOST).contains(count)),
    )
}

/// Reads the number, or writes it; `None` when another replica was faster.
async fn agreed(requests: &Requests, of: &Sharding, name: &str) -> Result<Option<Count>> {
    let (client, resource, namespace) = (requests.client(), lease::resource(), &requests.namespace);
    if let Some(lease) = client.live_of(&resource, namespace, name).await? {
        return Ok(Some(count_of(&lease)));
    }
    let mut lease = DynamicObject::new(name, &resource).within(namespace);
    lease.metadata.annotations = Some([(COUNT.to_owned(), of.shards.to_string())].into());
    label(&mut lease, &of.name);
    match client.write_own(&resource, &lease).await {
        Ok(lease) => Ok(Some(count_of(&lease))),
        Err(error) if error.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

fn label(lease: &mut DynamicObject, name: &str) {
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(LABEL.to_owned(), name.to_owned());
}

/// A replica that takes part.
struct Part {
    sharder: Sharder,
    machine: Machine,
    /// The name of its own Lease.
    member: String,
    /// The Leases as they were last seen; fields of other clients in them are kept.
    present: BTreeMap<LeaseId, DynamicObject>,
    /// Of the shards that are worked on.
    terms: Vec<Option<Term>>,
    busy: BTreeSet<LeaseId>,
    flights: FuturesUnordered<BoxFuture<'static, (LeaseId, Outcome)>>,
    /// Shards that take no more work and are still renewed, until their work has ended, or until this moment.
    closing: BTreeMap<usize, (Term, Instant)>,
    /// Shards whose work comes to its end.
    ending: FuturesUnordered<BoxFuture<'static, (usize, Ended)>>,
    /// How often work has begun.
    begun: u64,
    leaving: bool,
}

impl Part {
    async fn run(mut self, stop: Stop) -> Result<()> {
        let ours = [(LABEL.to_owned(), self.sharder.of.name.clone())].into_iter().collect();
        let mut leases = Leases::follow(&self.sharder.requests, Scope::all().labels(ours));
        loop {
            let now = self.now();
            self.publish(now);
            if self.leaving && self.machine.has_left(now) {
                self.delete_own().await;
                return Ok(());
            }
            let closed = self.closing.values().map(|(_, due)| *due).min().unwrap_or(Instant::MAX);
            let wake = self.ask(now).min(self.machine.wake(now)).min(closed);
            let origin = self.sharder.origin;
            tokio::select! {
                biased;
                () = stop.requested(), if !self.leaving => {
                    self.leaving = true;
                    self.machine.leave();
                }
                Some((id, outcome)) = self.flights.next(), if !self.flights.is_empty() => self.on_outcome(id, outcome),
                Some((shard, ended)) = self.ending.next(), if !self.ending.is_empty() => self.on_end(shard, ended),
                event = leases.next() => self.on_event(event)?,
                () = sleep_to(origin, wake) => {}
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.sharder.origin.elapsed())
    }

    /// The work on a shard has ended, or does not end. As long as the Lease is held, work that does not end keeps it
    /// (SH2): only a restart helps, for which the liveness probe asks. When it is not held others may work already.
    fn on_end(&mut self, shard: usize, ended: Ended) {
        self.closing.remove(&shard);
        let now = self.now();
        let election = self.machine.election(LeaseId::Shard(shard));
        let holds = election.is_some_and(|election| election.term(now).is_some());
        if ended == Ended::Blocked {
            let sharding = &self.sharder.of.name;
            tracing::error!(
                sharding,
                shard,
                holds,
                "work on a shard of an earlier term blocks its thread"
            );
        }
        if ended == Ended::All || !holds {
            self.machine.ended(shard);
        }
    }

    fn lease_ids(&self) -> impl Iterator<Item = LeaseId> + use<> {
        std::iter::once(LeaseId::Member).chain((0..self.terms.len()).map(LeaseId::Shard))
    }

    fn lease_of(&self, id: LeaseId) -> String {
        match id {
            LeaseId::Member => self.member.clone(),
            LeaseId::Shard(shard) => format!("{}-shard-{shard}", self.sharder.of.name),
        }
    }

    fn id_of(&self, lease: &str) -> Option<LeaseId> {
        let rest = lease.strip_prefix(self.sharder.of.name.as_str())?;
        if let Some(shard) = rest.strip_prefix("-shard-") {
            return shard.parse().ok().map(LeaseId::Shard);
        }
        (lease == self.member).then_some(LeaseId::Member)
    }

    /// Publishes the state of the machine.
    fn publish(&mut self, now: Instant) {
        if self.machine.refresh(now) {
            let members = self.machine.members(now);
            tracing::info!(
                sharding = self.sharder.of.name,
                ?members,
                "the shards are assigned to these replicas"
            );
            self.sharder.metrics.members(&self.sharder.of.name, members.len());
        }
        for shard in 0..self.terms.len() {
            let wanted = self.machine.work(shard, now);
            let election = self.machine.election(LeaseId::Shard(shard));
            let (number, until) =
                election.map_or((None, None), |election| (election.term(now), election.leads_until(now)));
            let until = until.map(|until| self.sharder.origin + until.since(Instant::ZERO));
            if let Some((term, due)) = self.closing.get(&shard) {
                match until.filter(|_| number == Some(term.number) && now < *due) {
                    Some(until) => term.renew(until),
                    // Dropped, it is over, and the work in it ends.
                    None => drop(self.closing.remove(&shard)),
                }
            }
            match (&self.terms[shard], wanted, until) {
                (Some(term), Some(wanted), Some(until)) if term.number == wanted => term.renew(until),
                (Some(term), _, _) => {
                    let holds = number == Some(term.number);
                    self.stop_work(shard, holds.then(|| now + HAND_OVER));
                }
                // Work that was stopped comes to its end first.
                (None, Some(number), Some(until)) if !self.machine.is_worked_on(shard) => {
                    self.begin_work(shard, number, until);
                }
                _ => {}
            }
        }
    }

    fn begin_work(&mut self, shard: usize, number: u64, until: tokio::time::Instant) {
        self.machine.began(shard, number);
        let (term, permit) = Term::begin(number, until, self.sharder.of.settings.lease);
        self.terms[shard] = Some(term);
        self.begun = self.begun.saturating_add(1);
        let generation = self.begun;
        self.set(shard, Some(HeldShard { generation, permit }));
        tracing::info!(
            sharding = self.sharder.of.name,
            shard,
            term = number,
            "this replica works on a shard"
        );
        self.sharder.metrics.shard(&self.sharder.of.name, true);
    }

    /// Lets a shard take no more work. Until `until`, if it is held so long, its work may go on.
    fn stop_work(&mut self, shard: usize, until: Option<Instant>) {
        let Some(mut term) = self.terms[shard].take() else {
            return;
        };
        tracing::info!(
            sharding = self.sharder.of.name,
            shard,
            term = term.number,
            "this replica stops work on a shard"
        );
        self.set(shard, None);
        let ended = term.ended();
        self.ending.push(Box::pin(async move { (shard, ended.await) }));
        match until {
            Some(until) => drop(self.closing.insert(shard, (term, until))),
            None => drop(term), // it is over, and what works in it ends
        }
        self.sharder.metrics.shard(&self.sharder.of.name, false);
    }

    fn set(&self, shard: usize, held: Option<HeldShard>) {
        self.sharder.held.send_modify(|terms| {
            if let Some(place) = terms.get_mut(shard) {
                *place = held;
            }
        });
    }

    /// Sends the due requests; answers until when no more are due.
    fn ask(&mut self, now: Instant) -> Instant {
        let mut wake = Instant::MAX;
        for id in self.lease_ids() {
            if self.busy.contains(&id) {
                continue;
            }
            let (next, name) = (self.machine.next(id, now), self.lease_of(id));
            let requests = &self.sharder.requests;
            let flight = match next {
                Next::Wait(until) => {
                    wake = wake.min(until);
                    continue;
                }
                Next::Read => requests.read(&name),
                Next::Write(write) => {
                    let of = &self.sharder.of.name;
                    requests.write(&name, self.present.get(&id), write, now, |lease| label(lease, of))
                }
            };
            self.busy.insert(id);
            self.flights.push(Box::pin(async move { (id, flight.await) }));
        }
        wake
    }

    fn on_outcome(&mut self, id: LeaseId, outcome: Outcome) {
        self.busy.remove(&id);
        let now = self.now();
        let Some(election) = self.machine.election(id) else {
            return;
        };
        let mut present = self.present.remove(&id);
        let update = self.sharder.requests.apply(outcome, election, &mut present, now);
        self.present.extend(present.map(|lease| (id, lease)));
        match update {
            LeaseUpdate::Read => {}
            LeaseUpdate::Wrote => self.sharder.last_warning = None,
            LeaseUpdate::Failed(why) => {
                let name = self.lease_of(id);
                self.sharder.warn_once(format!("Lease {name}: {why}"));
            }
        }
    }

    fn on_event(&mut self, event: LeaseEvent) -> Result<()> {
        match event {
            LeaseEvent::Followed => {
                self.machine.members_listed();
                self.delete_dead();
            }
            LeaseEvent::Changed(lease) => self.see(*lease)?,
            LeaseEvent::Deleted(name) => self.gone(&name),
            LeaseEvent::Failed(why) => {
                self.sharder
                    .warn_once(format!("its Leases can be neither listed nor watched: {why}"));
            }
        }
        Ok(())
    }

    fn see(&mut self, lease: DynamicObject) -> Result<()> {
        let (now, name) = (self.now(), lease.metadata.name.clone().unwrap_or_default());
        match self.id_of(&name) {
            Some(id) => {
                let Some(election) = self.machine.election(id) else {
                    return Ok(());
                };
                let mut present = self.present.remove(&id);
                self.sharder.requests.see(Some(lease), election, &mut present, now);
                self.present.extend(present.map(|lease| (id, lease)));
            }
            None if name == format!("{}-shards", self.sharder.of.name) => self.recount(&lease)?,
            None if name.starts_with(&format!("{}-member-", self.sharder.of.name)) => {
                let record = lease::record(&lease, self.sharder.of.settings.lease);
                self.machine.member_seen(&name, Some(record), now);
            }
            None => {}
        }
        Ok(())
    }

    /// A change of the number of shards while replicas work: a key might be worked on by two (SH6).
    fn recount(&self, lease: &DynamicObject) -> Result<()> {
        let known = self.terms.len();
        match count_of(lease) {
            Count(Some(count)) if count == known => Ok(()),
            Count(other) => Err(Error::Configuration(format!(
                "sharding by Leases {:?}: Lease {}-shards says {} shards, and this replica began with {known}; it ends, because a key must not belong to \
                 two shards",
                self.sharder.of.name,
                self.sharder.of.name,
                other.map_or_else(|| "no number of".to_owned(), |count| count.to_string()),
            ))),
        }
    }

    fn gone(&mut self, name: &str) {
        match self.id_of(name) {
            Some(id) => self.lost(id),
            None => self.machine.member_seen(name, None, self.now()),
        }
    }

    fn lost(&mut self, id: LeaseId) {
        if let Some(election) = self.machine.election(id) {
            election.lost_race();
        }
    }

    /// Deletes Leases of replicas that are long gone. The fastest replica deletes them; the others may fail.
    fn delete_dead(&self) {
        for (name, version) in self.machine.dead(self.now()) {
            drop(tokio::spawn(self.sharder.requests.delete(name, at_version(version))));
        }
    }

    /// The own Lease goes with the replica.
    fn delete_own(self) -> impl Future<Output = ()> + Send + use<> {
        let Part {
            sharder: Sharder { requests, .. },
            member,
            present,
            ..
        } = self;
        let own = present.get(&LeaseId::Member);
        let params = own
            .and_then(|lease| lease.metadata.resource_version.as_deref())
            .map(at_version);
        async move {
            let Some(params) = params else { return };
            requests.delete(&member, params).await;
        }
    }
}

fn at_version(version: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            resource_version: Some(version.to_owned()),
            uid: None,
        }),
        ..DeleteParams::default()
    }
}
