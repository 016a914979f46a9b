//! Which kinds there are, and a metadata-only watch of each: the eyes of the garbage collector.
//!
//! Kinds are learned from discovery, at the start and when a CustomResourceDefinition changes (the real collector only
//! asks every 30 s). Of a kind that is served in several versions the most stable one is watched; events are not
//! watched, nothing owns them and they are many.
//!
//! Invariant: an object is in the graph under one kind only, however many groups and versions serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kubewright::kube::discovery::{Discovery, Scope as KindScope, verbs};
use kubewright::{Cache, Client, Event, Informer, Result, Scope};

/// A kind that can be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
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
    watched: Mutex<BTreeMap<Key, (Kind, Informer<Metadata>)>>,
}

impl Kinds {
    pub(crate) fn new(cache: Cache, listener: Listener) -> Kinds {
        Kinds {
            cache,
            listener,
            watched: Mutex::default(),
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, (Kind, Informer<Metadata>)>> {
        // Nothing under this lock can panic half way through a change.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks discovery, watches new kinds and forgets removed ones. Objects of a forgotten kind leave the graph. Answers
    /// whether there is anything new.
    pub(crate) async fn refresh(&self, client: &Client) -> Result<bool> {
        let found = discover(client).await?;
        let stale: Vec<(Kind, Informer<Metadata>)> = {
            let mut watched = self.watched();
            let keep = |key: &Key, kind: &Kind| found.get(key) == Some(kind);
            let gone: Vec<Key> = watched
                .iter()
                .filter(|(key, (kind, _))| !keep(key, kind))
                .map(|(key, _)| key.clone())
                .collect();
            gone.iter().filter_map(|key| watched.remove(key)).collect()
        };
        for (kind, informer) in &stale {
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
                let informer = self.watch(&kind);
                self.watched().insert(key, (kind, informer));
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

    /// Whether every watch has delivered its first list: before that, a missing dependent proves nothing.
    pub(crate) fn all_synced(&self) -> bool {
        self.watched().values().all(|(_, informer)| informer.is_synced())
    }

    /// The kind of that group and name.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.watched()
            .get(&(group.to_owned(), kind.to_owned()))
            .map(|(kind, _)| kind.clone())
    }
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
