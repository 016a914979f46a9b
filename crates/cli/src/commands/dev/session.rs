//! The main loop of `dev`: it passes inputs to the [`Lifecycle`] and executes the actions that it returns.
//!
//! Invariants: only this loop uses the lifecycle; work that takes time is a task that ends with a [`Report`]; a program
//! that runs has a file name of its own, so that cargo can write the next one meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubewright::Message;
use kubewright::kube::Client;
use kubewright_cluster::RunLog;
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place, codes};
use kubewright_runlog::{Entry, Recorder as _};
use tokio::sync::{mpsc, oneshot};

use super::account::Account;
use super::advice::Advisor;
use super::desired::{CERTIFICATES, DEFINITIONS, SAMPLES, apply_all, create_account, desired, webhook_address};
use super::lifecycle::{Action, Compiled, Generation, Input, Lifecycle, Response};
use super::objects;
use super::observations::{Listener, Readiness, Received};
use super::operator::{Exit, LaunchOptions, OperatorProcess};
use super::programs::{Fingerprint, link};
use super::screen::Key;
use super::state::{Event, Update};
use super::watch::{FileKind, Saved, Watcher};
use super::webhooks::{self, Address};
use crate::output::Failure;
use crate::program::{self, BuildOptions, Built, Outcome, build, declaration};

/// An operator that has not sent its hello after this time sends no observations.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// What a session works with.
pub(crate) struct Options {
    pub(crate) build: BuildOptions,
    pub(crate) client: Client,
    /// The operator's `KUBECONFIG`, unless it runs as a service account, which has its own.
    pub(crate) kubeconfig: OsString,
    /// The service account of the operator; `None` for the user of the kubeconfig.
    pub(crate) account: Option<Account>,
    pub(crate) scratch: PathBuf,
    /// Arguments for the operator, from the command line.
    pub(crate) arguments: Vec<String>,
    /// Whether the cluster is in this process.
    pub(crate) embedded: bool,
    pub(crate) samples: bool,
    /// Where reconciles are recorded, if anywhere.
    pub(crate) log: Option<Arc<RunLog>>,
    pub(crate) updates: mpsc::Sender<Update>,
}

/// The results of tasks.
enum Report {
    Input(Input),
    Built(Result<Built, std::io::Error>),
    Prepared(Generation, Box<Result<Prepared, Vec<Diagnostic>>>),
    Exited(Exit),
    /// [`HELLO_TIMEOUT`] has passed since the start of this number.
    HelloTimeout(u64),
}

/// What was made in the cluster for a build before it starts.
struct Prepared {
    declared: Option<Declaration>,
    /// The kubeconfig of the operator's service account, if it has one.
    kubeconfig: Option<PathBuf>,
}

/// A running `dev`.
pub(crate) struct Session {
    options: Options,
    lifecycle: Lifecycle,
    watcher: Watcher,
    listener: Listener,
    received: mpsc::Receiver<Received>,
    reports: mpsc::UnboundedSender<Report>,
    reported: mpsc::UnboundedReceiver<Report>,
    cancel_build: Option<oneshot::Sender<()>>,
    stop_operator: Option<oneshot::Sender<()>>,
    /// The program that cargo built last, as it was then.
    built: Option<Fingerprint>,
    programs: BTreeMap<Generation, PathBuf>,
    /// The number of the newest program, as the lifecycle counts them.
    newest: Generation,
    /// The operator's declaration; `None` while it is not known, `Some(None)` when there is none.
    declared: Option<Option<Declaration>>,
    /// The kubeconfig of the operator's service account, once it exists.
    account_kubeconfig: Option<PathBuf>,
    readiness: Readiness,
    advisor: Advisor,
    /// Where the operator serves webhooks; the same for all operators of a session.
    webhooks: Address,
    starts: u64,
}

impl Session {
    /// # Errors
    /// When files cannot be watched or no socket can be made.
    pub(crate) fn new(options: Options) -> Result<Session, Failure> {
        let watcher = Watcher::start(&options.build.root)?;
        let (sender, received) = mpsc::channel(1024);
        let listener = Listener::open(&options.scratch, sender)
            .map_err(|why| Failure::new("cannot create the socket for the operator's observations").because(why))?;
        let webhooks = webhook_address(&options.scratch.join(CERTIFICATES))
            .map_err(|why| Failure::new("cannot prepare webhooks on this machine").because(why))?;
        let (reports, reported) = mpsc::unbounded_channel();
        Ok(Session {
            lifecycle: Lifecycle::new(options.samples),
            options,
            watcher,
            listener,
            received,
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

    /// The handler of keys.
    pub(crate) fn keys(&self) -> impl Fn(Key) + Send + 'static {
        let (reports, updates) = (self.reports.clone(), self.options.updates.clone());
        move |key| {
            let input = match key {
                Key::Quit => Input::Quit,
                Key::Build => Input::SourceSaved,
                Key::Samples => Input::SamplesWanted,
                // A key that is lost can be pressed again.
                Key::Log => return drop(updates.try_send(Update::ToggleLog)),
                Key::Scroll(lines) => return drop(updates.try_send(Update::Scroll(lines))),
            };
            // The session is over.
            let _ = reports.send(Report::Input(input));
        }
    }

    /// Runs until a person quits.
    ///
    /// # Errors
    /// When cargo cannot be started at all.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), Failure> {
        self.emit(Event::Watching(self.watched())).await;
        tokio::pin!(stop);
        let mut stopping = false;
        let mut inputs = vec![Input::SourceSaved];
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            for input in std::mem::take(&mut inputs) {
                for action in self.lifecycle.handle(input) {
                    if action == Action::End {
                        self.clean_up();
                        return Ok(());
                    }
                    self.execute(action).await;
                }
            }
            tokio::select! {
                biased;
                () = &mut stop, if !stopping => {
                    stopping = true;
                    inputs.push(Input::Quit);
                }
                Some(report) = self.reported.recv() => inputs.extend(self.complete(report).await?),
                Some(received) = self.received.recv() => inputs.extend(self.receive(received).await),
                _ = ticks.tick() => {
                    for advice in self.advisor.tick(Instant::now()) {
                        self.emit(Event::Advice(advice.subject, Box::new(advice.found))).await;
                    }
                }
                saved = self.watcher.next() => inputs.extend(self.saved(&saved).await),
            }
        }
    }

    fn watched(&self) -> Vec<String> {
        let root = &self.options.build.root;
        ["src", "api", "Cargo.toml", SAMPLES]
            .into_iter()
            .filter(|name| root.join(name).exists() && (*name != SAMPLES || self.options.samples))
            .map(str::to_owned)
            .collect()
    }

    async fn emit(&self, event: Event) {
        // The renderer may be gone; then no output is needed.
        let _ = self.options.updates.send(Update::Event(event)).await;
    }

    async fn trouble(&self, diagnostic: Diagnostic) {
        self.emit(Event::Trouble(Box::new(diagnostic))).await;
    }

    /// Runs a task; its result is received by the loop.
    fn spawn(&self, work: impl Future<Output = Report> + Send + 'static) {
        let reports = self.reports.clone();
        tokio::spawn(async move {
            // The session is over.
            let _ = reports.send(work.await);
        });
    }

    async fn execute(&mut self, action: Action) {
        match action {
            Action::Build => self.build().await,
            Action::CancelBuild => {
                // It may have ended by itself a moment ago.
                let _ = self.cancel_build.take().map(|cancel| cancel.send(()));
            }
            Action::Prepare(generation) => self.prepare(generation),
            Action::Start(generation) => self.start(generation).await,
            Action::Stop => {
                self.emit(Event::Stopping).await;
                // It may have ended by itself a moment ago; its exit is on the way.
                let _ = self.stop_operator.take().map(|stop| stop.send(()));
            }
            Action::Backoff(backoff) => self.spawn(async move {
                tokio::time::sleep(backoff).await;
                Report::Input(Input::BackoffElapsed)
            }),
            Action::ApplySamples => self.apply_samples(),
            Action::End => {}
        }
    }

    async fn build(&mut self) {
        self.emit(Event::Compiling).await;
        let (cancel, cancelled) = oneshot::channel();
        self.cancel_build = Some(cancel);
        let (progress, mut done) = mpsc::channel(8);
        let updates = self.options.updates.clone();
        tokio::spawn(async move {
            while let Some((done, total)) = done.recv().await {
                // The next one comes soon.
                let _ = updates.try_send(Update::Event(Event::Progress(done, total)));
            }
        });
        let build = self.options.build.clone();
        self.spawn(async move { Report::Built(build::build(&build, cancelled, progress).await) });
    }

    /// The inputs that follow from the result of a task.
    async fn complete(&mut self, report: Report) -> Result<Vec<Input>, Failure> {
        Ok(match report {
            Report::Input(input) => vec![input],
            Report::Built(built) => {
                let built = built.map_err(program::no_cargo)?;
                if let Err(why) = self.watcher.add_packages(&built.packages, built.began) {
                    self.trouble(why).await;
                }
                vec![Input::Built(self.compiled(built.outcome).await)]
            }
            Report::Prepared(generation, prepared) => vec![self.prepared(generation, *prepared).await],
            Report::Exited(exit) => self.exited(exit).await,
            Report::HelloTimeout(start) => self.hello_timeout(start).await,
        })
    }

    async fn compiled(&mut self, outcome: Outcome) -> Compiled {
        match outcome {
            Outcome::Cancelled => Compiled::Cancelled,
            Outcome::Failed(failed) => {
                self.emit(Event::NotCompiled(failed)).await;
                Compiled::Failed
            }
            Outcome::Program(program, took) => {
                let linked = Fingerprint::of(&program).and_then(|now| {
                    let new = self.built.as_ref() != Some(&now);
                    if new {
                        let linked = link(&program, self.newest + 1)?;
                        self.newest += 1;
                        self.programs.insert(self.newest, linked);
                        self.built = Some(now);
                    }
                    Ok(new)
                });
                match linked {
                    Ok(new) => {
                        self.emit(Event::Compiled { took, new }).await;
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
        let (client, root) = (self.options.client.clone(), self.options.build.root.clone());
        let known = matches!(self.declared, Some(None));
        let updates = self.options.updates.clone();
        // Another cluster, even one in a container of this machine, cannot reach the operator.
        let webhooks = self.options.embedded.then(|| self.webhooks.clone());
        let account = self.options.account.clone();
        let has_account = self.account_kubeconfig.is_some();
        let (kubeconfig, scratch) = (self.options.kubeconfig.clone(), self.options.scratch.clone());
        self.spawn(async move {
            let emit = async |event| drop(updates.send(Update::Event(event)).await);
            let declared = match declaration::ask(&program, &root).await {
                Ok(declaration) => Some(declaration),
                Err(why) => {
                    if !known {
                        emit(Event::Note(format!(
                            "{}; definitions are taken from {DEFINITIONS}",
                            why.causes.join(": ")
                        )))
                        .await;
                    }
                    None
                }
            };
            let result = async {
                let desired = desired(declared.as_ref(), webhooks.as_ref(), &root)?;
                for warning in desired.warnings {
                    emit(Event::Trouble(Box::new(warning))).await;
                }
                let applied = apply_all(&client, desired.definitions, desired.configurations).await;
                emit(Event::Definitions(applied.map_err(|why| vec![why])?)).await;
                let kubeconfig = match (account, desired.roles) {
                    (Some(account), Some(roles)) => {
                        let made = create_account(&account, &client, &roles, kubeconfig.as_ref(), &scratch).await;
                        let made = made.map_err(|why| vec![why])?;
                        if !has_account {
                            emit(Event::Account(account.user())).await;
                        }
                        Some(made)
                    }
                    (Some(_), None) => {
                        let text = "the operator declares no rules and there is no config/rbac/role.yaml: it runs with all permissions";
                        emit(Event::Note(text.to_owned())).await;
                        None
                    }
                    (None, _) => None,
                };
                Ok(Prepared { declared, kubeconfig })
            };
            Report::Prepared(generation, Box::new(result.await))
        });
    }

    async fn prepared(&mut self, generation: Generation, result: Result<Prepared, Vec<Diagnostic>>) -> Input {
        let response = match result {
            Ok(prepared) => {
                self.declared = Some(prepared.declared);
                self.account_kubeconfig = prepared.kubeconfig;
                Response::Accepted
            }
            Err(wrong) => {
                for why in wrong {
                    self.trouble(why).await;
                }
                Response::Rejected
            }
        };
        Input::Prepared(generation, response)
    }

    async fn start(&mut self, generation: Generation) {
        let Some(program) = self.programs.get(&generation).cloned() else {
            return;
        };
        self.remove_older(generation);
        let (lines, mut printed) = mpsc::channel::<String>(256);
        let updates = self.options.updates.clone();
        tokio::spawn(async move {
            while let Some(line) = printed.recv().await {
                if updates.send(Update::Log(line)).await.is_err() {
                    return;
                }
            }
        });
        self.readiness = Readiness::default();
        let declared = self.declared.as_ref().and_then(Option::as_ref);
        self.advisor = Advisor::new(declared.map(declaration::controllers).unwrap_or_default());
        self.starts += 1;
        match OperatorProcess::start(&program, &self.launch_options(), lines) {
            Ok(running) => {
                self.emit(Event::Started {
                    build: generation,
                    pid: running.pid(),
                })
                .await;
                let (stop, stopped) = oneshot::channel();
                self.stop_operator = Some(stop);
                self.spawn(async move { Report::Exited(running.end(stopped).await) });
                self.start_hello_timeout();
            }
            Err(why) => {
                let exit = Exit {
                    reason: format!("cannot be started: {why}"),
                    after: Duration::ZERO,
                    last_lines: Vec::new(),
                };
                self.spawn(async move { Report::Exited(exit) });
            }
        }
    }

    fn launch_options(&self) -> LaunchOptions {
        let kubeconfig = match &self.account_kubeconfig {
            Some(own) => own.clone().into_os_string(),
            None => self.options.kubeconfig.clone(),
        };
        let mut environment = vec![
            ("KUBECONFIG".to_owned(), kubeconfig),
            (
                kubewright::OBSERVE_SOCKET.to_owned(),
                self.listener.path().as_os_str().to_owned(),
            ),
        ];
        let mut arguments = Vec::new();
        let has_flag = |flag: &str| self.options.arguments.iter().any(|argument| argument.starts_with(flag));
        if let Some(Some(declaration)) = &self.declared {
            if self.options.embedded && webhooks::has_webhooks(declaration) && !has_flag("--webhook-") {
                let certificates = self.options.scratch.join(CERTIFICATES);
                arguments.push(format!("--webhook-cert-path={}", certificates.display()));
                // Only the API server in this process calls them.
                arguments.push("--webhook-host=127.0.0.1".to_owned());
                arguments.push(format!("--webhook-port={}", self.webhooks.port));
            }
            // Two operators on one machine must not use the same port, and no kubelet probes this one.
            if !has_flag("--health-probe-bind-address") {
                arguments.push("--health-probe-bind-address=0".to_owned());
            }
        }
        if !self.options.embedded {
            environment.push(("ENABLE_WEBHOOKS".to_owned(), "false".into()));
        }
        arguments.extend(self.options.arguments.iter().cloned());
        LaunchOptions {
            root: self.options.build.root.clone(),
            arguments,
            environment,
        }
    }

    /// An operator that sends no hello counts as ready after a while.
    fn start_hello_timeout(&self) {
        let start = self.starts;
        self.spawn(async move {
            tokio::time::sleep(HELLO_TIMEOUT).await;
            Report::HelloTimeout(start)
        });
    }

    async fn hello_timeout(&mut self, start: u64) -> Vec<Input> {
        if start != self.starts || self.readiness.is_known() || self.stop_operator.is_none() {
            return Vec::new();
        }
        let text = "the operator does not tell what it does (its main is neither kubewright::run nor Operator::run); its own lines are all \
                     there is to show";
        self.emit(Event::Note(text.to_owned())).await;
        vec![Input::Ready]
    }

    async fn exited(&mut self, exit: Exit) -> Vec<Input> {
        let input = Input::Exited(exit.after);
        let requested = self.lifecycle.expects_exit();
        let restart_in = self.lifecycle.next_backoff(exit.after);
        self.emit(Event::Ended {
            exit,
            requested,
            restart_in,
        })
        .await;
        self.stop_operator = None;
        vec![input]
    }

    fn apply_samples(&self) {
        let (client, root) = (self.options.client.clone(), self.options.build.root.clone());
        let updates = self.options.updates.clone();
        tokio::spawn(async move {
            let mut applied = Vec::new();
            let mut troubles = Vec::new();
            match objects::read(&root, SAMPLES, codes::dev::SAMPLE) {
                Ok(items) => {
                    for item in items {
                        match objects::apply_sample(&client, &item).await {
                            Ok(what) => applied.push((item.name(), what.as_str())),
                            Err(why) => troubles.push(why),
                        }
                    }
                }
                Err(why) => troubles.push(why),
            }
            if troubles.is_empty() || !applied.is_empty() {
                let _ = updates.send(Update::Event(Event::Samples(applied))).await;
            }
            for why in troubles {
                let _ = updates.send(Update::Event(Event::Trouble(Box::new(why)))).await;
            }
        });
    }

    async fn receive(&mut self, received: Received) -> Option<Input> {
        let (when, message) = match received {
            Received::Message(when, message) => (when, message),
            Received::Unknown(why) => {
                tracing::warn!(why, "the operator sent a message that this command does not know");
                return None;
            }
        };
        let ready = self.readiness.observe(&message);
        if let (Some(log), Message::Observed(what)) = (&self.options.log, &*message)
            && let Some(what) = kubewright_testing::explore::recorded(what)
        {
            log.record(Entry {
                agent: "operator".to_owned(),
                what,
                ..Entry::default()
            });
        }
        let (advice, resolved) = match &*message {
            Message::Observed(what) => (self.advisor.observe(when, what), self.advisor.resolved(what)),
            _ => (Vec::new(), Vec::new()),
        };
        let _ = self.options.updates.send(Update::Operator(when, message)).await;
        for advice in advice {
            self.emit(Event::Advice(advice.subject, Box::new(advice.found))).await;
        }
        for subject in resolved {
            self.emit(Event::Resolved(subject)).await;
        }
        ready.then_some(Input::Ready)
    }

    async fn saved(&mut self, saved: &Saved) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut saved_files = Vec::new();
        for (kind, files) in saved {
            let input = match kind {
                FileKind::Source => Some(Input::SourceSaved),
                FileKind::Definition if matches!(self.declared, Some(None)) => Some(Input::DefinitionsSaved),
                FileKind::Definition => None,
                FileKind::Sample if self.options.samples => Some(Input::SamplesWanted),
                FileKind::Sample => None,
            };
            if let Some(input) = input {
                saved_files.extend(files.iter().map(|file| file.display().to_string()));
                inputs.push(input);
            }
        }
        if !inputs.is_empty() {
            self.emit(Event::Saved(saved_files)).await;
        }
        inputs
    }

    /// Removes programs that will not run again.
    fn remove_older(&mut self, generation: Generation) {
        let newer = self.programs.split_off(&generation);
        for program in std::mem::replace(&mut self.programs, newer).into_values() {
            // A file that stays only takes space, and the next one of its name replaces it.
            let _ = std::fs::remove_file(program);
        }
    }

    fn clean_up(&mut self) {
        let folder = self
            .programs
            .values()
            .next()
            .and_then(|program| program.parent().map(Path::to_path_buf));
        self.remove_older(Generation::MAX);
        // Another `dev` of another project may share the folder; then it is not empty and stays.
        drop(folder.map(std::fs::remove_dir));
    }
}

/// A free port. Another program may take it before the operator does; then the operator reports that.
pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
