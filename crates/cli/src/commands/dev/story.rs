//! The news of `dev`: facts about its own work, and the work of the operator and the cluster.
//!
//! [`Fact`] is everything that `dev` itself has to say, with its words and its JSON. [`Story`] is the present state: of
//! cluster, build and operator, the queue, and the last entries; it takes [`News`], and the live screen draws it.
//! Output by lines prints the [`Entry`]s. No input or output here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kubewright::{Message, Observation, Outcome};
use kubewright_codegen::Diagnostic;
use serde_json::{Value, json};

use super::observations::Readiness;
use super::operator::{Exit, what_it_said};
use crate::narrator::Line;
use crate::output::{BAD, DIM, GOOD, STRONG, paint};
use crate::program::Failed;
use crate::shell;

/// Entries that are kept for the screen.
const KEPT: usize = 500;

/// Something to be told.
#[derive(Debug)]
pub(crate) enum News {
    /// About `dev`'s own work.
    Fact(Fact),
    /// A built-in controller did something.
    Scenery(Instant, Box<Observation>),
    /// The operator did something.
    Operator(Instant, Box<Message>),
    /// The operator printed a line.
    Log(String),
    /// So many built-in observations could not be kept.
    Missed(u64),
    /// Show or hide the operator's output.
    ToggleLog,
}

/// Something about `dev`'s own work.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
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
    /// The operator will run as this user, under the roles that it declares.
    Account(String),
    Samples(Vec<(String, &'static str)>),
    Started {
        build: u64,
        pid: Option<u32>,
    },
    Stopping,
    Ended {
        exit: Exit,
        asked: bool,
        again_in: Option<Duration>,
    },
    /// Something that a person should know, though nothing failed.
    Note(String),
    /// Something did not work or is about to go wrong.
    Trouble(Box<Diagnostic>),
    /// A mistake of the operator, by its subject; pinned until it is answered or another operator starts.
    Advice(String, Box<Diagnostic>),
    /// The cause of this subject's advice is gone.
    Answered(String),
}

/// One thing as it is printed.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) event: Value,
    /// Something that the operator printed.
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

/// Numbers of the present operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reconciles: u64,
    pub(crate) writes: u64,
    pub(crate) errors: u64,
}

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) started: Instant,
    pub(crate) project: String,
    pub(crate) cluster: Option<(String, String)>,
    pub(crate) build: BuildState,
    /// The errors of the newest build, until one succeeds.
    pub(crate) failed: Option<Failed>,
    pub(crate) definitions: Vec<String>,
    /// The account of the operator, when it is not the administrator.
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
    /// How long it took from the last save to the first reconcile.
    pub(crate) turnaround: Option<Duration>,
    /// The last save on its way: to a build, in the build, to its operator, to the operator's first reconcile.
    saved: Option<Instant>,
    in_build: Option<Instant>,
    built: Option<Instant>,
    in_operator: Option<Instant>,
    /// Controllers of which the operator speaks.
    heroes: BTreeSet<String>,
    readiness: Readiness,
    /// The advice that is not answered, by its subject; the oldest first.
    advice: Vec<(String, Diagnostic)>,
}

impl Story {
    pub(crate) fn new(started: Instant, project: String) -> Story {
        Story {
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
            turnaround: None,
            saved: None,
            in_build: None,
            built: None,
            in_operator: None,
            heroes: BTreeSet::new(),
            readiness: Readiness::default(),
            advice: Vec::new(),
        }
    }

    /// The advice that is not answered, by its subject; the oldest first.
    pub(crate) fn advice(&self) -> &[(String, Diagnostic)] {
        &self.advice
    }

    /// Takes the news and gives the entries to print about it.
    pub(crate) fn hear(&mut self, news: &News, now: Instant) -> Vec<Entry> {
        let mut entries = Vec::new();
        match news {
            News::Fact(fact) => {
                self.learn(fact, now);
                entries.extend(self.told(fact, now));
            }
            News::Scenery(when, what) => entries.extend(self.line(*when, what)),
            News::Operator(when, message) => self.operator_says(*when, message, &mut entries),
            News::Log(line) => entries.push(Entry {
                text: format!("{:>11} {} {line}", "", paint(DIM, "│")),
                event: json!({"event": "log", "line": anstream::adapter::strip_str(line).to_string()}),
                log: true,
            }),
            News::Missed(count) => entries.push(self.entry(
                now,
                &paint(DIM, format!("({count} things happened faster than they could be told)")),
                json!({"event": "missed", "count": count}),
            )),
            News::ToggleLog => self.show_log = !self.show_log,
        }
        for entry in &entries {
            self.keep(news, entry);
        }
        entries
    }

    /// Keeps an entry for the screen, unless the screen shows it elsewhere.
    fn keep(&mut self, news: &News, entry: &Entry) {
        let mut entry = entry.clone();
        match news {
            News::Fact(Fact::Cluster { .. } | Fact::Watching(_)) => return,
            News::Fact(Fact::NotCompiled(_)) => entry.text.truncate(entry.text.find('\n').unwrap_or(entry.text.len())),
            _ => {}
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    fn operator_says(&mut self, when: Instant, message: &Message, entries: &mut Vec<Entry>) {
        if let Message::Hello { controllers, .. } = message {
            self.heroes.extend(controllers.iter().cloned());
        }
        // An operator that crashed may still be heard for a moment.
        if self.readiness.hear(message) && self.operator == OperatorState::Starting {
            self.ready(when, entries);
        }
        match message {
            Message::Missed { count } => entries.push(self.entry(
                when,
                &paint(
                    DIM,
                    format!("({count} things happened faster than the operator could tell them)"),
                ),
                json!({"event": "missed", "count": count}),
            )),
            Message::Observed(what) => {
                self.observe(when, what);
                entries.extend(self.line(when, what));
                entries.extend(self.reached(when, what));
            }
            _ => {}
        }
    }

    fn ready(&mut self, when: Instant, entries: &mut Vec<Entry>) {
        self.operator = OperatorState::Ready;
        let names: Vec<&str> = self.heroes.iter().map(String::as_str).collect();
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

    fn observe(&mut self, when: Instant, what: &Observation) {
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
    fn reached(&mut self, when: Instant, what: &Observation) -> Option<Entry> {
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

    fn learn(&mut self, fact: &Fact, now: Instant) {
        match fact {
            Fact::Cluster {
                address, kubeconfig, ..
            } => self.cluster = Some((address.clone(), kubeconfig.clone())),
            Fact::Saved(_) => self.saved = Some(now),
            Fact::Compiling => {
                self.in_build = self.saved.take().or(self.in_build);
                self.build = BuildState::Running {
                    since: Some(now),
                    progress: None,
                };
            }
            Fact::Progress(done, total) => {
                if let BuildState::Running { progress, .. } = &mut self.build {
                    *progress = Some((*done, *total));
                }
            }
            Fact::Compiled { took, new } => {
                self.build = BuildState::Done(*took);
                self.failed = None;
                let saved = self.in_build.take();
                if *new {
                    self.built = saved;
                }
            }
            Fact::NotCompiled(failed) => {
                self.build = BuildState::None;
                self.failed = Some(failed.clone());
                self.in_build = None;
            }
            Fact::Definitions(definitions) => {
                self.definitions = definitions.iter().map(|(name, _)| name.clone()).collect();
            }
            Fact::Account(user) => self.account = Some(user.clone()),
            Fact::Started { build, pid } => {
                self.operator = OperatorState::Starting;
                self.pid = *pid;
                self.build_number = *build;
                self.counts = Counts::default();
                self.heroes.clear();
                self.readiness = Readiness::default();
                self.advice.clear();
                self.running.clear();
                self.queues.clear();
                self.in_operator = self.built.take();
            }
            Fact::Stopping => self.operator = OperatorState::Stopping,
            Fact::Ended { asked, .. } => {
                self.operator = if *asked {
                    OperatorState::None
                } else {
                    OperatorState::Crashed
                };
                self.pid = None;
                self.running.clear();
            }
            Fact::Advice(subject, found) => self.advice.push((subject.clone(), (**found).clone())),
            Fact::Answered(subject) => self.advice.retain(|(open, _)| open != subject),
            Fact::Watching(_) | Fact::Samples(_) | Fact::Note(_) | Fact::Trouble(_) => {}
        }
    }

    /// The words about a fact, if there are any.
    fn told(&self, fact: &Fact, now: Instant) -> Option<Entry> {
        let step = |who: &str, what: String, event: Value| Some(self.step(now, who, &what, event));
        match fact {
            Fact::Cluster {
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
                    paint(STRONG, format!("export KUBECONFIG={}", shell::word(kubeconfig))),
                );
                let event = json!({"event": "ready", "address": address, "kubeconfig": kubeconfig, "milliseconds": milliseconds});
                Some(Entry {
                    text,
                    event,
                    log: false,
                })
            }
            Fact::Watching(what) => Some(Entry {
                text: format!("  {:<11} {}", "watching", what.join(" ")),
                event: json!({"event": "watching", "what": what}),
                log: false,
            }),
            Fact::Saved(files) => {
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
            Fact::Compiling => step("build", paint(DIM, "compiling …"), json!({"event": "compiling"})),
            Fact::Progress(..) => None,
            Fact::Compiled { took, new } => {
                let seconds = took.as_secs_f64();
                let same = if *new { "" } else { "; nothing changed in the program" };
                step(
                    "build",
                    format!("{} in {seconds:.2} s{same}", paint(GOOD, "compiled")),
                    json!({"event": "compiled", "took": seconds, "new": new}),
                )
            }
            Fact::NotCompiled(failed) => step(
                "build",
                failed_words(failed),
                json!({
                    "event": "not-compiled", "errors": failed.errors, "place": failed.place,
                    "first": anstream::adapter::strip_str(&failed.rendered).to_string(),
                }),
            ),
            Fact::Definitions(list) => self.objects(now, "definitions", "definition", list),
            Fact::Account(user) => step(
                "operator",
                format!("runs under its role, as {user}"),
                json!({"event": "account", "user": user}),
            ),
            Fact::Samples(list) => self.objects(now, "samples", "sample", list),
            Fact::Started { build, pid } => {
                let number = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
                step(
                    "operator",
                    format!("started (build {build}{number})"),
                    json!({"event": "operator-started", "build": build, "pid": pid}),
                )
            }
            Fact::Stopping => step(
                "operator",
                paint(DIM, "stopping"),
                json!({"event": "operator-stopping"}),
            ),
            Fact::Ended { exit, asked: true, .. } => {
                let took = exit.after.as_secs_f64();
                let event = json!({"event": "operator-ended", "asked": true, "how": exit.how, "after": took});
                step("operator", paint(DIM, "stopped"), event)
            }
            Fact::Ended { exit, again_in, .. } => self.crashed(now, exit, *again_in),
            Fact::Note(words) => step("note", words.clone(), json!({"event": "note", "note": words})),
            Fact::Answered(subject) => step(
                "answered",
                paint(DIM, format!("what was advised for {subject}")),
                json!({"event": "answered", "subject": subject}),
            ),
            Fact::Trouble(diagnostic) | Fact::Advice(_, diagnostic) => {
                let mut event = json!({"event": "trouble"});
                event["diagnostic"] = serde_json::to_value(diagnostic).unwrap_or(Value::Null);
                let text = diagnostic.to_string().replace('\n', &format!("\n{:12}", ""));
                step(&paint(BAD, "trouble"), text, event)
            }
        }
    }

    fn crashed(&self, now: Instant, exit: &Exit, again_in: Option<Duration>) -> Option<Entry> {
        let said = what_it_said(&exit.last_lines);
        let mut words = paint(BAD, &exit.how);
        if let Some(pause) = again_in {
            words.push_str(&format!(
                " after {:.1} s; started again in {pause:?}",
                exit.after.as_secs_f64()
            ));
        }
        for line in said {
            words.push_str(&format!("\n{:12}{line}", ""));
        }
        let event = json!({
            "event": "operator-ended", "asked": false, "how": exit.how, "after": exit.after.as_secs_f64(),
            "code": kubewright_codegen::codes::dev::ENDED, "said": said,
            "againIn": again_in.map(|pause| pause.as_secs_f64()),
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

    fn line(&self, when: Instant, what: &Observation) -> Option<Entry> {
        let line = Line::of(what, &self.heroes)?;
        let seconds = self.seconds(when);
        Some(Entry {
            text: line.text(seconds),
            event: line.json(seconds),
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
    items
        .into_iter()
        .map(|(name, _)| name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The first error whole, and how many there are.
fn failed_words(failed: &Failed) -> String {
    let count = match failed.errors {
        1 => "does not compile".to_owned(),
        count => format!("does not compile: {count} errors, the first one is"),
    };
    let indented = failed.rendered.replace('\n', &format!("\n{:12}", ""));
    format!("{}\n{:12}{indented}", paint(BAD, count), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::{FieldChange, ObjectRef, Request};

    /// Plays the news, one millisecond apart, and gives the output.
    fn printed(story: &mut Story, news: Vec<News>) -> String {
        let mut text = String::new();
        for (index, news) in news.into_iter().enumerate() {
            let now = story.started + Duration::from_millis(index as u64);
            let news = match news {
                News::Operator(_, message) => News::Operator(now, message),
                other => other,
            };
            for entry in story.hear(&news, now) {
                text.push_str(&anstream::adapter::strip_str(&entry.text).to_string());
                text.push('\n');
            }
        }
        text
    }

    fn said(message: Message) -> News {
        News::Operator(Instant::now(), Box::new(message))
    }

    fn observed(what: Observation) -> News {
        said(Message::Observed(what))
    }

    fn finished(outcome: Outcome) -> News {
        observed(Observation::ReconcileFinished {
            controller: "guestbook".into(),
            request: Request::new(Some("default"), "hello"),
            reconcile_id: 1,
            outcome,
            took: Duration::from_millis(3),
        })
    }

    fn session() -> Vec<News> {
        vec![
            News::Fact(Fact::Cluster {
                description: "https://127.0.0.1:40001".into(),
                address: "https://127.0.0.1:40001".into(),
                kubeconfig: ".kubewright/kubeconfig".into(),
                milliseconds: Some(9.4),
            }),
            News::Fact(Fact::Watching(vec!["src".into(), "api".into()])),
            News::Fact(Fact::Compiling),
            News::Fact(Fact::Compiled {
                took: Duration::from_millis(2130),
                new: true,
            }),
            News::Fact(Fact::Definitions(vec![(
                "guestbooks.webapp.my.domain".into(),
                "created",
            )])),
            News::Fact(Fact::Started {
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
    fn a_session_reads_like_a_story() {
        let mut story = Story::new(Instant::now(), "guestbook".into());
        insta::assert_snapshot!(printed(&mut story, session()), @"
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
        assert_eq!(story.operator, OperatorState::Ready);
        assert_eq!(
            story.counts,
            Counts {
                reconciles: 1,
                writes: 1,
                errors: 0
            }
        );
        assert!(story.running.is_empty());
    }

    #[test]
    fn after_a_save_the_first_reconcile_of_the_new_operator_is_timed() {
        let mut story = Story::new(Instant::now(), "guestbook".into());
        printed(&mut story, session());
        let save = vec![
            News::Fact(Fact::Saved(vec!["src/lib.rs".into()])),
            News::Fact(Fact::Compiling),
            // One of the operator that still runs.
            finished(Outcome::Done),
            News::Fact(Fact::Compiled {
                took: Duration::from_secs(2),
                new: true,
            }),
            // Saved again: a later operator will tell how long that took.
            News::Fact(Fact::Saved(vec!["src/lib.rs".into()])),
            News::Fact(Fact::Compiling),
            News::Fact(Fact::Started { build: 2, pid: None }),
            finished(Outcome::Terminal {
                error: "no luck".into(),
            }),
            finished(Outcome::Done),
            finished(Outcome::Done),
        ];
        let text = printed(&mut story, save);
        assert_eq!(text.matches("saved → reconciled").count(), 1, "{text}");
        assert_eq!(story.turnaround, Some(Duration::from_millis(8)));
    }

    #[test]
    fn what_went_wrong_is_told_whole() {
        let mut story = Story::new(Instant::now(), "guestbook".into());
        let news = vec![
            News::Fact(Fact::NotCompiled(Failed {
                rendered: "error[E0308]: mismatched types\n --> src/lib.rs:12:5".into(),
                place: Some("src/lib.rs:12:5".into()),
                errors: 2,
            })),
            News::Fact(Fact::Ended {
                exit: Exit {
                    how: "panicked (status 101)".into(),
                    after: Duration::from_millis(1200),
                    last_lines: vec![
                        "hello".into(),
                        "thread 'main' panicked at src/main.rs:3:5:".into(),
                        "no luck".into(),
                    ],
                },
                asked: false,
                again_in: Some(Duration::from_millis(500)),
            }),
        ];
        insta::assert_snapshot!(printed(&mut story, news), @"
        0.000 s build does not compile: 2 errors, the first one is
                error[E0308]: mismatched types
                 --> src/lib.rs:12:5
        0.001 s operator panicked (status 101) after 1.2 s; started again in 500ms
                thread 'main' panicked at src/main.rs:3:5:
                no luck
        ");
        assert_eq!(story.operator, OperatorState::Crashed);
    }
}
