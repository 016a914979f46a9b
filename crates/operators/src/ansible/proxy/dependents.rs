//! Watches of what roles have made: a change that no run made itself wakes the owner.
//!
//! A watch begins with the first object of a kind that a run makes, or sees again after a restart. Creations and changes of
//! the status alone wake nobody, as in operator-lib (`DependentPredicate`); nor does the state that a run of that owner
//! wrote itself, as far as the answer to the write was here first.
//!
//! Reads of such kinds are answered from the watch. Invariant: never with a state from before a write that went through
//! the proxy; in doubt the API server is asked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kubewright::{Cache, Event, Informer, Request, Scope, Waker};

use super::owner::owners_of;
use super::target::Target;

type Kind = (String, String, String);

/// A kind that is watched.
struct Watched {
    informers: Vec<Informer<DynamicObject>>,
    own: Arc<Mutex<OwnWrites>>,
}

/// What the watch of a kind must have seen before it answers.
#[derive(Default)]
struct OwnWrites {
    /// The newest version that was written.
    version: u64,
    /// Objects that were deleted, or written with an unknown outcome, until they are gone.
    uncertain: HashSet<(Option<String>, String)>,
    /// Too much happened: the API server is asked.
    gave_up: bool,
}

fn lock(own: &Mutex<OwnWrites>) -> MutexGuard<'_, OwnWrites> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watches of one controller.
pub struct Dependents {
    kind: GroupVersionKind,
    namespaced: bool,
    waker: Waker,
    cache: Cache,
    /// The namespaces that are watched; none means all.
    namespaces: Vec<String>,
    watched: Mutex<BTreeMap<Kind, Watched>>,
    written: Arc<Written>,
}

impl std::fmt::Debug for Dependents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dependents({})", self.kind.kind)
    }
}

/// The last state of each object that a run wrote, and whose run it was.
#[derive(Default)]
struct Written(Mutex<HashMap<String, (String, Request)>>);

impl Written {
    /// As many are remembered; what is forgotten costs a run.
    const MOST: usize = 10_000;

    fn all(&self) -> MutexGuard<'_, HashMap<String, (String, Request)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, uid: &str, version: &str, by: Request) {
        let mut all = self.all();
        if all.len() >= Written::MOST {
            all.clear();
        }
        all.insert(uid.to_owned(), (version.to_owned(), by));
    }

    /// Whose run wrote exactly this state.
    fn writer(&self, object: &DynamicObject) -> Option<Request> {
        let (uid, version) = (
            object.metadata.uid.as_deref()?,
            object.metadata.resource_version.as_deref()?,
        );
        let all = self.all();
        let (written, by) = all.get(uid)?;
        (written == version).then(|| by.clone())
    }

    fn forget(&self, uid: Option<&str>) {
        if let Some(uid) = uid {
            self.all().remove(uid);
        }
    }
}

impl Dependents {
    /// Of the controller of a kind, whose keys `waker` wakes.
    #[must_use]
    pub fn new(
        kind: GroupVersionKind,
        namespaced: bool,
        waker: Waker,
        cache: Cache,
        namespaces: Vec<String>,
    ) -> Dependents {
        Dependents {
            kind,
            namespaced,
            waker,
            cache,
            namespaces,
            watched: Mutex::default(),
            written: Arc::default(),
        }
    }

    /// Watches a kind, if it is not watched yet. Call it inside a tokio runtime.
    pub(super) fn watch(&self, resource: &ApiResource, namespaced: bool) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.contains_key(&key) {
            return;
        }
        tracing::info!(owner = %self.kind.kind, kind = %resource.kind, "what the role has made is watched");
        let scopes = match namespaced && !self.namespaces.is_empty() {
            true => self.namespaces.iter().map(Scope::namespace).collect(),
            false => vec![Scope::all()],
        };
        let own = Arc::<Mutex<OwnWrites>>::default();
        let informers = scopes.into_iter().map(|scope| {
            let informer = self.cache.informer_dynamic::<DynamicObject>(resource, scope);
            informer.add_handler(self.handler(resource, own.clone()));
            informer
        });
        let informers = informers.collect();
        watched.insert(key, Watched { informers, own });
    }

    /// The object of a request, as its watch shows it, unless the API server may have a newer one that a run wrote.
    pub(super) fn read(&self, target: &Target) -> Option<DynamicObject> {
        let name = target.name.as_deref()?;
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = watched.get(&(target.group.clone(), target.version.clone(), target.plural.clone()))?;
        let own = lock(&watched.own);
        if own.gave_up || own.uncertain.contains(&(target.namespace.clone(), name.to_owned())) {
            return None;
        }
        let shows = |informer: &&Informer<DynamicObject>| {
            let scope = &informer.scope().namespace;
            scope.is_none() || *scope == target.namespace
        };
        let informer = watched
            .informers
            .iter()
            .find(shows)
            .filter(|informer| informer.is_synced())?;
        let store = informer.store();
        let reached: u64 = store.resource_version()?.parse().ok()?;
        let found = store
            .get(target.namespace.as_deref(), name)
            .filter(|_| reached >= own.version)?;
        let mut object = (*found).clone();
        let resource = informer.resource();
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        Some(object)
    }

    /// A request has written something of a kind: an object in this version, or what is not known.
    pub(super) fn wrote(&self, target: &Target, version: Option<&str>) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watched) = watched.get(&(target.group.clone(), target.version.clone(), target.plural.clone())) else {
            return;
        };
        let mut own = lock(&watched.own);
        match (version.and_then(|version| version.parse().ok()), &target.name) {
            (Some(version), _) => own.version = own.version.max(version),
            (None, Some(name)) if own.uncertain.len() < Written::MOST => {
                own.uncertain.insert((target.namespace.clone(), name.clone()));
            }
            (None, _) => own.gave_up = true,
        }
    }

    /// A run has written this state of an object.
    pub(super) fn note_write(&self, uid: &str, version: &str, by: Request) {
        self.written.note(uid, version, by);
    }

    fn handler(
        &self,
        resource: &ApiResource,
        own: Arc<Mutex<OwnWrites>>,
    ) -> impl Fn(&Event<DynamicObject>) + Send + Sync + 'static {
        let (owner, namespaced, waker) = (self.kind.clone(), self.namespaced, self.waker.clone());
        let (written, kind) = (self.written.clone(), resource.kind.clone());
        move |event| {
            let (object, what) = match event {
                Event::Added { .. } => return,
                Event::Modified { old, new } if !differs(old, new) => return,
                Event::Modified { new, .. } => (new, "changed"),
                Event::Deleted { object, .. } => {
                    written.forget(object.metadata.uid.as_deref());
                    let meta = &object.metadata;
                    let key = (meta.namespace.clone(), meta.name.clone().unwrap_or_default());
                    lock(&own).uncertain.remove(&key);
                    (object, "was deleted")
                }
            };
            let writer = written.writer(object);
            let meta = &object.metadata;
            let name = meta.name.as_deref().unwrap_or_default();
            let reason = match &meta.namespace {
                Some(namespace) => format!("{kind} {namespace}/{name} {what}"),
                None => format!("{kind} {name} {what}"),
            };
            for key in owners_of(meta, &owner, namespaced) {
                if Some(&key) != writer.as_ref() {
                    wake(&waker, key, &reason);
                }
            }
        }
    }
}

fn wake(waker: &Waker, key: Request, reason: &str) {
    if waker.try_wake(key.clone(), reason).is_err() {
        // No change is lost: one waits for its place.
        let (waker, reason) = (waker.clone(), reason.to_owned());
        tokio::spawn(async move {
            waker.wake(key, reason).await;
        });
    }
}

/// Whether more than the status and the book-keeping of the server differ.
fn differs(old: &DynamicObject, new: &DynamicObject) -> bool {
    let meta = |object: &DynamicObject| {
        let mut meta = object.metadata.clone();
        (meta.resource_version, meta.managed_fields) = (None, None);
        meta
    };
    let rest = |object: &DynamicObject| match object.data.as_object() {
        Some(fields) => fields
            .iter()
            .filter(|(name, _)| *name != "status")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        None => serde_json::Map::new(),
    };
    meta(old) != meta(new) || rest(old) != rest(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_of_the_status_alone_do_not_count() {
        let object = |version: &str, replicas: u64, ready: u64, label: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "d", "resourceVersion": version, "labels": {"l": label}, "managedFields": [{"manager": version}]},
                "spec": {"replicas": replicas}, "status": {"ready": ready},
            }))
            .expect("an object")
        };
        let before = object("1", 1, 0, "a");
        let check = |after: DynamicObject, expected: bool| assert_eq!(differs(&before, &after), expected, "{after:?}");
        check(object("2", 1, 1, "a"), false);
        check(object("2", 2, 0, "a"), true);
        check(object("2", 1, 0, "b"), true);
    }
}
