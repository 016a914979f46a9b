//! The clusters of a manager besides its own: those that it begins with, and those that join and leave while it runs.
//!
//! Invariants: each has a cache and a writer of events of its own, and one name; a cluster leaves only when no
//! controller works in it or watches it; when it leaves, its waiting events are still written, and its watches are
//! closed with the last client of it; at the manager's end all of them are stopped together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::stages::Group;
use crate::cache::{Cache, StoreOptions, collector};
use crate::client::Client;
use crate::clock::Env;
use crate::controller::EVERY_CLUSTER;
use crate::error::{Error, Result};
use crate::events::EventRecorder;
use crate::metrics::Metrics;
use crate::observe::Observers;
use crate::request::HOME_CLUSTER;
use crate::stop::Stop;

/// The parts that the clients of all clusters of a manager share.
pub(super) struct Common {
    /// The manager's.
    pub(super) name: String,
    pub(super) observers: Observers,
    pub(super) metrics: Metrics,
    pub(super) namespaces: Vec<String>,
    pub(super) kept: StoreOptions,
    pub(super) env: Env,
    pub(super) caches: collector::Caches,
}

impl Common {
    /// A client with a cache; `cluster` names one that is not the manager's own.
    pub(super) fn client(&self, kube: &kube::Client, cluster: Option<&str>) -> Client {
        let cache = Cache::observed(
            kube.clone(),
            self.observers.clone(),
            self.metrics.clone(),
            self.namespaces.clone(),
            self.kept.clone(),
            cluster,
            self.env.clone(),
        );
        self.caches.add(&cache);
        Client::new(kube.clone(), cache).of_manager(&self.name)
    }
}

/// A writer that ends when its waiter is dropped.
struct Writing(JoinHandle<()>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The clusters of a manager that runs.
pub(super) struct Clusters {
    common: Common,
    /// Leads to all of them.
    client: Client,
    /// The writers of events, by cluster.
    writers: Group,
    /// Told when its cluster leaves. The end of the manager is the group's matter, so that going away with this says
    /// nothing.
    leaving: BTreeMap<String, Arc<Notify>>,
}

impl Clusters {
    /// Starts the writers of events.
    pub(super) fn start(common: Common, client: &Client, writers: Group) -> Clusters {
        let mut clusters = Clusters {
            common,
            client: client.clone(),
            writers,
            leaving: BTreeMap::new(),
        };
        clusters.record(HOME_CLUSTER, client);
        for (name, other) in client.other_clusters() {
            clusters.record(&name, &other);
        }
        clusters
    }

    /// From now on there is this cluster, too.
    pub(super) fn join(&mut self, name: &str, kube: &kube::Client) -> Result<()> {
        if name == HOME_CLUSTER || name == EVERY_CLUSTER || self.leaving.contains_key(name) {
            return Err(Error::Configuration(format!(
                "cannot add cluster {name:?}: each needs a name of its own that is not empty"
            )));
        }
        let client = self.common.client(kube, Some(name));
        self.record(name, &client);
        self.client.join(name, &client);
        tracing::info!(cluster = name, "cluster joins");
        Ok(())
    }

    /// Whether a cluster of this name can leave: `false` when there is none. `users`: the controllers that work there
    /// and are not in every cluster.
    pub(super) fn may_leave(&self, name: &str, users: &BTreeSet<String>) -> Result<bool> {
        if name == HOME_CLUSTER {
            let why = "the manager's own cluster cannot be taken away";
            return Err(Error::Configuration(why.to_owned()));
        }
        let is_there = self.leaving.contains_key(name);
        if is_there && !users.is_empty() {
            let names: Vec<&str> = users.iter().map(String::as_str).collect();
            return Err(Error::Configuration(format!(
                "cannot take cluster {name:?} away, because these controllers work there or watch it: {}; remove them \
                 first",
                names.join(", ")
            )));
        }
        Ok(is_there)
    }

    /// From now on there is no such cluster; nothing works there any more.
    pub(super) fn leave(&mut self, name: &str) {
        if let Some(leaving) = self.leaving.remove(name) {
            self.client.leave(name);
            leaving.notify_one();
            tracing::info!(cluster = name, "cluster leaves");
        }
    }

    /// Lets events be written there until it leaves, or the manager ends.
    fn record(&mut self, name: &str, client: &Client) {
        let (source, stop) = Stop::pair();
        let (recorder, writing) = EventRecorder::start(client, self.common.env.clock.clone(), stop);
        client.cache().record_events(recorder, &self.common.name);
        let leaves = Arc::new(Notify::new());
        self.leaving.insert(name.to_owned(), leaves.clone());
        let (every, mut writing) = (self.writers.stop(), Writing(writing));
        self.writers.spawn("event writer", async move {
            tokio::select! {
                biased;
                () = every.requested() => {}
                () = leaves.notified() => {}
            }
            source.stop();
            (&mut writing.0).await.map_err(|error| Error::Panic {
                what: "the writer of events".to_owned(),
                message: error.to_string(),
            })
        });
    }
}
