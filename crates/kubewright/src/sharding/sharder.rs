//! Takes part in the sharding: obeys the engine's [`Machine`], one request a Lease at a time, and publishes the terms.
//!
//! One watch shows all Leases of the operator; without one they are listed every retry period. A term ends by a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, FuturesUnordered};
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use kubewright_engine::Instant;
use kubewright_engine::election::{Next, Settings};
use kubewright_engine::sharding::{Sharding as Machine, Slot, fnv1a};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::shards::{Held, Publisher, Shards};
use super::{MOST, Sharding};
use crate::clock::Clock;
use crate::election::request::{Learnt, Outcome, Requests};
use crate::election::term::Reign;
use crate::election::{identity, lease, sleep_to};
use crate::error::{Chain, Error, Result};
use crate::metrics::Metrics;
use crate::stop::Stop;

/// The label of all Leases of one operator; its value is their name.
const LABEL: &str = "kubewright.dev/sharding";
/// The annotation that says how many shards there are.
const COUNT: &str = "kubewright.dev/shards";
/// How long reconciles may go on that run when a shard is to change hands; then they are dropped.
const HAND_OVER: Duration = Duration::from_secs(30);
/// How long one watch of the Leases lasts, in seconds.
const WATCH_SECONDS: u32 = 290;

/// Takes part in one sharding.
pub(crate) struct Sharder {
    of: Sharding,
    requests: Requests,
    metrics: Metrics,
    held: Publisher,
    origin: tokio::time::Instant,
    /// The last failure that was logged, so that the same is not said every two seconds.
    told: Option<String>,
}

/// An event of the watch of the Leases.
enum Told {
    All(Vec<DynamicObject>),
    Lease(Box<DynamicObject>),
    Deleted(Box<DynamicObject>),
    /// There is neither list nor watch.
    Blind(kube::Error),
}

impl Sharder {
    pub(crate) fn new(of: Sharding, kube: &kube::Client, clock: Arc<dyn Clock>, metrics: Metrics) -> (Sharder, Shards) {
        let namespace = of.namespace.as_deref().unwrap_or(kube.default_namespace());
        let requests = Requests {
            api: Api::namespaced_with(kube.clone(), namespace, &lease::resource()),
            identity: of.identity.clone().unwrap_or_else(identity),
            settings: of.settings,
            clock,
        };
        let (held, shards) = Shards::pair();
        let sharder = Sharder {
            of,
            requests,
            metrics,
            held,
            origin: tokio::time::Instant::now(),
            told: None,
        };
        (sharder, shards)
    }

    /// Joins when the caches are synced, runs until the stop, then gives every shard back once its work has ended.
    pub(crate) async fn run(mut self, mut synced: watch::Receiver<bool>, stop: Stop) -> Result<()> {
        let agreed = async {
            // A replica that is not ready to work takes no work from others.
            if synced.wait_for(|synced| *synced).await.is_err() {
                std::future::pending::<()>().await;
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
            reigns: std::iter::repeat_with(|| None).take(shards).collect(),
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
        let limit = self.requests.limit();
        loop {
            let agreed = timeout(limit, agreed(&self.requests.api, &self.of, &name)).await;
            match agreed {
                Ok(Ok(Some(count))) => return self.take(&name, count),
                Ok(Ok(None)) => continue, // somebody else made it
                Ok(Err(error)) => self.complain(format!("cannot read or create Lease {name}: {}", Chain(&error))),
                Err(_) => self.complain("the API server does not answer".to_owned()),
            }
            sleep(self.of.settings.retry).await;
        }
    }

    /// The Lease's number counts.
    fn take(&self, name: &str, said: Count) -> Result<usize> {
        let wanted = self.of.shards;
        match said {
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

    fn complain(&mut self, why: String) {
        if self.told.as_ref() != Some(&why) {
            tracing::warn!(sharding = self.of.name, "sharding: {why}");
            self.told = Some(why);
        }
    }
}

/// The number of shards in a Lease, if it is one.
struct Count(Option<usize>);

fn count_of(lease: &DynamicObject) -> Count {
    let said = lease
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == COUNT);
    Count(
        said.and_then(|(_, value)| value.parse().ok())
            .filter(|count| (1..=MOST).contains(count)),
    )
}

/// Reads the number, or writes it; `None` when another replica was faster.
async fn agreed(api: &Api<DynamicObject>, of: &Sharding, name: &str) -> Result<Option<Count>, kube::Error> {
    if let Some(lease) = api.get_opt(name).await? {
        return Ok(Some(count_of(&lease)));
    }
    let mut lease = DynamicObject::new(name, &lease::resource());
    lease.metadata.annotations = Some([(COUNT.to_owned(), of.shards.to_string())].into());
    label(&mut lease, &of.name);
    match api.create(&PostParams::default(), &lease).await {
        Ok(lease) => Ok(Some(count_of(&lease))),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
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
    present: BTreeMap<Slot, DynamicObject>,
    /// Of the shards that are worked on.
    reigns: Vec<Option<Reign>>,
    busy: BTreeSet<Slot>,
    flights: FuturesUnordered<BoxFuture<'static, (Slot, Outcome)>>,
    /// Shards that take no more work and are still renewed, until their work has ended, or until this moment.
    closing: BTreeMap<usize, (Reign, Instant)>,
    /// Shards whose work comes to its end.
    ending: FuturesUnordered<BoxFuture<'static, usize>>,
    /// How often work has begun.
    begun: u64,
    leaving: bool,
}

impl Part {
    async fn run(mut self, stop: Stop) -> Result<()> {
        let of = &self.sharder.of;
        let mut told = watching(self.sharder.requests.api.clone(), &of.name, of.settings);
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
                Some((slot, outcome)) = self.flights.next(), if !self.flights.is_empty() => self.learn(slot, outcome),
                Some(shard) = self.ending.next(), if !self.ending.is_empty() => {
                    self.closing.remove(&shard);
                    self.machine.ended(shard);
                }
                Some(told) = told.next() => self.hear(told)?,
                () = sleep_to(origin, wake) => {}
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.sharder.origin.elapsed())
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        std::iter::once(Slot::Member).chain((0..self.reigns.len()).map(Slot::Shard))
    }

    fn lease_of(&self, slot: Slot) -> String {
        match slot {
            Slot::Member => self.member.clone(),
            Slot::Shard(shard) => format!("{}-shard-{shard}", self.sharder.of.name),
        }
    }

    fn slot_of(&self, lease: &str) -> Option<Slot> {
        let rest = lease.strip_prefix(self.sharder.of.name.as_str())?;
        if let Some(shard) = rest.strip_prefix("-shard-") {
            return shard.parse().ok().map(Slot::Shard);
        }
        (lease == self.member).then_some(Slot::Member)
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
        for shard in 0..self.reigns.len() {
            let wanted = self.machine.work(shard, now);
            let election = self.machine.election(Slot::Shard(shard));
            let (term, until) = election.map_or((None, None), |election| (election.term(now), election.leads_until()));
            let until = until.map(|until| self.sharder.origin + until.since(Instant::ZERO));
            if let Some((reign, due)) = self.closing.get(&shard) {
                match until.filter(|_| term == Some(reign.number) && now < *due) {
                    Some(until) => reign.lasts(until),
                    // Dropped, it is over, and the work in it ends.
                    None => drop(self.closing.remove(&shard)),
                }
            }
            match (&self.reigns[shard], wanted, until) {
                (Some(reign), Some(term), Some(until)) if reign.number == term => reign.lasts(until),
                (Some(reign), _, _) => {
                    let holds = term == Some(reign.number);
                    self.stop_work(shard, holds.then(|| now + HAND_OVER));
                }
                // Work that was stopped comes to its end first.
                (None, Some(term), Some(until)) if !self.machine.is_worked_on(shard) => {
                    self.begin_work(shard, term, until);
                }
                _ => {}
            }
        }
    }

    fn begin_work(&mut self, shard: usize, term: u64, until: tokio::time::Instant) {
        self.machine.began(shard, term);
        let (reign, held) = Reign::begin(term, until);
        self.reigns[shard] = Some(reign);
        self.begun = self.begun.saturating_add(1);
        let number = self.begun;
        self.set(shard, Some(Held { number, term: held }));
        tracing::info!(
            sharding = self.sharder.of.name,
            shard,
            term,
            "this replica works on a shard"
        );
        self.sharder.metrics.shard(&self.sharder.of.name, true);
    }

    /// Lets a shard take no more work. Until `until`, if it is held so long, its work may go on.
    fn stop_work(&mut self, shard: usize, until: Option<Instant>) {
        let Some(mut reign) = self.reigns[shard].take() else {
            return;
        };
        tracing::info!(
            sharding = self.sharder.of.name,
            shard,
            term = reign.number,
            "this replica stops work on a shard"
        );
        self.set(shard, None);
        let ended = reign.ended();
        self.ending.push(Box::pin(async move {
            ended.await;
            shard
        }));
        match until {
            Some(until) => drop(self.closing.insert(shard, (reign, until))),
            None => drop(reign), // it is over, and what works in it ends
        }
        self.sharder.metrics.shard(&self.sharder.of.name, false);
    }

    fn set(&self, shard: usize, held: Option<Held>) {
        self.sharder.held.send_modify(|terms| {
            if let Some(place) = terms.get_mut(shard) {
                *place = held;
            }
        });
    }

    /// Sends the due requests; answers until when no more are due.
    fn ask(&mut self, now: Instant) -> Instant {
        let mut wake = Instant::MAX;
        for slot in self.slots() {
            if self.busy.contains(&slot) {
                continue;
            }
            let (next, name) = (self.machine.next(slot, now), self.lease_of(slot));
            let requests = &self.sharder.requests;
            let flight = match next {
                Next::Wait(until) => {
                    wake = wake.min(until);
                    continue;
                }
                Next::Read => requests.read(&name),
                Next::Write(write) => {
                    let of = &self.sharder.of.name;
                    requests.write(&name, self.present.get(&slot), write, now, |lease| label(lease, of))
                }
            };
            self.busy.insert(slot);
            self.flights.push(Box::pin(async move { (slot, flight.await) }));
        }
        wake
    }

    fn learn(&mut self, slot: Slot, outcome: Outcome) {
        self.busy.remove(&slot);
        let now = self.now();
        let Some(election) = self.machine.election(slot) else {
            return;
        };
        let mut present = self.present.remove(&slot);
        let learnt = self.sharder.requests.learn(outcome, election, &mut present, now);
        self.present.extend(present.map(|lease| (slot, lease)));
        match learnt {
            Learnt::Seen => {}
            Learnt::Wrote => self.sharder.told = None,
            Learnt::Failed(why) => {
                let name = self.lease_of(slot);
                self.sharder.complain(format!("Lease {name}: {why}"));
            }
        }
    }

    fn hear(&mut self, told: Told) -> Result<()> {
        match told {
            Told::All(leases) => self.see_all(leases)?,
            Told::Lease(lease) => self.see(*lease)?,
            Told::Deleted(lease) => {
                let name = lease.metadata.name.unwrap_or_default();
                self.gone(&name);
            }
            Told::Blind(error) => {
                let why = format!("its Leases can be neither listed nor watched: {}", Chain(&error));
                self.sharder.complain(why);
            }
        }
        Ok(())
    }

    fn see_all(&mut self, leases: Vec<DynamicObject>) -> Result<()> {
        let listed: BTreeSet<String> = leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect();
        for lease in leases {
            self.see(lease)?;
        }
        for slot in self.slots().collect::<Vec<_>>() {
            if self.present.contains_key(&slot) && !listed.contains(&self.lease_of(slot)) {
                self.lost(slot);
            }
        }
        for member in self
            .machine
            .others()
            .filter(|name| !listed.contains(*name))
            .map(str::to_owned)
            .collect::<Vec<_>>()
        {
            self.machine.member_seen(&member, None, self.now());
        }
        self.machine.members_listed();
        self.delete_dead();
        Ok(())
    }

    fn see(&mut self, lease: DynamicObject) -> Result<()> {
        let (now, name) = (self.now(), lease.metadata.name.clone().unwrap_or_default());
        match self.slot_of(&name) {
            Some(slot) => {
                let Some(election) = self.machine.election(slot) else {
                    return Ok(());
                };
                let mut present = self.present.remove(&slot);
                self.sharder.requests.see(Some(lease), election, &mut present, now);
                self.present.extend(present.map(|lease| (slot, lease)));
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
        let known = self.reigns.len();
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
        match self.slot_of(name) {
            Some(slot) => self.lost(slot),
            None => self.machine.member_seen(name, None, self.now()),
        }
    }

    fn lost(&mut self, slot: Slot) {
        if let Some(election) = self.machine.election(slot) {
            election.lost_race();
        }
    }

    /// Deletes Leases of replicas that are long gone. The fastest replica deletes them; the others may fail.
    fn delete_dead(&self) {
        for (name, version) in self.machine.dead(self.now()) {
            let (api, name, limit) = (
                self.sharder.requests.api.clone(),
                name.to_owned(),
                self.sharder.requests.limit(),
            );
            let params = at_version(version);
            tokio::spawn(async move {
                if let Ok(Err(error)) = timeout(limit, api.delete(&name, &params)).await {
                    tracing::debug!(lease = name, error = %Chain(&error), "the Lease of a replica that is gone was not deleted");
                }
            });
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
        let own = present.get(&Slot::Member);
        let params = own
            .and_then(|lease| lease.metadata.resource_version.as_deref())
            .map(at_version);
        async move {
            let Some(params) = params else { return };
            if let Ok(Err(error)) = timeout(requests.limit(), requests.api.delete(&member, &params)).await {
                tracing::debug!(lease = member, error = %Chain(&error), "this replica's Lease was not deleted");
            }
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

/// The events of the Leases, for ever: a list and a watch from there, and again after the retry period.
fn watching(api: Api<DynamicObject>, name: &str, settings: Settings) -> BoxStream<'static, Told> {
    let selector: Arc<str> = Arc::from(format!("{LABEL}={name}"));
    stream::unfold(0_u64, move |round| {
        let (api, selector) = (api.clone(), selector.clone());
        async move {
            if round > 0 {
                sleep(settings.retry).await;
            }
            let told = match timeout(settings.renew, api.list(&ListParams::default().labels(&selector))).await {
                Ok(Ok(list)) => {
                    let version = list.metadata.resource_version.clone().unwrap_or_default();
                    let all = stream::iter([Told::All(list.items)]);
                    all.chain(changes(api, selector, version)).boxed()
                }
                Ok(Err(error)) => stream::iter([Told::Blind(error)]).boxed(),
                Err(_) => stream::iter([]).boxed(),
            };
            Some((told, round.saturating_add(1)))
        }
    })
    .flatten()
    .boxed()
}

/// One watch. That it fails is no matter: a list shows the same.
fn changes(api: Api<DynamicObject>, selector: Arc<str>, version: String) -> BoxStream<'static, Told> {
    let watch = async move {
        let params = WatchParams::default().labels(&selector).timeout(WATCH_SECONDS);
        api.watch(&params, &version).await.map(|events| {
            events.try_filter_map(|event| async {
                match event {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Ok(Some(Told::Lease(Box::new(lease)))),
                    WatchEvent::Deleted(lease) => Ok(Some(Told::Deleted(Box::new(lease)))),
                    WatchEvent::Bookmark(_) => Ok(None),
                    WatchEvent::Error(status) => Err(kube::Error::Api(status)),
                }
            })
        })
    };
    stream::once(watch)
        .try_flatten()
        .filter_map(|told| async {
            told.inspect_err(
                |error| tracing::debug!(error = %Chain(error), "the Leases are not watched; they are listed"),
            )
            .ok()
        })
        .boxed()
}
