//! A handle of an informer, without the type of its objects: reads that see own writes, handlers, waiting for the sync.
//!
//! Invariants: SI9 the watch and the tasks of handlers end with the last handle; K1 a read waits for the writes that
//! its ticket covers, and for no more. Not here: which writes a store does not show yet, which the engine's receipts
//! decide.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use kube::core::ApiResource;
use kubewright_engine::dispatch::Handler;
use kubewright_engine::receipts::{Hold, Place, Ticket};
use kubewright_engine::reflector::ListPage;
use kubewright_engine::{HandlerId, Meta, ObjectKey, ResourceVersion};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Core, EngineStore, IndexValues, view_of};
use crate::cache::informer::Health;
use crate::cache::scope::Scope;
use crate::cache::store::{KubeMeta, ORPHANS, orphan_in};
use crate::error::{Error, Result};
use crate::form::{Cached, Form};
use crate::stop::StopSource;

/// A handle of an informer; the watch stops after the last one is dropped.
#[derive(Clone)]
pub(crate) struct SharedInformer(Arc<WatchGuard>);

/// The guard that keeps the watch alive.
pub(crate) struct WatchGuard {
    core: Arc<Core>,
    /// Reaches the API server of its objects.
    pub(super) kube: kube::Client,
    /// Everything that was written before this moment is shown (`catch_up.rs`).
    pub(super) caught_up: Mutex<Option<Instant>>,
    /// Dropping it stops the task.
    _stop: StopSource,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // Perhaps dropped by a handler: it must not wait for itself.
        self.core
            .subscribers()
            .values()
            .for_each(|subscriber| subscriber.abandon());
    }
}

impl SharedInformer {
    pub(in crate::cache) fn new(core: Arc<Core>, kube: kube::Client, stop: StopSource) -> SharedInformer {
        SharedInformer(Arc::new(WatchGuard {
            core,
            kube,
            caught_up: Mutex::default(),
            _stop: stop,
        }))
    }

    pub(super) fn guard(&self) -> &WatchGuard {
        &self.0
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

    /// Adds a handler that runs on the informer's task.
    pub(crate) fn add_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        self.core().add_handler(handler)
    }

    /// Adds a handler with a task of its own.
    pub(crate) fn add_slow_handler(&self, handler: Handler<dyn Cached>) -> HandlerId {
        self.core().add_slow_handler(handler)
    }

    /// Whether the handler is registered and has been told of all that it is to begin with.
    pub(crate) fn handler_synced(&self, handler: HandlerId) -> bool {
        match self.core().subscribers().get(&handler) {
            Some(subscriber) => subscriber.synced(),
            None => self.is_synced() && self.core().dispatcher().contains(handler),
        }
    }

    pub(crate) fn remove_handler(&self, handler: HandlerId) -> bool {
        self.core().remove_handler(handler)
    }

    pub(crate) fn add_index(&self, name: &str, values: IndexValues) -> Result<()> {
        let mut store = self.core().store.write().unwrap_or_else(PoisonError::into_inner);
        store
            .add_index(name, values)
            .map_err(|error| Error::Configuration(format!("{}: {error}", self.core().name)))
    }

    pub(crate) fn remove_index(&self, name: &str) {
        let mut store = self.core().store.write().unwrap_or_else(PoisonError::into_inner);
        store.remove_index(name);
    }

    /// How many objects the store has in a namespace, or in all of them.
    pub(crate) fn objects_in(&self, namespace: Option<&str>) -> usize {
        let store = self.core().read();
        match namespace {
            Some(namespace) => store.namespaces().get(namespace).copied().unwrap_or(0),
            None => store.len(),
        }
    }

    /// Keeps an index of the objects without a controller from now on.
    pub(crate) fn index_orphans(&self) {
        if self.core().read().has_index(ORPHANS) {
            return;
        }
        let mut store = self.core().store.write().unwrap_or_else(PoisonError::into_inner);
        // Another caller may have been faster: the index is there already.
        drop(store.add_index(ORPHANS, orphan_in));
    }

    /// Everything that this process has written and that was acknowledged until now. Taken before a read.
    pub(crate) fn ticket(&self) -> Ticket {
        self.core().receipts().ticket()
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
            let (receipts, store) = (core.receipts(), core.read());
            match receipts.hold(key, ticket, &view_of(&store, key)) {
                Hold::Nothing => Some(Some(core.look_up(&store, key))),
                Hold::Ask if !core.pending_reads.has(key) => Some(None),
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
            let (receipts, store) = (core.receipts(), core.read());
            let held = receipts.held_in(namespace, ticket, |key| view_of(&store, key));
            if held.is_empty() {
                return Some(Listed::Ready(read(&store)));
            }
            let asked = held
                .into_iter()
                .filter(|(key, hold)| *hold == Hold::Ask && !core.pending_reads.has(key));
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
        let mut progress = self.core().progress.subscribe();
        loop {
            progress.borrow_and_update();
            if let Some(answer) = look() {
                return Some(answer);
            }
            progress.changed().await.ok()?;
        }
    }

    /// A list in the namespace has waited in vain: the next one asks the API server for the missing changes.
    pub(crate) fn overdue(&self, namespace: Option<&str>, ticket: Ticket) {
        let (mut receipts, store) = (self.core().receipts(), self.core().read());
        let held = receipts.held_in(namespace, ticket, |key| view_of(&store, key));
        receipts.overdue(held.iter().map(|(key, _)| key), ticket, |key| view_of(&store, key));
    }

    /// The API server was asked for one key after the ticket was taken; `page` is its answer. From now on the store
    /// must show that.
    pub(crate) fn asked(&self, key: &ObjectKey, ticket: Ticket, page: &ListPage<dyn Cached>) {
        let Some((version, place)) = found_in(page, key) else {
            return;
        };
        let core = self.core();
        core.with_view(key, |receipts, view| receipts.asked(key, ticket, version, place, view));
        core.changed();
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
        let core = self.core();
        let (mut receipts, store) = (core.receipts(), core.read());
        receipts.asked_all(namespace, ticket, version, &listed, |key| view_of(&store, key));
        drop((receipts, store));
        core.changed();
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
