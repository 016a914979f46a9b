//! The parts of a manager, before it runs.

use std::collections::BTreeMap;
use std::fmt;

use super::clusters::Common;
use super::options::Options;
use super::{Controllers, Manager};
use crate::cache::collector;
use crate::client::Client;
use crate::controller::{Controller, EVERY_CLUSTER};
use crate::error::{Error, Result};
use crate::metrics_server::MetricsServer;
use crate::observe::Observers;
#[cfg(feature = "profiling")]
use crate::profiles::ProfileServer;
use crate::request::HOME_CLUSTER;
use crate::watch;
use crate::webhook::WebhookHandlers;

/// Puts a [`Manager`] together.
#[must_use]
pub struct ManagerBuilder {
    pub(super) client: kube::Client,
    pub(crate) options: Options,
    pub(super) metrics_server: Option<MetricsServer>,
    #[cfg(feature = "profiling")]
    pub(super) profile_server: Option<ProfileServer>,
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("name", &self.options.name)
            .field("controllers", &self.options.controllers)
            .finish_non_exhaustive()
    }
}

impl ManagerBuilder {
    pub(crate) fn of(client: kube::Client, options: Options) -> ManagerBuilder {
        ManagerBuilder {
            client,
            options,
            metrics_server: None,
            #[cfg(feature = "profiling")]
            profile_server: None,
        }
    }

    /// The operator's name, for logs and as field manager of writes outside controllers.
    pub fn name(mut self, name: impl Into<String>) -> ManagerBuilder {
        self.options.name = name.into();
        self
    }

    /// Serves metrics. Off by default; [`Manager::metrics`] hands them out in any case.
    pub fn metrics_server(mut self, server: MetricsServer) -> ManagerBuilder {
        self.metrics_server = Some(server);
        self
    }

    /// Serves CPU profiles for `go tool pprof` on this address; without a host, such as `:6060`, to its own machine or
    /// pod only. Every client that reaches it may ask. Off by default.
    #[cfg(feature = "profiling")]
    pub fn profiles(mut self, address: &str) -> ManagerBuilder {
        self.profile_server = Some(ProfileServer::new(address));
        self
    }

    /// Where the API server is, for the metrics of requests.
    pub(crate) fn talks_to(self, host: String) -> ManagerBuilder {
        self.options.metrics.talks_to(host);
        self
    }

    /// Adds a controller.
    #[allow(clippy::should_implement_trait)] // controller-runtime's word; nobody adds managers up
    pub fn add(mut self, controller: Controller) -> ManagerBuilder {
        self.options.controllers.push(controller);
        self
    }

    /// The client of the home cluster, which leads to the others, and the common parts for later ones.
    fn clients(&mut self) -> Result<(Client, Common)> {
        let common = Common {
            name: self.options.name.clone(),
            observers: Observers::new(self.options.observers.clone()),
            metrics: self.options.metrics.clone(),
            namespaces: std::mem::take(&mut self.options.namespaces),
            kept: std::mem::take(&mut self.options.kept),
            env: self.options.env.clone(),
            caches: collector::Caches::default(),
        };
        self.options
            .metrics
            .register(|registry| common.caches.register(registry));
        let home = common.client(&self.client, None);
        let mut others = BTreeMap::new();
        for (name, kube) in &self.options.clusters {
            let is_reserved = name == HOME_CLUSTER || name == EVERY_CLUSTER;
            if is_reserved || others.insert(name.clone(), common.client(kube, Some(name))).is_some() {
                return Err(Error::Configuration(format!(
                    "{}: a cluster is named {name:?}; each needs a name of its own that is not empty",
                    self.options.name
                )));
            }
        }
        Ok((home.beside(others), common))
    }

    fn check_sharding(&self) -> Result<()> {
        let Some(sharding) = &self.options.sharding else {
            return Ok(());
        };
        sharding.check()?;
        match self.options.runnables.first() {
            Some((name, _)) if self.options.leader_election.is_none() => Err(Error::Configuration(format!(
                "{}: runnable {name:?} would run on every replica, because only controllers are shared out; add a leader election, or say \
                 runnable_on_every_replica",
                self.options.name
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that the parts fit together. Nothing runs yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when two parts have the same name, or one has none.
    pub fn build(mut self) -> Result<Manager> {
        self.check_sharding()?;
        self.options.check()?;
        let (client, common) = self.clients()?;
        let webhooks = WebhookHandlers::new(
            std::mem::take(&mut self.options.webhooks),
            client.clone(),
            self.options.env.clock.clone(),
        );
        let commands = std::mem::replace(&mut self.options.commands, Controllers::channel());
        Ok(Manager {
            builder: self,
            client,
            common,
            webhooks,
            ready: watch::Sender::new(false),
            health_address: watch::Sender::new(None),
            webhook_address: watch::Sender::new(None),
            metrics_address: watch::Sender::new(None),
            commands,
        })
    }
}
