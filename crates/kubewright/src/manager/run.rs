//! A manager that runs: how each stage is started, and what the manager attends to meanwhile.
//!
//! Which stage comes when, and the stop, see `stages.rs`. What a stage leaves for later ones is a field of [`Run`].

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::clusters::{Clusters, Common};
use super::controllers::{Command, Controllers, RunningControllers};
use super::guarded::{LeaderRunnable, Started};
use super::options::Options;
use super::stages::{Group, ORDER, Stage, Stages};
use super::{Manager, ManagerBuilder};
use crate::client::Client;
use crate::controller::WorkerOptions;
use crate::election;
use crate::error::{Error, Result};
use crate::health::{self, Checks};
use crate::metrics_server::MetricsServer;
#[cfg(feature = "profiling")]
use crate::profiles::ProfileServer;
use crate::sharding::{Sharder, Shards};
use crate::term::Permits;
use crate::watch;
use crate::watchdog::Watchdog;
use crate::webhook::WebhookHandlers;

type Address = watch::Sender<Option<std::net::SocketAddr>>;

/// A manager that runs.
pub(super) struct Run {
    options: Options,
    client: Client,
    webhooks: WebhookHandlers,
    metrics_server: Option<MetricsServer>,
    #[cfg(feature = "profiling")]
    profile_server: Option<ProfileServer>,
    health_address: Address,
    webhook_address: Address,
    metrics_address: Address,
    ready: watch::Sender<bool>,
    commands: mpsc::Receiver<Command>,
    handle: Controllers,
    checks: Checks,
    watchdog: Watchdog,
    /// Whether the caches of all controllers are synced.
    all_synced: watch::Sender<bool>,
    /// For the events.
    common: Option<Common>,
    /// Of the events, for the controllers.
    clusters: Option<Clusters>,
    /// Of the elections.
    permits: Permits,
    shards: Option<Shards>,
    /// Of the controllers.
    controllers: Option<RunningControllers>,
    started: Option<Started>,
    /// Resolves when their caches are synced.
    synced: Option<BoxFuture<'static, ()>>,
}

/// Why it is attended to no longer.
enum WaitOutcome {
    /// What was waited for is there.
    Met,
    /// The manager is to stop.
    Stopped,
}

impl Run {
    pub(super) fn of(manager: Manager) -> Run {
        let Manager {
            builder,
            client,
            common,
            webhooks,
            ready,
            health_address,
            webhook_address,
            metrics_address,
            commands: (handle, commands),
        } = manager;
        let ManagerBuilder {
            client: _,
            options,
            metrics_server,
            #[cfg(feature = "profiling")]
            profile_server,
        } = builder;
        Run {
            options,
            client,
            webhooks,
            metrics_server,
            #[cfg(feature = "profiling")]
            profile_server,
            health_address,
            webhook_address,
            metrics_address,
            ready,
            commands,
            handle,
            checks: Checks::default(),
            watchdog: Watchdog::default(),
            all_synced: watch::Sender::new(false),
            common: Some(common),
            clusters: None,
            permits: Permits::default(),
            shards: None,
            controllers: None,
            started: None,
            synced: None,
        }
    }

    /// Starts one stage after the other, and attends to them until the shutdown or the first failure.
    pub(super) async fn through(
        mut self,
        stages: &mut Stages,
        failed: &mut mpsc::UnboundedReceiver<Error>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<()> {
        tokio::pin!(shutdown);
        for step in &ORDER {
            if let Some(longest) = step.waits_for_caches {
                let late = Some(Instant::now() + longest);
                if let WaitOutcome::Stopped = self.attend(late, failed, shutdown.as_mut()).await? {
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                () = shutdown.as_mut() => return Ok(()),
                started = self.start(step.stage, stages.begin(step.stage)) => started?,
            }
        }
        self.attend(None, failed, shutdown).await.map(drop)
    }

    /// Attends to failures and commands, until the caches are synced, if they are waited for, or until `late`.
    async fn attend(
        &mut self,
        late: Option<Instant>,
        failed: &mut mpsc::UnboundedReceiver<Error>,
        mut shutdown: std::pin::Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<WaitOutcome> {
        let patience = async {
            match late {
                Some(late) => tokio::time::sleep_until(late).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        loop {
            tokio::select! {
                biased;
                () = shutdown.as_mut() => return Ok(WaitOutcome::Stopped),
                Some(error) = failed.recv() => return Err(error),
                Some(command) = self.commands.recv() => {
                    if let Some(controllers) = &mut self.controllers {
                        controllers.obey(command);
                    }
                }
                () = all(&mut self.synced) => {
                    self.synced = None;
                    self.all_synced.send_replace(true);
                }
                () = &mut patience => {
                    tracing::warn!(manager = self.options.name, "runnables begin although not all caches are synced; /readyz names those that are not");
                    return Ok(WaitOutcome::Met);
                }
            }
            if late.is_some() && *self.all_synced.borrow() {
                return Ok(WaitOutcome::Met);
            }
        }
    }

    async fn start(&mut self, stage: Stage, parts: Group) -> Result<()> {
        match stage {
            Stage::Servers => self.start_servers(&parts).await,
            Stage::Webhooks => self.start_webhooks(&parts).await,
            Stage::Events => {
                let common = self.common.take().expect("each stage is started once");
                self.clusters = Some(Clusters::start(common, &self.client, parts));
                Ok(())
            }
            Stage::Elections => {
                self.start_elections(&parts);
                Ok(())
            }
            Stage::Controllers => self.start_controllers(parts),
            Stage::Runnables => {
                self.start_runnables(&parts);
                Ok(())
            }
        }
    }

    async fn start_servers(&mut self, parts: &Group) -> Result<()> {
        for (endpoint, name, check) in std::mem::take(&mut self.options.checks) {
            self.checks.add(endpoint, &name, check);
        }
        let alive = self.watchdog.clone();
        self.checks.add("healthz", "watchdog", Arc::new(move || alive.check()));
        if self.options.webhook_server.is_some() && !self.webhooks.is_empty() {
            let listening = self.webhook_address.subscribe();
            let is_listening = move || match *listening.borrow() {
                Some(_) => Ok(()),
                None => Err("it does not listen yet".to_owned()),
            };
            self.checks.add("readyz", "webhook server", Arc::new(is_listening));
        }
        if let Some(address) = &self.options.health {
            let (listener, address) = health::bind(address).await?;
            self.health_address.send_replace(Some(address));
            parts.spawn(
                "health server",
                health::serve(listener, self.checks.clone(), parts.stop()),
            );
        }
        if let Some(server) = self.metrics_server.take() {
            let metrics = self.options.metrics.clone();
            let (address, serving) = server.bind(metrics, &self.client, parts.stop()).await?;
            tracing::info!(%address, "metrics server listens");
            self.metrics_address.send_replace(Some(address));
            parts.spawn("metrics server", serving);
        }
        #[cfg(feature = "profiling")]
        if let Some(server) = self.profile_server.take() {
            let (address, serving) = server.bind(parts.stop()).await?;
            tracing::info!(%address, "profile server listens");
            parts.spawn("profile server", serving);
        }
        // In a time that a test owns nothing is seen to block.
        if !self.options.env.clock.is_virtual() {
            let (watchdog, metrics, stop) = (self.watchdog.clone(), self.options.metrics.clone(), parts.stop());
            parts.spawn("watchdog", async move {
                watchdog.run(metrics, stop).await;
                Ok(())
            });
        }
        Ok(())
    }

    async fn start_webhooks(&mut self, parts: &Group) -> Result<()> {
        let server = self.options.webhook_server.take();
        if let Some(server) = server.filter(|_| !self.webhooks.is_empty()) {
            let clock = self.options.env.clock.clone();
            let (address, serving) = server.bind(self.webhooks.clone(), clock, parts.stop()).await?;
            tracing::info!(%address, paths = ?self.webhooks, "webhook server listens");
            self.webhook_address.send_replace(Some(address));
            parts.spawn("webhook server", serving);
        }
        Ok(())
    }

    fn start_elections(&mut self, parts: &Group) {
        let metrics = &self.options.metrics;
        if let Some(sharding) = self.options.sharding.take() {
            let (sharder, shards) = Sharder::new(sharding, &self.client, metrics.clone());
            parts.spawn("sharding", sharder.run(self.all_synced.subscribe(), parts.stop()));
            self.shards = Some(shards);
        }
        if let Some(election) = self.options.leader_election.take() {
            let recorder = self.client.cache().recorder().expect("its writer was started before");
            let (elections, permits) = election::stand(election, &self.client, recorder, metrics.clone());
            parts.spawn(
                "leader election",
                elections.run(self.all_synced.subscribe(), parts.stop()),
            );
            self.permits = permits;
        }
    }

    fn start_controllers(&mut self, parts: Group) -> Result<()> {
        let client = self.client.clone();
        let others = client.other_clusters();
        let caches = others.iter().map(|(_, client)| client).chain([&client]);
        let declaring: Vec<_> = caches.map(|client| client.cache().declaring()).collect();
        for read in &self.options.reads {
            client.cache().declare_read(&read.form, read.scope.clone());
        }
        let prepared = std::mem::take(&mut self.options.controllers)
            .into_iter()
            .map(|controller| controller.prepare(&client, self.shards.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        drop(declaring); // all is said: the first lists are for what everybody needs
        let runnables = self.options.runnables.len() + self.options.everywhere.len();
        let started = Started::of(
            prepared.len() + runnables,
            std::mem::replace(&mut self.ready, watch::Sender::new(false)),
        );
        let options = WorkerOptions {
            client,
            clock: self.options.env.clock.clone(),
            reconciles: Arc::default(),
            metrics: self.options.metrics.clone(),
            watchdog: self.watchdog.clone(),
        };
        let mut controllers = RunningControllers::new(
            parts,
            self.clusters.take().expect("each stage is started once"),
            options,
            self.permits.clone(),
            self.shards.clone(),
            self.checks.clone(),
            self.handle.clone(),
        );
        let synced: Vec<_> = prepared
            .into_iter()
            .map(|controller| controllers.start(controller, started.clone()))
            .collect();
        self.synced = Some(Box::pin(async move {
            join_all(synced).await;
        }));
        (self.controllers, self.started) = (Some(controllers), Some(started));
        tracing::info!(manager = self.options.name, "manager started");
        Ok(())
    }

    fn start_runnables(&mut self, parts: &Group) {
        let started = self.started.take().expect("controllers come before");
        let everywhere = std::mem::take(&mut self.options.everywhere);
        let everywhere = everywhere.into_iter().map(|part| (part, Permits::default()));
        let led = std::mem::take(&mut self.options.runnables);
        let led = led.into_iter().map(|part| (part, self.permits.clone()));
        for ((name, runnable), permits) in everywhere.chain(led) {
            let led = LeaderRunnable {
                name: name.clone(),
                runnable,
                client: self.client.clone(),
                permits,
                started: started.clone(),
            };
            parts.spawn(&name, led.run(parts.stop()));
        }
    }
}

/// Resolves when it does, if there is something.
async fn all(waiting: &mut Option<BoxFuture<'static, ()>>) {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}
