//! The work queue between event handlers and workers: one state machine per item.
//!
//! Idea: an item is in at most one place. It is *ready* (in the first-in-first-out list of its priority), *delayed* (in the
//! order of due times), *running* (handed to a worker), or running with something pending that is held until
//! [`WorkQueue::done`]. Delays, deduplication and retries are states of the item and not queues behind queues as in
//! client-go, which is why an item cannot be handed out twice for one reason. Each pending item carries its causes
//! ([`Merge`]).
//!
//! Invariants:
//! * Q1 any number of adds of a pending item is one hand-out. Q2, R1 an item is never handed out again before `done`.
//! * Q3, R2 an add while the item runs leads to another run. Q4 order within a priority is the order of becoming ready.
//! * Q5 a delayed add is never early; the earliest delay counts; an immediate add supersedes the delay.
//! * Q7 failures of an item are counted until it is forgotten, or until a run ends without asking for a retry.
//! * Q8 the numbers in [`Metrics`] are the sizes of the lists, not counters beside them.
//! * Q9 while there is always something of a higher priority, the others wait at most [`Fairness::ageing`], and then get
//!   one in [`Fairness::weight`] + 1 hand-outs together, those that became ready first before the others; the highest
//!   priority yields no more than that.
//! * Q10 nothing happens without a call; [`Next::Wait`] says when the next call is due. Q11 an idle item takes no
//!   memory.
//! * No operation looks at all items, except a shutdown, [`WorkQueue::each_waiting`], [`WorkQueue::drop_waiting`], and the
//!   compaction after a burst, which the items that are gone have paid for (`compact.rs`).
//!
//! Not here: waiting and waking (the shell does, told by [`Wake`]), the lock, clocks.

mod answers;
mod compact;
mod index;
mod list;

use crate::backoff::Exponential;
use crate::rate::RateLimiter;
use crate::time::Instant;
pub use answers::{Fairness, Finished, Merge, Metrics, Next, Priority, State, Token, Wake, Work};
use index::Index;
use list::{Links, List};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::time::Duration;

struct Pending<C> {
    priority: Priority,
    causes: C,
    /// `None`: now.
    due: Option<Instant>,
}

struct Run {
    /// Never used twice, so that an overdue token does not end another run.
    number: u64,
    started: Instant,
    priority: Priority,
}

struct Entry<T, C> {
    item: T,
    /// Of the item.
    hash: u32,
    pending: Option<Pending<C>>,
    running: Option<Run>,
    failures: u32,
    /// This run asked for a retry.
    retried: bool,
    ready_since: Instant,
}

/// A queue of items `T` with causes `C`.
///
/// `S` hashes the items. Items that others name, as objects are, need a hasher with a secret of its own, such as
/// `std::hash::RandomState`; nothing but time depends on it.
///
/// ```
/// use kubewright_engine::queue::{Next, Priority, WorkQueue};
/// use kubewright_engine::Instant;
/// let now = Instant::ZERO;
/// let mut queue: WorkQueue<&str> = WorkQueue::default();
/// queue.add("a", Priority::NORMAL, (), now);
/// queue.add("a", Priority::NORMAL, (), now);
/// let Next::Item(work) = queue.get(now) else { panic!("an item is ready") };
/// assert_eq!(work.item, "a");
/// assert_eq!(queue.get(now), Next::Wait(None));
/// queue.done(work.token, now);
/// ```
pub struct WorkQueue<T, C = (), S = BuildHasherDefault<DefaultHasher>> {
    limiter: Box<dyn RateLimiter>,
    fairness: Fairness,
    hashes: S,
    index: Index,
    slots: Vec<Option<Entry<T, C>>>,
    /// Per slot, beside it: its place in the one list that it is in, of those that are ready or of those that run.
    links: Vec<Links>,
    free: Vec<u32>,
    /// What is ready, the most urgent first. No list is empty.
    ready: Vec<(Priority, List)>,
    /// Due time, order of arrival, slot.
    delayed: BTreeMap<(Instant, u64), u32>,
    delayed_keys: BTreeMap<u32, (Instant, u64)>,
    /// In the order of their beginnings.
    running: List,
    running_started: u128,
    arrivals: u64,
    runs: u64,
    /// Hand-outs of the highest priority that a lower one had to wait for.
    passed: u32,
    shut_down: bool,
    adds: u64,
    retries: u64,
    /// Runs whose slots have moved since their tokens were given out.
    moved: BTreeMap<u64, u32>,
    /// The slots were compacted since the queue was idle.
    burst: bool,
}

impl<T: Hash + Eq + Clone, C: Merge, S: BuildHasher + Default> Default for WorkQueue<T, C, S> {
    fn default() -> WorkQueue<T, C, S> {
        WorkQueue::new(Exponential::default(), Fairness::default())
    }
}

impl<T: Hash + Eq + Clone, C: Merge, S: BuildHasher + Default> WorkQueue<T, C, S> {
    /// An empty queue.
    pub fn new(limiter: impl RateLimiter + 'static, fairness: Fairness) -> WorkQueue<T, C, S> {
        WorkQueue::limited(Box::new(limiter), fairness)
    }

    /// As [`WorkQueue::new`].
    pub fn limited(limiter: Box<dyn RateLimiter>, fairness: Fairness) -> WorkQueue<T, C, S> {
        WorkQueue {
            limiter,
            fairness,
            hashes: S::default(),
            index: Index::default(),
            slots: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            delayed: BTreeMap::new(),
            delayed_keys: BTreeMap::new(),
            running: List::default(),
            running_started: 0,
            arrivals: 0,
            runs: 0,
            passed: 0,
            shut_down: false,
            adds: 0,
            retries: 0,
            moved: BTreeMap::new(),
            burst: false,
        }
    }

    /// Asks for a run of `item` as soon as possible. Supersedes a delay; raises the priority when this one is higher.
    pub fn add(&mut self, item: T, priority: Priority, causes: C, now: Instant) -> Wake {
        self.ask(item, None, priority, causes, now)
    }

    /// Asks for a run of `item` at `at`, not earlier. Of several delays the earliest counts; when the item is ready, or
    /// to be run again anyway, only the causes are added.
    pub fn add_after(&mut self, item: T, at: Instant, priority: Priority, causes: C, now: Instant) -> Wake {
        self.ask(item, Some(at).filter(|at| *at > now), priority, causes, now)
    }

    /// Asks for a retry of `item` after the delay that the rate limiter says, with the priority it has. Answers the
    /// delay as well; `None` when the queue is shut down.
    pub fn add_rate_limited(&mut self, item: T, causes: C, now: Instant) -> (Wake, Option<Duration>) {
        if self.shut_down {
            return (Wake::ShutDown, None);
        }
        // Asked first: it may be foreign code that panics.
        let delay = self.limiter.delay(self.retries(&item), now);
        (self.retry_at(item, now + delay, causes, now), Some(delay))
    }

    /// Asks for a retry of `item` at `at`, without the rate limiter; otherwise as [`WorkQueue::add_rate_limited`].
    pub fn retry_at(&mut self, item: T, at: Instant, causes: C, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::ShutDown;
        }
        let id = self.slot_of(item.clone());
        let slot = self.slot(id);
        slot.failures = slot.failures.saturating_add(1);
        slot.retried = true;
        let running = slot.running.as_ref().map(|run| run.priority);
        let priority = running
            .or_else(|| slot.pending.as_ref().map(|pending| pending.priority))
            .unwrap_or_default();
        self.retries += 1;
        self.add_after(item, at, priority, causes, now)
    }

    /// Hands out the next item, or says how long there is nothing to do.
    pub fn get(&mut self, now: Instant) -> Next<T, C> {
        self.promote(now);
        let Some(id) = self.choose(now) else {
            return match self.shut_down {
                false => Next::Wait(self.next_due()),
                true => Next::ShutDown,
            };
        };
        self.runs += 1;
        let token = Token {
            slot: id,
            run: self.runs,
        };
        let wake = match self.next_due() {
            _ if !self.is_empty() => Wake::Worker,
            Some(due) => Wake::Timer(due),
            None => Wake::No,
        };
        let slot = self.slot(id);
        let pending = slot.pending.take().expect("what is in a ready list is pending");
        slot.running = Some(Run {
            number: token.run,
            started: now,
            priority: pending.priority,
        });
        slot.retried = false;
        let work = Work {
            item: slot.item.clone(),
            causes: pending.causes,
            token,
            retries: slot.failures,
            priority: pending.priority,
            waited: now.since(slot.ready_since),
            wake,
        };
        self.running.push_back(&mut self.links, id);
        self.running_started += u128::from(now.0);
        Next::Item(work)
    }

    /// Ends a run. Requests from meanwhile take effect now. `None` when this run has ended already.
    pub fn done(&mut self, token: Token, now: Instant) -> Option<Finished> {
        let id = self.moved.get(&token.run).copied().unwrap_or(token.slot);
        let slot = self.slots.get_mut(id as usize)?.as_mut()?;
        let run = slot.running.take_if(|run| run.number == token.run)?;
        self.moved.remove(&token.run);
        self.running.remove(&mut self.links, id);
        self.running_started -= u128::from(run.started.0);
        self.promote(now);
        let slot = self.slot(id);
        if !slot.retried {
            slot.failures = 0; // the streak ends with a run that asks for no retry: no entry of a finished item stays behind
        }
        let wake = match slot.pending.as_ref().map(|pending| pending.due) {
            None => {
                self.release(id);
                Wake::No
            }
            Some(Some(due)) if due > now => self.delay(id, due),
            Some(_) => {
                self.enqueue(id, now);
                Wake::Worker
            }
        };
        Some(Finished {
            worked: now.since(run.started),
            wake,
        })
    }

    /// [`WorkQueue::done`] by item, for hand-written loops.
    pub fn done_item(&mut self, item: &T, now: Instant) -> Option<Finished> {
        // Most loops have one worker, which ends the oldest run first.
        let oldest = self.running.front();
        let slot = match oldest.filter(|id| self.slot(*id).item == *item) {
            Some(id) => id,
            None => self.id_of(item)?,
        };
        let run = self.slot(slot).running.as_ref()?.number;
        self.done(Token { slot, run }, now)
    }

    /// Forgets the failures of an item: its next retry starts from the shortest delay (client-go's `Forget`).
    pub fn forget(&mut self, item: &T) {
        if let Some(id) = self.id_of(item) {
            self.slot(id).failures = 0;
        }
    }

    /// How many failures in a row the item has (client-go's `NumRequeues`).
    pub fn retries(&self, item: &T) -> u32 {
        self.find(item).map_or(0, |slot| slot.failures)
    }

    /// Where the item is.
    pub fn state(&self, item: &T) -> State {
        let Some(slot) = self.find(item) else {
            return State::Idle;
        };
        match (&slot.running, slot.pending.as_ref().map(|pending| pending.due)) {
            (None, None) => State::Idle,
            (None, Some(None)) => State::Queued,
            (None, Some(Some(due))) => State::Delayed(due),
            (Some(_), None) => State::Running,
            (Some(_), Some(None)) => State::RunningDirty,
            (Some(_), Some(Some(due))) => State::RunningDelayed(due),
        }
    }

    /// How many items are ready (client-go's `Len`).
    pub fn len(&self) -> usize {
        self.ready.iter().map(|(_, list)| list.len()).sum()
    }

    /// Whether no item is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether nothing is ready, delayed or running: without a new add nothing will ever happen.
    pub fn is_idle(&self) -> bool {
        self.index.is_empty()
    }

    /// When the earliest delayed item is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    /// The numbers for the metrics.
    pub fn metrics(&self, now: Instant) -> Metrics {
        let total = u128::from(now.0) * self.running.len() as u128;
        let unfinished = total.saturating_sub(self.running_started);
        let mut depths = BTreeMap::from([(Priority::NORMAL, 0), (Priority::LOW, 0)]);
        depths.extend(self.ready.iter().map(|(priority, list)| (*priority, list.len())));
        Metrics {
            depths,
            delayed: self.delayed.len(),
            running: self.running.len(),
            adds: self.adds,
            retries: self.retries,
            unfinished: Duration::from_nanos(u64::try_from(unfinished).unwrap_or(u64::MAX)),
            longest_running: self.longest_run().map_or(Duration::ZERO, |run| now.since(run.started)),
        }
    }

    /// Changes the causes of every item that waits.
    pub fn each_waiting(&mut self, mut change: impl FnMut(&mut C)) {
        let pending = self.slots.iter_mut().flatten().filter_map(|slot| slot.pending.as_mut());
        pending.for_each(|pending| change(&mut pending.causes));
    }

    /// Drops those of the waiting items that `drops` chooses, with their failures. Runs may end.
    pub fn drop_waiting(&mut self, drops: impl Fn(&T, &C) -> bool) {
        for id in 0..u32::try_from(self.slots.len()).expect("slots are numbered with u32") {
            let Some(slot) = self.slots[id as usize].as_mut() else {
                continue;
            };
            let Some(pending) = slot.pending.take_if(|pending| drops(&slot.item, &pending.causes)) else {
                continue;
            };
            if slot.running.is_some() {
                continue; // held, thus in no list
            }
            match (pending.due, pending.priority) {
                (Some(_), _) => self.undelay(id),
                (None, priority) => self.unready(priority, id),
            }
            self.vacate(id);
        }
        self.compact();
    }

    /// Shuts down at once: waiting items are dropped, nothing more is handed out, adds are ignored. Runs may end.
    /// Harmless when repeated. The shell must wake all workers.
    pub fn shut_down(&mut self) {
        self.shut_down = true;
        self.drop_waiting(|_, _| true);
    }

    /// Whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }
}

/// Moving items about.
impl<T: Hash + Eq + Clone, C: Merge, S: BuildHasher + Default> WorkQueue<T, C, S> {
    fn ask(&mut self, item: T, due: Option<Instant>, priority: Priority, causes: C, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::ShutDown;
        }
        self.promote(now);
        let id = self.slot_of(item);
        let slot = self.slot(id);
        let running = slot.running.is_some();
        let before = slot.pending.as_ref().map(|pending| (pending.priority, pending.due));
        match &mut slot.pending {
            None => slot.pending = Some(Pending { priority, causes, due }),
            Some(pending) => {
                pending.causes.merge(causes);
                pending.priority = pending.priority.max(priority);
                // `None` (now) is the earliest of all.
                pending.due = pending.due.min(due);
            }
        }
        let pending = slot.pending.as_ref().expect("set above");
        let after = (pending.priority, pending.due);
        if running {
            return Wake::No; // held until `done`
        }
        match (before, after) {
            (None, (_, None)) => {
                self.enqueue(id, now);
                Wake::Worker
            }
            (Some((_, Some(_))), (_, None)) => {
                self.undelay(id);
                self.enqueue(id, now);
                Wake::Worker
            }
            (Some((old, None)), (new, _)) if old != new => {
                // A raised item goes to the end of its new class; how long it has waited is not forgotten.
                self.unready(old, id);
                self.make_ready(new, id);
                Wake::No
            }
            (Some((_, None)), _) => Wake::No,
            (Some((_, Some(old))), (_, Some(new))) if old == new => Wake::No,
            (Some((_, Some(_))), (_, Some(new))) => {
                self.undelay(id);
                self.delay(id, new)
            }
            (None, (_, Some(new))) => self.delay(id, new),
        }
    }

    /// Makes due items ready, in the order of due times.
    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, _), id) = entry.remove_entry();
            self.delayed_keys.remove(&id);
            self.enqueue(id, due);
        }
    }

    fn enqueue(&mut self, id: u32, since: Instant) {
        self.adds += 1;
        let slot = self.slot(id);
        slot.ready_since = since;
        let pending = slot.pending.as_mut().expect("only what is pending becomes ready");
        pending.due = None;
        let priority = pending.priority;
        self.make_ready(priority, id);
    }

    fn make_ready(&mut self, priority: Priority, id: u32) {
        // There are few: in most queues one or two.
        let at = self.ready.partition_point(|(known, _)| *known > priority);
        if self.ready.get(at).is_none_or(|(known, _)| *known != priority) {
            self.ready.insert(at, (priority, List::default()));
        }
        self.ready[at].1.push_back(&mut self.links, id);
    }

    fn unready(&mut self, priority: Priority, id: u32) {
        let at = self.ready.partition_point(|(known, _)| *known > priority);
        if let Some((known, list)) = self.ready.get_mut(at) {
            debug_assert_eq!(*known, priority, "what is ready is in the list of its priority");
            list.remove(&mut self.links, id);
            if list.len() == 0 {
                self.ready.remove(at);
            }
        }
    }

    fn delay(&mut self, id: u32, due: Instant) -> Wake {
        let sooner = self.next_due().is_none_or(|earliest| due < earliest);
        self.arrivals += 1;
        self.delayed.insert((due, self.arrivals), id);
        self.delayed_keys.insert(id, (due, self.arrivals));
        if sooner { Wake::Timer(due) } else { Wake::No }
    }

    fn undelay(&mut self, id: u32) {
        if let Some(key) = self.delayed_keys.remove(&id) {
            self.delayed.remove(&key);
        }
    }

    /// Takes the next ready item out of its list (Q9).
    fn choose(&mut self, now: Instant) -> Option<u32> {
        let (highest, lower) = self.ready.split_first()?;
        let (mut priority, mut id) = (highest.0, highest.1.front()?);
        // Only hand-outs that a lower item had to wait for count for its turn.
        self.passed = match lower {
            [] => 0,
            _ => self.passed.saturating_add(1),
        };
        if self.passed > self.fairness.weight {
            let fronts = lower
                .iter()
                .filter_map(|(priority, list)| Some((*priority, list.front()?)));
            let since = |id: u32| self.slots[id as usize].as_ref().map(|slot| slot.ready_since);
            let oldest = fronts.min_by_key(|(_, id)| since(*id));
            if let Some((of, oldest)) = oldest
                && since(oldest).is_some_and(|since| now.since(since) >= self.fairness.ageing)
            {
                (priority, id) = (of, oldest);
                self.passed = 0;
            }
        }
        self.unready(priority, id);
        Some(id)
    }

    fn longest_run(&self) -> Option<&Run> {
        let slot = self.slots.get(self.running.front()? as usize)?.as_ref()?;
        slot.running.as_ref()
    }

    fn find(&self, item: &T) -> Option<&Entry<T, C>> {
        self.id_of(item).and_then(|id| self.slots[id as usize].as_ref())
    }

    fn slot(&mut self, id: u32) -> &mut Entry<T, C> {
        self.slots[id as usize]
            .as_mut()
            .expect("lists and index name only slots in use")
    }

    fn hash_of(&self, item: &T) -> u32 {
        let hash = self.hashes.hash_one(item);
        (hash ^ hash >> 32) as u32
    }

    fn id_of(&self, item: &T) -> Option<u32> {
        // Most queues are empty most of the time.
        if self.index.is_empty() {
            return None;
        }
        self.id_by(self.hash_of(item), item)
    }

    fn id_by(&self, hash: u32, item: &T) -> Option<u32> {
        let is_it = |id: u32| self.slots[id as usize].as_ref().is_some_and(|slot| slot.item == *item);
        self.index.find(hash, is_it)
    }

    fn slot_of(&mut self, item: T) -> u32 {
        let hash = self.hash_of(&item);
        if let Some(known) = self.id_by(hash, &item) {
            return known;
        }
        let slot = Entry {
            item,
            hash,
            pending: None,
            running: None,
            failures: 0,
            retried: false,
            ready_since: Instant::ZERO,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(slot);
                id
            }
            None => {
                self.slots.push(Some(slot));
                self.links.push(Links::default());
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 items are pending")
            }
        };
        self.index.insert(hash, id);
        id
    }

    fn release(&mut self, id: u32) {
        self.vacate(id);
        self.compact();
    }

    fn vacate(&mut self, id: u32) {
        if let Some(slot) = self.slots[id as usize].take() {
            self.index.remove(slot.hash, id);
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests;
