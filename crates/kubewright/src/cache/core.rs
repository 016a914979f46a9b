//! An informer without the type of its objects: one watch, one store, many handlers.
//!
//! The watch runs in a task of its own (`watch.rs`) that ends when the last [`Shared`] is dropped. The dispatcher's lock is held over
//! "apply to the store, tell the handlers" and over "take a snapshot, add a handler"; the store's lock only while it is changed, so that
//! handlers may read it.
//!
//! Health has three sources: the first list, the watch, and objects that do not decode. The last hurts nobody else: the informer is
//! synced without them and says so ([`Core::health`]).
//!
//! Invariants: SI2 when a handler runs, the store holds the state that it is told of; SI5 `synced` means that every handler has returned for
//! every object of the first list; SI7 a panicking handler is reported and hurts nobody else; SI9 the task ends with the last handle.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, ObjectMeta, Selector, SelectorExt};
use kubewright_engine::dispatch::{Dispatcher, Handler, HandlerPanic};
use kubewright_engine::{Delta, HandlerId, ResourceVersion, Unreadable};
use tokio::sync::watch;
use tokio::time::timeout;

use super::informer::{self, Health};
use super::receipts::{Receipt, Receipts, View};
use super::scope::Scope;
use super::store::{CONTROLLER_UID, KubeMeta, controller_uid};
use crate::error::{Error, Result};
use crate::events::{EventRecorder, EventType};
use crate::form::{Cached, Form};
use crate::object::ObjectRef;
use crate::observe::{Observation, Observers};
use crate::request::Request;
use crate::runnable::StopSource;

/// A handle of an informer; the watch stops after the last one is dropped.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Lease>);

/// What keeps the watch alive.
pub(crate) struct Lease {
    core: Arc<Core>,
    /// Dropping it stops the task.
    _stop: StopSource,
}

/// What an index says of an object.
pub(crate) type IndexValues = Box<dyn Fn(&dyn Cached) -> Vec<String> + Send + Sync>;

impl Shared {
    pub(super) fn new(core: Arc<Core>, stop: StopSource) -> Shared {
        Shared(Arc::new(Lease { core, _stop: stop }))
    }

    pub(super) fn downgrade(&self) -> Weak<Lease> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(lease: &Weak<Lease>) -> Option<Shared> {
        lease.upgrade().map(Shared)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    pub(crate) fn name(&self) -> &str {
        &self.core().name
    }

    pub(crate) fn form(&self) -> &Form {
        &self.core().form
    }

    pub(crate) fn resource(&self) -> &ApiResource {
        &self.core().form.resource
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.core().scope
    }

    pub(crate) fn health(&self) -> Health {
        self.core().health()
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.core().progress.borrow().synced
    }

    /// Waits until the first list is in the store and told to every handler.
    ///
    /// # Errors
    /// [`Error::NotSynced`], with the last failure of the list.
    pub(crate) async fn synced_within(&self, deadline: Duration) -> Result<()> {
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

    pub(crate) fn add_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        self.core().add_handler(handler)
    }

    pub(crate) fn remove_handler(&self, handler: HandlerId) -> bool {
        self.core().dispatcher().remove(handler)
    }

    pub(crate) fn add_index(&self, name: &str, values: IndexValues) -> Result<()> {
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
pub(crate) struct Core {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) scope: Scope,
    store: RwLock<EngineStore>,
    dispatcher: Mutex<Dispatcher<dyn Cached>>,
    receipts: Mutex<Receipts>,
    progress: watch::Sender<Progress>,
    reports: Reports,
}

/// Who is told of what happens to an informer.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    pub(crate) observers: Observers,
    /// Who writes events on objects, and under which name; set when a manager runs.
    pub(crate) recorder: Arc<OnceLock<(EventRecorder, String)>>,
}

type EngineStore = kubewright_engine::Store<dyn Cached, KubeMeta>;

#[derive(Debug, Clone, Default)]
struct Progress {
    synced: bool,
    /// The watch follows the server.
    following: bool,
    /// Why it does not.
    trouble: Option<String>,
}

/// At most so many objects that became unreadable together are logged and get an event; the rest are counted.
const REPORTED: usize = 10;

impl Core {
    pub(crate) fn new(form: Form, scope: Scope, reports: Reports) -> Core {
        let resource = &form.resource;
        let mut store = EngineStore::new();
        store
            .add_index(CONTROLLER_UID, controller_uid)
            .expect("the store is new, so no name is taken");
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        Core {
            name: format!("{kind} {scope}"),
            form,
            scope,
            store: RwLock::new(store),
            dispatcher: Mutex::new(Dispatcher::new()),
            receipts: Mutex::new(Receipts::default()),
            progress: watch::Sender::default(),
            reports,
        }
    }

    // No code of a user runs under these locks except handlers, whose panics are caught: a poisoned lock holds consistent data.
    fn read(&self) -> RwLockReadGuard<'_, EngineStore> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<dyn Cached>> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receipts(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        let mut dispatcher = self.dispatcher();
        let snapshot = self.read().list(None).items;
        let (id, panics) = dispatcher.add(handler, snapshot);
        self.report(&panics);
        id
    }

    /// Applies deltas to the store and tells the handlers; called by the task only.
    pub(crate) fn apply(&self, deltas: impl IntoIterator<Item = Delta<dyn Cached>>) {
        let dispatcher = self.dispatcher();
        for delta in deltas {
            let events = self.store.write().unwrap_or_else(PoisonError::into_inner).apply(delta);
            self.report(&dispatcher.dispatch(&events));
        }
        drop(dispatcher);
        self.report_unreadable();
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
        let objects: std::collections::BTreeMap<Request, Arc<dyn Cached>> = receipts
            .keys()
            .filter_map(|key| Some((key.clone(), store.get_by_name(key.namespace(), key.name())?)))
            .collect();
        receipts.settle(store.resource_version(), |key| {
            objects.get(key).map(|object| object.metadata())
        });
    }

    fn report(&self, panics: &[HandlerPanic]) {
        for panic in panics {
            tracing::error!(resource = %self.name, "{panic}");
        }
    }

    pub(crate) fn set_synced(&self) {
        let changed = self.progress.send_if_modified(|progress| {
            let changed = !progress.following;
            *progress = Progress {
                synced: true,
                following: true,
                trouble: None,
            };
            changed
        });
        if changed {
            let objects = self.read().len();
            tracing::debug!(resource = %self.name, objects, "cache synced");
            self.reports.observers.tell(|| Observation::CacheSynced {
                resource: self.name.clone(),
                objects,
            });
        }
    }

    pub(crate) fn set_degraded(&self, reason: String) {
        let changed = self.progress.send_if_modified(|progress| {
            let changed = progress.trouble.as_ref() != Some(&reason);
            progress.following = false;
            progress.trouble = Some(reason.clone());
            changed
        });
        if changed {
            tracing::warn!(resource = %self.name, reason, "cache degraded; it serves what it has and tries again");
            self.reports.observers.tell(|| Observation::CacheDegraded {
                resource: self.name.clone(),
                reason,
            });
        }
    }

    fn health(&self) -> Health {
        let progress = self.progress.borrow().clone();
        if let Some(reason) = progress.trouble {
            return Health::Degraded { reason };
        }
        let store = self.read();
        let mut unreadable = store.unreadable();
        let count = unreadable.len();
        match unreadable.next() {
            _ if !progress.synced => Health::Syncing,
            None => Health::Synced,
            Some(first) => Health::Degraded {
                reason: format!(
                    "{count} that cannot be decoded and are left out; the first is {}: {}",
                    self.object_ref(first),
                    first.message
                ),
            },
        }
    }

    fn object_ref(&self, object: &Unreadable) -> ObjectRef {
        ObjectRef::named(&self.form.resource, object.key.namespace.as_deref(), &object.key.name)
    }

    fn report_unreadable(&self) {
        // Looked at with a read lock first: this runs after every batch.
        if self.read().unreadable().len() == 0 {
            return;
        }
        let news = self
            .store
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take_unreported();
        for (position, object) in news.iter().enumerate() {
            let reference = self.object_ref(object);
            if position < REPORTED {
                let error = &object.message;
                tracing::warn!(object = %reference, error, "an object cannot be decoded; it is left out until it changes");
                self.record_unreadable(object);
            }
            self.reports.observers.tell(|| Observation::ObjectUnreadable {
                resource: self.name.clone(),
                object: reference,
                error: object.message.clone(),
            });
        }
        if news.len() > REPORTED {
            let more = news.len() - REPORTED;
            tracing::warn!(resource = %self.name, more, "more objects cannot be decoded; Informer::unreadable lists them");
        }
    }

    fn record_unreadable(&self, object: &Unreadable) {
        let Some((recorder, component)) = self.reports.recorder.get() else {
            return;
        };
        let resource = &self.form.resource;
        let involved = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: object.key.namespace.as_deref().map(str::to_owned),
            name: Some(object.key.name.to_string()),
            uid: object.uid.clone(),
            resource_version: object
                .resource_version
                .as_ref()
                .map(|version| version.as_str().to_owned()),
            ..Default::default()
        };
        let message = format!(
            "{component} cannot decode this object and leaves it out until it changes: {}",
            object.message
        );
        recorder.record(component, involved, EventType::Warning, "Unreadable", message);
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
                object: object.as_ref().map(|object| object.metadata()),
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

/// Reading; see [`super::Store`].
impl Core {
    /// One object; an object that exists and cannot be decoded is an error, whatever older state of it is held.
    ///
    /// # Errors
    /// [`Error::Undecodable`].
    pub(crate) fn look_up(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<dyn Cached>>> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let store = self.read();
        match store.unreadable_by_name(namespace, name) {
            None => Ok(store.get_by_name(namespace, name)),
            Some(object) => Err(Error::Undecodable {
                object: self.object_ref(object).to_string(),
                reason: object.message.clone(),
            }),
        }
    }

    pub(crate) fn unreadable(&self) -> Vec<informer::Unreadable> {
        let store = self.read();
        let all = store.unreadable().map(|object| informer::Unreadable {
            request: Request::from(&object.key),
            resource_version: object
                .resource_version
                .as_ref()
                .map(|version| version.as_str().to_owned()),
            error: object.message.clone(),
        });
        all.collect()
    }

    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<dyn Cached>> {
        self.read()
            .get_by_name(namespace.filter(|namespace| !namespace.is_empty()), name)
    }

    pub(crate) fn list_in(&self, namespace: Option<&str>) -> Vec<Arc<dyn Cached>> {
        self.read().list(namespace).items
    }

    pub(crate) fn matching(&self, namespace: Option<&str>, labels: &Selector) -> Vec<Arc<dyn Cached>> {
        let none = Default::default();
        let mut objects = self.list_in(namespace);
        objects.retain(|object| labels.matches(object.metadata().labels.as_ref().unwrap_or(&none)));
        objects
    }

    pub(crate) fn owned_by(&self, namespace: Option<&str>, owner_uid: &str) -> Vec<Arc<dyn Cached>> {
        let owned = self.read().by_index(CONTROLLER_UID, owner_uid, namespace);
        owned.expect("every informer is made with this index").items
    }

    pub(crate) fn by_index(&self, index: &str, value: &str, namespace: Option<&str>) -> Result<Vec<Arc<dyn Cached>>> {
        let found = self.read().by_index(index, value, namespace);
        found
            .map(|snapshot| snapshot.items)
            .map_err(|error| Error::Configuration(format!("{}: {error}", self.name)))
    }

    pub(crate) fn keys(&self) -> Vec<Request> {
        self.read().keys().map(Request::from).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    pub(crate) fn resource_version(&self) -> Option<String> {
        self.read()
            .resource_version()
            .map(|version| version.as_str().to_owned())
    }
}

/// An informer as the client sees it when it leaves receipts: without its type.
pub(crate) trait ReceiptTarget: Send + Sync {
    fn wrote(&self, key: &Request, meta: &ObjectMeta);
    fn deleted(&self, key: &Request, meta: Option<&ObjectMeta>);
    fn unknown(&self, key: &Request);
}

impl ReceiptTarget for Core {
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
