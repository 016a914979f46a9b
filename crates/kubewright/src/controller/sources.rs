//! From events to keys: which key a change of which object leads to, and why.
//!
//! Invariants: both states of a modification are mapped, so that an object that changes hands wakes both owners; deletions reach the owner,
//! also those that were not seen, because the store passes on the last known object; one bad owner reference does not hide the others;
//! owners are matched by group and kind, not by version; a cluster-scoped owner has one key whatever namespace its children live in.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ApiResource;
use kubewright_engine::Event;
use kubewright_engine::queue::{Merge, Priority};

use super::{Anything, Feed};
use crate::cache::{Cache, Informer};
use crate::cause::{Cause, CauseKind, Causes};
use crate::object::{Object, ObjectRef, api_resource, group_of};
use crate::queue::Queue;
use crate::request::Request;
use crate::webhook::Kind;

impl Merge for Causes {
    fn merge(&mut self, later: Causes) {
        for cause in later.into_vec() {
            self.push(cause);
        }
    }
}

/// Where keys go.
#[derive(Clone)]
pub(crate) struct Sink(pub(crate) Queue<Request, Causes>);

impl Sink {
    fn enqueue(&self, request: Request, priority: Priority, cause: Cause) {
        let mut causes = Causes::default();
        causes.push(cause);
        self.0.add(request, priority, causes);
    }
}

/// Where a source sends what, about whom.
pub(crate) struct Wiring<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) predicates: &'a Predicates,
    pub(crate) sink: Sink,
    pub(crate) owner: OwnerKind,
    pub(crate) all_keys: Arc<dyn Fn() -> Vec<Request> + Send + Sync>,
}

/// What a kind is to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Owns,
    Watches,
}

/// One `owns` or `watches`.
pub(crate) trait Source: Send {
    fn type_id(&self) -> TypeId;
    fn related(&self) -> (Relation, Kind);
    fn start(self: Box<Self>, wiring: &Wiring<'_>) -> Box<dyn Feed>;
}

type Passes<K> = Arc<dyn Fn(&Event<K>) -> bool + Send + Sync>;

/// The predicates of a controller, by kind.
#[derive(Default)]
pub(crate) struct Predicates(Vec<(TypeId, String, Anything)>);

impl Predicates {
    pub(crate) fn add<K: Object>(&mut self, predicate: Passes<K>) {
        self.0
            .push((TypeId::of::<K>(), K::kind(&()).into_owned(), Box::new(predicate)));
    }

    /// All predicates of a kind as one.
    pub(crate) fn of<K: Object>(&self) -> Passes<K> {
        let all: Vec<Passes<K>> = self
            .0
            .iter()
            .filter_map(|(_, _, any)| any.downcast_ref::<Passes<K>>().cloned())
            .collect();
        Arc::new(move |event| all.iter().all(|passes| passes(event)))
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
        reference.controller == Some(true)
            && reference.kind == self.kind
            && group_of(&reference.api_version) == self.group
    }

    /// The key of the controller of an object, when it is of this kind.
    fn owner_of<K: Resource>(&self, object: &K) -> Option<Request> {
        let meta = object.meta();
        let reference = meta
            .owner_references
            .iter()
            .flatten()
            .find(|reference| self.names(reference))?;
        let namespace = if self.cluster_scoped {
            None
        } else {
            meta.namespace.as_deref()
        };
        Some(Request::new(namespace, &reference.name))
    }
}

/// The objects of the controller's own kind.
pub(crate) fn feed_self<K: Object>(informer: &Informer<K>, passes: Passes<K>, sink: Sink) {
    feed(informer, passes, sink, |event| vec![Request::of(&**event.object())]);
}

/// Objects that an object of the controller's kind controls.
pub(crate) struct Owned<C>(PhantomData<fn() -> C>);

impl<C> Default for Owned<C> {
    fn default() -> Self {
        Owned(PhantomData)
    }
}

impl<C: Object> Source for Owned<C> {
    fn type_id(&self) -> TypeId {
        TypeId::of::<C>()
    }

    fn related(&self) -> (Relation, Kind) {
        (Relation::Owns, Kind::of::<C>())
    }

    fn start(self: Box<Self>, wiring: &Wiring<'_>) -> Box<dyn Feed> {
        let informer = wiring.cache.informer::<C>();
        let owner = wiring.owner.clone();
        feed(
            &informer,
            wiring.predicates.of::<C>(),
            wiring.sink.clone(),
            move |event| each_state(event).filter_map(|object| owner.owner_of(object)).collect(),
        );
        Box::new(informer)
    }
}

type Map<W> = Arc<dyn Fn(&W) -> Vec<Request> + Send + Sync>;

/// Objects that a function turns into keys.
pub(crate) struct Mapped<W> {
    pub(crate) map: Map<W>,
}

impl<W: Object> Source for Mapped<W> {
    fn type_id(&self) -> TypeId {
        TypeId::of::<W>()
    }

    fn related(&self) -> (Relation, Kind) {
        (Relation::Watches, Kind::of::<W>())
    }

    fn start(self: Box<Self>, wiring: &Wiring<'_>) -> Box<dyn Feed> {
        let informer = wiring.cache.informer::<W>();
        let map = self.map;
        feed(
            &informer,
            wiring.predicates.of::<W>(),
            wiring.sink.clone(),
            move |event| each_state(event).flat_map(|object| map(object)).collect(),
        );
        Box::new(informer)
    }
}

/// Objects whose change concerns every object of the controller's kind.
pub(crate) struct AllOf<W>(PhantomData<fn() -> W>);

impl<W> Default for AllOf<W> {
    fn default() -> Self {
        AllOf(PhantomData)
    }
}

impl<W: Object> Source for AllOf<W> {
    fn type_id(&self) -> TypeId {
        TypeId::of::<W>()
    }

    fn related(&self) -> (Relation, Kind) {
        (Relation::Watches, Kind::of::<W>())
    }

    fn start(self: Box<Self>, wiring: &Wiring<'_>) -> Box<dyn Feed> {
        let informer = wiring.cache.informer::<W>();
        let all_keys = wiring.all_keys.clone();
        feed(&informer, wiring.predicates.of::<W>(), wiring.sink.clone(), move |_| {
            all_keys()
        });
        Box::new(informer)
    }
}

/// The new state and, for a modification, the old one.
fn each_state<K>(event: &Event<K>) -> impl Iterator<Item = &K> {
    let old = match event {
        Event::Modified { old, .. } => Some(&**old),
        _ => None,
    };
    std::iter::once(&**event.object()).chain(old)
}

fn feed<K: Object>(
    informer: &Informer<K>,
    passes: Passes<K>,
    sink: Sink,
    keys: impl Fn(&Event<K>) -> Vec<Request> + Send + Sync + 'static,
) {
    let resource = api_resource::<K>();
    informer.add_handler(move |event| {
        if !passes(event) {
            return;
        }
        let mut keys = keys(event);
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return;
        }
        let cause = cause_of(&resource, event);
        // What was there at the start can wait for what happens now.
        let priority = if matches!(event, Event::Added { initial: true, .. }) {
            Priority::Low
        } else {
            Priority::Normal
        };
        for key in keys {
            sink.enqueue(key, priority, cause.clone());
        }
    });
}

fn cause_of<K: Object>(resource: &ApiResource, event: &Event<K>) -> Cause {
    let object = ObjectRef::new(resource, event.object().meta());
    match event {
        Event::Added { initial: true, .. } => Cause::about(CauseKind::InitialList, object),
        Event::Added { .. } => Cause::about(CauseKind::Created, object),
        Event::Modified { old, new } => Cause::changed(object, old.clone(), new.clone()),
        Event::Deleted { .. } => Cause::about(CauseKind::Deleted, object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn owned(api_version: &str, kind: &str, name: &str, controller: bool) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            controller: Some(controller),
            ..Default::default()
        }
    }

    fn pod(owners: Vec<OwnerReference>) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.owner_references = Some(owners);
        pod
    }

    #[test]
    fn owners_are_found_by_group_and_kind_and_only_when_they_control() {
        let deployments = OwnerKind {
            group: "apps".into(),
            kind: "Deployment".into(),
            cluster_scoped: false,
        };
        let nodes = OwnerKind {
            group: String::new(),
            kind: "Node".into(),
            cluster_scoped: true,
        };
        let check = |owner: &OwnerKind, references: Vec<OwnerReference>, expected: Option<&str>| {
            assert_eq!(
                owner.owner_of(&pod(references)).map(|key| key.to_string()).as_deref(),
                expected
            );
        };
        check(
            &deployments,
            vec![owned("apps/v1", "Deployment", "a", true)],
            Some("ns/a"),
        );
        check(
            &deployments,
            vec![owned("apps/v1beta2", "Deployment", "a", true)],
            Some("ns/a"),
        );
        check(&deployments, vec![owned("apps/v1", "Deployment", "a", false)], None);
        check(
            &deployments,
            vec![owned("example.com/v1", "Deployment", "a", true)],
            None,
        );
        check(
            &deployments,
            vec![
                owned("a/b/c", "Broken", "x", true),
                owned("apps/v1", "Deployment", "a", true),
            ],
            Some("ns/a"),
        );
        check(&nodes, vec![owned("v1", "Node", "n", true)], Some("n"));
    }

    #[test]
    fn both_states_of_a_modification_are_mapped() {
        let (old, new) = (Arc::new(pod(vec![])), Arc::new(pod(vec![])));
        assert_eq!(each_state(&Event::Modified { old, new: new.clone() }).count(), 2);
        assert_eq!(
            each_state(&Event::Deleted {
                key: "x".into_key(),
                object: new,
                final_state_unknown: true
            })
            .count(),
            1
        );
    }

    trait IntoKey {
        fn into_key(self) -> kubewright_engine::ObjectKey;
    }
    impl IntoKey for &str {
        fn into_key(self) -> kubewright_engine::ObjectKey {
            kubewright_engine::ObjectKey::cluster(self)
        }
    }
}
