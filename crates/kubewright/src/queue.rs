//! The engine's work queue with waiting and waking.
//!
//! The engine decides (deduplication, order, delays, backoff); this file holds the lock, reads tokio's clock and wakes
//! workers. An idle queue costs nothing: a worker sleeps until it is woken or until the next item is due. The clock
//! costs as much as the rest of an add or a get, so that it is read only when it is needed: for delayed items, and for
//! metrics.

use std::fmt;
use std::hash::{Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright_engine::Instant;
use kubewright_engine::backoff::Exponential;
use kubewright_engine::queue::{Fairness, Merge, Metrics, Next, Priority, Token, Wake, Work, WorkQueue as EngineQueue};
use kubewright_engine::rate::RateLimiter;
use tokio::sync::Notify;

/// A queue of keys for hand-written loops (client-go's rate limiting work queue). Cheap to clone.
///
/// A key that is added many times is handed out once; a key is never handed to two workers at once; a key that is added
/// while it is being worked on is handed out again afterwards.
///
/// ```
/// use kubewright::WorkQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::new();
/// queue.add("a");
/// queue.add("a");
/// let key = queue.next().await.expect("the queue is open");
/// assert_eq!(*key, "a");
/// drop(key); // the work on it has ended
/// queue.shut_down();
/// assert!(queue.next().await.is_none());
/// # }
/// ```
pub struct WorkQueue<T: Hash + Eq + Clone>(Queue<T, ()>);

/// A key that is worked on; see [`WorkQueue::next`]. When it is dropped the work has ended, well or not, and the key may
/// be handed out again.
#[must_use = "the work on the key ends when this is dropped"]
pub struct WorkItem<T: Hash + Eq + Clone> {
    queue: Queue<T, ()>,
    item: T,
    token: Token,
}

impl<T: Hash + Eq + Clone> std::ops::Deref for WorkItem<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Hash + Eq + Clone + fmt::Debug> fmt::Debug for WorkItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkItem({:?})", self.item)
    }
}

impl<T: Hash + Eq + Clone> Drop for WorkItem<T> {
    fn drop(&mut self) {
        self.queue.done(self.token);
    }
}

impl<T: Hash + Eq + Clone> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        WorkQueue(self.0.clone())
    }
}

impl<T: Hash + Eq + Clone> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkQueue({} ready)", self.len())
    }
}

impl<T: Hash + Eq + Clone> Default for WorkQueue<T> {
    fn default() -> Self {
        WorkQueue::new()
    }
}

impl<T: Hash + Eq + Clone> WorkQueue<T> {
    /// An empty queue with the usual backoff: 5 ms, doubling up to 1000 s.
    pub fn new() -> WorkQueue<T> {
        WorkQueue::with_rate_limiter(Exponential::default())
    }

    /// An empty queue with a backoff of its own for [`WorkQueue::add_rate_limited`].
    pub fn with_backoff(base: Duration, max: Duration) -> WorkQueue<T> {
        WorkQueue::with_rate_limiter(Exponential { base, max })
    }

    /// An empty queue with a rate limiter for [`WorkQueue::add_rate_limited`]; see [`crate::rate`].
    pub fn with_rate_limiter(limiter: impl RateLimiter + 'static) -> WorkQueue<T> {
        WorkQueue(Queue::with_times(Box::new(limiter), false))
    }

    /// Asks for the key to be worked on as soon as possible.
    pub fn add(&self, key: T) {
        self.0.add(key, Priority::NORMAL, ());
    }

    /// As [`WorkQueue::add`], before keys of a lower priority and after those of a higher one; those of
    /// [`WorkQueue::add`] have 0. A key that waits is raised. Lower keys do not wait for ever: after a second they take
    /// part in turns.
    pub fn add_with_priority(&self, key: T, priority: i32) {
        self.0.add(key, Priority(priority), ());
    }

    /// Asks for the key to be worked on after `delay`, not earlier. The earliest of several delays counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.0.add_after(key, delay, Priority::NORMAL, ());
    }

    /// Asks for a retry after the key's own backoff, and answers the delay; `None` when the queue is shut down. Call it
    /// before the key's [`WorkItem`] is dropped.
    pub fn add_rate_limited(&self, key: T) -> Option<Duration> {
        self.0.add_rate_limited(key, ())
    }

    /// The next key, when there is one; `None` when the queue was shut down. The key is worked on until the guard is
    /// dropped, also by `?`, a panic or a future that is dropped.
    pub async fn next(&self) -> Option<WorkItem<T>> {
        let Work { item, token, .. } = self.0.next().await?;
        Some(WorkItem {
            queue: self.0.clone(),
            item,
            token,
        })
    }

    /// Forgets the failures of the key: its next retry starts from the shortest delay.
    pub fn forget(&self, key: &T) {
        self.0.lock().forget(key);
    }

    /// How many failures in a row the key has.
    pub fn retries(&self, key: &T) -> u32 {
        self.0.lock().retries(key)
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: waiting workers get `None`, adds are ignored.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }
}

/// The queue with the causes of each item, as controllers use it.
pub(crate) struct Queue<T, C>(Arc<Inner<T, C>>);

struct Inner<T, C> {
    engine: Mutex<EngineQueue<T, C, RandomState>>,
    workers: Notify,
    origin: tokio::time::Instant,
    /// Whether metrics ask how long items wait and are worked on.
    times: bool,
}

impl<T, C> Clone for Queue<T, C> {
    fn clone(&self) -> Self {
        Queue(self.0.clone())
    }
}

impl<T: Hash + Eq + Clone, C: Merge> Queue<T, C> {
    pub(crate) fn new(limiter: Box<dyn RateLimiter>) -> Queue<T, C> {
        Queue::with_times(limiter, true)
    }

    fn with_times(limiter: Box<dyn RateLimiter>, times: bool) -> Queue<T, C> {
        Queue(Arc::new(Inner {
            engine: Mutex::new(EngineQueue::limited(limiter, Fairness::default())),
            workers: Notify::new(),
            origin: tokio::time::Instant::now(),
            times,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, EngineQueue<T, C, RandomState>> {
        // The engine runs no foreign code that panics half way: merging causes and comparing keys is ours, a limiter is
        // asked before.
        self.0.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.0.origin.elapsed())
    }

    /// Does something at the present time, which is the beginning of all times where nothing depends on it.
    fn timed<R>(&self, act: impl FnOnce(&mut EngineQueue<T, C, RandomState>, Instant) -> R) -> R {
        if self.0.times {
            let now = self.now(); // before others are locked out
            return act(&mut self.lock(), now);
        }
        let mut engine = self.lock();
        let now = match engine.next_due() {
            Some(_) => self.now(),
            None => Instant::ZERO,
        };
        act(&mut engine, now)
    }

    fn wake(&self, wake: Wake) {
        match wake {
            // A sleeper that is woken for a timer looks at the queue and sleeps until the new time.
            Wake::Worker | Wake::Timer(_) => self.0.workers.notify_one(),
            Wake::No | Wake::ShutDown => {}
        }
    }

    /// Changes the causes of everything that waits.
    pub(crate) fn each_waiting(&self, change: impl FnMut(&mut C)) {
        self.lock().each_waiting(change);
    }

    /// Drops those of the waiting items that `drops` chooses. It must not use the queue.
    pub(crate) fn drop_waiting(&self, drops: impl Fn(&T, &C) -> bool) {
        self.lock().drop_waiting(drops);
    }

    pub(crate) fn add(&self, item: T, priority: Priority, causes: C) {
        let wake = self.timed(|engine, now| engine.add(item, priority, causes, now));
        self.wake(wake);
    }

    pub(crate) fn add_after(&self, item: T, delay: Duration, priority: Priority, causes: C) {
        let now = self.now();
        let wake = self.lock().add_after(item, now + delay, priority, causes, now);
        self.wake(wake);
    }

    pub(crate) fn add_rate_limited(&self, item: T, causes: C) -> Option<Duration> {
        let now = self.now();
        let (wake, delay) = self.lock().add_rate_limited(item, causes, now);
        self.wake(wake);
        delay
    }

    /// As `add_rate_limited`, with the delay that is asked for.
    pub(crate) fn retry(&self, item: T, asked: Option<Duration>, causes: C) -> Option<Duration> {
        let Some(delay) = asked else {
            return self.add_rate_limited(item, causes);
        };
        let now = self.now();
        let wake = self.lock().retry_at(item, now + delay, causes, now);
        self.wake(wake);
        (wake != Wake::ShutDown).then_some(delay)
    }

    pub(crate) async fn next(&self) -> Option<Work<T, C>> {
        // Workers of a queue that always has something never wait, and must not starve the thread's other tasks.
        tokio::task::consume_budget().await;
        loop {
            // A queue with an item is asked once, without a place in the line of waiting workers.
            match self.take() {
                Next::Item(work) => return Some(work),
                Next::ShutDown => return None,
                Next::Wait(_) => {}
            }
            // Registered before the queue is asked again, so that no wake-up between the two is missed.
            let woken = self.0.workers.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match self.take() {
                Next::Item(work) => return Some(work),
                Next::ShutDown => return None,
                Next::Wait(None) => woken.await,
                Next::Wait(Some(due)) => {
                    let due = self.0.origin + due.since(Instant::ZERO);
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    fn take(&self) -> Next<T, C> {
        let next = self.timed(kubewright_engine::WorkQueue::get);
        if let Next::Item(work) = &next {
            // A worker that takes an item hands the watch over: another worker looks for further ready items, or sleeps
            // until the next item is due.
            self.wake(work.wake);
        }
        next
    }

    /// Ends a run, and answers how long it took.
    pub(crate) fn done(&self, token: Token) -> Option<Duration> {
        let finished = self.timed(|engine, now| engine.done(token, now))?;
        self.wake(finished.wake);
        Some(finished.worked)
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.lock().metrics(self.now())
    }

    pub(crate) fn forget(&self, item: &T) {
        self.lock().forget(item);
    }

    /// How many items are ready, and how many wait for their time.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let metrics = self.metrics();
        (metrics.depths.values().sum(), metrics.delayed)
    }

    pub(crate) fn shut_down(&self) {
        self.lock().shut_down();
        self.0.workers.notify_waiters();
        // For a worker that is between asking and waiting on another thread: `enable` made it a waiter already.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test(start_paused = true)]
    async fn q5_a_busy_worker_leaves_the_timer_to_a_sleeping_one() {
        let queue = WorkQueue::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                // Takes one key and never finishes it, as a long reconcile would.
                tokio::spawn(async move { queue.next().await.map(std::mem::forget) })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.add_after("a", Duration::from_secs(1));
        queue.add_after("b", Duration::from_secs(2));
        let started = tokio::time::Instant::now();
        for worker in workers {
            let taken = tokio::time::timeout(Duration::from_secs(10), worker).await;
            assert!(taken.is_ok(), "a key that was due was left lying while a worker slept");
        }
        assert_eq!(started.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn q5_a_delayed_key_comes_when_it_is_due_and_wakes_a_sleeping_worker() {
        let queue = WorkQueue::new();
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move {
                let started = tokio::time::Instant::now();
                let key = queue.next().await;
                (key.map(|key| *key), started.elapsed())
            }
        });
        tokio::task::yield_now().await;
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(10));
        let (key, waited) = worker.await.expect("the worker ends");
        assert_eq!(key, Some("a"));
        assert!(
            waited >= Duration::from_secs(10) && waited < Duration::from_secs(11),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn q6_shutdown_wakes_all_workers() {
        let queue: WorkQueue<u8> = WorkQueue::new();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.shut_down();
        for worker in workers {
            assert!(worker.await.expect("the worker ends").is_none());
        }
    }

    #[tokio::test]
    async fn a_worker_that_always_finds_a_key_lets_others_run() {
        let queue = WorkQueue::new();
        queue.add("a");
        let others_ran = Arc::new(AtomicBool::new(false));
        let worker = tokio::spawn({
            let (queue, others_ran) = (queue.clone(), others_ran.clone());
            async move {
                for _ in 0..10_000 {
                    let key = queue.next().await.expect("the queue is open");
                    queue.add(*key);
                }
                others_ran.load(Ordering::Relaxed)
            }
        });
        tokio::task::yield_now().await;
        others_ran.store(true, Ordering::Relaxed);
        assert!(
            worker.await.expect("the worker ends"),
            "it kept the thread for all of its keys"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_become_due_together_wake_as_many_workers() {
        let queue = WorkQueue::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.add_after(1, Duration::from_secs(1));
        queue.add_after(2, Duration::from_secs(1));
        let mut taken = Vec::new();
        for worker in workers {
            taken.push(worker.await.expect("the worker ends").expect("a key")); // neither has ended
        }
        let mut keys: Vec<i32> = taken.iter().map(|item| **item).collect();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    }

    /// A worker that gives up, panics or is dropped leaves no key locked.
    #[tokio::test]
    async fn a_key_is_free_again_however_its_work_ends() {
        let queue = WorkQueue::new();
        queue.add("a");
        let failing = async {
            let key = queue.next().await.expect("the queue is open");
            queue.add(*key);
            "no number".parse::<u8>()?;
            queue.forget(&key);
            Ok::<_, std::num::ParseIntError>(())
        };
        failing.await.expect_err("it gives up");
        let panicking = tokio::spawn({
            let queue = queue.clone();
            async move {
                let key = queue.next().await.expect("the queue is open");
                queue.add(*key);
                panic!("{key:?}");
            }
        });
        assert!(panicking.await.is_err());
        let dropped = async {
            let _key = queue.next().await.expect("the queue is open");
            queue.add("a");
            std::future::pending::<()>().await;
        };
        assert!(futures::poll!(std::pin::pin!(dropped)).is_pending());
        assert_eq!(queue.next().await.map(|key| *key), Some("a"));
    }
}
