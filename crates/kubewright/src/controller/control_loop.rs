//! From keys to reconciles: waits until every source is synced, then workers take keys, reconcile and decide about
//! their retries.
//!
//! Invariants: R4 no reconcile before all sources of the controller are synced; R6 after the stop no reconcile
//! starts, running ones see the stop in their context and are waited for; R7 a panic is an error of its key and nothing
//! else; M1 workers take keys only within a term of leading, and its end drops them where they wait; M8 they begin when
//! the caches show what earlier holders of the Lease wrote (`take_over.rs`); SH8 with sharding a reconcile holds the term
//! of its key's shard, and ends with it. (R1–R3 are the queue's, R5 is in `settle.rs`.)

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use kubewright_engine::queue::{Priority, Token, Work};
use tokio::task::JoinSet;
use tracing::Instrument;
use tracing::field::Empty;

use super::engaged::{Engaged, Engagement, Parts, check_sources};
use super::key_queue::{KeyQueue, Standby};
use super::settle::{NEXT_TERM, counted};
use super::sources::{OwnerKind, Source};
use super::take_over::FreshShards;
use super::{Controller, EVERY_CLUSTER, ErasedReconciler, Settings};
use crate::action::Action;
use crate::cause::{Cause, Causes, Room};
use crate::client::Client;
use crate::clock::Clock;
use crate::context::{Context, Inner, Owning};
use crate::error::{Error, Result};
use crate::metrics::{ControllerMetrics, Metrics};
use crate::observe::Observation;
use crate::panic_place::end_with_place;
use crate::queue::Queue;
use crate::request::Request;
use crate::sharding::Shards;
use crate::stop::Stop;
use crate::term::{Permit, Permits};
use crate::trace;
use crate::watchdog::Watchdog;

/// A controller whose informers run and fill its queue.
pub(crate) struct Prepared {
    pub(crate) name: Arc<str>,
    /// The cluster of its work, unless it is every one, and those that it watches.
    pub(crate) clusters: BTreeSet<String>,
    reconciler: Box<dyn ErasedReconciler>,
    own_kind: OwnerKind,
    /// Of the controller, in the home cluster or the one that it works in.
    pub(super) client: Client,
    /// Where it works.
    pub(crate) engaged: Arc<Engaged>,
    pub(super) queue: Queue<Request, Causes>,
    /// Which keys are worked on here; without it all.
    pub(super) shards: Option<Shards>,
    /// Of which shards the caches are known to be new enough.
    pub(super) fresh: FreshShards,
    /// Another replica leads.
    standby: Standby,
    settings: Settings,
}

/// What all workers of a manager share.
#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    /// How many reconciles have begun, in all controllers: it numbers them.
    pub(crate) reconciles: Arc<AtomicU64>,
    pub(crate) metrics: Metrics,
    pub(crate) watchdog: Watchdog,
}

impl Controller {
    /// Whether its parts fit together.
    pub(crate) fn check(&self) -> Result<()> {
        let name = self.name();
        let mut known: Vec<_> = self.sources.iter().filter_map(Source::type_id).collect();
        known.push(self.form.id);
        if let [kind, ..] = self.predicates.strays(&known)[..] {
            return Err(Error::Configuration(format!(
                "controller {name}: a predicate for {kind} can never apply, because the controller neither reconciles, owns nor watches {kind}"
            )));
        }
        let mut filed = self.sources.iter().filter_map(Source::own_type);
        if filed.any(|own| own != self.form.id) {
            return Err(Error::Configuration(format!(
                "controller {name}: Watch::by_index files objects of another type than {}, which the controller reconciles",
                self.form.resource.kind
            )));
        }
        if self.settings.every_cluster {
            check_sources(&name, &self.sources)?;
        }
        match &self.settings.finalizer {
            // The finalizer of a kind known at run time was named elsewhere, and may be on objects already.
            Some(finalizer) if self.form.says_kind => super::finalizer::check(&name, finalizer),
            _ => Ok(()),
        }
    }

    /// Starts the informers and wires them to the queue. Call it inside a tokio runtime.
    pub(crate) fn prepare(self, client: &Client, shards: Option<&Shards>) -> Result<Prepared> {
        let name: Arc<str> = Arc::from(self.name());
        self.check()?;
        let clusters = {
            let own = self.own_cluster();
            let all = self.sources.iter().map(|source| source.cluster(own)).chain([own]);
            let named = all.filter(|cluster| *cluster != EVERY_CLUSTER);
            named.map(str::to_owned).collect()
        };
        let queue = Queue::new(self.limiter);
        let shards = shards.filter(|_| !self.settings.on_every_replica).cloned();
        let standby = Standby::default();
        let owner = OwnerKind::new(&self.form.resource, self.form.cluster_scoped);
        let every = self.settings.every_cluster;
        let home = client.cluster(&self.settings.cluster)?;
        let parts = Parts {
            controller: name.clone(),
            form: self.form,
            scope: self.settings.scope.clone(),
            owner: owner.clone(),
            predicates: self.predicates,
            sources: self.sources,
            indexes: self.indexes,
            queue: KeyQueue {
                inner: queue.clone(),
                cluster: None,
                shards: shards.clone(),
                standby: standby.clone(),
                cached: None,
                room: Room::default(),
            },
        };
        let engaged = Engaged::nowhere(parts, every);
        match every {
            false => engaged.engage(&home)?,
            true => client
                .other_clusters()
                .iter()
                .try_for_each(|(_, other)| engaged.engage(other))?,
        }
        Ok(Prepared {
            client: home.for_controller(&name),
            name,
            clusters,
            reconciler: self.reconciler,
            own_kind: owner,
            engaged: Arc::new(engaged),
            queue,
            shards,
            fresh: FreshShards::default(),
            standby,
            settings: self.settings,
        })
    }
}

impl Prepared {
    /// Waits until all sources are synced (R4).
    ///
    /// # Errors
    /// When they take longer than the controller's limit, if it has one.
    pub(crate) async fn synced(&self) -> Result<()> {
        match self.engaged.only() {
            Some(only) => only.synced(&self.name, self.settings.sync_timeout).await,
            None => Ok(()),
        }
    }

    /// Runs until the stop: in every term workers take keys, and between the terms the queue fills.
    pub(crate) async fn run(
        self,
        options: WorkerOptions,
        permits: Permits,
        stop: Stop,
        progress: impl LoopEvents,
    ) -> Result<()> {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            synced = self.synced() => synced?,
        }
        progress.synced();
        // The shards' permits count instead of the leader's.
        let mut permits = match self.settings.on_every_replica || self.shards.is_some() {
            true => Permits::default(),
            false => permits,
        };
        let prepared = Arc::new(self);
        let queue = prepared.queue.clone();
        let workers = prepared.settings.concurrency;
        let metrics = options
            .metrics
            .controller(&prepared.name, workers, move || queue.metrics());
        // What waits from the first lists is all, as long as this replica leads from its start.
        let (mut stood_by, mut has_led) = (false, false);
        loop {
            let permit = match permits.next().now_or_never() {
                Some(permit) => permit,
                None => {
                    prepared.standby.set(true);
                    prepared.engaged.rest();
                    stood_by = true;
                    let permit = tokio::select! {
                        biased;
                        () = stop.requested() => break,
                        permit = permits.next() => permit,
                    };
                    prepared.standby.set(false);
                    permit
                }
            };
            if let Some(began) = permit.began() {
                tokio::select! {
                    biased;
                    () = stop.requested() => break,
                    () = permit.over() => continue,
                    () = prepared.catch_up(began, &progress) => {}
                }
            }
            let is_first = !std::mem::replace(&mut has_led, true);
            if stood_by || !is_first {
                prepared.add_all(is_first);
            }
            let (run, workers) = prepared.open(&options, &metrics, &permit, &stop);
            progress.started();
            let ended = tokio::select! {
                biased;
                ended = run.work_until(workers, &permits, &stop) => ended?,
                never = prepared.take_over(&progress) => match never {},
                never = prepared.engaged.open(&prepared.queue) => match never {},
            };
            if ended == Ended::Stopped {
                break;
            }
        }
        prepared.queue.shut_down();
        Ok(())
    }

    /// Lets workers begin.
    fn open(
        self: &Arc<Prepared>,
        options: &WorkerOptions,
        metrics: &ControllerMetrics,
        permit: &Permit,
        stop: &Stop,
    ) -> (Arc<Workers>, JoinSet<()>) {
        let client = match self.engaged.only() {
            Some(only) => only.client.under(permit.fence()).noted_in(&only.own_writes),
            None => self.client.under(permit.fence()),
        };
        let workers = self.settings.concurrency;
        client.observers().notify(|| Observation::ControllerStarted {
            controller: self.name.clone(),
        });
        tracing::info!(controller = %self.name, workers, "controller started");
        let run = Arc::new(Workers {
            prepared: self.clone(),
            client: Arc::new(client),
            options: options.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
            permit: permit.clone(),
        });
        // Dropping the set aborts the workers: a manager that gives up waiting drops this future.
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Workers::work(run.clone()));
        }
        (run, tasks)
    }
}

/// What a controller's loop reports to the manager.
pub(crate) trait LoopEvents: Send + Sync + 'static {
    /// All its caches are synced.
    fn synced(&self);
    /// Its workers begin, perhaps again.
    fn started(&self);
    /// Why they do not begin yet, although the caches are synced and this replica leads; `None`: they do.
    fn waits(&self, why: Option<&'static str>);
}

/// Why the workers have ended.
#[derive(PartialEq)]
enum Ended {
    /// The stop was requested.
    Stopped,
    /// This replica does not lead any more.
    TermOver,
}

/// The workers of one controller in one term.
pub(super) struct Workers {
    pub(super) prepared: Arc<Prepared>,
    client: Arc<Client>,
    options: WorkerOptions,
    pub(super) metrics: ControllerMetrics,
    pub(super) stop: Stop,
    /// Held as long as a worker lives (M4).
    permit: Permit,
}

/// A key that a worker has. A worker that is aborted gives it back, for the next term.
struct TakenKey<'a> {
    queue: &'a Queue<Request, Causes>,
    metrics: &'a ControllerMetrics,
    token: Token,
    request: Option<Request>,
}

impl TakenKey<'_> {
    fn done(mut self) {
        self.request = None;
    }
}

impl Drop for TakenKey<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let causes = Causes::of(Cause::requested(NEXT_TERM));
            self.queue.add(request, Priority::NORMAL, causes);
        }
        if let Some(worked) = self.queue.done(self.token) {
            self.metrics.worked(worked);
        }
    }
}

impl Workers {
    /// Waits for the workers: at the stop they finish their keys, at the end of the term they are dropped where they
    /// wait.
    async fn work_until(&self, mut workers: JoinSet<()>, permits: &Permits, stop: &Stop) -> Result<Ended> {
        let permit = &self.permit;
        let died = tokio::select! {
            biased;
            () = stop.requested() => None,
            () = permit.over() => return Ok(self.abandon(workers, permits).await),
            ended = workers.join_next() => ended,
        };
        if died.is_some() && permit.fence().is_over() {
            // A process that stood still: its workers look at the time, and no timer has had its turn yet.
            return Ok(self.abandon(workers, permits).await);
        }
        self.prepared.queue.shut_down();
        if let Some(ended) = died {
            // Workers end with the queue. A worker that ends before is an error.
            let message = ended
                .err()
                .map_or_else(|| "it ended".to_owned(), |error| error.to_string());
            return Err(self.broken_worker(message));
        }
        loop {
            let ended = tokio::select! {
                biased;
                () = permit.over() => return Ok(self.abandon(workers, permits).await),
                ended = workers.join_next() => ended,
            };
            match ended {
                None => return Ok(Ended::Stopped),
                Some(Ok(())) => {}
                // Reconciles are caught one by one; this is the loop itself.
                Some(Err(error)) => return Err(self.broken_worker(error.to_string())),
            }
        }
    }

    /// Aborts the workers and waits until they are gone, or until this replica leads again although one is left, which
    /// blocks its thread: its key stays with it, and all others are worked on.
    async fn abandon(&self, mut workers: JoinSet<()>, permits: &Permits) -> Ended {
        tracing::info!(controller = %self.prepared.name, "controller stops, because this replica does not lead any more");
        let mut later = permits.clone();
        tokio::select! {
            biased;
            () = workers.shutdown() => {}
            _ = later.next() => {}
        }
        Ended::TermOver
    }

    fn broken_worker(&self, message: String) -> Error {
        Error::Panic {
            what: format!("a worker of controller {}", self.prepared.name),
            message,
        }
    }

    async fn work(self: Arc<Self>) {
        let queue = &self.prepared.queue;
        let worker = self.options.watchdog.worker(&self.prepared.name);
        loop {
            // One that was aborted goes on until it waits for something, which a full queue and a quick reconciler never do.
            if self.permit.over().now_or_never().is_some() {
                return;
            }
            let Some(work) = queue.next().await else { return };
            let key = TakenKey {
                queue,
                metrics: &self.metrics,
                token: work.token,
                request: Some(work.item.clone()),
            };
            worker.takes(&work.item);
            let reconciled = worker.watch(async {
                match &self.prepared.shards {
                    None => {
                        AssertUnwindSafe(self.reconcile(work, &self.permit))
                            .catch_unwind()
                            .await
                    }
                    Some(shards) => self.reconcile_shared(work, shards).await,
                }
            });
            let reconciled = reconciled.await;
            if let (Err(payload), Some(request)) = (reconciled, &key.request) {
                self.broken(request, end_with_place(payload));
            }
            key.done();
        }
    }

    /// Reconciles within the term of the key's shard, which is held meanwhile (SH8). A key whose shard is another
    /// replica's is forgotten: the replica that gains the shard looks at it.
    async fn reconcile_shared(&self, work: Work<Request, Causes>, shards: &Shards) -> std::thread::Result<()> {
        let request = work.item.clone();
        if let Some((shard, permit)) = shards.held(&request) {
            let Some(work) = self.prepared.fresh.admit(shard, work) else {
                return Ok(()); // it comes back when the caches have caught up
            };
            tokio::select! {
                biased;
                () = permit.over() => {}
                reconciled = AssertUnwindSafe(self.reconcile(work, &permit)).catch_unwind() => return reconciled,
            }
        }
        tracing::debug!(controller = %self.prepared.name, object = %request, "its shard is not this replica's; the key is dropped");
        self.prepared.queue.forget(&request);
        Ok(())
    }

    /// Something around a reconcile panicked: the `Drop` of its remains, of its error or of an object.
    fn broken(&self, request: &Request, message: String) {
        let controller = &self.prepared.name;
        tracing::error!(%controller, object = %request, message, "code around a reconcile panicked; it is repeated");
        let causes = Causes::of(Cause::retry(1, message));
        self.prepared.queue.add_rate_limited(request.clone(), causes);
    }

    async fn reconcile(&self, work: Work<Request, Causes>, permit: &Permit) {
        let Some((engagement, work)) = self.prepared.engaged.admit(work, &self.prepared.queue) else {
            return;
        };
        let Work {
            item: request,
            causes,
            retries,
            waited,
            ..
        } = work;
        let _active = self.metrics.began(waited);
        let reconcile_id = self.options.reconciles.fetch_add(1, Ordering::Relaxed) + 1;
        let controller = &self.prepared.name;
        // At the level of errors: log lines within name their reconcile, at any log level.
        let span = tracing::error_span!(
            "reconcile",
            %controller,
            object = %request,
            reconcile_id,
            cause = Empty,
            waited = Empty
        );
        let causes = causes.taken();
        trace::caused(&span, &causes, waited);
        async {
            tracing::debug!(?causes, "reconcile starts");
            if engagement.own_writes.woke(&request, &causes) {
                self.metrics.self_woken();
            }
            let observers = self.client.observers();
            observers.notify(|| {
                let (ready, delayed) = self.prepared.queue.depth();
                Observation::ReconcileStarted {
                    controller: controller.clone(),
                    request: request.clone(),
                    reconcile_id,
                    causes: causes.clone(),
                    ready,
                    delayed,
                }
            });
            let began = tokio::time::Instant::now();
            let result = self
                .guarded(
                    &request,
                    &engagement,
                    self.context(&request, &engagement, causes, reconcile_id, permit),
                )
                .await;
            let took = began.elapsed();
            let outcome = self.settle(&request, retries, permit, result);
            self.metrics.ended(counted(&outcome), took);
            tracing::debug!(?outcome, ?took, "reconcile ended");
            observers.notify(|| Observation::ReconcileFinished {
                controller: controller.clone(),
                request: request.clone(),
                reconcile_id,
                outcome,
                took,
            });
        }
        .instrument(span)
        .await;
    }

    fn context(
        &self,
        request: &Request,
        engagement: &Engagement,
        causes: Vec<Cause>,
        reconcile_id: u64,
        permit: &Permit,
    ) -> Context {
        let is_usual = self.prepared.shards.is_none() && !self.prepared.engaged.is_everywhere();
        Context::from_inner(Inner {
            request: request.clone(),
            causes,
            client: match is_usual {
                true => self.client.clone(),
                false => {
                    let client = engagement.client.under(permit.fence());
                    Arc::new(client.noted_in(&engagement.own_writes))
                }
            },
            controller: self.prepared.name.clone(),
            reconcile_id,
            clock: self.options.clock.clone(),
            records: true,
            owner: Owning::Nobody,
            stop: self.stop.clone(),
            term: permit.fence().number(),
        })
    }

    /// The reconcile, with panics and timeouts turned into errors.
    async fn guarded(&self, request: &Request, engagement: &Engagement, ctx: Context) -> Result<Action> {
        let Prepared {
            reconciler,
            own_kind,
            settings,
            ..
        } = &*self.prepared;
        if own_kind.cluster_scoped && request.namespace().is_some() {
            let kind = &own_kind.kind;
            let name = request.name();
            return Err(Error::terminal(format!(
                "the key {request} has a namespace, and {kind} is cluster-scoped: the mapping that made it answers \
                 Request::new(None, {name:?})"
            )));
        }
        let informer = engagement.own.of(request.namespace());
        let finalizer = settings.finalizer.as_deref();
        let reconcile = AssertUnwindSafe(reconciler.reconcile(informer, request, ctx, finalizer)).catch_unwind();
        let result = match self.prepared.settings.reconcile_timeout {
            None => reconcile.await,
            Some(limit) => match tokio::time::timeout(limit, reconcile).await {
                Ok(result) => result,
                Err(_) => {
                    self.metrics.timed_out();
                    return Err(Error::retry(format!(
                        "the reconcile was dropped because it took longer than {limit:?}"
                    )));
                }
            },
        };
        result.unwrap_or_else(|payload| {
            self.metrics.panicked();
            Err(Error::Panic {
                what: format!("the reconcile of {request}"),
                message: end_with_place(payload),
            })
        })
    }
}
