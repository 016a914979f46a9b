//! The controllers of a manager that runs: how they begin, and how some are added and taken away meanwhile.
//!
//! Invariants: M6 a controller added to a running manager begins at once, one added before waits for it, and after its
//! end it is an error; a controller that was removed has ended when the removal is answered, and nothing of it is left
//! in its informers; names are unique. A cluster (`clusters.rs`) leaves only when every controller that worked there or
//! watched it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::clusters::Clusters;
use super::guarded::Started;
use super::stages::Group;
use crate::controller::{Controller, LoopEvents, Prepared, SourceHealth, WorkerOptions};
use crate::error::{Error, Result};
use crate::health::Checks;
use crate::sharding::Shards;
use crate::stop::{Stop, StopSource};
use crate::term::Permits;
use crate::watch;

/// Adds controllers and clusters to a manager that runs, and takes them away;
/// [`Manager::controllers`](crate::Manager::controllers). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Controllers(mpsc::Sender<Command>);

/// A request to the manager.
#[derive(Debug)]
pub(crate) enum Command {
    Add(Box<Controller>, oneshot::Sender<Result<()>>),
    Remove(String, oneshot::Sender<bool>),
    Join(String, Box<Reachable>, oneshot::Sender<Result<()>>),
    Leave(String, oneshot::Sender<Result<bool>>),
}

/// How a cluster is reached.
pub(crate) struct Reachable(kube::Client);

impl fmt::Debug for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reachable")
    }
}

impl Controllers {
    pub(crate) fn channel() -> (Controllers, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel(16);
        (Controllers(sender), receiver)
    }

    /// Adds a controller. It is answered when its informers have started, and begins to reconcile when they are synced.
    /// Waits while the manager does not run yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when its parts do not fit together, its name is taken, also by one that was removed and has
    /// not ended yet, or the manager has ended.
    pub async fn add(&self, controller: Controller) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Add(Box::new(controller), reply);
        self.0.send(command).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Takes a controller away, by its name; `false` when there is none. When this is answered, its reconciles have
    /// ended, which are waited for, and its watches are closed unless something else needs them.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the manager has ended.
    pub async fn remove(&self, name: &str) -> Result<bool> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Remove(name.to_owned(), reply);
        self.0.send(command).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }

    /// Adds a cluster under a name, as [`ManagerBuilder::cluster`](crate::ManagerBuilder::cluster) does before the
    /// start. From then on [`Client::cluster`](crate::Client::cluster) leads to it, also from clients that were made
    /// before, and controllers may be added that work in it or watch it. Nothing is asked of it before that, so that
    /// one that cannot be reached can be added, too: a controller that works there waits, and `/readyz` says so.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use kubewright::{Action, Context, Reconciler};
    /// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Mirror;
    /// # impl Reconciler for Mirror {
    /// #     type Object = ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
    /// # }
    /// use kubewright::{Controller, Controllers, Result, kube};
    ///
    /// async fn joined(controllers: &Controllers, name: &str, client: kube::Client) -> Result<()> {
    ///     controllers.add_cluster(name, client).await?;
    ///     controllers.add(Controller::of(Mirror).named(format!("mirror-{name}")).in_cluster(name)).await
    /// }
    ///
    /// async fn left(controllers: &Controllers, name: &str) -> Result<()> {
    ///     controllers.remove(&format!("mirror-{name}")).await?;
    ///     controllers.remove_cluster(name).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Configuration`] when the name is empty or taken, or the manager has ended.
    pub async fn add_cluster(&self, name: impl Into<String>, client: kube::Client) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Join(name.into(), Box::new(Reachable(client)), reply);
        self.0.send(command).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Takes a cluster away, also one that was there from the start; `false` when there is none. Events that wait are
    /// still written. Its cache goes with the last client of it.
    ///
    /// # Errors
    /// [`Error::Configuration`] when controllers work there or watch it, which are named; they are removed first, and
    /// one that is being removed counts until it has ended. Also when it is the manager's own cluster, or when the
    /// manager has ended.
    pub async fn remove_cluster(&self, name: &str) -> Result<bool> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Leave(name.to_owned(), reply);
        self.0.send(command).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn ended() -> Error {
    Error::Configuration(
        "the manager has ended, so controllers and clusters can be neither added nor removed".to_owned(),
    )
}

/// The controllers at work.
pub(super) struct RunningControllers {
    group: Group,
    clusters: Clusters,
    options: WorkerOptions,
    permits: Permits,
    shards: Option<Shards>,
    checks: Checks,
    running: BTreeMap<String, Running>,
    /// Taken away, and perhaps not ended yet.
    ending: Vec<(String, Running)>,
}

/// One controller at work.
struct Running {
    stop: StopSource,
    /// The cluster of its work, and those that it watches.
    clusters: BTreeSet<String>,
    /// Closed when it has ended.
    alive: watch::Receiver<()>,
}

impl Running {
    fn is_alive(&self) -> bool {
        !self.alive.is_closed()
    }
}

impl RunningControllers {
    pub(super) fn new(
        group: Group,
        clusters: Clusters,
        options: WorkerOptions,
        permits: Permits,
        shards: Option<Shards>,
        checks: Checks,
    ) -> RunningControllers {
        RunningControllers {
            group,
            clusters,
            options,
            permits,
            shards,
            checks,
            running: BTreeMap::new(),
            ending: Vec::new(),
        }
    }

    /// Carries out a command. A step that takes its time is left to a task.
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Add(controller, reply) => {
                // It is done even when the caller does not wait for the answer.
                let _ = reply.send(self.add(*controller));
            }
            Command::Join(name, kube, reply) => {
                let _ = reply.send(self.clusters.join(&name, &kube.0));
            }
            Command::Leave(name, reply) => {
                let users = self.users(&name);
                let _ = reply.send(self.clusters.leave(&name, &users));
            }
            Command::Remove(name, reply) => match self.running.remove(&name) {
                None => {
                    let _ = reply.send(false);
                }
                Some(controller) => {
                    self.checks.remove("readyz", &name);
                    controller.stop.stop();
                    let mut alive = controller.alive.clone();
                    self.ending.push((name, controller));
                    tokio::spawn(async move {
                        while alive.changed().await.is_ok() {}
                        let _ = reply.send(true);
                    });
                }
            },
        }
        self.ending.retain(|(_, controller)| controller.is_alive());
    }

    /// The controllers that were taken away and have not ended yet.
    fn ending(&self) -> impl Iterator<Item = &(String, Running)> {
        self.ending.iter().filter(|(_, controller)| controller.is_alive())
    }

    /// The controllers that work in a cluster or watch it.
    fn users(&self, cluster: &str) -> BTreeSet<String> {
        let all = self
            .ending()
            .map(|(name, controller)| (name, controller))
            .chain(&self.running);
        all.filter(|(_, controller)| controller.clusters.contains(cluster))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn add(&mut self, controller: Controller) -> Result<()> {
        let name = controller.name();
        let refuse = |why: &str| Err(Error::Configuration(format!("cannot add controller {name:?}: {why}")));
        if name.is_empty() || self.running.contains_key(&name) {
            return refuse("a controller needs a name that no other has; give it one with Controller::named");
        }
        if self.ending().any(|(ending, _)| *ending == name) {
            // Two of one name could reconcile one key at once (R1).
            return refuse(
                "one of this name was removed and still ends its reconciles; wait until Controllers::remove answers",
            );
        }
        let prepared = controller.prepare(&self.options.client, self.shards.as_ref())?;
        let nobody = watch::Sender::new(false);
        drop(self.start(prepared, Started::of(1, nobody)));
        Ok(())
    }

    /// Starts a controller's loop; the future answers when its caches are synced.
    pub(super) fn start(&mut self, controller: Prepared, started: Started) -> BoxFuture<'static, ()> {
        let name = controller.name.clone();
        let (synced, mut seen) = watch::channel(false);
        let (is_synced, sources) = (seen.clone(), Arc::new(controller.sources()));
        let all = sources.clone();
        let check = move || match *is_synced.borrow() {
            true => Ok(()),
            false => Err(unsynced(&all)),
        };
        let (waits, why) = watch::channel(None);
        let remark = move || {
            let waits = why.borrow().map(str::to_owned);
            waits
                .into_iter()
                .chain(sources.iter().flat_map(SourceHealth::problems))
                .collect()
        };
        self.checks
            .add_remarked("readyz", &name, Arc::new(check), Arc::new(remark));
        let (stop, mine) = Stop::pair();
        let progress = Progress {
            synced,
            started: Mutex::new(Some(started)),
            waits,
            removed: mine.clone(),
        };
        let removed = mine.clone();
        let (living, alive) = watch::channel(());
        let clusters = controller.clusters.clone();
        self.running.insert(name.to_string(), Running { stop, clusters, alive });
        let (options, permits, every) = (self.options.clone(), self.permits.clone(), self.group.stop());
        self.group.spawn(&format!("controller {name}"), async move {
            let _living = living;
            let (source, stop) = Stop::pair();
            let running = controller.run(options, permits, stop, progress);
            tokio::pin!(running);
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                () = every.requested() => {}
                () = mine.requested() => {}
            }
            source.stop();
            running.await
        });
        Box::pin(async move {
            // A controller that fails ends the manager by itself; nothing else may begin. One that was removed is not
            // waited for.
            if seen.wait_for(|synced| *synced).await.is_err() && !removed.is_requested() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Why a controller's sources are not synced.
fn unsynced(sources: &[SourceHealth]) -> String {
    let mut missing: Vec<String> = sources.iter().filter_map(SourceHealth::missing).collect();
    missing.sort();
    missing.dedup(); // several sources may share an informer
    match missing.is_empty() {
        true => "its caches are not synced".to_owned(),
        false => format!("its caches are not synced: {}", missing.join("; ")),
    }
}

/// The progress of a controller's loop: probes wait for its caches, [`Manager::ready`](crate::Manager::ready) for its
/// workers.
struct Progress {
    synced: watch::Sender<bool>,
    started: Mutex<Option<Started>>,
    waits: watch::Sender<Option<&'static str>>,
    removed: Stop,
}

impl LoopEvents for Progress {
    fn synced(&self) {
        self.synced.send_replace(true);
    }

    fn started(&self) {
        let first = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(started) = first {
            started.one();
        }
    }

    fn waits(&self, why: Option<&'static str>) {
        self.waits.send_replace(why);
    }
}

impl Drop for Progress {
    /// A controller removed before it began is not waited for.
    fn drop(&mut self) {
        if self.removed.is_requested() {
            self.started();
        }
    }
}

impl fmt::Debug for RunningControllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningControllers({:?})", self.running.keys())
    }
}
