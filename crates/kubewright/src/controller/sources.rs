//! From events to keys: which key a change of which object leads to, and why.
//!
//! Invariants: both states of a modification are mapped, so that an object that changes hands wakes both owners;
//! deletions reach the owner, also those that were not seen, because the store passes on the last known object; one bad
//! owner reference does not hide the others; owners are matched by group and kind, not by version; a cluster-scoped
//! owner has one key, in whichever namespace its children live.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ApiResource;
use kubewright_engine::dispatch::Handler;
use kubewright_engine::queue::Priority;
use kubewright_engine::{Event, HandlerId};
use tokio::task::JoinSet;

use super::all_keys::{AllKeys, Panics};
use super::indexes::{ActiveIndex, Values};
use super::key_queue::KeyQueue;
use super::mapper::{LookUp, Mapper, SourceError};
use crate::cache::{Core, Health, Keys, KindInformers, Scope, SharedInformer};
use crate::cause::{Cause, CauseKind, Causes, Room};
use crate::client::Client;
use crate::clock::Entropy;
use crate::controller::waker::Waker;
use crate::error::{Error, Result};
use crate::form::{self, Cached, Form, typed_event};
use crate::object::{AnyObject, group_of};
use crate::request::Request;
use crate::webhook::Kind;

/// What a source needs to start: the queue of its controller, and the names in messages.
pub(crate) struct SourceContext<'a> {
    pub(crate) controller: &'a str,
    /// The cluster of the controller's own kind.
    pub(crate) cluster: &'a str,
    /// Reads for mappings.
    pub(crate) client: &'a Client,
    pub(crate) predicates: &'a Predicates,
    pub(crate) queue: KeyQueue,
    pub(crate) owner: OwnerKind,
    /// The controller's own kind.
    pub(crate) own: KindInformers,
    pub(super) all: AllKeys,
    pub(super) panics: Panics,
}

/// A source that fills the queue. Its handlers go when this is dropped.
pub(crate) struct ActiveSource {
    origin: Origin,
    /// Of the controller's own objects.
    _index: Option<ActiveIndex>,
    /// Of a mapping that takes its time.
    error: Option<SourceError>,
    tasks: JoinSet<()>,
}

/// Where a source's changes come from.
enum Origin {
    /// In several namespaces there are several.
    Informers(Vec<(SharedInformer, HandlerId)>),
    Waker(Waker, u64),
    Timer,
}

/// The health of a source. It keeps no watch alive.
pub(crate) struct SourceHealth {
    core: Weak<Core>,
    error: Option<SourceError>,
}

impl SourceHealth {
    /// An informer without a mapping.
    pub(crate) fn of(informer: &SharedInformer) -> SourceHealth {
        SourceHealth {
            core: Arc::downgrade(informer.core()),
            error: None,
        }
    }

    /// Why it has not been read yet.
    pub(crate) fn missing(&self) -> Option<String> {
        let core = self.core.upgrade()?;
        if core.is_synced() {
            return None;
        }
        Some(match core.health() {
            Health::Degraded { reason } => format!("{}: {reason}", core.name),
            _ => format!("{}: the API server has not answered the list yet", core.name),
        })
    }

    /// Its present problems.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let core = self.core.upgrade();
        let watching = core.as_ref().and_then(|core| match core.health() {
            Health::Degraded { reason } => Some(reason),
            _ => None,
        });
        let mapping = self.error.as_ref().and_then(SourceError::get);
        let name = core.map(|core| core.name.clone()).unwrap_or_default();
        [watching, mapping]
            .into_iter()
            .flatten()
            .map(move |problem| format!("{name}: {problem}"))
    }
}

impl ActiveSource {
    fn of(origin: Origin) -> ActiveSource {
        ActiveSource {
            origin,
            _index: None,
            error: None,
            tasks: JoinSet::new(),
        }
    }

    /// How it fares, if there is something to read.
    pub(crate) fn watched(&self) -> impl Iterator<Item = SourceHealth> {
        self.informers().map(|informer| SourceHealth {
            error: self.error.clone(),
            ..SourceHealth::of(informer)
        })
    }

    /// The informers that feed it.
    pub(crate) fn informers(&self) -> impl Iterator<Item = &SharedInformer> {
        self.handlers().iter().map(|(informer, _)| informer)
    }

    fn handlers(&self) -> &[(SharedInformer, HandlerId)] {
        match &self.origin {
            Origin::Informers(informers) => informers,
            Origin::Waker(..) | Origin::Timer => &[],
        }
    }
}

impl Drop for ActiveSource {
    fn drop(&mut self) {
        self.tasks.abort_all();
        for (informer, handler) in self.handlers() {
            informer.remove_handler(*handler);
        }
        if let Origin::Waker(waker, connection) = &self.origin {
            waker.disconnect(*connection);
        }
    }
}

/// The relation of a kind to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Owns,
    Watches,
}

/// Something besides the controller's own kind that leads to reconciles: a [`Watch`](crate::Watch), a
/// [`Waker`](crate::Waker) or a timer.
pub struct Source(Declared);

enum Declared {
    Watch(Box<Watching>),
    Waker(Waker),
    Timer(Duration),
}

/// Objects of another kind and the keys that they wake.
pub(super) struct Watching {
    pub(super) form: Form,
    pub(super) kind: Kind,
    pub(super) scope: Scope,
    /// Unless it is the controller's own.
    pub(super) cluster: Option<String>,
    pub(super) filters: Vec<Filter>,
    pub(super) priority: Priority,
    pub(super) mapping: Mapping,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Declared::Watch(watching) => write!(f, "Source({} {})", watching.form.resource.kind, watching.scope),
            Declared::Waker(waker) => write!(f, "Source({waker:?})"),
            Declared::Timer(period) => write!(f, "Source(every {period:?})"),
        }
    }
}

pub(super) type Map = Arc<dyn Fn(&Any) -> Vec<Request> + Send + Sync>;

/// From an object of another kind to the keys that it wakes.
pub(super) enum Mapping {
    /// The object of the controller's kind that controls it, or all that own it.
    Owner { any: bool },
    /// The keys that a function returns.
    Mapped(Map),
    /// The keys that an async function returns.
    LookedUp(LookUp),
    /// Every object of the controller's kind.
    All,
    /// The objects of the controller's kind that an index files under one of its values.
    ByIndex(ByIndex),
}

/// An index of the controller's own objects, and what a watched object asks it for.
pub(super) struct ByIndex {
    pub(super) own: TypeId,
    /// Under which values an object of the controller's kind is found.
    pub(super) filed: Values,
    /// Which of them a watched object concerns.
    pub(super) asked: Values,
}

/// An object of any kind.
pub(super) type Any = dyn Cached + 'static;

pub(super) type Filter = Arc<dyn Fn(&Event<Any>) -> bool + Send + Sync>;

/// The predicates of a controller, by kind.
#[derive(Default)]
pub(crate) struct Predicates(Vec<(TypeId, String, Filter)>);

impl Predicates {
    pub(crate) fn add<K: AnyObject>(&mut self, predicate: impl Fn(&form::Event<K>) -> bool + Send + Sync + 'static) {
        let filter = Arc::new(move |event: &Event<Any>| typed_event(event).is_none_or(|event| predicate(&event)));
        let kind = std::any::type_name::<K>().rsplit("::").next().unwrap_or_default();
        self.0.push((TypeId::of::<K>(), kind.to_owned(), filter));
    }

    /// Whether there are any for a kind.
    pub(super) fn concern(&self, kind: TypeId) -> bool {
        self.0.iter().any(|(id, _, _)| *id == kind)
    }

    /// All predicates of a kind as one.
    pub(crate) fn of(&self, kind: TypeId) -> Filter {
        let all: Vec<Filter> = self
            .0
            .iter()
            .filter(|(id, _, _)| *id == kind)
            .map(|(_, _, filter)| filter.clone())
            .collect();
        Arc::new(move |event| all.iter().all(|filter| filter(event)))
    }

    /// The kinds of predicates that belong to no source.
    pub(crate) fn strays(&self, known: &[TypeId]) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(id, _, _)| !known.contains(id))
            .map(|(_, kind, _)| kind.as_str())
            .collect()
    }
}

/// The kind of the controller's own objects, as owner references name it.
#[derive(Debug, Clone)]
pub(crate) struct OwnerKind {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) cluster_scoped: bool,
}

impl OwnerKind {
    pub(crate) fn new(resource: &ApiResource, cluster_scoped: bool) -> OwnerKind {
        OwnerKind {
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            cluster_scoped,
        }
    }

    fn names(&self, reference: &OwnerReference) -> bool {
        reference.kind == self.kind && group_of(&reference.api_version) == self.group
    }

    /// The keys of the owners of an object that are of this kind: of the one that controls it, or of any.
    fn owners_of(&self, object: &Any, any: bool) -> Vec<Request> {
        let namespace = object.object_id().namespace.filter(|_| !self.cluster_scoped);
        let mut keys = Vec::new();
        object.with_owners(&mut |owners| {
            let named = owners
                .iter()
                .filter(|reference| (any || reference.controller == Some(true)) && self.names(reference));
            keys.extend(named.map(|reference| Request::new(namespace, &reference.name)));
        });
        keys
    }
}

/// The objects of the controller's own kind.
pub(super) fn start_own(own: &KindInformers, predicates: &Predicates, queue: KeyQueue, panics: Panics) -> ActiveSource {
    let kind = own.form().id;
    if predicates.concern(kind) {
        own.check_objects();
    }
    let keys = keys_of(queue, |event| Some(vec![request_of(&**event.object())]));
    subscribe(own, predicates.of(kind), Priority::NORMAL, panics, keys)
}

impl Source {
    /// Wakes every object of the controller's kind again and again, for changes that no watch reports
    /// (controller-runtime's `SyncPeriod`). Each object is up to a tenth of the period later, so that the objects are
    /// spread, and replicas and operators do not act in step. See [`Controller::resync`](crate::Controller::resync).
    pub fn every(period: Duration) -> Source {
        Source(Declared::Timer(period.max(SHORTEST)))
    }

    pub(super) fn watched(watching: Watching) -> Source {
        Source(Declared::Watch(Box::new(watching)))
    }

    pub(crate) fn woken(waker: Waker) -> Source {
        Source(Declared::Waker(waker))
    }

    pub(crate) fn type_id(&self) -> Option<TypeId> {
        match &self.0 {
            Declared::Watch(watching) => Some(watching.form.id),
            Declared::Waker(_) | Declared::Timer(_) => None,
        }
    }

    /// The cluster that it watches; `own` is the controller's.
    pub(crate) fn cluster<'a>(&'a self, own: &'a str) -> &'a str {
        match &self.0 {
            Declared::Watch(watching) => watching.cluster.as_deref().unwrap_or(own),
            Declared::Waker(_) | Declared::Timer(_) => own,
        }
    }

    /// The type of the controller's own objects, if it names one.
    pub(super) fn own_type(&self) -> Option<TypeId> {
        match &self.0 {
            Declared::Watch(watching) => match &watching.mapping {
                Mapping::ByIndex(filed) => Some(filed.own),
                _ => None,
            },
            Declared::Waker(_) | Declared::Timer(_) => None,
        }
    }

    /// Whether its objects name their owners in another cluster than the controller's, by owner references.
    pub(super) fn owns_elsewhere(&self) -> bool {
        matches!(&self.0, Declared::Watch(watching) if watching.cluster.is_some() && matches!(watching.mapping, Mapping::Owner { .. }))
    }

    pub(crate) fn related(&self) -> Option<(Relation, Kind)> {
        let Declared::Watch(watching) = &self.0 else {
            return None;
        };
        let relation = match watching.mapping {
            Mapping::Owner { .. } => Relation::Owns,
            Mapping::Mapped(_) | Mapping::LookedUp(_) | Mapping::All | Mapping::ByIndex(_) => Relation::Watches,
        };
        Some((relation, watching.kind.clone()))
    }

    /// Feeds the queue as long as the answer is held. Call it inside a tokio runtime. `position` is its own among the
    /// controller's sources.
    pub(crate) fn start(&self, context: &SourceContext<'_>, position: usize) -> Result<ActiveSource> {
        let (queue, own) = (context.queue.clone(), context.own.keys());
        Ok(match &self.0 {
            Declared::Watch(watching) => watching.start(context, position)?,
            Declared::Waker(waker) => {
                let connection = waker.connect(queue, own);
                ActiveSource::of(Origin::Waker(waker.clone(), connection))
            }
            Declared::Timer(period) => {
                let mut source = ActiveSource::of(Origin::Timer);
                let entropy = context.client.cache().env().entropy.clone();
                source.tasks.spawn(tick(*period, own, queue, entropy));
                source
            }
        })
    }
}

/// The shortest period of [`Source::every`].
const SHORTEST: Duration = Duration::from_millis(1);

async fn tick(period: Duration, own: Keys, queue: KeyQueue, entropy: Entropy) {
    loop {
        tokio::time::sleep(period).await;
        let causes = Causes::of(Cause::requested(format!("looked at every {period:?}")));
        for key in own.all() {
            let late = period.mul_f64((entropy.draw() >> 32) as f64 / f64::from(u32::MAX) / 10.0);
            queue.add_after(key, late, Priority::LOW, causes.clone());
        }
    }
}

impl Watching {
    /// Feeds the queue from the informer of the kind.
    fn start(&self, context: &SourceContext<'_>, position: usize) -> Result<ActiveSource> {
        let cluster = self.cluster.as_deref().unwrap_or(context.cluster);
        if cluster != context.cluster && matches!(self.mapping, Mapping::Owner { .. }) {
            return Err(Error::Configuration(format!(
                "controller {}: the owners of {} in cluster {cluster:?} are not in its own: an owner reference names an object of the same cluster; \
                 use Watch::map",
                context.controller, self.kind.kind
            )));
        }
        let client = context.client.cluster(cluster)?;
        let parts = client.cache().parts_in(&self.form, self.scope.clone());
        let maps = matches!(
            self.mapping,
            Mapping::Mapped(_) | Mapping::LookedUp(_) | Mapping::ByIndex(_)
        );
        if maps || !self.filters.is_empty() || context.predicates.concern(self.form.id) {
            parts.check_objects();
        }
        let (of_kind, of_source) = (context.predicates.of(self.form.id), self.filters.clone());
        let filter: Filter = Arc::new(move |event| of_kind(event) && of_source.iter().all(|filter| filter(event)));
        let (queue, priority, panics) = (context.queue.clone(), self.priority, context.panics.clone());
        Ok(match &self.mapping {
            Mapping::Owner { any } => {
                let (owner, any) = (context.owner.clone(), *any);
                let keys = move |event: &Event<Any>| {
                    let states = each_state(event);
                    Some(states.flat_map(|object| owner.owners_of(object, any)).collect())
                };
                subscribe(&parts, filter, priority, panics, keys_of(queue, keys))
            }
            Mapping::Mapped(map) => {
                let (catching, all, kind) = (panics.clone(), context.all.clone(), self.kind.kind.clone());
                let map = map.clone();
                let keys = move |event: &Event<Any>| {
                    let keys = || each_state(event).flat_map(|object| map(object)).collect();
                    let keys = catching.catch("mapping", &kind, keys);
                    keys.map_err(|cause| all.wake_after_panic(cause)).ok()
                };
                subscribe(&parts, filter, priority, panics, keys_of(queue, keys))
            }
            Mapping::ByIndex(ByIndex { filed, asked, .. }) => {
                let index = format!("{} {position}", context.controller);
                let active = ActiveIndex::start(&context.own, &index, filed, &panics, &context.all)?;
                let (catching, all, kind) = (panics.clone(), context.all.clone(), self.kind.kind.clone());
                let (own, asked) = (context.own.keys(), asked.clone());
                let keys = move |event: &Event<Any>| {
                    let values = || {
                        each_state(event)
                            .flat_map(|object| asked(object))
                            .collect::<BTreeSet<_>>()
                    };
                    let values = catching.catch("mapping", &kind, values);
                    let values = values.map_err(|cause| all.wake_after_panic(cause)).ok()?;
                    Some(values.iter().flat_map(|value| own.filed(&index, value)).collect())
                };
                let mut source = subscribe(&parts, filter, priority, panics, keys_of(queue, keys));
                source._index = Some(active);
                source
            }
            Mapping::All => {
                let (all, room) = (context.all.clone(), queue.room);
                let wake = move |event: &Event<Any>, passed: Passed<'_>| match passed.broken {
                    None => all.wake(passed.priority, cause_of(passed.resource, event, &room)),
                    Some(cause) => all.wake_after_panic(cause),
                };
                subscribe(&parts, filter, priority, panics, wake)
            }
            Mapping::LookedUp(map) => {
                let mut tasks = JoinSet::new();
                let name = format!("{}, {}", context.controller, self.kind.kind);
                let client = context.client.only_reading();
                let room = queue.room.clone();
                let mapper = Mapper::start(&name, map.clone(), client, queue, context.own.keys(), &mut tasks);
                let changes = mapper.sender();
                let put = move |event: &Event<Any>, passed: Passed<'_>| {
                    let cause = passed.broken.unwrap_or_else(|| cause_of(passed.resource, event, &room));
                    changes.put(event, passed.priority, cause);
                };
                let mut source = subscribe(&parts, filter, priority, panics, put);
                source.error = Some(mapper.last_error());
                source.tasks = tasks;
                source
            }
        })
    }
}

fn request_of(object: &Any) -> Request {
    let id = object.object_id();
    Request::new(id.namespace, id.name.unwrap_or_default())
}

/// For a modification the old state first, so that a function that remembers states ends with the new one.
fn each_state(event: &Event<Any>) -> impl Iterator<Item = &Any> {
    let old = match event {
        Event::Modified { old, .. } => Some(&**old),
        _ => None,
    };
    old.into_iter().chain(std::iter::once(&**event.object()))
}

/// A change that has passed the predicates, or in one of which a predicate has panicked.
struct Passed<'a> {
    priority: Priority,
    /// Of its object.
    resource: &'a ApiResource,
    /// The panic. A change that a predicate could not judge counts, and its keys are rate limited.
    broken: Option<Cause>,
}

/// Adds the keys that a change leads to, if they are known.
fn keys_of(
    queue: KeyQueue,
    keys: impl Fn(&Event<Any>) -> Option<Vec<Request>> + Send + Sync + 'static,
) -> impl Fn(&Event<Any>, Passed<'_>) + Send + Sync + 'static {
    move |event, passed| {
        let Some(mut keys) = keys(event) else { return };
        keys.sort();
        keys.dedup();
        if let Some(cause) = passed.broken {
            let causes = Causes::of(cause);
            return keys
                .into_iter()
                .for_each(|key| queue.add_rate_limited(key, causes.clone()));
        }
        // Most changes lead to one key; and for most handlers of a kind that many watch, to none.
        let Some(last) = keys.pop() else { return };
        let causes = match event {
            // It would be forgotten anyway.
            Event::Modified { .. } if queue.standby.is() => Causes::default(),
            _ => Causes::of(cause_of(passed.resource, event, &queue.room)),
        };
        for key in keys {
            queue.add(key, passed.priority, causes.clone());
        }
        queue.add(last, passed.priority, causes);
    }
}

/// Hands the changes that pass on.
fn subscribe(
    parts: &KindInformers,
    filter: Filter,
    urgency: Priority,
    panics: Panics,
    take: impl Fn(&Event<Any>, Passed<'_>) + Send + Sync + 'static,
) -> ActiveSource {
    let resource = parts.form().resource.clone();
    let handler: Handler<Any> = Arc::new(move |event| {
        let broken = match panics.catch("predicate", &resource.kind, || filter(event)) {
            Ok(false) => return,
            Ok(true) => None,
            Err(cause) => Some(cause),
        };
        // Objects of the first list can wait for present changes.
        let priority = match event {
            Event::Added { initial: true, .. } => urgency.min(Priority::LOW),
            _ => urgency,
        };
        let resource = &resource;
        take(
            event,
            Passed {
                priority,
                resource,
                broken,
            },
        );
    });
    let informers = parts
        .iter()
        .map(|part| (part.clone(), part.add_handler(handler.clone())));
    ActiveSource::of(Origin::Informers(informers.collect()))
}

fn cause_of(resource: &ApiResource, event: &Event<Any>, room: &Room) -> Cause {
    let object = event.object().object_id().reference(resource);
    match event {
        Event::Added { initial: true, .. } => Cause::about(CauseKind::InitialList, object),
        Event::Added { .. } => Cause::about(CauseKind::Created, object),
        Event::Modified { old, new } => Cause::changed(object, old, new, room),
        Event::Deleted { .. } => Cause::about(CauseKind::Deleted, object),
    }
}

#[cfg(test)]
mod tests;
