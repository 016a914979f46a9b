//! A handle of a view, without the type of its objects: reads that see own writes, handlers, waiting for the sync.
//!
//! Invariants: SI9 the tasks of its handlers end with the last handle, and the watch with the last view; K1 a read waits for the writes that
//! its ticket covers, and for no more. Not here: which writes a store does not show yet, which the engine's receipts
//! decide.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::core::ApiResource;
use kubewright_engine::dispatch::Handler;
use kubewright_engine::receipts::{Hold, Place, Ticket};
use kubewright_engine::reflector::ListPage;
use kubewright_engine::store::IndexError;
use kubewright_engine::{HandlerId, Meta, ObjectKey, ResourceVersion};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Core, EngineStore, IndexValues};
use crate::cache::coverage::Coverage;
use crate::cache::informer::Health;
use crate::cache::scope::Scope;
use crate::cache::shared::{PendingRead, StoreGuard, view_of};
use crate::cache::store::{KubeMeta, ORPHANS, orphan_in};
use crate::error::{Error, Result};
use crate::form::{Cached, Form};

/// A handle of a view.
#[derive(Clone)]
pub(crate) struct SharedInformer(Arc<WatchGuard>);

/// The guard that keeps a view alive.
pub(crate) struct WatchGuard {
    core: Arc<Core>,
    /// Dropping the last one of a store stops its watch.
    watch: Arc<StoreGuard>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // Perhaps dropped by a handler: it must not wait for itself.
        self.core.part.set_gone();
        self.core
            .part
            .subscribers()
            .values()
            .for_each(|subscriber| subscriber.abandon());
        let ours = self.core.index_name("");
        self.core.store.with_store(|store| {
            let names: Vec<String> = store.index_names().map(str::to_owned).collect();
            for name in names.iter().filter(|name| name.ends_with(&ours)) {
                store.remove_index(name);
            }
        });
    }
}

impl SharedInformer {
    pub(in crate::cache) fn new(core: Arc<Core>, watch: Arc<StoreGuard>) -> SharedInformer {
        SharedInformer(Arc::new(WatchGuard { core, watch }))
    }

    pub(super) fn guard(&self) -> &StoreGuard {
        &self.0.watch
    }

    pub(in crate::cache) fn downgrade(&self) -> Weak<WatchGuard> {
        Arc::downgrade(&self.0)
    }

    pub(in crate::cache) fn upgrade(guard: &Weak<WatchGuard>) -> Option<SharedInformer> {
        guard.upgrade().map(SharedInformer)
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
        self.core().is_synced()
    }

    /// Whether the first list is in the store and told to every handler that there was.
    pub(crate) fn handlers_synced(&self) -> bool {
        self.is_synced()
            && self
                .core()
                .part
                .subscribers()
                .values()
                .all(|subscriber| subscriber.lets_sync())
    }

    /// Waits until [`SharedInformer::handlers_synced`].
    ///
    /// # Errors
    /// [`Error::NotSynced`].
    pub(crate) async fn handlers_synced_within(&self, deadline: Duration) -> Result<()> {
        let start = Instant::now();
        self.synced_within(deadline).await?;
        let left = deadline.saturating_sub(start.elapsed());
        let looking = self.look(|| self.handlers_synced().then_some(()));
        let synced = timeout(left, looking).await.ok().flatten();
        synced.ok_or_else(|| Error::NotSynced {
            what: self.name().to_owned(),
            waited: deadline,
            reason: "a handler has not returned for every object of the first list".to_owned(),
        })
    }

    /// Waits until the first list is in the store and told to every inline handler.
    ///
    /// # Errors
    /// [`Error::NotSynced`], with the last failure of the list.
    pub(crate) async fn synced_within(&self, deadline: Duration) -> Result<()> {
        if self.is_synced() {
            return Ok(()); // as nearly always: no clock is read
        }
        let mut progress = self.core().store.progress.subscribe();
        if timeout(deadline, progress.wait_for(|_| self.is_synced()))
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

    /// Adds a handler that runs on the informer's task.
    pub(crate) fn add_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        self.core().store.add_handler(&self.core().part, handler)
    }

    /// Adds a handler with a task of its own.
    pub(crate) fn add_slow_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        self.core().add_slow_handler(handler)
    }

    /// Whether the handler is registered and has been told of all that it is to begin with.
    pub(crate) fn handler_synced(&self, handler: HandlerId) -> bool {
        match self.core().part.subscribers().get(&handler) {
            Some(subscriber) => subscriber.synced(),
            None => self.is_synced() && self.core().store.has_handler(&self.core().part, handler),
        }
    }

    pub(crate) fn remove_handler(&self, handler: HandlerId) -> bool {
        self.core().remove_handler(handler)
    }

    pub(crate) fn add_index(&self, name: &str, values: IndexValues) -> Result<()> {
        let core = self.core();
        let added = core
            .store
            .with_store(|store| store.add_index(&core.index_name(name), values));
        added.map_err(|_| {
            let taken = IndexError::Exists { name: name.to_owned() };
            Error::Configuration(format!("{}: {taken}", core.name))
        })
    }

    pub(crate) fn remove_index(&self, name: &str) {
        let core = self.core();
        core.store
            .with_store(|store| store.remove_index(&core.index_name(name)));
    }

    /// How many objects the store has in a namespace, or in all of them.
    pub(crate) fn objects_in(&self, namespace: Option<&str>) -> usize {
        let contents = self.core().store.read();
        match namespace {
            Some(namespace) => contents.store.namespaces().get(namespace).copied().unwrap_or(0),
            None => contents.store.len(),
        }
    }

    /// Keeps an index of the objects without a controller from now on.
    pub(crate) fn index_orphans(&self) {
        let store = &self.core().store;
        if store.read().store.has_index(ORPHANS) {
            return;
        }
        // Another caller may have been faster: the index is there already.
        drop(store.with_store(|store| store.add_index(ORPHANS, orphan_in)));
    }

    /// What the store is to hold: a question that is answered for this is answered for all views.
    pub(crate) fn coverage(&self) -> Coverage {
        self.core().store.wanted()
    }

    /// The API server is asked about these objects from now on.
    pub(crate) fn begin_read(&self, keys: &[ObjectKey]) -> PendingRead {
        self.core().store.begin_read(keys)
    }

    /// Everything that this process has written and that was acknowledged until now. Taken before a read.
    pub(crate) fn ticket(&self) -> Ticket {
        self.core().store.receipts().ticket()
    }

    /// One object, as soon as the store shows all writes of our own to it that the ticket covers. `None` when it does
    /// not in time, or when only the API server can tell.
    pub(crate) async fn read_one(
        &self,
        key: &ObjectKey,
        ticket: Ticket,
        within: Duration,
    ) -> Option<Result<Option<Arc<dyn Cached>>>> {
        let core = self.core();
        let look = || {
            let (receipts, contents) = (core.store.receipts(), core.store.read());
            match receipts.hold(key, ticket, &view_of(&contents.store, key)) {
                Hold::Nothing => Some(Some(core.look_up(&contents, key))),
                Hold::Ask if !core.store.pending_reads.has(key) => Some(None),
                Hold::Ask | Hold::Wait => None,
            }
        };
        // Most reads wait for nothing.
        if let Some(answer) = look() {
            return answer;
        }
        self.look_until(Instant::now() + within, look).await.flatten()
    }

    /// The result of `read` in the store, as soon as it shows all writes of our own in the namespace that the ticket
    /// covers.
    pub(crate) async fn read_many(
        &self,
        namespace: Option<&str>,
        ticket: Ticket,
        deadline: Instant,
        read: impl Fn(&EngineStore) -> Objects,
    ) -> Listed {
        let core = self.core();
        let look = || {
            let (receipts, contents) = (core.store.receipts(), core.store.read());
            let held = receipts.held_in(namespace, ticket, |key| view_of(&contents.store, key));
            if held.is_empty() {
                return Some(Listed::Ready(core.inside(&contents, read(&contents.store))));
            }
            let asked = held
                .into_iter()
                .filter(|(key, hold)| *hold == Hold::Ask && !core.store.pending_reads.has(key));
            let keys: Vec<ObjectKey> = asked.map(|(key, _)| key).collect();
            (!keys.is_empty()).then_some(Listed::Ask(keys))
        };
        self.look_until(deadline, look).await.unwrap_or(Listed::Late)
    }

    async fn look_until<T>(&self, deadline: Instant, look: impl Fn() -> Option<T>) -> Option<T> {
        timeout_at(deadline, self.look(look)).await.ok().flatten()
    }

    /// Looks again after every change, until there is an answer.
    pub(super) async fn look<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let mut progress = self.core().store.progress.subscribe();
        loop {
            progress.borrow_and_update();
            if let Some(answer) = look() {
                return Some(answer);
            }
            progress.changed().await.ok()?;
        }
    }

    /// Whether nothing less than a list of this namespace answers for an object in it.
    pub(crate) fn is_crowded(&self, namespace: Option<&str>) -> bool {
        self.core().store.receipts().is_crowded(namespace)
    }

    /// A list in the namespace has waited in vain: the next one asks the API server for the missing changes.
    pub(crate) fn overdue(&self, namespace: Option<&str>, ticket: Ticket) {
        let shared = &self.core().store;
        let (mut receipts, contents) = (shared.receipts(), shared.read());
        let held = receipts.held_in(namespace, ticket, |key| view_of(&contents.store, key));
        receipts.overdue(held.iter().map(|(key, _)| key), ticket, |key| {
            view_of(&contents.store, key)
        });
    }

    /// The API server was asked for one key after the ticket was taken; `page` is its answer. From now on the store
    /// must show that.
    pub(crate) fn asked(&self, key: &ObjectKey, ticket: Ticket, page: &ListPage<dyn Cached>) {
        let Some((version, place)) = found_in(page, key) else {
            return;
        };
        let store = &self.core().store;
        store.with_view(key, |receipts, view| receipts.asked(key, ticket, version, place, view));
        store.changed();
    }

    /// As [`SharedInformer::asked`], for a list of the whole namespace.
    pub(crate) fn asked_all(&self, namespace: Option<&str>, ticket: Ticket, page: &ListPage<dyn Cached>) {
        let Some(version) = &page.resource_version else { return };
        let versions = page.items.iter().filter_map(|object| {
            let version = ResourceVersion::new(KubeMeta::resource_version(&**object)?);
            Some((KubeMeta::key(&**object)?, version))
        });
        let unreadable = page.unreadable.iter();
        let unreadable = unreadable.filter_map(|object| Some((object.key.clone(), object.resource_version.clone()?)));
        let listed = versions.chain(unreadable).collect();
        let shared = &self.core().store;
        let (mut receipts, contents) = (shared.receipts(), shared.read());
        let shown = || contents.store.keys().cloned().collect();
        receipts.asked_all(namespace, ticket, version, &listed, shown, |key| {
            view_of(&contents.store, key)
        });
        drop((receipts, contents));
        shared.changed();
    }
}

/// Objects of an informer, without their type.
pub(crate) type Objects = Vec<Arc<dyn Cached>>;

/// The outcome of a list.
pub(crate) enum Listed {
    /// Here it is.
    Ready(Objects),
    /// The API server must be asked about these first.
    Ask(Vec<ObjectKey>),
    /// The store did not catch up in time.
    Late,
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
