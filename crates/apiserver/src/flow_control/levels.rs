//! Seats and queues of the priority levels, as a machine without time or threads: requests enter, wait, leave or give up,
//! and the machine says who begins.
//!
//! A request takes seats while it is answered. A level that has none left borrows what others lend and do not use. If
//! there is nothing to borrow either, the level rejects the request, or queues it. A flow may use a few of the queues
//! of its level (shuffle sharding), so a flow that fills its queues leaves others some that are empty. Queues take turns
//! by the seats that they were given (fair queuing).
//!
//! Invariants: a level never runs more seats than its limit, unless one request alone wants more; while a request waits
//! in a level, so many seats are taken that it cannot begin; every request that begins leaves once.
//!
//! Unlike upstream, what is lent follows from what is used now, and is not settled every ten seconds; a queue's
//! turn is charged with seats, not with seats multiplied by time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The seats of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Its own.
    pub(super) nominal: u64,
    /// How many of these others may use.
    pub(super) lendable: u64,
    /// How many of others it may use; none: as many as there are.
    pub(super) borrowable: Option<u64>,
}

/// What happens to a request for which there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Reject,
    Queue(Queuing),
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queuing {
    pub(super) queues: u64,
    /// How many of them a flow may use.
    pub(super) hand_size: u64,
    /// How many requests may wait in one.
    pub(super) length_limit: u64,
}

/// Why a request is rejected, as `apiserver_flowcontrol_rejected_requests_total` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
    Cancelled,
}

impl Reason {
    pub(super) const ALL: [Reason; 4] = [
        Reason::ConcurrencyLimit,
        Reason::QueueFull,
        Reason::TimeOut,
        Reason::Cancelled,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::ConcurrencyLimit => "concurrency-limit",
            Reason::QueueFull => "queue-full",
            Reason::TimeOut => "time-out",
            Reason::Cancelled => "cancelled",
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It begins, and takes so many seats.
    Begins(u64),
    /// It waits under this number.
    Waits(u64),
}

/// The levels whose requests are limited. `W` is told when a request that waited begins.
#[derive(Debug)]
pub(super) struct Levels<W> {
    levels: BTreeMap<Arc<str>, Level<W>>,
    next: u64,
}

#[derive(Debug)]
struct Level<W> {
    limits: Limits,
    response: Response,
    /// Whether there is such an object. Those who still wait or run in a level that is gone do so to their end.
    exists: bool,
    executing: u64,
    /// Those in which requests wait, or did since none waited.
    queues: BTreeMap<u64, Queue<W>>,
    waiting: usize,
    /// The turn of the queue that was served last.
    turn: u64,
}

#[derive(Debug)]
struct Queue<W> {
    /// Its turn comes before those of queues with a higher one.
    turn: u64,
    waiting: VecDeque<Waiting<W>>,
}

#[derive(Debug)]
struct Waiting<W> {
    number: u64,
    seats: u64,
    waker: W,
}

/// A request that waited, and begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun<W> {
    pub(super) level: Arc<str>,
    pub(super) seats: u64,
    pub(super) waker: W,
}

impl<W> Default for Levels<W> {
    fn default() -> Levels<W> {
        Levels {
            levels: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<W> Levels<W> {
    /// From now on these are the levels, and their limits. Returns who begins now.
    pub(super) fn configure(&mut self, limits: BTreeMap<Arc<str>, (Limits, Response)>) -> Vec<Begun<W>> {
        for (name, level) in &mut self.levels {
            level.exists = limits.contains_key(name);
        }
        for (name, (limits, response)) in limits {
            let level = self.levels.entry(name).or_insert_with(|| Level::new(limits, response));
            (level.limits, level.response) = (limits, response);
        }
        self.levels
            .retain(|_, level| level.exists || level.executing > 0 || level.waiting > 0);
        self.dispatch()
    }

    /// A request of a flow enters a level and wants so many seats.
    ///
    /// # Errors
    /// It is rejected.
    pub(super) fn enter(
        &mut self,
        name: &str,
        flow: u64,
        seats: u64,
        waker: impl FnOnce() -> W,
    ) -> Result<Entered, Reason> {
        let lent = self.lent(name);
        // A level without an object has no limit of its own.
        let Some(level) = self.levels.get_mut(name) else {
            return Ok(Entered::Begins(0));
        };
        let seats = seats.clamp(1, level.limits.nominal.max(1));
        if level.waiting == 0 && level.has_room(seats, lent) {
            level.executing = level.executing.saturating_add(seats);
            return Ok(Entered::Begins(seats));
        }
        let Response::Queue(queuing) = level.response else {
            return Err(Reason::ConcurrencyLimit);
        };
        let length = |queue: &u64| level.queues.get(queue).map_or(0, |queue| queue.waiting.len());
        let hand = deal(flow, queuing.queues, queuing.hand_size);
        let Some(shortest) = hand.into_iter().min_by_key(length) else {
            return Err(Reason::QueueFull);
        };
        if u64::try_from(length(&shortest)).is_ok_and(|length| length >= queuing.length_limit) {
            return Err(Reason::QueueFull);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let turn = level.turn;
        let queue = level.queues.entry(shortest).or_insert_with(|| Queue {
            turn,
            waiting: VecDeque::new(),
        });
        if queue.waiting.is_empty() {
            // What it did not use while nothing waited in it is lost.
            queue.turn = queue.turn.max(turn);
        }
        let waker = waker();
        queue.waiting.push_back(Waiting { number, seats, waker });
        level.waiting = level.waiting.saturating_add(1);
        Ok(Entered::Waits(number))
    }

    /// A request that began with so many seats is answered. Returns who begins now.
    pub(super) fn leave(&mut self, name: &str, seats: u64) -> Vec<Begun<W>> {
        if let Some(level) = self.levels.get_mut(name) {
            debug_assert!(level.executing >= seats, "it has begun");
            level.executing = level.executing.saturating_sub(seats);
        }
        self.dispatch()
    }

    /// A request waits no longer. Returns whether it did until now, and who begins now.
    pub(super) fn give_up(&mut self, name: &str, number: u64) -> (bool, Vec<Begun<W>>) {
        let Some(level) = self.levels.get_mut(name) else {
            return (false, Vec::new());
        };
        let mut found = false;
        for queue in level.queues.values_mut() {
            let before = queue.waiting.len();
            queue.waiting.retain(|waiting| waiting.number != number);
            found |= queue.waiting.len() < before;
        }
        if found {
            level.waiting = level.waiting.saturating_sub(1);
            level.forget_turns();
        }
        (found, self.dispatch())
    }

    /// Everybody begins for whom there is room.
    fn dispatch(&mut self) -> Vec<Begun<W>> {
        let mut begun = Vec::new();
        let waiting: Vec<Arc<str>> = self
            .levels
            .iter()
            .filter(|(_, level)| level.waiting > 0)
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            loop {
                let lent = self.lent(&name);
                let Some(next) = self.levels.get_mut(&name).and_then(|level| level.next(lent)) else {
                    break;
                };
                begun.push(Begun {
                    level: name.clone(),
                    seats: next.seats,
                    waker: next.waker,
                });
            }
        }
        begun
    }

    /// How many seats of others this level may use now, beyond its own.
    fn lent(&self, borrower: &str) -> u64 {
        let others = self
            .levels
            .iter()
            .filter(|(name, level)| &***name != borrower && level.exists);
        let (mut lent, mut borrowed) = (0_u64, 0_u64);
        for (_, level) in others {
            let unused = level.limits.nominal.saturating_sub(level.executing);
            lent = lent.saturating_add(unused.min(level.limits.lendable));
            borrowed = borrowed.saturating_add(level.executing.saturating_sub(level.limits.nominal));
        }
        lent.saturating_sub(borrowed)
    }

    /// Of each level: its name, its nominal limit, the seats that are taken, and how many wait.
    pub(super) fn shown(&self) -> impl Iterator<Item = (&Arc<str>, u64, u64, usize)> {
        let levels = self.levels.iter();
        levels.map(|(name, level)| (name, level.limits.nominal, level.executing, level.waiting))
    }
}

impl<W> Level<W> {
    fn new(limits: Limits, response: Response) -> Level<W> {
        Level {
            limits,
            response,
            exists: true,
            executing: 0,
            queues: BTreeMap::new(),
            waiting: 0,
            turn: 0,
        }
    }

    fn has_room(&self, seats: u64, lent: u64) -> bool {
        let borrowable = self.limits.borrowable.unwrap_or(u64::MAX).min(lent);
        let limit = self.limits.nominal.saturating_add(borrowable);
        limit > 0 && (self.executing == 0 || self.executing.saturating_add(seats) <= limit)
    }

    /// The next one that begins, if there is room for it.
    fn next(&mut self, lent: u64) -> Option<Waiting<W>> {
        let of_turn = |(_, queue): &(&u64, &Queue<W>)| queue.turn;
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        let place = *waiting.min_by_key(of_turn)?.0;
        let seats = self.queues.get(&place)?.waiting.front()?.seats;
        if !self.has_room(seats, lent) {
            return None;
        }
        let queue = self.queues.get_mut(&place)?;
        self.turn = queue.turn;
        queue.turn = queue.turn.saturating_add(seats);
        let next = queue.waiting.pop_front();
        self.executing = self.executing.saturating_add(seats);
        self.waiting = self.waiting.saturating_sub(1);
        self.forget_turns();
        next
    }

    /// Turns mean nothing once no request waits.
    fn forget_turns(&mut self) {
        if self.waiting == 0 {
            self.queues.clear();
            self.turn = 0;
        }
    }
}

/// The queues that a flow may use: different ones, chosen by its hash (`shufflesharding.Dealer`).
fn deal(flow: u64, queues: u64, hand_size: u64) -> Vec<u64> {
    let (mut rest, mut taken) = (flow, Vec::new());
    for dealt in 0..hand_size.min(queues) {
        let left = queues.saturating_sub(dealt);
        let mut card = rest % left;
        rest /= left;
        // The card is that of those that are left: it moves up past each lower one that is gone.
        let mut at = 0;
        while taken.get(at).is_some_and(|lower| *lower <= card) {
            card = card.saturating_add(1);
            at += 1;
        }
        taken.insert(at, card);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Response = Response::Queue(Queuing {
        queues: 8,
        hand_size: 2,
        length_limit: 3,
    });

    /// Levels by name: nominal and lendable seats, the most that are borrowed, what happens without a seat.
    fn levels(rows: &[(&str, u64, u64, Option<u64>, Response)]) -> Levels<&'static str> {
        let mut levels = Levels::default();
        assert!(levels.configure(limits(rows)).is_empty());
        levels
    }

    fn limits(rows: &[(&str, u64, u64, Option<u64>, Response)]) -> BTreeMap<Arc<str>, (Limits, Response)> {
        let row = |(name, nominal, lendable, borrowable, response): &(&str, u64, u64, Option<u64>, Response)| {
            let limits = Limits {
                nominal: *nominal,
                lendable: *lendable,
                borrowable: *borrowable,
            };
            (Arc::from(*name), (limits, *response))
        };
        rows.iter().map(row).collect()
    }

    fn names(begun: Vec<Begun<&'static str>>) -> Vec<&'static str> {
        begun.into_iter().map(|begun| begun.waker).collect()
    }

    #[test]
    fn a_full_level_rejects() {
        let mut levels = levels(&[("a", 2, 0, Some(0), Response::Reject)]);
        assert_eq!(levels.enter("a", 1, 1, || ""), Ok(Entered::Begins(1)));
        assert_eq!(levels.enter("a", 2, 1, || ""), Ok(Entered::Begins(1)));
        assert_eq!(levels.enter("a", 3, 1, || ""), Err(Reason::ConcurrencyLimit));
        assert!(levels.leave("a", 1).is_empty());
        assert_eq!(
            levels.enter("a", 3, 9, || ""),
            Err(Reason::ConcurrencyLimit),
            "it wants all"
        );
        assert!(levels.leave("a", 1).is_empty());
        assert_eq!(levels.enter("a", 3, 9, || ""), Ok(Entered::Begins(2)), "all there are");
        assert_eq!(
            levels.enter("b", 3, 9, || ""),
            Ok(Entered::Begins(0)),
            "there is no such level"
        );
        levels.configure(limits(&[("a", 0, 0, Some(0), Response::Reject)]));
        levels.leave("a", 2);
        assert_eq!(
            levels.enter("a", 3, 1, || ""),
            Err(Reason::ConcurrencyLimit),
            "a level without seats"
        );
    }

    #[test]
    fn a_level_borrows_what_others_do_not_use() {
        let mut levels = levels(&[
            ("a", 1, 0, Some(2), Response::Reject),
            ("b", 4, 3, Some(0), Response::Reject),
        ]);
        for _ in 0..3 {
            assert_eq!(levels.enter("a", 1, 1, || ""), Ok(Entered::Begins(1)));
        }
        assert_eq!(
            levels.enter("a", 1, 1, || ""),
            Err(Reason::ConcurrencyLimit),
            "it may borrow two"
        );
        for _ in 0..4 {
            assert_eq!(
                levels.enter("b", 1, 1, || ""),
                Ok(Entered::Begins(1)),
                "its own are its own"
            );
        }
        assert!(levels.leave("a", 1).is_empty());
        assert_eq!(
            levels.enter("a", 1, 1, || ""),
            Err(Reason::ConcurrencyLimit),
            "nothing is lent"
        );
    }

    #[test]
    fn flows_take_turns() {
        let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
        assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
        // The flow 0 has the queues 0 and 1; the flow 2 + 3 * 8 has 2 and 4.
        assert_eq!((deal(0, 8, 2), deal(26, 8, 2)), (vec![0, 1], vec![2, 4]));
        for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
            assert!(
                matches!(levels.enter("a", 0, 1, || name), Ok(Entered::Waits(_))),
                "{name}"
            );
        }
        assert_eq!(levels.enter("a", 0, 1, || "a7"), Err(Reason::QueueFull));
        assert!(matches!(levels.enter("a", 26, 1, || "b1"), Ok(Entered::Waits(_))));
        let order: Vec<_> = (0..7).flat_map(|_| names(levels.leave("a", 1))).collect();
        assert_eq!(order, ["a1", "a2", "b1", "a3", "a4", "a5", "a6"]);
        assert!(levels.leave("a", 1).is_empty());
        assert_eq!(levels.shown().next(), Some((&Arc::from("a"), 1, 0, 0)));
    }

    #[test]
    fn who_gives_up_leaves_no_trace() {
        let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
        assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
        let Ok(Entered::Waits(second)) = levels.enter("a", 0, 1, || "second") else {
            panic!("it waits")
        };
        let Ok(Entered::Waits(third)) = levels.enter("a", 0, 1, || "third") else {
            panic!("it waits")
        };
        assert_eq!(levels.give_up("a", second), (true, vec![]));
        assert_eq!(levels.give_up("a", second), (false, vec![]));
        assert_eq!(names(levels.leave("a", 1)), ["third"]);
        assert_eq!(levels.give_up("a", third), (false, vec![]), "it has begun");
    }

    #[test]
    fn a_level_that_is_gone_ends_with_its_requests() {
        let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
        assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
        assert!(matches!(levels.enter("a", 0, 1, || "second"), Ok(Entered::Waits(_))));
        assert!(levels.configure(limits(&[("b", 5, 5, None, QUEUE)])).is_empty());
        assert_eq!(names(levels.leave("a", 1)), ["second"]);
        assert!(levels.leave("a", 1).is_empty());
        levels.configure(limits(&[]));
        assert_eq!(levels.shown().count(), 0);
    }

    #[test]
    fn more_seats_are_taken_at_once() {
        let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
        assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
        assert!(matches!(levels.enter("a", 0, 1, || "second"), Ok(Entered::Waits(_))));
        assert_eq!(
            names(levels.configure(limits(&[("a", 2, 0, Some(0), QUEUE)]))),
            ["second"]
        );
    }

    /// Whatever enters, leaves and gives up: seats stay within limits, and no request waits beside a free one.
    #[test]
    fn no_seat_is_lost_or_given_twice() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut levels: Levels<u64> = Levels::default();
        let rows = [
            ("a", 3, 2, None, QUEUE),
            ("b", 5, 0, Some(2), QUEUE),
            ("c", 2, 2, Some(0), Response::Reject),
        ];
        levels.configure(limits(&rows));
        let mut running: Vec<(Arc<str>, u64)> = Vec::new();
        let mut waiting: BTreeMap<u64, (Arc<str>, u64)> = BTreeMap::new();
        let mut serial = 0_u64;
        for _ in 0..50_000 {
            let begun = match random(5) {
                0..=2 => {
                    let name = rows[random(3) as usize].0;
                    serial += 1;
                    match levels.enter(name, random(40), 1 + random(3), || serial) {
                        Ok(Entered::Begins(seats)) => running.push((name.into(), seats)),
                        Ok(Entered::Waits(number)) => drop(waiting.insert(serial, (name.into(), number))),
                        Err(_) => {}
                    }
                    Vec::new()
                }
                3 if !running.is_empty() => {
                    let (name, seats) = running.swap_remove(random(running.len() as u64) as usize);
                    levels.leave(&name, seats)
                }
                _ => {
                    let Some((_, (name, number))) = waiting.pop_first() else {
                        continue;
                    };
                    let (waited, begun) = levels.give_up(&name, number);
                    assert!(waited);
                    begun
                }
            };
            for begun in begun {
                assert!(waiting.remove(&begun.waker).is_some(), "it began twice");
                running.push((begun.level, begun.seats));
            }
            for (name, level) in &levels.levels {
                let taken: u64 = running
                    .iter()
                    .filter(|(its, _)| its == name)
                    .map(|(_, seats)| seats)
                    .sum();
                assert_eq!(taken, level.executing, "{name}");
                let wait = waiting.values().filter(|(its, _)| its == name).count();
                assert_eq!(wait, level.waiting, "{name}");
                let first = level
                    .queues
                    .values()
                    .filter_map(|queue| Some((queue.turn, queue.waiting.front()?.seats)));
                if let Some((_, seats)) = first.min() {
                    let least = level
                        .queues
                        .values()
                        .filter_map(|queue| Some(queue.waiting.front()?.seats))
                        .max();
                    assert!(
                        !level.has_room(seats.max(least.unwrap_or(0)), levels.lent(name)),
                        "{name} has room"
                    );
                }
            }
        }
        assert!(serial > 20_000);
    }

    #[test]
    fn a_hand_has_different_queues() {
        for flow in 0..5_000_u64 {
            let hand = deal(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), 16, 4);
            assert!(
                hand.windows(2).all(|pair| pair[0] < pair[1]) && hand[3] < 16,
                "{hand:?}"
            );
        }
        assert_eq!(deal(5, 1, 1), [0]);
        assert_eq!(deal(5, 0, 1), Vec::<u64>::new());
        assert_eq!(deal(u64::MAX, 3, 3), [0, 1, 2]);
    }
}
