//! The questions to a queue and its answers: priorities, causes, tokens, work, states, figures.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Instant;

/// How urgent an item is, as a number: of a higher one first. Items that nobody says anything about have 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// The first list and resyncs: controller-runtime's `LowPriority`.
    pub const LOW: Priority = Priority(-100);
    /// Everything else, unless it says so.
    pub const NORMAL: Priority = Priority(0);
}

/// The data that travels with an item: something that can take in a later one of its kind.
pub trait Merge {
    /// Adds the causes of a later request.
    fn merge(&mut self, later: Self);
}

impl Merge for () {
    fn merge(&mut self, (): ()) {}
}

/// How much lower priorities get when there is always something of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fairness {
    /// The oldest item of each lower priority is held back this long at most before it takes part in turns.
    pub ageing: Duration,
    /// How many items of the highest priority are handed out for one lower item that takes part.
    pub weight: u32,
}

impl Default for Fairness {
    /// One second, and then one in eight.
    fn default() -> Fairness {
        Fairness {
            ageing: Duration::from_secs(1),
            weight: 7,
        }
    }
}

/// The shell's duty after a call that may have made work available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Nothing: the item is pending already, or is held until `done`.
    No,
    /// An item became ready: wake one waiting worker.
    Worker,
    /// The earliest due time moved to this moment: the worker that sleeps until the next due time must sleep anew.
    Timer(Instant),
    /// The queue is shut down and ignored the call.
    ShutDown,
}

/// Names one run of an item, from [`WorkQueue::get`](super::WorkQueue::get) to
/// [`WorkQueue::done`](super::WorkQueue::done).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) slot: u32,
    pub(super) run: u64,
}

/// An item that was handed to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work<T, C> {
    /// The item.
    pub item: T,
    /// Everything that asked for this run, merged.
    pub causes: C,
    /// For [`WorkQueue::done`](super::WorkQueue::done).
    pub token: Token,
    /// Failures in a row before this run.
    pub retries: u32,
    /// Its priority.
    pub priority: Priority,
    /// How long it was ready before it was handed out (`workqueue_queue_duration_seconds`).
    pub waited: Duration,
    /// The work that is left for another worker: this one is busy from now on and must wake it, or no worker would wait
    /// for ready items and due times.
    pub wake: Wake,
}

/// The answer of [`WorkQueue::get`](super::WorkQueue::get).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T, C> {
    /// Do this, then call [`WorkQueue::done`](super::WorkQueue::done).
    Item(Work<T, C>),
    /// Nothing is ready. Ask again after a [`Wake`], or at this moment when there is one.
    Wait(Option<Instant>),
    /// The queue is shut down: the worker ends.
    ShutDown,
}

/// The answer of [`WorkQueue::done`](super::WorkQueue::done).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How long the run took (`workqueue_work_duration_seconds`).
    pub worked: Duration,
    /// The new state of the item: ready again, delayed, or idle.
    pub wake: Wake,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Unknown to the queue.
    Idle,
    /// Ready.
    Queued,
    /// Due at this moment.
    Delayed(Instant),
    /// With a worker.
    Running,
    /// With a worker, and to be run again.
    RunningDirty,
    /// With a worker, and to be run again at this moment.
    RunningDelayed(Instant),
}

/// The contents of the queue and its work so far; the numbers behind the `workqueue_*` metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// How many items are ready, by priority. [`Priority::NORMAL`] and [`Priority::LOW`] are always there.
    pub depths: BTreeMap<Priority, usize>,
    /// Items that wait for their due time.
    pub delayed: usize,
    /// Items with workers.
    pub running: usize,
    /// How often an item became ready (`workqueue_adds_total`).
    pub adds: u64,
    /// How often a retry was asked for (`workqueue_retries_total`).
    pub retries: u64,
    /// The time spent so far on running items, added up (`workqueue_unfinished_work_seconds`).
    pub unfinished: Duration,
    /// The longest present run (`workqueue_longest_running_processor_seconds`).
    pub longest_running: Duration,
}
