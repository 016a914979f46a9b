//! The task that takes part in elections, of one Lease or of several: obeys the engine's [`Sharding`], one request a
//! Lease at a time, and publishes the terms.
//!
//! The Leases are watched, so that a holder that gives one back is followed at once. A request that hangs delays no
//! stand-down: the end of a term is a timer of its own. Neither does work that blocks its thread keep the replica out of
//! an election: one lease duration after the end of the term, when another replica may hold the Lease already, it is
//! waited for no longer.
//!
//! Not here: what the Leases are for and who is told ([`Elected`]): `leader.rs`, `sharding/sharder.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::core::DynamicObject;
use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Next};
use kubewright_engine::sharding::{LeaseId, Sharding};
use tokio::time::sleep_until;

use super::lease;
use super::request::{LeaseUpdate, Outcome, Requests, Warnings};
use super::watch::{LeaseEvent, Leases};
use crate::cache::Scope;
use crate::error::Result;
use crate::stop::Stop;
use crate::term::{AllHeld, Ended, Held, Term};
use crate::watch;

/// What is elected: the names of its Leases, and who is told.
pub(crate) trait Elected {
    /// For how long work may go on after the replica wants it no more: its Lease is held meanwhile. Then it is dropped.
    const HAND_OVER: Duration;

    /// The Leases to follow.
    fn scope(&self) -> Scope;

    fn name_of(&self, id: LeaseId) -> String;

    fn role_of(&self, lease: &str) -> Role;

    /// Adds the other fields of a new Lease.
    fn prepare(&self, _new: &mut DynamicObject) {}

    /// What this replica works on is about to change. `lease`: as it was last seen.
    fn changes(&self, shard: usize, change: Change, lease: Option<&DynamicObject>);

    /// The shards are assigned to these members.
    fn assigned(&self, _members: &[String]) {}

    /// A Lease that is nobody's was read. An error ends everything.
    fn check(&self, _lease: &DynamicObject) -> Result<()> {
        Ok(())
    }
}

/// Whose a Lease is.
pub(crate) enum Role {
    /// This replica takes part in its election.
    Ours(LeaseId),
    /// Another replica's membership.
    Member,
    /// Nobody's.
    Other,
}

/// A change of what this replica works on.
pub(crate) enum Change {
    Begins {
        term: u64,
    },
    /// It takes no more work.
    Ends {
        term: u64,
        /// Because the operator stops.
        leaving: bool,
    },
}

/// Takes part in elections.
pub(crate) struct Elections<E> {
    of: E,
    machine: Sharding,
    requests: Requests,
    /// The Leases as they were last seen; fields of other clients in them are kept.
    present: BTreeMap<LeaseId, Option<DynamicObject>>,
    /// Leases with a request under way.
    busy: BTreeSet<LeaseId>,
    flights: FuturesUnordered<BoxFuture<'static, (LeaseId, Outcome)>>,
    /// The shards that are worked on, as long as their terms go on.
    terms: Vec<Option<Working>>,
    /// Resolve when everything that worked on a shard has ended.
    ending: FuturesUnordered<BoxFuture<'static, (usize, Ended)>>,
    held: watch::Sender<AllHeld>,
    /// How often work has begun.
    begun: u64,
    leaving: bool,
    /// About requests, and about the watch.
    warnings: Warnings,
    blind: Warnings,
    origin: tokio::time::Instant,
}

/// Work on a shard.
struct Working {
    term: Term,
    /// It takes no more work, and what runs is dropped at this moment.
    closes: Option<Instant>,
}

impl<E: Elected> Elections<E> {
    pub(crate) fn new(of: E, machine: Sharding, requests: Requests, held: watch::Sender<AllHeld>) -> Elections<E> {
        let shards = machine.leases().filter(|id| matches!(id, LeaseId::Shard(_))).count();
        held.send_replace(vec![None; shards]);
        Elections {
            of,
            machine,
            requests,
            present: BTreeMap::new(),
            busy: BTreeSet::new(),
            flights: FuturesUnordered::new(),
            terms: std::iter::repeat_with(|| None).take(shards).collect(),
            ending: FuturesUnordered::new(),
            held,
            begun: 0,
            leaving: false,
            warnings: Warnings::default(),
            blind: Warnings::default(),
            origin: tokio::time::Instant::now(),
        }
    }

    /// Runs until the stop, then gives every Lease back once its work has ended. `ready`: whether work could begin at
    /// once (LE7).
    pub(crate) async fn run(mut self, mut ready: watch::Receiver<bool>, stop: Stop) -> Result<()> {
        let mut leases = Leases::follow(&self.requests, self.of.scope());
        loop {
            let now = self.now();
            self.publish(now);
            if self.leaving && self.machine.has_left(now) {
                if let Some(deleted) = self.delete_own() {
                    deleted.await;
                }
                return Ok(());
            }
            self.machine.set_ready(*ready.borrow_and_update());
            let closes = self.terms.iter().flatten().filter_map(|working| working.closes).min();
            let due = self.ask(now).min(self.machine.wake(now));
            let due = due.min(closes.unwrap_or(Instant::MAX));
            let origin = self.origin;
            tokio::select! {
                biased;
                () = stop.requested(), if !self.leaving => {
                    self.leaving = true;
                    self.machine.leave();
                }
                Some((id, outcome)) = self.flights.next() => self.on_outcome(id, outcome),
                Some((shard, ended)) = self.ending.next() => {
                    self.on_end(shard, ended);
                    if self.leaving && ended == Ended::Blocked {
                        return Ok(()); // the Leases run out by themselves
                    }
                }
                event = leases.next() => self.on_event(event)?,
                Ok(()) = ready.changed() => {}
                () = sleep_to(origin, due) => {}
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    /// Publishes the state of the machine.
    fn publish(&mut self, now: Instant) {
        if self.machine.refresh(now) {
            self.of.assigned(&self.machine.members(now));
        }
        for shard in 0..self.terms.len() {
            let wanted = self.machine.work(shard, now).is_some();
            let election = self.machine.election(LeaseId::Shard(shard));
            let leads = election.and_then(|election| Some((election.term(now)?, election.leads_until(now)?)));
            let leads = leads.map(|(number, until)| (number, self.origin + until.since(Instant::ZERO)));
            let Some(working) = &mut self.terms[shard] else {
                // Work that was stopped comes to its end first.
                if let Some((number, until)) = leads.filter(|_| wanted && !self.machine.is_worked_on(shard)) {
                    self.begin_work(shard, number, until);
                }
                continue;
            };
            let goes_on = leads.filter(|(number, _)| *number == working.term.number);
            if working.closes.is_none() && !(wanted && goes_on.is_some()) {
                working.closes = Some(now + E::HAND_OVER);
                let (term, ended) = (working.term.number, working.term.ended());
                self.ending.push(Box::pin(async move { (shard, ended.await) }));
                self.set(shard, None);
                let leaving = self.leaving;
                self.tell(shard, Change::Ends { term, leaving });
            }
            let Some(working) = &self.terms[shard] else { continue };
            match goes_on.filter(|_| working.closes.is_none_or(|closes| now < closes)) {
                Some((_, until)) => working.term.renew(until),
                None => self.terms[shard] = None, // over: what works in it ends
            }
        }
    }

    fn begin_work(&mut self, shard: usize, number: u64, until: tokio::time::Instant) {
        self.machine.began(shard, number);
        let (term, permit) = Term::begin(number, until, self.requests.settings.lease);
        self.terms[shard] = Some(Working { term, closes: None });
        self.begun = self.begun.saturating_add(1);
        let generation = self.begun;
        self.tell(shard, Change::Begins { term: number });
        // Last (LE9): the work begins with this, on another thread.
        self.set(shard, Some(Held { generation, permit }));
    }

    fn set(&self, shard: usize, held: Option<Held>) {
        self.held.send_modify(|all| all[shard] = held);
    }

    fn tell(&self, shard: usize, change: Change) {
        let lease = self.present.get(&LeaseId::Shard(shard)).and_then(Option::as_ref);
        self.of.changes(shard, change, lease);
    }

    /// The work on a shard has ended, or does not end. As long as the Lease is held, work that does not end keeps it
    /// (SH2): only a restart helps, for which the liveness probe asks. When it is not held others may work already.
    fn on_end(&mut self, shard: usize, ended: Ended) {
        self.terms[shard] = None;
        let (now, id) = (self.now(), LeaseId::Shard(shard));
        let holds = self
            .machine
            .election(id)
            .is_some_and(|election| election.term(now).is_some());
        if ended == Ended::Blocked {
            let lease = self.of.name_of(id);
            tracing::error!(lease, holds, "work of an earlier term blocks its thread");
        }
        if ended == Ended::All || !holds {
            self.machine.ended(shard);
        }
    }

    /// Sends the due requests; answers until when no more are due.
    fn ask(&mut self, now: Instant) -> Instant {
        let mut due = Instant::MAX;
        for id in self.machine.leases() {
            if self.busy.contains(&id) {
                continue;
            }
            let flight = match self.machine.next(id, now) {
                Next::Wait(until) => {
                    due = due.min(until);
                    continue;
                }
                Next::Read => self.requests.read(&self.of.name_of(id)),
                Next::Write(write) => {
                    let (name, present) = (self.of.name_of(id), self.present.get(&id).and_then(Option::as_ref));
                    let prepare = |new: &mut DynamicObject| self.of.prepare(new);
                    self.requests.write(&name, present, write, now, prepare)
                }
            };
            self.busy.insert(id);
            self.flights.push(Box::pin(async move { (id, flight.await) }));
        }
        due
    }

    fn on_outcome(&mut self, id: LeaseId, outcome: Outcome) {
        self.busy.remove(&id);
        let update = self.update(id, |requests, election, present, now| {
            requests.apply(outcome, election, present, now)
        });
        match update {
            None | Some(LeaseUpdate::Read) => {}
            Some(LeaseUpdate::Wrote) => self.warnings.clear(),
            Some(LeaseUpdate::Failed(why)) => self.warnings.say(&self.of.name_of(id), why),
        }
    }

    fn on_event(&mut self, event: LeaseEvent) -> Result<()> {
        let now = self.now();
        match event {
            LeaseEvent::Followed => {
                self.blind.clear();
                self.machine.followed();
                self.delete_dead(now);
            }
            LeaseEvent::Failed(why) => {
                self.machine.not_followed();
                let name = self.of.name_of(LeaseId::Shard(0));
                self.blind
                    .say(&name, format!("Leases are neither listed nor watched: {why}"));
            }
            LeaseEvent::Changed(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                match self.of.role_of(&name) {
                    Role::Ours(id) => {
                        self.update(id, |requests, election, present, now| {
                            requests.see(Some(*lease), election, present, now);
                        });
                    }
                    Role::Member => {
                        let record = lease::record(&lease, self.requests.settings.lease);
                        self.machine.member_seen(&name, Some(record), now);
                    }
                    Role::Other => self.of.check(&lease)?,
                }
            }
            LeaseEvent::Deleted(name) => match self.of.role_of(&name) {
                // It may have been made since; a read tells.
                Role::Ours(id) => self.machine.election(id).into_iter().for_each(Election::lost_race),
                Role::Member | Role::Other => self.machine.member_seen(&name, None, now),
            },
        }
        Ok(())
    }

    /// Tells the election of a Lease what became of that.
    fn update<T>(
        &mut self,
        id: LeaseId,
        change: impl FnOnce(&Requests, &mut Election, &mut Option<DynamicObject>, Instant) -> T,
    ) -> Option<T> {
        let now = self.now();
        let election = self.machine.election(id)?;
        let before = election.holder().map(str::to_owned);
        let changed = change(&self.requests, election, self.present.entry(id).or_default(), now);
        let others = |holder: &&str| !holder.is_empty() && *holder != self.requests.identity;
        if let Some(holder) = election
            .holder()
            .filter(others)
            .filter(|holder| before.as_deref() != Some(holder))
        {
            tracing::info!(lease = self.of.name_of(id), holder, "another replica holds it");
        }
        Some(changed)
    }

    /// Deletes Leases of replicas that are long gone. The fastest replica deletes them; the others may fail.
    fn delete_dead(&self, now: Instant) {
        for (name, version) in self.machine.dead(now) {
            drop(tokio::spawn(self.requests.delete(name, version)));
        }
    }

    /// The own Lease goes with the replica.
    fn delete_own(&self) -> Option<BoxFuture<'static, ()>> {
        let own = self.present.get(&LeaseId::Member)?.as_ref()?;
        let version = own.metadata.resource_version.as_deref()?;
        Some(self.requests.delete(&self.of.name_of(LeaseId::Member), version))
    }
}

/// Resolves at a moment of the elections.
async fn sleep_to(origin: tokio::time::Instant, due: Instant) {
    let at = origin.checked_add(due.since(Instant::ZERO));
    match at.filter(|_| due < Instant::MAX) {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
