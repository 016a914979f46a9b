//! Watches of the kinds that the releases of a chart have, which begin when the first of them is met.
//!
//! Only metadata is kept, and only of objects with a chart's label. A change wakes the owner that the object names.
//! Invariants: a change that a chart cannot see (a status, a lease of time) triggers no reconcile; an object that changes hands
//! wakes both; what was there when a watch began is looked at by the reconcile that began it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::kube::core::{ApiResource, DynamicObject, Expression, GroupVersionKind, ObjectMeta, PartialObjectMeta};
use kubewright::{Client, Event, Informer, Request, Scope, Source, Waker, kube};

use super::owner::{CHART, annotated, group_kind};
use crate::kinds::{Served, look_up};

type Meta = PartialObjectMeta<DynamicObject>;

/// How long the first reconcile that meets a kind waits for its watch.
const FIRST: Duration = Duration::from_secs(5);
/// How many wake-ups may wait.
const ROOM: usize = 1 << 16;

/// The dependents of one kind of owners.
pub(super) struct Dependents {
    owner: ApiResource,
    charts: Vec<String>,
    namespaces: Vec<String>,
    watches: bool,
    waker: Waker,
    kinds: Mutex<BTreeMap<String, Kind>>,
}

#[derive(Clone)]
struct Kind {
    served: Served,
    informers: Vec<Informer<Meta>>,
}

impl Dependents {
    /// Objects of these charts, in these namespaces or in all; `watches` says whether their changes wake anybody.
    pub(super) fn new(owner: ApiResource, charts: Vec<String>, namespaces: Vec<String>, watches: bool) -> Dependents {
        Dependents {
            owner,
            charts,
            namespaces,
            watches,
            waker: Waker::with_capacity(ROOM),
            kinds: Mutex::default(),
        }
    }

    /// What wakes the controller of the owners.
    pub(super) fn source(&self) -> Source {
        self.waker.source()
    }

    fn known(&self, kind: &GroupVersionKind) -> Option<Kind> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.get(&key(kind)).cloned()
    }

    /// What the server says of a kind. Its watch begins, if there shall be one.
    pub(super) async fn kind(&self, client: &Client, kind: &GroupVersionKind) -> Result<Served, kube::Error> {
        if let Some(known) = self.known(kind) {
            return Ok(known.served);
        }
        let served = look_up(client.kube(), kind).await?;
        let informers = match self.watches {
            true => self.watch(client, &served),
            false => Vec::new(),
        };
        for informer in &informers {
            if let Err(error) = informer.synced_within(FIRST).await {
                tracing::warn!(kind = kind.kind, %error, "its changes trigger no reconcile until it can be watched");
            }
        }
        let found = Kind {
            served: served.clone(),
            informers,
        };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(key(kind)).or_insert(found);
        Ok(served)
    }

    /// The version in which the watch has an object last; `None` when there is no watch, or no such object in it.
    pub(super) fn version(&self, kind: &GroupVersionKind, namespace: Option<&str>, name: &str) -> Option<String> {
        let known = self.known(kind)?;
        let informers = known.informers.iter().filter(|informer| informer.is_synced());
        let mut found = informers.filter_map(|informer| informer.store().get(namespace, name));
        found.next()?.metadata.resource_version.clone()
    }

    fn watch(&self, client: &Client, served: &Served) -> Vec<Informer<Meta>> {
        let selector = [Expression::In(CHART.to_owned(), self.charts.iter().cloned().collect())];
        let everywhere = Scope::all().labels(selector.into_iter().collect());
        let scopes: Vec<Scope> = match served.namespaced && !self.namespaces.is_empty() {
            false => vec![everywhere],
            true => {
                let within = |namespace: &String| Scope {
                    namespace: Some(namespace.clone()),
                    ..everywhere.clone()
                };
                self.namespaces.iter().map(within).collect()
            }
        };
        let start = |scope: Scope| {
            let informer = client.cache().informer_dynamic::<Meta>(&served.resource, scope);
            let owners = Owners {
                kind: self.owner.kind.clone(),
                group: self.owner.group.clone(),
                dependent: served.resource.kind.clone(),
                waker: self.waker.clone(),
            };
            informer.add_handler(move |event| owners.wake(event));
            informer
        };
        scopes.into_iter().map(start).collect()
    }
}

fn key(kind: &GroupVersionKind) -> String {
    format!("{}/{}/{}", kind.group, kind.version, kind.kind)
}

/// Wakes the owners that objects of a kind name.
struct Owners {
    kind: String,
    group: String,
    dependent: String,
    waker: Waker,
}

impl Owners {
    fn wake(&self, event: &Event<Meta>) {
        let (states, what): (Vec<Arc<Meta>>, &str) = match event {
            Event::Added { .. } => return,
            Event::Modified { old, new } if !matters(&old.metadata, &new.metadata) => return,
            Event::Modified { old, new } => (vec![old.object(), new.object()], "changed"),
            Event::Deleted { object, .. } => (vec![object.object()], "was deleted"),
        };
        let mut woken: Vec<Request> = Vec::new();
        for state in &states {
            let name = state.metadata.name.as_deref().unwrap_or_default();
            for request in self.of(&state.metadata) {
                if woken.contains(&request) {
                    continue;
                }
                let reason = format!("{} {name} {what}", self.dependent);
                if self.waker.try_wake(request.clone(), reason).is_err() {
                    tracing::warn!(owner = %request, "too many changes wait; it is looked at when its time comes");
                }
                woken.push(request);
            }
        }
    }

    fn of(&self, meta: &ObjectMeta) -> Vec<Request> {
        let references = meta.owner_references.iter().flatten();
        let mut owners: Vec<Request> = references
            .filter(|owner| owner.kind == self.kind && group(&owner.api_version) == self.group)
            .map(|owner| Request::new(meta.namespace.as_deref(), &owner.name))
            .collect();
        let kind = ApiResource {
            group: self.group.clone(),
            version: String::new(),
            api_version: String::new(),
            kind: self.kind.clone(),
            plural: String::new(),
        };
        if let Some((namespace, name)) = annotated(meta, &group_kind(&kind)) {
            owners.push(Request::new(namespace.as_deref(), &name));
        }
        owners
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether a change is one of what a chart says. Kinds that count the generations of their spec do not with changes of
/// their status.
fn matters(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    let plain = |meta: &ObjectMeta| {
        (
            meta.labels.clone(),
            meta.annotations.clone().map(|mut annotations| {
                // Controllers of Kubernetes count in it.
                annotations.remove("deployment.kubernetes.io/revision");
                annotations
            }),
            meta.owner_references.clone(),
            meta.finalizers.clone(),
            meta.deletion_timestamp.clone(),
        )
    };
    match (old.generation, new.generation) {
        (Some(before), Some(after)) => before != after || plain(old) != plain(new),
        _ => old.resource_version != new.resource_version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).expect("metadata")
    }

    #[test]
    fn which_changes_matter() {
        let check = |old: Value, new: Value, expected: bool| {
            assert_eq!(matters(&meta(old.clone()), &meta(new.clone())), expected, "{old} {new}");
        };
        let state = json!({"generation": 1, "resourceVersion": "1", "labels": {"a": "b"}});
        check(
            state.clone(),
            json!({"generation": 1, "resourceVersion": "2", "labels": {"a": "b"}}),
            false,
        );
        check(
            state.clone(),
            json!({"generation": 2, "resourceVersion": "2", "labels": {"a": "b"}}),
            true,
        );
        check(state.clone(), json!({"generation": 1, "resourceVersion": "2"}), true);
        let counted =
            json!({"generation": 1, "labels": {"a": "b"}, "annotations": {"deployment.kubernetes.io/revision": "2"}});
        let before =
            json!({"generation": 1, "labels": {"a": "b"}, "annotations": {"deployment.kubernetes.io/revision": "1"}});
        check(before, counted, false);
        check(json!({"resourceVersion": "1"}), json!({"resourceVersion": "2"}), true);
    }

    #[test]
    fn owners_are_named_by_reference_or_annotation() {
        let owners = Owners {
            kind: "Nginx".to_owned(),
            group: "demo.example.com".to_owned(),
            dependent: "ConfigMap".to_owned(),
            waker: Waker::new(),
        };
        let check = |value: Value, expected: &[&str]| {
            let told: Vec<String> = owners
                .of(&meta(value.clone()))
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(told, expected, "{value}");
        };
        let owner = |version: &str, kind: &str| json!({"namespace": "n", "ownerReferences": [{"apiVersion": version, "kind": kind, "name": "web", "uid": "1"}]});
        check(owner("demo.example.com/v1", "Nginx"), &["n/web"]);
        check(owner("demo.example.com/v2", "Nginx"), &["n/web"]);
        check(owner("other.example.com/v1", "Nginx"), &[]);
        check(owner("demo.example.com/v1", "Other"), &[]);
        let annotations = json!({"operator-sdk/primary-resource": "m/web", "operator-sdk/primary-resource-type": "Nginx.demo.example.com"});
        check(json!({"annotations": annotations}), &["m/web"]);
        check(json!({}), &[]);
    }
}
