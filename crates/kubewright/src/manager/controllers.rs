//! The controllers of a manager that runs: how they begin, and how some are added and taken away meanwhile.
//!
//! Invariants: M6 a controller added to a running manager begins at once, one added before waits for it, and after its
//! end it is an error; a controller that was removed has ended when the removal is answered, and nothing of it is left
//! in its informers; names are unique. A cluster (`clusters.rs`) leaves only when every controller that worked there or
//! watched it has ended; one that works in every cluster (`controller/engaged.rs`) is engaged when a cluster joins, and
//! disengaged before it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, oneshot};

use super::clusters::Clusters;
use super::guarded::Started;
use super::stages::Group;
use crate::controller::{Controller, Engaged, LoopEvents, Prepared, SourceHealth, WorkerOptions};
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
    /// Of the manager itself: nothing works in this cluster any more.
    Left(String, oneshot::Sender<Result<bool>>),
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
    /// Controllers that work [in every cluster](Controller::in_every_cluster) do so there from now on. This is the end that
    /// a provider of clusters calls, as [`KubeconfigSecrets`](crate::KubeconfigSecrets) does.
    ///
    /// ```
    /// use kubewright::{Controllers, Result, kube};
    ///
    /// async fn joined(controllers: &Controllers, name: &str, client: kube::Client) -> Result<()> {
    ///     controllers.add_cluster(name, client).await
    /// }
    ///
    /// async fn left(controllers: &Controllers, name: &str) -> Result<()> {
    ///     controllers.remove_cluster(name).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Configuration`] when the name is empty, `*` or taken, when a controller cannot work there, or the manager
    /// has ended.
    pub async fn add_cluster(&self, name: impl Into<String>, client: kube::Client) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Join(name.into(), Box::new(Reachable(client)), reply);
        self.0.send(command).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Takes a cluster away, also one that was there from the start; `false` when there is none. Controllers that work in
    /// every cluster start nothing there any more; this is answered when their reconciles there have ended. Events that
    /// wait are still written. Its cache goes with the last client of it.
    ///
    /// # Errors
    /// [`Error::Configuration`] when controllers work there or watch it by its name, which are named; they are removed
    /// first, and one that is being removed counts until it has ended. Also when it is being taken away already, when it is the manager's own cluster, or when the
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
    /// Clusters that leave when the last reconcile there has ended.
    leaving: BTreeSet<String>,
    /// To this.
    commands: Controllers,
}

/// One controller at work.
struct Running {
    stop: StopSource,
    /// The cluster of its work, unless it is every one, and those that it watches.
    clusters: BTreeSet<String>,
    /// It keeps no watch alive.
    engaged: Weak<Engaged>,
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
        commands: Controllers,
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
            leaving: BTreeSet::new(),
            commands,
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
                let _ = reply.send(self.join(&name, &kube.0));
            }
            Command::Leave(name, reply) => self.begin_to_leave(name, reply),
            Command::Left(name, reply) => {
                self.leaving.remove(&name);
                self.clusters.leave(&name);
                let _ = reply.send(Ok(true));
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

    fn all(&self) -> impl Iterator<Item = (&String, &Running)> {
        let ending = self.ending().map(|(name, controller)| (name, controller));
        ending.chain(&self.running)
    }

    /// A cluster joins, and with it the controllers that work in every one.
    fn join(&mut self, name: &str, kube: &kube::Client) -> Result<()> {
        self.clusters.join(name, kube)?;
        let client = self.options.client.cluster(name)?;
        let declaring = client.cache().declaring();
        let everywhere = everywhere(self.running.values());
        let engaged = everywhere.iter().try_for_each(|one| one.engage(&client));
        drop(declaring); // all is said: the first lists are for what everybody needs
        if let Err(error) = engaged {
            for one in everywhere {
                drop(one.disengage(name));
            }
            self.clusters.leave(name);
            return Err(error);
        }
        Ok(())
    }

    fn begin_to_leave(&mut self, name: String, reply: oneshot::Sender<Result<bool>>) {
        if self.leaving.contains(&name) {
            let why = format!("cluster {name:?} is being taken away already");
            let _ = reply.send(Err(Error::Configuration(why)));
            return;
        }
        match self.clusters.may_leave(&name, &self.users(&name)) {
            Ok(true) => {
                let everywhere = everywhere(self.all().map(|(_, one)| one));
                let ended: Vec<_> = everywhere.iter().map(|one| one.disengage(&name)).collect();
                self.leaving.insert(name.clone());
                let commands = self.commands.0.clone();
                tokio::spawn(async move {
                    join_all(ended).await;
                    // A manager that has ended has no clusters.
                    let _ = commands.send(Command::Left(name, reply)).await;
                });
            }
            refused => {
                let _ = reply.send(refused);
            }
        }
    }

    /// The controllers that work in a cluster or watch it.
    fn users(&self, cluster: &str) -> BTreeSet<String> {
        let all = self.all();
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
        for leaving in &self.leaving {
            drop(prepared.engaged.disengage(leaving));
        }
        let nobody = watch::Sender::new(false);
        drop(self.start(prepared, Started::of(1, nobody)));
        Ok(())
    }

    /// Starts a controller's loop; the future answers when its caches are synced.
    pub(super) fn start(&mut self, controller: Prepared, started: Started) -> BoxFuture<'static, ()> {
        let name = controller.name.clone();
        let (synced, mut seen) = watch::channel(false);
        let (is_synced, sources) = (seen.clone(), controller.engaged.required());
        let check = move || match *is_synced.borrow() {
            true => Ok(()),
            false => Err(unsynced(&sources)),
        };
        let engaged = Arc::downgrade(&controller.engaged);
        let problems = engaged.clone();
        let (waits, why) = watch::channel(None);
        let remark = move || {
            let waits = why.borrow().map(str::to_owned);
            let problems = problems.upgrade().map(|engaged| engaged.problems());
            waits.into_iter().chain(problems.into_iter().flatten()).collect()
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
        let running = Running {
            stop,
            clusters: controller.clusters.clone(),
            engaged: engaged.clone(),
            alive,
        };
        self.running.insert(name.to_string(), running);
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

/// Those that work in every cluster.
fn everywhere<'a>(all: impl Iterator<Item = &'a Running>) -> Vec<Arc<Engaged>> {
    let all = all.filter_map(|one| one.engaged.upgrade());
    all.filter(|one| one.is_everywhere()).collect()
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
