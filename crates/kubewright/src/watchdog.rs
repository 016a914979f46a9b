//! Notices code that blocks its thread: a poll of a reconcile that does not return.
//!
//! Async code gives its thread back at every await. A reconcile that does not, because it waits for a lock, calls
//! something that blocks or computes for long, cannot be dropped at the end of its term, and takes the thread from all
//! other tasks. It is logged with its controller, its key and the time, counted in a metric, and after a minute the
//! liveness probe asks for a restart.
//!
//! Invariants: a reconcile that waits, however long, is not reported, because its polls return; each blocking poll is
//! logged once; watching costs a poll two stores and a load. Time is counted in looks, one a second, so that no clock is
//! read. While no reconcile is being polled nothing looks: an idle operator does not wake, and a clock that a test owns
//! is not advanced second by second.
//!
//! Not here: a runtime with one thread that is blocked answers no probe at all.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::metrics::Metrics;
use crate::request::Request;
use crate::stop::Stop;
use tokio::sync::Notify;

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(1);
/// After so many looks a poll that has not returned is told of.
const TOLD_AFTER: u64 = 5;
/// After so many looks the process is to be restarted.
const UNHEALTHY_AFTER: u64 = 60;

/// Watches the workers of a manager. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    looks: AtomicU64,
    /// Nothing looks until the next poll begins.
    rests: AtomicBool,
    begun: Notify,
    workers: Mutex<Vec<Weak<Worker>>>,
}

/// One worker, as the watchdog sees it.
pub(crate) struct Worker {
    watchdog: Watchdog,
    controller: Arc<str>,
    /// What it works on.
    key: Mutex<Option<Request>>,
    /// The look after which its present poll began; 0: it is not being polled.
    since: AtomicU64,
    is_told: AtomicBool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({})", self.controller)
    }
}

impl Watchdog {
    fn workers(&self) -> MutexGuard<'_, Vec<Weak<Worker>>> {
        self.0.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker of a controller, watched as long as it lives.
    pub(crate) fn worker(&self, controller: &Arc<str>) -> Arc<Worker> {
        let worker = Arc::new(Worker {
            watchdog: self.clone(),
            controller: controller.clone(),
            key: Mutex::default(),
            since: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
        });
        let mut workers = self.workers();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(&worker));
        worker
    }

    /// Looks every second while reconciles are polled, until the stop.
    pub(crate) async fn run(self, metrics: Metrics, stop: Stop) {
        let watching = async {
            loop {
                self.poll_begun().await;
                tokio::time::sleep(PERIOD).await;
                while self.look(&metrics) > 0 {
                    tokio::time::sleep(PERIOD).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => (),
            () = watching => (),
        }
    }

    /// Returns at once while a reconcile is being polled, and otherwise when the next poll begins.
    ///
    /// Here `rests` is stored before `since` is read, in a poll the other way round, all sequentially consistent. So a
    /// poll that begins meanwhile is seen here, or it sees that nothing looks.
    async fn poll_begun(&self) {
        self.0.rests.store(true, Ordering::SeqCst);
        if self
            .workers()
            .iter()
            .filter_map(Weak::upgrade)
            .any(|worker| worker.since.load(Ordering::SeqCst) > 0)
        {
            self.0.rests.store(false, Ordering::SeqCst);
            return;
        }
        self.0.begun.notified().await;
    }

    /// How many workers have blocked for long.
    fn look(&self, metrics: &Metrics) -> i64 {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        let workers: Vec<Arc<Worker>> = self.workers().iter().filter_map(Weak::upgrade).collect();
        let mut blocked = 0;
        for worker in workers {
            let seconds = worker.blocks_for();
            if seconds < TOLD_AFTER {
                continue;
            }
            blocked += 1;
            if !worker.is_told.swap(true, Ordering::Relaxed) {
                let (controller, object) = (&worker.controller, worker.key());
                tracing::error!(
                    %controller, object, seconds,
                    "a reconcile blocks its thread; use tokio::task::spawn_blocking for code that does not await"
                );
            }
        }
        metrics.blocked(blocked);
        blocked
    }

    /// For the liveness probe: whether no reconcile has blocked for a minute.
    pub(crate) fn check(&self) -> Result<(), String> {
        let workers: Vec<Arc<Worker>> = self.workers().iter().filter_map(Weak::upgrade).collect();
        let stuck = workers.iter().filter(|worker| worker.blocks_for() >= UNHEALTHY_AFTER);
        let stuck: Vec<String> = stuck
            .map(|worker| {
                let seconds = worker.blocks_for();
                format!(
                    "controller {} has been blocked for {seconds} s by the reconcile of {}",
                    worker.controller,
                    worker.key()
                )
            })
            .collect();
        match stuck.is_empty() {
            true => Ok(()),
            false => Err(stuck.join("; ")),
        }
    }
}

impl Worker {
    /// From now on it works on this key.
    pub(crate) fn takes(&self, key: &Request) {
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
    }

    /// The same future, of which each poll is watched.
    pub(crate) async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            let Inner {
                looks, rests, begun, ..
            } = &*self.watchdog.0;
            self.since
                .store(looks.load(Ordering::Relaxed).saturating_add(1), Ordering::SeqCst);
            if rests.load(Ordering::SeqCst) && rests.swap(false, Ordering::SeqCst) {
                begun.notify_one();
            }
            let _polled = Polled(self);
            work.as_mut().poll(cx)
        })
        .await
    }

    fn key(&self) -> String {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        key.as_ref().map_or_else(|| "no object".to_owned(), ToString::to_string)
    }

    /// For how many looks its present poll has not returned.
    fn blocks_for(&self) -> u64 {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => self.watchdog.0.looks.load(Ordering::Relaxed).saturating_sub(since - 1),
        }
    }
}

/// A poll, until it returns or panics.
struct Polled<'a>(&'a Worker);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
        if self.0.is_told.load(Ordering::Relaxed) {
            self.0.is_told.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_poll_that_does_not_return_is_told_of_and_asks_for_a_restart() {
        let (watchdog, metrics) = (Watchdog::default(), Metrics::new());
        let worker = watchdog.worker(&Arc::from("mirror"));
        worker.takes(&Request::new(Some("default"), "a"));
        let (begins, begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let blocked = worker.clone();
        let thread = std::thread::spawn(move || {
            let work = async {
                begins.send(()).expect("the test waits");
                let _ = ends.recv();
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(blocked.watch(work));
        });
        begun.recv().expect("it begins");
        let look = |times: u64| (0..times).for_each(|_| _ = watchdog.look(&metrics));
        let metric = |count: u64| {
            metrics
                .encode()
                .contains(&format!("kubewright_blocked_reconciles {count}\n"))
        };
        look(TOLD_AFTER - 1);
        assert!(metric(0), "{}", metrics.encode());
        look(1);
        assert!(metric(1), "{}", metrics.encode());
        look(UNHEALTHY_AFTER - TOLD_AFTER - 1);
        assert_eq!(watchdog.check(), Ok(()));
        look(1);
        let why = "controller mirror has been blocked for 60 s by the reconcile of default/a";
        assert_eq!(watchdog.check(), Err(why.to_owned()));
        end.send(()).expect("it waits");
        thread.join().expect("no panic");
        look(1);
        assert_eq!(watchdog.check(), Ok(()));
        assert!(metric(0), "{}", metrics.encode());
    }

    #[test]
    fn work_that_waits_is_not_told_of() {
        let (watchdog, metrics) = (Watchdog::default(), Metrics::new());
        let worker = watchdog.worker(&Arc::from("mirror"));
        let mut waiting = Box::pin(worker.watch(std::future::pending::<()>()));
        let polled = futures::FutureExt::now_or_never(&mut waiting);
        assert!(polled.is_none());
        (0..1000).for_each(|_| _ = watchdog.look(&metrics));
        assert_eq!(watchdog.check(), Ok(()));
        assert!(metrics.encode().contains("kubewright_blocked_reconciles 0\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_looks_while_nothing_is_polled() {
        let (watchdog, metrics) = (Watchdog::default(), Metrics::new());
        let worker = watchdog.worker(&Arc::from("mirror"));
        let (_source, stop) = Stop::pair();
        let running = tokio::spawn(watchdog.clone().run(metrics, stop));
        let looks = async |hours: u64| {
            tokio::time::sleep(Duration::from_secs(3600 * hours)).await;
            watchdog.0.looks.load(Ordering::Relaxed)
        };
        assert_eq!(looks(24).await, 0);
        worker.watch(std::future::ready(())).await;
        assert_eq!(looks(24).await, 1);
        let mut waiting = Box::pin(worker.watch(std::future::pending::<()>()));
        assert!(futures::FutureExt::now_or_never(&mut waiting).is_none());
        assert_eq!(looks(24).await, 2);
        // As in a poll that does not return.
        worker.since.store(1, Ordering::SeqCst);
        watchdog.0.rests.store(false, Ordering::SeqCst);
        watchdog.0.begun.notify_one();
        assert!(looks(1).await >= 3600);
        running.abort();
    }
}
