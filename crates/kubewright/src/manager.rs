//! Runs everything that belongs to one operator, in order, and stops it in reverse.
//!
//! Start: health server, webhook server, then the informers of all controllers, then, as each part's caches are synced, controllers and
//! runnables. Stop: controllers, runnables, event writer, webhook server, health server, caches, all within one graceful period. (Webhooks come
//! before the lists because a list may need a conversion that we serve ourselves.)
//!
//! Invariants: M2, W6 probes and webhooks are answered before the first list; M3 runnables begin when the caches of all controllers are synced; R4 a controller
//! reconciles when its own are, so one kind that cannot be listed does not hold up the others (C8); M5 `run` returns when it is asked to, or
//! with the first error; M7 it never takes longer than the graceful period, and names who did not stop. Not here yet: leader election
//! and metrics.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::cache::Cache;
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::controller::{Controller, Equipment, Prepared};
use crate::error::{Error, Result, end_of_panic};
use crate::events::EventRecorder;
use crate::health::{self, Checks};
use crate::observe::{Observer, Observers};
use crate::runnable::{Runnable, Stop, StopSource};
use crate::webhook::{Parts, WebhookHandlers, WebhookServer};

/// How long a stop may take by default.
pub const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(30);

/// Puts a [`Manager`] together.
#[must_use]
pub struct ManagerBuilder {
    client: kube::Client,
    name: String,
    observers: Vec<Arc<dyn Observer>>,
    controllers: Vec<Controller>,
    runnables: Vec<(String, Box<dyn Runnable>)>,
    health: Option<String>,
    webhooks: Parts,
    webhook_server: Option<WebhookServer>,
    namespace: Option<String>,
    clock: Arc<dyn Clock>,
    graceful: Duration,
}

/// One operator, running: shared cache, client, controllers, runnables, probes (controller-runtime's `Manager`).
///
/// ```
/// use kubewright::{Controller, Manager, Result};
/// # use std::sync::Arc;
/// # use kubewright::{Action, Context, Reconciler};
/// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// # struct Mirror;
/// # impl Reconciler for Mirror {
/// #     type Object = ConfigMap;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
/// # }
///
/// async fn run(client: kubewright::kube::Client) -> Result<()> {
///     let manager = Manager::builder(client)
///         .name("mirror")
///         .health("127.0.0.1:8081")
///         .add(Controller::of::<ConfigMap>(Mirror))
///         .build()?;
///     manager.run(kubewright::shutdown_signal()).await
/// }
/// ```
pub struct Manager {
    builder: ManagerBuilder,
    client: Client,
    webhooks: WebhookHandlers,
    ready: watch::Sender<bool>,
    health_address: watch::Sender<Option<SocketAddr>>,
    webhook_address: watch::Sender<Option<SocketAddr>>,
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("name", &self.name)
            .field("controllers", &self.controllers)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.builder.fmt(f)
    }
}

impl ManagerBuilder {
    /// The operator's name, for logs and as field manager of writes outside controllers.
    pub fn name(mut self, name: impl Into<String>) -> ManagerBuilder {
        self.name = name.into();
        self
    }

    /// Tells an observer everything that happens. May be called several times.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> ManagerBuilder {
        self.observers.push(observer);
        self
    }

    /// Answers `/healthz` and `/readyz` on this address; port 0 takes a free one, see [`Manager::health_address`]. Off by default.
    pub fn health(mut self, address: impl Into<String>) -> ManagerBuilder {
        self.health = Some(address.into());
        self
    }

    /// Serves the operator's webhooks and conversions over HTTPS, if it has any. Off by default; [`Manager::webhooks`] hands them out in any case.
    pub fn webhook_server(mut self, server: WebhookServer) -> ManagerBuilder {
        self.webhook_server = Some(server);
        self
    }

    /// The operator's webhooks and conversions.
    pub(crate) fn webhook_parts(mut self, parts: Parts) -> ManagerBuilder {
        self.webhooks = parts;
        self
    }

    /// Adds a controller.
    #[allow(clippy::should_implement_trait)] // controller-runtime's word; nobody adds managers up
    pub fn add(mut self, controller: Controller) -> ManagerBuilder {
        self.controllers.push(controller);
        self
    }

    /// Adds something that runs beside the controllers, from when their caches are synced.
    pub fn runnable(mut self, name: impl Into<String>, runnable: impl Runnable) -> ManagerBuilder {
        self.runnables.push((name.into(), Box::new(runnable)));
        self
    }

    /// Restricts the manager to one namespace: its caches hold objects of that namespace only (and objects that are in none), so a Role is
    /// enough to run it. Reads of other namespaces fail. Default all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> ManagerBuilder {
        self.namespace = Some(namespace.into());
        self
    }

    /// Takes the time of day from somewhere else.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> ManagerBuilder {
        self.clock = clock;
        self
    }

    /// How long a stop may take. The default is 30 seconds.
    pub fn graceful_shutdown(mut self, deadline: Duration) -> ManagerBuilder {
        self.graceful = deadline;
        self
    }

    /// Checks that the parts fit together. Nothing runs yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when two parts have the same name, or one has none.
    pub fn build(mut self) -> Result<Manager> {
        self.webhooks.check()?;
        let mut names = BTreeSet::new();
        let all = self
            .controllers
            .iter()
            .map(Controller::name)
            .chain(self.runnables.iter().map(|(name, _)| name.clone()));
        for name in all {
            if name.is_empty() {
                return Err(Error::Configuration(format!(
                    "{}: a controller or runnable has an empty name",
                    self.name
                )));
            }
            if !names.insert(name.clone()) {
                return Err(Error::Configuration(format!(
                    "{}: two controllers or runnables are named {name:?}; names tell them apart in logs and metrics, so give one of them \
                     another with Controller::named",
                    self.name
                )));
            }
        }
        let cache = Cache::observed(
            self.client.clone(),
            Observers::new(self.observers.clone()),
            self.namespace.take(),
        );
        let client = Client::new(self.client.clone(), cache).with_field_manager(&self.name);
        let webhooks = WebhookHandlers::new(std::mem::take(&mut self.webhooks), client.clone());
        Ok(Manager {
            builder: self,
            client,
            webhooks,
            ready: watch::Sender::new(false),
            health_address: watch::Sender::new(None),
            webhook_address: watch::Sender::new(None),
        })
    }
}

impl Manager {
    /// A manager that talks to the API through this client; [`crate::connect`] makes one that does not retry below the runtime.
    pub fn builder(client: kube::Client) -> ManagerBuilder {
        ManagerBuilder {
            client,
            name: "kubewright".to_owned(),
            observers: Vec::new(),
            controllers: Vec::new(),
            runnables: Vec::new(),
            health: None,
            webhooks: Parts::default(),
            webhook_server: None,
            namespace: None,
            clock: Arc::new(SystemClock),
            graceful: GRACEFUL_SHUTDOWN,
        }
    }

    /// The client that everything in this manager shares.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Resolves when all controllers work and all runnables were started. Take it before [`Manager::run`]. Never resolves when the manager
    /// fails before.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.ready.subscribe();
        async move {
            if ready.wait_for(|ready| *ready).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The operator's webhooks and conversions, to be called without a socket. They use the manager's client.
    pub fn webhooks(&self) -> WebhookHandlers {
        self.webhooks.clone()
    }

    /// Resolves to the address of the health server, once it listens. Take it before [`Manager::run`]. Never resolves without one.
    pub fn health_address(&self) -> impl Future<Output = SocketAddr> + Send + use<> {
        listening(&self.health_address)
    }

    /// Resolves to the address of the webhook server, once it listens. Take it before [`Manager::run`]. Never resolves without one.
    pub fn webhook_address(&self) -> impl Future<Output = SocketAddr> + Send + use<> {
        listening(&self.webhook_address)
    }

    /// Runs until `shutdown` resolves or something fails, then stops everything.
    ///
    /// # Errors
    /// The first error of any part, with its name; [`Error::Shutdown`] when nothing failed but not everything stopped in time.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        let Manager {
            builder,
            client,
            webhooks,
            ready,
            health_address,
            webhook_address,
        } = self;
        let ManagerBuilder {
            client: kube,
            controllers,
            runnables,
            health,
            webhook_server,
            clock,
            graceful,
            name,
            ..
        } = builder;
        let (failures, mut failed) = mpsc::unbounded_channel::<Error>();
        let checks = Checks::default();

        let webhook_server = webhook_server.filter(|_| !webhooks.is_empty());
        if webhook_server.is_some() {
            let listening = webhook_address.subscribe();
            let is_listening = move || match *listening.borrow() {
                Some(_) => Ok(()),
                None => Err("it does not listen yet".to_owned()),
            };
            checks.add("readyz", "webhook server", Arc::new(is_listening));
        }
        let mut servers = Group::new(failures.clone());
        if let Some(address) = health {
            let (listener, address) = health::bind(&address).await?;
            health_address.send_replace(Some(address));
            servers.spawn("health server", health::serve(listener, checks.clone(), servers.stop()));
        }
        let mut answering = Group::new(failures.clone());
        if let Some(server) = webhook_server {
            let (address, serving) = server.bind(webhooks.clone(), answering.stop()).await?;
            tracing::info!(%address, paths = ?webhooks, "webhook server listens");
            webhook_address.send_replace(Some(address));
            answering.spawn("webhook server", serving);
        }
        drop(webhooks); // the handlers hold the cache, which ends with its last user
        let mut writers = Group::new(failures.clone());
        let (recorder, writing) = EventRecorder::start(kube, clock.clone(), writers.stop());
        writers.adopt("event writer", writing);
        client.cache().record_events(recorder.clone(), &name);

        let prepared = controllers
            .into_iter()
            .map(|controller| controller.prepare(client.cache()))
            .collect::<Result<Vec<_>>>()?;
        let waiting = Arc::new(AtomicUsize::new(prepared.len() + 1));
        let started = move || {
            if waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready.send_replace(true);
            }
        };
        let equipment = Equipment {
            client: client.clone(),
            clock,
            recorder,
        };
        let mut loops = Group::new(failures.clone());
        let mut synced = Vec::new();
        for controller in prepared {
            synced.push(watch_start(
                &mut loops,
                controller,
                &equipment,
                &checks,
                started.clone(),
            ));
        }
        let mut others = Group::new(failures.clone());
        drop(failures);

        tracing::info!(manager = name, "manager started");
        let mut first = None;
        tokio::pin!(shutdown);
        tokio::select! {
            biased;
            () = &mut shutdown => {}
            Some(error) = failed.recv() => first = Some(error),
            () = all(synced) => {
                for (name, runnable) in runnables {
                    others.spawn(&name, runnable.run(client.clone(), others.stop()));
                }
                started();
                tokio::select! {
                    biased;
                    () = &mut shutdown => {}
                    Some(error) = failed.recv() => first = Some(error),
                }
            }
        }
        match &first {
            None => tracing::info!(manager = name, "manager stops"),
            Some(error) => tracing::error!(manager = name, %error, "manager stops because a part failed"),
        }
        let stuck = stop_in_order([loops, others, writers, answering, servers], graceful).await;
        drop(client);
        // A part may have failed while it stopped: it is the first error when there was none.
        let first = first.or_else(|| failed.try_recv().ok());
        match (first, stuck.is_empty()) {
            (Some(error), true) => Err(error),
            (Some(error), false) => {
                tracing::error!(?stuck, "these did not stop in time");
                Err(error)
            }
            (None, false) => Err(Error::Shutdown {
                deadline: graceful,
                stuck,
            }),
            (None, true) => Ok(()),
        }
    }
}

/// Starts a controller's loop; the future answers when its workers run.
fn watch_start(
    loops: &mut Group,
    controller: Prepared,
    equipment: &Equipment,
    checks: &Checks,
    started: impl FnOnce() + Send + 'static,
) -> BoxFuture<'static, ()> {
    let name = controller.name.clone();
    let (running, mut seen) = watch::channel(false);
    let is_running = seen.clone();
    checks.add(
        "readyz",
        &name,
        Arc::new(move || {
            if *is_running.borrow() {
                Ok(())
            } else {
                Err("its caches are not synced".to_owned())
            }
        }),
    );
    let stop = loops.stop();
    loops.spawn(
        &format!("controller {name}"),
        controller.run(equipment.clone(), stop, move || {
            running.send_replace(true);
            started();
        }),
    );
    Box::pin(async move {
        // A controller that fails ends the manager by itself; nobody else may begin.
        if seen.wait_for(|running| *running).await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

fn listening(address: &watch::Sender<Option<SocketAddr>>) -> impl Future<Output = SocketAddr> + Send + use<> {
    let mut address = address.subscribe();
    async move {
        if let Ok(address) = address.wait_for(Option::is_some).await
            && let Some(address) = *address
        {
            return address;
        }
        std::future::pending().await
    }
}

async fn all(futures: Vec<BoxFuture<'static, ()>>) {
    futures::future::join_all(futures).await;
}

/// Parts that are stopped together.
struct Group {
    source: StopSource,
    failures: mpsc::UnboundedSender<Error>,
    tasks: Vec<(String, JoinHandle<()>)>,
}

impl Group {
    fn new(failures: mpsc::UnboundedSender<Error>) -> Group {
        let (source, _) = Stop::pair();
        Group {
            source,
            failures,
            tasks: Vec::new(),
        }
    }

    fn stop(&self) -> Stop {
        self.source.token()
    }

    fn spawn(&mut self, name: &str, part: impl Future<Output = Result<()>> + Send + 'static) {
        let (failures, owned) = (self.failures.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            let ended = AssertUnwindSafe(part).catch_unwind().await;
            let ended = ended.unwrap_or_else(|payload| {
                Err(Error::Panic {
                    what: owned.clone(),
                    message: end_of_panic(payload),
                })
            });
            if let Err(error) = ended {
                // The receiver is gone only when the manager is, and then nobody is left to tell.
                let _ = failures.send(error.in_part(owned));
            }
        });
        self.tasks.push((name.to_owned(), task));
    }

    fn adopt(&mut self, name: &str, task: JoinHandle<()>) {
        self.tasks.push((name.to_owned(), task));
    }
}

impl Drop for Group {
    /// A manager whose future is dropped leaves nothing behind.
    fn drop(&mut self) {
        self.source.stop();
        for (_, task) in &self.tasks {
            task.abort();
        }
    }
}

/// Stops one group after the other; answers the names of what did not stop in time (it is then aborted).
async fn stop_in_order(groups: [Group; 5], graceful: Duration) -> Vec<String> {
    let begin = Instant::now();
    let mut stuck = Vec::new();
    for (index, mut group) in groups.into_iter().enumerate() {
        group.source.stop();
        // Controllers and runnables must leave a tenth, so that one that hangs does not take the events and probes with it.
        let deadline = begin + if index < 2 { graceful.mul_f32(0.9) } else { graceful };
        for (name, task) in &mut group.tasks {
            if timeout_at(deadline, &mut *task).await.is_err() {
                stuck.push(name.clone());
            }
        }
    }
    stuck
}

/// Resolves at the first SIGINT or SIGTERM (client-go's `SetupSignalHandler`). A second one ends the process at once.
pub async fn shutdown_signal() {
    first_signal().await;
    tokio::spawn(async {
        first_signal().await;
        tracing::error!("second signal: ending at once");
        std::process::exit(1);
    });
}

async fn first_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for SIGTERM");
                let _ = tokio::signal::ctrl_c().await;
            }
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}
