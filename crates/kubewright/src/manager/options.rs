//! The options of an operator, for both doors to it: [`Operator`](crate::Operator), which [`run`](crate::run()) takes, and
//! [`ManagerBuilder`](crate::ManagerBuilder).
//!
//! Each option is a field and a method here, and nowhere else. Not here: what is declared for manifests (CRDs, webhooks,
//! rules; see `operator.rs`), and what a program's flags say (`run/settings.rs`).

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use super::{Command, Controllers, GRACEFUL_SHUTDOWN, ManagerBuilder};
use crate::cache::{Scope, StoreOptions};
use crate::clock::{Clock, Entropy, Env};
use crate::controller::Controller;
use crate::election::LeaderElection;
use crate::form::Form;
use crate::form::packed::Budget;
use crate::health::Check;
use crate::metrics::Metrics;
use crate::object::Object;
use crate::observe::Observer;
use crate::rule::Rule;
use crate::runnable::Runnable;
use crate::sharding::Sharding;
use crate::webhook::{Parts, WebhookServer};

/// Everything that a manager is made of besides its client.
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) controllers: Vec<Controller>,
    pub(crate) runnables: Vec<(String, Box<dyn Runnable>)>,
    pub(crate) everywhere: Vec<(String, Box<dyn Runnable>)>,
    pub(crate) leader_election: Option<LeaderElection>,
    pub(crate) sharding: Option<Sharding>,
    pub(crate) health: Option<String>,
    /// Of the user, by endpoint and name.
    pub(crate) checks: Vec<(&'static str, String, Check)>,
    pub(crate) webhooks: Parts,
    pub(crate) webhook_server: Option<WebhookServer>,
    pub(crate) metrics: Metrics,
    pub(crate) namespaces: Vec<String>,
    pub(crate) clusters: Vec<(String, kube::Client)>,
    pub(crate) kept: StoreOptions,
    pub(crate) env: Env,
    pub(crate) reads: Vec<DeclaredRead>,
    pub(crate) graceful: Duration,
    pub(crate) commands: (Controllers, mpsc::Receiver<Command>),
}

impl Options {
    pub(crate) fn new(name: String) -> Options {
        Options {
            name,
            observers: Vec::new(),
            controllers: Vec::new(),
            runnables: Vec::new(),
            everywhere: Vec::new(),
            leader_election: None,
            sharding: None,
            health: None,
            checks: Vec::new(),
            webhooks: Parts::default(),
            webhook_server: None,
            metrics: Metrics::new(),
            namespaces: Vec::new(),
            clusters: Vec::new(),
            kept: StoreOptions::default(),
            env: Env::default(),
            reads: Vec::new(),
            graceful: GRACEFUL_SHUTDOWN,
            commands: Controllers::channel(),
        }
    }
}

/// A kind, or a part of it, that something besides the controllers reads.
pub(crate) struct DeclaredRead {
    pub(crate) form: Form,
    pub(crate) scope: Scope,
    /// For the role.
    pub(crate) rule: Rule,
}

/// Gives a type with a field `options` a method for each option. The types that it names are imported where it stands.
macro_rules! options {
    ($type:ty) => {
        /// Options of the runtime.
        impl $type {
            /// Tells an observer everything that happens. May be called several times.
            pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
                self.options.observers.push(observer);
                self
            }

            /// Serves the operator's webhooks and conversions over HTTPS, if it has any. Off by default; [`Manager::webhooks`](crate::Manager::webhooks)
            /// hands them out in any case.
            pub fn webhook_server(mut self, server: WebhookServer) -> Self {
                self.options.webhook_server = Some(server);
                self
            }

            /// Adds something that runs beside the controllers, from when their caches are synced, or after 30 seconds where
            /// some are not. With leader election it runs on the leader alone.
            pub fn runnable(mut self, name: impl Into<String>, runnable: impl Runnable) -> Self {
                self.options.runnables.push((name.into(), Box::new(runnable)));
                self
            }

            /// Adds something that runs on every replica, whether it leads or not (`NeedLeaderElection: false`), from when the
            /// caches are synced, or after 30 seconds where some are not.
            pub fn runnable_on_every_replica(mut self, name: impl Into<String>, runnable: impl Runnable) -> Self {
                self.options.everywhere.push((name.into(), Box::new(runnable)));
                self
            }

            /// Lets one of several replicas act: its controllers and runnables run, those of the others wait. Off by default.
            /// In a program the flag `--leader-elect` does so too, with a Lease of the operator's name.
            pub fn leader_election(mut self, election: LeaderElection) -> Self {
                self.options.leader_election = Some(election);
                self
            }

            /// Lets several replicas share the objects of all controllers out; see [`Sharding`]. Off by default. In a program
            /// the flag `--shards` does so too, with Leases of the operator's name.
            pub fn sharding(mut self, sharding: Sharding) -> Self {
                self.options.sharding = Some(sharding);
                self
            }

            /// Restricts the manager to one namespace; see [`namespaces`](Self::namespaces).
            pub fn namespace(self, namespace: impl Into<String>) -> Self {
                self.namespaces([namespace])
            }

            /// Restricts the manager to these namespaces: its caches hold objects of them only (and objects that are in none),
            /// so a Role in each is enough to run it. Each is listed and watched by itself. Reads of other namespaces fail.
            /// Without any, as by default, all namespaces. In a program `WATCH_NAMESPACE` and the flag `--namespaces` say so
            /// too, and count more.
            pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
                self.options.namespaces = namespaces.into_iter().map(Into::into).collect();
                self
            }

            /// How much each informer keeps decoded, in bytes of its objects' JSON; decoded it is about eight times as much.
            ///
            /// A cache holds objects as JSON text, a Pod in a seventh of its decoded size, and decodes objects that are read:
            /// some twenty microseconds for a Pod. Objects stay decoded until they take this much; then those that are read
            /// again take the places of others. Unless it is set it begins with 2 MiB and grows up to 64 where the same
            /// objects are read again and again. `usize::MAX` keeps every object decoded that was read, as other runtimes
            /// do. With 0 an object stays decoded only while it is held.
            pub fn keep_decoded(mut self, bytes: usize) -> Self {
                self.options.kept.decoded = Budget::fixed(bytes);
                self
            }

            /// Adds another cluster, under a name: with a cache of its own, for [`Controller::in_cluster`](crate::Controller::in_cluster),
            /// [`Watch::in_cluster`](crate::Watch::in_cluster) and [`Client::cluster`](crate::Client::cluster). Leases, webhooks and metrics stay with
            /// the cluster that the manager was made with. Each cluster fails alone: a controller whose sources are in one that
            /// cannot be reached waits, and `/readyz` says so. Clusters that come and go are added to the manager that runs:
            /// [`Controllers::add_cluster`](crate::Controllers::add_cluster).
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
            pub fn cluster(mut self, name: impl Into<String>, client: kube::Client) -> Self {
                self.options.clusters.push((name.into(), client));
                self
            }

            /// Declares that webhooks or runnables read a kind, or a part of it, through the cache; see
            /// [`Controller::reads`](crate::Controller::reads), which is for reconcilers.
            pub fn reads<K: Object>(mut self, scope: Scope) -> Self {
                let rule = match &scope.namespace {
                    Some(namespace) => Rule::of::<K>().namespace(namespace),
                    None => Rule::of::<K>(),
                };
                self.options.reads.push(DeclaredRead {
                    form: Form::of::<K>(),
                    scope,
                    rule: rule.verbs(["get", "list", "watch"]),
                });
                self
            }

            /// Whether a cached read of a kind that nobody declares fails, and says which line to add. Otherwise it starts a
            /// watch, and says so once in the log. Off by default; a `TestCluster` switches it on for the operators that it
            /// runs.
            pub fn refuse_undeclared_reads(mut self, refuse: bool) -> Self {
                self.options.kept.refuses_undeclared = refuse;
                self
            }

            /// Takes the time of day from somewhere else.
            pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
                self.options.env.clock = clock;
                self
            }

            /// Takes random numbers from somewhere else: with a seed a test on one thread, whose time is its own, sends
            /// the same requests in every run.
            pub fn entropy(mut self, entropy: Entropy) -> Self {
                self.options.env.entropy = entropy;
                self
            }

            /// How long a stop may take. The default is 30 seconds.
            pub fn graceful_shutdown(mut self, deadline: Duration) -> Self {
                self.options.graceful = deadline;
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
            pub fn within<K: Object>(mut self, scope: Scope) -> Self {
                self.options.kept.scopes.insert(TypeId::of::<K>(), scope);
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
            pub fn transform<K: Object>(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
                self.options.kept.transforms.add(change);
                self
            }

            /// Answers `/healthz` and `/readyz` on this address; port 0 takes a free one, see [`Manager::health_address`](crate::Manager::health_address). Off
            /// by default.
            pub fn health(mut self, address: impl Into<String>) -> Self {
                self.options.health = Some(address.into());
                self
            }

            /// Adds a check to `/livez` and `/healthz`, under a name: as long as it fails, probes say that this program
            /// hangs, and the kubelet starts it again. For what only a restart can cure. It must be quick.
            ///
            /// ```
            /// # use std::sync::Arc;
            /// # use std::sync::atomic::{AtomicBool, Ordering};
            /// # use kubewright::Operator;
            /// let broken = Arc::new(AtomicBool::new(false));
            /// let seen = broken.clone();
            /// let operator = Operator::new("shop").liveness_check("printer", move || match seen.load(Ordering::Relaxed) {
            ///     true => Err("it is on fire".to_owned()),
            ///     false => Ok(()),
            /// });
            /// # drop(operator);
            /// ```
            pub fn liveness_check(
                mut self,
                name: impl Into<String>,
                check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
            ) -> Self {
                self.options
                    .checks
                    .push(("healthz", name.into(), Arc::new(check)));
                self
            }

            /// Adds a check to `/readyz`, under a name that no controller has: as long as it fails, the webhooks of this
            /// replica are not called, because its pod is not ready. It must be quick.
            pub fn readiness_check(
                mut self,
                name: impl Into<String>,
                check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
            ) -> Self {
                self.options.checks.push(("readyz", name.into(), Arc::new(check)));
                self
            }

            /// Adds metrics of the operator's own; see [`Metrics`](crate::Metrics).
            pub fn metrics(self, add: impl FnOnce(&mut Registry)) -> Self {
                self.options.metrics.register(add);
                self
            }

            /// Adds and removes controllers and clusters while the manager runs: the handle for a runnable.
            ///
            /// ```
            /// # use std::sync::Arc;
            /// # use kubewright::{Action, Context, Reconciler};
            /// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
            /// # struct Mirror;
            /// # impl Reconciler for Mirror {
            /// #     type Object = ConfigMap;
            /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
            /// # }
            /// use kubewright::{Client, Controller, Operator, Result, Stop};
            ///
            /// let operator = Operator::new("mirror");
            /// let controllers = operator.controllers_handle();
            /// let operator = operator.runnable("later", move |_: Client, stop: Stop| {
            ///     let controllers = controllers.clone();
            ///     async move {
            ///         controllers.add(Controller::of(Mirror)).await?;
            ///         stop.requested().await;
            ///         Ok(())
            ///     }
            /// });
            /// # drop(operator);
            /// ```
            pub fn controllers_handle(&self) -> Controllers {
                self.options.commands.0.clone()
            }
        }
    };
}

options!(ManagerBuilder);
pub(crate) use options;
