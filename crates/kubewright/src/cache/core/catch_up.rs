//! Whether the store of an informer shows everything that was written before a moment, for a replica that takes over the work of
//! another one: its caches may be warm and still be behind the writes of its predecessor.
//!
//! The API server is asked for a consistent list of metadata after that moment, page by page, until the store has come
//! to the list's resourceVersion or shows each of its objects. The list is of the store's own resource and of all that it holds, so that its
//! version can be compared with the store's (KEP-5504), which the version of the Lease need not be: Events may have an
//! etcd of their own, and another cluster has one. A kind that changes often passes the first page's version by itself;
//! of a quiet one, whose watch shows no version until the next bookmark, nothing is missing, and the first page says so
//! in most operators.
//!
//! Invariant: the store never goes back (RF1), so that what it has shown once needs no second look.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use kubewright_engine::reflector::ListPage;
use kubewright_engine::{ObjectKey, ResourceVersion};
use tokio::time::{Instant, sleep, timeout_at};

use super::shared_informer::SharedInformer;
use super::{Core, EngineStore};
use crate::cache::scope::Scope;
use crate::cache::shared::view_of;
use crate::error::{self, Chain};
use crate::form::Cached;

/// How long after a failed list the next one is sent.
const RETRY: Duration = Duration::from_secs(1);

/// Asks the API server for a page of metadata: of a scope, after a token.
pub(crate) type Pages<'a> =
    dyn Fn(Scope, Option<String>) -> BoxFuture<'a, error::Result<ListPage<dyn Cached>>> + Send + Sync + 'a;

impl SharedInformer {
    /// Resolves when the store shows everything that was written before `since`.
    ///
    /// # Errors
    /// Why it does not by `deadline`.
    pub(crate) async fn caught_up(&self, pages: &Pages<'_>, since: Instant, deadline: Instant) -> Result<(), String> {
        let late = || {
            let missing = "its watch has not delivered everything that was written before";
            Err(missing.to_owned())
        };
        // One check serves all controllers of a term.
        let Ok(mut caught_up) = timeout_at(deadline, self.guard().caught_up.lock()).await else {
            return late();
        };
        while caught_up.is_none_or(|at| at < since) {
            let began = Instant::now();
            let failure = match timeout_at(deadline, self.check(pages)).await {
                Ok(Ok(())) => {
                    *caught_up = Some(began);
                    continue;
                }
                Ok(Err(failure)) => failure,
                Err(_) => return late(),
            };
            if began + RETRY >= deadline {
                return Err(failure);
            }
            sleep(RETRY).await;
        }
        Ok(())
    }

    /// Compares the store with the server, and waits until nothing is missing.
    async fn check(&self, pages: &Pages<'_>) -> Result<(), String> {
        let core = self.core();
        // What the store holds, which may be more than this view: its other objects are compared, too.
        let coverage = core.store.read().coverage.clone();
        let scope = coverage.map_or_else(|| core.scope.clone(), |coverage| coverage.scope);
        let (mut listed, mut token) = (BTreeMap::new(), None);
        let mut newest: Option<ResourceVersion> = None;
        loop {
            let page = pages(scope.clone(), token).await;
            let page = page.map_err(|error| format!("it cannot be listed: {}", Chain(&error)))?;
            newest = newest.or(page.resource_version);
            if core.has_come_to(newest.as_ref()) {
                return Ok(());
            }
            for object in page.items {
                let id = object.object_id();
                if let (Some(name), Some(version)) = (id.name, id.version) {
                    listed.insert(ObjectKey::new(id.namespace, name), ResourceVersion::new(version));
                }
            }
            for object in page.unreadable {
                listed.extend(object.resource_version.map(|version| (object.key, version)));
            }
            token = page.continue_token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        let missing = Missing::of(core, listed);
        let look = || (core.has_come_to(newest.as_ref()) || missing.is_nothing(core)).then_some(());
        self.look(look).await.ok_or_else(|| "its informer has ended".to_owned())
    }
}

impl Core {
    fn has_come_to(&self, version: Option<&ResourceVersion>) -> bool {
        let contents = self.store.read();
        version.is_some_and(|version| contents.store.resource_version().is_some_and(|at| at.reached(version)))
    }
}

/// What a store lacks of a list.
struct Missing {
    /// Objects in newer versions.
    changed: Vec<(ObjectKey, ResourceVersion)>,
    /// Objects that are gone, with the version of the store.
    gone: Vec<(ObjectKey, Option<ResourceVersion>)>,
}

impl Missing {
    fn of(core: &Core, mut listed: BTreeMap<ObjectKey, ResourceVersion>) -> Missing {
        let contents = core.store.read();
        let store = &contents.store;
        let known = store
            .keys()
            .cloned()
            .chain(store.unreadable().map(|object| object.key.clone()));
        let known: Vec<ObjectKey> = known.collect();
        let gone = known.into_iter().filter(|key| !listed.contains_key(key));
        let gone = gone.map(|key| (key.clone(), version_of(store, &key))).collect();
        listed.retain(|key, version| !version_of(store, key).is_some_and(|at| at.reached(version)));
        Missing {
            changed: listed.into_iter().collect(),
            gone,
        }
    }

    fn is_nothing(&self, core: &Core) -> bool {
        let contents = core.store.read();
        let store = &contents.store;
        let shows = |(key, version): &(ObjectKey, ResourceVersion)| {
            version_of(store, key).is_some_and(|at| at.reached(version))
        };
        let differs = |(key, version): &(ObjectKey, Option<ResourceVersion>)| version_of(store, key) != *version;
        self.changed.iter().all(shows) && self.gone.iter().all(differs)
    }
}

/// The version in which a store knows an object, whether it can be decoded or not.
fn version_of(store: &EngineStore, key: &ObjectKey) -> Option<ResourceVersion> {
    match store.unreadable_by_name(key.namespace.as_deref(), &key.name) {
        Some(object) => object.resource_version.clone(),
        None => view_of(store, key).object?.version.map(ResourceVersion::new),
    }
}
