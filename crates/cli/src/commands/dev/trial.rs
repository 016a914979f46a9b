//! The samples, tried once: a cluster, the operator under its own role, and every file of `config/samples`, until
//! nothing happens any more.
//!
//! The session is that of `dev`, without a person: the same build, definitions, certificates, role and advice. What is
//! wrong there is an error here. Not here: the project's tests (`commands/test.rs`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kubewright::{Message, Observation, Outcome};
use kubewright_codegen::{Diagnostic, codes};
use tokio::sync::mpsc;

use super::account::Account;
use super::operator::crash_output;
use super::renderer;
use super::screen::Key;
use super::session::{Options, Session};
use super::state::{BuildState, Event, OperatorState, State, Update};
use crate::commands::cluster::Running;
use crate::files::temporary_folder;
use crate::output::Failure;
use crate::program::BuildOptions;
use crate::project::Project;
use crate::signals::stop_signal;

/// Nothing happens any more when nothing was observed for so long.
const REST: Duration = Duration::from_secs(1);
/// How long it may take from the samples to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// The samples that the API server took.
    pub(crate) samples: Vec<String>,
    pub(crate) reconciles: u64,
    /// The user that the operator ran as, unless it was the administrator.
    pub(crate) user: Option<String>,
    /// All that is wrong.
    pub(crate) wrong: Vec<Diagnostic>,
    /// The operator's last lines.
    pub(crate) lines: Vec<String>,
}

/// Tries the samples of a project.
///
/// # Errors
/// When the cluster does not start, or cargo cannot be run.
pub(crate) async fn samples(project: &Project, build: BuildOptions, started: Instant) -> Result<Tried, Failure> {
    let scratch = temporary_folder()?;
    let stop = stop_signal()?;
    let (updates, received) = renderer::channel();
    let working = crate::progress::during("trying the samples");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let kubeconfig = scratch.path().join("kubeconfig");
    let running = Running::start(address, Some(kubeconfig.clone()), |builder| builder).await?;
    let session = Session::new(Options {
        build,
        client: running.cluster.client(),
        kubeconfig: OsString::from(kubeconfig),
        scratch: scratch.path().to_path_buf(),
        arguments: Vec::new(),
        account: Some(Account::of(&project.root)),
        embedded: true,
        samples: true,
        log: None,
        updates,
    })?;
    let quit = session.keys();
    let watching = watch(State::new(started, String::new()), received, move || quit(Key::Quit));
    let (outcome, tried) = tokio::join!(session.run(stop), watching);
    drop(working);
    running.stop().await;
    outcome.map(|()| tried)
}

/// Follows the session until nothing happens any more, or something is wrong; then ends it.
async fn watch(mut state: State, mut received: mpsc::Receiver<Update>, quit: impl FnOnce()) -> Tried {
    let mut judge = Judge::default();
    let mut quit = Some(quit);
    loop {
        let update = match tokio::time::timeout(REST, received.recv()).await {
            Ok(Some(update)) => Some(update),
            Ok(None) => break,
            Err(_) => None,
        };
        let rests = update.is_none();
        if let Some(update) = &update {
            state.apply(update, Instant::now());
            // What happens after the end was asked for is the end.
            if quit.is_some() {
                judge.take(update);
            }
        }
        if judge.is_over(&state, rests)
            && let Some(quit) = quit.take()
        {
            judge.conclude(&state);
            quit();
        }
    }
    judge.tried
}

/// What the updates come to.
#[derive(Default)]
struct Judge {
    tried: Tried,
    /// When the operator was started.
    begun: Option<Instant>,
    /// When the samples were applied.
    applied: Option<Instant>,
    /// That the session cannot go on.
    stuck: bool,
    /// The reconciles that failed last, by controller and key.
    failing: BTreeMap<(String, String), String>,
}

impl Judge {
    fn take(&mut self, update: &Update) {
        match update {
            Update::Event(Event::NotCompiled(failed)) => {
                let place = failed.place.clone().unwrap_or_default();
                let why = Diagnostic::new(codes::crds::BUILD, "cannot build the operator")
                    .because(format!("it does not compile; the first error is at {place}"))
                    .fix("cargo build shows the errors");
                self.end(why);
            }
            // What was said before the definitions were accepted were doubts.
            Update::Event(Event::Definitions(_)) => self.tried.wrong.clear(),
            Update::Event(Event::Trouble(why)) => {
                // When all of them are refused, nothing was applied.
                if why.code == codes::dev::SAMPLE {
                    self.applied.get_or_insert_with(Instant::now);
                }
                self.tried.wrong.push((**why).clone());
            }
            Update::Event(Event::Started { .. }) => self.begun = Some(Instant::now()),
            Update::Event(Event::Account(user)) => self.tried.user = Some(user.clone()),
            Update::Event(Event::Samples(applied)) => {
                self.tried.samples = applied.iter().map(|(name, _)| name.clone()).collect();
                self.applied = Some(Instant::now());
            }
            Update::Event(Event::Ended {
                exit, requested: false, ..
            }) => {
                let why = Diagnostic::new(codes::dev::ENDED, "the operator ended").because(&*exit.reason);
                let why = crash_output(&exit.last_lines)
                    .iter()
                    .fold(why, |why, line| why.because(line.as_str()));
                self.end(why);
            }
            Update::Log(line) => {
                self.tried.lines.push(line.clone());
                if self.tried.lines.len() > 20 {
                    self.tried.lines.remove(0);
                }
            }
            Update::Operator(_, message) => {
                if let Message::Observed(Observation::ReconcileFinished {
                    controller,
                    request,
                    outcome,
                    ..
                }) = &**message
                {
                    let key = (controller.to_string(), request.to_string());
                    match outcome {
                        Outcome::Retry { error, .. } | Outcome::Terminal { error } => {
                            self.failing.insert(key, error.clone());
                        }
                        _ => {
                            self.failing.remove(&key);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, why: Diagnostic) {
        self.tried.wrong.push(why);
        self.stuck = true;
    }

    /// Whether there is nothing more to wait for.
    fn is_over(&self, state: &State, rests: bool) -> bool {
        if self.stuck {
            return true;
        }
        let Some(applied) = self.applied else {
            // A definition that was refused: the session waits for a person to mend it.
            let waits =
                matches!(state.operator, OperatorState::None) && !matches!(state.build, BuildState::Running { .. });
            let is_late = self.begun.is_some_and(|begun| begun.elapsed() > PATIENCE);
            return is_late || (rests && waits && !self.tried.wrong.is_empty());
        };
        let is_quiet = rests && state.running.is_empty() && self.failing.is_empty();
        is_quiet || applied.elapsed() > PATIENCE
    }

    /// What is wrong at the end.
    fn conclude(&mut self, state: &State) {
        self.tried.reconciles = state.counts.reconciles;
        let advice = state.advice().iter().map(|(_, found)| found.clone());
        self.tried.wrong.extend(advice);
        for ((controller, key), error) in &self.failing {
            let why = Diagnostic::new(codes::dev::SAMPLE, format!("{controller} does not reconcile {key}"));
            self.tried.wrong.push(why.because(error.as_str()));
        }
        if self.applied.is_none() && self.tried.wrong.is_empty() {
            let why = Diagnostic::new(codes::dev::SAMPLE, "the operator does not become ready");
            self.tried.wrong.push(
                why.because(format!(
                    "{} s after its start its controllers have not started",
                    PATIENCE.as_secs()
                ))
                .fix("kubewright dev shows what it does"),
            );
        }
        let late = self.applied.is_some_and(|applied| applied.elapsed() > PATIENCE);
        if late && self.tried.wrong.is_empty() {
            let why = Diagnostic::new(codes::dev::SAMPLE, "the operator does not come to rest");
            self.tried.wrong.push(
                why.because(format!(
                    "{} reconciles in {} s",
                    state.counts.reconciles,
                    PATIENCE.as_secs()
                ))
                .fix("kubewright dev --samples shows each with its cause"),
            );
        }
    }
}
