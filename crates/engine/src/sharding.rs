//! Which of several replicas works on which keys: every key belongs to a shard, every shard to one replica at a time.
//!
//! Each shard has a Lease, and an [`Election`] of its own decides who holds it. So nothing new is needed for safety: a
//! shard's keys are worked on only within a term of its Lease (LE1, LE2), and the Lease is given back only when that
//! work has ended (LE3). This adds which replica *wants* which shard. Every replica has a Lease more, by which the
//! others see that it lives; from the names of those that live all of them compute the same assignment ([`assign`]). A
//! replica takes part in the elections of the shards that are assigned to it, and gives back the others. Two that see
//! different members want the same shard, and one of them waits; no view, however wrong or late, lets two work on one.
//!
//! Leader election is the case of one shard that every replica wants, without members ([`Sharding::single`]).
//!
//! Invariants:
//! - SH1 at most one replica works on a shard, as long as clocks run at nearly the same rate;
//! - SH2 a shard's Lease is given back only when the caller says that its work has ended ([`Sharding::ended`]), and
//!   taken again only then;
//! - SH3 a replica wants nothing before it has seen all members once, nor while its own membership is not renewed in
//!   time;
//! - SH4 where nothing fails any more every shard is worked on, by the replica that it is assigned to;
//! - SH5 the terms of a shard only grow, whichever replica held it.
//!
//! Not here: requests, timers, stopping work (the shell); how many shards there are, which all replicas must agree on
//! before.

mod assign;

use std::collections::BTreeMap;

use crate::election::{Election, Next, Record, Settings};
use crate::time::Instant;

pub use self::assign::{assign, fnv1a, shard_of};

/// A Lease that a replica takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseId {
    /// The one by which the others see that it lives.
    Member,
    /// That of a shard.
    Shard(usize),
}

/// For how many lease durations a member that is gone is kept, so that a slow watch does not bring it back.
const REMEMBERED: u32 = 4;

/// Another replica.
#[derive(Clone, Debug)]
struct Member {
    record: Record,
    /// When its Lease was first seen like this.
    at: Instant,
}

impl Member {
    fn dies(&self) -> Instant {
        self.at + self.record.lease
    }

    fn lives(&self, now: Instant) -> bool {
        !self.record.holder.is_empty() && now < self.dies()
    }
}

#[derive(Clone, Debug)]
struct Shard {
    election: Election,
    wanted: bool,
    /// The term in which it is worked on, until the caller says that this has ended.
    at_work: Option<u64>,
}

/// One replica's part in the sharding.
#[derive(Clone, Debug)]
pub struct Sharding {
    settings: Settings,
    /// The name of this replica among the members.
    name: String,
    /// That of its own Lease; without one there are no members.
    own: Option<Election>,
    others: BTreeMap<String, Member>,
    /// Whether all members were seen once.
    listed: bool,
    leaves: bool,
    shards: Vec<Shard>,
    /// The members that the present assignment was made for.
    assigned_to: Vec<String>,
}

impl Sharding {
    /// A replica that has seen nothing yet. `name` tells the members apart, and is the same on all replicas (the name
    /// of its Lease); `identity` is the holder that it writes. No two replicas may have the same of either.
    pub fn new(name: impl Into<String>, identity: impl Into<String>, shards: usize, settings: Settings) -> Sharding {
        let identity = identity.into();
        let shard = Shard {
            election: Election::new(identity.clone(), settings),
            wanted: false,
            at_work: None,
        };
        Sharding {
            settings,
            name: name.into(),
            own: Some(Election::new(identity, settings)),
            others: BTreeMap::new(),
            listed: false,
            leaves: false,
            shards: vec![shard; shards.max(1)],
            assigned_to: Vec::new(),
        }
    }

    /// One shard, which every replica wants: leader election.
    pub fn single(identity: impl Into<String>, settings: Settings) -> Sharding {
        let mut single = Sharding::new("", identity, 1, settings);
        single.own = None;
        single.shards[0].wanted = true;
        single
    }

    /// Whether work could begin at once (LE7). A replica that is not ready leaves what is free to the others for one
    /// lease duration: its membership comes so much later, or the only shard.
    pub fn set_ready(&mut self, ready: bool) {
        let first = self.own.as_mut().unwrap_or(&mut self.shards[0].election);
        first.set_ready(ready);
    }

    /// The Leases that it takes part in.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> + use<> {
        let member = self.own.as_ref().map(|_| LeaseId::Member);
        member.into_iter().chain((0..self.shards.len()).map(LeaseId::Shard))
    }

    /// The election of a Lease, which takes the Lease's contents and the outcomes of writes. `None`: there is no such
    /// Lease.
    pub fn election(&mut self, id: LeaseId) -> Option<&mut Election> {
        match id {
            LeaseId::Member => self.own.as_mut(),
            LeaseId::Shard(at) => self.shards.get_mut(at).map(|shard| &mut shard.election),
        }
    }

    /// The Lease of another member as it was read or as a watch shows it; `None`: it is gone.
    pub fn member_seen(&mut self, name: &str, record: Option<Record>, now: Instant) {
        if name == self.name {
            return;
        }
        let Some(record) = record else {
            self.others.remove(name);
            return;
        };
        match self.others.get(name) {
            Some(known) if known.record == record => {}
            _ => {
                self.others.insert(name.to_owned(), Member { record, at: now });
            }
        }
    }

    /// All Leases were told of, and are followed.
    pub fn followed(&mut self) {
        self.listed = true;
    }

    /// The Leases are not followed. That of a leader election is to be read then; a replica that sees no members has no
    /// use for the others (SH3).
    pub fn not_followed(&mut self) {
        if self.own.is_none() {
            self.shards[0].election.lost_race();
        }
    }

    /// The members that live, this one included, in the order of their names.
    pub fn members(&self, now: Instant) -> Vec<String> {
        let others = self.others.iter().filter(|(_, member)| member.lives(now));
        let mut names: Vec<String> = others.map(|(name, _)| name.clone()).collect();
        if !self.leaves && self.own.as_ref().is_some_and(|own| own.term(now).is_some()) {
            names.push(self.name.clone());
            names.sort();
        }
        names
    }

    /// Members that have been gone for long, with the version of their Leases: the caller may delete those.
    pub fn dead(&self, now: Instant) -> impl Iterator<Item = (&str, &str)> {
        let long = self.settings.lease.saturating_mul(REMEMBERED);
        let dead = self
            .others
            .iter()
            .filter(move |(_, member)| member.dies() + long <= now);
        dead.map(|(name, member)| (name.as_str(), member.record.version.as_str()))
    }

    /// Makes the assignment agree with the members that live; whether these have changed.
    pub fn refresh(&mut self, now: Instant) -> bool {
        let members = if self.listed { self.members(now) } else { Vec::new() };
        if members == self.assigned_to {
            return false;
        }
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let owners = assign(self.shards.len(), &names);
        for (shard, owner) in self.shards.iter_mut().zip(owners) {
            // Without this replica among them nothing is wanted (SH3).
            shard.wanted = owner == Some(self.name.as_str());
        }
        self.assigned_to = members;
        true
    }

    /// The term in which a shard may be worked on, and is to be: within it the caller works, and after
    /// [`Sharding::began`] it stops as soon as this answers anything else, and then tells [`Sharding::ended`].
    pub fn work(&self, shard: usize, now: Instant) -> Option<u64> {
        let shard = self.shards.get(shard)?;
        let term = shard.election.term(now)?;
        let may = shard.wanted && !self.leaves && !shard.election.is_leaving();
        (may && shard.at_work.is_none_or(|known| known == term)).then_some(term)
    }

    /// Work on a shard begins, in the term that [`Sharding::work`] answered.
    pub fn began(&mut self, shard: usize, term: u64) {
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.at_work = Some(term);
        }
    }

    /// Whether something works on a shard, perhaps of a term that is over.
    pub fn is_worked_on(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.at_work.is_some())
    }

    /// Everything that worked on a shard has ended.
    pub fn ended(&mut self, shard: usize) {
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.at_work = None;
        }
    }

    /// This replica ends: it gives everything back, each shard when its work has ended, and is no member any more.
    pub fn leave(&mut self) {
        self.leaves = true;
        self.own.iter_mut().for_each(Election::leave);
    }

    /// Whether nothing is left to do after [`Sharding::leave`].
    pub fn has_left(&self, now: Instant) -> bool {
        let idle = |shard: &Shard| shard.at_work.is_none() && shard.election.term(now).is_none();
        self.leaves && self.own.iter().all(Election::has_left) && self.shards.iter().all(idle)
    }

    /// The next step for a Lease now. One request for each is under way at a time.
    pub fn next(&mut self, id: LeaseId, now: Instant) -> Next {
        let at = match id {
            LeaseId::Member => return self.own.as_mut().map_or(Next::Wait(Instant::MAX), |own| own.next(now)),
            LeaseId::Shard(at) => at,
        };
        let leaves = self.leaves;
        let Some(shard) = self.shards.get_mut(at) else {
            return Next::Wait(Instant::MAX);
        };
        let (wanted, term) = (shard.wanted && !leaves, shard.election.term(now));
        match shard.at_work {
            // Any next step waits for the end of that work (SH2).
            Some(worked) if term != Some(worked) => return Next::Wait(Instant::MAX),
            Some(_) => return shard.election.next(now),
            None => {}
        }
        shard.election.stand_again();
        if !wanted && term.is_some() {
            shard.election.leave();
        }
        match wanted || shard.election.is_leaving() {
            true => shard.election.next(now),
            false => Next::Wait(Instant::MAX),
        }
    }

    /// Until when nothing changes by itself: a term that ends, a member that is not heard of. Never past.
    pub fn wake(&self, now: Instant) -> Instant {
        let terms = self.shards.iter().filter_map(|shard| shard.election.leads_until(now));
        let deaths = self
            .others
            .values()
            .filter(|member| member.lives(now))
            .map(Member::dies);
        let own = self.own.iter().filter_map(|own| own.leads_until(now));
        let wake = terms.chain(deaths).chain(own).min().unwrap_or(Instant::MAX);
        debug_assert!(now < wake, "a caller that sleeps until then would not sleep");
        wake
    }
}
