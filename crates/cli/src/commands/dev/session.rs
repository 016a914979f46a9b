//! Carries out the machine's decisions: one loop that takes events and does actions.
//!
//! Invariants: only this loop talks to the machine; work that takes time is a task that answers with an event; a
//! program that runs is kept under a name of its own, so that cargo may write the next one meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kubewright::Message;
use kubewright::kube::Client;
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place, codes};
use tokio::sync::{mpsc, oneshot};

use super::account::Account;
use super::advice::Advisor;
use super::kept::{Fingerprint, keep};
use super::machine::{Action, Answer, Compiled, Event, Generation, Machine};
use super::objects;
use super::observations::{Ear, Heard, Readiness};
use super::operator::{Conditions, Exit, Running};
use super::screen::Key;
use super::story::{Fact, News};
use super::wanted::{CERTIFICATES, DEFINITIONS, SAMPLES, apply_all, certified, introduce, wanted};
use super::watch::{Interest, Saved, Watcher};
use super::webhooks::{self, Address};
use crate::output::Failure;
use crate::program::{self, Built, How, Outcome, build, declaration};

/// An operator that has not introduced itself after so long sends no observations.
const SILENT: Duration = Duration::from_secs(3);

/// The equipment of a session.
pub(crate) struct Equipment {
    pub(crate) how: How,
    pub(crate) client: Client,
    /// The operator's `KUBECONFIG`; in its place one of the operator's account, when it runs as that.
    pub(crate) kubeconfig: OsString,
    /// The account of the operator; `None` for the administrator, or the user of the kubeconfig.
    pub(crate) account: Option<Account>,
    pub(crate) scratch: PathBuf,
    /// Arguments for the operator, from the command line.
    pub(crate) arguments: Vec<String>,
    /// Whether the cluster is in this process.
    pub(crate) embedded: bool,
    pub(crate) samples: bool,
    pub(crate) news: mpsc::Sender<News>,
}

/// The reports of tasks.
enum Report {
    Event(Event),
    Built(Result<Built, std::io::Error>),
    Prepared(Generation, Box<Result<Prepared, Vec<Diagnostic>>>),
    Exited(Exit),
    /// A while has passed since this start of an operator.
    Silence(u64),
}

/// The preparations for a build before it starts.
struct Prepared {
    declared: Option<Declaration>,
    /// The kubeconfig of the operator's account, when it runs as that.
    kubeconfig: Option<PathBuf>,
}

/// A running `dev`.
pub(crate) struct Session {
    equipment: Equipment,
    machine: Machine,
    watcher: Watcher,
    ear: Ear,
    heard: mpsc::Receiver<Heard>,
    reports: mpsc::UnboundedSender<Report>,
    reported: mpsc::UnboundedReceiver<Report>,
    cancel_build: Option<oneshot::Sender<()>>,
    stop_operator: Option<oneshot::Sender<()>>,
    /// The program that cargo built last, as it was then.
    built: Option<Fingerprint>,
    programs: BTreeMap<Generation, PathBuf>,
    /// The number that the next new program gets from the machine.
    newest: Generation,
    /// The operator's declaration; `None` while it is not known, `Some(None)` when there is none.
    declared: Option<Option<Declaration>>,
    /// Of the operator's account, once it exists.
    account_kubeconfig: Option<PathBuf>,
    readiness: Readiness,
    advisor: Advisor,
    /// Where webhooks are answered; the same for all operators of a session.
    webhooks: Address,
    starts: u64,
}

impl Session {
    /// # Errors
    /// When files cannot be watched or no socket can be made.
    pub(crate) fn new(equipment: Equipment) -> Result<Session, Failure> {
        let watcher = Watcher::start(&equipment.how.root)?;
        let (hearing, heard) = mpsc::channel(1024);
        let ear = Ear::open(&equipment.scratch, hearing).map_err(|why| {
            Failure::new("cannot make the socket on which the operator tells what it does").because(why)
        })?;
        let webhooks = certified(&equipment.scratch.join(CERTIFICATES))
            .map_err(|why| Failure::new("cannot prepare webhooks on this machine").because(why))?;
        let (reports, reported) = mpsc::unbounded_channel();
        Ok(Session {
            machine: Machine::new(equipment.samples),
            equipment,
            watcher,
            ear,
            heard,
            reports,
            reported,
            cancel_build: None,
            stop_operator: None,
            built: None,
            programs: BTreeMap::new(),
            newest: 0,
            declared: None,
            account_kubeconfig: None,
            readiness: Readiness::default(),
            advisor: Advisor::default(),
            webhooks,
            starts: 0,
        })
    }

    /// The effect of keys.
    pub(crate) fn keys(&self) -> impl Fn(Key) + Send + 'static {
        let (reports, news) = (self.reports.clone(), self.equipment.news.clone());
        move |key| {
            let event = match key {
                Key::Quit => Event::Quit,
                Key::Build => Event::SourceSaved,
                Key::Samples => Event::SamplesWanted,
                // A key that is lost can be pressed again.
                Key::Log => return drop(news.try_send(News::ToggleLog)),
            };
            // The session is over.
            let _ = reports.send(Report::Event(event));
        }
    }

    /// Works until a person wants to end.
    ///
    /// # Errors
    /// When cargo cannot be started at all.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), Failure> {
        self.tell(Fact::Watching(self.watched())).await;
        tokio::pin!(stop);
        let mut stopping = false;
        let mut events = vec![Event::SourceSaved];
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            for event in std::mem::take(&mut events) {
                for action in self.machine.on(event) {
                    if action == Action::End {
                        self.clean_up();
                        return Ok(());
                    }
                    self.carry_out(action).await;
                }
            }
            tokio::select! {
                biased;
                () = &mut stop, if !stopping => {
                    stopping = true;
                    events.push(Event::Quit);
                }
                Some(report) = self.reported.recv() => events.extend(self.take(report).await?),
                Some(heard) = self.heard.recv() => events.extend(self.listen(heard).await),
                _ = ticks.tick() => {
                    for advice in self.advisor.tick(Instant::now()) {
                        self.tell(Fact::Advice(advice.subject, Box::new(advice.found))).await;
                    }
                }
                saved = self.watcher.next() => events.extend(self.saved(&saved).await),
            }
        }
    }

    fn watched(&self) -> Vec<String> {
        let root = &self.equipment.how.root;
        ["src", "api", "Cargo.toml", SAMPLES]
            .into_iter()
            .filter(|name| root.join(name).exists() && (*name != SAMPLES || self.equipment.samples))
            .map(str::to_owned)
            .collect()
    }

    async fn tell(&self, fact: Fact) {
        // The teller may be gone; then no output is needed.
        let _ = self.equipment.news.send(News::Fact(fact)).await;
    }

    async fn trouble(&self, diagnostic: Diagnostic) {
        self.tell(Fact::Trouble(Box::new(diagnostic))).await;
    }

    /// Reports the result of a task later.
    fn later(&self, work: impl Future<Output = Report> + Send + 'static) {
        let reports = self.reports.clone();
        tokio::spawn(async move {
            // The session is over.
            let _ = reports.send(work.await);
        });
    }

    async fn carry_out(&mut self, action: Action) {
        match action {
            Action::Build => self.build().await,
            Action::CancelBuild => {
                // It may have ended by itself a moment ago.
                let _ = self.cancel_build.take().map(|cancel| cancel.send(()));
            }
            Action::Prepare(generation) => self.prepare(generation),
            Action::Start(generation) => self.start(generation).await,
            Action::Stop => {
                self.tell(Fact::Stopping).await;
                // It may have ended by itself a moment ago; its exit is on the way.
                let _ = self.stop_operator.take().map(|stop| stop.send(()));
            }
            Action::Pause(pause) => self.later(async move {
                tokio::time::sleep(pause).await;
                Report::Event(Event::PauseOver)
            }),
            Action::ApplySamples => self.apply_samples(),
            Action::End => {}
        }
    }

    async fn build(&mut self) {
        self.tell(Fact::Compiling).await;
        let (cancel, cancelled) = oneshot::channel();
        self.cancel_build = Some(cancel);
        let (progress, mut done) = mpsc::channel(8);
        let news = self.equipment.news.clone();
        tokio::spawn(async move {
            while let Some((done, total)) = done.recv().await {
                // The next one comes soon.
                let _ = news.try_send(News::Fact(Fact::Progress(done, total)));
            }
        });
        let how = self.equipment.how.clone();
        self.later(async move { Report::Built(build::build(&how, cancelled, progress).await) });
    }

    /// The events of the machine in a report.
    async fn take(&mut self, report: Report) -> Result<Vec<Event>, Failure> {
        Ok(match report {
            Report::Event(event) => vec![event],
            Report::Built(built) => {
                let built = built.map_err(program::no_cargo)?;
                if let Err(why) = self.watcher.also(&built.packages, built.began) {
                    self.trouble(why).await;
                }
                vec![Event::Built(self.compiled(built.outcome).await)]
            }
            Report::Prepared(generation, prepared) => vec![self.prepared(generation, *prepared).await],
            Report::Exited(exit) => self.exited(exit).await,
            Report::Silence(start) => self.silent(start).await,
        })
    }

    async fn compiled(&mut self, outcome: Outcome) -> Compiled {
        match outcome {
            Outcome::Cancelled => Compiled::Cancelled,
            Outcome::Failed(failed) => {
                self.tell(Fact::NotCompiled(failed)).await;
                Compiled::Failed
            }
            Outcome::Program(program, took) => {
                let kept = Fingerprint::of(&program).and_then(|now| {
                    let new = self.built.as_ref() != Some(&now);
                    if new {
                        let kept = keep(&program, self.newest + 1)?;
                        self.newest += 1;
                        self.programs.insert(self.newest, kept);
                        self.built = Some(now);
                    }
                    Ok(new)
                });
                match kept {
                    Ok(new) => {
                        self.tell(Fact::Compiled { took, new }).await;
                        if new { Compiled::New } else { Compiled::Same }
                    }
                    Err(why) => {
                        let trouble = Diagnostic::new(codes::files::IO, "cannot keep the program that was built")
                            .at(Place::file(program.display().to_string()))
                            .because(why);
                        self.trouble(trouble).await;
                        Compiled::Failed
                    }
                }
            }
        }
    }

    /// Asks the program for its declaration, and applies its definitions.
    fn prepare(&self, generation: Generation) {
        let Some(program) = self.programs.get(&generation).cloned() else {
            return;
        };
        let (client, root) = (self.equipment.client.clone(), self.equipment.how.root.clone());
        let known = matches!(self.declared, Some(None));
        let news = self.equipment.news.clone();
        // A cluster elsewhere, even one in a container of this machine, does not reach the operator.
        let webhooks = self.equipment.embedded.then(|| self.webhooks.clone());
        let account = self.equipment.account.clone();
        let introduced = self.account_kubeconfig.is_some();
        let (kubeconfig, scratch) = (self.equipment.kubeconfig.clone(), self.equipment.scratch.clone());
        self.later(async move {
            let tell = async |fact| drop(news.send(News::Fact(fact)).await);
            let declared = match declaration::ask(&program, &root).await {
                Ok(declaration) => Some(declaration),
                Err(why) => {
                    if !known {
                        tell(Fact::Note(format!(
                            "{}; definitions are taken from {DEFINITIONS}",
                            why.causes.join(": ")
                        )))
                        .await;
                    }
                    None
                }
            };
            let result = async {
                let wanted = wanted(declared.as_ref(), webhooks.as_ref(), &root)?;
                for doubt in wanted.doubts {
                    tell(Fact::Trouble(Box::new(doubt))).await;
                }
                let applied = apply_all(&client, wanted.definitions, wanted.configurations).await;
                tell(Fact::Definitions(applied.map_err(|why| vec![why])?)).await;
                let kubeconfig = match (account, wanted.roles) {
                    (Some(account), Some(roles)) => {
                        let made = introduce(&account, &client, &roles, kubeconfig.as_ref(), &scratch).await;
                        let made = made.map_err(|why| vec![why])?;
                        if !introduced {
                            tell(Fact::Account(account.user())).await;
                        }
                        Some(made)
                    }
                    (Some(_), None) => {
                        let words = "the operator declares no rules and there is no config/rbac/role.yaml: it runs with all rights";
                        tell(Fact::Note(words.to_owned())).await;
                        None
                    }
                    (None, _) => None,
                };
                Ok(Prepared { declared, kubeconfig })
            };
            Report::Prepared(generation, Box::new(result.await))
        });
    }

    async fn prepared(&mut self, generation: Generation, result: Result<Prepared, Vec<Diagnostic>>) -> Event {
        let answer = match result {
            Ok(prepared) => {
                self.declared = Some(prepared.declared);
                self.account_kubeconfig = prepared.kubeconfig;
                Answer::Taken
            }
            Err(wrong) => {
                for why in wrong {
                    self.trouble(why).await;
                }
                Answer::Refused
            }
        };
        Event::Prepared(generation, answer)
    }

    async fn start(&mut self, generation: Generation) {
        let Some(program) = self.programs.get(&generation).cloned() else {
            return;
        };
        self.forget_older(generation);
        let (lines, mut printed) = mpsc::channel::<String>(256);
        let news = self.equipment.news.clone();
        tokio::spawn(async move {
            while let Some(line) = printed.recv().await {
                if news.send(News::Log(line)).await.is_err() {
                    return;
                }
            }
        });
        self.readiness = Readiness::default();
        let declared = self.declared.as_ref().and_then(Option::as_ref);
        self.advisor = Advisor::new(declared.map(declaration::controllers).unwrap_or_default());
        self.starts += 1;
        match Running::start(&program, &self.conditions(), lines) {
            Ok(running) => {
                self.tell(Fact::Started {
                    build: generation,
                    pid: running.pid(),
                })
                .await;
                let (stop, stopped) = oneshot::channel();
                self.stop_operator = Some(stop);
                self.later(async move { Report::Exited(running.end(stopped).await) });
                self.watch_for_silence();
            }
            Err(why) => {
                let exit = Exit {
                    how: format!("cannot be started: {why}"),
                    after: Duration::ZERO,
                    last_lines: Vec::new(),
                };
                self.later(async move { Report::Exited(exit) });
            }
        }
    }

    fn conditions(&self) -> Conditions {
        let kubeconfig = match &self.account_kubeconfig {
            Some(own) => own.clone().into_os_string(),
            None => self.equipment.kubeconfig.clone(),
        };
        let mut environment = vec![
            ("KUBECONFIG".to_owned(), kubeconfig),
            (
                kubewright::OBSERVE_SOCKET.to_owned(),
                self.ear.path().as_os_str().to_owned(),
            ),
        ];
        let mut arguments = Vec::new();
        let given = |flag: &str| {
            self.equipment
                .arguments
                .iter()
                .any(|argument| argument.starts_with(flag))
        };
        if let Some(Some(declaration)) = &self.declared {
            if self.equipment.embedded && webhooks::any(declaration) && !given("--webhook-") {
                let certificates = self.equipment.scratch.join(CERTIFICATES);
                arguments.push(format!("--webhook-cert-path={}", certificates.display()));
                // Only the API server in this process calls.
                arguments.push("--webhook-host=127.0.0.1".to_owned());
                arguments.push(format!("--webhook-port={}", self.webhooks.port));
            }
            // Two operators on one machine must not meet at a port, and no kubelet probes this one.
            if !given("--health-probe-bind-address") {
                arguments.push("--health-probe-bind-address=0".to_owned());
            }
        }
        if !self.equipment.embedded {
            environment.push(("ENABLE_WEBHOOKS".to_owned(), "false".into()));
        }
        arguments.extend(self.equipment.arguments.iter().cloned());
        Conditions {
            root: self.equipment.how.root.clone(),
            arguments,
            environment,
        }
    }

    /// An operator that does not introduce itself is taken for ready after a while.
    fn watch_for_silence(&self) {
        let start = self.starts;
        self.later(async move {
            tokio::time::sleep(SILENT).await;
            Report::Silence(start)
        });
    }

    async fn silent(&mut self, start: u64) -> Vec<Event> {
        if start != self.starts || self.readiness.is_heard() || self.stop_operator.is_none() {
            return Vec::new();
        }
        let words = "the operator does not tell what it does (its main is neither kubewright::run nor Operator::run); its own lines are all \
                     there is to show";
        self.tell(Fact::Note(words.to_owned())).await;
        vec![Event::Ready]
    }

    async fn exited(&mut self, exit: Exit) -> Vec<Event> {
        let event = Event::Exited(exit.after);
        let asked = self.machine.expects_exit();
        let again_in = self.machine.next_pause(exit.after);
        self.tell(Fact::Ended { exit, asked, again_in }).await;
        self.stop_operator = None;
        vec![event]
    }

    fn apply_samples(&self) {
        let (client, root) = (self.equipment.client.clone(), self.equipment.how.root.clone());
        let news = self.equipment.news.clone();
        tokio::spawn(async move {
            let mut applied = Vec::new();
            let mut troubles = Vec::new();
            match objects::read(&root, SAMPLES, codes::dev::SAMPLE) {
                Ok(items) => {
                    for item in items {
                        match objects::apply_sample(&client, &item).await {
                            Ok(what) => applied.push((item.name(), what.word())),
                            Err(why) => troubles.push(why),
                        }
                    }
                }
                Err(why) => troubles.push(why),
            }
            if troubles.is_empty() || !applied.is_empty() {
                let _ = news.send(News::Fact(Fact::Samples(applied))).await;
            }
            for why in troubles {
                let _ = news.send(News::Fact(Fact::Trouble(Box::new(why)))).await;
            }
        });
    }

    async fn listen(&mut self, heard: Heard) -> Option<Event> {
        let (when, message) = match heard {
            Heard::Said(when, message) => (when, message),
            Heard::Unknown(why) => {
                tracing::warn!(why, "the operator says something that this command does not know");
                return None;
            }
        };
        let ready = self.readiness.hear(&message);
        let (advice, answered) = match &*message {
            Message::Observed(what) => (self.advisor.hear(when, what), self.advisor.answered(what)),
            _ => (Vec::new(), Vec::new()),
        };
        let _ = self.equipment.news.send(News::Operator(when, message)).await;
        for advice in advice {
            self.tell(Fact::Advice(advice.subject, Box::new(advice.found))).await;
        }
        for subject in answered {
            self.tell(Fact::Answered(subject)).await;
        }
        ready.then_some(Event::Ready)
    }

    async fn saved(&mut self, saved: &Saved) -> Vec<Event> {
        let mut events = Vec::new();
        let mut told = Vec::new();
        for (interest, files) in saved {
            let event = match interest {
                Interest::Source => Some(Event::SourceSaved),
                Interest::Definition if matches!(self.declared, Some(None)) => Some(Event::DefinitionsSaved),
                Interest::Definition => None,
                Interest::Sample if self.equipment.samples => Some(Event::SamplesWanted),
                Interest::Sample => None,
            };
            if let Some(event) = event {
                told.extend(files.iter().map(|file| file.display().to_string()));
                events.push(event);
            }
        }
        if !events.is_empty() {
            self.tell(Fact::Saved(told)).await;
        }
        events
    }

    /// Removes programs that will not run again.
    fn forget_older(&mut self, generation: Generation) {
        let newer = self.programs.split_off(&generation);
        for program in std::mem::replace(&mut self.programs, newer).into_values() {
            // Left behind it only takes room, and the next one of its name replaces it.
            let _ = std::fs::remove_file(program);
        }
    }

    fn clean_up(&mut self) {
        let folder = self
            .programs
            .values()
            .next()
            .and_then(|program| program.parent().map(Path::to_path_buf));
        self.forget_older(Generation::MAX);
        // Another `dev` of another project may share the folder; then it is not empty and stays.
        drop(folder.map(std::fs::remove_dir));
    }
}

/// A free port. Another program may take it before the operator does; then the operator reports that.
pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
