//! Several replicas, one Lease, and everything that goes wrong between them: requests that are slow, lost before or
//! after they took effect, watches that are late, processes that stop for a while and go on. In every case at most one
//! replica leads at a time (LE1), terms grow (LE6), and once nothing fails any more a replica leads soon.

use std::time::Duration;

use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Next, Purpose, Record, Settings, Write};
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};
const REPLICAS: usize = 3;
/// One step of the simulation.
const TICK: Duration = Duration::from_millis(500);

/// The fate of a replica in a step.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It works, and its requests are answered at once.
    Well,
    /// Its request takes effect, and its answer comes after so many steps.
    Slow(u64),
    /// Its request takes effect, and its answer is lost.
    AnswerLost,
    /// Its request is lost.
    RequestLost,
    /// The process is stopped for so many steps.
    Paused(u64),
    /// The watch shows it the Lease.
    Watch,
    /// The watch shows it the Lease as it was so many versions ago.
    LateWatch(usize),
    /// It ends its work and leaves; a new process comes in its place.
    Leaves,
    /// It ends without a word; a new process comes in its place.
    Crashes,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Well),
        1 => (1u64..30).prop_map(Fate::Slow),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::RequestLost),
        1 => (1u64..30).prop_map(Fate::Paused),
        2 => Just(Fate::Watch),
        1 => (1usize..5).prop_map(Fate::LateWatch),
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

struct Replica {
    election: Election,
    name: String,
    pending: Option<Pending>,
    paused: u64,
    leaving: bool,
}

struct World {
    now: Instant,
    lease: Option<Record>,
    history: Vec<Record>,
    version: u64,
    replicas: Vec<Replica>,
    born: usize,
    last_term: u64,
    leader: Option<String>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            now: Instant::ZERO,
            lease: None,
            history: Vec::new(),
            version: 0,
            replicas: Vec::new(),
            born: 0,
            last_term: 0,
            leader: None,
        };
        for _ in 0..REPLICAS {
            let replica = world.newborn();
            world.replicas.push(replica);
        }
        world
    }

    fn newborn(&mut self) -> Replica {
        self.born += 1;
        let name = format!("replica-{}", self.born);
        Replica {
            election: Election::new(&name, SETTINGS),
            name,
            pending: None,
            paused: 0,
            leaving: false,
        }
    }

    /// The server's answer to a write.
    fn write(&mut self, name: &str, write: &Write) -> Result<Option<Record>, Refused> {
        let present = self.lease.as_ref().map(|record| record.version.clone());
        if present != write.replaces {
            return Err(Refused::Conflict);
        }
        self.version += 1;
        let record = Record {
            holder: match write.purpose {
                Purpose::Release => String::new(),
                Purpose::Acquire | Purpose::Renew => name.to_owned(),
            },
            lease: SETTINGS.lease,
            transitions: write.transitions,
            version: self.version.to_string(),
        };
        self.lease = Some(record.clone());
        self.history.push(record.clone());
        Ok(Some(record))
    }

    fn answer(&mut self, at: usize) {
        let now = self.now;
        let replica = &mut self.replicas[at];
        let Some(pending) = replica.pending.take_if(|pending| pending.due <= now) else {
            return;
        };
        let election = &mut replica.election;
        match (pending.write, pending.answer) {
            (None, Ok(record)) => election.seen(record, now),
            (Some(write), Ok(Some(record))) => election.wrote(&write, record, pending.sent, now),
            (Some(write), Err(Refused::Failed)) => election.unknown(write, pending.sent, now, 0),
            (_, Err(Refused::Conflict)) => election.lost_race(),
            _ => election.failed(now, 0),
        }
    }

    fn request(&mut self, at: usize, fate: Fate) {
        let now = self.now;
        if self.replicas[at].pending.is_some() {
            return;
        }
        let write = match self.replicas[at].election.next(now) {
            Next::Wait(until) => {
                assert!(until > now, "a replica waits until {until}, and it is {now}");
                return;
            }
            Next::Read => None,
            Next::Write(write) => Some(write),
        };
        let name = self.replicas[at].name.clone();
        let answer = match (fate, &write) {
            (Fate::RequestLost, _) => Err(Refused::Failed),
            (_, Some(write)) => self.write(&name, write),
            (_, None) => Ok(self.lease.clone()),
        };
        let (due, answer) = match fate {
            Fate::Slow(steps) => (now + TICK * u32::try_from(steps).unwrap_or(1), answer),
            Fate::AnswerLost => (now, Err(Refused::Failed)),
            _ => (now, answer),
        };
        self.replicas[at].pending = Some(Pending {
            due,
            sent: now,
            write,
            answer,
        });
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
                    self.replicas[at].election.leave();
                }
                Fate::Watch => {
                    let lease = self.lease.clone();
                    self.replicas[at].election.seen(lease, self.now);
                }
                Fate::LateWatch(ago) => {
                    let old = self.history.iter().rev().nth(ago).cloned();
                    if old.is_some() {
                        self.replicas[at].election.seen(old, self.now);
                    }
                }
                _ => {}
            }
            self.answer(at);
            self.request(at, fate);
            self.answer(at);
            if self.replicas[at].leaving && self.replicas[at].election.has_left() {
                self.replicas[at] = self.newborn();
            }
            self.check();
        }
    }

    fn check(&mut self) {
        let now = self.now;
        // A replica that leaves has ended its work.
        let leaders: Vec<(String, u64)> = self
            .replicas
            .iter()
            .filter(|replica| !replica.leaving)
            .filter_map(|replica| Some((replica.name.clone(), replica.election.term(now)?)))
            .collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at {now}");
        if let Some((name, term)) = leaders.into_iter().next() {
            let before = self.leader.replace(name.clone());
            match before {
                Some(before) if before == name => assert!(term >= self.last_term, "{name}: term {term}"),
                Some(before) => assert!(
                    term > self.last_term,
                    "{before} led in {}, {name} in {term}",
                    self.last_term
                ),
                None => {}
            }
            self.last_term = term;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn le1_at_most_one_replica_leads(steps in prop::collection::vec([fate(), fate(), fate()], 1..200)) {
        let mut world = World::new();
        for fates in &steps {
            world.step(fates);
        }
        // Nothing fails any more: answers on their way arrive within 15 s, an old lease ends after 15 s, a failed
        // request is sent again after 2.4 s at most.
        for _ in 0..80 {
            world.step(&[Fate::Well; REPLICAS]);
        }
        let leads = |replica: &Replica| replica.election.term(world.now).is_some();
        prop_assert!(world.replicas.iter().any(leads), "nobody leads");
    }
}

/// After a crash another replica leads when the lease is over; after a release at once.
#[test]
fn a_leader_that_is_gone_is_followed() {
    for (fate, seconds) in [(Fate::Crashes, 16), (Fate::Leaves, 1)] {
        let mut world = World::new();
        world.step(&[Fate::Well; REPLICAS]);
        world.step(&[Fate::Well; REPLICAS]);
        let leads = |replica: &Replica, now| replica.election.term(now).is_some();
        assert!(leads(&world.replicas[0], world.now));
        // The candidates have seen the Lease.
        world.step(&[Fate::Well, Fate::Watch, Fate::Watch]);
        world.step(&[fate, Fate::Well, Fate::Well]);
        let gone = world.now;
        while !world.replicas[1..].iter().any(|replica| leads(replica, world.now)) {
            assert!(
                world.now.since(gone) < Duration::from_secs(seconds),
                "{fate:?}: nobody follows"
            );
            world.step(&[Fate::Paused(1), Fate::Watch, Fate::Watch]);
        }
    }
}
