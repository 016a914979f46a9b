//! The task of one informer: obeys the engine's reflector, which decides everything.
//!
//! One request or stream is open at a time. Events that the stream delivers without waiting are collected (the delta
//! queue bounds them) and applied together, so that a burst costs one wake-up of each reader that waits for the store.
//!
//! Invariants: RF8 a stop takes effect at every await; a failing kind fails alone, since nothing here is shared between
//! informers; the informer counts as synced only after the batch with the end of the first list was applied and every
//! handler has returned (DF3); a panic of a type's code ends the task never silently and never for good.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use kubewright_engine::backoff::ReflectorBackoff;
use kubewright_engine::delta::{DEFAULT_CAPACITY, DeltaQueue};
use kubewright_engine::dispatch::end_of_panic;
use kubewright_engine::reflector::{Action, Config, Health, Input, Reflector};
use kubewright_engine::{Delta, Instant};

use super::core::Core;
use super::store::KubeMeta;
use super::wire::{Frames, Wire};
use crate::form::Cached;
use crate::stop::Stop;

/// At most this many objects are collected before they are applied.
const BATCH: usize = 256;

/// How long a watch stays open where time is a test's, and how long it may be silent.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How watches go about it. Where time is a test's no connection is lost in silence, and all that time that passes does
/// not have to be spent on asking whether one was.
pub(super) fn config(is_virtual: bool) -> Config {
    match is_virtual {
        false => Config::default(),
        true => Config {
            watch_timeout: YEAR,
            watch_silence: 2 * YEAR,
            ..Config::default()
        },
    }
}

pub(super) fn spawn(wire: Wire, config: Config, stop: Stop) {
    tokio::spawn(supervise(Arc::new(wire), config, stop));
}

/// Runs the task until the stop. Code of the objects' type runs within it, their `Drop` among others: when that panics,
/// the task begins anew with a list, which the store compares with its objects.
async fn supervise(wire: Arc<Wire>, config: Config, stop: Stop) {
    let core = wire.core.clone();
    let origin = tokio::time::Instant::now();
    let mut backoff = ReflectorBackoff::default();
    loop {
        let task = Task::new(core.clone(), wire.clone(), config);
        let Err(payload) = AssertUnwindSafe(task.run(stop.clone())).catch_unwind().await else {
            return;
        };
        let why = end_of_panic(payload);
        core.set_degraded(format!("code of its objects panicked, and it lists them anew: {why}"));
        let wait = backoff.next(Instant::from_origin(origin.elapsed()), entropy());
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Task {
    core: Arc<Core>,
    wire: Arc<Wire>,
    reflector: Reflector<dyn Cached, KubeMeta>,
    queue: DeltaQueue<dyn Cached>,
    /// The newest health that the reflector reported, until the deltas before it are applied.
    health: Option<Health>,
    /// The request or stream that is open.
    open: BoxStream<'static, Input<dyn Cached>>,
    origin: tokio::time::Instant,
}

impl Task {
    fn new(core: Arc<Core>, wire: Arc<Wire>, config: Config) -> Task {
        Task {
            core,
            wire,
            reflector: Reflector::new(config),
            queue: DeltaQueue::default(),
            health: None,
            open: stream::pending().boxed(),
            origin: tokio::time::Instant::now(),
        }
    }

    async fn run(mut self, stop: Stop) {
        let mut input = Input::Start;
        loop {
            if !self.obey(input) {
                return;
            }
            input = match self.open.next().now_or_never().flatten() {
                Some(ready) if self.queue.objects() < BATCH && !stop.is_requested() => ready,
                ready => {
                    self.flush();
                    // A server that always has more must not starve the other tasks.
                    tokio::task::consume_budget().await;
                    match ready {
                        Some(ready) if !stop.is_requested() => ready,
                        _ => self.wait(&stop).await,
                    }
                }
            };
        }
    }

    /// Hands an input to the reflector and does its actions; `false` when it is over.
    fn obey(&mut self, input: Input<dyn Cached>) -> bool {
        let now = Instant::from_origin(self.origin.elapsed());
        for action in self.reflector.handle(input, now, entropy()) {
            match action {
                Action::List {
                    version,
                    limit,
                    continue_token,
                } => {
                    let wire = self.wire.clone();
                    let page = async move { wire.list(version, limit, continue_token).await };
                    self.open = stream::once(page).chain(stream::pending()).boxed();
                }
                Action::Watch {
                    version,
                    send_initial_events,
                    timeout,
                } => {
                    let wire = self.wire.clone();
                    let opening = async move { wire.watch(version, send_initial_events, timeout).await };
                    self.open = watch_inputs(opening);
                }
                Action::Wait(_) => self.open = stream::pending().boxed(),
                Action::Apply(delta) => self.push(delta),
                Action::Health(health) => self.health = Some(health),
                Action::Stopped => {
                    self.flush();
                    return false;
                }
            }
        }
        true
    }

    fn push(&mut self, delta: Delta<dyn Cached>) {
        if let Err(delta) = self.queue.push(delta) {
            self.apply_queue();
            if self.queue.push(delta).is_err() {
                unreachable!("an empty queue takes any delta");
            }
        }
    }

    fn apply_queue(&mut self) {
        while let Some(batch) = self.queue.pop_batch(DEFAULT_CAPACITY) {
            self.core.apply(batch);
        }
    }

    /// Applies the collected events, then reports the progress.
    fn flush(&mut self) {
        self.apply_queue();
        self.core.trim();
        match self.health.take() {
            Some(Health::Degraded(reason)) => self.core.set_degraded(reason),
            Some(Health::Synced) => self.core.set_synced(),
            Some(Health::Pending | Health::Syncing) | None => {}
        }
    }

    async fn wait(&mut self, stop: &Stop) -> Input<dyn Cached> {
        let deadline = self
            .reflector
            .deadline()
            .map(|due| self.origin + due.since(Instant::ZERO));
        let timer = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => Input::Stop,
            () = timer => Input::Timer,
            input = self.open.next() => match input {
                Some(input) => input,
                None => {
                    self.open = stream::pending().boxed();
                    Input::Ended { clean: false }
                }
            },
        }
    }
}

/// A watch from its request to its end, as inputs. The last one is a failure or the end; then the stream is silent.
fn watch_inputs(
    opening: impl Future<Output = Result<Frames, kubewright_engine::reflector::Failure>> + Send + 'static,
) -> BoxStream<'static, Input<dyn Cached>> {
    let inputs: Pin<Box<dyn Stream<Item = Input<dyn Cached>> + Send>> =
        Box::pin(stream::once(opening).flat_map(|opened| match opened {
            Err(failure) => stream::iter([Input::Failed(failure)]).boxed(),
            Ok(frames) => {
                let events = stream::unfold(Some(frames), |frames| async move {
                    let mut frames = frames?;
                    let input = frames.next().await;
                    let over = matches!(input, Input::Failed(_) | Input::Ended { .. });
                    Some((input, (!over).then_some(frames)))
                });
                stream::iter([Input::Started]).chain(events).boxed()
            }
        }));
    inputs.chain(stream::pending()).boxed()
}

/// A fresh random number. The standard library seeds every hasher of this kind differently.
pub(crate) fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}
