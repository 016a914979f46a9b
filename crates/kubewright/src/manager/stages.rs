//! The stages of a manager: what there is in which order, and how it is stopped.
//!
//! The stages are started as [`ORDER`] says, each when those before it are there and what it waits for is, and stopped
//! in reverse, also when one of them cannot be started. Invariants: no stage outlives one that was started after it,
//! unless that does not stop in time; what was not started is not stopped; every part that does not stop in time is
//! named and aborted.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::panic_place::end_with_place;
use crate::stop::{Stop, StopSource};

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Probes, metrics, profiles.
    Servers,
    /// The webhook server: before any list, which may need a conversion that we serve ourselves.
    Webhooks,
    /// The writers of events.
    Events,
    /// Leader election and sharding.
    Elections,
    /// The controllers and their informers.
    Controllers,
    /// What runs beside the controllers.
    Runnables,
}

/// When a stage is started, and until when it must have stopped.
pub(super) struct Step {
    pub(super) stage: Stage,
    /// For how long it waits for the caches of all controllers.
    pub(super) waits_for_caches: Option<Duration>,
    /// It must have stopped when so much of the graceful period is over.
    share: f32,
}

/// The order of the start. Each leaves a part of the graceful period to those that stop after it, so that a runnable that
/// hangs does not take the Lease, the events and the probes with it.
pub(super) const ORDER: [Step; 6] = [
    Step::new(Stage::Servers, None, 1.0),
    Step::new(Stage::Webhooks, None, 0.98),
    Step::new(Stage::Events, None, 0.96),
    Step::new(Stage::Elections, None, 0.94),
    Step::new(Stage::Controllers, None, 0.9),
    Step::new(Stage::Runnables, Some(Duration::from_secs(30)), 0.85),
];

impl Step {
    const fn new(stage: Stage, waits_for_caches: Option<Duration>, share: f32) -> Step {
        Step {
            stage,
            waits_for_caches,
            share,
        }
    }
}

/// The stages that were started.
pub(super) struct Stages {
    failures: mpsc::UnboundedSender<Error>,
    started: Vec<Group>,
}

impl Stages {
    /// `failures` is told the error of each part that fails.
    pub(super) fn new(failures: mpsc::UnboundedSender<Error>) -> Stages {
        Stages {
            failures,
            started: Vec::new(),
        }
    }

    /// The next stage begins; its parts are spawned in the answer.
    pub(super) fn begin(&mut self, stage: Stage) -> Group {
        debug_assert_eq!(ORDER[self.started.len()].stage, stage, "the stages have an order");
        let group = Group::new(self.failures.clone());
        self.started.push(group.clone());
        group
    }

    /// Stops the stages, the last one first; answers the names of the parts that did not stop in time.
    pub(super) async fn stop(self, graceful: Duration) -> Vec<String> {
        let begin = Instant::now();
        let mut stuck = Vec::new();
        for (step, group) in ORDER.iter().zip(self.started).rev() {
            group.0.source.stop();
            let deadline = begin + graceful.mul_f32(step.share);
            // Taken out: nothing is added to a stage that stops.
            let parts = std::mem::take(&mut *group.tasks());
            for (name, mut task) in parts {
                if timeout_at(deadline, &mut task).await.is_err() {
                    task.abort();
                    stuck.push(name);
                }
            }
        }
        stuck
    }
}

/// The parts of a stage, which are stopped together. A clone is another handle to them.
#[derive(Clone)]
pub(super) struct Group(Arc<Inner>);

struct Inner {
    source: StopSource,
    failures: mpsc::UnboundedSender<Error>,
    tasks: Mutex<Vec<(String, JoinHandle<()>)>>,
}

impl Group {
    fn new(failures: mpsc::UnboundedSender<Error>) -> Group {
        let (source, _) = Stop::pair();
        Group(Arc::new(Inner {
            source,
            failures,
            tasks: Mutex::default(),
        }))
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<(String, JoinHandle<()>)>> {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(&self) -> Stop {
        self.0.source.token()
    }

    pub(super) fn spawn(&self, name: &str, part: impl Future<Output = Result<()>> + Send + 'static) {
        let (failures, owned) = (self.0.failures.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            let ended = AssertUnwindSafe(part).catch_unwind().await;
            let ended = ended.unwrap_or_else(|payload| {
                Err(Error::Panic {
                    what: owned.clone(),
                    message: end_with_place(payload),
                })
            });
            if let Err(error) = ended {
                // The receiver is gone only when the manager is, and then the error has no reader.
                let _ = failures.send(error.in_part(owned));
            }
        });
        let mut tasks = self.tasks();
        tasks.retain(|(_, task)| !task.is_finished()); // of controllers that came and went
        tasks.push((name.to_owned(), task));
    }
}

impl Drop for Inner {
    /// A manager whose future is dropped leaves nothing behind.
    fn drop(&mut self) {
        self.source.stop();
        for (_, task) in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Log = Arc<Mutex<Vec<String>>>;

    fn note(log: &Log, what: String) {
        log.lock().expect("no panic").push(what);
    }

    /// What a part of a stage does.
    #[derive(Clone, Copy, PartialEq)]
    enum Does {
        Stops,
        Fails,
        Panics,
        Hangs,
    }

    fn part(stages: &mut Stages, stage: Stage, does: Does, log: &Log) {
        let group = stages.begin(stage);
        let (stop, log) = (group.stop(), log.clone());
        group.spawn(&format!("{stage:?}"), async move {
            match does {
                Does::Fails => return Err(Error::Configuration("it broke".to_owned())),
                Does::Panics => panic!("it broke"),
                Does::Hangs => std::future::pending().await,
                Does::Stops => stop.requested().await,
            }
            note(&log, format!("{stage:?}"));
            Ok(())
        });
    }

    fn named(steps: &[Step]) -> Vec<String> {
        steps.iter().rev().map(|step| format!("{:?}", step.stage)).collect()
    }

    /// A failure at each stage: when it cannot be started, when it breaks later, when it does not stop. The others stop
    /// in reverse, and those behind it were never there.
    #[tokio::test(start_paused = true)]
    async fn whatever_fails_the_stages_before_it_stop_in_reverse() {
        const GRACEFUL: Duration = Duration::from_secs(30);
        for at in 0..=ORDER.len() {
            // It cannot be started: the manager stops what there is.
            let (failures, _failed) = mpsc::unbounded_channel();
            let (mut stages, log) = (Stages::new(failures), Log::default());
            for step in &ORDER[..at] {
                part(&mut stages, step.stage, Does::Stops, &log);
            }
            assert_eq!(stages.stop(GRACEFUL).await, [] as [String; 0]);
            assert_eq!(*log.lock().expect("no panic"), named(&ORDER[..at]));
        }
        let shares: Vec<f32> = ORDER.iter().map(|step| step.share).collect();
        assert!(
            shares[0] <= 1.0 && shares.windows(2).all(|two| two[0] > two[1]),
            "{shares:?}"
        );
        for (at, broken) in ORDER.iter().enumerate() {
            for does in [Does::Fails, Does::Panics, Does::Hangs] {
                let (failures, mut failed) = mpsc::unbounded_channel();
                let (mut stages, log, begin) = (Stages::new(failures), Log::default(), Instant::now());
                for step in &ORDER {
                    let does = if step.stage == broken.stage { does } else { Does::Stops };
                    part(&mut stages, step.stage, does, &log);
                }
                if does != Does::Hangs {
                    let error = failed.recv().await.expect("an error").to_string();
                    assert!(
                        error.contains(&format!("{:?}", broken.stage)) && error.contains("it broke"),
                        "{error}"
                    );
                }
                let stuck = stages.stop(GRACEFUL).await;
                let mut others = named(&ORDER);
                let name = others.remove(ORDER.len() - 1 - at);
                assert_eq!(*log.lock().expect("no panic"), others);
                let (expected, took) = match does {
                    Does::Hangs => (vec![name], GRACEFUL.mul_f32(broken.share)),
                    _ => (Vec::new(), Duration::ZERO),
                };
                assert_eq!(stuck, expected);
                let late = begin.elapsed().saturating_sub(took);
                assert!(late < Duration::from_millis(5), "{:?}: {late:?} late", broken.stage);
            }
        }
    }

    /// What is dropped in the middle leaves nothing behind.
    #[tokio::test]
    async fn stages_that_are_dropped_are_aborted() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let mut stages = Stages::new(failures);
        let held = Arc::new(());
        let group = stages.begin(Stage::Servers);
        let inside = held.clone();
        group.spawn("deaf", async move {
            std::future::pending::<()>().await;
            drop(inside);
            Ok(())
        });
        drop((stages, group));
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
