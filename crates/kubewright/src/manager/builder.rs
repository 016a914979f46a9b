//! The parts of a manager, before it runs.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::clusters::Common;
use super::{Controllers, Manager};
use crate::cache::{Scope, StoreOptions, collector};
use crate::client::{Client, HOME_CLUSTER};
use crate::clock::Clock;
use crate::controller::Controller;
use crate::election::LeaderElection;
use crate::error::{Error, Result};
use crate::form::packed::Budget;
use crate::metrics::{Metrics, MetricsServer};
use crate::object::Object;
use crate::observe::{Observer, Observers};
#[cfg(feature = "profiling")]
use crate::profiles::ProfileServer;
use crate::runnable::Runnable;
use crate::sharding::Sharding;
use crate::webhook::{Parts, WebhookHandlers, WebhookServer};

/// Puts a [`Manager`] together.
#[must_use]
pub struct ManagerBuilder {
    pub(super) client: kube::Client,
    pub(super) name: String,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) controllers: Vec<Controller>,
    pub(super) runnables: Vec<(String, Box<dyn Runnable>)>,
    pub(super) everywhere: Vec<(String, Box<dyn Runnable>)>,
    pub(super) leader_election: Option<LeaderElection>,
    pub(super) sharding: Option<Sharding>,
    pub(super) health: Option<String>,
    pub(super) webhooks: Parts,
    pub(super) webhook_server: Option<WebhookServer>,
    pub(super) metrics: Metrics,
    pub(super) metrics_server: Option<MetricsServer>,
    #[cfg(feature = "profiling")]
    pub(super) profile_server: Option<ProfileServer>,
    pub(super) namespaces: Vec<String>,
    pub(super) clusters: Vec<(String, kube::Client)>,
    pub(super) kept: StoreOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) graceful: Duration,
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("name", &self.name)
            .field("controllers", &self.controllers)
            .finish_non_exhaustive()
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

    /// Answers `/healthz` and `/readyz` on this address; port 0 takes a free one, see [`Manager::health_address`]. Off
    /// by default.
    pub fn health(mut self, address: impl Into<String>) -> ManagerBuilder {
        self.health = Some(address.into());
        self
    }

    /// Serves the operator's webhooks and conversions over HTTPS, if it has any. Off by default; [`Manager::webhooks`]
    /// hands them out in any case.
    pub fn webhook_server(mut self, server: WebhookServer) -> ManagerBuilder {
        self.webhook_server = Some(server);
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

    /// Adds metrics of the operator's own; see [`Metrics`].
    pub fn metrics(self, add: impl FnOnce(&mut Registry)) -> ManagerBuilder {
        self.metrics.register(add);
        self
    }

    /// Where the API server is, for the metrics of requests.
    pub(crate) fn talks_to(self, host: String) -> ManagerBuilder {
        self.metrics.talks_to(host);
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

    /// Adds something that runs beside the controllers, from when their caches are synced, or after 30 seconds where some
    /// are not. With leader election it runs on the leader alone.
    pub fn runnable(mut self, name: impl Into<String>, runnable: impl Runnable) -> ManagerBuilder {
        self.runnables.push((name.into(), Box::new(runnable)));
        self
    }

    /// Adds something that runs on every replica, whether it leads or not (`NeedLeaderElection: false`), from when the
    /// caches are synced, or after 30 seconds where some are not.
    pub fn runnable_on_every_replica(mut self, name: impl Into<String>, runnable: impl Runnable) -> ManagerBuilder {
        self.everywhere.push((name.into(), Box::new(runnable)));
        self
    }

    /// Lets one of several replicas act: its controllers and runnables run, those of the others wait. Off by default.
    pub fn leader_election(mut self, election: LeaderElection) -> ManagerBuilder {
        self.leader_election = Some(election);
        self
    }

    /// Lets several replicas share the objects of all controllers out. Off by default.
    pub fn sharding(mut self, sharding: Sharding) -> ManagerBuilder {
        self.sharding = Some(sharding);
        self
    }

    /// Restricts the manager to one namespace; see [`ManagerBuilder::namespaces`].
    pub fn namespace(self, namespace: impl Into<String>) -> ManagerBuilder {
        self.namespaces([namespace])
    }

    /// Restricts the manager to these namespaces: its caches hold objects of them only (and objects that are in none),
    /// so a Role in each is enough to run it. Each is listed and watched by itself. Reads of other namespaces fail.
    /// Without any, as by default, all namespaces.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> ManagerBuilder {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// How much each informer keeps decoded, in bytes of its objects' JSON; decoded it is about eight times as much.
    ///
    /// A cache holds objects as JSON text, a Pod in a seventh of its decoded size, and decodes objects that are read:
    /// some twenty microseconds for a Pod. The objects decoded last stay decoded until they take this much. Unless it
    /// is set it begins with 2 MiB and grows up to 64 where the same objects are read again and again. `usize::MAX`
    /// keeps every object decoded that was read, as other runtimes do. With 0 an object stays decoded only while it is
    /// held.
    pub fn keep_decoded(mut self, bytes: usize) -> ManagerBuilder {
        self.kept.decoded = Budget::fixed(bytes);
        self
    }

    /// Adds another cluster, under a name: with a cache of its own, for [`Controller::in_cluster`],
    /// [`Watch::in_cluster`](crate::Watch::in_cluster) and [`Client::cluster`]. Leases, webhooks and metrics stay with
    /// the cluster that the manager was made with. Each cluster fails alone: a controller whose sources are in one that
    /// cannot be reached waits, and `/readyz` says so. Clusters that come and go are added to the manager that runs:
    /// [`Controllers::add_cluster`].
    ///
    /// ```
    /// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// use kubewright::{Controller, Manager, Request, Result, Watch, kube};
    /// # use std::sync::Arc;
    /// # use kubewright::{Action, Context, Reconciler};
    /// # struct Mirror;
    /// # impl Reconciler for Mirror {
    /// #     type Object = ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
    /// # }
    /// fn manager(home: kube::Client, west: kube::Client) -> Result<Manager> {
    ///     // A ConfigMap here is looked at when its namesake over there changes.
    ///     let theirs = Watch::<ConfigMap>::new().in_cluster("west").map(|config| vec![Request::of(config)]);
    ///     Manager::builder(home).cluster("west", west).add(Controller::of(Mirror).source(theirs)).build()
    /// }
    /// ```
    pub fn cluster(mut self, name: impl Into<String>, client: kube::Client) -> ManagerBuilder {
        self.clusters.push((name.into(), client));
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

    /// Holds only a part of a type's objects (controller-runtime's `cache.Options.ByObject`): every controller, watch
    /// and cached read of the type that names no scope of its own has this one, and the server filters. Objects outside
    /// of it are as absent to cached reads; [`Client::live`](crate::Client::live) finds them.
    ///
    /// ```
    /// # use kubewright::{Manager, Result, Scope};
    /// # use kubewright::k8s_openapi::api::core::v1::Secret;
    /// # fn manager(client: kubewright::kube::Client) -> Result<Manager> {
    /// let ours = [("app.kubernetes.io/managed-by", "shop")].into_iter().collect();
    /// Manager::builder(client).within::<Secret>(Scope::all().labels(ours)).build()
    /// # }
    /// ```
    pub fn within<K: Object>(mut self, scope: Scope) -> ManagerBuilder {
        self.kept.scopes.insert(TypeId::of::<K>(), scope);
        self
    }

    /// Changes each object of a type before the caches keep it (controller-runtime's `cache.Options`,
    /// `TransformFunc`): what reconcilers do not read need not be held. It sees the object as its type reads it, and
    /// fields that the type does not know go; managedFields are left out in any case. Objects that were read live, and
    /// the answers to writes, are as the API server has them. Several changes of a type follow each other.
    ///
    /// An object that was read with less is not one to [`update`](crate::Client::update): what is missing would be
    /// removed. Patch it, or [`apply`](crate::Client::apply).
    ///
    /// ```
    /// # use kubewright::{Manager, Result};
    /// # use kubewright::k8s_openapi::api::core::v1::Pod;
    /// # fn manager(client: kubewright::kube::Client) -> Result<Manager> {
    /// Manager::builder(client).transform::<Pod>(|pod| pod.spec = None).build()
    /// # }
    /// ```
    pub fn transform<K: Object>(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> ManagerBuilder {
        self.kept.transforms.add(change);
        self
    }

    /// The client of the home cluster, which leads to the others, and the common parts for later ones.
    fn clients(&mut self) -> Result<(Client, Common)> {
        let common = Common {
            name: self.name.clone(),
            observers: Observers::new(self.observers.clone()),
            metrics: self.metrics.clone(),
            namespaces: std::mem::take(&mut self.namespaces),
            kept: std::mem::take(&mut self.kept),
            is_virtual: self.clock.is_virtual(),
            caches: collector::Caches::default(),
        };
        self.metrics.register(|registry| common.caches.register(registry));
        let home = common.client(&self.client, None);
        let mut others = BTreeMap::new();
        for (name, kube) in &self.clusters {
            if name == HOME_CLUSTER || others.insert(name.clone(), common.client(kube, Some(name))).is_some() {
                return Err(Error::Configuration(format!(
                    "{}: a cluster is named {name:?}; each needs a name of its own that is not empty",
                    self.name
                )));
            }
        }
        Ok((home.beside(others), common))
    }

    fn check_sharding(&self) -> Result<()> {
        let Some(sharding) = &self.sharding else { return Ok(()) };
        sharding.check()?;
        match self.runnables.first() {
            Some((name, _)) if self.leader_election.is_none() => Err(Error::Configuration(format!(
                "{}: runnable {name:?} would run on every replica, because only controllers are shared out; add a leader election, or say \
                 runnable_on_every_replica",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that the parts fit together. Nothing runs yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when two parts have the same name, or one has none.
    pub fn build(mut self) -> Result<Manager> {
        self.webhooks.check()?;
        if let Some(election) = &self.leader_election {
            election.check()?;
        }
        self.check_sharding()?;
        let mut names = BTreeSet::new();
        let all = self.controllers.iter().map(Controller::name).chain(
            self.runnables
                .iter()
                .chain(&self.everywhere)
                .map(|(name, _)| name.clone()),
        );
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
        let (client, common) = self.clients()?;
        let webhooks = WebhookHandlers::new(std::mem::take(&mut self.webhooks), client.clone(), self.clock.clone());
        Ok(Manager {
            builder: self,
            client,
            common,
            webhooks,
            ready: watch::Sender::new(false),
            health_address: watch::Sender::new(None),
            webhook_address: watch::Sender::new(None),
            metrics_address: watch::Sender::new(None),
            commands: Controllers::channel(),
        })
    }
}
