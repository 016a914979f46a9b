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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, ObjectMeta, Selector, SelectorExt};
use kubewright_engine::dispatch::{Dispatcher, Handler, HandlerPanic, end_of_panic};
use kubewright_engine::receipts::{Hold, Place, Receipts, Shown, Ticket, View};
use kubewright_engine::reflector::ListPage;
use kubewright_engine::{Delta, Event, HandlerId, Meta, ObjectKey, ResourceVersion, Unreadable};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::informer::{self, Health};
use super::scope::{Membership, Scope};
use super::store::{CONTROLLER_UID, KubeMeta, controller_uid};
use crate::error::{Error, Result};
use crate::events::{EventRecorder, EventType};
use crate::form::{Cached, Form};
use crate::metrics::Metrics;
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

    /// Everything that this process has written and that was acknowledged until now. Taken before a read.
    pub(crate) fn ticket(&self) -> Ticket {
        self.core().receipts().ticket()
    }

    /// One object, as soon as the store shows all writes of our own to it that the ticket covers. `None` when it does not in time, or when
    /// only the API server can tell.
    pub(crate) async fn read_one(
        &self,
        request: &Request,
        ticket: Ticket,
        deadline: Instant,
    ) -> Option<Result<Option<Arc<dyn Cached>>>> {
        let (core, key) = (self.core(), ObjectKey::from(request));
        let look = || {
            let (receipts, store) = (core.receipts(), core.read());
            match receipts.hold(&key, ticket, &view_of(&store, &key)) {
                Hold::Nothing => Some(Some(core.look_up(&store, &key))),
                Hold::Ask => Some(None),
                Hold::Wait => None,
            }
        };
        self.look_until(deadline, look).await.flatten()
    }

    /// What `read` finds in the store, as soon as it shows all writes of our own in the namespace that the ticket covers.
    pub(crate) async fn read_many(
        &self,
        namespace: Option<&str>,
        ticket: Ticket,
        deadline: Instant,
        read: impl Fn(&EngineStore) -> Objects,
    ) -> Listed {
        let core = self.core();
        let look = || {
            let (receipts, store) = (core.receipts(), core.read());
            let held = receipts.held_in(namespace, ticket, |key| view_of(&store, key));
            if held.is_empty() {
                return Some(Listed::Ready(read(&store)));
            }
            let asked = held.into_iter().filter(|(_, hold)| *hold == Hold::Ask);
            let keys: Vec<ObjectKey> = asked.map(|(key, _)| key).collect();
            (!keys.is_empty()).then_some(Listed::Ask(keys))
        };
        self.look_until(deadline, look).await.unwrap_or(Listed::Late)
    }

    /// Looks again after every change, until there is an answer.
    async fn look_until<T>(&self, deadline: Instant, look: impl Fn() -> Option<T>) -> Option<T> {
        let mut progress = self.core().progress.subscribe();
        let looking = async {
            loop {
                progress.borrow_and_update();
                if let Some(answer) = look() {
                    return Some(answer);
                }
                progress.changed().await.ok()?;
            }
        };
        timeout_at(deadline, looking).await.ok().flatten()
    }

    /// A list in the namespace has waited in vain: the next one asks the API server for what was missing.
    pub(crate) fn overdue(&self, namespace: Option<&str>, ticket: Ticket) {
        let (mut receipts, store) = (self.core().receipts(), self.core().read());
        let held = receipts.held_in(namespace, ticket, |key| view_of(&store, key));
        receipts.overdue(held.iter().map(|(key, _)| key), ticket, |key| view_of(&store, key));
    }

    /// The API server was asked for one key after the ticket was taken; `page` is its answer. From now on the store must show that.
    pub(crate) fn asked(&self, key: &ObjectKey, ticket: Ticket, page: &ListPage<dyn Cached>) {
        let Some((version, place)) = found_in(page, key) else {
            return;
        };
        let core = self.core();
        core.with_view(key, |receipts, view| receipts.asked(key, ticket, version, place, view));
        core.changed();
    }

    /// As [`Shared::asked`], for a list of the whole namespace.
    pub(crate) fn asked_all(&self, namespace: Option<&str>, ticket: Ticket, page: &ListPage<dyn Cached>) {
        let Some(version) = &page.resource_version else { return };
        let versions = page.items.iter().filter_map(|object| {
            let version = ResourceVersion::new(KubeMeta::resource_version(&**object)?);
            Some((KubeMeta::key(&**object)?, version))
        });
        let unreadable = page.unreadable.iter();
        let unreadable = unreadable.filter_map(|object| Some((object.key.clone(), object.resource_version.clone()?)));
        let listed = versions.chain(unreadable).collect();
        let core = self.core();
        let (mut receipts, store) = (core.receipts(), core.read());
        receipts.asked_all(namespace, ticket, version, &listed, |key| view_of(&store, key));
        drop((receipts, store));
        core.changed();
    }
}

/// Objects of an informer, without their type.
pub(crate) type Objects = Vec<Arc<dyn Cached>>;

/// What became of a list.
pub(crate) enum Listed {
    /// Here it is.
    Ready(Objects),
    /// The API server must be asked about these first.
    Ask(Vec<ObjectKey>),
    /// The store did not catch up in time.
    Late,
}

/// What the store shows for a key.
fn view_of<'a>(store: &'a EngineStore, key: &ObjectKey) -> View<'a> {
    let shown = |object: &'a Arc<dyn Cached>| {
        let meta = object.metadata();
        Shown {
            uid: meta.uid.as_deref(),
            version: meta.resource_version.as_deref(),
        }
    };
    View {
        store: store.resource_version(),
        object: store.peek(key).map(shown),
    }
}

/// The version and place of an object in a list that selects it; `None` when the server names no versions.
fn found_in(page: &ListPage<dyn Cached>, key: &ObjectKey) -> Option<(ResourceVersion, Place)> {
    let readable = page
        .items
        .iter()
        .find(|object| KubeMeta::key(&***object).as_ref() == Some(key));
    if let Some(object) = readable {
        return Some((
            ResourceVersion::new(KubeMeta::resource_version(&**object)?),
            Place::Inside,
        ));
    }
    match page.unreadable.iter().find(|object| object.key == *key) {
        Some(object) => Some((object.resource_version.clone()?, Place::Inside)),
        None => Some((page.resource_version.clone()?, Place::Outside)),
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
    pub(crate) metrics: Metrics,
    /// Who writes events on objects, and under which name; set when a manager runs.
    pub(crate) recorder: Arc<OnceLock<(EventRecorder, String)>>,
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
            self.drop_guarded(events);
        }
        drop(dispatcher);
        self.report_unreadable();
        self.settle_receipts();
        self.changed();
    }

    /// What changed may be the last to hold an old state, whose `Drop` is the user's.
    fn drop_guarded(&self, events: Vec<Event<dyn Cached>>) {
        for event in events {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(event))) {
                let error = end_of_panic(payload);
                tracing::error!(resource = %self.name, error, "the Drop of an object panicked");
            }
        }
    }

    fn settle_receipts(&self) {
        let mut receipts = self.receipts();
        if !receipts.is_empty() {
            let store = self.read();
            receipts.settle(store.history_resets(), |key| view_of(&store, key));
        }
    }

    /// The value stays, but everybody who waits for the store looks again.
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

    fn with_view<T>(&self, key: &ObjectKey, run: impl FnOnce(&mut Receipts, &View<'_>) -> T) -> T {
        let mut receipts = self.receipts();
        let store = self.read();
        run(&mut receipts, &view_of(&store, key))
    }
}

/// Reading; see [`super::Store`].
impl Core {
    /// One object; an object that exists and cannot be decoded is an error, whatever older state of it is held.
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

/// The objects whose labels match.
pub(crate) fn matching(store: &EngineStore, namespace: Option<&str>, labels: &Selector) -> Objects {
    let none = Default::default();
    let mut objects = store.list(namespace).items;
    objects.retain(|object| labels.matches(object.metadata().labels.as_ref().unwrap_or(&none)));
    objects
}

/// The objects whose controller has this uid.
pub(crate) fn owned_by(store: &EngineStore, namespace: Option<&str>, owner_uid: &str) -> Objects {
    let owned = store.by_index(CONTROLLER_UID, owner_uid, namespace);
    owned.expect("every informer is made with this index").items
}

/// An object as the API server answered a write with it.
pub(crate) struct Written<'a> {
    pub(crate) key: ObjectKey,
    pub(crate) meta: &'a ObjectMeta,
    /// All of it, for field selectors.
    pub(crate) json: &'a dyn Fn() -> serde_json::Value,
}

/// A delete that the API server acknowledged, of an object that is gone now.
pub(crate) struct Gone<'a> {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Option<&'a str>,
    /// A version at which it existed.
    pub(crate) seen: Option<&'a str>,
}

/// An informer as the client sees it when it leaves receipts: without its type.
pub(crate) trait ReceiptTarget: Send + Sync {
    fn wrote(&self, written: &Written<'_>);
    fn deleted(&self, gone: &Gone<'_>);
    fn unknown(&self, key: &ObjectKey);
}

impl ReceiptTarget for Core {
    fn wrote(&self, written: &Written<'_>) {
        let Written { key, meta, json } = written;
        let Some(version) = meta.resource_version.as_deref().map(ResourceVersion::new) else {
            return self.unknown(key);
        };
        let place = match self.scope.membership(meta, json) {
            // Another namespace's objects are never in this store.
            Membership::Elsewhere => return,
            Membership::Inside => Place::Inside,
            Membership::Outside => Place::Outside,
            Membership::Unknown => return self.unknown(key),
        };
        self.with_view(key, |receipts, view| receipts.wrote(key.clone(), version, place, view));
    }

    fn deleted(&self, gone: &Gone<'_>) {
        if !self.scope.may_hold(&gone.key) {
            return;
        }
        let selective = self.scope.is_selective();
        self.with_view(&gone.key, |receipts, view| {
            let seen = gone.seen.map(ResourceVersion::new);
            receipts.deleted(gone.key.clone(), gone.uid, seen, selective, view);
        });
    }

    fn unknown(&self, key: &ObjectKey) {
        if self.scope.may_hold(key) {
            self.receipts().unknown(key.clone());
        }
    }
}
