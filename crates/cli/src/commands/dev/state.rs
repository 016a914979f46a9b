//! The state of a `dev` session, and what is printed about its changes.
//!
//! [`State`] holds cluster, build, operator, queue and the last entries. It changes by [`Update`]s: an [`Event`] is
//! about the work of `dev` itself, the others are about the operator and the built-in controllers. Each update gives the
//! [`Entry`]s to print; the live screen draws the state instead. No input or output here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kubewright::{Message, Observation, Outcome};
use kubewright_codegen::Diagnostic;
use serde_json::{Value, json};

use super::observations::Readiness;
use super::operator::{Exit, crash_output};
use crate::output::{BAD, DIM, GOOD, STRONG, paint, shell_word};
use crate::program::Failed;
use kubewright_demo::narrator::Rendered;

/// Entries that are kept for the screen.
const MAX_ENTRIES: usize = 500;

/// A change of the state.
#[derive(Debug)]
pub(crate) enum Update {
    /// Something happened in `dev` itself.
    Event(Event),
    /// A built-in controller did something.
    Builtin(Instant, Box<Observation>),
    /// The operator did something.
    Operator(Instant, Box<Message>),
    /// The operator printed a line.
    Log(String),
    /// So many observations of built-in controllers were dropped.
    Missed(u64),
    /// Show or hide the operator's output.
    ToggleLog,
    /// Show entries that are so many lines older; negative: newer.
    Scroll(isize),
}

/// Something that happened in `dev` itself.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The cluster answers; `milliseconds` when it was started here.
    Cluster {
        description: String,
        address: String,
        kubeconfig: String,
        milliseconds: Option<f64>,
    },
    Watching(Vec<String>),
    Saved(Vec<String>),
    Compiling,
    Progress(usize, usize),
    Compiled {
        took: Duration,
        new: bool,
    },
    NotCompiled(Failed),
    Definitions(Vec<(String, &'static str)>),
    /// The operator will run as this user, with the roles that it declares.
    Account(String),
    Samples(Vec<(String, &'static str)>),
    Started {
        build: u64,
        pid: Option<u32>,
    },
    Stopping,
    Ended {
        exit: Exit,
        requested: bool,
        restart_in: Option<Duration>,
    },
    /// A remark; nothing failed.
    Note(String),
    /// An error, or a warning of one.
    Trouble(Box<Diagnostic>),
    /// A mistake of the operator, by its subject; pinned until it is resolved or another operator starts.
    Advice(String, Box<Diagnostic>),
    /// The cause of this subject's advice is gone.
    Resolved(String),
}

/// A printed entry: its text, and its JSON object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) event: Value,
    /// Whether the operator printed it.
    pub(crate) log: bool,
}

/// The state of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OperatorState {
    #[default]
    None,
    Starting,
    Ready,
    Stopping,
    Crashed,
}

/// The state of the compiler.
#[derive(Clone, Debug, Default)]
pub(crate) enum BuildState {
    #[default]
    None,
    Running {
        since: Option<Instant>,
        progress: Option<(usize, usize)>,
    },
    Done(Duration),
}

/// Counts since the operator was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reconciles: u64,
    pub(crate) writes: u64,
    pub(crate) errors: u64,
}

/// The state of a session.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) started: Instant,
    pub(crate) project: String,
    pub(crate) cluster: Option<(String, String)>,
    pub(crate) build: BuildState,
    /// The errors of the newest build, until one succeeds.
    pub(crate) failed: Option<Failed>,
    pub(crate) definitions: Vec<String>,
    /// The user that the operator runs as, unless it is the administrator.
    pub(crate) account: Option<String>,
    pub(crate) operator: OperatorState,
    pub(crate) pid: Option<u32>,
    pub(crate) build_number: u64,
    pub(crate) counts: Counts,
    /// Reconciles that run, since when.
    pub(crate) running: BTreeMap<(String, String), Instant>,
    /// Keys that are ready and delayed, by controller, as of its last reconcile.
    pub(crate) queues: BTreeMap<String, (usize, usize)>,
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) show_log: bool,
    /// How many lines the screen is back from the newest entry.
    pub(crate) scroll: usize,
    /// How long it took from the last save to the first reconcile.
    pub(crate) turnaround: Option<Duration>,
    /// When the last save happened, while it waits for a build, for the end of the build, for the start of the operator,
    /// and for its first reconcile.
    saved: Option<Instant>,
    in_build: Option<Instant>,
    built: Option<Instant>,
    in_operator: Option<Instant>,
    /// The operator's controllers, by its hello.
    controllers: BTreeSet<String>,
    readiness: Readiness,
    /// The advice that is not resolved, by its subject; the oldest first.
    advice: Vec<(String, Diagnostic)>,
}

impl State {
    pub(crate) fn new(started: Instant, project: String) -> State {
        State {
            started,
            project,
            cluster: None,
            build: BuildState::None,
            failed: None,
            definitions: Vec::new(),
            account: None,
            operator: OperatorState::None,
            pid: None,
            build_number: 0,
            counts: Counts::default(),
            running: BTreeMap::new(),
            queues: BTreeMap::new(),
            entries: VecDeque::new(),
            show_log: true,
            scroll: 0,
            turnaround: None,
            saved: None,
            in_build: None,
            built: None,
            in_operator: None,
            controllers: BTreeSet::new(),
            readiness: Readiness::default(),
            advice: Vec::new(),
        }
    }

    /// The advice that is not resolved, by its subject; the oldest first.
    pub(crate) fn advice(&self) -> &[(String, Diagnostic)] {
        &self.advice
    }

    /// Applies an update, and returns the entries to print about it.
    pub(crate) fn apply(&mut self, update: &Update, now: Instant) -> Vec<Entry> {
        let mut entries = Vec::new();
        match update {
            Update::Event(event) => {
                self.record(event, now);
                entries.extend(self.entry_of(event, now));
            }
            Update::Builtin(when, what) => entries.extend(self.observed(*when, what)),
            Update::Operator(when, message) => self.apply_message(*when, message, &mut entries),
            Update::Log(line) => entries.push(Entry {
                text: format!("{:>11} {} {line}", "", paint(DIM, "│")),
                event: json!({"event": "log", "line": anstream::adapter::strip_str(line).to_string()}),
                log: true,
            }),
            Update::Missed(count) => entries.push(self.entry(
                now,
                &paint(DIM, format!("({count} observations were dropped)")),
                json!({"event": "missed", "count": count}),
            )),
            Update::ToggleLog => self.show_log = !self.show_log,
            Update::Scroll(lines) => {
                let all = self.entries.iter().map(|entry| entry.text.lines().count()).sum();
                self.scroll = self.scroll.saturating_add_signed(*lines).min(all);
            }
        }
        for entry in &entries {
            // What a person reads stays where it is.
            if self.scroll > 0 && (self.show_log || !entry.log) {
                self.scroll += entry.text.lines().count();
            }
            self.remember(update, entry);
        }
        entries
    }

    /// Keeps an entry for the screen, unless the screen shows it elsewhere.
    fn remember(&mut self, update: &Update, entry: &Entry) {
        let mut entry = entry.clone();
        match update {
            Update::Event(Event::Cluster { .. } | Event::Watching(_)) => return,
            Update::Event(Event::NotCompiled(_)) => {
                entry.text.truncate(entry.text.find('\n').unwrap_or(entry.text.len()));
            }
            _ => {}
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    fn apply_message(&mut self, when: Instant, message: &Message, entries: &mut Vec<Entry>) {
        if let Message::Hello { controllers, .. } = message {
            self.controllers.extend(controllers.iter().cloned());
        }
        // The last messages of an operator that crashed may come late.
        if self.readiness.observe(message) && self.operator == OperatorState::Starting {
            self.ready(when, entries);
        }
        match message {
            Message::Missed { count } => entries.push(self.entry(
                when,
                &paint(DIM, format!("({count} observations of the operator were dropped)")),
                json!({"event": "missed", "count": count}),
            )),
            Message::Observed(what) => {
                self.count(when, what);
                entries.extend(self.observed(when, what));
                entries.extend(self.turnaround(when, what));
            }
            _ => {}
        }
    }

    fn ready(&mut self, when: Instant, entries: &mut Vec<Entry>) {
        self.operator = OperatorState::Ready;
        let names: Vec<&str> = self.controllers.iter().map(String::as_str).collect();
        let words = match names[..] {
            [] => "ready; it has no controllers".to_owned(),
            _ => format!("ready: {}", names.join(", ")),
        };
        entries.push(self.step(
            when,
            "operator",
            &words,
            json!({"event": "operator-ready", "controllers": names}),
        ));
    }

    fn count(&mut self, when: Instant, what: &Observation) {
        match what {
            Observation::ReconcileStarted {
                controller,
                request,
                ready,
                delayed,
                ..
            } => {
                self.counts.reconciles += 1;
                self.queues.insert(controller.to_string(), (*ready, *delayed));
                self.running.insert((controller.to_string(), request.to_string()), when);
            }
            Observation::ReconcileFinished {
                controller,
                request,
                outcome,
                ..
            } => {
                self.running.remove(&(controller.to_string(), request.to_string()));
                match outcome {
                    Outcome::Retry { .. } | Outcome::Terminal { .. } => self.counts.errors += 1,
                    _ => {}
                }
                if let Some((_, delayed)) = self.queues.get_mut(&**controller)
                    && matches!(
                        outcome,
                        Outcome::Retry { .. } | Outcome::RequeueAfter(_) | Outcome::Conflict { .. }
                    )
                {
                    *delayed += 1;
                }
            }
            Observation::Written { .. } => self.counts.writes += 1,
            _ => {}
        }
    }

    /// The first reconcile of a new operator after a save.
    fn turnaround(&mut self, when: Instant, what: &Observation) -> Option<Entry> {
        let Observation::ReconcileFinished { outcome, .. } = what else {
            return None;
        };
        if !matches!(outcome, Outcome::Done | Outcome::RequeueAfter(_)) {
            return None;
        }
        let took = when.saturating_duration_since(self.in_operator.take()?);
        self.turnaround = Some(took);
        let seconds = took.as_secs_f64();
        Some(self.step(
            when,
            "you",
            &format!("{} saved → reconciled in {seconds:.2} s", paint(GOOD, "✓")),
            json!({"event": "turnaround", "took": seconds}),
        ))
    }

    fn record(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Cluster {
                address, kubeconfig, ..
            } => self.cluster = Some((address.clone(), kubeconfig.clone())),
            Event::Saved(_) => self.saved = Some(now),
            Event::Compiling => {
                self.in_build = self.saved.take().or(self.in_build);
                self.build = BuildState::Running {
                    since: Some(now),
                    progress: None,
                };
            }
            Event::Progress(done, total) => {
                if let BuildState::Running { progress, .. } = &mut self.build {
                    *progress = Some((*done, *total));
                }
            }
            Event::Compiled { took, new } => {
                self.build = BuildState::Done(*took);
                self.failed = None;
                let saved = self.in_build.take();
                if *new {
                    self.built = saved;
                }
            }
            Event::NotCompiled(failed) => {
                self.build = BuildState::None;
                self.failed = Some(failed.clone());
                self.in_build = None;
            }
            Event::Definitions(definitions) => {
                self.definitions = definitions.iter().map(|(name, _)| name.clone()).collect();
            }
            Event::Account(user) => self.account = Some(user.clone()),
            Event::Started { build, pid } => {
                self.operator = OperatorState::Starting;
                self.pid = *pid;
                self.build_number = *build;
                self.counts = Counts::default();
                self.controllers.clear();
                self.readiness = Readiness::default();
                self.advice.clear();
                self.running.clear();
                self.queues.clear();
                self.in_operator = self.built.take();
            }
            Event::Stopping => self.operator = OperatorState::Stopping,
            Event::Ended { requested, .. } => {
                self.operator = if *requested {
                    OperatorState::None
                } else {
                    OperatorState::Crashed
                };
                self.pid = None;
                self.running.clear();
            }
            Event::Advice(subject, found) => self.advice.push((subject.clone(), (**found).clone())),
            Event::Resolved(subject) => self.advice.retain(|(open, _)| open != subject),
            Event::Watching(_) | Event::Samples(_) | Event::Note(_) | Event::Trouble(_) => {}
        }
    }

    /// The entry for an event, if there is one.
    fn entry_of(&self, event: &Event, now: Instant) -> Option<Entry> {
        let step = |who: &str, what: String, event: Value| Some(self.step(now, who, &what, event));
        match event {
            Event::Cluster {
                description,
                address,
                kubeconfig,
                milliseconds,
            } => {
                let ready = milliseconds
                    .map(|took| format!("ready in {took:.0} ms at "))
                    .unwrap_or_default();
                let text = format!(
                    "{}\n  {:<11} {ready}{description}\n  {:<11} {}",
                    paint(STRONG, format!("kubewright dev · {}", self.project)),
                    "cluster",
                    "kubeconfig",
                    paint(STRONG, format!("export KUBECONFIG={}", shell_word(kubeconfig))),
                );
                let event = json!({"event": "ready", "address": address, "kubeconfig": kubeconfig, "milliseconds": milliseconds});
                Some(Entry {
                    text,
                    event,
                    log: false,
                })
            }
            Event::Watching(what) => Some(Entry {
                text: format!("  {:<11} {}", "watching", what.join(" ")),
                event: json!({"event": "watching", "what": what}),
                log: false,
            }),
            Event::Saved(files) => {
                let more = match files.len() {
                    0..=3 => String::new(),
                    count => format!(" and {} more", count - 3),
                };
                let first = files.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
                step(
                    "you",
                    format!("saved {first}{more}"),
                    json!({"event": "saved", "files": files}),
                )
            }
            Event::Compiling => step("build", paint(DIM, "compiling …"), json!({"event": "compiling"})),
            Event::Progress(..) => None,
            Event::Compiled { took, new } => {
                let seconds = took.as_secs_f64();
                let same = if *new { "" } else { "; nothing changed in the program" };
                step(
                    "build",
                    format!("{} in {seconds:.2} s{same}", paint(GOOD, "compiled")),
                    json!({"event": "compiled", "took": seconds, "new": new}),
                )
            }
            Event::NotCompiled(failed) => step(
                "build",
                failed.text(),
                json!({
                    "event": "not-compiled", "errors": failed.errors, "place": failed.place,
                    "first": anstream::adapter::strip_str(&failed.rendered).to_string(),
                }),
            ),
            Event::Definitions(list) => self.objects(now, "definitions", "definition", list),
            Event::Account(user) => step(
                "operator",
                format!("runs under its role, as {user}"),
                json!({"event": "account", "user": user}),
            ),
            Event::Samples(list) => self.objects(now, "samples", "sample", list),
            Event::Started { build, pid } => {
                let number = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
                step(
                    "operator",
                    format!("started (build {build}{number})"),
                    json!({"event": "operator-started", "build": build, "pid": pid}),
                )
            }
            Event::Stopping => step(
                "operator",
                paint(DIM, "stopping"),
                json!({"event": "operator-stopping"}),
            ),
            Event::Ended {
                exit, requested: true, ..
            } => {
                let took = exit.after.as_secs_f64();
                let event = json!({"event": "operator-ended", "asked": true, "how": exit.reason, "after": took});
                step("operator", paint(DIM, "stopped"), event)
            }
            Event::Ended { exit, restart_in, .. } => self.crashed(now, exit, *restart_in),
            Event::Note(words) => step("note", words.clone(), json!({"event": "note", "note": words})),
            Event::Resolved(subject) => step(
                "answered",
                paint(DIM, format!("what was advised for {subject}")),
                json!({"event": "answered", "subject": subject}),
            ),
            Event::Trouble(diagnostic) | Event::Advice(_, diagnostic) => {
                let mut event = json!({"event": "trouble"});
                event["diagnostic"] = serde_json::to_value(diagnostic).unwrap_or(Value::Null);
                let text = diagnostic.to_string().replace('\n', &format!("\n{:12}", ""));
                step(&paint(BAD, "trouble"), text, event)
            }
        }
    }

    fn crashed(&self, now: Instant, exit: &Exit, restart_in: Option<Duration>) -> Option<Entry> {
        let said = crash_output(&exit.last_lines);
        let mut words = paint(BAD, &exit.reason);
        if let Some(pause) = restart_in {
            words.push_str(&format!(
                " after {:.1} s; started again in {pause:?}",
                exit.after.as_secs_f64()
            ));
        }
        for line in said {
            words.push_str(&format!("\n{:12}{line}", ""));
        }
        let event = json!({
            "event": "operator-ended", "asked": false, "how": exit.reason, "after": exit.after.as_secs_f64(),
            "code": kubewright_codegen::codes::dev::ENDED, "said": said,
            "againIn": restart_in.map(|pause| pause.as_secs_f64()),
        });
        Some(self.step(now, "operator", &words, event))
    }

    fn objects(&self, now: Instant, who: &str, event: &str, list: &[(String, &'static str)]) -> Option<Entry> {
        let words = match list {
            [] => format!("there are no {who}"),
            _ if list.iter().all(|(_, what)| *what == "unchanged") => {
                paint(DIM, format!("unchanged: {}", names(list.iter())))
            }
            _ => {
                let mut by_word: BTreeMap<&str, Vec<&(String, &'static str)>> = BTreeMap::new();
                for item in list {
                    by_word.entry(item.1).or_default().push(item);
                }
                let groups: Vec<String> = by_word
                    .into_iter()
                    .map(|(word, items)| format!("{word} {}", names(items)))
                    .collect();
                groups.join("; ")
            }
        };
        let items: Vec<Value> = list
            .iter()
            .map(|(name, what)| json!({"name": name, "applied": what}))
            .collect();
        Some(self.step(
            now,
            who,
            &words,
            json!({"event": format!("{event}s"), "objects": items}),
        ))
    }

    fn observed(&self, when: Instant, what: &Observation) -> Option<Entry> {
        let rendered = Rendered::of(what, &self.controllers)?;
        let seconds = self.seconds(when);
        Some(Entry {
            text: rendered.text(seconds),
            event: rendered.json(seconds),
            log: false,
        })
    }

    fn step(&self, when: Instant, who: &str, what: &str, event: Value) -> Entry {
        self.entry(when, &format!("{} {what}", paint(STRONG, who)), event)
    }

    fn entry(&self, when: Instant, words: &str, mut event: Value) -> Entry {
        let seconds = self.seconds(when);
        event["seconds"] = json!(seconds);
        Entry {
            text: format!("{} {words}", paint(DIM, format!("{seconds:>9.3} s"))),
            event,
            log: false,
        }
    }

    fn seconds(&self, when: Instant) -> f64 {
        when.saturating_duration_since(self.started).as_secs_f64()
    }
}

fn names<'a>(items: impl IntoIterator<Item = &'a (String, &'static str)>) -> String {
    let names: Vec<&str> = items.into_iter().map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::{FieldChange, ObjectRef, Request};

    /// Applies the updates, one millisecond apart, and returns the output.
    fn printed(state: &mut State, updates: Vec<Update>) -> String {
        let mut text = String::new();
        for (index, update) in updates.into_iter().enumerate() {
            let now = state.started + Duration::from_millis(index as u64);
            let update = match update {
                Update::Operator(_, message) => Update::Operator(now, message),
                other => other,
            };
            for entry in state.apply(&update, now) {
                text.push_str(&anstream::adapter::strip_str(&entry.text).to_string());
                text.push('\n');
            }
        }
        text
    }

    fn said(message: Message) -> Update {
        Update::Operator(Instant::now(), Box::new(message))
    }

    fn observed(what: Observation) -> Update {
        said(Message::Observed(what))
    }

    fn finished(outcome: Outcome) -> Update {
        observed(Observation::ReconcileFinished {
            controller: "guestbook".into(),
            request: Request::new(Some("default"), "hello"),
            reconcile_id: 1,
            outcome,
            took: Duration::from_millis(3),
        })
    }

    fn session() -> Vec<Update> {
        vec![
            Update::Event(Event::Cluster {
                description: "https://127.0.0.1:40001".into(),
                address: "https://127.0.0.1:40001".into(),
                kubeconfig: ".kubewright/kubeconfig".into(),
                milliseconds: Some(9.4),
            }),
            Update::Event(Event::Watching(vec!["src".into(), "api".into()])),
            Update::Event(Event::Compiling),
            Update::Event(Event::Compiled {
                took: Duration::from_millis(2130),
                new: true,
            }),
            Update::Event(Event::Definitions(vec![(
                "guestbooks.webapp.my.domain".into(),
                "created",
            )])),
            Update::Event(Event::Started {
                build: 1,
                pid: Some(4711),
            }),
            said(Message::Hello {
                operator: "guestbook".into(),
                controllers: vec!["guestbook".into()],
            }),
            observed(Observation::ControllerStarted {
                controller: "guestbook".into(),
            }),
            observed(Observation::ReconcileStarted {
                controller: "guestbook".into(),
                request: Request::new(Some("default"), "hello"),
                reconcile_id: 1,
                causes: vec![kubewright::Cause::requested("asked for")],
                ready: 1,
                delayed: 0,
            }),
            observed(Observation::Written {
                controller: Some("guestbook".into()),
                verb: "patch",
                object: ObjectRef {
                    api_version: "apps/v1".into(),
                    kind: "Deployment".into(),
                    namespace: Some("default".into()),
                    name: "hello".into(),
                },
                subresource: None,
                changes: vec![FieldChange {
                    path: "spec.replicas".into(),
                    before: Some(json!(1)),
                    after: Some(json!(3)),
                }],
            }),
            finished(Outcome::Done),
        ]
    }

    #[test]
    fn a_session_is_printed_in_order() {
        let mut state = State::new(Instant::now(), "guestbook".into());
        insta::assert_snapshot!(printed(&mut state, session()), @"
        kubewright dev · guestbook
          cluster     ready in 9 ms at https://127.0.0.1:40001
          kubeconfig  export KUBECONFIG=.kubewright/kubeconfig
          watching    src api
            0.002 s build compiling …
            0.003 s build compiled in 2.13 s
            0.004 s definitions created guestbooks.webapp.my.domain
            0.005 s operator started (build 1, process 4711)
            0.007 s operator ready: guestbook
            0.008 s guestbook reconciles default/hello
                    because asked for
            0.009 s guestbook ~ changed Deployment default/hello
                    spec.replicas 1 → 3
        ");
        assert_eq!(state.operator, OperatorState::Ready);
        assert_eq!(
            state.counts,
            Counts {
                reconciles: 1,
                writes: 1,
                errors: 0
            }
        );
        assert!(state.running.is_empty());
    }

    #[test]
    fn after_a_save_the_first_reconcile_of_the_new_operator_is_timed() {
        let mut state = State::new(Instant::now(), "guestbook".into());
        printed(&mut state, session());
        let save = vec![
            Update::Event(Event::Saved(vec!["src/lib.rs".into()])),
            Update::Event(Event::Compiling),
            // One of the operator that still runs.
            finished(Outcome::Done),
            Update::Event(Event::Compiled {
                took: Duration::from_secs(2),
                new: true,
            }),
            // Saved again: a later operator will tell how long that took.
            Update::Event(Event::Saved(vec!["src/lib.rs".into()])),
            Update::Event(Event::Compiling),
            Update::Event(Event::Started { build: 2, pid: None }),
            finished(Outcome::Terminal {
                error: "no luck".into(),
            }),
            finished(Outcome::Done),
            finished(Outcome::Done),
        ];
        let text = printed(&mut state, save);
        assert_eq!(text.matches("saved → reconciled").count(), 1, "{text}");
        assert_eq!(state.turnaround, Some(Duration::from_millis(8)));
    }

    #[test]
    fn errors_are_printed_in_full() {
        let mut state = State::new(Instant::now(), "guestbook".into());
        let updates = vec![
            Update::Event(Event::NotCompiled(Failed {
                rendered: "error[E0308]: mismatched types\n --> src/lib.rs:12:5".into(),
                place: Some("src/lib.rs:12:5".into()),
                errors: 2,
            })),
            Update::Event(Event::Ended {
                exit: Exit {
                    reason: "panicked (status 101)".into(),
                    after: Duration::from_millis(1200),
                    last_lines: vec![
                        "hello".into(),
                        "thread 'main' panicked at src/main.rs:3:5:".into(),
                        "no luck".into(),
                    ],
                },
                requested: false,
                restart_in: Some(Duration::from_millis(500)),
            }),
        ];
        insta::assert_snapshot!(printed(&mut state, updates), @"
        0.000 s build does not compile: 2 errors, the first one is
                error[E0308]: mismatched types
                 --> src/lib.rs:12:5
        0.001 s operator panicked (status 101) after 1.2 s; started again in 500ms
                thread 'main' panicked at src/main.rs:3:5:
                no luck
        ");
        assert_eq!(state.operator, OperatorState::Crashed);
    }
}
