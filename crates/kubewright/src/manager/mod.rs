//! Runs everything that belongs to one operator, in order, and stops it in reverse.
//!
//! The order is data: `stages.rs`. How each stage is started: `run.rs`. All of the stop is within one graceful period;
//! the caches end with the last part that has a client.
//!
//! Invariants: M2, W6 probes and webhooks are answered before the first list; M3 runnables begin when the caches of all
//! controllers are synced, or have been waited for 30 seconds; R4 a controller reconciles when its own are, so one kind
//! that cannot be listed holds up its own controllers alone (C8); M5 `run` returns when it is asked to, or with the first
//! error; M7 it never takes longer than the graceful period, and names the parts that did not stop; M1 a replica that
//! does not lead is ready, and waits.

mod builder;
mod check;
mod clusters;
mod controllers;
mod guarded;
pub(crate) mod options;
mod run;
mod signals;
mod stages;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;

pub use self::builder::ManagerBuilder;
use self::clusters::Common;
pub(crate) use self::controllers::Command;
pub use self::controllers::Controllers;
use self::options::Options;
use self::run::Run;
pub use self::signals::shutdown_signal;
use self::stages::Stages;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::watch;
use crate::webhook::WebhookHandlers;

/// How long a stop may take by default.
pub const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(30);

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
        crate::panic_place::note();
        let deadline = self.builder.options.graceful;
        let (failures, mut failed) = mpsc::unbounded_channel::<Error>();
        let mut stages = Stages::new(failures);
        let ended = Run::of(self).through(&mut stages, &mut failed, shutdown).await;
        match &ended {
            Ok(()) => tracing::info!("manager stops"),
            Err(error) => tracing::error!(%error, "manager stops because a part failed"),
        }
        let stuck = stages.stop(deadline).await;
        // A part may have failed while it stopped: it is the first error when there was none.
        match ended.and_then(|()| failed.try_recv().map_or(Ok(()), Err)) {
            Err(error) => {
                if !stuck.is_empty() {
                    tracing::error!(?stuck, "these did not stop in time");
                }
                Err(error)
            }
            Ok(()) if stuck.is_empty() => Ok(()),
            Ok(()) => Err(Error::Shutdown { deadline, stuck }),
        }
    }
}

fn listening(address: &watch::Sender<Option<SocketAddr>>) -> impl Future<Output = SocketAddr> + Send + use<> {
    let mut address = address.subscribe();
    async move {
        if let Ok(address) = address.wait_for(Option::is_some).await
            && let Some(address) = address
        {
            return address;
        }
        std::future::pending().await
    }
}
