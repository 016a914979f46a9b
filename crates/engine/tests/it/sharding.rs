//! Several replicas, the Leases of their shards and their own, and everything that goes wrong between them: requests
//! that are slow, lost before or after they took effect, watches that are late, processes that stop for a while, end or
//! crash, and work that takes its time to end. In every case at most one replica works on a shard (SH1, SH2), the terms
//! of each grow (SH5), and once nothing fails any more every shard is worked on by the replica that it is assigned to
//! (SH4). The same for the one shard of a leader election, which every replica wants.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright_engine::Instant;
use kubewright_engine::election::{Next, Purpose, Record, Settings, Write};
use kubewright_engine::sharding::{LeaseId, Sharding, assign};
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};
const REPLICAS: usize = 3;
const SHARDS: usize = 4;
/// One step of the simulation.
const TICK: Duration = Duration::from_millis(500);
/// How many steps a slow request, a pause, or work that ends may take.
const LONG: u64 = 30;

/// The fate of a replica in a step.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its requests are answered at once, and the watch shows it everything.
    Well,
    /// Its requests take effect, and their answers come after so many steps.
    Slow(u64),
    /// Its requests take effect, and their answers are lost.
    AnswersLost,
    /// Its requests are lost.
    RequestsLost,
    /// The process is stopped for so many steps.
    Paused(u64),
    /// Its requests are answered, and the watch shows nothing.
    Blind,
    /// The watch shows it everything as it was so many steps ago.
    LateWatch(usize),
    /// Work that it stops in this step and the next ones takes so many steps to end.
    SlowWork(u64),
    /// It gives everything back; a new process comes in its place.
    Leaves,
    /// It ends without a word; a new process comes in its place.
    Crashes,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Well),
        1 => (1..LONG).prop_map(Fate::Slow),
        1 => Just(Fate::AnswersLost),
        1 => Just(Fate::RequestsLost),
        1 => (1..LONG).prop_map(Fate::Paused),
        1 => Just(Fate::Blind),
        2 => (1usize..40).prop_map(Fate::LateWatch),
        1 => (1..LONG).prop_map(Fate::SlowWork),
        1 => Just(Fate::Leaves),
        1 => Just(Fate::Crashes),
    ]
}

/// An answer on its way.
struct Pending {
    due: Instant,
    sent: Instant,
    write: Option<Write>,
    answer: Result<Option<Record>, Refused>,
}

#[derive(Clone, Copy)]
enum Refused {
    Conflict,
    Failed,
}

/// Work on a shard: its term and, once it was asked to stop, how many steps it still takes.
#[derive(Clone, Copy)]
struct Working {
    term: u64,
    ends_in: Option<u64>,
}

struct Replica {
    sharding: Sharding,
    name: String,
    pending: BTreeMap<LeaseId, Pending>,
    working: [Option<Working>; SHARDS],
    slow_work: u64,
    paused: u64,
    leaving: bool,
}

/// All Leases, by name.
type Leases = BTreeMap<String, Record>;

struct World {
    /// Leader election.
    single: bool,
    now: Instant,
    leases: Leases,
    history: Vec<Leases>,
    version: u64,
    replicas: Vec<Replica>,
    born: usize,
    terms: [Option<(String, u64)>; SHARDS],
}

impl World {
    fn new(single: bool) -> World {
        let mut world = World {
            single,
            now: Instant::ZERO,
            leases: Leases::new(),
            history: Vec::new(),
            version: 0,
            replicas: Vec::new(),
            born: 0,
            terms: [const { None }; SHARDS],
        };
        for _ in 0..REPLICAS {
            let replica = world.newborn();
            world.replicas.push(replica);
        }
        world
    }

    fn newborn(&mut self) -> Replica {
        self.born += 1;
        let name = format!("member-{}", self.born);
        let sharding = match self.single {
            true => Sharding::single(&name, SETTINGS),
            false => Sharding::new(&name, &name, SHARDS, SETTINGS),
        };
        Replica {
            sharding,
            name,
            pending: BTreeMap::new(),
            working: [None; SHARDS],
            slow_work: 0,
            paused: 0,
            leaving: false,
        }
    }

    fn lease_of(&self, at: usize, id: LeaseId) -> String {
        match id {
            LeaseId::Member => self.replicas[at].name.clone(),
            LeaseId::Shard(shard) => format!("shard-{shard}"),
        }
    }

    /// The server's answer to a write.
    fn write(&mut self, lease: String, holder: &str, write: &Write) -> Result<Option<Record>, Refused> {
        let present = self.leases.get(&lease).map(|record| record.version.clone());
        if present != write.replaces {
            return Err(Refused::Conflict);
        }
        self.version += 1;
        let record = Record {
            holder: match write.purpose {
                Purpose::Release => String::new(),
                Purpose::Acquire | Purpose::Renew => holder.to_owned(),
            },
            lease: SETTINGS.lease,
            transitions: write.transitions,
            version: self.version.to_string(),
        };
        self.leases.insert(lease, record.clone());
        Ok(Some(record))
    }

    fn answer(&mut self, at: usize) {
        let now = self.now;
        for id in self.replicas[at].sharding.leases() {
            let replica = &mut self.replicas[at];
            if replica.pending.get(&id).is_none_or(|pending| pending.due > now) {
                continue;
            }
            let (Some(pending), Some(election)) = (replica.pending.remove(&id), replica.sharding.election(id)) else {
                continue;
            };
            match (pending.write, pending.answer) {
                (None, Ok(record)) => election.seen(record, now),
                (Some(write), Ok(Some(record))) => election.wrote(&write, record, pending.sent, now),
                (Some(write), Err(Refused::Failed)) => election.unknown(write, pending.sent, now, 0),
                (_, Err(Refused::Conflict)) => election.lost_race(),
                _ => election.failed(now, 0),
            }
        }
    }

    fn request(&mut self, at: usize, fate: Fate) {
        let now = self.now;
        for id in self.replicas[at].sharding.leases() {
            if self.replicas[at].pending.contains_key(&id) {
                continue;
            }
            let write = match self.replicas[at].sharding.next(id, now) {
                Next::Wait(until) => {
                    assert!(until > now, "{id:?} waits until {until}, and it is {now}");
                    continue;
                }
                Next::Read => None,
                Next::Write(write) => Some(write),
            };
            if let (LeaseId::Shard(shard), Some(write)) = (id, &write) {
                let works = self.replicas[at].working[shard].is_some();
                assert!(
                    !works || write.purpose == Purpose::Renew,
                    "{write:?} while shard {shard} is worked on"
                );
            }
            let (name, lease) = (self.replicas[at].name.clone(), self.lease_of(at, id));
            let answer = match (fate, &write) {
                (Fate::RequestsLost, _) => Err(Refused::Failed),
                (_, Some(write)) => self.write(lease, &name, write),
                (_, None) => Ok(self.leases.get(&lease).cloned()),
            };
            let (due, answer) = match fate {
                Fate::Slow(steps) => (now + TICK * u32::try_from(steps).unwrap_or(1), answer),
                Fate::AnswersLost => (now, Err(Refused::Failed)),
                _ => (now, answer),
            };
            let pending = Pending {
                due,
                sent: now,
                write,
                answer,
            };
            self.replicas[at].pending.insert(id, pending);
        }
    }

    /// The state that a watch shows, now or some steps ago.
    fn watch(&mut self, at: usize, ago: usize) {
        let leases = match ago {
            0 => self.leases.clone(),
            ago => match self.history.iter().rev().nth(ago) {
                Some(leases) => leases.clone(),
                None => return,
            },
        };
        let now = self.now;
        let sharding = &mut self.replicas[at].sharding;
        for (name, record) in &leases {
            match name.strip_prefix("shard-").and_then(|shard| shard.parse().ok()) {
                Some(shard) => {
                    if let Some(election) = sharding.election(LeaseId::Shard(shard)) {
                        election.seen(Some(record.clone()), now);
                    }
                }
                None => sharding.member_seen(name, Some(record.clone()), now),
            }
        }
        sharding.followed();
    }

    /// Work begins and ends as the machine says.
    fn work(&mut self, at: usize) {
        let now = self.now;
        let replica = &mut self.replicas[at];
        replica.sharding.refresh(now);
        for (shard, working) in replica.working.iter_mut().enumerate() {
            let may = replica.sharding.work(shard, now);
            let Some(worked) = working else {
                if let Some(term) = may {
                    replica.sharding.began(shard, term);
                    *working = Some(Working { term, ends_in: None });
                }
                continue;
            };
            if may != Some(worked.term) {
                let left = worked.ends_in.unwrap_or(replica.slow_work);
                // When the term is over all work is dropped, however long it would have taken.
                let holds = replica
                    .sharding
                    .election(LeaseId::Shard(shard))
                    .and_then(|election| election.term(now));
                if left == 0 || holds != Some(worked.term) {
                    *working = None;
                    replica.sharding.ended(shard);
                } else {
                    worked.ends_in = Some(left - 1);
                }
            }
        }
    }

    fn step(&mut self, fates: &[Fate]) {
        self.now = self.now + TICK;
        for (at, fate) in fates.iter().copied().enumerate() {
            let paused = &mut self.replicas[at].paused;
            if *paused > 0 {
                *paused -= 1;
                continue;
            }
            match fate {
                Fate::Paused(steps) => {
                    *paused = steps;
                    continue;
                }
                Fate::Crashes => self.replicas[at] = self.newborn(),
                Fate::Leaves => {
                    self.replicas[at].leaving = true;
                    self.replicas[at].sharding.leave();
                }
                Fate::SlowWork(steps) => self.replicas[at].slow_work = steps,
                _ => {}
            }
            match fate {
                Fate::Blind => {}
                Fate::LateWatch(ago) => self.watch(at, ago),
                _ => self.watch(at, 0),
            }
            self.answer(at);
            self.work(at);
            self.request(at, fate);
            self.answer(at);
            self.work(at);
            let wake = self.replicas[at].sharding.wake(self.now);
            assert!(wake > self.now, "a replica sleeps until {wake}, and it is {}", self.now);
            let replica = &self.replicas[at];
            if replica.leaving && replica.sharding.has_left(self.now) {
                assert!(replica.working.iter().all(Option::is_none));
                self.replicas[at] = self.newborn();
            }
            self.check();
        }
        self.history.push(self.leases.clone());
    }

    /// Who works on a shard: a paused process does nothing, and when it goes on it looks at its term before it does
    /// anything.
    fn workers(&mut self, shard: usize) -> Vec<(String, u64)> {
        let now = self.now;
        let mut workers = Vec::new();
        for replica in &mut self.replicas {
            let election = replica.sharding.election(LeaseId::Shard(shard));
            let term = election.and_then(|election| election.term(now));
            if let Some(working) = replica.working[shard].filter(|working| term == Some(working.term)) {
                workers.push((replica.name.clone(), working.term));
            }
        }
        workers
    }

    fn check(&mut self) {
        for shard in 0..SHARDS {
            let workers = self.workers(shard);
            assert!(workers.len() <= 1, "{workers:?} work on shard {shard} at {}", self.now);
            let Some((name, term)) = workers.into_iter().next() else {
                continue;
            };
            if let Some((before, number)) = &self.terms[shard] {
                let grows = if *before == name {
                    term >= *number
                } else {
                    term > *number
                };
                assert!(grows, "shard {shard}: {before} in {number}, {name} in {term}");
            }
            self.terms[shard] = Some((name, term));
        }
    }

    /// Whether each shard is worked on by the replica that it is assigned to.
    fn settled(&mut self) -> bool {
        if self.single {
            return self.workers(0).len() == 1;
        }
        let names: Vec<String> = self.replicas.iter().map(|replica| replica.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let owners = assign(SHARDS, &names);
        (0..SHARDS).all(|shard| {
            let workers = self.workers(shard);
            workers.first().map(|(name, _)| name.as_str()) == owners[shard]
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn sh1_at_most_one_replica_works_on_a_shard(
        single in any::<bool>(),
        steps in prop::collection::vec([fate(), fate(), fate()], 1..200),
    ) {
        let mut world = World::new(single);
        for fates in &steps {
            world.step(fates);
        }
        // Nothing fails any more: answers on their way arrive and work ends within 15 s, members that are gone are
        // forgotten and old leases end after 15 s more, and a shard may change hands once more.
        for replica in &mut world.replicas {
            replica.slow_work = 0;
        }
        for _ in 0..160 {
            world.step(&[Fate::Well; REPLICAS]);
        }
        prop_assert!(world.settled(), "some shard is not worked on by the replica that it is assigned to");
    }
}

/// A replica that leaves is followed at once, one that crashes when its Leases are over, and a new one is given its
/// share.
#[test]
fn shards_of_a_replica_that_is_gone_are_taken() {
    for (fate, seconds) in [(Fate::Leaves, 2), (Fate::Crashes, 18)] {
        let mut world = World::new(false);
        while !world.settled() {
            assert!(world.now < Instant::ZERO + Duration::from_secs(5), "nobody begins");
            world.step(&[Fate::Well; REPLICAS]);
        }
        world.step(&[fate, Fate::Well, Fate::Well]);
        let gone = world.now;
        let of_first = world.replicas[0].name.clone();
        let taken =
            |world: &mut World| (0..SHARDS).all(|shard| world.workers(shard).iter().any(|(name, _)| *name != of_first));
        while !taken(&mut world) {
            let since = world.now.since(gone);
            assert!(
                since < Duration::from_secs(seconds),
                "{fate:?}: not all shards are worked on after {since:?}"
            );
            world.step(&[Fate::Paused(1), Fate::Well, Fate::Well]);
        }
    }
}

/// SH3: a replica that cannot renew its own membership wants no shard, and neither does one that has not seen the
/// others.
#[test]
fn sh3_who_is_no_member_wants_nothing() {
    let mut world = World::new(false);
    world.step(&[Fate::Blind, Fate::Blind, Fate::Blind]);
    world.step(&[Fate::Blind, Fate::Blind, Fate::Blind]);
    assert!(
        !world.leases.keys().any(|lease| lease.starts_with("shard-")),
        "{:?}",
        world.leases
    );
}
