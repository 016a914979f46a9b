//! Which kinds there are, and a metadata-only watch of each: the eyes of the garbage collector.
//!
//! Kinds are learned from discovery, at the start and when a CustomResourceDefinition changes (the real collector only
//! asks every 30 s). Of a kind that is served in several versions the most stable one is watched; events are not
//! watched, nothing owns them and they are many.
//!
//! Each kind is for itself: one that cannot be listed (its conversion webhook is down) is waited for as long as the real
//! collector waits for all, and then said to be missing; the others do not depend on it.
//!
//! Where no kind comes or goes and most have no objects, as in a fork of a cluster, the kinds may be given instead.
//!
//! Invariant: an object is in the graph under one kind only, however many groups and versions serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kubewright::kube::discovery::{Discovery, Scope as KindScope, verbs};
use kubewright::{Cache, Client, Event, Health, Informer, Result, Scope};
use tokio::time::Instant;

/// A kind that can be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

/// How long the first list of a kind is waited for (`initialSyncTimeout`).
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A kind with its watch.
struct Watched {
    kind: Kind,
    informer: Informer<Metadata>,
    since: Instant,
    /// Whether it was said that it is not waited for any more.
    told: bool,
}

/// A kind whose first list has not come.
pub(crate) struct Pending {
    pub(crate) kind: Kind,
    /// For how long it is waited for already.
    pub(crate) waited: Duration,
    /// Why the last try failed.
    pub(crate) why: Option<String>,
}

/// Group and kind.
type Key = (String, String);
type Metadata = PartialObjectMeta<DynamicObject>;

/// A change of an object of any kind.
pub(crate) enum ObjectEvent<'a> {
    Put(&'a Kind, &'a Metadata),
    Gone(&'a Metadata),
}

type Listener = Arc<dyn Fn(ObjectEvent<'_>) + Send + Sync>;

/// The kinds and their watches.
pub(crate) struct Kinds {
    cache: Cache,
    listener: Listener,
    watched: Mutex<BTreeMap<Key, Watched>>,
    /// In place of those that discovery knows.
    given: Option<Given>,
}

/// Kinds, and whether their objects have namespaces.
pub type Given = Arc<[(ApiResource, bool)]>;

impl Kinds {
    pub(crate) fn new(cache: Cache, listener: Listener, given: Option<Given>) -> Kinds {
        Kinds {
            cache,
            listener,
            watched: Mutex::default(),
            given,
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Watched>> {
        // Nothing under this lock can panic half way through a change.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks discovery, watches new kinds and forgets removed ones. Objects of a forgotten kind leave the graph. Answers
    /// whether there is anything new.
    pub(crate) async fn refresh(&self, client: &Client) -> Result<bool> {
        let found = match &self.given {
            Some(given) => known(given),
            None => discover(client).await?,
        };
        let stale: Vec<Watched> = {
            let mut watched = self.watched();
            let keep = |key: &Key, kind: &Kind| found.get(key) == Some(kind);
            let gone: Vec<Key> = watched
                .iter()
                .filter(|(key, watched)| !keep(key, &watched.kind))
                .map(|(key, _)| key.clone())
                .collect();
            gone.iter().filter_map(|key| watched.remove(key)).collect()
        };
        for Watched { kind, informer, .. } in &stale {
            tracing::debug!(kind = %kind.resource.kind, group = %kind.resource.group, "kind is not served any more");
            for object in informer.store().list() {
                (self.listener)(ObjectEvent::Gone(&object));
            }
        }
        drop(stale);
        let mut news = false;
        for (key, kind) in found {
            if !self.watched().contains_key(&key) {
                news = true;
                let watched = Watched {
                    informer: self.watch(&kind),
                    kind,
                    since: Instant::now(),
                    told: false,
                };
                self.watched().insert(key, watched);
            }
        }
        Ok(news)
    }

    fn watch(&self, kind: &Kind) -> Informer<Metadata> {
        let informer = self.cache.informer_dynamic::<Metadata>(&kind.resource, Scope::all());
        let (listener, kind) = (self.listener.clone(), kind.clone());
        // The graph must know every state, and before the store's readers do.
        informer.add_inline_handler(move |event: &Event<Metadata>| match event {
            Event::Deleted { object, .. } => listener(ObjectEvent::Gone(object)),
            // A namesake in place of another object, seen as one change: the old one is gone.
            Event::Modified { old, new } if old.metadata.uid != new.metadata.uid => {
                listener(ObjectEvent::Gone(old));
                listener(ObjectEvent::Put(&kind, new));
            }
            other => listener(ObjectEvent::Put(&kind, other.object())),
        });
        informer
    }

    /// The kinds whose first list is waited for: before it, a missing dependent proves nothing. One that does not come
    /// is given up, which is logged.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        let mut watched = self.watched();
        let late = watched.values_mut().filter(|one| !one.informer.is_synced());
        let pending = late.filter_map(|one| {
            let pending = Pending {
                kind: one.kind.clone(),
                waited: one.since.elapsed(),
                why: match one.informer.health() {
                    Health::Degraded { reason } => Some(reason),
                    _ => None,
                },
            };
            if pending.waited < PATIENCE {
                return Some(pending);
            }
            if !std::mem::replace(&mut one.told, true) {
                tracing::warn!(
                    kind = %one.kind.resource.kind, group = %one.kind.resource.group, error = pending.why,
                    "objects of this kind cannot be listed; the garbage collector goes on without them"
                );
            }
            None
        });
        pending.collect()
    }

    /// The kind of that group and name.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.watched()
            .get(&(group.to_owned(), kind.to_owned()))
            .map(|watched| watched.kind.clone())
    }
}

fn known(given: &Given) -> BTreeMap<Key, Kind> {
    let kind = |(resource, namespaced): &(ApiResource, bool)| {
        let (resource, namespaced) = (resource.clone(), *namespaced);
        let key = (resource.group.clone(), resource.kind.clone());
        (key, Kind { resource, namespaced })
    };
    given.iter().map(kind).collect()
}

/// Everything that can be listed, watched and deleted, each kind in its most stable version.
async fn discover(client: &Client) -> Result<BTreeMap<Key, Kind>> {
    let discovery = Discovery::new(client.kube().clone()).run_aggregated().await?;
    let mut kinds = BTreeMap::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            let able: BTreeSet<&str> = capabilities.operations.iter().map(String::as_str).collect();
            if resource.kind == "Event"
                || ![verbs::LIST, verbs::WATCH, verbs::DELETE]
                    .iter()
                    .all(|verb| able.contains(verb))
            {
                continue;
            }
            let key = (resource.group.clone(), resource.kind.clone());
            kinds.insert(
                key,
                Kind {
                    resource,
                    namespaced: capabilities.scope == KindScope::Namespaced,
                },
            );
        }
    }
    Ok(kinds)
}
