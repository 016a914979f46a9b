//! From events to keys: which key a change of which object leads to, and why.
//!
//! Invariants: both states of a modification are mapped, so that an object that changes hands wakes both owners; deletions reach the owner,
//! also those that were not seen, because the store passes on the last known object; one bad owner reference does not hide the others;
//! owners are matched by group and kind, not by version; a cluster-scoped owner has one key whatever namespace its children live in.

use std::any::TypeId;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, ObjectMeta};
use kubewright_engine::Event;
use kubewright_engine::queue::{Merge, Priority};

use crate::cache::{Cache, Scope, Shared};
use crate::cause::{Cause, CauseKind, Causes};
use crate::form::{Cached, Form, typed_event, typed_ref};
use crate::object::{Object, ObjectRef, group_of};
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
    /// The informer of the controller's own kind.
    pub(crate) own: Shared,
}

/// What a kind is to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Owns,
    Watches,
}

/// One `owns` or `watches`.
pub(crate) struct Source {
    form: Form,
    kind: Kind,
    keys: Keys,
}

type Map = Arc<dyn Fn(&Any) -> Vec<Request> + Send + Sync>;

/// From an object of another kind to keys.
enum Keys {
    /// The object of the controller's kind that controls it.
    OfOwner,
    /// What a function says.
    Mapped(Map),
    /// Every object of the controller's kind.
    All,
}

/// An object of any kind.
type Any = dyn Cached + 'static;

type Passes = Arc<dyn Fn(&Event<Any>) -> bool + Send + Sync>;

/// The predicates of a controller, by kind.
#[derive(Default)]
pub(crate) struct Predicates(Vec<(TypeId, String, Passes)>);

impl Predicates {
    pub(crate) fn add<K: Object>(&mut self, predicate: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) {
        let passes = Arc::new(move |event: &Event<Any>| predicate(&typed_event(event)));
        self.0.push((TypeId::of::<K>(), K::kind(&()).into_owned(), passes));
    }

    /// All predicates of a kind as one.
    pub(crate) fn of(&self, kind: TypeId) -> Passes {
        let all: Vec<Passes> = self
            .0
            .iter()
            .filter(|(id, _, _)| *id == kind)
            .map(|(_, _, passes)| passes.clone())
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
    fn owner_of(&self, meta: &ObjectMeta) -> Option<Request> {
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
pub(crate) fn feed_self(informer: &Shared, passes: Passes, sink: Sink) {
    feed(informer, passes, sink, |event| {
        vec![request_of(event.object().metadata())]
    });
}

impl Source {
    /// Objects that an object of the controller's kind controls.
    pub(crate) fn owned<C: Object>() -> Source {
        Source::new::<C>(Keys::OfOwner)
    }

    /// Objects that a function turns into keys.
    pub(crate) fn mapped<W: Object>(map: impl Fn(&W) -> Vec<Request> + Send + Sync + 'static) -> Source {
        Source::new::<W>(Keys::Mapped(Arc::new(move |object| map(typed_ref(object)))))
    }

    /// Objects whose change concerns every object of the controller's kind.
    pub(crate) fn all_of<W: Object>() -> Source {
        Source::new::<W>(Keys::All)
    }

    fn new<W: Object>(keys: Keys) -> Source {
        Source {
            form: Form::of::<W>(),
            kind: Kind::of::<W>(),
            keys,
        }
    }

    pub(crate) fn type_id(&self) -> TypeId {
        self.form.id
    }

    pub(crate) fn related(&self) -> (Relation, Kind) {
        let relation = match self.keys {
            Keys::OfOwner => Relation::Owns,
            Keys::Mapped(_) | Keys::All => Relation::Watches,
        };
        (relation, self.kind.clone())
    }

    /// Feeds the queue from the informer of the kind, and answers it: it lives as long as somebody holds it.
    pub(crate) fn start(self, wiring: &Wiring<'_>) -> Shared {
        let informer = wiring.cache.shared_in(&self.form, Scope::all());
        let (passes, sink) = (wiring.predicates.of(self.form.id), wiring.sink.clone());
        match self.keys {
            Keys::OfOwner => {
                let owner = wiring.owner.clone();
                feed(&informer, passes, sink, move |event| {
                    each_state(event)
                        .filter_map(|object| owner.owner_of(object.metadata()))
                        .collect()
                });
            }
            Keys::Mapped(map) => feed(&informer, passes, sink, move |event| {
                each_state(event).flat_map(|object| map(object)).collect()
            }),
            Keys::All => {
                let own = wiring.own.core().clone();
                feed(&informer, passes, sink, move |_| own.keys());
            }
        }
        informer
    }
}

fn request_of(meta: &ObjectMeta) -> Request {
    Request::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// The new state and, for a modification, the old one.
fn each_state(event: &Event<Any>) -> impl Iterator<Item = &Any> {
    let old = match event {
        Event::Modified { old, .. } => Some(&**old),
        _ => None,
    };
    std::iter::once(&**event.object()).chain(old)
}

fn feed(
    informer: &Shared,
    passes: Passes,
    sink: Sink,
    keys: impl Fn(&Event<Any>) -> Vec<Request> + Send + Sync + 'static,
) {
    let resource = informer.resource().clone();
    informer.add_handler(Arc::new(move |event| {
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
    }));
}

fn cause_of(resource: &ApiResource, event: &Event<Any>) -> Cause {
    let object = ObjectRef::new(resource, event.object().metadata());
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
                owner
                    .owner_of(&pod(references).metadata)
                    .map(|key| key.to_string())
                    .as_deref(),
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
        let (old, new): (Arc<Any>, Arc<Any>) = (Arc::new(pod(vec![])), Arc::new(pod(vec![])));
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
