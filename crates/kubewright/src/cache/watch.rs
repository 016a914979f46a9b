//! The task of one store: obeys the engine's reflector, which decides everything.
//!
//! One request or stream is open at a time. Events that the stream delivers without waiting are collected (the delta
//! queue bounds them) and applied together, so that a burst costs one wake-up of each reader that waits for the store.
//! When the store is to hold more, a second reflector fills a store of its own, until that can replace the first.
//!
//! Invariants: RF8 a stop takes effect at every await; a failing kind fails alone, since nothing here is shared between
//! stores; a wider watch that fails leaves the present one alone; a view counts as synced only after the batch with the
//! end of its first list was applied and every handler has returned (DF3); a panic of a type's code ends the task never
//! silently and never for good.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use kubewright_engine::backoff::ReflectorBackoff;
use kubewright_engine::delta::{DEFAULT_CAPACITY, DeltaQueue};
use kubewright_engine::dispatch::end_of_panic;
use kubewright_engine::reflector::{Action, Config, Health, Input, Reflector};
use kubewright_engine::{Delta, Instant};
use tokio::sync::Notify;

use super::coverage::Coverage;
use super::shared::SharedStore;
use super::store::KubeMeta;
use super::wire::{Frames, Target, Wire};
use crate::clock::Entropy;
use crate::form::Cached;
use crate::metrics::Metrics;
use crate::stop::Stop;
use crate::watch;

/// At most this many objects are collected before they are applied.
const BATCH: usize = 256;

/// How long a watch stays open where time is a test's, and how long it may be silent.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How watches go about it. Where time is a test's no connection is lost in silence, and all that time that passes does
/// not have to be spent on asking whether one was. `silence`: how long the watch of objects that change all the time may
/// say nothing.
pub(super) fn config(is_virtual: bool, silence: Option<Duration>) -> Config {
    let mut config = Config::default();
    if is_virtual {
        (config.watch_timeout, config.watch_silence) = (YEAR, 2 * YEAR);
    }
    if let Some(silence) = silence {
        (config.watch_silence, config.always_alive) = (silence, true);
    }
    config
}

/// What a task watches, and how.
#[derive(Clone)]
pub(super) struct Watching {
    pub(super) kube: kube::Client,
    pub(super) metrics: Metrics,
    pub(super) store: Arc<SharedStore>,
    pub(super) config: Config,
    pub(super) entropy: Entropy,
}

/// `declaring`: how many are still to say what they need.
pub(super) fn spawn(watching: Watching, mut declaring: watch::Receiver<usize>, stop: Stop) {
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = stop.requested() => return,
            // An error means that the cache is gone; whoever has the store still wants it filled.
            _ = declaring.wait_for(|count| *count == 0) => {}
        }
        drop(declaring);
        follow(watching, stop).await;
    });
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Follows the server until the stop, with what the store wants at the time.
async fn follow(watching: Watching, stop: Stop) {
    let mut wants = watching.store.wants();
    let wanted = |wants: &mut watch::Receiver<Coverage>| wants.borrow_and_update().clone();
    let adopted = Arc::new(Notify::new());
    let run = |coverage: &Coverage, adopted: Option<Arc<Notify>>| -> Running {
        Box::pin(supervise(watching.clone(), coverage.clone(), adopted, stop.clone()))
    };
    let mut present = run(&wanted(&mut wants), None);
    let mut wider: Option<Running> = None;
    loop {
        tokio::select! {
            biased;
            () = stop.requested() => return,
            // Before the narrower watch is looked at again: what it brings is no news any more.
            () = adopted.notified(), if wider.is_some() => {
                present = wider.take().expect("looked at above");
                watching.store.forget_wider_trouble();
            }
            changed = wants.changed() => {
                if changed.is_err() {
                    return;
                }
                watching.store.forget_wider_trouble();
                wider = Some(run(&wanted(&mut wants), Some(adopted.clone())));
            }
            () = &mut present => return,
            () = async { wider.as_mut().expect("looked at before").await }, if wider.is_some() => return,
        }
    }
}

/// Runs a watch until the stop. Code of the objects' type runs within it, their `Drop` among others: when that panics,
/// it begins anew with a list, which the store compares with its objects. `adopted`: it is to replace another one.
async fn supervise(watching: Watching, coverage: Coverage, adopted: Option<Arc<Notify>>, stop: Stop) {
    let store = watching.store.clone();
    let origin = tokio::time::Instant::now();
    let mut backoff = ReflectorBackoff::default();
    let is_wider = Arc::new(AtomicBool::new(adopted.is_some()));
    loop {
        let wider = is_wider.load(Ordering::Relaxed);
        let target = Target {
            store: store.clone(),
            coverage: coverage.clone(),
            staged: wider.then(Arc::default),
        };
        let wire = Arc::new(Wire {
            kube: watching.kube.clone(),
            metrics: watching.metrics.clone(),
            target: Arc::new(target),
        });
        let replaces = adopted.clone().map(|adopted| (adopted, is_wider.clone()));
        let task = Task::new(wire, &watching, replaces);
        let Err(payload) = AssertUnwindSafe(task.run(stop.clone())).catch_unwind().await else {
            return;
        };
        let why = end_of_panic(payload);
        let reason = format!("code of its objects panicked, and it lists them anew: {why}");
        store.set_degraded(&coverage, reason, is_wider.load(Ordering::Relaxed));
        let wait = backoff.next(Instant::from_origin(origin.elapsed()), watching.entropy.draw());
        tokio::select! {
            biased;
            () = stop.requested() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Task {
    wire: Arc<Wire>,
    reflector: Reflector<dyn Cached, KubeMeta>,
    entropy: Entropy,
    queue: DeltaQueue<dyn Cached>,
    /// The newest health that the reflector reported, until the deltas before it are applied.
    health: Option<Health>,
    /// The request or stream that is open.
    open: BoxStream<'static, Input<dyn Cached>>,
    origin: tokio::time::Instant,
    /// Whom to tell when it replaces another watch, and whether it still is to.
    replaces: Option<(Arc<Notify>, Arc<AtomicBool>)>,
}

impl Task {
    fn new(wire: Arc<Wire>, watching: &Watching, replaces: Option<(Arc<Notify>, Arc<AtomicBool>)>) -> Task {
        Task {
            wire,
            reflector: Reflector::new(watching.config),
            entropy: watching.entropy.clone(),
            queue: DeltaQueue::default(),
            health: None,
            open: stream::pending().boxed(),
            origin: tokio::time::Instant::now(),
            replaces,
        }
    }

    fn is_wider(&self) -> bool {
        let replaces = self.replaces.as_ref();
        replaces.is_some_and(|(_, is_wider)| is_wider.load(Ordering::Relaxed))
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
        for action in self.reflector.handle(input, now, self.entropy.draw()) {
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
            let Target {
                store,
                coverage,
                staged,
            } = &*self.wire.target;
            match staged.as_ref().filter(|_| self.is_wider()) {
                None => store.apply(batch, coverage),
                Some(staged) => {
                    let mut staged = staged.write().unwrap_or_else(PoisonError::into_inner);
                    for delta in batch {
                        drop(staged.apply(delta));
                    }
                }
            }
        }
    }

    /// Replaces the narrower watch, once what was listed is not older than what that has brought.
    fn adopt(&mut self) {
        let Target {
            store,
            coverage,
            staged,
        } = &*self.wire.target;
        let (Some(staged), Some((adopted, is_wider))) = (staged, &self.replaces) else {
            return;
        };
        let mut staged = staged.write().unwrap_or_else(PoisonError::into_inner);
        if store.is_reached_by(&staged) {
            store.adopt(&staged, coverage);
            *staged = Default::default();
            is_wider.store(false, Ordering::Relaxed);
            store.set_synced(coverage);
            adopted.notify_one();
        }
    }

    /// Applies the collected events, then reports the progress.
    fn flush(&mut self) {
        self.apply_queue();
        if self.is_wider() {
            self.adopt();
        }
        let Target { store, coverage, .. } = &*self.wire.target;
        store.decoders.trim(tokio::time::Instant::now());
        match self.health.take() {
            Some(Health::Degraded(reason)) => store.set_degraded(coverage, reason, self.is_wider()),
            Some(Health::Synced) if !self.is_wider() => store.set_synced(coverage),
            Some(Health::Pending | Health::Syncing | Health::Synced) | None => {}
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
