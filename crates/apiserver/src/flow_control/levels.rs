//! Seats and queues of the priority levels, as a machine without time or threads: requests enter, wait, leave or give up,
//! and the machine says who begins.
//!
//! A request takes seats while it is answered. A level that has none left borrows what others lend and do not use. If
//! there is nothing to borrow either, the level rejects the request, or queues it. A flow may use a few of the queues
//! of its level (shuffle sharding), so a flow that fills its queues leaves others some that are empty. Queues take turns
//! by the seats that they were given (fair queuing).
//!
//! A request that waits for something that is not this server's work (a webhook, a turn, a client that does not read)
//! pauses: its seats count for its own flow only, and the others begin as if they were free. It resumes without waiting.
//!
//! Invariants: no request begins that brings its level beyond its limit, unless it alone wants more; what resumes may.
//! While a request waits in a level, so many seats are taken that it cannot begin, or its flow has more of them than are
//! free; every request that begins leaves once.
//!
//! Unlike upstream, a flow leaves some seats to the next one, and all of those that pause; what is lent follows from what
//! is used now, and is not settled every ten seconds; a queue's turn is charged with seats, not with seats multiplied by
//! time.

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
    /// The seats of requests that do not pause.
    executing: u64,
    /// The flows that have seats.
    flows: BTreeMap<u64, Held>,
    /// Those in which requests wait, or did since none waited.
    queues: BTreeMap<u64, Queue<W>>,
    waiting: usize,
    /// The turn of the queue that was served last.
    turn: u64,
}

/// The seats of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    all: u64,
    /// Those of requests that pause.
    paused: u64,
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
    flow: u64,
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
            .retain(|_, level| level.exists || !level.flows.is_empty() || level.waiting > 0);
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
        // Requests that wait for others of their own flow to end hold up no other flow.
        let is_first = level.first(lent).is_none();
        if is_first && level.has_room(flow, seats, lent) && level.is_due(flow, seats, lent) {
            level.take(flow, seats);
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
        queue.waiting.push_back(Waiting {
            number,
            flow,
            seats,
            waker,
        });
        level.waiting = level.waiting.saturating_add(1);
        Ok(Entered::Waits(number))
    }

    /// A request of a flow that began with so many seats, and does not pause, is answered. Returns who begins now.
    pub(super) fn leave(&mut self, name: &str, flow: u64, seats: u64) -> Vec<Begun<W>> {
        if let Some(level) = self.levels.get_mut(name) {
            debug_assert!(level.executing >= seats, "it has begun");
            level.executing = level.executing.saturating_sub(seats);
            let held = level.held(flow);
            debug_assert!(held.all >= held.paused + seats, "its flow has its seats");
            match held.all.saturating_sub(seats) {
                0 => drop(level.flows.remove(&flow)),
                all => drop(level.flows.insert(flow, Held { all, ..held })),
            }
        }
        self.dispatch()
    }

    /// A request of a flow that began with so many seats pauses. Returns who begins now.
    pub(super) fn pause(&mut self, name: &str, flow: u64, seats: u64) -> Vec<Begun<W>> {
        if let Some(level) = self.levels.get_mut(name) {
            level.executing = level.executing.saturating_sub(seats);
            let held = level.flows.entry(flow).or_default();
            held.paused = held.paused.saturating_add(seats);
            debug_assert!(held.paused <= held.all, "it pauses once");
        }
        self.dispatch()
    }

    /// A request of a flow that has paused goes on.
    pub(super) fn resume(&mut self, name: &str, flow: u64, seats: u64) {
        if let Some(level) = self.levels.get_mut(name) {
            level.executing = level.executing.saturating_add(seats);
            let held = level.flows.entry(flow).or_default();
            debug_assert!(held.paused >= seats, "it has paused");
            held.paused = held.paused.saturating_sub(seats);
        }
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

    /// Begins every request that there is room for. To be called after an [`Entered::Waits`], too: the turn of the new
    /// request's queue may come before those of requests that want more seats than are free.
    pub(super) fn dispatch(&mut self) -> Vec<Begun<W>> {
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
        levels.map(|(name, level)| {
            let taken = level.flows.values().map(|held| held.all).sum();
            (name, level.limits.nominal, taken, level.waiting)
        })
    }
}

impl<W> Level<W> {
    fn new(limits: Limits, response: Response) -> Level<W> {
        Level {
            limits,
            response,
            exists: true,
            executing: 0,
            flows: BTreeMap::new(),
            queues: BTreeMap::new(),
            waiting: 0,
            turn: 0,
        }
    }

    fn limit(&self, lent: u64) -> u64 {
        let borrowable = self.limits.borrowable.unwrap_or(u64::MAX).min(lent);
        self.limits.nominal.saturating_add(borrowable)
    }

    /// How many seats are taken for a flow: those of its own requests that pause, and of all that do not.
    fn taken(&self, flow: u64) -> u64 {
        self.executing.saturating_add(self.held(flow).paused)
    }

    fn has_room(&self, flow: u64, seats: u64, lent: u64) -> bool {
        let (limit, taken) = (self.limit(lent), self.taken(flow));
        limit > 0 && (taken == 0 || taken.saturating_add(seats) <= limit)
    }

    fn held(&self, flow: u64) -> Held {
        self.flows.get(&flow).copied().unwrap_or_default()
    }

    /// Whether a request of a flow does not wait for others of its own flow, which would hold up the other flows. Where
    /// requests queue, a flow leaves some seats to the next one: it holds no more than are free. Upstream lets one flow
    /// take all of them.
    fn is_due(&self, flow: u64, seats: u64, lent: u64) -> bool {
        let (held, free) = (self.held(flow), self.limit(lent).saturating_sub(self.taken(flow)));
        matches!(self.response, Response::Reject) || held.all <= free && (held.paused == 0 || seats <= free)
    }

    fn take(&mut self, flow: u64, seats: u64) {
        self.executing = self.executing.saturating_add(seats);
        let held = self.flows.entry(flow).or_default();
        held.all = held.all.saturating_add(seats);
    }

    /// The queue whose turn it is, and the place of its first request that is due.
    fn first(&self, lent: u64) -> Option<(u64, usize)> {
        let due = self.queues.iter().filter_map(|(number, queue)| {
            let place = queue
                .waiting
                .iter()
                .position(|waiting| self.is_due(waiting.flow, waiting.seats, lent))?;
            Some((queue.turn, *number, place))
        });
        due.min().map(|(_, number, place)| (number, place))
    }

    /// The next one that begins, if there is room for it.
    fn next(&mut self, lent: u64) -> Option<Waiting<W>> {
        let (number, place) = self.first(lent)?;
        let first = self.queues.get(&number)?.waiting.get(place)?;
        let (flow, seats) = (first.flow, first.seats);
        if !self.has_room(flow, seats, lent) {
            return None;
        }
        let queue = self.queues.get_mut(&number)?;
        self.turn = queue.turn;
        queue.turn = queue.turn.saturating_add(seats);
        let next = queue.waiting.remove(place)?;
        self.take(next.flow, seats);
        self.waiting = self.waiting.saturating_sub(1);
        self.forget_turns();
        Some(next)
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
mod tests;
