//! Prints the work of the runtime, as it happens: each reconcile with its cause, each write with the fields that it
//! changed.
//!
//! The narrator is an [`Observer`]: it is called from the tasks that do the work, so it only puts the observation into
//! a bounded channel; a task of its own turns it into lines. When the reader is too slow, observations are counted and
//! the gap is reported, because a terminal must never slow a controller down. The output for one observation is a
//! function of it ([`Line::of`]).
//!
//! The operator is told in full. Built-in controllers are told dimly, in one line, and only when they write outside the
//! namespaces of the system: they are the scenery. Steps of the command itself go the same way ([`Narrator::tell`]), so
//! that everything stands in order.
//!
//! A story begins with the command's own step: observations from [`Narrator::begin`] on wait for the next step, because
//! the answer to a request may come later than its effects, and an effect told before its cause puzzles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use kubewright::{Observation, Observer, Outcome};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::paint::{BAD, CHANGE, DIM, GOOD, STRONG, paint};

/// Observations that may wait to be printed.
const WAITING: usize = 4096;

/// Something to be told.
enum News {
    /// Observations from here on wait for the next step.
    Begins,
    Happened(Instant, Observation),
    Told(String, Value),
}

/// The observations from before the story's first step.
#[derive(Default)]
struct Held(Option<Vec<News>>);

impl Held {
    /// The news to print now.
    fn after(&mut self, news: News) -> Vec<News> {
        match (news, &mut self.0) {
            (News::Begins, held) => {
                held.get_or_insert_default();
                Vec::new()
            }
            // As many as may wait in the queue: a command that hangs is told without its step.
            (news @ News::Happened(..), Some(held)) if held.len() < WAITING => {
                held.push(news);
                Vec::new()
            }
            (news @ News::Happened(..), held) => held.take().into_iter().flatten().chain([news]).collect(),
            (news @ News::Told(..), held) => std::iter::once(news).chain(held.take().into_iter().flatten()).collect(),
        }
    }
}

/// The observer half: give it to the cluster and to the operator.
pub struct Narrator {
    queue: mpsc::Sender<News>,
    missed: Arc<AtomicU64>,
    /// Observations are told between [`Narrator::begin`] and [`Narrator::end`]; starting and stopping belong to no
    /// story.
    telling: AtomicBool,
}

/// Prints a text for people, or the same for machines.
pub type Say = Box<dyn Fn(&str, &Value) + Send>;

/// The printing half.
pub struct Narration {
    queue: mpsc::Receiver<News>,
    missed: Arc<AtomicU64>,
    started: Instant,
    heroes: BTreeSet<String>,
    say: Say,
}

/// A narrator and its printer. `heroes` are the controllers told in full.
pub fn narrator(started: Instant, heroes: BTreeSet<String>, say: Say) -> (Narrator, Narration) {
    let (send, queue) = mpsc::channel(WAITING);
    let missed = Arc::new(AtomicU64::new(0));
    let narrator = Narrator {
        queue: send,
        missed: missed.clone(),
        telling: AtomicBool::new(false),
    };
    (
        narrator,
        Narration {
            queue,
            missed,
            started,
            heroes,
            say,
        },
    )
}

impl Narrator {
    /// From now on observations are told, after the step that is told next.
    pub async fn begin(&self) {
        // The printer may be gone; then no output is needed.
        let _ = self.queue.send(News::Begins).await;
        self.telling.store(true, Ordering::Relaxed);
    }

    /// From now on observations are not told any more.
    pub fn end(&self) {
        self.telling.store(false, Ordering::Relaxed);
    }

    /// Tells a step of the command itself, after everything that was observed before.
    pub async fn tell(&self, text: String, event: Value) {
        // The printer may be gone; then no output is needed.
        let _ = self.queue.send(News::Told(text, event)).await;
    }
}

impl Observer for Narrator {
    fn observe(&self, what: &Observation) {
        if !self.telling.load(Ordering::Relaxed) {
            return;
        }
        if self
            .queue
            .try_send(News::Happened(Instant::now(), what.clone()))
            .is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Narration {
    /// Prints until every narrator is gone.
    pub async fn run(mut self) {
        let mut held = Held::default();
        while let Some(news) = self.queue.recv().await {
            let missed = self.missed.swap(0, Ordering::Relaxed);
            if missed > 0 {
                let text = format!("({missed} things happened faster than they could be printed)");
                (self.say)(&paint(DIM, text), &json!({"event": "missed", "count": missed}));
            }
            for news in held.after(news) {
                self.print(&news);
            }
        }
    }

    fn print(&self, news: &News) {
        match news {
            News::Begins => {}
            News::Told(text, event) => (self.say)(text, event),
            News::Happened(when, what) => {
                let seconds = when.duration_since(self.started).as_secs_f64();
                if let Some(line) = Line::of(what, &self.heroes) {
                    (self.say)(&line.text(seconds), &line.json(seconds));
                }
            }
        }
    }
}

/// The output for one observation.
pub struct Line {
    /// Whether it is about the operator.
    hero: bool,
    head: String,
    details: Vec<String>,
    event: Value,
}

impl Line {
    /// Nothing when there is nothing to tell. `heroes` are the controllers told in full.
    pub fn of(what: &Observation, heroes: &BTreeSet<String>) -> Option<Line> {
        let is_hero = |controller: &str| heroes.contains(controller);
        match what {
            Observation::ReconcileStarted {
                controller,
                request,
                causes,
                ..
            } if is_hero(controller) => {
                let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
                Some(Line {
                    hero: true,
                    head: format!(
                        "{} {}",
                        paint(STRONG, format!("{controller} reconciles")),
                        paint(STRONG, request)
                    ),
                    details: causes.iter().map(|cause| format!("because {cause}")).collect(),
                    event: json!({"event": "reconcile", "controller": &**controller, "request": request.to_string(), "causes": causes}),
                })
            }
            Observation::ReconcileFinished {
                controller,
                request,
                outcome,
                ..
            } => {
                let (style, words) = match outcome {
                    Outcome::Retry { error, attempt, after } => {
                        (BAD, format!("failed (attempt {attempt}), again in {after:?}: {error}"))
                    }
                    Outcome::Terminal { error } => (BAD, format!("failed for good: {error}")),
                    Outcome::Conflict { error, after } if is_hero(controller) => {
                        (DIM, format!("met a conflict, again in {after:?}: {error}"))
                    }
                    _ => return None,
                };
                Some(Line {
                    hero: is_hero(controller),
                    head: format!("{controller} {request} {}", paint(style, &words)),
                    details: Vec::new(),
                    event: json!({"event": "outcome", "controller": &**controller, "request": request.to_string(), "outcome": words}),
                })
            }
            Observation::Written {
                controller,
                verb,
                object,
                subresource,
                changes,
            } => {
                // The objects that every namespace has belong to no story.
                let of_every_namespace =
                    object.name == "kube-root-ca.crt" || (object.kind == "ServiceAccount" && object.name == "default");
                let of_the_system = |namespace: &str| namespace.starts_with("kube-") || of_every_namespace;
                // The objects that a cluster makes for itself when it starts.
                let of_the_start = controller.is_none()
                    && match object.kind.as_str() {
                        "StorageClass" => true,
                        "APIService" => object.name == "v1beta1.metrics.k8s.io",
                        "ClusterRole" => object.name.starts_with("system:"),
                        _ => false,
                    };
                if object.kind == "Event"
                    || object.kind == "Lease"
                    || object.kind == "Node"
                    || of_the_start
                    || object.namespace.as_deref().is_some_and(of_the_system)
                {
                    return None;
                }
                let who = controller.as_deref().unwrap_or("client");
                let part = subresource.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                let sign = match *verb {
                    "create" => paint(GOOD, "+ created"),
                    "delete" => paint(BAD, "- deleted"),
                    _ => paint(CHANGE, "~ changed"),
                };
                Some(Line {
                    hero: is_hero(who),
                    head: format!("{} {sign} {object}{part}", paint(DIM, who)),
                    details: changes.iter().map(ToString::to_string).collect(),
                    event: json!({
                        "event": "write", "controller": who, "verb": verb, "object": object.to_string(),
                        "subresource": subresource, "changes": changes,
                    }),
                })
            }
            Observation::ObjectUnreadable { object, error, .. } => Some(Line {
                hero: true,
                head: format!("{} {object}: {error}", paint(BAD, "cannot decode")),
                details: Vec::new(),
                event: json!({"event": "unreadable", "object": object.to_string(), "error": error}),
            }),
            Observation::CacheDegraded { resource, reason } => Some(Line {
                hero: true,
                head: format!("{} {resource}: {reason}", paint(BAD, "cache degraded")),
                details: Vec::new(),
                event: json!({"event": "degraded", "resource": resource, "reason": reason}),
            }),
            _ => None,
        }
    }

    /// For people, one line or more, so many seconds after the beginning.
    pub fn text(&self, seconds: f64) -> String {
        let mut text = format!("{} {}", paint(DIM, format!("{seconds:>9.3} s")), self.head);
        if self.hero {
            for detail in &self.details {
                text.push_str(&format!("\n{:12}{detail}", ""));
            }
        } else if let Some(first) = self.details.first() {
            let more = match self.details.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            text.push_str(&paint(DIM, format!(": {first}{more}")));
        }
        text
    }

    /// For machines.
    pub fn json(&self, seconds: f64) -> Value {
        let mut event = self.event.clone();
        event["seconds"] = json!(seconds);
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::{FieldChange, ObjectRef, Request};
    use std::time::Duration;

    fn told(what: &Observation) -> Option<String> {
        let line = Line::of(what, &["guestbook".to_string()].into())?;
        Some(anstream::adapter::strip_str(&line.text(1.5)).to_string())
    }

    fn check(what: &Observation, expected: Option<&str>) {
        assert_eq!(told(what).as_deref(), expected);
    }

    fn happened(who: &str) -> News {
        let what = Observation::ReconcileFinished {
            controller: who.into(),
            request: Request::new(None, "hello"),
            reconcile_id: 1,
            outcome: Outcome::Done,
            took: Duration::ZERO,
        };
        News::Happened(Instant::now(), what)
    }

    #[test]
    fn what_happens_waits_for_the_step_that_set_it_going() {
        let told = |text: &str| News::Told(text.to_string(), Value::Null);
        let mut held = Held::default();
        let news = [
            happened("before"),
            told("operator"),
            News::Begins,
            happened("reconcile"),
            happened("write"),
            told("you"),
            happened("after"),
            told("ready"),
        ];
        let order: Vec<String> = (news.into_iter().flat_map(|news| held.after(news)))
            .map(|news| match news {
                News::Begins => "begins".to_string(),
                News::Told(text, _) => text,
                News::Happened(_, Observation::ReconcileFinished { controller, .. }) => controller.to_string(),
                News::Happened(..) => unreachable!("only these happen"),
            })
            .collect();
        assert_eq!(
            order,
            ["before", "operator", "you", "reconcile", "write", "after", "ready"]
        );
    }

    #[test]
    fn a_step_that_never_comes_holds_no_more_than_may_wait() {
        let mut held = Held::default();
        held.after(News::Begins);
        assert!((0..WAITING).all(|_| held.after(happened("replicaset-controller")).is_empty()));
        assert_eq!(held.after(happened("replicaset-controller")).len(), WAITING + 1);
    }

    #[test]
    fn writes_show_who_what_and_which_fields() {
        let object = ObjectRef {
            api_version: "webapp.my.domain/v1".into(),
            kind: "Guestbook".into(),
            namespace: Some("default".into()),
            name: "hello".into(),
        };
        let write = |verb, kind: &str, changes| Observation::Written {
            controller: Some("guestbook".into()),
            verb,
            object: ObjectRef {
                kind: kind.into(),
                ..object.clone()
            },
            subresource: Some("status".into()),
            changes,
        };
        let change = FieldChange {
            path: "status.readyReplicas".into(),
            before: Some(json!(0)),
            after: Some(json!(2)),
        };
        check(
            &write("patch", "Guestbook", vec![change]),
            Some(
                "    1.500 s guestbook ~ changed Guestbook default/hello status\n            status.readyReplicas 0 → 2",
            ),
        );
        check(&write("create", "Event", Vec::new()), None);
    }

    #[test]
    fn the_scenery_is_told_in_one_line() {
        let write = |namespace: &str| Observation::Written {
            controller: Some("replicaset-controller".into()),
            verb: "patch",
            object: ObjectRef {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                namespace: Some(namespace.into()),
                name: "web".into(),
            },
            subresource: Some("status".into()),
            changes: ["a", "b", "c"]
                .map(|path| FieldChange {
                    path: path.into(),
                    before: Some(json!(0)),
                    after: Some(json!(2)),
                })
                .into(),
        };
        let line = "    1.500 s replicaset-controller ~ changed ReplicaSet default/web status: a 0 → 2 and 2 more";
        check(&write("default"), Some(line));
        check(&write("kube-system"), None);
    }

    #[test]
    fn failures_are_told_for_every_controller_and_success_for_none() {
        let finished = |outcome| Observation::ReconcileFinished {
            controller: "deployment".into(),
            request: Request::new(Some("default"), "hello"),
            reconcile_id: 7,
            outcome,
            took: Duration::from_millis(2),
        };
        check(&finished(Outcome::Done), None);
        check(
            &finished(Outcome::Retry {
                error: "no luck".into(),
                attempt: 2,
                after: Duration::from_millis(10),
            }),
            Some("    1.500 s deployment default/hello failed (attempt 2), again in 10ms: no luck"),
        );
    }
}
