//! Runs everything that belongs to one operator, in order, and stops it in reverse.
//!
//! Start: health and metrics server, webhook server, then the informers of all controllers and the election, then, as
//! each part's caches are synced and this replica leads, controllers and runnables. Stop: controllers, runnables, the
//! election (the Lease is given back), event writer, webhook server, metrics and health server, caches, all within one
//! graceful period. (Webhooks come before the lists because a list may need a conversion that we serve ourselves.)
//!
//! Invariants: M2, W6 probes and webhooks are answered before the first list; M3 runnables begin when the caches of all
//! controllers are synced, or have been waited for 30 seconds; R4 a controller reconciles when its own are, so one kind
//! that cannot be listed holds up its own controllers alone (C8); M5 `run` returns when it is asked to, or with the first error; M7 it never takes longer than the
//! graceful period, and names the parts that did not stop; M1 a replica that does not lead is ready, and waits.

mod builder;
mod clusters;
mod controllers;
mod groups;
mod guarded;
pub(crate) mod options;
mod signals;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};

pub use self::builder::ManagerBuilder;
use self::clusters::{Clusters, Common};
pub(crate) use self::controllers::Command;
pub use self::controllers::Controllers;
use self::controllers::RunningControllers;
use self::groups::{Group, stop_in_order};
use self::guarded::{LeaderRunnable, Started};
use self::options::Options;
pub use self::signals::shutdown_signal;
use crate::client::Client;
use crate::controller::WorkerOptions;
use crate::election::{Elector, Permits};
use crate::error::{Error, Result};
use crate::health::{self, Checks};
use crate::metrics::Metrics;
use crate::sharding::Sharder;
use crate::watchdog::Watchdog;
use crate::webhook::WebhookHandlers;

/// How long a stop may take by default.
pub const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(30);

/// How long runnables wait for the caches of all controllers.
const PATIENCE: Duration = Duration::from_secs(30);

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
    common: Common,
    webhooks: WebhookHandlers,
    ready: watch::Sender<bool>,
    health_address: watch::Sender<Option<SocketAddr>>,
    webhook_address: watch::Sender<Option<SocketAddr>>,
    metrics_address: watch::Sender<Option<SocketAddr>>,
    commands: (Controllers, mpsc::Receiver<Command>),
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.builder.fmt(f)
    }
}

impl Manager {
    /// A manager that talks to the API through this client; [`crate::connect`] makes one that does not retry below the
    /// runtime.
    pub fn builder(client: kube::Client) -> ManagerBuilder {
        ManagerBuilder::of(client, Options::new("kubewright".to_owned()))
    }

    /// The client that everything in this manager shares.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Adds and removes controllers and clusters while the manager runs, from a runnable, say.
    pub fn controllers(&self) -> Controllers {
        self.commands.0.clone()
    }

    /// Resolves when all controllers work and all runnables were started, which with leader election means that this
    /// replica leads for the first time. Take it before [`Manager::run`]. Never resolves when the manager fails before.
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

    /// Resolves to the address of the health server, once it listens. Take it before [`Manager::run`]. Never resolves
    /// without one.
    pub fn health_address(&self) -> impl Future<Output = SocketAddr> + Send + use<> {
        listening(&self.health_address)
    }

    /// Resolves to the address of the webhook server, once it listens. Take it before [`Manager::run`]. Never resolves
    /// without one.
    pub fn webhook_address(&self) -> impl Future<Output = SocketAddr> + Send + use<> {
        listening(&self.webhook_address)
    }

    /// Resolves to the address of the metrics server, once it listens. Take it before [`Manager::run`]. Never resolves
    /// without one.
    pub fn metrics_address(&self) -> impl Future<Output = SocketAddr> + Send + use<> {
        listening(&self.metrics_address)
    }

    /// The metrics, to be read without a server.
    pub fn metrics(&self) -> Metrics {
        self.builder.options.metrics.clone()
    }

    /// Runs until `shutdown` resolves or something fails, then stops everything.
    ///
    /// # Errors
    /// The first error of any part, with its name; [`Error::Shutdown`] when nothing failed but not everything stopped
    /// in time.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        let Manager {
            builder,
            client,
            common,
            webhooks,
            ready,
            health_address,
            webhook_address,
            metrics_address,
            commands: (controllers_of_handle, mut commands),
        } = self;
        drop(controllers_of_handle);
        let ManagerBuilder {
            client: kube,
            options,
            metrics_server,
            #[cfg(feature = "profiling")]
            profile_server,
        } = builder;
        let Options {
            controllers,
            runnables,
            everywhere,
            leader_election,
            sharding,
            health,
            checks: own_checks,
            webhook_server,
            metrics,
            clock,
            graceful,
            name,
            reads,
            ..
        } = options;
        let (failures, mut failed) = mpsc::unbounded_channel::<Error>();
        let checks = Checks::default();
        for (endpoint, name, check) in own_checks {
            checks.add(endpoint, &name, check);
        }

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
        if let Some(server) = metrics_server {
            let (address, serving) = server.bind(metrics.clone(), kube.clone(), servers.stop()).await?;
            tracing::info!(%address, "metrics server listens");
            metrics_address.send_replace(Some(address));
            servers.spawn("metrics server", serving);
        }
        #[cfg(feature = "profiling")]
        if let Some(server) = profile_server {
            let (address, serving) = server.bind(servers.stop()).await?;
            tracing::info!(%address, "profile server listens");
            servers.spawn("profile server", serving);
        }
        let mut answering = Group::new(failures.clone());
        if let Some(server) = webhook_server {
            let (address, serving) = server.bind(webhooks.clone(), clock.clone(), answering.stop()).await?;
            tracing::info!(%address, paths = ?webhooks, "webhook server listens");
            webhook_address.send_replace(Some(address));
            answering.spawn("webhook server", serving);
        }
        drop(webhooks); // the handlers hold the cache, which ends with its last user
        let clusters = Clusters::start(common, &client, clock.clone(), Group::new(failures.clone()));

        let mut elections = Group::new(failures.clone());
        // Whether the caches of all controllers are synced.
        let (all_synced, is_ready) = watch::channel(false);
        let shards = sharding.map(|sharding| {
            let (sharder, shards) = Sharder::new(sharding, &kube, clock.clone(), metrics.clone());
            elections.spawn("sharding", sharder.run(is_ready.clone(), elections.stop()));
            shards
        });
        let others = client.other_clusters();
        let caches = others.iter().map(|(_, client)| client).chain([&client]);
        let declaring: Vec<_> = caches.map(|client| client.cache().declaring()).collect();
        for read in &reads {
            client.cache().declare_read(&read.form, read.scope.clone());
        }
        let prepared = controllers
            .into_iter()
            .map(|controller| controller.prepare(&client, shards.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        drop((declaring, others)); // all is said: the first lists are for what everybody needs
        let permits = match leader_election {
            None => Permits::default(),
            Some(election) => {
                let recorder = client.cache().recorder().expect("its writer was started above");
                let (elector, permits) = Elector::new(election, &kube, clock.clone(), recorder, metrics.clone());
                elections.spawn("leader election", elector.run(is_ready, elections.stop()));
                permits
            }
        };
        drop(kube);
        let started = Started::of(prepared.len() + runnables.len() + everywhere.len(), ready);
        let watchdog = Watchdog::default();
        // In a time that a test owns nothing is seen to block.
        if !clock.is_virtual() {
            let (watchdog, metrics, stop) = (watchdog.clone(), metrics.clone(), servers.stop());
            servers.spawn("watchdog", async move {
                watchdog.run(metrics, stop).await;
                Ok(())
            });
        }
        let alive = watchdog.clone();
        checks.add("healthz", "watchdog", Arc::new(move || alive.check()));
        let options = WorkerOptions {
            client: client.clone(),
            clock,
            metrics,
            watchdog,
        };
        let mut loops = RunningControllers::new(
            Group::new(failures.clone()),
            clusters,
            options,
            permits.clone(),
            shards,
            checks,
        );
        let synced = prepared
            .into_iter()
            .map(|controller| loops.start(controller, started.clone()));
        let synced = all(synced.collect());
        let mut others = Group::new(failures.clone());
        drop(failures);

        tracing::info!(manager = name, "manager started");
        let mut waiting = Some((everywhere, runnables));
        let mut begins = false;
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(shutdown, synced, patience);
        let first = loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break None,
                Some(error) = failed.recv() => break Some(error),
                Some(command) = commands.recv() => loops.obey(command),
                () = &mut synced, if !*all_synced.borrow() => {
                    all_synced.send_replace(true);
                }
                () = &mut patience, if waiting.is_some() && !*all_synced.borrow() => {
                    tracing::warn!(manager = name, "runnables begin although not all caches are synced; /readyz names those that are not");
                    begins = true;
                }
            }
            if !begins && !*all_synced.borrow() {
                continue;
            }
            let Some((everywhere, led)) = waiting.take() else {
                continue;
            };
            let everywhere = everywhere.into_iter().map(|part| (part, Permits::default()));
            for ((name, runnable), permits) in everywhere.chain(led.into_iter().map(|part| (part, permits.clone()))) {
                let led = LeaderRunnable {
                    runnable,
                    client: client.clone(),
                    permits,
                    started: started.clone(),
                };
                others.spawn(&name, led.run(others.stop()));
            }
        };
        drop(commands);
        let (loops, writers) = loops.into_groups();
        match &first {
            None => tracing::info!(manager = name, "manager stops"),
            Some(error) => tracing::error!(manager = name, %error, "manager stops because a part failed"),
        }
        let stuck = stop_in_order([loops, others, elections, writers, answering, servers], graceful).await;
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
