//! Plays an operator through one run: the steps of its user, with at most one fault.
//!
//! A run has a thread and a time of its own. After every step the cluster comes to rest: some minutes pass, in which
//! every fault that lasts has ended and every retry had its turn, and then until nothing changes. A disturbed run begins
//! where its fault is ([`Place`]), and ends when the cluster is again as in the undisturbed run. Invariant: without a
//! fault one process of the operator runs all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::{self, client::Body};
use kubewright::{LeaderElection, Observation, Outcome};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::children::{children, identities};
use super::fault::Fault;
use super::invariants::{Invariant, broken};
use super::log::{Log, Made, Named, Runs, What, recorded};
use super::place::{Place, goes_on, is_idle};
use super::seam::{Ask, Harm, Pace, Seam};
use super::snapshot::{Reader, Snapshot};
use super::steps::{Step, deletion_after};
use super::wanted::Wanted;
use super::{ClusterOf, OperatorOf};
use crate::cluster::TestCluster;
use crate::error::Result;
use crate::rights::Rights;
use crate::time::QUIET;

mod rest;

use self::rest::{LONGEST, PATIENCE};

/// How much longer a state is waited for that is not yet that of the undisturbed run.
const MORE_PATIENCE: Duration = Duration::from_secs(300);
/// How long nothing may be written when all is done.
const WATCHED: Duration = Duration::from_secs(300);
/// How long another process takes to start.
const RESTART: Duration = Duration::from_secs(1);
/// How long the built-in controllers have for a step for which no process is there.
const ALONE: Duration = Duration::from_secs(30);

/// What one run came to.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) log: Log,
    /// When the fault struck.
    pub(super) struck: Option<Duration>,
    /// What was there before the first step, and after each.
    pub(super) ends: Vec<Snapshot>,
    /// What the user wanted then.
    pub(super) wanted: Vec<Wanted>,
    /// How a new cluster ends in which the user wants this from the beginning, as far as that is known.
    pub(super) fresh: std::sync::OnceLock<Vec<Option<Snapshot>>>,
    /// What may be deleted then.
    pub(super) children: Vec<Vec<Made>>,
    /// The steps that the user made before the one before had come to rest.
    pub(super) hurried: Option<usize>,
    /// The first step after which things changed again and again.
    pub(super) restless: Option<usize>,
    /// What the user relies on and did not hold, and in which step.
    pub(super) broken: Option<(String, usize)>,
    /// What was there before a process saw an older world, and is another object now.
    pub(super) replaced: Option<Named>,
    /// A write that failed in a reconcile that ended as if all were done.
    pub(super) swallowed: Option<String>,
    /// Writes that do harm though the end looks right.
    pub(super) harm: Harm,
    /// A kind of write, or a reconcile, that came in floods.
    pub(super) flood: Option<String>,
    /// A write of several that changed something long after a step.
    pub(super) busy: Option<String>,
    /// Writes that changed something though all was done.
    pub(super) late_writes: Vec<String>,
    /// Writes that changed something after a restart, though all was done.
    pub(super) writes_of_a_restart: Vec<String>,
    /// Why the operator ended by itself.
    pub(super) ended: Option<String>,
    /// Reconciles that panicked.
    pub(super) panics: Vec<String>,
    /// Reconciles that still fail at the end.
    pub(super) failing: String,
    /// The moments at rest from which other runs may start, of a run that began with nothing.
    pub(super) places: Vec<Place>,
}

/// What is played.
pub(super) struct Play<'a> {
    pub(super) operator: &'a OperatorOf,
    pub(super) cluster: &'a ClusterOf,
    pub(super) seed: u64,
    pub(super) steps: &'a [Step],
    pub(super) invariants: &'a [Invariant],
    pub(super) runs: &'a Runs,
}

/// Where a run begins that does not begin with nothing.
#[derive(Clone, Copy)]
struct Begin<'a> {
    reference: &'a Run,
    /// After this step.
    step: usize,
}

impl Play<'_> {
    /// Plays a run from the beginning, on a runtime of its own. With the undisturbed run it waits with patience for what
    /// is not yet as there.
    ///
    /// # Errors
    /// When the cluster or the operator cannot start, or a step of the user is refused.
    pub(super) fn all(&self, fault: Option<&Fault>, reference: Option<&Run>) -> Result<Run> {
        let run = self.run(fault, reference, None)?;
        Ok(run.expect("a run from the beginning is what it is"))
    }

    /// Plays a run from the moment at rest before its fault until the cluster is as in the undisturbed run. `None` when
    /// such a run is none of this operator: it writes when it starts anew, or does what it does not do undisturbed.
    ///
    /// # Errors
    /// As [`all`](Play::all).
    pub(super) fn part(&self, fault: &Fault, reference: &Run) -> Result<Option<Run>> {
        let Some(step) = Place::before(fault, &reference.log) else {
            return Ok(None);
        };
        self.run(Some(fault), Some(reference), Some(Begin { reference, step }))
    }

    /// Plays a new cluster in which the user wants at once what he wanted after a step, and answers how it ends; `None`
    /// when it does not come to rest, or something in it fails.
    ///
    /// # Errors
    /// As [`all`](Play::all).
    pub(super) fn fresh(&self, reference: &Run, step: usize) -> Result<Option<Snapshot>> {
        let steps = reference.wanted[step].steps();
        let play = Play { steps: &steps, ..*self };
        let begin = Begin { reference, step: 0 };
        let run = match play.run(None, None, (!reference.places.is_empty()).then_some(begin))? {
            Some(run) => run,
            None => play.all(None, None)?,
        };
        let is_sound = run.restless.is_none() && run.failing.is_empty() && run.ended.is_none() && run.panics.is_empty();
        Ok(run.ends.last().filter(|_| is_sound).cloned())
    }

    fn run(&self, fault: Option<&Fault>, reference: Option<&Run>, begin: Option<Begin<'_>>) -> Result<Option<Run>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| kubewright::Error::Configuration(format!("no runtime: {error}")))?;
        runtime.block_on(async {
            let mut builder = (self.cluster)();
            let mut start: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
            let mut seed = self.seed;
            if let Some(Begin { reference, step }) = begin {
                start = reference.places[step].time;
                // What was drawn until then is there already.
                seed = seed.wrapping_add(u64::try_from(step).unwrap_or(0)).wrapping_add(1);
                builder = goes_on(&reference.places, step, builder);
            }
            let cluster = TestCluster::with_seed(seed, start, builder).await?;
            let (asks, asked) = unbounded_channel();
            let seam = Seam::new(fault.cloned(), Pace::VIRTUAL, BTreeSet::new(), cluster.clone(), asks);
            let mut player = Player {
                operator: self.operator.clone(),
                cluster,
                seam,
                asked,
                processes: BTreeMap::new(),
                next: 1,
                is_installed: begin.is_some(),
                is_hurried: false,
                reader: begin.map_or_else(Reader::lenient, |begin| {
                    begin.reference.places[begin.step].reader.clone()
                }),
                busy: None,
                panics: Arc::default(),
            };
            let run = player.run(self, fault, reference, begin).await;
            player.cluster.stop().await;
            run
        })
    }
}

struct Player {
    operator: OperatorOf,
    cluster: TestCluster,
    seam: Arc<Seam>,
    asked: UnboundedReceiver<Ask>,
    processes: BTreeMap<usize, JoinHandle<std::result::Result<(), kubewright::Error>>>,
    next: usize,
    /// The operator's definitions and rights are there.
    is_installed: bool,
    reader: Reader,
    /// The user does not wait any longer.
    is_hurried: bool,
    busy: Option<String>,
    panics: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Player {
    async fn run(
        &mut self,
        play: &Play<'_>,
        fault: Option<&Fault>,
        reference: Option<&Run>,
        begin: Option<Begin<'_>>,
    ) -> Result<Option<Run>> {
        let steps = play.steps;
        let mut run = Run::default();
        let mut number = 0;
        match begin {
            None => {
                self.start().await?;
                if !self.rest().await? {
                    run.restless = Some(0);
                }
            }
            Some(Begin { reference, step }) => {
                number = step;
                run.ends.extend_from_slice(&reference.ends[..step]);
                if !self.begin(fault, begin, step).await? {
                    return Ok(None);
                }
            }
        }
        let mut revisions: Vec<u64> = match begin {
            Some(begin) => begin.reference.places[..number]
                .iter()
                .map(|place| place.revision)
                .collect(),
            None => Vec::new(),
        };
        let first = number;
        let parts = fault.map_or(&[][..], Fault::parts);
        let mut ends_with = steps.len();
        let mut wanted = Wanted::default();
        let mut is_patient = true;
        let mut refused = Vec::new();
        let mut is_down = false;
        loop {
            let mut is_restless = false;
            for part in parts {
                match part {
                    Fault::Stale { after, .. } | Fault::Past { after, .. } if *after == number => {
                        let shown = match part {
                            Fault::Past { resource, event, .. } => match begin {
                                Some(begin) => begin.reference.log.revision_of_event(resource, *event),
                                None => self.seam.look(|log| log.revision_of_event(resource, *event)),
                            },
                            Fault::Stale { sees, .. } => revisions.get(*sees).copied(),
                            _ => None,
                        };
                        self.end_all();
                        self.pass(RESTART).await?;
                        let before = identities(self.cluster.cluster().api());
                        self.seam.show(shown.unwrap_or_else(|| self.revision()), part);
                        self.start().await?;
                        is_restless |= !self.rest().await?;
                        run.replaced = replaced(before, &identities(self.cluster.cluster().api()));
                    }
                    Fault::Deleted { after, object } if *after == number => {
                        let made = self.children(number, begin);
                        if let Some(made) = made.get(object - 1) {
                            self.delete(made, part).await;
                            is_restless |= !self.rest().await?;
                        }
                    }
                    _ => {}
                }
            }
            if is_restless {
                run.restless.get_or_insert(number);
            }
            let mut end = self.reader.read(&self.cluster);
            // What takes longer than usual may still come right; once is enough, since it may well stay so.
            let expected = reference.and_then(|reference| reference.ends.get(number));
            if is_patient && run.hurried.is_none() && expected.is_some_and(|expected| *expected != end) {
                is_patient = false;
                self.pass(MORE_PATIENCE).await?;
                if !self.rest().await? {
                    run.restless.get_or_insert(number);
                }
                end = self.reader.read(&self.cluster);
            }
            run.ends.push(end);
            revisions.push(self.revision());
            match begin {
                None if fault.is_none() => {
                    let time = self.cluster.now()?;
                    run.places.extend(Place::of(&self.cluster, time, &self.reader));
                    run.children.push(self.children(number, None));
                    run.wanted.push(wanted.clone());
                }
                Some(begin) if self.is_over(fault, begin, number, &run) => break,
                _ => {}
            }
            let Some(step) = steps.get(number).filter(|_| number < ends_with) else {
                break;
            };
            if step.is_left_out {
                // A user who did not wait has not waited yet.
                run.hurried = run.hurried.map(|hurried| hurried + usize::from(hurried == number));
                number += 1;
                self.seam.skip_to(number);
                continue;
            }
            let down = parts
                .iter()
                .find(|part| matches!(part, Fault::Down { step } if *step == number + 1));
            if let Some(down) = down {
                self.end_all();
                self.seam.strike(0, down);
            }
            number = self.seam.next_step(step.what());
            let comes_back = std::mem::replace(&mut is_down, down.is_some());
            let may_ask_again = down.is_some() || comes_back;
            match step.made(&self.cluster).await {
                Ok(true) if !may_ask_again || refused.is_empty() => wanted = wanted.after(step),
                // Nobody serves the operator's webhooks: the user asks again when it is back, in the same order.
                _ if may_ask_again => refused.push(step),
                made => drop(made?),
            }
            if down.is_some() {
                run.hurried = Some(number);
                self.pass(ALONE).await?;
                continue;
            }
            if comes_back {
                self.start().await?;
                if !refused.is_empty() && !self.rest().await? {
                    run.restless.get_or_insert(number);
                }
                for step in refused.drain(..) {
                    if step.made(&self.cluster).await? {
                        wanted = wanted.after(step);
                    }
                }
            }
            if !self.rest().await? {
                run.restless.get_or_insert(number);
            }
            if std::mem::take(&mut self.is_hurried) && number < steps.len() {
                run.hurried = Some(number);
                if let (Some(Fault::DeleteEarly(_)), Some((first, last))) = (fault, deletion_after(steps, number)) {
                    // The steps between are not made.
                    for _ in number..first - 1 {
                        run.ends.push(self.reader.read(&self.cluster));
                        revisions.push(self.revision());
                    }
                    number = first - 1;
                    self.seam.skip_to(number);
                    ends_with = last;
                }
            }
        }
        self.seam.tell(
            0,
            "everything is done; the cluster is watched for some minutes".to_owned(),
        );
        run.late_writes = self.writes_within(WATCHED).await?;
        run.failing = self.cluster.failures.describe(None, None);
        // From a state of the undisturbed run a restart is that of the undisturbed run.
        if begin.is_none() {
            self.end_all();
            self.pass(RESTART).await?;
            self.seam.tell(0, "the operator is started anew".to_owned());
            self.start().await?;
            run.writes_of_a_restart = self.writes_within(PATIENCE).await?;
        }
        let api = self.cluster.cluster().api();
        run.broken = broken(play.invariants, api, revisions[first]).map(|(what, at)| {
            let step = revisions.iter().filter(|revision| **revision < at).count();
            (what, step.min(steps.len()))
        });
        run.busy = self.busy.take();
        run.ended = self.cluster.ended.borrow().as_ref().map(|(_, why)| why.clone());
        run.panics = self
            .panics
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        (run.log, run.struck) = self.seam.ends();
        // New clusters of a workload's states are no runs of it.
        if fault.is_some() || begin.is_none() {
            play.runs.add(fault, &run.log, []);
        }
        run.flood = self.seam.flood();
        run.harm = self.seam.harm();
        run.swallowed = self.seam.swallowed();
        if let Some(begin) = begin
            && !is_idle(&begin.reference.places, begin.step, self.cluster.cluster().api())
        {
            return Ok(None);
        }
        Ok(Some(run))
    }

    /// Starts the operator where an undisturbed run was at rest; `false` when it does not stay so.
    async fn begin(&mut self, fault: Option<&Fault>, begin: Option<Begin<'_>>, step: usize) -> Result<bool> {
        let Some(Begin { reference, .. }) = begin else {
            return Ok(true);
        };
        // The fault starts the operator by itself.
        let is_old =
            |part: &Fault| matches!(part, Fault::Stale { after, .. } | Fault::Past { after, .. } if *after == step);
        if !fault.is_some_and(|fault| fault.parts().iter().any(is_old)) {
            self.start().await?;
            let begin = Instant::now();
            let mut before = self.changes();
            loop {
                self.pass(QUIET).await?;
                let now = self.changes();
                if now == before {
                    break;
                }
                before = now;
                if begin.elapsed() > LONGEST {
                    return Ok(false);
                }
            }
            if self.reader.read(&self.cluster) != reference.ends[step] {
                return Ok(false);
            }
        }
        let (attempts, heard) = reference.log.counted_until(step);
        self.seam.goes_on(step, attempts, heard);
        Ok(true)
    }

    /// Whether nothing can be found any more: the fault is over, and the cluster is as in the undisturbed run.
    fn is_over(&self, fault: Option<&Fault>, begin: Begin<'_>, number: usize, run: &Run) -> bool {
        let parts = fault.map_or(&[][..], Fault::parts);
        let lasts = parts
            .iter()
            .any(|part| matches!(part, Fault::Late { .. } | Fault::DeleteEarly(_)));
        // A second one may strike later.
        let has_struck = self.seam.struck().is_some() && parts.len() < 2;
        let is_hurried = run.hurried == Some(number);
        has_struck
            && !lasts
            && !is_hurried
            && run.restless.is_none()
            && begin.reference.ends.get(number) == run.ends.last()
    }

    /// What somebody may delete after a step.
    fn children(&self, number: usize, begin: Option<Begin<'_>>) -> Vec<Made> {
        match begin {
            Some(begin) => begin.reference.children[number].clone(),
            None => children(
                self.cluster.cluster().api(),
                &self.seam.look(|log| log.made_until(number)),
            ),
        }
    }

    fn revision(&self) -> u64 {
        self.cluster.cluster().api().resource_version()
    }

    /// Starts a process of the operator.
    async fn start(&mut self) -> Result<()> {
        let process = self.next;
        self.next += 1;
        let (seam, panics) = (self.seam.clone(), self.panics.clone());
        let observer = move |what: &Observation| {
            let reconcile = recorded(what);
            let begins = matches!(reconcile, Some(What::Reconcile { begins: true, .. }));
            if let Observation::ReconcileFinished {
                controller,
                request,
                outcome,
                ..
            } = what
            {
                if let Outcome::Retry { error, .. } | Outcome::Terminal { error } = outcome
                    && error.contains("panicked")
                {
                    let mut panics = panics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    panics.push(format!("{controller}, {request}: {error}"));
                }
                if matches!(outcome, Outcome::Done) {
                    seam.ended_well(process);
                }
            }
            if let Some(reconcile) = reconcile {
                seam.reconcile(process, reconcile);
                if !begins {
                    seam.finished(process);
                }
            }
        };
        let mut operator = (self.operator)().observe(Arc::new(observer));
        if self.seam.faults().iter().any(|fault| matches!(fault, Fault::Paused(_))) && Rights::may_elect_in_package()? {
            // Two processes at once are what a deployment has leader election for.
            let mut election = LeaderElection::new("explore").identity(format!("process-{process}"));
            if let Some((namespace, _)) = Rights::account_of_package(operator.name()) {
                election = election.namespace(namespace);
            }
            operator = operator.leader_election(election);
        }
        let kube = self.cluster.kube_of(&operator, self.is_installed).await?;
        let client = self.seam.client(process, &kube);
        let running = self.cluster.run_with(operator, client, self.is_installed).await?;
        self.is_installed = true;
        self.processes.insert(process, running.task);
        Ok(())
    }

    fn end(&mut self, process: usize) {
        self.seam.end(process);
        if let Some(task) = self.processes.remove(&process) {
            task.abort();
        }
    }

    fn end_all(&mut self) {
        for process in self.processes.keys().copied().collect::<Vec<_>>() {
            self.end(process);
        }
    }

    /// Somebody deletes an object.
    async fn delete(&self, made: &super::log::Made, fault: &Fault) {
        let (resource, namespace, name) = &made.named;
        self.seam.strike(0, fault);
        self.seam
            .tell(0, format!("somebody deletes {resource} {namespace}/{name}"));
        let request = http::Request::delete(made.path.as_str())
            .body(Body::from(br#"{"propagationPolicy":"Background"}"#.to_vec()));
        if let Ok(request) = request {
            // One that is gone needs no deletion.
            let _: std::result::Result<_, kube::Error> = self.cluster.kube().send(request).await;
        }
    }
}

/// An object that is another one now.
pub(super) fn replaced(before: BTreeMap<Named, String>, now: &BTreeMap<Named, String>) -> Option<Named> {
    let mut before = before.into_iter();
    let replaced = before.find(|(named, uid)| now.get(named).is_some_and(|now| now != uid));
    replaced.map(|(named, _)| named)
}
