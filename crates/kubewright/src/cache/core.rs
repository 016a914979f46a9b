//! An informer without the type of its objects: one watch, one store, many handlers.
//!
//! The watch runs in a task of its own (`watch.rs`) that ends when the last [`SharedInformer`]
//! (`core/shared_informer.rs`) is dropped. The dispatcher's lock is held over "apply to the store, tell the handlers"
//! and over "take a snapshot, add a handler"; the store's lock only while it is changed, so that handlers may read it.
//! Handlers of users have a mailbox and a task (`handlers.rs`). Those of controllers run inline: they must map every
//! state to keys, since the owner in between may have acted on it, and a hop to another task would delay each
//! reconcile.
//!
//! Health has three sources: the first list, the watch, and objects that do not decode. An object that does not decode
//! affects no other: the informer is synced without it and reports it ([`Core::health`]).
//!
//! Invariants: SI2 when a handler runs, the store holds the state that it is told of; SI5 `synced` means that every
//! inline handler has returned for every object of the first list, `handlers_synced` that the others have as well; SI7
//! a panicking handler is reported and affects no other; SI9 the task ends with the last handle.

mod catch_up;
mod pending_reads;
mod receiving;
mod shared_informer;
mod tombstones;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{Selector, SelectorExt};
use kubewright_engine::dispatch::{Dispatcher, Handler, HandlerPanic};
use kubewright_engine::receipts::{Receipts, Shown, View};
use kubewright_engine::{Delta, HandlerId, ObjectKey, ResourceVersion, Unreadable};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use self::pending_reads::PendingReads;
pub(crate) use self::receiving::{Gone, ReceiptTarget, Written};
pub(crate) use self::shared_informer::{Listed, Objects, SharedInformer, WatchGuard};
use self::tombstones::Tombstones;
use super::StoreOptions;
use super::handlers::{Batch, Subscriber, drop_guarded};
use super::informer::{self, Health};
use super::scope::Scope;
use super::store::{CONTROLLER_UID, KubeMeta, ORPHANS, controller_uid, orphan_in};
use super::transform::Transform;
use crate::error::{Error, Result};
use crate::events::{EventRecorder, EventType};
use crate::form::packed::{DecodedCache, unpacked, with_decoded};
use crate::form::{Cached, Form, ObjectId};
use crate::metrics::Metrics;
use crate::object::ObjectRef;
use crate::observe::{Observation, Observers};
use crate::request::Request;

/// The values of an object in an index.
pub(crate) type IndexValues = Box<dyn Fn(&dyn Cached) -> Vec<String> + Send + Sync>;

/// The store's state for a key.
fn view_of<'a>(store: &'a EngineStore, key: &ObjectKey) -> View<'a> {
    let shown = |object: &'a Arc<dyn Cached>| {
        let id = object.object_id();
        Shown {
            uid: id.uid,
            version: id.version,
        }
    };
    View {
        store: store.resource_version(),
        object: store.peek(key).map(shown),
    }
}

/// The state of an informer, shared between its handles and its task.
pub(crate) struct Core {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) scope: Scope,
    /// What becomes of objects before they are kept.
    pub(crate) transform: Option<Transform>,
    /// The decoded ones of its objects.
    pub(crate) decoded: Arc<DecodedCache>,
    store: RwLock<EngineStore>,
    dispatcher: Mutex<Dispatcher<dyn Cached>>,
    /// The handlers that have a task.
    subscribers: Mutex<BTreeMap<HandlerId, Arc<Subscriber>>>,
    /// Where those tasks run.
    runtime: Handle,
    receipts: Mutex<Receipts>,
    tombstones: Mutex<Tombstones>,
    /// The reads from the API server that are under way.
    pending_reads: PendingReads,
    progress: watch::Sender<Progress>,
    listeners: Listeners,
}

/// The listeners for the events of an informer.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) observers: Observers,
    pub(crate) metrics: Metrics,
    /// Who writes events on objects, and under which name; set when a manager runs.
    pub(crate) recorder: Arc<OnceLock<(EventRecorder, String)>>,
    /// The name of the cluster, where it is not the only one.
    pub(crate) cluster: Option<Arc<str>>,
}

pub(crate) type EngineStore = kubewright_engine::Store<dyn Cached, KubeMeta>;

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
    /// Call it inside a tokio runtime.
    pub(crate) fn new(form: Form, scope: Scope, kept: &StoreOptions, listeners: Listeners) -> Core {
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
        let name = match &listeners.cluster {
            None => format!("{kind} {scope}"),
            Some(cluster) => format!("{kind} {scope} of cluster {cluster}"),
        };
        Core {
            name,
            decoded: DecodedCache::new(form.decode.kept, kept.decoded),
            transform: kept.transforms.of(form.id),
            form,
            scope,
            store: RwLock::new(store),
            dispatcher: Mutex::new(Dispatcher::new()),
            subscribers: Mutex::default(),
            runtime: Handle::current(),
            receipts: Mutex::new(Receipts::default()),
            tombstones: Mutex::default(),
            pending_reads: PendingReads::default(),
            progress: watch::Sender::default(),
            listeners,
        }
    }

    // No code of a user runs under these locks except handlers, whose panics are caught: a poisoned lock holds
    // consistent data.
    fn read(&self) -> RwLockReadGuard<'_, EngineStore> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<dyn Cached>> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> MutexGuard<'_, BTreeMap<HandlerId, Arc<Subscriber>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receipts(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tombstones(&self) -> MutexGuard<'_, Tombstones> {
        self.tombstones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the watch said last that the object of this key is deleted; it may be forgotten.
    pub(crate) fn was_deleted(&self, key: &ObjectKey) -> bool {
        self.tombstones().has(key)
    }

    fn add_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        let mut dispatcher = self.dispatcher();
        let snapshot = self.read().list(None).items;
        let (id, panics) = dispatcher.add(handler, snapshot);
        self.report(&panics);
        id
    }

    fn add_slow_handler(self: &Arc<Self>, handler: Handler<dyn Cached>) -> HandlerId {
        let subscriber = Arc::new(Subscriber::new(&self.name, handler));
        let late = self.progress.borrow().synced;
        let mailbox = subscriber.clone();
        let id = self.add_handler(Arc::new(move |event| mailbox.put(event)));
        self.subscribers().insert(id, subscriber.clone());
        // Looked at after the subscriber was filed: either this sees the sync, or the sync sees the subscriber.
        if self.progress.borrow().synced {
            subscriber.mark(late);
        }
        let core = self.clone();
        let after = move |batch: Batch| {
            core.report(&batch.panics);
            core.changed();
        };
        self.runtime.spawn(subscriber.serve(id, after));
        id
    }

    fn remove_handler(&self, handler: HandlerId) -> bool {
        let known = self.dispatcher().remove(handler);
        let subscriber = self.subscribers().remove(&handler);
        if let Some(subscriber) = subscriber {
            subscriber.close();
            self.changed();
        }
        known
    }

    /// Applies deltas to the store and tells the handlers; called by the task only.
    pub(crate) fn apply(&self, deltas: impl IntoIterator<Item = Delta<dyn Cached>>) {
        let dispatcher = self.dispatcher();
        for delta in deltas {
            let events = self.store.write().unwrap_or_else(PoisonError::into_inner).apply(delta);
            self.tombstones().note(&events);
            let held = self.decoded.decoded(&events);
            self.report(&dispatcher.dispatch(&events));
            drop_guarded(&self.name, held);
            drop_guarded(&self.name, events);
        }
        drop(dispatcher);
        self.report_unreadable();
        self.settle_receipts();
        self.changed();
    }

    /// Gives back what was decoded and is not read any more.
    pub(crate) fn trim(&self) {
        self.decoded.trim(Instant::now());
    }

    fn settle_receipts(&self) {
        let mut receipts = self.receipts();
        if !receipts.is_empty() {
            let store = self.read();
            receipts.settle(store.history_resets(), |key| view_of(&store, key));
        }
    }

    /// The value stays, but every reader that waits for the store looks again.
    fn changed(&self) {
        self.progress.send_modify(|_| ());
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
            self.subscribers()
                .values()
                .for_each(|subscriber| subscriber.mark(false));
            self.changed();
            let objects = self.read().len();
            tracing::debug!(resource = %self.name, objects, "cache synced");
            self.listeners.observers.notify(|| Observation::CacheSynced {
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
            self.listeners.observers.notify(|| Observation::CacheDegraded {
                resource: self.name.clone(),
                reason,
            });
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Files the objects that reads could not decode, unless they have changed since.
    fn file_broken(&self) {
        let broken = self.decoded.take_broken();
        if broken.is_empty() {
            return;
        }
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        for object in broken {
            let stored = store.peek(&object.key).map(|stored| stored.object_id());
            let version = object.resource_version.as_ref().map(ResourceVersion::as_str);
            if stored.is_some_and(|stored| stored.version == version && stored.uid == object.uid.as_deref()) {
                // The store's content does not change, so that only people are told, and no handler.
                store.apply(Delta::Unreadable(object));
            }
        }
    }

    /// A reader needs the type of its objects: from now on they are decoded when they arrive, and the present ones are
    /// checked now.
    pub(crate) fn check_objects(&self) {
        if !self.decoded.check() {
            return;
        }
        for object in self.list_in(None) {
            with_decoded(&*object);
        }
        self.report_unreadable();
    }

    /// The store's object in this very version.
    pub(crate) fn known(&self, id: ObjectId<'_>) -> Option<Arc<dyn Cached>> {
        let found = self.get(id.namespace, id.name?)?;
        let known = found.object_id();
        (known.version.is_some() && known.version == id.version && known.uid == id.uid).then_some(found)
    }

    /// An object of the store, decoded.
    ///
    /// # Errors
    /// [`Error::Undecodable`].
    pub(crate) fn unpacked(&self, object: Arc<dyn Cached>) -> Result<Arc<dyn Cached>> {
        let reference = object.object_id().reference(&self.form.resource);
        unpacked(object).map_err(|reason| {
            self.report_unreadable();
            Error::Undecodable {
                object: reference.to_string(),
                reason: reason.to_string(),
            }
        })
    }

    /// Objects of the store, decoded; those that cannot be are left out, and reported.
    pub(crate) fn all_unpacked(&self, objects: Objects) -> Objects {
        let count = objects.len();
        let readable: Objects = objects.into_iter().filter_map(|object| unpacked(object).ok()).collect();
        if readable.len() < count {
            self.report_unreadable();
        }
        readable
    }

    pub(crate) fn health(&self) -> Health {
        self.report_unreadable();
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

    pub(crate) fn report_unreadable(&self) {
        self.file_broken();
        // Looked at with a read lock first: this runs after every batch.
        if self.read().unreadable().len() == 0 {
            return;
        }
        let unreported = self
            .store
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take_unreported();
        for (position, object) in unreported.iter().enumerate() {
            let reference = self.object_ref(object);
            if position < REPORTED {
                let error = &object.message;
                tracing::warn!(object = %reference, error, "an object cannot be decoded; it is left out until it changes");
                self.record_unreadable(object);
            }
            self.listeners.observers.notify(|| Observation::ObjectUnreadable {
                resource: self.name.clone(),
                object: reference,
                error: object.message.clone(),
            });
        }
        if unreported.len() > REPORTED {
            let more = unreported.len() - REPORTED;
            tracing::warn!(resource = %self.name, more, "more objects cannot be decoded; Informer::unreadable lists them");
        }
    }

    fn record_unreadable(&self, object: &Unreadable) {
        let Some((recorder, component)) = self.listeners.recorder.get() else {
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

    fn with_view<T>(&self, key: &ObjectKey, run: impl FnOnce(&mut Receipts, &View<'_>) -> T) -> T {
        let mut receipts = self.receipts();
        let store = self.read();
        run(&mut receipts, &view_of(&store, key))
    }
}

/// Reading; see [`super::Store`].
impl Core {
    /// One object; an object that exists and cannot be decoded is an error, even when an older state of it is held.
    ///
    /// # Errors
    /// [`Error::Undecodable`].
    fn look_up(&self, store: &EngineStore, key: &ObjectKey) -> Result<Option<Arc<dyn Cached>>> {
        match store.unreadable_by_name(key.namespace.as_deref(), &key.name) {
            None => Ok(store.peek(key).cloned()),
            Some(object) => Err(self.undecodable(object)),
        }
    }

    pub(crate) fn undecodable(&self, object: &Unreadable) -> Error {
        Error::Undecodable {
            object: self.object_ref(object).to_string(),
            reason: object.message.clone(),
        }
    }

    pub(crate) fn unreadable(&self) -> Vec<informer::Unreadable> {
        self.report_unreadable();
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

    pub(crate) fn list_in(&self, namespace: Option<&str>) -> Objects {
        self.read().list(namespace).items
    }

    pub(crate) fn matching(&self, namespace: Option<&str>, labels: &Selector) -> Objects {
        matching(&self.read(), namespace, labels)
    }

    pub(crate) fn owned_by(&self, namespace: Option<&str>, owner_uid: &str) -> Objects {
        owned_by(&self.read(), namespace, owner_uid)
    }

    pub(crate) fn by_index(&self, index: &str, value: &str, namespace: Option<&str>) -> Result<Vec<Arc<dyn Cached>>> {
        let found = self.read().by_index(index, value, namespace);
        found
            .map(|snapshot| snapshot.items)
            .map_err(|error| Error::Configuration(format!("{}: {error}", self.name)))
    }

    /// Whether there is such an index; it is an error if not.
    pub(crate) fn has_index(&self, index: &str) -> Result<()> {
        self.by_index(index, "", None).map(drop)
    }

    pub(crate) fn keys(&self) -> Vec<Request> {
        self.read().keys().map(Request::from).collect()
    }

    /// Without the objects that were read in vain.
    pub(crate) fn len(&self) -> usize {
        let store = self.read();
        let shown = |key| store.peek(key).map(|stored| stored.object_id().version);
        let in_vain = store.unreadable().filter(|object| {
            shown(&object.key)
                .is_some_and(|version| version == object.resource_version.as_ref().map(ResourceVersion::as_str))
        });
        store.len() - in_vain.count()
    }

    pub(crate) fn resource_version(&self) -> Option<String> {
        self.read()
            .resource_version()
            .map(|version| version.as_str().to_owned())
    }
}

/// The objects whose labels match.
pub(crate) fn matching(store: &EngineStore, namespace: Option<&str>, labels: &Selector) -> Objects {
    let mut objects = store.list(namespace).items;
    objects.retain(|object| labels.matches(&object.labels()));
    objects
}

/// The objects whose controller has this uid.
pub(crate) fn owned_by(store: &EngineStore, namespace: Option<&str>, owner_uid: &str) -> Objects {
    let owned = store.by_index(CONTROLLER_UID, owner_uid, namespace);
    owned.expect("every informer is made with this index").items
}

/// The objects that an index files under a value; none without such an index.
pub(crate) fn filed(store: &EngineStore, namespace: Option<&str>, index: &str, value: &str) -> Objects {
    let found = store.by_index(index, value, namespace);
    found.map(|found| found.items).unwrap_or_default()
}

/// The objects without a controller whose labels match. The informer must have been told that orphans are wanted.
pub(crate) fn orphans(store: &EngineStore, namespace: Option<&str>, labels: &Selector) -> Objects {
    let all = |namespace: &str| store.by_index(ORPHANS, namespace, None).map(|found| found.items);
    let mut objects = match namespace {
        Some(namespace) => all(namespace).expect("the index is added before it is asked"),
        None => store.list(None).items,
    };
    // Of all namespaces, the index has one list for each.
    objects.retain(|object| labels.matches(&object.labels()) && !orphan_in(&**object).is_empty());
    objects
}
