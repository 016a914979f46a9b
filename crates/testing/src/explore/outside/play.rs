//! Plays an operator of another program through one run, in the machine's time.
//!
//! An undisturbed run waits after each step until nothing has happened for a while. A disturbed one knows what it waits
//! for: the state in which the undisturbed one came to rest. So a run in which all comes right takes no longer than the
//! operator needs, and what does not come right is waited for with patience, while other runs go on. Invariants: what
//! is waited for has an end; processes end with their run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::{self, client::Body};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::super::ClusterOf;
use super::super::children::children;
use super::super::fault::Fault;
use super::super::log::{CONNECTS, Made, Named, Runs, printed};
use super::super::oracles::Verdict;
use super::super::place::{Place, goes_on};
use super::super::play::Run;
use super::super::seam::{Ask, Pace, Seam, Traffic};
use super::super::snapshot::{Reader, Snapshot};
use super::super::steps::Step;
use super::super::wanted::Wanted;
use super::Failed;
use super::child::{Child, Output, Program};
use super::endpoint::{Answering, Endpoint, Tls};
use super::failed::exited;
use super::lingering::{Lingering, is_half_done, rests};
use super::mask::Mask;
use super::tunnel::Tunnel;
use crate::cluster::TestCluster;
use crate::rights::Rights;

/// How often is looked whether something has happened.
pub(super) const TICK: Duration = Duration::from_millis(30);
/// The bounds of how long nothing may happen in an undisturbed run until it has come to rest: as long as the operator
/// took to start. One that starts slowly, or on a slow machine, answers slowly.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// How long it takes to notice that a process is dead, and to start another one.
pub(super) const RESTART: Duration = Duration::from_millis(200);
/// How long a process that stood still goes on.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long nothing may be written when all is done.
pub(super) const WATCHED: Duration = Duration::from_secs(1);
/// The bounds of how long nothing may be under way until a disturbed run is looked at.
const QUIET: (Duration, Duration) = (Duration::from_millis(150), Duration::from_secs(2));
/// How often a process may end by itself in one run.
pub(super) const EXITS: usize = 5;

/// What all runs of an exploration share.
pub(super) struct Stage {
    pub(super) program: Program,
    pub(super) cluster: ClusterOf,
    pub(super) crds: Vec<CustomResourceDefinition>,
    /// The folder with the operator's role.
    pub(super) roles: Option<PathBuf>,
    pub(super) steps: Vec<Step>,
    pub(super) runs: Arc<Runs>,
    pub(super) tls: Tls,
    /// How many processes there are at a time.
    pub(super) replicas: usize,
    /// How long the program may take until it watches something.
    pub(super) start: Duration,
    pub(super) patience: Duration,
    /// How long an undisturbed run may take to come to rest after a step.
    pub(super) longest: Duration,
    /// How long nothing happens at least until the operator is at rest.
    pub(super) rest: Duration,
    /// Of the runs that are played side by side; who waits with patience gives it back.
    pub(super) active: Arc<Semaphore>,
    /// Differences that did not go away.
    pub(super) lasting: Mutex<BTreeSet<String>>,
    /// What was found, in the words of the report.
    pub(super) known: Mutex<BTreeSet<String>>,
}

impl Stage {
    /// The same, for a workload of which other steps are made.
    pub(super) fn with(&self, steps: Vec<Step>) -> Stage {
        Stage {
            program: self.program.clone(),
            cluster: self.cluster.clone(),
            crds: self.crds.clone(),
            roles: self.roles.clone(),
            steps,
            tls: self.tls.clone(),
            runs: self.runs.clone(),
            active: self.active.clone(),
            // What does not come right in the whole workload does not in a part of it.
            lasting: Mutex::new(self.lasting.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            known: Mutex::default(),
            ..*self
        }
    }

    /// Whether it was found already: it needs no other proof.
    pub(super) fn knows(&self, verdict: &Verdict) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&verdict.what)
    }

    pub(super) fn notes(&self, verdict: &Verdict) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(verdict.what.clone());
    }
}

/// The undisturbed run.
pub(super) struct Reference {
    pub(super) run: Run,
    pub(super) mask: Mask,
    /// Kinds of requests that come all the time.
    pub(super) noise: BTreeSet<String>,
    /// How long nothing may be under way.
    pub(super) quiet: Duration,
    /// The operator holds a Lease.
    pub(super) elects: bool,
    /// The locks of its election that are no Leases.
    pub(super) locks: Locks,
    pub(super) watched: BTreeSet<String>,
    pub(super) agents: BTreeSet<String>,
    /// How long it asked for nothing until it went on by itself; zero when it never did.
    pub(super) comes_back: Duration,
    /// What its last process printed.
    pub(super) output: Option<Output>,
}

impl Reference {
    /// Compares no further what another undisturbed run has shown to be a matter of chance.
    pub(super) fn takes_over(&mut self, other: &Reference) {
        self.mask = other.mask.clone();
        self.noise.extend(other.noise.iter().cloned());
        self.quiet = self.quiet.max(other.quiet);
        let ends = std::mem::take(&mut self.run.ends);
        self.run.ends = ends.into_iter().map(|end| self.mask.apply(end)).collect();
    }
}

/// ConfigMaps and Endpoints.
type Locks = BTreeSet<Named>;

struct Process {
    child: Child,
    #[expect(dead_code, reason = "its connections end when it is dropped")]
    endpoint: Endpoint,
}

pub(super) struct Player<'a> {
    pub(super) stage: &'a Stage,
    pub(super) cluster: TestCluster,
    kube: kube::Client,
    tunnel: Tunnel,
    /// Of the operator itself.
    namespace: String,
    pub(super) seam: Arc<Seam>,
    asked: UnboundedReceiver<Ask>,
    folder: TempDir,
    reader: Reader,
    processes: BTreeMap<usize, Process>,
    next: usize,
    /// Stood still, and ends soon.
    retiring: Option<usize>,
    /// Ended by itself: the next one starts then.
    starts_at: Option<Instant>,
    pub(super) exits: usize,
    panics: Vec<String>,
    outputs: Vec<Output>,
    pub(super) is_hurried: bool,
    /// How long nothing happens until it is at rest.
    pub(super) rest: Duration,
}

impl<'a> Player<'a> {
    /// A player in a new cluster, or in one that goes on at one of these moments.
    pub(super) async fn new(
        stage: &'a Stage,
        fault: Option<&Fault>,
        noise: BTreeSet<String>,
        begin: Option<(&[Place], usize)>,
    ) -> Result<Player<'a>, Failed> {
        let (mut builder, mut reader) = ((stage.cluster)(), Reader::lenient());
        if let Some((places, step)) = begin {
            builder = goes_on(places, step, builder);
            reader = places[step].reader.clone();
        }
        let cluster = TestCluster::start_with(builder).await?;
        if begin.is_none() {
            cluster.install_crds(stage.crds.iter().cloned()).await?;
        }
        // Real operators run commands in the containers of their pods. Nothing runs in these; the commands succeed. Probes
        // run at once: their delays would pass in real time.
        let said = [("exec-output", ""), ("quick-probes", "true")];
        let said = said.map(|(word, value)| (format!("kubewright.dev/{word}"), value.to_owned()));
        let behave = cluster.cluster().behaviours().set(None, "", said.into());
        behave.map_err(|why| Failed::new("cannot prepare the simulated pods").because(why))?;
        let (kube, namespace, user, groups) = match &stage.roles {
            Some(folder) => {
                let rights = Rights::of_project(folder, NAME)?;
                let (namespace, account) = rights.account();
                let groups = vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
                let user = format!("system:serviceaccount:{namespace}:{account}");
                let namespace = namespace.to_owned();
                (cluster.kube_with_rights(NAME, rights).await?, namespace, user, groups)
            }
            None => {
                let groups = vec!["system:masters".to_owned()];
                let kube = cluster.kube_as(NAME, ["system:masters"]);
                (kube, "default".to_owned(), NAME.to_owned(), groups)
            }
        };
        let tunnel = Tunnel::of(cluster.clone(), user, groups);
        let folder = tempfile::Builder::new().prefix("kubewright-").tempdir();
        let folder = folder.map_err(|why| Failed::new("cannot make a folder for temporary files").because(why))?;
        let (asks, asked) = unbounded_channel();
        let seam = Seam::new(fault.cloned(), Pace::REAL, noise, cluster.clone(), asks);
        Ok(Player {
            stage,
            cluster,
            kube,
            tunnel,
            namespace,
            seam,
            asked,
            folder,
            reader,
            processes: BTreeMap::new(),
            next: 1,
            retiring: None,
            starts_at: None,
            exits: 0,
            panics: Vec::new(),
            outputs: Vec::new(),
            is_hurried: false,
            rest: REST.0,
        })
    }

    /// Ends the processes and the cluster.
    pub(super) async fn stop(mut self) {
        self.end_all();
        self.cluster.stop().await;
    }

    /// What somebody may delete after a step.
    pub(super) fn children(&self, step: usize) -> Vec<Made> {
        children(
            self.cluster.cluster().api(),
            &self.seam.look(|log| log.made_until(step)),
        )
    }

    pub(super) fn revision(&self) -> u64 {
        self.cluster.cluster().api().resource_version()
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.reader.read(&self.cluster)
    }

    async fn start(&mut self) -> Result<(), Failed> {
        let process = self.next;
        self.next += 1;
        self.starts_at = None;
        self.seam.begins();
        let cannot = |why| Failed::new("cannot start the operator").because(why);
        let (seam, kube) = (self.seam.clone(), self.kube.clone());
        let answering: Answering = Arc::new(move |request| {
            let (seam, kube) = (seam.clone(), kube.clone());
            Box::pin(async move { seam.answer(process, &kube, request).await })
        });
        let seam = self.seam.clone();
        let told = move |path: &str| seam.tell(process, format!("  {CONNECTS}{path}"));
        let tunnels = (self.tunnel.clone(), Arc::new(told) as _);
        let endpoint = Endpoint::open(&self.stage.tls, answering, tunnels).await;
        let endpoint = endpoint.map_err(cannot)?;
        let path = self.folder.path().join(format!("kubeconfig-{process}"));
        std::fs::write(&path, endpoint.kubeconfig(&self.namespace)).map_err(cannot)?;
        // Each has a folder for temporary files of its own, as containers have.
        let temporary = self.folder.path().join(format!("tmp-{process}"));
        std::fs::create_dir(&temporary).map_err(cannot)?;
        let child = Child::start(&self.stage.program, &path, &self.namespace, &temporary).map_err(cannot)?;
        self.outputs.push(child.output.clone());
        self.processes.insert(process, Process { child, endpoint });
        Ok(())
    }

    /// Starts so many processes as there are to be.
    pub(super) async fn start_all(&mut self) -> Result<(), Failed> {
        while self.processes.len() < self.stage.replicas {
            self.start().await?;
        }
        Ok(())
    }

    fn end(&mut self, process: usize) {
        self.seam.end(process);
        self.processes.remove(&process);
    }

    pub(super) fn end_all(&mut self) {
        for process in self.processes.keys().copied().collect::<Vec<_>>() {
            self.end(process);
        }
    }

    /// Whether every process that should be there has begun to watch.
    pub(super) fn is_up(&self) -> bool {
        self.starts_at.is_none() && !self.processes.is_empty() && self.seam.traffic(|of| !of.watched.is_empty())
    }

    /// Lets time pass, and does what the seam asks for meanwhile. Ends early when the user does not wait.
    pub(super) async fn pass(&mut self, time: Duration) -> Result<(), Failed> {
        let until = Instant::now() + time;
        while !self.is_hurried {
            self.look_after().await?;
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            let ask = tokio::select! {
                biased;
                ask = self.asked.recv() => ask,
                () = tokio::time::sleep_until(until.min(now + TICK)) => continue,
            };
            match ask {
                Some(Ask::Crash { process }) => {
                    self.end(process);
                    tokio::time::sleep(RESTART).await;
                    self.leases_expire().await;
                    self.start().await?;
                }
                Some(Ask::TakeOver { process }) => {
                    if let Some(process) = self.processes.get(&process) {
                        process.child.signal(Signal::STOP);
                    }
                    self.leases_expire().await;
                    // Of several another one is there already.
                    if self.processes.len() < 2 {
                        self.start().await?;
                    }
                }
                Some(Ask::GoesOn { process }) => {
                    self.retiring = Some(process);
                    if let Some(process) = self.processes.get(&process) {
                        process.child.signal(Signal::CONT);
                    }
                    self.seam.due(Instant::now() + LAST_WORDS);
                    let seam = self.seam.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(LAST_WORDS).await;
                        seam.ask_end(process);
                    });
                }
                Some(Ask::End { process }) => self.end(process),
                Some(Ask::NextStep) => self.is_hurried = true,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Starts a process again that has ended by itself, as a kubelet does.
    async fn look_after(&mut self) -> Result<(), Failed> {
        let ended = self.processes.iter_mut().find_map(|(number, process)| {
            let status = process.child.ended()?;
            Some((*number, status, process.child.output.clone()))
        });
        if let Some((process, status, output)) = ended {
            output.whole().await;
            self.end(process);
            if self.retiring != Some(process) {
                self.exits += 1;
                self.seam.tell(process, format!("the program ends by itself: {status}"));
                if self.seam.fault.is_none() || self.exits > EXITS {
                    return Err(exited(&self.stage.program, status, &output));
                }
                let wait = RESTART * u32::try_from(1 << self.exits).unwrap_or(u32::MAX);
                self.starts_at = Some(Instant::now() + wait);
            }
        }
        if self.starts_at.is_some_and(|at| at <= Instant::now()) {
            self.leases_expire().await;
            self.start().await?;
        }
        Ok(())
    }

    /// The time in which the Lease of a dead process expires passes at once.
    pub(super) async fn leases_expire(&self) {
        let (elects, locks) = self.seam.traffic(|of| (of.elects, of.locks.clone()));
        if elects {
            self.expire(&locks).await;
        }
    }

    /// Takes the Leases and these locks from whoever holds them.
    pub(super) async fn expire(&self, locks: &Locks) {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
        let Ok(request) = Request::get(LEASES).body(Vec::new()) else {
            return;
        };
        let Ok(leases) = self.cluster.kube().request::<Value>(request).await else {
            return;
        };
        let plain = locks
            .iter()
            .map(|(resource, namespace, name)| format!("/api/v1/namespaces/{namespace}/{resource}/{name}"));
        let mut requests: Vec<_> = plain.map(|path| Request::delete(path).body(Body::empty())).collect();
        for lease in leases["items"].as_array().into_iter().flatten() {
            let text = |field: &str| lease["metadata"][field].as_str().unwrap_or_default();
            let (namespace, name) = (text("namespace"), text("name"));
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
            // Where there is an older lock beside it the two must say the same, so that both go.
            let is_beside = locks.iter().any(|(_, of, lock)| (&**of, &**lock) == (namespace, name));
            requests.push(match is_beside {
                true => Request::delete(path).body(Body::empty()),
                false => Request::patch(path)
                    .header("content-type", "application/merge-patch+json")
                    .body(Body::from(
                        json!({"spec": {"holderIdentity": ""}}).to_string().into_bytes(),
                    )),
            });
        }
        for request in requests.into_iter().flatten() {
            // One that is gone is held by nobody.
            let _ = self.cluster.kube().send(request).await;
        }
    }

    /// Somebody deletes an object.
    pub(super) async fn delete(&self, made: &Made, fault: &Fault) {
        let (resource, namespace, name) = &made.named;
        self.seam.strike(0, fault);
        self.seam
            .tell(0, format!("somebody deletes {resource} {namespace}/{name}"));
        let request =
            Request::delete(made.path.as_str()).body(Body::from(br#"{"propagationPolicy":"Background"}"#.to_vec()));
        if let Ok(request) = request {
            // One that is gone needs no deletion.
            let _ = self.cluster.kube().send(request).await;
        }
    }

    /// Notes how a step of an undisturbed run ends.
    fn ends(&mut self, run: &mut Run, step: usize) {
        run.ends.push(self.snapshot());
        run.children.push(self.children(step));
        run.places
            .extend(Place::of(&self.cluster, Timestamp::now(), &self.reader));
    }

    /// Ends the processes, and tells of the run what only its end shows.
    pub(super) async fn finish(mut self, run: &mut Run) {
        self.end_all();
        for output in &self.outputs {
            output.whole().await;
        }
        self.panics.extend(self.outputs.iter().filter_map(Output::panic));
        run.panics = std::mem::take(&mut self.panics);
        (run.log, run.struck) = self.seam.ends();
        let lines = self.outputs.iter().zip(1..).flat_map(|(output, process)| {
            let seam = &self.seam;
            let lines = output.lines().into_iter();
            lines.map(move |(at, line)| printed(process, seam.since(at), line))
        });
        self.stage.runs.add(self.seam.fault.as_ref(), &run.log, lines);
        run.harm = self.seam.harm();
        self.cluster.stop().await;
    }
}

/// The operator's name as a user.
const NAME: &str = "operator";

/// Plays an undisturbed run; `restarts`: a process is ended and another one started, before the first deletion.
pub(super) async fn undisturbed(stage: &Stage, restarts: bool) -> Result<Reference, Failed> {
    let made = &stage.steps;
    let mut player = Player::new(stage, None, BTreeSet::new(), None).await?;
    let mut run = Run::default();
    let mut noise = BTreeSet::new();
    let _permit = stage.active.clone().acquire_owned().await;
    player.start_all().await?;
    let begin = Instant::now();
    while !player.is_up() {
        player.pass(TICK).await?;
        if begin.elapsed() > stage.start {
            return Err(idle(stage, &player));
        }
    }
    player.rest = begin.elapsed().clamp(REST.0, REST.1).max(stage.rest);
    let mut watched = player.seam.traffic(|of| of.watched.clone());
    let first_delete = made.iter().position(Step::deletes);
    let mut lingering = Lingering::default();
    let mut rested = rests(&mut player, &mut noise, &mut lingering, |_| false).await?;
    player.ends(&mut run, 0);
    run.wanted.push(Wanted::default());
    for (at, step) in made.iter().enumerate() {
        if restarts && first_delete == Some(at) && at > 0 {
            player.end_all();
            tokio::time::sleep(RESTART).await; // no process is to be there
            player.leases_expire().await;
            let from = player.seam.look(|log| log.entries.len());
            player.start_all().await?;
            rests(&mut player, &mut noise, &mut lingering, |_| false).await?;
            run.writes_of_a_restart = player.seam.effective_writes(from);
        }
        let wanted = run.wanted.last().cloned().unwrap_or_default();
        if step.is_left_out {
            player.seam.skip_to(at + 1);
            run.wanted.push(wanted);
            player.ends(&mut run, at + 1);
            continue;
        }
        let number = player.seam.next_step(step.what());
        run.wanted.push(match step.made(&player.cluster).await? {
            true => wanted.after(step),
            false => wanted,
        });
        let (before, wanted) = (run.ends.last(), run.wanted.last());
        let is_half_done = |now: &Snapshot| {
            let known = before.zip(wanted);
            known.is_some_and(|(before, wanted)| is_half_done(before, now, wanted, step.deletes()))
        };
        rested = rests(&mut player, &mut noise, &mut lingering, is_half_done).await? && rested;
        if !rested {
            run.restless.get_or_insert(number);
        }
        player.ends(&mut run, number);
    }
    let from = player.seam.look(|log| log.entries.len());
    player.pass(WATCHED * 2).await?;
    run.late_writes = player.seam.effective_writes(from);
    watched.extend(player.seam.traffic(|of| of.watched.clone()));
    let of_traffic = |of: &Traffic| (of.elects, of.locks.clone(), of.agents.clone());
    let (elects, locks, agents) = player.seam.traffic(of_traffic);
    let output = player.outputs.last().cloned();
    player.finish(&mut run).await;
    Ok(Reference {
        quiet: quiet(&run, stage.rest),
        run,
        mask: Mask::default(),
        noise,
        elects,
        locks,
        watched,
        agents,
        comes_back: lingering.comes_back,
        output,
    })
}

/// Twice as long as the longest time between two things of which one led to the other.
fn quiet(run: &Run, rest: Duration) -> Duration {
    let entries = &run.log.entries;
    let pairs = entries.windows(2).filter(|pair| pair[0].step == pair[1].step);
    // What comes after a whole rest came of itself.
    let gaps = pairs
        .map(|pair| pair[1].at.saturating_sub(pair[0].at))
        .filter(|gap| *gap < REST.0.max(rest));
    (gaps.max().unwrap_or_default() * 2).clamp(QUIET.0, QUIET.1.max(rest))
}

/// That the operator does nothing.
fn idle(stage: &Stage, player: &Player<'_>) -> Failed {
    let failed = Failed::new(format!(
        "the operator watches nothing after {:?}: {}",
        stage.start, stage.program.command
    ));
    let failed = failed.printed(player.outputs.last());
    let agents = player.seam.traffic(|of| of.agents.clone());
    match agents.is_empty() {
        true => failed
            .because("it has sent no request to the cluster of its kubeconfig")
            .fix(
                "it must take the cluster from the environment variable KUBECONFIG; a program that is compiled first may \
                 need a longer --start",
            ),
        false => failed
            .because("it has sent requests, and opened no watch")
            .fix("does it lack a right, or a CRD? name the folders with --crds and --rbac; what it printed may tell"),
    }
}
