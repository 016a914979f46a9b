//! The cache: one informer per type, API resource and scope, shared by all its users (controller-runtime's
//! `cache.Cache`).
//!
//! Invariants: SI10 one watch per (type, resource, scope), counted by reference; C8 a kind that cannot be listed
//! affects only its readers; C2 an object that was read is immutable. Objects are cached without
//! `metadata.managedFields`, which are up to half of an object and which no controller reads; a write without them does
//! not change the server's. Objects are kept as text (`crate::form::packed`).
//!
//! - `informer.rs`: the informer,
//! - `core.rs`: the same without its type,
//! - `handlers.rs`: handlers that may be slow,
//! - `watch.rs`: the task that lists and watches,
//! - `wire.rs`: requests and decoding,
//! - `change.rs`: the notice for a handler of keys,
//! - `scope.rs`: which objects,
//! - `parts.rs`: several namespaces,
//! - `store.rs`: reading. Which writes a store does not show yet is decided by the engine's receipts.

mod change;
pub(crate) mod collector;
mod core;
mod handlers;
mod informer;
mod kind_informers;
mod scope;
mod store;
mod transform;
mod watch;
mod wire;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::core::ApiResource;

pub use self::change::{Change, ChangeKind};
pub use self::informer::{Health, Informer, SYNC_TIMEOUT, Unreadable};
pub use self::scope::Scope;
pub use self::store::{CONTROLLER_UID, Store};
use kubewright_engine::ObjectKey;
use kubewright_engine::reflector::Config;
pub use kubewright_engine::{Event, HandlerId};

pub(crate) use self::core::Core;
pub(crate) use self::core::{
    EngineStore, Gone, Listed, Objects, SharedInformer, Written, filed, matching, orphans, owned_by,
};
use self::core::{Listeners, ReceiptTarget, WatchGuard};
pub(crate) use self::kind_informers::{Keys, KindInformers};
pub(crate) use self::store::KubeMeta;
pub(crate) use self::transform::Transforms;
pub(crate) use self::watch::entropy;
use self::wire::Wire;
pub(crate) use self::wire::decode_page;
use crate::events::EventRecorder;
use crate::form::Form;
use crate::form::packed::Budget;
use crate::metrics::Metrics;
use crate::object::{AnyObject, Object};
use crate::observe::Observers;
use crate::stop::Stop;

/// All informers of a program. Cheap to clone. Informers start when they are asked for, inside a tokio runtime.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

/// A cache that may be gone.
#[derive(Clone)]
pub(crate) struct WeakCache(Weak<Inner>);

impl fmt::Debug for WeakCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakCache")
    }
}

impl WeakCache {
    pub(crate) fn upgrade(&self) -> Option<Cache> {
        self.0.upgrade().map(Cache)
    }
}

struct Inner {
    kube: kube::Client,
    listeners: Listeners,
    /// The namespaces of which objects are cached unless a scope names another, in order; none means all.
    namespaces: Vec<String>,
    kept: StoreOptions,
    /// How its watches go about it.
    watching: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cache does not keep an informer alive.
    informers: BTreeMap<InformerKey, Weak<WatchGuard>>,
    /// Informers that reads have started live as long as the cache.
    pinned: BTreeMap<InformerKey, SharedInformer>,
    /// Every living informer by group and plural, for receipts: the version does not matter, it is the same object.
    targets: BTreeMap<(String, String), Vec<Weak<dyn ReceiptTarget>>>,
}

/// How objects are kept.
#[derive(Clone, Default)]
pub(crate) struct StoreOptions {
    /// How much text of decoded objects each informer keeps.
    pub(crate) decoded: Budget,
    pub(crate) transforms: Transforms,
    /// Of these types a part only.
    pub(crate) scopes: BTreeMap<TypeId, Scope>,
}

impl StoreOptions {
    /// Of a type that is held in part everything is that part.
    fn scope(&self, form: &Form, scope: Scope) -> Scope {
        match self.scopes.get(&form.id) {
            Some(part) if scope == Scope::all() => part.clone(),
            _ => scope,
        }
    }
}

type InformerKey = (TypeId, String, String, String, String);

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("informers", &self.state().informers.len())
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache that lists and watches through this client.
    pub fn new(client: kube::Client) -> Cache {
        Cache::alone(client, false)
    }

    /// An empty cache for a test that owns the time ([`Clock::is_virtual`](crate::Clock::is_virtual)): its watches stay
    /// open for years.
    pub fn in_virtual_time(client: kube::Client) -> Cache {
        Cache::alone(client, true)
    }

    /// A cache without a manager.
    fn alone(client: kube::Client, is_virtual: bool) -> Cache {
        let (observers, metrics) = (Observers::default(), Metrics::new());
        Cache::observed(
            client,
            observers,
            metrics,
            Vec::new(),
            StoreOptions::default(),
            None,
            is_virtual,
        )
    }

    /// `cluster`: its name, where it is not the only one. `is_virtual`: the time is a test's.
    pub(crate) fn observed(
        kube: kube::Client,
        observers: Observers,
        metrics: Metrics,
        mut namespaces: Vec<String>,
        kept: StoreOptions,
        cluster: Option<&str>,
        is_virtual: bool,
    ) -> Cache {
        namespaces.sort();
        namespaces.dedup();
        Cache(Arc::new(Inner {
            kube,
            listeners: Listeners {
                observers,
                metrics,
                cluster: cluster.map(Arc::from),
                ..Listeners::default()
            },
            namespaces,
            kept,
            watching: watch::config(is_virtual),
            state: Mutex::default(),
        }))
    }

    /// Who records events on objects of this cluster, in a manager that runs.
    pub(crate) fn recorder(&self) -> Option<EventRecorder> {
        self.0.listeners.recorder.get().map(|(recorder, _)| recorder.clone())
    }

    /// The name of the cluster that it reads.
    pub(crate) fn cluster(&self) -> &str {
        self.0
            .listeners
            .cluster
            .as_deref()
            .unwrap_or(crate::client::HOME_CLUSTER)
    }

    /// A handle that keeps nothing alive.
    pub(crate) fn downgrade(&self) -> WeakCache {
        WeakCache(Arc::downgrade(&self.0))
    }

    /// Every living informer.
    pub(crate) fn informers(&self) -> Vec<SharedInformer> {
        self.state()
            .informers
            .values()
            .filter_map(SharedInformer::upgrade)
            .collect()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.listeners.metrics
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.0.listeners.observers
    }

    /// From now on events about objects are recorded here, under this name. The first call counts.
    pub(crate) fn record_events(&self, recorder: EventRecorder, component: &str) {
        self.0
            .listeners
            .recorder
            .get_or_init(|| (recorder, component.to_owned()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock can panic half way through a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The informer of all objects of a type. Call it inside a tokio runtime: the first call starts the watch. In a
    /// manager of several namespaces it shows the objects of all of them, and watches each.
    pub fn informer<K: Object>(&self) -> Informer<K> {
        self.informer_in(Scope::all())
    }

    /// The informer of a part of a type's objects. In a manager of some namespaces it is a part of those there.
    pub fn informer_in<K: Object>(&self, scope: Scope) -> Informer<K> {
        Informer::new(self.parts_in(&Form::of::<K>(), scope))
    }

    /// [`Cache::informer_in`] without the type.
    pub(crate) fn parts_in(&self, form: &Form, scope: Scope) -> KindInformers {
        let mut parts = self
            .bounded(form, self.0.kept.scope(form, scope))
            .into_iter()
            .map(|scope| self.start(form, scope));
        let first = parts.next().expect("there is at least one scope");
        KindInformers::new(first, parts)
    }

    /// The scope within each namespace of this cache, if the type has namespaces and the scope names none.
    fn bounded(&self, form: &Form, scope: Scope) -> Vec<Scope> {
        let namespaces = &self.0.namespaces;
        // Of a kind that is known at run time it is not known whether it has namespaces.
        if scope.namespace.is_some() || form.cluster_scoped || !form.says_kind || namespaces.is_empty() {
            return vec![scope];
        }
        let within = |namespace: &String| Scope {
            namespace: Some(namespace.clone()),
            ..scope.clone()
        };
        namespaces.iter().map(within).collect()
    }

    /// The informer of a kind that is known at run time. `K` says in which form: [`kube::core::DynamicObject`] for
    /// whole objects, `PartialObjectMeta<DynamicObject>` for metadata only (the server then sends nothing else).
    ///
    /// ```
    /// use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
    /// use kubewright::{Cache, Informer, Scope};
    ///
    /// fn owners(cache: &Cache, resource: &ApiResource) -> Informer<PartialObjectMeta<DynamicObject>> {
    ///     cache.informer_dynamic(resource, Scope::all())
    /// }
    /// ```
    pub fn informer_dynamic<K: AnyObject>(&self, resource: &ApiResource, scope: Scope) -> Informer<K> {
        let form = Form::for_resource::<K>(resource);
        Informer::new(KindInformers::new(self.start(&form, scope), []))
    }

    fn start(&self, form: &Form, scope: Scope) -> SharedInformer {
        let mut state = self.state();
        let key = key_of(form, &scope);
        if let Some(informer) = state.living(&key) {
            return informer;
        }
        let core = Arc::new(Core::new(form.clone(), scope, &self.0.kept, self.0.listeners.clone()));
        let (source, stop) = Stop::pair();
        let wire = Wire {
            kube: self.0.kube.clone(),
            metrics: self.metrics().clone(),
            core: core.clone(),
        };
        watch::spawn(wire, self.0.watching, stop);
        let informer = SharedInformer::new(core.clone(), source);
        state.informers.insert(key, informer.downgrade());
        let target: Weak<dyn ReceiptTarget> = Arc::downgrade(&(core as Arc<dyn ReceiptTarget>));
        let named = (form.resource.group.clone(), form.resource.plural.clone());
        let targets = state.targets.entry(named).or_default();
        targets.retain(|target| target.strong_count() > 0);
        targets.push(target);
        informer
    }

    /// The informer of all objects of a type, kept alive as long as the cache.
    pub fn pinned<K: Object>(&self) -> Informer<K> {
        Informer::new(self.pinned_of(&Form::of::<K>()))
    }

    /// [`Cache::pinned`] without the type.
    pub(crate) fn pinned_of(&self, form: &Form) -> KindInformers {
        let parts = self.parts_in(form, Scope::all());
        let mut state = self.state();
        for informer in parts.iter() {
            let key = key_of(form, informer.scope());
            state.pinned.entry(key).or_insert_with(|| informer.clone());
        }
        drop(state);
        parts
    }

    /// The informer of all objects of a type, if it was started.
    pub fn existing<K: Object>(&self) -> Option<Informer<K>> {
        self.existing_of(&Form::of::<K>()).map(Informer::new)
    }

    /// [`Cache::existing`] without the type.
    pub(crate) fn existing_of(&self, form: &Form) -> Option<KindInformers> {
        let state = self.state();
        let scopes = self.bounded(form, self.0.kept.scope(form, Scope::all()));
        let mut parts = scopes
            .iter()
            .map(|scope| state.living(&key_of(form, scope)))
            .collect::<Option<Vec<_>>>()?;
        let first = parts.remove(0);
        Some(KindInformers::new(first, parts))
    }

    fn targets(&self, resource: &ApiResource) -> Vec<Arc<dyn ReceiptTarget>> {
        let state = self.state();
        let targets = state.targets.get(&(resource.group.clone(), resource.plural.clone()));
        targets.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// A write was acknowledged.
    pub(crate) fn arm(&self, resource: &ApiResource, written: &Written<'_>) {
        for target in self.targets(resource) {
            target.wrote(written);
        }
    }

    /// A delete was acknowledged, and the object is gone.
    pub(crate) fn arm_deleted(&self, resource: &ApiResource, gone: &Gone<'_>) {
        for target in self.targets(resource) {
            target.deleted(gone);
        }
    }

    /// The outcome of a write is not known. The empty name stands for one that the server was to choose.
    pub(crate) fn arm_unknown(&self, resource: &ApiResource, key: &ObjectKey) {
        for target in self.targets(resource) {
            target.unknown(key);
        }
    }
}

impl State {
    fn living(&self, key: &InformerKey) -> Option<SharedInformer> {
        self.informers.get(key).and_then(SharedInformer::upgrade)
    }
}

fn key_of(form: &Form, scope: &Scope) -> InformerKey {
    let ApiResource {
        group, version, plural, ..
    } = &form.resource;
    (
        form.id,
        group.clone(),
        version.clone(),
        plural.clone(),
        scope.to_string(),
    )
}
