//! The fault explorer: plays an operator through thousands of faults, and tells what does not come right.
//!
//! An operator that is right on good days may break when its process dies between two writes, when a watch lags, when
//! an answer is lost. [`Explore`] plays a workload once undisturbed, which counts the operator's writes and the events
//! that it hears, and then once for each fault: a crash before and after each write, a lost or refused answer, an outage,
//! a watch that is late, cut or has missed something, a restart that sees an older world, two processes at once, a user
//! who does not wait. Every run has a cluster of its own, with the built-in controllers, in virtual time. A run that
//! ends other than the undisturbed one is a finding; its name replays it.
//!
//! ```no_run
//! # fn operator() -> kubewright::Operator { unimplemented!() }
//! use kubewright_testing::Explore;
//!
//! #[test]
//! fn faults() -> kubewright_testing::Result<()> {
//!     Explore::of(operator).samples("config/samples")?.run()?.assert_none();
//!     Ok(())
//! }
//! ```
//!
//! - `steps.rs`, `inputs.rs`: what the user does,
//! - `fault.rs`, `order.rs`: the faults, which of them a run admits, and in which order; `children.rs`: what may be deleted,
//! - `pairs.rs`: two faults in one run,
//! - `seam.rs`, `stream.rs`: the connection at which they strike,
//! - `play.rs`: one run; `place.rs`: where it begins,
//! - `log.rs`: what happened in it,
//! - `snapshot.rs`, `invariants.rs`, `oracles.rs`: what counts as a finding; `history.rs`, `wanted.rs`: also without a fault,
//! - `shrink.rs`: the fewest steps that show a finding,
//! - `report.rs`, `details.rs`: how it is told; `coverage.rs`: where was looked,
//! - `outside/`: operators of any language, as programs, in the machine's time.
//!
//! Not here: faults of the operator's own memory, orders in which ready tasks run.

mod children;
mod coverage;
mod details;
mod fault;
mod history;
mod inputs;
mod invariants;
mod log;
mod oracles;
mod order;
mod outside;
mod pairs;
mod place;
mod play;
mod report;
mod seam;
mod shrink;
mod snapshot;
mod steps;
mod stream;
mod wanted;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kubewright::Operator;
use kubewright_cluster::{Cluster, ClusterBuilder};
use serde_json::Value;

pub use coverage::Site;
pub use fault::Fault;
pub use log::recorded;
pub use oracles::Severity;
pub use outside::{Failed, Outside, Progress};
pub use report::{Finding, Report};
pub use snapshot::Snapshot;
pub use steps::Step;

use crate::error::{Error, Result};
use history::Fresh;
use invariants::Invariant;
use log::Runs;
use oracles::Verdict;
use play::{Play, Run};
use report::Shown;
use shrink::{Schedule, Shrink};

/// Makes the operator of one process.
type OperatorOf = Arc<dyn Fn() -> Operator + Send + Sync>;
/// Makes the cluster of one run.
type ClusterOf = Arc<dyn Fn() -> ClusterBuilder + Send + Sync>;

/// The stack of a thread that plays. On a smaller one the server makes room for each deep value that it looks at.
const STACK: usize = 32 << 20;

/// How many workloads are played to find the fewest steps of a finding.
const TRIES: usize = 32;

/// Plays an operator through faults; see the [module](self).
#[must_use = "nothing is played until it runs"]
pub struct Explore {
    operator: OperatorOf,
    cluster: ClusterOf,
    steps: Vec<Step>,
    invariants: Vec<Invariant>,
    budget: Option<Duration>,
    faults: Option<usize>,
    jobs: usize,
    only: Option<Schedule>,
    shrinks: bool,
    is_first_enough: bool,
    pairs: bool,
    seed: u64,
    runs: Runs,
}

impl std::fmt::Debug for Explore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explore")
            .field("steps", &self.steps)
            .field("budget", &self.budget)
            .field("jobs", &self.jobs)
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

impl Explore {
    /// An exploration of this operator. The function is called for every process, of which each begins with nothing: it
    /// must not share memory between them. An operator that works on something outside of the cluster needs a stand-in
    /// that lives as long as the run.
    pub fn of(operator: impl Fn() -> Operator + Send + Sync + 'static) -> Explore {
        Explore {
            operator: Arc::new(operator),
            cluster: Arc::new(Cluster::builder),
            steps: Vec::new(),
            invariants: Vec::new(),
            budget: Some(Duration::from_secs(60)),
            faults: None,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            only: None,
            shrinks: true,
            is_first_enough: false,
            pairs: false,
            seed: 0,
            runs: Runs::default(),
        }
    }

    /// In clusters as this function says: with other nodes, or fewer controllers. Default [`Cluster::builder`].
    pub fn cluster(mut self, cluster: impl Fn() -> ClusterBuilder + Send + Sync + 'static) -> Explore {
        self.cluster = Arc::new(cluster);
        self
    }

    /// Further steps of the operator's user, in their order.
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Explore {
        self.steps.extend(steps);
        self
    }

    /// The life of the samples in a folder; see [`Step::of_samples`].
    ///
    /// # Errors
    /// As there.
    pub fn samples(self, folder: impl AsRef<Path>) -> Result<Explore> {
        let crds = (self.operator)().crds().map_err(Error::Runtime)?;
        let steps = Step::of_samples(folder, &crds)?;
        Ok(self.steps(steps))
    }

    /// What the user relies on at any time, in words, and whether it holds for the objects of the cluster. It is asked
    /// after each write of anybody, as `at most one primary` must be: the end of a step shows nothing of a moment with
    /// two. The objects are as the API server has them; what is gone is `null`.
    ///
    /// ```no_run
    /// # fn operator() -> kubewright::Operator { unimplemented!() }
    /// use kubewright_testing::Explore;
    ///
    /// let explore = Explore::of(operator).invariant("at most one primary", |objects| {
    ///     let is_primary = |object: &&serde_json::Value| object["metadata"]["labels"]["role"] == "primary";
    ///     objects.iter().filter(|object| object["kind"] == "Pod").filter(is_primary).count() <= 1
    /// });
    /// ```
    pub fn invariant(
        mut self,
        what: impl Into<String>,
        holds: impl Fn(&[Value]) -> bool + Send + Sync + 'static,
    ) -> Explore {
        self.invariants.push(Invariant {
            what: what.into(),
            holds: Arc::new(holds),
        });
        self
    }

    /// How long it may take, by the machine's clock; the report says how many faults were left out. Default a minute.
    /// `KUBEWRIGHT_EXPLORE` in the environment counts more: a number of seconds, or `all` for all faults, as a nightly
    /// run wants it.
    pub fn budget(mut self, budget: Duration) -> Explore {
        (self.budget, self.faults) = (Some(budget), None);
        self
    }

    /// The first so many faults in their order, however long that takes: with one [`seed`](Explore::seed) the same ones on
    /// every machine. `KUBEWRIGHT_EXPLORE` counts more, as for a [`budget`](Explore::budget).
    pub fn faults(mut self, faults: usize) -> Explore {
        (self.budget, self.faults) = (None, Some(faults));
        self
    }

    /// All faults, however long that takes.
    pub fn exhaustive(mut self) -> Explore {
        (self.budget, self.faults) = (None, None);
        self
    }

    /// How many runs are played side by side. Default one for each processor.
    pub fn jobs(mut self, jobs: usize) -> Explore {
        self.jobs = jobs.max(1);
        self
    }

    /// Ends with the first finding.
    pub fn until_found(mut self) -> Explore {
        self.is_first_enough = true;
        self
    }

    /// Plays pairs of faults as well: some thousand of very many, which the seed chooses. They come when each fault that
    /// is not like another was played alone.
    pub fn pairs(mut self) -> Explore {
        self.pairs = true;
        self
    }

    /// Leaves another course to chance than that of the seed 0: other uids, generated names and spread retries. A run
    /// of the same seed and the same fault is the same run.
    pub fn seed(mut self, seed: u64) -> Explore {
        self.seed = seed;
        self
    }

    /// Whether a finding is looked for in fewer steps, so that its report is short; as by default. It takes up to half the
    /// [`budget`](Explore::budget) more. Not worth it in a test that expects its findings.
    pub fn shrink(mut self, shrinks: bool) -> Explore {
        self.shrinks = shrinks;
        self
    }

    /// Writes what happens in every run into this file, a run log, behind what is there: `kubewright log` reads it.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the file cannot be opened, or holds something else.
    pub fn log(mut self, path: impl AsRef<Path>) -> Result<Explore> {
        let path = path.as_ref();
        let failed = |why| misconfigured(format!("cannot write the run log {}: {why}", path.display()));
        self.runs = Runs::open(path).map_err(failed)?;
        Ok(self)
    }

    /// Plays one finding alone, by the name that a report gave it: `crash-after@3`, the fault in all steps;
    /// `crash-after@3/1,4`, in these two; `undisturbed/1,4`, these two without a fault.
    ///
    /// # Errors
    /// [`Error::Runtime`] when this is no such name.
    pub fn replay(mut self, name: &str) -> Result<Explore> {
        self.only = Some(name.parse().map_err(misconfigured)?);
        Ok(self)
    }

    /// Plays the undisturbed run twice (once before a single fault), and then one run for each fault.
    ///
    /// # Errors
    /// When the undisturbed run cannot be played: the operator does not start, or the server refuses a step.
    pub fn run(self) -> Result<Report> {
        let begin = Instant::now();
        let (budget, limit) = match budget_of_environment()? {
            Some(budget) => (budget, None),
            None => (self.budget, self.faults),
        };
        let steps = match &self.only {
            Some(only) => only.of(&self.steps).map_err(misconfigured)?,
            None => self.steps.clone(),
        };
        let play = self.play(&steps);
        // Whether chance plays a part does not matter to a single fault.
        let times = if self.only.is_none() { 2 } else { 1 };
        let mut runs = side_by_side(self.jobs, times, |_| play.all(None, None))?.into_iter();
        let (Some(mut reference), again) = (runs.next(), runs.next()) else {
            unreachable!("at least one run was played");
        };
        let all = match &self.only {
            Some(only) => only.fault.iter().cloned().collect(),
            // What comes of a fault cannot be told where nothing comes to rest without one.
            None if oracles::is_restless(&reference) => Vec::new(),
            None => {
                let children: Vec<usize> = reference.children.iter().map(Vec::len).collect();
                let ordered = order::of(&order::Known {
                    log: &reference.log,
                    steps: &self.steps,
                    children: &children,
                    ends: &reference.ends,
                });
                let pairs = match self.pairs {
                    true => pairs::of(&ordered, &reference.log, self.seed),
                    false => Vec::new(),
                };
                let rest = ordered.partition_point(|(round, _)| *round != order::Round::Rest);
                let plain = ordered.into_iter().map(|(_, fault)| fault);
                let mut all: Vec<Fault> = plain.collect();
                all.splice(rest..rest, pairs);
                all
            }
        };
        let mut report = Report::new(&reference, all.len(), &steps);
        for verdict in oracles::of_reference(&reference) {
            report.found(None, verdict, Some(&reference));
        }
        if let Some(verdict) = again.and_then(|again| oracles::of_chance(&reference, &again)) {
            report.found(None, verdict, None);
        }
        let fault = self.only.as_ref().and_then(|only| only.fault.as_ref());
        for verdict in self.of_history(&play, &mut reference, fault)? {
            report.found(None, verdict, Some(&reference));
        }
        let (next, report) = (AtomicUsize::new(0), Mutex::new(report));
        let is_enough = |report: &Mutex<Report>| {
            self.is_first_enough && report.lock().unwrap_or_else(PoisonError::into_inner).so_far() > 0
        };
        let failed = Mutex::new(None);
        let work = || {
            while budget.is_none_or(|budget| begin.elapsed() < budget) && !is_enough(&report) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(fault) = all.get(at).filter(|_| limit.is_none_or(|limit| at < limit)) else {
                    break;
                };
                if let Err(error) = self.judged(&play, fault, &reference, &report) {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert((fault.clone(), error));
                }
            }
        };
        side_by_side(self.jobs.min(all.len()), self.jobs.min(all.len()), |_| {
            work();
            Ok(())
        })?;
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((fault, error)) = failed {
            return Err(misconfigured(format!("{fault} cannot be played: {error}")));
        }
        // Where nothing comes to rest each try takes as long as all of it.
        if self.only.is_none() && self.shrinks && !oracles::is_restless(&reference) {
            let end = budget.map(|budget| Instant::now() + budget / 2);
            self.shrunk(&mut report, &reference, end)?;
        }
        report.end(begin.elapsed(), all.iter().skip(next.into_inner()));
        let failed = |why| misconfigured(format!("cannot write the run log: {why}"));
        self.runs.finish().map_err(failed)?;
        Ok(report)
    }

    fn play<'a>(&'a self, steps: &'a [Step]) -> Play<'a> {
        Play {
            operator: &self.operator,
            cluster: &self.cluster,
            seed: self.seed,
            steps,
            invariants: &self.invariants,
            runs: &self.runs,
        }
    }

    /// Looks for each finding in fewer steps, until this moment.
    fn shrunk(&self, report: &mut Report, reference: &Run, end: Option<Instant>) -> Result<()> {
        let all = report.to_shrink();
        let shown = side_by_side(self.jobs, all.len(), |at| {
            let (what, fault) = &all[at];
            let likely = shrink::likely(fault.as_ref(), &reference.log, &self.steps);
            let mut shrink = Shrink::new(self.steps.len(), TRIES, likely);
            let mut best = None;
            while let Some(kept) = shrink.next().filter(|_| end.is_none_or(|end| Instant::now() < end)) {
                let shown = self.shown(what, fault.as_ref(), reference, kept);
                shrink.answer(shown.is_some());
                best = shown.or(best);
            }
            Ok(best)
        })?;
        for ((what, _), shown) in all.iter().zip(shown) {
            if let Some(shown) = shown {
                report.shrunk(what, shown);
            }
        }
        Ok(())
    }

    /// The finding in a workload of which only these steps are made. A workload that cannot be played does not show it:
    /// a step may need one that is left out.
    fn shown(&self, what: &str, fault: Option<&Fault>, reference: &Run, kept: Vec<usize>) -> Option<Shown> {
        let steps = shrink::with(&kept, &self.steps);
        let play = self.play(&steps);
        let mut undisturbed = play.all(None, None).ok()?;
        let fault = match fault {
            Some(_) if oracles::is_restless(&undisturbed) => return None,
            Some(fault) => Some(shrink::carried(fault, reference, &undisturbed, &kept)?),
            None => None,
        };
        let mut found = self.of_history(&play, &mut undisturbed, fault.as_ref()).ok()?;
        let (run, undisturbed) = match &fault {
            Some(fault) => {
                let run = play.all(Some(fault), Some(&undisturbed)).ok()?;
                found = oracles::of_disturbed(fault, &run, &undisturbed).into_iter().collect();
                (run, Some(undisturbed.log))
            }
            None => {
                found.extend(oracles::of_reference(&undisturbed));
                (undisturbed, None)
            }
        };
        let found = found.into_iter().find(|found| found.what == what)?;
        let steps = Some(kept);
        Some(Shown {
            schedule: Schedule { fault, steps },
            run,
            undisturbed,
            details: found.details,
        })
    }

    /// What the steps alone show: states that depend on the way, and wishes that are not heeded. The undisturbed run
    /// learns how a new cluster ends in which all is wanted at once that is wanted after a step, if a fault that is played
    /// alone may end so, too.
    fn of_history(&self, play: &Play<'_>, reference: &mut Run, only: Option<&Fault>) -> Result<Vec<Verdict>> {
        if oracles::is_restless(reference) || only.is_some_and(|only| !may_start_anew(only)) {
            return Ok(Vec::new());
        }
        let mut fresh = Fresh::of(reference);
        let open = fresh.open();
        let played = side_by_side(self.jobs, open.len(), |at| play.fresh(reference, open[at]))?;
        for (step, end) in open.into_iter().zip(played) {
            fresh.ends(step, end);
        }
        let (found, ends) = (fresh.verdicts(), fresh.all());
        reference.fresh = ends.into();
        Ok(if only.is_none() { found } else { Vec::new() })
    }

    /// Plays a fault and reports what is found.
    fn judged(&self, play: &Play<'_>, fault: &Fault, reference: &Run, report: &Mutex<Report>) -> Result<()> {
        let report = || report.lock().unwrap_or_else(PoisonError::into_inner);
        // A fault that was asked for alone is told from the beginning.
        if self.only.is_none()
            && let Some(part) = play.part(fault, reference)?
        {
            let suspect = oracles::of_disturbed(fault, &part, reference);
            let mut report = report();
            match suspect {
                // What is known needs no other proof.
                Some(suspect) if report.knows(&suspect) => {
                    report.counts(fault, &part);
                    report.found(Some(fault), suspect, None);
                    return Ok(());
                }
                Some(_) => {}
                None => {
                    report.counts(fault, &part);
                    return Ok(());
                }
            }
        }
        let run = play.all(Some(fault), Some(reference))?;
        report().played(fault, &run, reference);
        Ok(())
    }
}

fn misconfigured(why: String) -> Error {
    Error::Runtime(kubewright::Error::Configuration(why))
}

/// Whether the end may be that of a new cluster as well: the user does not wait, or something is made anew.
fn may_start_anew(fault: &Fault) -> bool {
    let starts_anew = |part: &Fault| {
        matches!(
            part,
            Fault::NextStep(_) | Fault::Overtaken(_) | Fault::Down { .. } | Fault::Deleted { .. }
        )
    };
    fault.parts().iter().any(starts_anew)
}

/// Does something so many times, some of them at once, and answers what comes of each.
fn side_by_side<T: Send>(jobs: usize, times: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let turn = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= times {
                break;
            }
            let one = work(at);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
        }
    };
    let started = std::thread::scope(|scope| -> std::io::Result<()> {
        for _ in 0..jobs.min(times) {
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, turn)?;
        }
        Ok(())
    });
    if let Err(error) = started {
        return Err(misconfigured(format!("no thread can be started: {error}")));
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

/// The budget that the environment gives; within, none for all faults.
fn budget_of_environment() -> Result<Option<Option<Duration>>> {
    const NAME: &str = "KUBEWRIGHT_EXPLORE";
    let Ok(text) = std::env::var(NAME) else {
        return Ok(None);
    };
    match text.as_str() {
        "all" => Ok(Some(None)),
        seconds => match seconds.parse().map(Duration::from_secs) {
            Ok(budget) => Ok(Some(Some(budget))),
            Err(error) => {
                let what = format!("{NAME} is {text:?}: it is a number of seconds or \"all\" ({error})");
                Err(misconfigured(what))
            }
        },
    }
}
