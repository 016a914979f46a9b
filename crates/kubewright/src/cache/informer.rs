//! One watch, one store, many handlers (client-go's `SharedIndexInformer`).
//!
//! The watch runs in a task of its own (`watch.rs`) that ends when the last [`Informer`] is dropped. The dispatcher's lock is held over
//! "apply to the store, tell the handlers" and over "take a snapshot, add a handler"; the store's lock only while it is changed, so that
//! handlers may read it.
//!
//! Invariants: SI2 when a handler runs, the store holds the state that it is told of; SI5 `synced` means that every handler has returned for
//! every object of the first list; SI7 a panicking handler is reported and hurts nobody else; SI9 the task ends with the last handle.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use kube::core::{ApiResource, ObjectMeta};
use kubewright_engine::dispatch::{Dispatcher, Handler, HandlerPanic};
use kubewright_engine::{Delta, Event, HandlerId, ResourceVersion};
use tokio::sync::watch;
use tokio::time::timeout;

use super::receipts::{Receipt, Receipts, View};
use super::scope::Scope;
use super::store::{CONTROLLER_UID, KubeMeta, Store, controller_uid};
use crate::error::{Error, Result};
use crate::object::AnyObject;
use crate::observe::{Observation, Observers};
use crate::request::Request;
use crate::runnable::StopSource;

/// How long [`Informer::synced`] waits (controller-runtime's `CacheSyncTimeout`).
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// A shared, watched set of objects. Cheap to clone; the watch stops after the last clone is dropped.
///
/// ```
/// use kubewright::{Cache, Event, Result};
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
///
/// async fn count(cache: &Cache) -> Result<usize> {
///     let informer = cache.informer::<ConfigMap>();
///     informer.add_handler(|event: &Event<ConfigMap>| enqueue(event));
///     informer.synced().await?;
///     Ok(informer.store().len())
/// }
/// # fn enqueue(_event: &Event<ConfigMap>) {}
/// ```
pub struct Informer<K: AnyObject>(pub(crate) Arc<Lease<K>>);

/// What keeps the watch alive.
pub(crate) struct Lease<K: AnyObject> {
    pub(crate) core: Arc<Core<K>>,
    /// Dropping it stops the task.
    _stop: StopSource,
}

impl<K: AnyObject> Lease<K> {
    pub(crate) fn new(core: Arc<Core<K>>, stop: StopSource) -> Lease<K> {
        Lease { core, _stop: stop }
    }
}

impl<K: AnyObject> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Informer(self.0.clone())
    }
}

impl<K: AnyObject> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({}, {:?})", self.name(), self.health())
    }
}

/// How an informer fares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The first list is not complete yet.
    Syncing,
    /// The store follows the server.
    Synced,
    /// The last list or watch failed, or an object could not be decoded. The store serves what it has; it is tried again.
    Degraded {
        /// What failed.
        reason: String,
    },
}

impl<K: AnyObject> Informer<K> {
    fn core(&self) -> &Arc<Core<K>> {
        &self.0.core
    }

    /// The kind and scope in words: `Deployment.apps in all namespaces`.
    pub fn name(&self) -> &str {
        &self.core().name
    }

    /// What is watched.
    pub fn resource(&self) -> &ApiResource {
        &self.core().resource
    }

    /// Which part of it.
    pub fn scope(&self) -> &Scope {
        &self.core().scope
    }

    /// The contents.
    pub fn store(&self) -> Store<K> {
        Store(self.core().clone())
    }

    /// How the watch fares.
    pub fn health(&self) -> Health {
        self.core().progress.borrow().health.clone()
    }

    /// Whether the first list is in the store and every handler has been told all of it. It stays true when the watch fails later.
    pub fn is_synced(&self) -> bool {
        self.core().progress.borrow().synced
    }

    /// Waits until [`Informer::is_synced`], at most [`SYNC_TIMEOUT`].
    ///
    /// # Errors
    /// [`Error::NotSynced`], with the last failure of the list.
    pub async fn synced(&self) -> Result<()> {
        self.synced_within(SYNC_TIMEOUT).await
    }

    /// Waits until [`Informer::is_synced`], at most `deadline`.
    ///
    /// # Errors
    /// As [`Informer::synced`].
    pub async fn synced_within(&self, deadline: Duration) -> Result<()> {
        let mut progress = self.core().progress.subscribe();
        if timeout(deadline, progress.wait_for(|progress| progress.synced))
            .await
            .is_ok_and(|seen| seen.is_ok())
        {
            return Ok(());
        }
        let reason = match self.health() {
            Health::Degraded { reason } => reason,
            _ => "the API server has not answered the list yet".to_owned(),
        };
        Err(Error::NotSynced {
            what: self.name().to_owned(),
            waited: deadline,
            reason,
        })
    }

    /// Adds a handler: it is told of everything that is in the store at once, before this returns, and then of every change.
    ///
    /// Handlers run one after the other on the informer's task, so they must be quick: turn the event into keys and add them to a queue.
    /// A handler must not add or remove handlers of the same informer.
    pub fn add_handler(&self, handler: impl Fn(&Event<K>) + Send + Sync + 'static) -> HandlerId {
        self.core().add_handler(Arc::new(handler))
    }

    /// Removes a handler; when this returns it is not called again. `false` when it was not there.
    pub fn remove_handler(&self, handler: HandlerId) -> bool {
        self.core().dispatcher().remove(handler)
    }

    /// Adds an index: `values` says under which values an object is found by [`Store::by_index`]. Objects that are there are indexed too.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the name is taken.
    pub fn add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Result<()> {
        let mut store = self.core().store.write().unwrap_or_else(PoisonError::into_inner);
        store
            .add_index(name, values)
            .map_err(|error| Error::Configuration(format!("{}: {error}", self.core().name)))
    }

    /// Waits until the store shows our own writes to the object; `false` when it does not in time, or when only the API can tell.
    pub(crate) async fn caught_up_with(&self, request: &Request, deadline: Duration) -> bool {
        if matches!(self.core().receipts().get(request), Some(Receipt::Unknown)) {
            return false;
        }
        self.wait(deadline, |receipts| receipts.get(request).is_none()).await
    }

    /// Waits until the store shows all our own writes in the namespace, or everywhere.
    pub(crate) async fn caught_up_in(&self, namespace: Option<&str>, deadline: Duration) -> bool {
        self.wait(deadline, |receipts| !receipts.any_in(namespace)).await
    }

    async fn wait(&self, deadline: Duration, done: impl Fn(&Receipts) -> bool) -> bool {
        if done(&self.core().receipts()) {
            return true;
        }
        let mut progress = self.core().progress.subscribe();
        timeout(deadline, progress.wait_for(|_| done(&self.core().receipts())))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// Writes in the namespace (or anywhere) whose outcome only the API server can tell.
    pub(crate) fn unknown_writes(&self, namespace: Option<&str>) -> Vec<Request> {
        self.core().receipts().unknown_in(namespace)
    }

    /// The API server was asked: `live` is what it said. From now on the store must show that.
    pub(crate) fn settle_receipt(&self, request: &Request, live: Option<&ObjectMeta>) {
        let core = self.core();
        match live {
            Some(meta) => {
                core.with_view(request, |receipts, _| receipts.forget(request));
                core.arm(request, meta);
            }
            None => core.with_view(request, |receipts, view| receipts.known_absent(request.clone(), view)),
        }
    }
}

/// What an informer is, shared between its handles and its task.
pub(crate) struct Core<K: AnyObject> {
    pub(crate) name: String,
    pub(crate) resource: ApiResource,
    pub(crate) scope: Scope,
    store: RwLock<EngineStore<K>>,
    dispatcher: Mutex<Dispatcher<K>>,
    receipts: Mutex<Receipts>,
    progress: watch::Sender<Progress>,
    observers: Observers,
}

type EngineStore<K> = kubewright_engine::Store<K, KubeMeta>;

#[derive(Debug, Clone)]
struct Progress {
    synced: bool,
    health: Health,
}

impl<K: AnyObject> Core<K> {
    pub(crate) fn new(resource: ApiResource, scope: Scope, observers: Observers) -> Core<K> {
        let mut store = EngineStore::new();
        store
            .add_index(CONTROLLER_UID, controller_uid::<K>)
            .expect("the store is new, so no name is taken");
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        Core {
            name: format!("{kind} {scope}"),
            resource,
            scope,
            store: RwLock::new(store),
            dispatcher: Mutex::new(Dispatcher::new()),
            receipts: Mutex::new(Receipts::default()),
            progress: watch::Sender::new(Progress {
                synced: false,
                health: Health::Syncing,
            }),
            observers,
        }
    }

    // No code of a user runs under these locks except handlers, whose panics are caught: a poisoned lock holds consistent data.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, EngineStore<K>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<K>> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receipts(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_handler(&self, handler: Handler<K>) -> HandlerId {
        let mut dispatcher = self.dispatcher();
        let snapshot = self.read().list(None).items;
        let (id, panics) = dispatcher.add(handler, snapshot);
        self.report(&panics);
        id
    }

    /// Applies deltas to the store and tells the handlers; called by the task only.
    pub(crate) fn apply(&self, deltas: impl IntoIterator<Item = Delta<K>>) {
        let dispatcher = self.dispatcher();
        for delta in deltas {
            let events = self.store.write().unwrap_or_else(PoisonError::into_inner).apply(delta);
            self.report(&dispatcher.dispatch(&events));
        }
        drop(dispatcher);
        self.settle_receipts();
        // The value stays, but everybody who waits for the store looks again.
        self.progress.send_modify(|_| ());
    }

    fn settle_receipts(&self) {
        let mut receipts = self.receipts();
        if receipts.is_empty() {
            return;
        }
        let store = self.read();
        let objects: std::collections::BTreeMap<Request, Arc<K>> = receipts
            .keys()
            .filter_map(|key| Some((key.clone(), store.get_by_name(key.namespace(), key.name())?)))
            .collect();
        receipts.settle(store.resource_version(), |key| {
            objects.get(key).map(|object| object.meta())
        });
    }

    fn report(&self, panics: &[HandlerPanic]) {
        for panic in panics {
            tracing::error!(resource = %self.name, "{panic}");
        }
    }

    pub(crate) fn set_synced(&self) {
        let changed = self.progress.send_if_modified(|progress| {
            let changed = !progress.synced || progress.health != Health::Synced;
            *progress = Progress {
                synced: true,
                health: Health::Synced,
            };
            changed
        });
        if changed {
            let objects = self.read().len();
            tracing::debug!(resource = %self.name, objects, "cache synced");
            self.observers.tell(|| Observation::CacheSynced {
                resource: self.name.clone(),
                objects,
            });
        }
    }

    pub(crate) fn set_degraded(&self, reason: String) {
        let changed = self.progress.send_if_modified(|progress| {
            let health = Health::Degraded { reason: reason.clone() };
            let changed = progress.health != health;
            progress.health = health;
            changed
        });
        if changed {
            tracing::warn!(resource = %self.name, reason, "cache degraded; it serves what it has and tries again");
            self.observers.tell(|| Observation::CacheDegraded {
                resource: self.name.clone(),
                reason,
            });
        }
    }

    fn with_view<T>(&self, key: &Request, run: impl FnOnce(&mut Receipts, &View<'_>) -> T) -> T {
        let mut receipts = self.receipts();
        let store = self.read();
        let object = store.get_by_name(key.namespace(), key.name());
        let version: Option<&ResourceVersion> = store.resource_version();
        run(
            &mut receipts,
            &View {
                store: version,
                object: object.as_ref().map(|object| object.meta()),
            },
        )
    }

    fn arm(&self, key: &Request, meta: &ObjectMeta) {
        let membership = self.scope.membership(meta);
        self.with_view(key, |receipts, view| {
            receipts.wrote(key.clone(), meta, membership, view);
        });
    }
}

/// An informer as the client sees it when it leaves receipts: without its type.
pub(crate) trait ReceiptTarget: Send + Sync {
    fn wrote(&self, key: &Request, meta: &ObjectMeta);
    fn deleted(&self, key: &Request, meta: Option<&ObjectMeta>);
    fn unknown(&self, key: &Request);
}

impl<K: AnyObject> ReceiptTarget for Core<K> {
    fn wrote(&self, key: &Request, meta: &ObjectMeta) {
        self.arm(key, meta);
    }

    fn deleted(&self, key: &Request, meta: Option<&ObjectMeta>) {
        self.with_view(key, |receipts, view| receipts.deleted(key.clone(), meta, view));
    }

    fn unknown(&self, key: &Request) {
        if self.scope.namespace.is_none() || self.scope.namespace.as_deref() == key.namespace() {
            self.with_view(key, |receipts, _| receipts.unknown(key.clone()));
        }
    }
}
