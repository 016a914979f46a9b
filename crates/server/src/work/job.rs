//! Work that is polled when its turn comes, and the queue in which it waits for that.
//!
//! A small executor on the threads of a runtime: each of them but one runs at most one [`Queue::serve`], which takes the
//! next work, polls it once, and lets the runtime look at its timers and sockets.
//!
//! A poll cannot be interrupted. So a user for whom nothing runs does not wait for the polls of others: there is one more
//! thread for it, and the system shares the processors between them.
//!
//! Invariants:
//! - work that is ready is in the queue exactly once, and never polled by two threads;
//! - while work waits, all threads serve the queue, and something runs for each user whose work waits, unless it runs for
//!   [`OTHERS`] more than there are threads;
//! - nothing of the work, its destructor included, runs while the queue is locked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::turns::Turns;
use super::{Client, STACK};

/// A turn counts as this long at most: a machine that slept did not compute.
const LONGEST: Duration = Duration::from_secs(1);

/// How many more threads there may be for users for whom nothing runs.
pub(super) const OTHERS: usize = 32;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All work that is ready.
pub(super) struct Queue {
    pub(super) threads: usize,
    state: Mutex<State>,
}

struct State {
    turns: Turns<Arc<Job>>,
    /// How many threads serve the queue.
    serving: usize,
}

/// Work, and the client that it is done for.
struct Job {
    queue: Arc<Queue>,
    threads: Handle,
    client: Client,
    /// Locked only while the queue is locked.
    stage: Mutex<Stage>,
    /// `None`: it is being polled, or over.
    work: Mutex<Option<Work>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For something other than a turn.
    Waits,
    /// In the queue, under this number.
    Ready(u64),
    Runs,
    /// It was woken meanwhile.
    RunsAgain,
    /// It was given up, and goes after this turn.
    RunsOut,
    Over,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    pub(super) fn new(threads: usize) -> Arc<Queue> {
        Arc::new(Queue {
            threads,
            state: Mutex::new(State {
                turns: Turns::new(),
                serving: 0,
            }),
        })
    }

    /// Does the work on these threads, until it is done or the result is dropped.
    pub(super) fn start(self: &Arc<Queue>, threads: &Handle, client: Client, work: Work) -> GivenUp {
        let job = Arc::new(Job {
            queue: self.clone(),
            threads: threads.clone(),
            client,
            stage: Mutex::new(Stage::Waits),
            work: Mutex::new(Some(work)),
        });
        self.ready(&job);
        GivenUp(job)
    }

    /// The work may go on.
    fn ready(self: &Arc<Queue>, job: &Arc<Job>) {
        let mut state = locked(&self.state);
        let mut stage = locked(&job.stage);
        match *stage {
            Stage::Waits => *stage = Stage::Ready(state.turns.wait(&job.client, job.clone())),
            Stage::Runs => {
                *stage = Stage::RunsAgain;
                return;
            }
            Stage::Ready(_) | Stage::RunsAgain | Stage::RunsOut | Stage::Over => return,
        }
        drop(stage);
        let serving = state.serving;
        if serving >= self.threads && (serving >= self.threads + OTHERS || state.turns.runs(&job.client.user)) {
            return;
        }
        state.serving += 1;
        drop(state);
        if serving < self.threads {
            job.threads.spawn(self.clone().serve());
        } else {
            self.serve_others(&job.threads);
        }
    }

    /// Gives turns on one of the threads until nothing waits for it.
    async fn serve(self: Arc<Queue>) {
        while self.give_turn() {
            tokio::task::yield_now().await;
        }
    }

    /// Gives turns on one more thread, as long as users wait for whom nothing runs.
    fn serve_others(self: &Arc<Queue>, threads: &Handle) {
        let (queue, runtime) = (self.clone(), threads.clone());
        let giving = move || {
            let _timers_and_sockets = runtime.enter();
            while queue.give_turn() {}
        };
        let thread = std::thread::Builder::new().name("kubewright-other".to_owned());
        if let Err(error) = thread.stack_size(STACK).spawn(giving) {
            locked(&self.state).serving -= 1;
            tracing::warn!(%error, "the system gave no thread for a long request; it waits for the turns of others");
        }
    }

    /// Gives a turn, if there is one to give.
    fn give_turn(&self) -> bool {
        let Some(job) = self.next() else { return false };
        let began = Instant::now();
        // What is done for a caller catches its own panics; here are those of destructors.
        if catch_unwind(AssertUnwindSafe(|| job.poll())).is_err() {
            tracing::error!("a long request panicked while it ended; this is a defect of kubewright");
        }
        self.over(&job, began.elapsed());
        true
    }

    fn next(&self) -> Option<Arc<Job>> {
        let mut state = locked(&self.state);
        debug_assert!(
            (1..=self.threads + OTHERS).contains(&state.serving),
            "at most one turn for each thread"
        );
        let next = if state.turns.running() < self.threads {
            state.turns.begin()
        } else {
            state.turns.begin_of_idle()
        };
        let Some(job) = next else {
            state.serving -= 1;
            return None;
        };
        let mut stage = locked(&job.stage);
        debug_assert!(matches!(*stage, Stage::Ready(_)), "{:?} was in the queue", *stage);
        *stage = Stage::Runs;
        drop(stage);
        Some(job)
    }

    /// The turn of this work is over.
    fn over(&self, job: &Arc<Job>, cost: Duration) {
        let is_done = locked(&job.work).is_none();
        let mut state = locked(&self.state);
        let cost = u64::try_from(cost.min(LONGEST).as_nanos()).unwrap_or(u64::MAX);
        state.turns.end(&job.client.user, cost);
        let mut stage = locked(&job.stage);
        let next = match *stage {
            _ if is_done => Stage::Over,
            Stage::RunsOut => Stage::Over,
            Stage::RunsAgain => Stage::Ready(state.turns.wait(&job.client, job.clone())),
            Stage::Runs => Stage::Waits,
            Stage::Waits | Stage::Ready(_) | Stage::Over => unreachable!("it had a turn"),
        };
        *stage = next;
        drop(stage);
        drop(state);
        if next == Stage::Over {
            job.end();
        }
    }

    #[cfg(test)]
    pub(super) fn running(&self) -> usize {
        locked(&self.state).turns.running()
    }

    fn give_up(&self, job: &Arc<Job>) {
        let mut state = locked(&self.state);
        let mut stage = locked(&job.stage);
        let (next, waited) = match *stage {
            Stage::Ready(number) => (Stage::Over, state.turns.leave(&job.client, number)),
            Stage::Waits | Stage::Over => (Stage::Over, None),
            Stage::Runs | Stage::RunsAgain | Stage::RunsOut => (Stage::RunsOut, None),
        };
        *stage = next;
        drop(stage);
        drop(state);
        drop(waited);
        if next == Stage::Over {
            job.end();
        }
    }
}

impl Job {
    /// Computes until it waits for something.
    fn poll(self: &Arc<Job>) {
        // In our hands meanwhile, so that a panic ends it.
        let Some(mut work) = locked(&self.work).take() else {
            return;
        };
        let waker = Waker::from(self.clone());
        if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *locked(&self.work) = Some(work);
        }
    }

    /// Drops what is left of it.
    fn end(&self) {
        let work = locked(&self.work).take();
        drop(work);
    }
}

impl Wake for Job {
    fn wake(self: Arc<Job>) {
        self.queue.ready(&self);
    }

    fn wake_by_ref(self: &Arc<Job>) {
        self.queue.ready(self);
    }
}

/// Ends the work when its caller does not wait for it any more.
pub(super) struct GivenUp(Arc<Job>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.queue.give_up(&self.0);
    }
}
