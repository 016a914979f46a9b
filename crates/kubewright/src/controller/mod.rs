//! Controllers: which objects to reconcile, which events lead to a reconcile, and the reconciler.
//!
//! [`Controller`] is a declaration: nothing runs until a manager prepares it (its informers start and feed its queue)
//! and starts its control loop.
//!
//! - `watch.rs`: sources as they are declared,
//! - `sources.rs`: from events to keys,
//! - `key_queue.rs`: where they put the keys,
//! - `all_keys.rs`: changes that concern every key,
//! - `mapper.rs`: from events to keys by slow functions,
//! - `engaged.rs`: the clusters in which a controller works,
//! - `control_loop.rs`: from keys to reconciles.

mod all_keys;
mod control_loop;
mod engaged;
mod finalizer;
mod indexes;
mod key_queue;
mod mapper;
mod settle;
mod sources;
pub(crate) mod take_over;
pub(crate) mod waker;
mod watch;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::core::ApiResource;
use kubewright_engine::backoff::Exponential;
use kubewright_engine::rate::RateLimiter;

use crate::action::Action;
use crate::cache::{Scope, SharedInformer};
use crate::context::Context;
use crate::error::Result;
use crate::form::{Event, Form, typed};
use crate::object::{AnyObject, Object};
use crate::rate::Guarded;
use crate::request::{HOME_CLUSTER, Request};
use crate::rule::Rule;
use crate::webhook::Kind;

use finalizer::Step;

pub use self::finalizer::Cleanup;
/// Stands for all clusters that join a manager, in declarations and checks. No cluster has this name.
pub(crate) const EVERY_CLUSTER: &str = "*";
pub(crate) use control_loop::{LoopEvents, Prepared, WorkerOptions};
pub(crate) use engaged::Engaged;
use indexes::Index;
pub(crate) use key_queue::KeyQueue;
use sources::Predicates;
pub use sources::Source;
pub(crate) use sources::{Relation, SourceHealth};
pub use watch::Watch;

/// Brings the world in line with one kind of object (controller-runtime's `Reconciler`).
///
/// A reconcile gets no event and must not rely on one: it looks at the object and at the world and makes up the
/// difference. One key is never reconciled twice at the same time.
///
/// ```
/// use std::sync::Arc;
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// use kubewright::{Action, Context, Reconciler, Result};
///
/// struct Mirror;
///
/// impl Reconciler for Mirror {
///     type Object = ConfigMap;
///
///     async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> Result<Action> {
///         let mut copy = ConfigMap { data: config.data.clone(), ..Default::default() };
///         copy.metadata.name = Some(format!("{}-copy", ctx.request().name()));
///         ctx.apply(copy).await?;
///         Ok(Action::await_change())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reconciler",
    note = "implement `Reconciler` for it: `type Object` is the kind, `async fn reconcile` the work"
)]
pub trait Reconciler: Send + Sync + 'static {
    /// The kind that is reconciled: a type, or [`DynamicObject`](kube::core::DynamicObject) with [`Controller::dynamic`].
    type Object: AnyObject;

    /// Reconciles one object: the newest state in the cache, which includes everything that this process has written.
    fn reconcile(&self, object: Arc<Self::Object>, ctx: Context) -> impl Future<Output = Result<Action>> + Send;

    /// The object of this key is gone from the API server: it was deleted, or a key that a source made up names none.
    /// Usually there is nothing to do: its dependents are garbage collected. Forget the memory of it.
    ///
    /// An object that merely left the controller's selection ([`Controller::within`]), or that the cache has not seen
    /// yet, exists; neither this nor `reconcile` is called for it.
    fn deleted(&self, request: Request, ctx: Context) -> impl Future<Output = Result<Action>> + Send {
        let _ = (request, ctx);
        async { Ok(Action::await_change()) }
    }

    /// The object is being deleted, and carries the finalizer of [`Controller::finalizer`]: undo the effects of it
    /// elsewhere, in steps if need be. It runs until it answers [`Cleanup::Done`]; failures are retried as those of
    /// `reconcile`. Objects that it owns in the cluster are garbage collected and no reason for a finalizer.
    fn cleanup(&self, object: Arc<Self::Object>, ctx: Context) -> impl Future<Output = Result<Cleanup>> + Send {
        let _ = (object, ctx);
        async { Ok(Cleanup::Done) }
    }

    /// The rights of this reconciler besides those that follow from its controller. [`macro@crate::rbac`] on the `impl`
    /// writes it.
    fn rbac(&self) -> Vec<Rule> {
        Vec::new()
    }
}

/// A reconciler with its sources and settings (controller-runtime's builder).
///
/// ```
/// use kubewright::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kubewright::{Controller, Request, predicate};
/// # use std::sync::Arc;
/// # use kubewright::{Action, Context, Reconciler, Result};
/// # struct Deployer;
/// # impl Reconciler for Deployer {
/// #     type Object = Deployment;
/// #     async fn reconcile(&self, _: Arc<Deployment>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
/// # }
///
/// let controller = Controller::of::<Deployment>(Deployer)
///     .named("deployment")
///     .owns::<ReplicaSet>()
///     .watches::<ConfigMap>(|config| {
///         let labels = config.metadata.labels.iter().flatten();
///         labels.filter(|(key, _)| *key == "deploys").map(|(_, name)| Request::new(&config.metadata.namespace, name)).collect()
///     })
///     .with_predicate::<ReplicaSet>(predicate::generation_changed)
///     .concurrency(4);
/// assert_eq!(controller.name(), "deployment");
/// ```
pub struct Controller {
    pub(crate) name: Option<String>,
    pub(crate) form: Form,
    pub(crate) kind: Kind,
    pub(crate) reconciler: Box<dyn ErasedReconciler>,
    pub(crate) sources: Vec<Source>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) predicates: Predicates,
    pub(crate) rules: Vec<Rule>,
    pub(crate) limiter: Box<dyn RateLimiter>,
    pub(crate) settings: Settings,
}

pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) reconcile_timeout: Option<Duration>,
    pub(crate) scope: Scope,
    pub(crate) cluster: String,
    pub(crate) every_cluster: bool,
    pub(crate) on_every_replica: bool,
    pub(crate) finalizer: Option<String>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Controller({} of {})", self.name(), self.form.resource.kind)
    }
}

impl Controller {
    /// A controller of a kind. Its name is the kind in lower case unless [`Controller::named`] says otherwise.
    pub fn of<K: Object>(reconciler: impl Reconciler<Object = K>) -> Controller {
        Controller::of_form(Form::of::<K>(), Kind::of::<K>(), reconciler)
    }

    /// A controller of a kind that is known at run time, such as one that a file names. `K` says in which form, as in
    /// [`Cache::informer_dynamic`](crate::Cache::informer_dynamic). Unlike that of a type, its finalizer may be any name
    /// that the API server takes.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use kubewright::kube::core::{ApiResource, DynamicObject};
    /// use kubewright::{Action, Context, Controller, Reconciler, Result};
    ///
    /// struct Printer;
    ///
    /// impl Reconciler for Printer {
    ///     type Object = DynamicObject;
    ///
    ///     async fn reconcile(&self, object: Arc<DynamicObject>, _: Context) -> Result<Action> {
    ///         tracing::info!(spec = %object.data["spec"], "seen");
    ///         Ok(Action::await_change())
    ///     }
    /// }
    ///
    /// fn printer(resource: &ApiResource) -> Controller {
    ///     Controller::dynamic(resource, true, Printer)
    /// }
    /// ```
    pub fn dynamic<K: AnyObject>(
        resource: &ApiResource,
        namespaced: bool,
        reconciler: impl Reconciler<Object = K>,
    ) -> Controller {
        let form = Form {
            cluster_scoped: !namespaced,
            scope_is_known: true,
            ..Form::for_resource::<K>(resource)
        };
        Controller::of_form(form, Kind::dynamic::<K>(resource, namespaced), reconciler)
    }

    fn of_form<R: Reconciler>(form: Form, kind: Kind, reconciler: R) -> Controller {
        Controller {
            name: None,
            form,
            kind,
            reconciler: Box::new(Erased(reconciler)),
            sources: Vec::new(),
            indexes: Vec::new(),
            predicates: Predicates::default(),
            rules: Vec::new(),
            limiter: Box::new(Exponential::default()),
            settings: Settings {
                concurrency: 1,
                sync_timeout: None,
                reconcile_timeout: None,
                scope: Scope::all(),
                cluster: HOME_CLUSTER.to_owned(),
                every_cluster: false,
                on_every_replica: false,
                finalizer: None,
            },
        }
    }

    /// The controller's name: unique in a manager; in logs, events, metrics and as field manager.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Controller {
        self.name = Some(name.into());
        self
    }

    /// The name.
    pub fn name(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.form.resource.kind.to_lowercase())
    }

    /// The kind that is reconciled.
    pub fn resource(&self) -> &ApiResource {
        &self.form.resource
    }

    /// Reconciles the owner when an owned object of kind `C` changes: the one that its owner reference with
    /// `controller: true` names, by group and kind, in any version. Deletions count, also those that were not seen.
    ///
    /// The generated role has the rights of [`Context::apply`](crate::Context::apply): to read, create and patch the kind.
    /// An operator that deletes or replaces a child itself says so with [`macro@crate::rbac`].
    #[must_use]
    pub fn owns<C: Object>(self) -> Controller {
        self.source(Watch::<C>::new().owned())
    }

    /// Reconciles the keys that `map` answers for an object of kind `W` that changed. For a modification the old and
    /// the new state are asked.
    #[must_use]
    pub fn watches<W: Object>(self, map: impl Fn(&W) -> Vec<Request> + Send + Sync + 'static) -> Controller {
        self.source(Watch::<W>::new().map(map))
    }

    /// Reconciles every object of the controller's kind when any object of kind `W` changes. For rare, global settings.
    #[must_use]
    pub fn watches_all_of<W: Object>(self) -> Controller {
        self.source(Watch::<W>::new().all())
    }

    /// Reconciles the keys of a source: [`Watch`] makes sources with selectors, predicates of their own and mappings
    /// that look things up.
    #[must_use]
    pub fn source(mut self, source: Source) -> Controller {
        self.sources.push(source);
        self
    }

    /// Reconciles every object again after each period, for effects elsewhere that no watch reports (client-go's resync,
    /// controller-runtime's `SyncPeriod`, for this controller alone). The objects are spread over a tenth of the period,
    /// and wait for keys of real changes. It is [`Source::every`] as a setting.
    #[must_use]
    pub fn resync(self, period: Duration) -> Controller {
        self.source(Source::every(period))
    }

    /// Files the objects of kind `K` under the values that `values` answers, so that
    /// [`Client::list_by_index`](crate::Client::list_by_index) finds them without looking at all (controller-runtime's
    /// `FieldIndexer.IndexField`). An object may have several values, or none. The name is free, such as
    /// `spec.nodeName`, and unique for a kind; other controllers, webhooks and runnables read the index too.
    ///
    /// Changes of the objects lead to no reconcile: declare that with [`Controller::watches`]. The generated role has
    /// the right to list and watch the kind.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use kubewright::k8s_openapi::api::core::v1::{Node, Pod};
    /// # use kubewright::{Action, Context, Controller, Reconciler, Result};
    /// struct Drainer;
    ///
    /// impl Reconciler for Drainer {
    ///     type Object = Node;
    ///
    ///     async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
    ///         let name = ctx.request().name();
    ///         let pods = ctx.client().list_by_index::<Pod>(None, "spec.nodeName", name).await?;
    ///         tracing::info!(node = name, pods = pods.len(), "to be drained");
    ///         Ok(Action::await_change())
    ///     }
    /// }
    ///
    /// let node_of = |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect();
    /// let controller = Controller::of(Drainer).indexes::<Pod>("spec.nodeName", node_of);
    /// # drop(controller);
    /// ```
    #[must_use]
    pub fn indexes<K: Object>(
        mut self,
        name: impl Into<String>,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Controller {
        self.indexes.push(Index::of(name.into(), values));
        self
    }

    /// Declares that the reconciler reads a kind, or a part of it, through [`Client::get`](crate::Client::get) and
    /// [`Client::list`](crate::Client::list). Its watch is then started with the others and for that part only; the role
    /// has the rights; and the first reconcile finds it listed. A read of a kind that nobody declares starts a watch of
    /// all its objects and says so in the log; in a `TestCluster` it fails. What is read seldom needs no watch: [`Client::live`](crate::Client::live).
    ///
    /// Reads of the whole manager show this part; of parts that several controllers declare, the least that has them all.
    /// The controller's own kind, and those that it owns, watches or indexes, are declared by that.
    ///
    /// ```
    /// use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kubewright::{Controller, Scope};
    /// # use std::sync::Arc;
    /// # use kubewright::{Action, Context, Reconciler, Result};
    /// # struct Issuer;
    /// # impl Reconciler for Issuer {
    /// #     type Object = ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
    /// # }
    /// let controller = Controller::of(Issuer).reads::<Secret>(Scope::namespace("issuer-system"));
    /// ```
    #[must_use]
    pub fn reads<K: Object>(mut self, scope: Scope) -> Controller {
        // Before the indexes, which are of what is read.
        self.indexes.insert(0, Index::reads::<K>(scope));
        self
    }

    /// Only events of kind `K` (the controller's own, an owned or a watched one) that pass lead to reconciles. Several
    /// must all pass. See [`crate::predicate`].
    #[must_use]
    pub fn with_predicate<K: AnyObject>(
        mut self,
        predicate: impl Fn(&Event<K>) -> bool + Send + Sync + 'static,
    ) -> Controller {
        self.predicates.add::<K>(predicate);
        self
    }

    /// Gives the operator more rights than those that follow from the kinds that it reconciles, owns and watches. See
    /// [`macro@crate::rbac`], which does so beside the reconciler.
    #[must_use]
    pub fn rbac(mut self, rule: Rule) -> Controller {
        self.rules.push(rule);
        self
    }

    /// The kind that is reconciled, for the declaration.
    pub(crate) fn reconciles(&self) -> Kind {
        self.kind.clone()
    }

    /// The kinds that are owned and watched in the home cluster, for the declaration.
    pub(crate) fn related(&self) -> impl Iterator<Item = (Relation, Kind)> {
        let at_home = |source: &&Source| source.cluster(self.own_cluster()) == HOME_CLUSTER;
        let sources = self.sources.iter().filter(at_home).filter_map(Source::related);
        let indexes = self.indexes.iter().filter(|_| self.own_cluster() == HOME_CLUSTER);
        sources.chain(indexes.map(|index| (Relation::Watches, index.kind())))
    }

    /// The cluster of its own kind, or [`EVERY_CLUSTER`].
    pub(crate) fn own_cluster(&self) -> &str {
        match self.settings.every_cluster {
            true => EVERY_CLUSTER,
            false => &self.settings.cluster,
        }
    }

    /// The rules of the reconciler, then the controller's.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let mut rules = self.reconciler.rbac();
        rules.extend(self.rules.iter().cloned());
        rules
    }

    /// How many keys are reconciled at the same time. The default is 1.
    #[must_use]
    pub fn concurrency(mut self, workers: usize) -> Controller {
        self.settings.concurrency = workers.max(1);
        self
    }

    /// The delay of retries: `base`, doubling with each failure in a row up to `max`. The default is 5 ms to 1000 s.
    #[must_use]
    pub fn backoff(self, base: Duration, max: Duration) -> Controller {
        self.rate_limiter(Exponential { base, max })
    }

    /// How long retries wait; see [`crate::rate`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubewright::{Action, Context, Controller, Reconciler, Result};
    /// # struct Mirror;
    /// # impl Reconciler for Mirror {
    /// #     type Object = ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
    /// # }
    /// use kubewright::rate::{Bucket, Exponential, Max};
    /// // Each object backs off, and all together are retried ten times a second at most.
    /// let controller = Controller::of(Mirror).rate_limiter(Max(Exponential::default(), Bucket::new(10, 100)));
    /// ```
    #[must_use]
    pub fn rate_limiter(mut self, limiter: impl RateLimiter + 'static) -> Controller {
        self.limiter = Box::new(Guarded(limiter));
        self
    }

    /// How long the first lists of all sources may take before the controller fails, and the manager with it
    /// (controller-runtime's `CacheSyncTimeout`, which is 2 minutes by default). There is no limit by default: a
    /// controller whose kinds cannot be listed waits, `/readyz`, the log and the metric `kubewright_cache_healthy` say
    /// why, and the other controllers work.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Controller {
        self.settings.sync_timeout = Some(timeout);
        self
    }

    /// How long one reconcile may take before it is dropped and retried. There is no limit by default.
    #[must_use]
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Controller {
        self.settings.reconcile_timeout = Some(timeout);
        self
    }

    /// Holds a finalizer on every object, such as `shop.example.com/database`: it is added before the first
    /// `reconcile`, an object that is being deleted is given to [`Reconciler::cleanup`] instead, and the finalizer goes
    /// when that is done.
    #[must_use]
    pub fn finalizer(mut self, name: impl Into<String>) -> Controller {
        self.settings.finalizer = Some(name.into());
        self
    }

    /// Reconciles on every replica, whether it leads or not (`NeedLeaderElection: false`). For controllers that write
    /// nothing to the API, such as one that keeps something in the process up to date. Without
    /// [`crate::LeaderElection`] it changes nothing.
    #[must_use]
    pub fn on_every_replica(mut self) -> Controller {
        self.settings.on_every_replica = true;
        self
    }

    /// Reconciles the kind in another cluster of the manager, which
    /// [`ManagerBuilder::cluster`](crate::ManagerBuilder::cluster) has named: there are the kinds that it owns and
    /// watches (unless a [`Watch::in_cluster`](crate::Watch::in_cluster) says another), its client and its events.
    /// [`Client::cluster`](crate::Client::cluster) leads to the others. For the same work in several clusters see
    /// [`in_every_cluster`](Controller::in_every_cluster).
    ///
    /// The generated role has no rules for other clusters: the rights there are a matter of their kubeconfig.
    #[must_use]
    pub fn in_cluster(mut self, name: impl Into<String>) -> Controller {
        (self.settings.cluster, self.settings.every_cluster) = (name.into(), false);
        self
    }

    /// Reconciles the kind in every cluster of the manager but the home cluster, also in those that join while it runs,
    /// until they leave (multicluster-runtime's engaged clusters). One queue and one set of workers serve all of them, and
    /// [`Request::cluster`] says which one a key is of; [`Operator::fleet`](crate::Operator::fleet) has clusters join and
    /// leave. A cluster that cannot be reached holds up no other: its keys wait until its caches are synced, and
    /// `/readyz` names it in a remark.
    ///
    /// Keys that a mapping or a [`Waker`](crate::Waker) answers without a cluster are those of the cluster that was
    /// watched; those of a source that all share, such as [`Watch::in_cluster`] and a waker, are keys in each.
    ///
    /// The generated role has no rules for other clusters: the rights there are a matter of their kubeconfig.
    #[must_use]
    pub fn in_every_cluster(mut self) -> Controller {
        (self.settings.cluster, self.settings.every_cluster) = (HOME_CLUSTER.to_owned(), true);
        self
    }

    /// Reconciles only a part of the kind's objects; the server filters. Owned and watched kinds are not restricted by
    /// it. An object that leaves the part is not reconciled any more, and not reported as deleted: it exists.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Controller {
        self.settings.scope = scope;
        self
    }
}

/// A reconciler without its type.
pub(crate) trait ErasedReconciler: Send + Sync {
    fn rbac(&self) -> Vec<Rule>;
    /// Reconciles an object that the informer of its kind holds, or tells that there is none.
    fn reconcile<'a>(
        &'a self,
        informer: &'a SharedInformer,
        request: &'a Request,
        ctx: Context,
        finalizer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Action>>;
}

struct Erased<R>(R);

impl<R: Reconciler> ErasedReconciler for Erased<R> {
    fn rbac(&self) -> Vec<Rule> {
        self.0.rbac()
    }

    fn reconcile<'a>(
        &'a self,
        informer: &'a SharedInformer,
        request: &'a Request,
        ctx: Context,
        finalizer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Action>> {
        Box::pin(async move {
            let (object, ctx) = ctx.about(informer, request).await?;
            match object {
                Some(object) => match finalizer::next_step(informer, object.clone(), &ctx, finalizer).await? {
                    Step::Reconcile(object) => self.0.reconcile(typed(object), ctx).await,
                    Step::CleanUp => match self.0.cleanup(typed(object.clone()), ctx.clone()).await? {
                        Cleanup::AwaitChange => Ok(Action::await_change()),
                        Cleanup::RequeueAfter(delay) => Ok(Action::requeue_after(delay)),
                        Cleanup::Done => {
                            let uid = object.object_id().uid;
                            finalizer::release(informer, uid, &ctx, finalizer.unwrap_or_default()).await?;
                            Ok(Action::await_change())
                        }
                    },
                    Step::Nothing => Ok(Action::await_change()),
                },
                None if ctx.is_gone(informer).await? => self.0.deleted(request.clone(), ctx).await,
                None => {
                    tracing::debug!(object = %request, "it exists and is not in this controller's cache; nothing to do");
                    Ok(Action::await_change())
                }
            }
        })
    }
}
