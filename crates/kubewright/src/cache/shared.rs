//! One resource of a cluster: one watch and one store of texts, which all views of it share.
//!
//! A view ([`Core`](super::core::Core)) is a type and a scope: a decoder and a filter over the store, with its share in
//! the changes ([`Part`]). The store holds the union of what its views need ([`Coverage`]). The watch runs in a task of
//! its own (`watch.rs`) that ends when the last view is dropped.
//!
//! When a view comes that needs more than the store holds, a second, wider watch fills a store of its own, while the
//! first one goes on and serves the views that are there. When the wider list is complete and not older than the store,
//! its objects replace those of the store in one step ([`SharedStore::adopt`]), and the wider watch is the only one
//! from then on. So a wider view that cannot be listed (a missing permission) harms no other.
//!
//! The dispatch lock is held over "apply to the store, tell the handlers" and over "take a snapshot, add a handler"; the
//! store's lock only while it is changed, so that handlers may read it. Handlers of users have a mailbox and a task
//! (`handlers.rs`). Those of controllers run inline: they must map every state to keys, since the owner in between may
//! have acted on it, and a hop to another task would delay each reconcile.
//!
//! Invariants:
//! * SI2 when a handler runs, the store holds the state that it is told of, for all views of the kind.
//! * Coverage only grows. A view sees nothing before it is covered; then it is told of everything inside it, once; and
//!   the change from one watch to the wider one is no event for a view that was covered before, except for what has
//!   really changed.
//! * The store never goes back: a wider list is adopted only when it has reached the store's version. So a receipt that
//!   the store has reached is reached after that, too, and receipts are left for what the store *will* cover.
//! * SI7 a panicking handler is reported and affects no other.
//!
//! Not here: other versions of the resource and scopes that only the server can judge. They have stores of their own,
//! which are told of every change here before a handler is (`Family`), so that a read after a wake-up waits for it.

mod dispatch;
mod pending_reads;
mod receiving;
mod reporting;
mod tombstones;

use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

use kube::core::ApiResource;
use kubewright_engine::dispatch::HandlerPanic;
use kubewright_engine::receipts::{Receipts, Shown, View};
use kubewright_engine::{Delta, Event, Meta, ObjectKey, ResourceVersion};
use tokio::runtime::Handle;

use self::dispatch::Dispatch;
pub(crate) use self::pending_reads::PendingRead;
use self::pending_reads::PendingReads;
pub(crate) use self::receiving::{Gone, Written};
use self::tombstones::Tombstones;
use super::StoreOptions;
use super::core::EngineStore;
use super::coverage::Coverage;
use super::part::Part;
use super::scope::Scope;
use super::store::{CONTROLLER_UID, KubeMeta, controller_uid};
use crate::events::EventRecorder;
use crate::form::Cached;
use crate::form::applied::{AppliedFields, applied_by};
use crate::form::packed::Decoders;
use crate::metrics::Metrics;
use crate::observe::{Observation, Observers};
use crate::stop::StopSource;
use crate::watch;

/// The store's state for a key.
pub(super) fn view_of<'a>(store: &'a EngineStore, key: &ObjectKey) -> View<'a> {
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

/// The field managers of the clients of a cache, of whose applies the cache notes what they set.
#[derive(Clone, Default)]
pub(crate) struct FieldManagers(Arc<RwLock<BTreeSet<String>>>);

impl FieldManagers {
    pub(crate) fn add(&self, name: &str) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned());
    }

    pub(super) fn applied_in(&self, managed_fields: &[u8]) -> Option<Box<[AppliedFields]>> {
        applied_by(&self.0.read().unwrap_or_else(PoisonError::into_inner), managed_fields)
    }
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
    /// Handlers of users run where time is a test's on its thread, which that time waits for.
    pub(crate) handles_inline: bool,
    /// The field managers of this process.
    pub(crate) managers: FieldManagers,
}

impl Listeners {
    /// A part of a kind, in words.
    pub(super) fn name(&self, resource: &ApiResource, scope: &Scope) -> String {
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        match &self.cluster {
            None => format!("{kind} {scope}"),
            Some(cluster) => format!("{kind} {scope} of cluster {cluster}"),
        }
    }
}

/// The stores of one group and resource in a cluster; most have one.
#[derive(Clone, Default)]
pub(crate) struct Family(Arc<Mutex<Vec<Weak<SharedStore>>>>);

impl Family {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<SharedStore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, store: &Arc<SharedStore>) {
        let mut all = self.all();
        all.retain(|store| store.strong_count() > 0);
        all.push(Arc::downgrade(store));
    }

    pub(super) fn members(&self) -> Vec<Arc<SharedStore>> {
        self.all().iter().filter_map(Weak::upgrade).collect()
    }

    fn others(&self, than: &SharedStore) -> Vec<Arc<SharedStore>> {
        let all = self.all();
        if all.len() < 2 {
            return Vec::new();
        }
        let others = all.iter().filter(|store| !std::ptr::eq(store.as_ptr(), than));
        others.filter_map(Weak::upgrade).collect()
    }
}

/// The store of a resource.
pub(crate) struct SharedStore {
    pub(super) resource: ApiResource,
    pub(super) decoders: Arc<Decoders>,
    contents: RwLock<Contents>,
    /// What the store is to hold.
    wanted: watch::Sender<Coverage>,
    dispatch: Mutex<Dispatch>,
    /// Views that came since the last dispatch: a handler may ask for one.
    arrived: Mutex<Vec<Arc<Part>>>,
    parts: RwLock<Vec<Weak<Part>>>,
    /// Where the tasks of handlers run.
    pub(super) runtime: Handle,
    receipts: Mutex<Receipts>,
    tombstones: Mutex<Tombstones>,
    /// The reads from the API server that are under way.
    pub(super) pending_reads: PendingReads,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) listeners: Listeners,
    family: Family,
}

/// Keeps the watch of a store alive.
pub(crate) struct StoreGuard {
    pub(super) store: Arc<SharedStore>,
    /// Everything that was written before this moment is shown (`core/catch_up.rs`).
    pub(super) caught_up: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    /// Dropping it stops the task.
    pub(super) _stop: StopSource,
}

/// What the store holds, and of what.
pub(crate) struct Contents {
    pub(super) store: EngineStore,
    /// `None` before the first list.
    pub(super) coverage: Option<Coverage>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The watch follows the server.
    pub(super) following: bool,
    /// Why it does not.
    pub(super) trouble: Option<String>,
    /// Why the wider watch does not, if there is one.
    pub(super) wider_trouble: Option<String>,
}

impl SharedStore {
    /// Call it inside a tokio runtime.
    pub(super) fn new(
        resource: &ApiResource,
        wanted: Coverage,
        kept: &StoreOptions,
        listeners: Listeners,
        family: Family,
    ) -> SharedStore {
        let mut store = EngineStore::new();
        store
            .add_index(CONTROLLER_UID, controller_uid)
            .expect("the store is new, so no name is taken");
        SharedStore {
            resource: resource.clone(),
            decoders: Decoders::new(kept.decoded),
            contents: RwLock::new(Contents { store, coverage: None }),
            wanted: watch::Sender::new(wanted),
            dispatch: Mutex::default(),
            arrived: Mutex::default(),
            parts: RwLock::default(),
            runtime: Handle::current(),
            receipts: Mutex::default(),
            tombstones: Mutex::default(),
            pending_reads: PendingReads::default(),
            progress: watch::Sender::new(Default::default()),
            listeners,
            family,
        }
    }

    // No code of a user runs under these locks except handlers, whose panics are caught: a poisoned lock holds
    // consistent data.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with_store<T>(&self, change: impl FnOnce(&mut EngineStore) -> T) -> T {
        change(&mut self.contents.write().unwrap_or_else(PoisonError::into_inner).store)
    }

    pub(super) fn receipts(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tombstones(&self) -> MutexGuard<'_, Tombstones> {
        self.tombstones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn was_deleted(&self, key: &ObjectKey) -> bool {
        self.tombstones().has(key)
    }

    /// What the store is to hold.
    pub(super) fn wanted(&self) -> Coverage {
        self.wanted.borrow().clone()
    }

    pub(super) fn wants(&self) -> watch::Receiver<Coverage> {
        self.wanted.subscribe()
    }

    /// Whether a view that needs this is to share this store, which becomes wider if it must.
    pub(super) fn may_serve(&self, needs: &Coverage) -> bool {
        if self
            .read()
            .coverage
            .as_ref()
            .is_some_and(|coverage| coverage.covers(needs))
        {
            return true;
        }
        let (wanted, ours) = (self.wanted(), &needs.scope);
        let theirs = &wanted.scope;
        if !ours.is_judged_here() || !theirs.is_judged_here() {
            return ours == theirs;
        }
        // What is wanted may be refused, and the view would wait for ever.
        let refused = self.progress.borrow().wider_trouble.is_some();
        match (&theirs.namespace, &ours.namespace) {
            (Some(theirs), Some(ours)) => theirs == ours,
            (None, Some(_)) => !refused,
            (_, None) => true,
        }
    }

    /// Adds a view. The watch becomes wider, if it must; `true` when it does.
    pub(super) fn add_part(&self, part: &Arc<Part>) -> bool {
        let widens = self.wanted.send_if_modified(|wanted| {
            let wider = !wanted.covers(&part.needs);
            if wider {
                *wanted = wanted.join(&part.needs);
            }
            wider
        });
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(part));
        drop(parts);
        self.arrived().push(part.clone());
        self.admit_if_free();
        widens
    }

    /// The types that look at every object of this coverage when it arrives.
    pub(super) fn checked(&self, coverage: &Coverage) -> Vec<TypeId> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let checking = parts.iter().filter_map(Weak::upgrade);
        let checking = checking.filter(|part| part.checks() && part.needs.scope == coverage.scope);
        checking.map(|part| part.kind).collect()
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Arc<Part>>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn parts(&self) -> Vec<Arc<Part>> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        parts
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|part| !part.is_gone())
            .collect()
    }

    /// Applies deltas of a watch of this coverage to the store and tells the handlers; called by its task only.
    pub(super) fn apply(&self, deltas: impl IntoIterator<Item = Delta<dyn Cached>>, coverage: &Coverage) {
        let mut dispatch = self.dispatch();
        for delta in deltas {
            let ends = matches!(delta, Delta::ReplaceEnd { .. });
            let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
            let last = match &delta {
                Delta::Deleted(object) => KubeMeta::key(&**object).and_then(|key| contents.store.get(&key)),
                _ => None,
            };
            let events = contents.store.apply(delta);
            if ends {
                contents.coverage = Some(coverage.clone());
            }
            drop(contents);
            self.tell(&mut dispatch, events, last.as_ref());
            if ends {
                self.admit(&mut dispatch);
            }
        }
        drop(dispatch);
        self.applied();
    }

    /// Whether a wider store has reached this one, so that it may replace it.
    pub(super) fn is_reached_by(&self, wider: &EngineStore) -> bool {
        let contents = self.read();
        let behind = |shown: &ResourceVersion| {
            let order = wider.resource_version().and_then(|version| version.compare(shown));
            order == Some(std::cmp::Ordering::Less)
        };
        wider.is_synced() && !contents.store.resource_version().is_some_and(behind)
    }

    /// The objects of a wider store replace those of this one, in one step. It [has reached](SharedStore::is_reached_by)
    /// this one, and no change of the narrower watch is applied any more.
    pub(super) fn adopt(&self, wider: &EngineStore, coverage: &Coverage) {
        let Some(resource_version) = wider.resource_version().cloned() else {
            return;
        };
        let bracket = [
            Delta::ReplaceBegin,
            Delta::ReplaceItems(wider.list(None).items),
            Delta::ReplaceUnreadable(wider.unreadable().cloned().collect()),
            Delta::ReplaceEnd {
                resource_version,
                authoritative: false,
            },
        ];
        self.apply(bracket, coverage);
    }

    fn applied(&self) {
        self.report_unreadable();
        let mut receipts = self.receipts();
        if !receipts.is_empty() {
            let contents = self.read();
            receipts.settle(contents.store.history_resets(), |key| view_of(&contents.store, key));
        }
        drop(receipts);
        self.changed();
    }

    /// Another store of the same resource is about to tell handlers of this: reads here are to show it, too.
    fn hears_of(&self, event: &Event<dyn Cached>) {
        // What only the server can judge would have to be asked for after each event.
        if !self.wanted().scope.is_judged_here() {
            return;
        }
        let object = event.object();
        let Some(key) = KubeMeta::key(&**object) else { return };
        let id = object.object_id();
        match event {
            Event::Deleted { .. } => self.deleted(&Gone {
                key,
                uid: id.uid,
                seen: id.version,
            }),
            Event::Added { .. } | Event::Modified { .. } => self.wrote(&Written {
                key,
                meta: &object.metadata(),
                json: &|| object.json_or_null(),
            }),
        }
    }

    /// The value stays, but every reader that waits for the store looks again.
    pub(super) fn changed(&self) {
        self.progress.send_modify(|_| ());
    }

    pub(super) fn report(&self, panics: &[HandlerPanic]) {
        for panic in panics {
            tracing::error!(resource = %self.resource.kind, "{panic}");
        }
    }

    fn name(&self, coverage: &Coverage) -> String {
        self.listeners.name(&self.resource, &coverage.scope)
    }

    /// Everything that the watch has brought was applied.
    pub(super) fn set_synced(&self, coverage: &Coverage) {
        let mut dispatch = self.dispatch();
        let news = dispatch.synced.as_ref() != Some(coverage);
        dispatch.synced = Some(coverage.clone());
        for listening in &dispatch.parts {
            let part = &listening.part;
            if listening.joined && coverage.covers(&part.needs) && !part.is_synced() {
                part.set_synced();
                part.subscribers()
                    .values()
                    .for_each(|subscriber| subscriber.mark(false));
            }
        }
        drop(dispatch);
        let changed = self.progress.send_if_modified(|progress| {
            let changed = !progress.following || progress.trouble.is_some() || news;
            (progress.following, progress.trouble) = (true, None);
            changed
        });
        if changed {
            let (resource, objects) = (self.name(coverage), self.read().store.len());
            tracing::debug!(resource, objects, "cache synced");
            self.listeners
                .observers
                .notify(|| Observation::CacheSynced { resource, objects });
        }
    }

    /// `wider`: it is the watch that is to replace the present one.
    pub(super) fn set_degraded(&self, coverage: &Coverage, reason: String, wider: bool) {
        let changed = self.progress.send_if_modified(|progress| {
            let trouble = match wider {
                true => &mut progress.wider_trouble,
                false => {
                    progress.following = false;
                    &mut progress.trouble
                }
            };
            let changed = trouble.as_ref() != Some(&reason);
            *trouble = Some(reason.clone());
            changed
        });
        if changed {
            let resource = self.name(coverage);
            tracing::warn!(
                resource,
                reason,
                "cache degraded; it serves what it has and tries again"
            );
            self.listeners
                .observers
                .notify(|| Observation::CacheDegraded { resource, reason });
        }
    }

    /// There is no wider watch any more: this one is it, or it is begun anew.
    pub(super) fn forget_wider_trouble(&self) {
        self.progress
            .send_if_modified(|progress| progress.wider_trouble.take().is_some());
    }

    pub(super) fn with_view<T>(&self, key: &ObjectKey, run: impl FnOnce(&mut Receipts, &View<'_>) -> T) -> T {
        let mut receipts = self.receipts();
        let contents = self.read();
        run(&mut receipts, &view_of(&contents.store, key))
    }
}
