//! The cache: one watch and one store for each resource of a cluster, shared by all its users (controller-runtime's
//! `cache.Cache`).
//!
//! An informer is a view of such a store: a type (whole objects, metadata only, dynamic) and a scope. Stores are made
//! for the union of what their views need; where that is not known before the first list, they become wider
//! (`shared.rs`). Two things have a store of their own, because a store cannot be read in both ways: another *version*
//! of a resource, which has other fields, and a scope that only the server can judge ([`Scope::is_judged_here`]). And
//! each namespace has one, as long as no view needs all of them: the right to list all may be missing.
//!
//! Invariants: SI10 one watch for each of these, counted by reference; an object that several stores hold is never
//! older in one of them than in an event of another; C8 a kind that cannot be listed affects only its readers; C2 an
//! object that was read is immutable. Objects are cached without `metadata.managedFields`, which are up to half of an
//! object and which no controller reads; a write without them does not change the server's. Objects are kept as text
//! (`crate::form::packed`).
//!
//! - `informer.rs`: the informer,
//! - `core.rs`: the same without its type,
//! - `shared.rs`: the store that views share,
//! - `part.rs`: the share of a view in its changes,
//! - `coverage.rs`: what a store holds and a view needs,
//! - `handlers.rs`: handlers that may be slow,
//! - `watch.rs`: the task that lists and watches,
//! - `wire.rs`: requests and decoding,
//! - `change.rs`: the notice for a handler of keys,
//! - `scope.rs`: which objects,
//! - `kind_informers.rs`: several namespaces,
//! - `store.rs`: reading. Which writes a store does not show yet is decided by the engine's receipts.

mod change;
pub(crate) mod collector;
mod core;
mod coverage;
mod handlers;
mod informer;
mod kind_informers;
mod part;
mod scope;
mod shared;
mod store;
mod transform;
mod watch;
mod wire;

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};

pub use self::change::{Change, ChangeKind};
pub use self::informer::{Health, Informer, SYNC_TIMEOUT, Unreadable};
pub use self::scope::Scope;
pub use self::store::{CONTROLLER_UID, Store};
pub use kubewright_engine::HandlerId;
use kubewright_engine::ObjectKey;

pub(crate) use self::core::Core;
use self::core::WatchGuard;
pub(crate) use self::core::{EngineStore, Listed, Objects, SharedInformer, filed, matching, orphans, owned_by};
use self::coverage::{Content, Coverage};
pub(crate) use self::kind_informers::{Keys, KindInformers};
use self::part::Part;
use self::shared::{Family, Listeners, SharedStore, StoreGuard};
pub(crate) use self::shared::{Gone, Written};
pub(crate) use self::store::KubeMeta;
pub(crate) use self::transform::Transforms;
use self::watch::Watching;
pub(crate) use self::wire::decode_page;
use crate::clock::{Clock, Entropy, Env};
use crate::error::{Error, Result};
use crate::events::EventRecorder;
use crate::form::Form;
use crate::form::packed::Budget;
use crate::metrics::Metrics;
use crate::object::{AnyObject, Object};
use crate::observe::Observers;
use crate::request::HOME_CLUSTER;
use crate::stop::Stop;
use crate::watch as watch_channel;

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
    /// Time and chance.
    env: Env,
    /// How many are still to say what they need, before the first list.
    declaring: watch_channel::Sender<usize>,
    /// What controllers have said that they read.
    reads: Mutex<BTreeMap<TypeId, Scope>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cache does not keep an informer alive.
    informers: BTreeMap<InformerKey, Weak<WatchGuard>>,
    /// Informers that reads have started live as long as the cache.
    pinned: BTreeMap<InformerKey, SharedInformer>,
    /// Every living store by group, version and plural.
    stores: BTreeMap<(String, String, String), Vec<Weak<StoreGuard>>>,
    /// Every living store by group and plural, for receipts: the version does not matter, it is the same object.
    families: BTreeMap<(String, String), Family>,
    /// The kinds of which was said that nobody has declared to read them.
    undeclared: BTreeSet<(String, String)>,
}

/// How objects are kept.
#[derive(Clone, Default)]
pub(crate) struct StoreOptions {
    /// How much text of decoded objects each informer keeps.
    pub(crate) decoded: Budget,
    pub(crate) transforms: Transforms,
    /// Of these types a part only.
    pub(crate) scopes: BTreeMap<TypeId, Scope>,
    /// Whether a read that nobody has declared is an error.
    pub(crate) refuses_undeclared: bool,
}

impl StoreOptions {
    /// Of a type that is held in part everything is that part.
    fn scope(&self, form: &Form, scope: Scope) -> Scope {
        match self.scopes.get(&form.id) {
            Some(part) if scope == Scope::all() => part.clone(),
            _ => scope,
        }
    }

    /// How much of each object a type needs.
    fn content(&self, form: &Form) -> Content {
        match self.transforms.of(form.id) {
            _ if form.metadata_only => Content::Metadata,
            Some(_) => Content::Transformed(form.id),
            None => Content::Whole,
        }
    }
}

/// As long as it lives, no watch of a cache begins: what its users need is still being said.
pub(crate) struct Declaring(Cache);

impl Drop for Declaring {
    fn drop(&mut self) {
        self.0.0.declaring.send_modify(|count| *count -= 1);
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
        Cache::alone(client, Env::default())
    }

    /// An empty cache for a test that owns time and chance. Where the time is a test's
    /// ([`Clock::is_virtual`](crate::Clock::is_virtual)), its watches stay open for years.
    pub fn in_env(client: kube::Client, clock: Arc<dyn Clock>, entropy: Entropy) -> Cache {
        Cache::alone(client, Env { clock, entropy })
    }

    /// A cache without a manager.
    fn alone(client: kube::Client, env: Env) -> Cache {
        let (observers, metrics) = (Observers::default(), Metrics::new());
        Cache::observed(
            client,
            observers,
            metrics,
            Vec::new(),
            StoreOptions::default(),
            None,
            env,
        )
    }

    /// `cluster`: its name, where it is not the only one.
    pub(crate) fn observed(
        kube: kube::Client,
        observers: Observers,
        metrics: Metrics,
        mut namespaces: Vec<String>,
        kept: StoreOptions,
        cluster: Option<&str>,
        env: Env,
    ) -> Cache {
        namespaces.sort();
        namespaces.dedup();
        Cache(Arc::new(Inner {
            kube,
            listeners: Listeners {
                observers,
                metrics,
                cluster: cluster.map(Arc::from),
                handles_inline: env.clock.is_virtual(),
                ..Listeners::default()
            },
            env,
            namespaces,
            kept,
            declaring: watch_channel::Sender::new(0),
            reads: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Who records events on objects of this cluster, in a manager that runs.
    pub(crate) fn recorder(&self) -> Option<EventRecorder> {
        self.0.listeners.recorder.get().map(|(recorder, _)| recorder.clone())
    }

    /// The name of the cluster that it reads.
    pub(crate) fn cluster(&self) -> &str {
        self.0.listeners.cluster.as_deref().unwrap_or(HOME_CLUSTER)
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

    /// From now on it notes what is applied under this name, of objects that come from the server.
    pub(crate) fn note_applies_of(&self, field_manager: &str) {
        self.0.listeners.managers.add(field_manager);
    }

    /// Time and chance of its users.
    pub(crate) fn env(&self) -> &Env {
        &self.0.env
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
        if scope.namespace.is_some() || form.cluster_scoped || !form.scope_is_known || namespaces.is_empty() {
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

    /// [`Cache::informer_dynamic`] of objects that change all the time: a watch that says nothing for so long is opened
    /// anew.
    pub(crate) fn informer_that_is_never_silent(
        &self,
        resource: &ApiResource,
        scope: Scope,
        silence: Duration,
    ) -> Informer<DynamicObject> {
        let form = Form::for_resource::<DynamicObject>(resource);
        let informer = self.start_watching(&form, scope, Some(silence));
        Informer::new(KindInformers::new(informer, []))
    }

    /// No watch begins before the answer is dropped. So the first list of a kind is already for all that its users
    /// need.
    pub(crate) fn declaring(&self) -> Declaring {
        self.0.declaring.send_modify(|count| *count += 1);
        Declaring(self.clone())
    }

    /// A controller reads this part of a kind; of several parts of one type, all that they have in common is read.
    pub(crate) fn declare_read(&self, form: &Form, scope: Scope) -> KindInformers {
        let mut reads = self.0.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |scope| Coverage {
            content: Content::Whole,
            scope,
        };
        let joined = match reads.remove(&form.id) {
            Some(known) => of(known).join(&of(scope)).scope,
            None => scope,
        };
        reads.insert(form.id, joined);
        drop(reads);
        self.pinned_of(form)
    }

    /// Whether reads of a type can be answered without another watch, or a wider one.
    pub(crate) fn is_read(&self, form: &Form) -> bool {
        let content = self.0.kept.content(form);
        let scopes = self.bounded(form, self.read_scope(form));
        let mut state = self.state();
        scopes.into_iter().all(|scope| {
            let needs = Coverage { content, scope };
            let store = state.store_for(&form.resource, &needs);
            store.is_some_and(|guard| guard.store.wanted().covers(&needs))
        })
    }

    /// The informer that a read is answered from. When no controller has declared that read, and no store has its objects, its
    /// watch starts now; that is said once.
    ///
    /// # Errors
    /// Where such reads are refused.
    pub(crate) fn read_of(&self, form: &Form) -> Result<KindInformers> {
        let managed = self.0.listeners.recorder.get().is_some();
        if managed && self.existing_of(form).is_none() && !self.is_read(form) {
            let ApiResource {
                group, plural, kind, ..
            } = &form.resource;
            if self.0.kept.refuses_undeclared {
                return Err(Error::Configuration(format!(
                    "no controller declares that it reads {kind}: add .reads::<{kind}>(Scope::all()) to the controller or \
                     the operator, or a narrower scope, or read with Client::live; in production this read starts a watch \
                     of all its objects"
                )));
            }
            if self.state().undeclared.insert((group.clone(), plural.clone())) {
                tracing::warn!(
                    resource = self.0.listeners.name(&form.resource, &self.read_scope(form)),
                    "no controller declares that it reads {kind}: this first read starts a watch of all its objects, or \
                     makes one wider; add .reads::<{kind}>(Scope::all()) to the controller, or a narrower scope, or read \
                     with Client::live"
                );
            }
        }
        Ok(self.pinned_of(form))
    }

    /// The part of a type that reads are answered from.
    fn read_scope(&self, form: &Form) -> Scope {
        let reads = self.0.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let declared = reads.get(&form.id).cloned();
        self.0.kept.scope(form, declared.unwrap_or_default())
    }

    fn start(&self, form: &Form, scope: Scope) -> SharedInformer {
        self.start_watching(form, scope, None)
    }

    fn start_watching(&self, form: &Form, scope: Scope, silence: Option<Duration>) -> SharedInformer {
        let mut state = self.state();
        let key = key_of(form, &scope);
        if let Some(informer) = state.living(&key) {
            return informer;
        }
        let needs = Coverage {
            content: self.0.kept.content(form),
            scope,
        };
        let guard = match state.store_for(&form.resource, &needs) {
            Some(guard) => guard,
            None => self.start_store(&mut state, &form.resource, needs.clone(), silence),
        };
        guard.store.decoders.add(form, self.0.kept.transforms.of(form.id));
        let core = Core::new(form.clone(), Part::new(form.id, needs), guard.store.clone());
        let informer = SharedInformer::new(Arc::new(core), guard);
        state.informers.retain(|_, informer| informer.strong_count() > 0);
        state.informers.insert(key, informer.downgrade());
        informer
    }

    fn start_store(
        &self,
        state: &mut State,
        resource: &ApiResource,
        wanted: Coverage,
        silence: Option<Duration>,
    ) -> Arc<StoreGuard> {
        let family = state.family(resource);
        let listeners = self.0.listeners.clone();
        let store = SharedStore::new(resource, wanted, &self.0.kept, listeners, family.clone());
        let store = Arc::new(store);
        family.join(&store);
        let (source, stop) = Stop::pair();
        let watching = Watching {
            kube: self.0.kube.clone(),
            metrics: self.metrics().clone(),
            store: store.clone(),
            config: watch::config(self.0.env.clock.is_virtual(), silence),
            entropy: self.0.env.entropy.clone(),
        };
        watch::spawn(watching, self.0.declaring.subscribe(), stop);
        let guard = Arc::new(StoreGuard {
            store,
            caught_up: Default::default(),
            _stop: source,
        });
        state
            .stores
            .entry(store_key(resource))
            .or_default()
            .push(Arc::downgrade(&guard));
        guard
    }

    /// The informer of all objects of a type, kept alive as long as the cache.
    pub fn pinned<K: Object>(&self) -> Informer<K> {
        Informer::new(self.pinned_of(&Form::of::<K>()))
    }

    /// [`Cache::pinned`] without the type.
    pub(crate) fn pinned_of(&self, form: &Form) -> KindInformers {
        let parts = self.parts_in(form, self.read_scope(form));
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
        let scopes = self.bounded(form, self.read_scope(form));
        let state = self.state();
        let mut parts = scopes
            .iter()
            .map(|scope| state.living(&key_of(form, scope)))
            .collect::<Option<Vec<_>>>()?;
        let first = parts.remove(0);
        Some(KindInformers::new(first, parts))
    }

    fn stores(&self, resource: &ApiResource) -> Vec<Arc<SharedStore>> {
        let named = (resource.group.clone(), resource.plural.clone());
        let family = self.state().families.get(&named).cloned();
        family.map(|family| family.members()).unwrap_or_default()
    }

    /// A write was acknowledged.
    pub(crate) fn arm(&self, resource: &ApiResource, written: &Written<'_>) {
        for store in self.stores(resource) {
            store.wrote(written);
        }
    }

    /// A delete was acknowledged, and the object is gone.
    pub(crate) fn arm_deleted(&self, resource: &ApiResource, gone: &Gone<'_>) {
        for store in self.stores(resource) {
            store.deleted(gone);
        }
    }

    /// The outcome of a write is not known. The empty name stands for one that the server was to choose.
    pub(crate) fn arm_unknown(&self, resource: &ApiResource, key: &ObjectKey) {
        for store in self.stores(resource) {
            store.unknown(key);
        }
    }
}

impl State {
    fn living(&self, key: &InformerKey) -> Option<SharedInformer> {
        self.informers.get(key).and_then(SharedInformer::upgrade)
    }

    fn family(&mut self, resource: &ApiResource) -> Family {
        self.families.retain(|_, family| !family.members().is_empty());
        let named = (resource.group.clone(), resource.plural.clone());
        self.families.entry(named).or_default().clone()
    }

    /// The store that a view which needs this is to share.
    fn store_for(&mut self, resource: &ApiResource, needs: &Coverage) -> Option<Arc<StoreGuard>> {
        self.stores.retain(|_, all| {
            all.retain(|store| store.strong_count() > 0);
            !all.is_empty()
        });
        let all = self.stores.get(&store_key(resource)).into_iter().flatten();
        let mut all: Vec<Arc<StoreGuard>> = all.filter_map(Weak::upgrade).collect();
        all.retain(|guard| guard.store.may_serve(needs));
        // One of all namespaces, if there is one.
        all.sort_by_key(|guard| guard.store.wanted().scope.namespace.is_some());
        all.into_iter().next()
    }
}

fn store_key(resource: &ApiResource) -> (String, String, String) {
    (
        resource.group.clone(),
        resource.version.clone(),
        resource.plural.clone(),
    )
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
