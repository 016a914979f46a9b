//! The explorer for operators of any language: the operator is a program, as it is.
//!
//! Every run has an embedded cluster in this process and the program as a child process, with a kubeconfig of its own
//! that leads through the seam. Workload, faults, oracles and report are those of the explorer for operators of this
//! library; what is different is the time, which is the machine's, and what can be known of the operator: its requests.
//!
//! - `play.rs`, `disturbed.rs`, `waiting.rs`, `lingering.rs`: one run, and how long is waited in it,
//! - `child.rs`, `endpoint.rs`: a process, and its way to the API server,
//! - `fresh.rs`: new clusters for the states of the workload,
//! - `mask.rs`: what is a matter of chance in two undisturbed runs,
//! - `shrunk.rs`: a finding in fewer steps,
//! - `choice.rs`: which faults are worth a run, and in which order,
//! - `failed.rs`: what keeps an exploration from its end.

mod child;
mod choice;
mod disturbed;
mod endpoint;
mod failed;
mod fresh;
mod lingering;
mod mask;
mod play;
mod shrunk;
mod tunnel;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright_cluster::controllers::Settings;
use kubewright_cluster::{Cluster, ClusterBuilder};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::ClusterOf;
use super::fault::Fault;
use super::log::Runs;
use super::may_start_anew;
use super::oracles::{self, Severity, Verdict};
use super::report::Report;
use super::shrink::Schedule;
use super::steps::Step;
use child::Program;
use disturbed::{Disturbed, disturbed};
pub use failed::Failed;
use play::{Reference, Stage, undisturbed};

/// How many runs may wait with patience, for each that is active.
const PATIENT: usize = 4;
/// How many changes of a sample come one after the other.
const CHANGES: usize = 2;
/// kopf tries again after a minute when a handler fails.
const PATIENCE_OF_KOPF: Duration = Duration::from_secs(75);

/// How far an exploration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many faults were played.
    pub played: usize,
    /// How many are to be played.
    pub chosen: usize,
    /// How many findings there are so far.
    pub findings: usize,
    /// How long it has taken.
    pub took: Duration,
    /// How long it takes still, at the pace so far and within the budget.
    pub left: Option<Duration>,
}

type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Plays a program that is an operator through faults.
///
/// ```no_run
/// # async fn faults() -> Result<(), kubewright_testing::explore::Failed> {
/// use kubewright_testing::explore::Outside;
///
/// let report = Outside::of("./manager")
///     .crds("config/crd/bases")?
///     .samples("config/samples")?
///     .run()
///     .await?;
/// report.assert_none();
/// # Ok(()) }
/// ```
#[must_use = "nothing is played until it runs"]
pub struct Outside {
    program: Program,
    cluster: ClusterOf,
    crds: Vec<CustomResourceDefinition>,
    roles: Option<PathBuf>,
    steps: Vec<Step>,
    budget: Option<Duration>,
    jobs: usize,
    seed: Option<u64>,
    pairs: bool,
    replicas: usize,
    only: Vec<Schedule>,
    start: Duration,
    patience: Duration,
    longest: Duration,
    rest: Duration,
    again: Option<String>,
    runs: Runs,
    told: OnProgress,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("program", &self.program)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl Outside {
    /// An exploration of this program. The command is as a shell takes it; `{port}` in it stands for a port that is
    /// free, another one for each process. The program must take the cluster from `KUBECONFIG` and run until it is
    /// ended.
    pub fn of(command: impl Into<String>) -> Outside {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Outside {
            program: Program {
                command: command.into(),
                folder: PathBuf::from("."),
                variables: Vec::new(),
            },
            cluster: Arc::new(in_real_time),
            crds: Vec::new(),
            roles: None,
            steps: Vec::new(),
            budget: Some(Duration::from_secs(60)),
            jobs: processors * 3,
            seed: None,
            pairs: false,
            replicas: 1,
            only: Vec::new(),
            start: Duration::from_secs(120),
            patience: Duration::from_secs(30),
            longest: Duration::from_secs(60),
            rest: Duration::ZERO,
            again: None,
            runs: Runs::default(),
            told: Arc::new(|_| {}),
        }
    }

    /// The folder in which the program is started. Default the present one.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Outside {
        self.program.folder = folder.into();
        self
    }

    /// A variable of the program's environment.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Outside {
        self.program.variables.push((name.into(), value.into()));
        self
    }

    /// Installs the CRDs of a file, or of the files in a folder and those below it.
    ///
    /// # Errors
    /// When they cannot be read, or there is none.
    pub fn crds(mut self, path: impl AsRef<Path>) -> Result<Outside, Failed> {
        let path = path.as_ref();
        let mut found = Vec::new();
        read_crds(path, &mut found)?;
        if found.is_empty() {
            return Err(Failed::new(format!("there is no CRD in {}", path.display()))
                .fix("name the folder of the CustomResourceDefinitions, such as config/crd/bases"));
        }
        self.crds.extend(found);
        Ok(self)
    }

    /// Runs the operator under the role in this folder: `role.yaml`, and those of leader election and of the metrics
    /// beside it. Default: it may do everything.
    pub fn roles(mut self, folder: impl Into<PathBuf>) -> Outside {
        self.roles = Some(folder.into());
        self
    }

    /// Further steps of the operator's user, in their order.
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Outside {
        self.steps.extend(steps);
        self
    }

    /// The life of the samples in a folder; see [`Step::of_samples`]. In the machine's time each step takes seconds, so
    /// one field is changed, and then others together. What they may be, the CRDs say that are known by now.
    ///
    /// # Errors
    /// As there.
    pub fn samples(self, folder: impl AsRef<Path>) -> Result<Outside, Failed> {
        let steps = Step::of_inputs(folder.as_ref(), &self.crds, CHANGES)?;
        Ok(self.steps(steps))
    }

    /// For how long runs with faults begin. The undisturbed runs before them take as long as the operator needs: a budget
    /// that they could use up would play nothing. Default a minute.
    pub fn budget(mut self, budget: Duration) -> Outside {
        self.budget = Some(budget);
        self
    }

    /// All faults, also those that are like others, however long that takes.
    pub fn exhaustive(mut self) -> Outside {
        self.budget = None;
        self
    }

    /// How many runs are played side by side. Default three for each processor: a run waits most of the time.
    pub fn jobs(mut self, jobs: usize) -> Outside {
        self.jobs = jobs.max(1);
        self
    }

    /// Plays the faults in an order of this number's.
    pub fn seed(mut self, seed: u64) -> Outside {
        self.seed = Some(seed);
        self
    }

    /// Plays pairs of faults as well, which the seed chooses, when each fault that is not like another was played alone.
    pub fn pairs(mut self) -> Outside {
        self.pairs = true;
        self
    }

    /// Runs so many processes at a time, of which one leads. When it dies, or stands still, another one takes over.
    pub fn replicas(mut self, replicas: usize) -> Outside {
        self.replicas = replicas.max(1);
        self
    }

    /// Plays this finding, by the name that a report gave it ([`Explore::replay`](super::Explore::replay)), and no others
    /// but those that are named so. All of them are of the same steps.
    ///
    /// # Errors
    /// When this is no such name, or one of other steps.
    pub fn replay(mut self, name: &str) -> Result<Outside, Failed> {
        let failed = |why: String| Failed::new("cannot play a fault again").because(why);
        let schedule: Schedule = name.parse().map_err(failed)?;
        if let Some(first) = self.only.first().filter(|first| first.steps != schedule.steps) {
            return Err(failed(format!("{name} and {first} are of other steps")).fix("play one after the other"));
        }
        self.only.push(schedule);
        Ok(self)
    }

    /// How long the program may take until it opens its first watch. Default two minutes, for those that are compiled
    /// first.
    pub fn start(mut self, start: Duration) -> Outside {
        self.start = start;
        self
    }

    /// How long a state is waited for that may still come right. Default half a minute, and more for kopf, which tries
    /// again after a minute.
    pub fn patience(mut self, patience: Duration) -> Outside {
        self.patience = patience;
        self
    }

    /// How long nothing happens at least, until the operator counts as at rest: more than it ever works between two
    /// requests. Default as long as it took to start, between one second and five, and longer when the undisturbed run
    /// shows that the operator comes back by itself.
    pub fn rest(mut self, rest: Duration) -> Outside {
        self.rest = rest;
        self
    }

    /// How long the undisturbed run may take to come to rest after a step. Default a minute.
    pub fn longest_rest(mut self, longest: Duration) -> Outside {
        self.longest = longest;
        self
    }

    /// In clusters as this function says. Default one with all controllers, whose nodes send no heartbeats.
    pub fn cluster(mut self, cluster: impl Fn() -> ClusterBuilder + Send + Sync + 'static) -> Outside {
        self.cluster = Arc::new(cluster);
        self
    }

    /// The words with which the report says how a finding is played again; `{}` stands for the fault.
    pub fn again(mut self, words: impl Into<String>) -> Outside {
        self.again = Some(words.into());
        self
    }

    /// Writes what happens in every run into this file, a run log, behind what is there: `kubewright log` reads it.
    ///
    /// # Errors
    /// When the file cannot be opened, or holds something else.
    pub fn log(mut self, path: impl AsRef<Path>) -> Result<Outside, Failed> {
        let path = path.as_ref();
        let failed = |why| Failed::new(format!("cannot write the run log {}", path.display())).because(why);
        self.runs = Runs::open(path).map_err(failed)?;
        Ok(self)
    }

    /// Tells how far it is, after each run.
    pub fn progress(mut self, told: impl Fn(Progress) + Send + Sync + 'static) -> Outside {
        self.told = Arc::new(told);
        self
    }

    /// Plays the undisturbed run twice, and then one run for each fault that is worth it.
    ///
    /// # Errors
    /// When the program does not start, ends by itself or watches nothing, and when the server refuses a step.
    pub async fn run(self) -> Result<Report, Failed> {
        let begin = Instant::now();
        if self.steps.is_empty() {
            return Err(Failed::new("there is nothing to play").fix("name the folder of the samples, or steps"));
        }
        let steps = match self.only.first() {
            Some(only) => only
                .of(&self.steps)
                .map_err(|why| Failed::new("cannot play a fault again").because(why))?,
            None => self.steps,
        };
        let tls = endpoint::Tls::new();
        let tls = tls.map_err(|why| Failed::new("cannot make a certificate").because(why))?;
        let mut stage = Stage {
            program: self.program,
            cluster: self.cluster,
            crds: self.crds,
            roles: self.roles,
            steps,
            runs: Arc::new(self.runs),
            tls,
            replicas: self.replicas,
            start: self.start,
            patience: self.patience,
            longest: self.longest.max(self.rest * 6),
            rest: self.rest,
            active: Arc::new(Semaphore::new(self.jobs)),
            lasting: Mutex::default(),
            known: Mutex::default(),
        };
        let (mut reference, again) = tokio::try_join!(undisturbed(&stage, false), undisturbed(&stage, true))?;
        if reference
            .agents
            .iter()
            .chain(&again.agents)
            .any(|agent| agent.starts_with("kopf/"))
        {
            stage.patience = stage.patience.max(PATIENCE_OF_KOPF);
        }
        // A disturbed run may have to wait for it more than once.
        let comes_back = reference.comes_back.max(again.comes_back);
        stage.patience = stage.patience.max(comes_back * 3);
        let chance = learn(&mut reference, again);
        // What it writes when it starts is the same without a user.
        if !reference.run.log.attempts().iter().any(|write| write.step > 0) {
            let watched: Vec<&str> = reference.watched.iter().map(String::as_str).collect();
            return Err(Failed::new("the operator writes nothing when the samples are applied")
                .because(format!("it watches {}", watched.join(", ")))
                .printed(reference.output.as_ref())
                .fix("do the samples fit the kinds that it watches, and does it watch their namespace?"));
        }
        let is_replay = !self.only.is_empty();
        let replayed: Vec<Fault> = self.only.into_iter().filter_map(|only| only.fault).collect();
        let looks_at_the_way = replayed.iter().all(may_start_anew) && !oracles::is_restless(&reference.run);
        let tells_of_the_way = replayed.is_empty();
        let all = match is_replay {
            true => replayed,
            // What comes of a fault cannot be told where nothing comes to rest without one.
            false if oracles::is_restless(&reference.run) => Vec::new(),
            false => choice::of(
                &reference.run,
                &stage.steps,
                reference.elects,
                choice::Wish {
                    all: self.budget.is_none(),
                    pairs: self.pairs,
                    seed: self.seed,
                },
            ),
        };
        let mut report = Report::new(&reference.run, all.len(), &stage.steps);
        if comes_back > Duration::ZERO {
            let seconds = comes_back.as_secs_f64();
            report.noticed.push(format!(
                "it goes on by itself after {seconds:.1} s in which it asks for nothing; so long is waited after each step"
            ));
        }
        if let Some(again) = self.again {
            report.again = again;
        }
        for verdict in oracles::of_reference(&reference.run) {
            report.found(None, verdict, Some(&reference.run));
        }
        if let Some(verdict) = chance {
            report.found(None, verdict, None);
        }
        let mut playing = Playing {
            alive: Arc::new(Semaphore::new(self.jobs * (1 + PATIENT))),
            stage: Arc::new(stage),
            reference: Arc::new(reference),
            runs: JoinSet::new(),
            report,
            begin,
            since: Instant::now(),
            budget: self.budget,
            told: self.told,
            of_way: None,
            shrinks: !is_replay,
        };
        if looks_at_the_way {
            let (stage, reference) = (playing.stage.clone(), playing.reference.clone());
            playing.of_way = Some(tokio::spawn(async move {
                let found = fresh::of_history(&stage, &reference).await?;
                Ok(found.into_iter().filter(|_| tells_of_the_way).collect())
            }));
        }
        playing.all(all).await
    }
}

/// The runs with faults, side by side.
struct Playing {
    stage: Arc<Stage>,
    reference: Arc<Reference>,
    alive: Arc<Semaphore>,
    runs: JoinSet<(Fault, Result<Disturbed, Failed>)>,
    report: Report,
    begin: Instant,
    since: Instant,
    budget: Option<Duration>,
    told: OnProgress,
    /// What the steps alone show. New clusters are played beside the faults.
    of_way: Option<tokio::task::JoinHandle<Result<Vec<Verdict>, Failed>>>,
    shrinks: bool,
}

impl Playing {
    async fn all(mut self, faults: Vec<Fault>) -> Result<Report, Failed> {
        self.tell();
        let mut faults = faults.into_iter();
        let mut left = Vec::new();
        for fault in faults.by_ref() {
            let (active, alive) = (self.stage.active.clone(), self.alive.clone());
            let place = async { (alive.acquire_owned().await, active.acquire_owned().await) };
            tokio::pin!(place);
            let (alive, active) = loop {
                tokio::select! {
                    biased;
                    Some(ended) = self.runs.join_next() => self.judge(ended)?,
                    place = &mut place => break place,
                }
            };
            if self.budget.is_some_and(|budget| self.since.elapsed() >= budget) {
                left.push(fault);
                break;
            }
            let (stage, reference) = (self.stage.clone(), self.reference.clone());
            self.runs.spawn(async move {
                let _alive = alive;
                let run = disturbed(&stage, &fault, &reference, active.ok()).await;
                (fault, run)
            });
        }
        while let Some(ended) = self.runs.join_next().await {
            self.judge(ended)?;
        }
        left.extend(faults);
        if let Some(of_way) = self.of_way.take() {
            let found = of_way
                .await
                .map_err(|why| Failed::new("a run broke off").because(why))?;
            for verdict in found? {
                self.report.found(None, verdict, Some(&self.reference.run));
            }
        }
        // Where nothing comes to rest each try takes as long as all of it.
        if self.shrinks && !oracles::is_restless(&self.reference.run) {
            self.shrink().await?;
        }
        self.report.end(self.begin.elapsed(), &left);
        let failed = |why: String| Failed::new("cannot write the run log").because(why);
        self.stage.runs.finish().map_err(failed)?;
        Ok(self.report)
    }

    /// Looks for each finding in fewer steps, for up to half the budget.
    async fn shrink(&mut self) -> Result<(), Failed> {
        let end = self.budget.map(|budget| tokio::time::Instant::now() + budget / 2);
        let mut tries = JoinSet::new();
        for finding in self.report.to_shrink() {
            tries.spawn(shrunk::shrunk(self.stage.clone(), self.reference.clone(), finding, end));
        }
        while let Some(ended) = tries.join_next().await {
            let (what, shown) = ended.map_err(|why| Failed::new("a run broke off").because(why))?;
            if let Some(shown) = shown {
                self.report.shrunk(&what, shown);
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        ended: Result<(Fault, Result<Disturbed, Failed>), tokio::task::JoinError>,
    ) -> Result<(), Failed> {
        let (fault, disturbed) = ended.map_err(|why| Failed::new("a run broke off").because(why))?;
        let Disturbed { run, verdict, is_told } = disturbed.map_err(|failed| failed.of(&fault))?;
        self.report.counts(&fault, &run);
        if let Some(verdict) = verdict {
            self.stage.notes(&verdict);
            self.report.found(Some(&fault), verdict, is_told.then_some(&run));
        }
        self.tell();
        Ok(())
    }

    fn tell(&self) {
        let (played, chosen) = (self.report.played, self.report.faults);
        let (took, so_far) = (self.begin.elapsed(), self.since.elapsed());
        let at_this_pace = so_far.checked_div(u32::try_from(played).unwrap_or(u32::MAX));
        let rest = u32::try_from(chosen - played).unwrap_or(u32::MAX);
        let left = at_this_pace.map(|each| each.saturating_mul(rest));
        (self.told)(Progress {
            played,
            chosen,
            findings: self.report.so_far(),
            took,
            left: left.map(|left| {
                self.budget
                    .map_or(left, |budget| left.min(budget.saturating_sub(so_far)))
            }),
        });
    }
}

/// Takes over what a second undisturbed run shows: what is a matter of chance, what it asks for all the time, what a
/// restart writes.
fn learn(reference: &mut Reference, again: Reference) -> Option<Verdict> {
    reference.noise.extend(again.noise);
    reference.quiet = reference.quiet.max(again.quiet);
    reference.elects |= again.elects;
    reference.run.writes_of_a_restart = again.run.writes_of_a_restart;
    for (one, other) in reference.run.ends.iter().zip(&again.run.ends) {
        reference.mask.add(one, other);
    }
    let ends = std::mem::take(&mut reference.run.ends);
    reference.run.ends = ends.into_iter().map(|end| reference.mask.apply(end)).collect();
    let details = reference.mask.describe();
    (!details.is_empty()).then(|| Verdict {
        severity: Severity::Low,
        what: "two undisturbed runs end differently: what differs is a matter of chance, and is compared no further"
            .to_owned(),
        details,
    })
}

/// A cluster in which nothing happens by itself.
fn in_real_time() -> ClusterBuilder {
    Cluster::builder().settings(Settings {
        heartbeats: false,
        pod_stop: Duration::from_millis(10),
        ..Settings::default()
    })
}

fn read_crds(path: &Path, found: &mut Vec<CustomResourceDefinition>) -> Result<(), Failed> {
    let unreadable = |why: String| Failed::new(format!("cannot read the CRDs in {}", path.display())).because(why);
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|why| unreadable(why.to_string()))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let is_meant =
            |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        for path in paths.iter().filter(|path| is_meant(path)) {
            read_crds(path, found)?;
        }
        return Ok(());
    }
    let text = std::fs::read_to_string(path).map_err(|why| unreadable(why.to_string()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|why| unreadable(why.to_string()))?;
    for document in documents {
        // Beside them are kustomizations, and patches of a CRD that are none.
        if document["kind"] == "CustomResourceDefinition" && document["spec"]["versions"].is_array() {
            found.push(serde_json::from_value(document).map_err(|why| unreadable(why.to_string()))?);
        }
    }
    Ok(())
}
