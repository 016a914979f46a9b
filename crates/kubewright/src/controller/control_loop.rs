//! From keys to reconciles: waits until every source is synced, then workers take keys, reconcile and decide what becomes of them.
//!
//! Invariants: R4 no reconcile before all sources of the controller are synced; R5 success forgets the key's failures, an error lets the
//! delay grow, a terminal error drops the key until the next event; R6 after the stop no reconcile starts, running ones see the stop in their
//! context and are waited for; R7 a panic is an error of its key and nothing else. (R1–R3 are the queue's.)

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kubewright_engine::queue::Work;
use tokio::task::JoinSet;
use tracing::Instrument;

use super::sources::{OwnerKind, Sink, Source, Wiring, feed_self};
use super::{Controller, Drive, Settings};
use crate::action::Action;
use crate::cache::{Cache, Shared};
use crate::cause::{Cause, Causes};
use crate::client::Client;
use crate::clock::Clock;
use crate::context::{Context, Inner};
use crate::error::{Error, Result, end_of_panic, text_of};
use crate::events::EventRecorder;
use crate::observe::{Observation, Outcome};
use crate::queue::Queue;
use crate::request::Request;
use crate::runnable::Stop;

/// A controller whose informers run and fill its queue.
pub(crate) struct Prepared {
    pub(crate) name: Arc<str>,
    drive: Box<dyn Drive>,
    /// Of the controller's own kind.
    informer: Shared,
    /// Of what it owns and watches.
    feeds: Vec<Shared>,
    queue: Queue<Request, Causes>,
    settings: Settings,
}

/// What workers need besides.
#[derive(Clone)]
pub(crate) struct Equipment {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: EventRecorder,
}

impl Controller {
    /// Starts the informers and wires them to the queue. Call it inside a tokio runtime.
    pub(crate) fn prepare(self, cache: &Cache) -> Result<Prepared> {
        let name: Arc<str> = Arc::from(self.name());
        let mut known: Vec<_> = self.sources.iter().map(Source::type_id).collect();
        known.push(self.form.id);
        if let [kind, ..] = self.predicates.strays(&known)[..] {
            return Err(Error::Configuration(format!(
                "controller {name}: a predicate for {kind} can never apply, because the controller neither reconciles, owns nor watches {kind}"
            )));
        }
        let queue = Queue::new(self.settings.backoff);
        let sink = Sink(queue.clone());
        let owner = OwnerKind::new(&self.form.resource, self.form.cluster_scoped);
        let informer = cache.shared_in(&self.form, self.settings.scope.clone());
        feed_self(&informer, self.predicates.of(self.form.id), sink.clone());
        let wiring = Wiring {
            cache,
            predicates: &self.predicates,
            sink,
            owner,
            own: informer.clone(),
        };
        let feeds = self.sources.into_iter().map(|source| source.start(&wiring)).collect();
        Ok(Prepared {
            name,
            drive: self.drive,
            informer,
            feeds,
            queue,
            settings: self.settings,
        })
    }
}

impl Prepared {
    /// Waits until all sources are synced (R4).
    pub(crate) async fn synced(&self) -> Result<()> {
        let all = self.feeds.iter().chain([&self.informer]);
        futures::future::try_join_all(all.map(|informer| informer.synced_within(self.settings.sync_timeout))).await?;
        Ok(())
    }

    /// Runs until the stop. `started` is called when the workers start.
    pub(crate) async fn run(self, equipment: Equipment, stop: Stop, started: impl FnOnce()) -> Result<()> {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            synced = self.synced() => synced?,
        }
        let client = equipment.client.for_controller(&self.name);
        client.observers().tell(|| Observation::ControllerStarted {
            controller: self.name.clone(),
        });
        tracing::info!(controller = %self.name, workers = self.settings.concurrency, "controller started");
        let workers = self.settings.concurrency;
        let shared = Arc::new(Workshop {
            prepared: self,
            client,
            equipment,
            stop: stop.clone(),
        });
        // Dropping the set aborts the workers: a manager that gives up waiting drops this future.
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Workshop::work(shared.clone()));
        }
        started();
        // Workers end with the queue. One that ends before is missed.
        let ended = tokio::select! {
            biased;
            () = stop.requested() => None,
            ended = tasks.join_next() => ended,
        };
        shared.prepared.queue.shut_down();
        if let Some(ended) = ended {
            let message = ended
                .err()
                .map_or_else(|| "it ended".to_owned(), |error| error.to_string());
            return Err(Error::Panic {
                what: format!("a worker of controller {}", shared.prepared.name),
                message,
            });
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                // Reconciles are caught one by one; this is the loop itself.
                return Err(Error::Panic {
                    what: format!("a worker of controller {}", shared.prepared.name),
                    message: error.to_string(),
                });
            }
        }
        Ok(())
    }
}

struct Workshop {
    prepared: Prepared,
    client: Client,
    equipment: Equipment,
    stop: Stop,
}

/// Numbers the reconciles of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Workshop {
    async fn work(self: Arc<Self>) {
        while let Some(work) = self.prepared.queue.next().await {
            let (token, request) = (work.token, work.item.clone());
            let reconciled = AssertUnwindSafe(self.reconcile(work)).catch_unwind().await;
            if let Err(payload) = reconciled {
                self.broken(&request, end_of_panic(payload));
            }
            self.prepared.queue.done(token);
        }
    }

    /// Something around a reconcile panicked: the `Drop` of what it had left, of its error or of an object.
    fn broken(&self, request: &Request, message: String) {
        let controller = &self.prepared.name;
        tracing::error!(%controller, object = %request, message, "code around a reconcile panicked; it is repeated");
        let causes = one(Cause::retry(1, message));
        self.prepared.queue.add_rate_limited(request.clone(), causes);
    }

    async fn reconcile(&self, work: Work<Request, Causes>) {
        let Work {
            item: request,
            causes,
            retries,
            ..
        } = work;
        let reconcile_id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let controller = self.prepared.name.clone();
        let span = tracing::info_span!("reconcile", controller = %controller, object = %request, reconcile_id);
        async {
            let causes = causes.into_vec();
            tracing::debug!(?causes, "reconcile starts");
            let observers = self.client.observers();
            observers.tell(|| {
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
                .guarded(&request, self.context(&request, causes, reconcile_id))
                .await;
            let took = began.elapsed();
            let outcome = self.settle(&request, retries, result);
            tracing::debug!(?outcome, ?took, "reconcile ended");
            observers.tell(|| Observation::ReconcileFinished {
                controller,
                request: request.clone(),
                reconcile_id,
                outcome,
                took,
            });
        }
        .instrument(span)
        .await;
    }

    fn context(&self, request: &Request, causes: Vec<Cause>, reconcile_id: u64) -> Context {
        Context::from_inner(Inner {
            request: request.clone(),
            causes,
            client: self.client.clone(),
            controller: self.prepared.name.clone(),
            reconcile_id,
            clock: self.equipment.clock.clone(),
            recorder: Some(self.equipment.recorder.clone()),
            owner: None,
            stop: self.stop.clone(),
        })
    }

    /// The reconcile, with panics and timeouts turned into errors.
    async fn guarded(&self, request: &Request, ctx: Context) -> Result<Action> {
        let reconcile =
            AssertUnwindSafe(self.prepared.drive.reconcile(&self.prepared.informer, request, ctx)).catch_unwind();
        let result = match self.prepared.settings.reconcile_timeout {
            None => reconcile.await,
            Some(limit) => match tokio::time::timeout(limit, reconcile).await {
                Ok(result) => result,
                Err(_) => {
                    return Err(Error::retry(format!(
                        "the reconcile was dropped because it took longer than {limit:?}"
                    )));
                }
            },
        };
        result.unwrap_or_else(|payload| {
            Err(Error::Panic {
                what: format!("the reconcile of {request}"),
                message: end_of_panic(payload),
            })
        })
    }

    /// Decides when the key runs again (R5).
    fn settle(&self, request: &Request, retries: u32, result: Result<Action>) -> Outcome {
        let queue = &self.prepared.queue;
        let error = match result {
            Ok(Action { requeue_after }) => {
                queue.forget(request);
                return match requeue_after {
                    None => Outcome::Done,
                    Some(delay) => {
                        queue.add_after(request.clone(), delay, one(Cause::timer(delay)));
                        Outcome::RequeueAfter(delay)
                    }
                };
            }
            Err(error) => error,
        };
        let text = text_of(&error);
        if error.is_terminal() {
            queue.forget(request);
            tracing::error!(
                error = text,
                "reconcile failed for good; it runs again when something changes"
            );
            return Outcome::Terminal { error: text };
        }
        let attempt = retries + 1;
        let after = queue
            .add_rate_limited(request.clone(), one(Cause::retry(attempt, text.clone())))
            .unwrap_or(Duration::ZERO);
        match error {
            // Both are the normal price of optimistic concurrency and of caches.
            Error::Conflict(_) | Error::Stale { .. } => {
                tracing::info!(reason = text, ?after, "reconcile is repeated");
                Outcome::Conflict { error: text, after }
            }
            _ => {
                if self.stop.is_requested() {
                    // What it needed may be gone already; nobody is there to mend anything.
                    tracing::debug!(error = text, "reconcile failed while the manager stops");
                } else {
                    tracing::error!(error = text, attempt, ?after, "reconcile failed; it is repeated");
                }
                Outcome::Retry {
                    error: text,
                    attempt,
                    after,
                }
            }
        }
    }
}

fn one(cause: Cause) -> Causes {
    let mut causes = Causes::default();
    causes.push(cause);
    causes
}
