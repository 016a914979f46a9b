//! Where a controller works: in one cluster, or in every cluster that joins its manager (multicluster-runtime's engaged
//! clusters).
//!
//! A cluster in which a controller works has informers, sources and indexes of its own there; queue and workers are the
//! controller's, and the keys say which cluster they are of. Invariants: C1 a cluster is engaged once; C2 no key of a
//! cluster is reconciled before all of its caches there are synced, and show what earlier holders of the Lease wrote: it
//! is kept until then, so that a cluster that cannot be reached holds up no other; C3 a cluster that was disengaged
//! leads to no reconcile, and the ones that run there are waited for.
//!
//! Not here: how clusters join and leave a manager, see `manager/controllers.rs`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::stream::{FuturesUnordered, StreamExt};
use kubewright_engine::queue::{Merge, Priority, Work};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::all_keys::{AllKeys, Panics};
use super::indexes::{ActiveIndex, Index};
use super::key_queue::KeyQueue;
use super::sources::{ActiveSource, OwnerKind, Predicates, Source, SourceContext, SourceHealth, start_own};
use super::take_over::until_fresh;
use crate::cache::{KindInformers, SYNC_TIMEOUT, Scope, SharedInformer};
use crate::cause::Causes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::object::ObjectRef;
use crate::own_writes::OwnWrites;
use crate::queue::Queue;
use crate::request::Request;
use crate::stop::{Stop, StopSource};
use crate::watch;

/// What a controller needs in each cluster, as it was declared.
pub(super) struct Parts {
    pub(super) controller: Arc<str>,
    pub(super) form: Form,
    pub(super) scope: Scope,
    pub(super) owner: OwnerKind,
    pub(super) predicates: Predicates,
    pub(super) sources: Vec<Source>,
    pub(super) indexes: Vec<Index>,
    pub(super) queue: KeyQueue,
}

/// The clusters in which a controller works.
pub(crate) struct Engaged {
    parts: Parts,
    /// Those of the manager that join later, too.
    every: bool,
    clusters: RwLock<BTreeMap<Option<Arc<str>>, Arc<Engagement>>>,
    changes: watch::Sender<Changes>,
}

/// What [`Engaged::open`] looks after.
#[derive(Clone, Copy, Default)]
struct Changes {
    /// How often a cluster has joined or left.
    clusters: u64,
    /// How often all caches had to catch up, and the last time since when.
    demands: u64,
    since: Option<Instant>,
}

/// A controller at work in a cluster.
pub(crate) struct Engagement {
    /// `None` in the home cluster.
    cluster: Option<Arc<str>>,
    pub(super) own: KindInformers,
    queue: KeyQueue,
    pub(super) client: Client,
    pub(super) own_writes: OwnWrites,
    /// Of its own kind and of those that it owns and watches.
    sources: Vec<ActiveSource>,
    indexes: Vec<ActiveIndex>,
    /// End with it.
    _tasks: JoinSet<()>,
    gate: Mutex<Gate>,
    /// Its end is asked for.
    end: StopSource,
    ended: Stop,
    /// Closed when nothing works here any more.
    _living: watch::Sender<()>,
    alive: watch::Receiver<()>,
}

/// Whether keys are reconciled, and those that wait for it.
struct Gate {
    open: bool,
    kept: BTreeMap<Request, Causes>,
}

impl Engaged {
    /// Nowhere yet.
    pub(super) fn nowhere(parts: Parts, every: bool) -> Engaged {
        Engaged {
            parts,
            every,
            clusters: RwLock::default(),
            changes: watch::Sender::new(Changes::default()),
        }
    }

    /// Whether it works in every cluster that joins.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.every
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Option<Arc<str>>, Arc<Engagement>>> {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Option<Arc<str>>, Arc<Engagement>>> {
        self.clusters.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works in this cluster from now on. `client` leads there. Call it inside a tokio runtime.
    pub(crate) fn engage(&self, client: &Client) -> Result<()> {
        let Parts {
            controller,
            form,
            scope,
            owner,
            predicates,
            sources,
            indexes,
            queue,
        } = &self.parts;
        let name = client.cache().cluster();
        let cluster: Option<Arc<str>> = (!name.is_empty()).then(|| Arc::from(name));
        debug_assert!(!self.read().contains_key(&cluster), "C1");
        let client = client.for_controller(controller);
        let own = client.cache().parts_in(form, scope.clone());
        let cached = (!predicates.concern(form.id)).then(|| own.keys());
        let queue = queue.in_cluster(cluster.clone(), cached);
        let mut tasks = JoinSet::new();
        let all = AllKeys::start(own.keys(), queue.clone(), &mut tasks);
        let panics = Panics::of(controller, &client);
        let mut active = vec![start_own(&own, predicates, queue.clone(), panics.clone())];
        let indexes = indexes.iter();
        let indexes = indexes.map(|index| index.start(controller, &client, &panics, &all));
        let indexes = indexes.collect::<Result<_>>()?;
        let context = SourceContext {
            controller,
            cluster: name,
            client: &client,
            predicates,
            queue: queue.clone(),
            owner: owner.clone(),
            own: own.clone(),
            all,
            panics,
        };
        for (position, source) in sources.iter().enumerate() {
            active.push(source.start(&context, position)?);
        }
        let ((living, alive), (end, ended)) = (watch::channel(()), Stop::pair());
        let engagement = Arc::new(Engagement {
            cluster: cluster.clone(),
            own,
            queue,
            client,
            own_writes: OwnWrites::new(),
            sources: active,
            indexes,
            _tasks: tasks,
            gate: Mutex::new(Gate {
                // The loop of a controller of one cluster waits for its caches.
                open: !self.every,
                kept: BTreeMap::new(),
            }),
            end,
            ended,
            _living: living,
            alive,
        });
        self.write().insert(cluster, engagement);
        self.changes.send_modify(|changes| changes.clusters += 1);
        Ok(())
    }

    /// Works there no longer; resolves when the reconciles there have ended (C3). Nothing when it did not.
    pub(crate) fn disengage(&self, cluster: &str) -> impl Future<Output = ()> + Send + use<> {
        let gone = self.write().remove(&Some(Arc::from(cluster)));
        let alive = gone.map(|engagement| {
            engagement.end.stop();
            engagement.alive.clone()
        });
        self.changes.send_modify(|changes| changes.clusters += 1);
        async move {
            let Some(mut alive) = alive else { return };
            while alive.changed().await.is_ok() {}
        }
    }

    /// The cluster of a key, and the work if its caches are ready; otherwise it is kept, or, if the controller does not
    /// work there (any more), dropped.
    pub(super) fn admit(
        &self,
        work: Work<Request, Causes>,
        queue: &Queue<Request, Causes>,
    ) -> Option<(Arc<Engagement>, Work<Request, Causes>)> {
        let found = self.read().get(&work.item.cluster).cloned();
        let Some(engagement) = found else {
            let cluster = work.item.cluster();
            tracing::debug!(controller = %self.parts.controller, object = %work.item, cluster, "the controller does not work in this cluster; the key is dropped");
            queue.forget(&work.item);
            return None;
        };
        let mut gate = engagement.gate();
        if gate.open {
            drop(gate);
            return Some((engagement, work));
        }
        let Work { item, causes, .. } = work;
        gate.kept.entry(item).or_default().merge(causes);
        None
    }

    /// The cluster of a controller that works in one.
    pub(super) fn only(&self) -> Option<Arc<Engagement>> {
        match self.every {
            true => None,
            false => self.read().values().next().cloned(),
        }
    }

    fn all(&self) -> Vec<Arc<Engagement>> {
        self.read().values().cloned().collect()
    }

    /// The keys of all objects of the controller's kind.
    pub(super) fn keys(&self) -> Vec<Request> {
        let all = self.all();
        all.iter().flat_map(|engagement| engagement.keys()).collect()
    }

    /// What a key names.
    pub(super) fn reference(&self, key: &Request) -> ObjectRef {
        ObjectRef::named(&self.parts.form.resource, key.namespace(), key.name())
    }

    /// Another replica leads: the queue keeps no more than [`KeyQueue::add`] would add now.
    pub(super) fn rest(&self) {
        let queue = &self.parts.queue.inner;
        queue.each_waiting(Causes::forget);
        let clusters = self.read();
        let comes_back = |key: &Request| {
            let engagement = clusters.get(&key.cluster);
            engagement.is_some_and(|engagement| engagement.queue.comes_back(key))
        };
        queue.drop_waiting(|key, causes| causes.are_seen() && comes_back(key));
    }

    /// How the sources fare without which the controller does not begin.
    pub(crate) fn required(&self) -> Vec<SourceHealth> {
        self.only().map_or_else(Vec::new, |only| only.sources())
    }

    /// Present problems of the sources.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for engagement in self.all() {
            let sources = engagement.sources();
            let missing = sources.iter().filter_map(SourceHealth::missing).filter(|_| self.every);
            let of_cluster: Vec<String> = missing.chain(sources.iter().flat_map(SourceHealth::problems)).collect();
            match engagement.cluster.as_ref().filter(|_| self.every) {
                None => problems.extend(of_cluster),
                Some(cluster) => problems.extend(of_cluster.iter().map(|why| format!("cluster {cluster}: {why}"))),
            }
        }
        problems
    }

    /// From now on no key is reconciled before the caches show what was written before `since`.
    pub(super) fn must_catch_up(&self, since: Instant) {
        if self.every {
            for engagement in self.all() {
                engagement.gate().open = false;
            }
            self.changes.send_modify(|changes| {
                changes.demands += 1;
                changes.since = changes.since.max(Some(since));
            });
        }
    }

    /// Lets the keys of each cluster be reconciled when its caches are ready, for ever (C2).
    pub(super) async fn open(&self, queue: &Queue<Request, Causes>) -> Infallible {
        if !self.every {
            return std::future::pending().await;
        }
        let mut changes = self.changes.subscribe();
        let mut waiting = FuturesUnordered::new();
        // What is waited for, or is there already. A cluster that joins again is another one.
        let mut known: Vec<(Arc<Engagement>, u64)> = Vec::new();
        loop {
            let Changes { demands, since, .. } = *changes.borrow_and_update();
            let all = self.all();
            known.retain(|(one, of)| *of == demands && all.iter().any(|other| Arc::ptr_eq(one, other)));
            for engagement in all {
                if !known.iter().any(|(one, _)| Arc::ptr_eq(one, &engagement)) {
                    known.push((engagement.clone(), demands));
                    waiting.push(async move {
                        let ready = self.ready(&engagement, since).await;
                        (engagement, demands, ready)
                    });
                }
            }
            tokio::select! {
                biased;
                // The sender lives as long as this.
                _ = changes.changed() => {}
                Some((engagement, of, ready)) = waiting.next() => {
                    // One that caught up with less than is demanded now is waited for again.
                    if ready && of == changes.borrow().demands {
                        engagement.opens(queue);
                    }
                }
            }
        }
    }

    /// Resolves when the caches of a cluster are synced and have caught up, or when it has left: `false`.
    async fn ready(&self, engagement: &Engagement, since: Option<Instant>) -> bool {
        let controller = &self.parts.controller;
        let ready = async {
            let synced = engagement.synced(controller, None).await;
            if let Some(since) = since {
                until_fresh(controller, engagement.of_client(), since).await;
            }
            synced.is_ok()
        };
        tokio::select! {
            biased;
            () = engagement.ended.requested() => false,
            ready = ready => ready,
        }
    }
}

impl Engagement {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opens(&self, queue: &Queue<Request, Causes>) {
        let kept = {
            let mut gate = self.gate();
            gate.open = true;
            std::mem::take(&mut gate.kept)
        };
        for (request, causes) in kept {
            queue.add(request, Priority::NORMAL, causes);
        }
    }

    /// The informers, with the client that reaches their API server.
    pub(super) fn of_client(&self) -> impl Iterator<Item = (&Client, SharedInformer)> {
        self.informers().map(|informer| (&self.client, informer.clone()))
    }

    /// The informers of its sources and indexes.
    pub(super) fn informers(&self) -> impl Iterator<Item = &SharedInformer> {
        let fed = self.sources.iter().flat_map(ActiveSource::informers);
        fed.chain(self.indexes.iter().flat_map(ActiveIndex::informers))
    }

    /// The keys of all objects of the controller's kind here.
    fn keys(&self) -> Vec<Request> {
        let mut keys = self.own.keys().all();
        for key in &mut keys {
            key.cluster.clone_from(&self.cluster);
        }
        keys
    }

    fn sources(&self) -> Vec<SourceHealth> {
        let indexed = self.indexes.iter().flat_map(ActiveIndex::informers);
        let fed = self.sources.iter().flat_map(ActiveSource::watched);
        fed.chain(indexed.map(SourceHealth::of)).collect()
    }

    /// Waits until all sources are synced (R4).
    ///
    /// # Errors
    /// When they take longer than the limit, if there is one.
    pub(super) async fn synced(&self, controller: &str, limit: Option<std::time::Duration>) -> Result<()> {
        let within = limit.unwrap_or(SYNC_TIMEOUT);
        loop {
            let all = self.informers().map(|informer| informer.synced_within(within));
            match futures::future::try_join_all(all).await {
                Ok(_) => return Ok(()),
                Err(error) if limit.is_some() => return Err(error),
                Err(error) => {
                    let cluster = self.cluster.as_deref();
                    tracing::warn!(controller, cluster, %error, "the controller waits for its caches; others work");
                }
            }
        }
    }
}

/// A source of a controller that works in every cluster cannot be of one other cluster by owner references.
pub(super) fn check_sources(controller: &str, sources: &[Source]) -> Result<()> {
    match sources.iter().find(|source| source.owns_elsewhere()) {
        None => Ok(()),
        Some(source) => Err(Error::Configuration(format!(
            "controller {controller}: {source:?} names a cluster, and the owners of its objects are in that cluster only; use Watch::map"
        ))),
    }
}
