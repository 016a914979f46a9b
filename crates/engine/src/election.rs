//! Who of several replicas acts: leader election by a Lease (client-go's `leaderelection`), as a machine.
//!
//! [`Election`] takes the contents of the Lease and the outcomes of its own writes, and answers the next step
//! ([`Next`]). One request is under way at a time. Time is local: it is measured from when a change of the Lease was
//! seen, and never compared with times that others wrote, so that clocks may differ; their rates may not.
//!
//! Invariants:
//! - LE1 at most one replica leads, as long as clocks run at nearly the same rate;
//! - LE2 who leads stops [`Settings::renew`] after the last renewal that succeeded was *sent*;
//! - LE3 a lease is given back only when the caller says that its work has ended ([`Election::leave`]);
//! - LE4 a candidate waits the whole lease from the last change that it saw;
//! - LE5 a write that lost a race is no leadership, and one of unknown outcome is none before it was read;
//! - LE6 each time of leading has a number of its own that only grows ([`Election::term`]), whichever replica led
//!   before; a Lease that is deleted is counted on by every replica that knew it;
//! - LE7 a candidate whose work could not begin at once leaves a free Lease to the others for one lease duration.
//!
//! Not here: requests, timers, waiting for guarded work (the shell), and coordinated election (KEP-4355).

use std::cmp::Ordering;
use std::time::Duration;

use crate::meta;
use crate::time::Instant;

/// How long leading lasts and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long others wait for a leader that they do not hear of (`LeaseDuration`). Default 15 s.
    pub lease: Duration,
    /// How long a leader goes on without a successful renewal (`RenewDeadline`). Default 10 s.
    pub renew: Duration,
    /// How long after a renewal, or after a request that failed, the next one is sent (`RetryPeriod`). Default 2 s.
    pub retry: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// Whether they fit together (`NewLeaderElector`): a leader must have time to try again before it stops, and must
    /// stop before others begin.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub fn check(&self) -> Result<(), String> {
        let Settings { lease, renew, retry } = self;
        if self.lease < Duration::from_secs(1) {
            return Err(format!(
                "the lease duration {lease:?} is shorter than a second, which is the unit of a Lease"
            ));
        }
        if lease <= renew {
            return Err(format!(
                "the lease duration {lease:?} must be longer than the renew deadline {renew:?}"
            ));
        }
        if *renew <= retry.mul_f64(JITTER) {
            return Err(format!(
                "the renew deadline {renew:?} must be longer than {JITTER} times the retry period {retry:?}"
            ));
        }
        if retry.is_zero() {
            return Err("the retry period must be longer than nothing".to_owned());
        }
        Ok(())
    }
}

/// By how much a retry may be late, as a factor.
const JITTER: f64 = 1.2;

/// The contents of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The leader; empty: none.
    pub holder: String,
    /// How long it leads without a renewal (`leaseDurationSeconds`).
    pub lease: Duration,
    /// How often the holder has changed (`leaseTransitions`).
    pub transitions: u64,
    /// The resourceVersion.
    pub version: String,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease, and tell [`Election::seen`] or [`Election::failed`].
    Read,
    /// Write the Lease, and tell [`Election::wrote`], [`Election::failed`] or [`Election::unknown`].
    Write(Write),
    /// Nothing before this moment, unless the Lease changes.
    Wait(Instant),
}

/// A write of the Lease: the holder is this replica, or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Why.
    pub purpose: Purpose,
    /// The resourceVersion that it replaces; none: it is created.
    pub replaces: Option<String>,
    /// `leaseTransitions` to write.
    pub transitions: u64,
}

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To lead from now on.
    Acquire,
    /// To go on leading.
    Renew,
    /// To let others lead.
    Release,
}

#[derive(Clone, Debug)]
struct Observed {
    record: Option<Record>,
    /// When it was first seen like this.
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Leading {
    term: u64,
    /// When the latest write that succeeded was sent.
    renewed: Instant,
}

/// One replica's part in an election.
#[derive(Clone, Debug)]
pub struct Election {
    settings: Settings,
    identity: String,
    observed: Option<Observed>,
    /// Whether the seen Lease may be old: a write of ours has an unknown outcome, or lost a race.
    doubtful: bool,
    held: Option<Leading>,
    /// A write of unknown outcome, and when it was sent.
    unknown: Option<(Write, Instant)>,
    /// The greatest number of a term that is known: a Lease that is deleted and made again must not count from the
    /// beginning (LE6).
    greatest: Option<u64>,
    /// No request before.
    not_before: Instant,
    /// Whether the work could begin at once.
    ready: bool,
    leaves: bool,
}

impl Election {
    /// A candidate that has seen nothing yet. `identity` is the holder that it writes; no two replicas may have the
    /// same.
    pub fn new(identity: impl Into<String>, settings: Settings) -> Election {
        Election {
            settings,
            identity: identity.into(),
            observed: None,
            doubtful: true,
            held: None,
            unknown: None,
            greatest: None,
            not_before: Instant::ZERO,
            ready: true,
            leaves: false,
        }
    }

    /// Whether the guarded work could begin at once. A candidate that is not ready leaves a free Lease to the others
    /// for one lease duration, and then takes it (LE7). A candidate is ready unless it says otherwise.
    pub fn set_ready(&mut self, ready: bool) {
        self.ready = ready;
    }

    /// The number of the time of leading that is going on: greater than that of every earlier one, of this replica or
    /// another.
    pub fn term(&self, now: Instant) -> Option<u64> {
        self.leads_until(now).and(self.held).map(|held| held.term)
    }

    /// Until when it leads if no renewal succeeds any more; `None` when it does not lead. Never past, so that a caller
    /// may sleep until then.
    pub fn leads_until(&self, now: Instant) -> Option<Instant> {
        let until = self.held?.renewed + self.settings.renew;
        (now < until).then_some(until)
    }

    /// The resourceVersion at which the Lease was last seen; `None`: there is none, or it was not seen yet.
    pub fn version(&self) -> Option<&str> {
        self.observed
            .as_ref()?
            .record
            .as_ref()
            .map(|record| record.version.as_str())
    }

    /// The leader when the Lease was last seen; empty: none.
    pub fn holder(&self) -> Option<&str> {
        self.observed
            .as_ref()?
            .record
            .as_ref()
            .map(|record| record.holder.as_str())
    }

    /// The guarded work has ended and shall not begin again: the lease is given back, if it is still held.
    pub fn leave(&mut self) {
        self.leaves = true;
    }

    /// Whether nothing is left to do after [`Election::leave`].
    pub fn has_left(&self) -> bool {
        self.leaves && self.held.is_none()
    }

    /// Whether [`Election::leave`] was called.
    pub fn is_leaving(&self) -> bool {
        self.leaves
    }

    /// Takes [`Election::leave`] back, when it has left: it is a candidate again, and counts terms on.
    pub fn stand_again(&mut self) {
        self.leaves &= !self.has_left();
    }

    /// The next step now.
    pub fn next(&mut self, now: Instant) -> Next {
        self.stand_down_if_late(now);
        if self.has_left() {
            return Next::Wait(Instant::MAX);
        }
        if now < self.not_before {
            return Next::Wait(self.wake(now));
        }
        let Some(seen) = self.observed.as_ref().filter(|_| !self.doubtful) else {
            return Next::Read;
        };
        match (&seen.record, self.held) {
            (Some(record), Some(_)) if self.leaves => Next::Write(Write {
                purpose: Purpose::Release,
                replaces: Some(record.version.clone()),
                transitions: record.transitions,
            }),
            (Some(record), Some(held)) if held.renewed + self.settings.retry <= now => Next::Write(Write {
                purpose: Purpose::Renew,
                replaces: Some(record.version.clone()),
                transitions: record.transitions,
            }),
            (_, Some(_)) => Next::Wait(self.wake(now)),
            (record, None) if self.free_from(seen) <= now => Next::Write(Write {
                purpose: Purpose::Acquire,
                replaces: record.as_ref().map(|record| record.version.clone()),
                transitions: self.next_term(),
            }),
            (_, None) => Next::Wait(self.wake(now)),
        }
    }

    /// The Lease as it was read or as a watch shows it; `None`: it was read, and there is none. A watch that is behind
    /// this replica's knowledge is ignored.
    pub fn seen(&mut self, record: Option<Record>, now: Instant) {
        let known = self.observed.as_ref().and_then(|seen| seen.record.as_ref());
        let order = match (known, &record) {
            (Some(known), Some(record)) if known.version == record.version => Some(Ordering::Equal),
            (Some(known), Some(record)) => meta::compare(&record.version, &known.version),
            _ => None,
        };
        if order == Some(Ordering::Less) {
            return;
        }
        let same = order == Some(Ordering::Equal) || (self.observed.is_some() && known.is_none() && record.is_none());
        if let Some(record) = &record
            && let Some((write, sent)) = self.took_effect(record)
        {
            return self.wrote(&write, record.clone(), sent, now);
        }
        let ours = record.as_ref().is_some_and(|record| record.holder == self.identity);
        if !ours {
            // Another replica took it, or it is gone: this replica does not lead, regardless of the clock.
            self.held = None;
        }
        self.note(record.as_ref());
        if !same {
            self.observed = Some(Observed { record, at: now });
        }
        self.doubtful = false;
        self.stand_down_if_late(now);
    }

    /// A write succeeded that was sent at `sent`; `record` is the Lease now.
    pub fn wrote(&mut self, write: &Write, record: Record, sent: Instant, now: Instant) {
        self.unknown = None;
        self.stand_down_if_late(now);
        let held = Leading {
            term: record.transitions,
            renewed: sent,
        };
        self.note(Some(&record));
        self.observed = Some(Observed {
            record: Some(record),
            at: now,
        });
        self.doubtful = false;
        self.not_before = Instant::ZERO;
        match write.purpose {
            Purpose::Acquire => self.held = Some(held),
            // It may have stood down meanwhile: a late renewal brings nothing back.
            Purpose::Renew => self.held = self.held.map(|_| held),
            Purpose::Release => self.held = None,
        }
        self.stand_down_if_late(now);
    }

    /// A write lost a race (409), or a watch says that the Lease is deleted: it is to be read again.
    pub fn lost_race(&mut self) {
        self.doubtful = true;
    }

    /// The outcome of a write that was sent at `sent` is not known: it may have succeeded, or may yet. `random` as in
    /// [`Election::failed`].
    pub fn unknown(&mut self, write: Write, sent: Instant, now: Instant, random: u64) {
        // Of two that replace the same version the earlier one may be the one that succeeds.
        let earlier = self
            .unknown
            .as_ref()
            .filter(|(known, _)| known.replaces == write.replaces);
        let sent = earlier.map_or(sent, |(_, earlier)| sent.min(*earlier));
        self.unknown = Some((write, sent));
        self.failed(now, random);
    }

    /// A request failed. `random` spreads the retries of many replicas.
    pub fn failed(&mut self, now: Instant, random: u64) {
        self.doubtful = true;
        #[allow(clippy::cast_precision_loss)] // a fraction of a delay
        let fraction = (random >> 11) as f64 / (1u64 << 53) as f64;
        let late = self.settings.retry.mul_f64((JITTER - 1.0) * fraction);
        self.not_before = now + self.settings.retry + late;
    }

    /// The write of unknown outcome, if the Lease shows that it has succeeded: then the replica leads since it was sent,
    /// whether or not an answer came. Otherwise it would keep the others from the Lease, and not lead.
    fn took_effect(&mut self, record: &Record) -> Option<(Write, Instant)> {
        let (write, _) = self.unknown.as_ref()?;
        if write.replaces.as_ref() == Some(&record.version) {
            return None; // perhaps later
        }
        let ours = record.holder == self.identity && record.transitions == write.transitions;
        self.unknown
            .take()
            .filter(|(write, _)| ours && write.purpose != Purpose::Release)
    }

    fn note(&mut self, record: Option<&Record>) {
        self.greatest = self.greatest.max(record.map(|record| record.transitions));
    }

    fn next_term(&self) -> u64 {
        self.greatest.map_or(0, |greatest| greatest.saturating_add(1))
    }

    /// When this replica may take the Lease: it has no holder, its time is up, or it is this replica's own from before.
    fn free_from(&self, seen: &Observed) -> Instant {
        let held = seen.record.as_ref().filter(|record| !record.holder.is_empty());
        let others = held.filter(|record| record.holder != self.identity);
        let free = seen.at + others.map_or(Duration::ZERO, |record| record.lease);
        if self.ready { free } else { free + self.settings.lease }
    }

    fn stand_down_if_late(&mut self, now: Instant) {
        if self.leads_until(now).is_none() {
            self.held = None;
        }
    }

    /// When something is to be done of which the Lease will not tell.
    fn wake(&self, now: Instant) -> Instant {
        let work = match (&self.held, self.observed.as_ref().filter(|_| !self.doubtful)) {
            (Some(held), _) => held.renewed + self.settings.retry,
            (None, Some(seen)) => self.free_from(seen),
            (None, None) => now,
        };
        let until = self.leads_until(now).unwrap_or(Instant::MAX);
        work.max(self.not_before).min(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn record(holder: &str, transitions: u64, version: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            lease: SETTINGS.lease,
            transitions,
            version: version.to_owned(),
        }
    }

    fn write(purpose: Purpose, replaces: Option<&str>, transitions: u64) -> Write {
        Write {
            purpose,
            replaces: replaces.map(str::to_owned),
            transitions,
        }
    }

    /// A replica that leads since the moment 0, in term 3.
    fn leader() -> Election {
        let mut election = Election::new("me", SETTINGS);
        election.seen(Some(record("", 2, "7")), at(0));
        let acquire = write(Purpose::Acquire, Some("7"), 3);
        assert_eq!(election.next(at(0)), Next::Write(acquire.clone()));
        election.wrote(&acquire, record("me", 3, "8"), at(0), at(0));
        assert_eq!(election.term(at(0)), Some(3));
        election
    }

    #[test]
    fn a_candidate_takes_what_is_free() {
        let check = |seen: Option<Record>, now: u64, expected: Next| {
            let mut election = Election::new("me", SETTINGS);
            assert_eq!(election.next(at(0)), Next::Read);
            election.seen(seen.clone(), at(0));
            assert_eq!(election.next(at(now)), expected, "{seen:?} at {now}");
        };
        check(None, 0, Next::Write(write(Purpose::Acquire, None, 0)));
        check(
            Some(record("", 4, "7")),
            0,
            Next::Write(write(Purpose::Acquire, Some("7"), 5)),
        );
        // Left behind by an earlier process of the same name.
        check(
            Some(record("me", 4, "7")),
            0,
            Next::Write(write(Purpose::Acquire, Some("7"), 5)),
        );
        // LE4
        check(Some(record("other", 4, "7")), 0, Next::Wait(at(15)));
        check(Some(record("other", 4, "7")), 14, Next::Wait(at(15)));
        check(
            Some(record("other", 4, "7")),
            15,
            Next::Write(write(Purpose::Acquire, Some("7"), 5)),
        );
    }

    #[test]
    fn le4_every_change_makes_a_candidate_wait_again() {
        let mut election = Election::new("me", SETTINGS);
        election.seen(Some(record("other", 1, "7")), at(0));
        election.seen(Some(record("other", 1, "7")), at(9));
        assert_eq!(election.next(at(9)), Next::Wait(at(15)), "the same again is no change");
        election.seen(Some(record("other", 1, "8")), at(10));
        assert_eq!(election.next(at(15)), Next::Wait(at(25)));
        // A leader that gives its lease back is followed at once.
        election.seen(Some(record("", 1, "9")), at(16));
        assert_eq!(
            election.next(at(16)),
            Next::Write(write(Purpose::Acquire, Some("9"), 2))
        );
    }

    #[test]
    fn le2_a_leader_stops_counting_from_when_it_sent() {
        let mut election = leader();
        assert_eq!(election.next(at(1)), Next::Wait(at(2)));
        let renew = write(Purpose::Renew, Some("8"), 3);
        assert_eq!(election.next(at(2)), Next::Write(renew.clone()));
        // The answer takes 5 seconds; the time counts at which the request was sent.
        election.wrote(&renew, record("me", 3, "9"), at(2), at(7));
        assert_eq!(election.leads_until(at(7)), Some(at(12)));
        assert_eq!((election.term(at(11)), election.term(at(12))), (Some(3), None));
        // An answer that comes after that brings nothing back.
        let renew = write(Purpose::Renew, Some("9"), 3);
        assert_eq!(election.next(at(7)), Next::Write(renew.clone()));
        assert_eq!(
            election.next(at(12)),
            Next::Write(write(Purpose::Acquire, Some("9"), 4)),
            "a new term"
        );
        election.wrote(&renew, record("me", 3, "10"), at(7), at(13));
        assert_eq!(election.term(at(13)), None);
    }

    #[test]
    fn le5_an_unknown_outcome_is_read_before_the_next_write() {
        let mut election = leader();
        election.failed(at(2), 0);
        assert_eq!(election.next(at(3)), Next::Wait(at(4)));
        assert_eq!(election.next(at(4)), Next::Read);
        // It had succeeded.
        election.seen(Some(record("me", 3, "9")), at(4));
        assert_eq!(election.next(at(4)), Next::Write(write(Purpose::Renew, Some("9"), 3)));
        // A lost race is read at once.
        election.lost_race();
        assert_eq!(election.next(at(4)), Next::Read);
        election.seen(Some(record("other", 4, "11")), at(4));
        assert_eq!((election.term(at(4)), election.next(at(4))), (None, Next::Wait(at(19))));
    }

    /// Otherwise a replica whose answers are lost holds the Lease for ever, and does not lead.
    #[test]
    fn le5_a_write_whose_answer_was_lost_counts_once_the_lease_shows_it() {
        let lost = |purpose, replaces, transitions| (write(purpose, replaces, transitions), at(2));
        let check = |lost: (Write, Instant), seen: Record, when: u64, until: Option<u64>| {
            let mut election = leader();
            election.unknown(lost.0.clone(), lost.1, at(3), 0);
            election.seen(Some(seen.clone()), at(when));
            assert_eq!(election.leads_until(at(when)), until.map(at), "{lost:?}, then {seen:?}");
        };
        let renewal = || lost(Purpose::Renew, Some("8"), 3);
        check(renewal(), record("me", 3, "9"), 3, Some(12));
        check(renewal(), record("me", 3, "8"), 3, Some(10)); // not yet
        check(renewal(), record("other", 4, "9"), 3, None);
        check(renewal(), record("me", 3, "9"), 11, None); // the term had ended
        // A candidate that was given the Lease without knowing it.
        let mut election = Election::new("me", SETTINGS);
        election.seen(None, at(0));
        election.unknown(write(Purpose::Acquire, None, 0), at(1), at(2), 0);
        assert_eq!(election.term(at(2)), None);
        election.seen(Some(record("me", 0, "5")), at(3));
        assert_eq!(
            (election.term(at(3)), election.leads_until(at(3))),
            (Some(0), Some(at(11)))
        );
    }

    #[test]
    fn who_sees_that_another_leads_or_that_the_lease_is_gone_does_not_lead() {
        for seen in [Some(record("other", 4, "9")), Some(record("", 3, "9")), None] {
            let mut election = leader();
            election.seen(seen.clone(), at(1));
            assert_eq!(election.term(at(1)), None, "{seen:?}");
        }
    }

    #[test]
    fn le6_a_lease_that_is_made_again_counts_on() {
        let mut election = leader();
        election.seen(None, at(1));
        let acquire = write(Purpose::Acquire, None, 4);
        assert_eq!(election.next(at(1)), Next::Write(acquire));
        // Another replica was faster, and counts from the beginning.
        election.lost_race();
        election.seen(Some(record("", 0, "12")), at(2));
        assert_eq!(
            election.next(at(2)),
            Next::Write(write(Purpose::Acquire, Some("12"), 4))
        );
    }

    #[test]
    fn a_watch_that_is_behind_says_nothing() {
        let mut election = leader();
        election.seen(Some(record("", 2, "7")), at(1));
        assert_eq!((election.term(at(1)), election.holder()), (Some(3), Some("me")));
    }

    #[test]
    fn le3_a_lease_is_given_back_when_the_work_has_ended() {
        let mut election = leader();
        election.leave();
        let release = write(Purpose::Release, Some("8"), 3);
        assert_eq!(election.next(at(1)), Next::Write(release.clone()));
        assert!(!election.has_left());
        election.wrote(&release, record("", 3, "9"), at(1), at(1));
        assert!(election.has_left());
        assert_eq!(election.next(at(1)), Next::Wait(Instant::MAX));
        // Who does not lead has nothing to give back.
        let mut candidate = Election::new("me", SETTINGS);
        candidate.leave();
        assert!(candidate.has_left());
        // And a Lease that cannot be given back is given up in time.
        let mut election = leader();
        election.leave();
        election.failed(at(1), 0);
        assert_eq!(election.next(at(10)), Next::Wait(Instant::MAX));
        assert!(election.has_left());
    }

    /// A shell sleeps until then: a moment that is past would never let it sleep.
    #[test]
    fn le2_the_end_of_a_term_is_never_past() {
        let election = leader();
        assert_eq!(election.leads_until(at(9)), Some(at(10)));
        for late in [10, 11, 1000] {
            assert_eq!(
                (election.leads_until(at(late)), election.term(at(late))),
                (None, None),
                "at {late}"
            );
        }
    }

    #[test]
    fn le7_who_is_not_ready_leaves_a_free_lease_to_others_for_a_lease_duration() {
        // What was seen at 0, and when a candidate takes it that is ready, and one that is not.
        let check = |seen: Option<Record>, ready: u64, unready: u64| {
            for (is_ready, takes) in [(true, ready), (false, unready)] {
                let mut election = Election::new("me", SETTINGS);
                election.set_ready(is_ready);
                election.seen(seen.clone(), at(0));
                if takes > 0 {
                    assert_eq!(election.next(at(takes - 1)), Next::Wait(at(takes)), "{seen:?}");
                }
                assert!(
                    matches!(
                        election.next(at(takes)),
                        Next::Write(Write {
                            purpose: Purpose::Acquire,
                            ..
                        })
                    ),
                    "{seen:?}"
                );
            }
        };
        check(None, 0, 15);
        check(Some(record("", 4, "7")), 0, 15);
        check(Some(record("me", 4, "7")), 0, 15);
        check(Some(record("other", 4, "7")), 15, 30);
        // It takes it as soon as it is ready.
        let mut election = Election::new("me", SETTINGS);
        election.set_ready(false);
        election.seen(None, at(0));
        assert_eq!(election.next(at(1)), Next::Wait(at(15)));
        election.set_ready(true);
        assert_eq!(election.next(at(2)), Next::Write(write(Purpose::Acquire, None, 0)));
    }

    #[test]
    fn settings_must_fit_together() {
        let check = |lease: u64, renew: u64, retry: u64, fits: bool| {
            let settings = Settings {
                lease: Duration::from_millis(lease),
                renew: Duration::from_millis(renew),
                retry: Duration::from_millis(retry),
            };
            assert_eq!(settings.check().is_ok(), fits, "{settings:?}");
        };
        check(15_000, 10_000, 2000, true);
        check(10_000, 10_000, 2000, false);
        check(15_000, 2400, 2000, false);
        check(15_000, 2401, 2000, true);
        check(15_000, 10_000, 0, false);
        check(900, 600, 100, false);
    }
}
