//! Prints the work of the runtime, as it happens: each reconcile with its cause, each write with the fields that it
//! changed.
//!
//! The narrator is an [`Observer`]: it is called from the tasks that do the work, so it only puts the observation into
//! a bounded channel; a task of its own prints it. If the channel is full, observations are dropped and counted, because
//! a terminal must never slow a controller down. The output for one observation is a pure function
//! ([`Rendered::of`]).
//!
//! The operator's controllers are printed in detail. Built-in controllers are printed dimly, in one line, and only when
//! they write outside the system's namespaces. Steps of the command itself go through the same channel
//! ([`Narrator::tell`]), so that everything is printed in order.
//!
//! Invariant: a step is printed before its effects. Observations from [`Narrator::begin`] on wait for the next step,
//! because the response to a request may come later than its effects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use kubewright::{Observation, Observer, Outcome};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::paint::{BAD, CHANGE, DIM, GOOD, STRONG, paint};

/// Observations that may wait to be printed.
const CAPACITY: usize = 4096;

/// An item of the channel.
enum Item {
    /// Observations from here on wait for the next step.
    Hold,
    Observed(Instant, Observation),
    Step(String, Value),
}

/// The observations that wait for a step.
#[derive(Default)]
struct Buffer(Option<Vec<Item>>);

impl Buffer {
    /// The items to print now.
    fn push(&mut self, item: Item) -> Vec<Item> {
        match (item, &mut self.0) {
            (Item::Hold, buffer) => {
                buffer.get_or_insert_default();
                Vec::new()
            }
            // No more than the channel holds: of a command that hangs the effects are printed without the step.
            (item @ Item::Observed(..), Some(buffer)) if buffer.len() < CAPACITY => {
                buffer.push(item);
                Vec::new()
            }
            (item @ Item::Observed(..), buffer) => buffer.take().into_iter().flatten().chain([item]).collect(),
            (item @ Item::Step(..), buffer) => std::iter::once(item)
                .chain(buffer.take().into_iter().flatten())
                .collect(),
        }
    }
}

/// The observer half: give it to the cluster and to the operator.
pub struct Narrator {
    queue: mpsc::Sender<Item>,
    missed: Arc<AtomicU64>,
    /// Observations are printed between [`Narrator::begin`] and [`Narrator::end`]: those of the start and the stop are
    /// of no interest.
    enabled: AtomicBool,
}

/// Prints a text for people, or the same for machines.
pub type Say = Box<dyn Fn(&str, &Value) + Send>;

/// The printing half.
pub struct Printer {
    queue: mpsc::Receiver<Item>,
    missed: Arc<AtomicU64>,
    started: Instant,
    detailed: BTreeSet<String>,
    say: Say,
}

/// A narrator and its printer. `detailed` are the controllers whose work is printed in detail.
pub fn narrator(started: Instant, detailed: BTreeSet<String>, say: Say) -> (Narrator, Printer) {
    let (send, queue) = mpsc::channel(CAPACITY);
    let missed = Arc::new(AtomicU64::new(0));
    let narrator = Narrator {
        queue: send,
        missed: missed.clone(),
        enabled: AtomicBool::new(false),
    };
    (
        narrator,
        Printer {
            queue,
            missed,
            started,
            detailed,
            say,
        },
    )
}

impl Narrator {
    /// From now on observations are printed, after the next step.
    pub async fn begin(&self) {
        // The printer may be gone; then no output is needed.
        let _ = self.queue.send(Item::Hold).await;
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// From now on observations are not printed.
    pub fn end(&self) {
        self.enabled.store(false, Ordering::Relaxed);
    }

    /// Prints a step of the command itself, after everything that was observed before.
    pub async fn tell(&self, text: String, event: Value) {
        // The printer may be gone; then no output is needed.
        let _ = self.queue.send(Item::Step(text, event)).await;
    }
}

impl Observer for Narrator {
    fn observe(&self, what: &Observation) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        if self
            .queue
            .try_send(Item::Observed(Instant::now(), what.clone()))
            .is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Printer {
    /// Prints until every narrator is gone.
    pub async fn run(mut self) {
        let mut buffer = Buffer::default();
        while let Some(item) = self.queue.recv().await {
            let missed = self.missed.swap(0, Ordering::Relaxed);
            if missed > 0 {
                let text = format!("({missed} things happened faster than they could be printed)");
                (self.say)(&paint(DIM, text), &json!({"event": "missed", "count": missed}));
            }
            for item in buffer.push(item) {
                self.print(&item);
            }
        }
    }

    fn print(&self, item: &Item) {
        match item {
            Item::Hold => {}
            Item::Step(text, event) => (self.say)(text, event),
            Item::Observed(when, what) => {
                let seconds = when.duration_since(self.started).as_secs_f64();
                if let Some(rendered) = Rendered::of(what, &self.detailed) {
                    (self.say)(&rendered.text(seconds), &rendered.json(seconds));
                }
            }
        }
    }
}

/// The output for one observation.
pub struct Rendered {
    /// Whether all details are printed, or only the first.
    detailed: bool,
    head: String,
    details: Vec<String>,
    event: Value,
}

impl Rendered {
    /// `None` for an observation that is not printed. `detailed` are the controllers whose work is printed in detail.
    pub fn of(what: &Observation, detailed: &BTreeSet<String>) -> Option<Rendered> {
        let is_detailed = |controller: &str| detailed.contains(controller);
        match what {
            Observation::ReconcileStarted {
                controller,
                request,
                causes,
                ..
            } if is_detailed(controller) => {
                let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
                Some(Rendered {
                    detailed: true,
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
                    Outcome::Conflict { error, after } if is_detailed(controller) => {
                        (DIM, format!("met a conflict, again in {after:?}: {error}"))
                    }
                    _ => return None,
                };
                Some(Rendered {
                    detailed: is_detailed(controller),
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
                // The objects that every namespace has are of no interest.
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
                Some(Rendered {
                    detailed: is_detailed(who),
                    head: format!("{} {sign} {object}{part}", paint(DIM, who)),
                    details: changes.iter().map(ToString::to_string).collect(),
                    event: json!({
                        "event": "write", "controller": who, "verb": verb, "object": object.to_string(),
                        "subresource": subresource, "changes": changes,
                    }),
                })
            }
            Observation::ObjectUnreadable { object, error, .. } => Some(Rendered {
                detailed: true,
                head: format!("{} {object}: {error}", paint(BAD, "cannot decode")),
                details: Vec::new(),
                event: json!({"event": "unreadable", "object": object.to_string(), "error": error}),
            }),
            Observation::CacheDegraded { resource, reason } => Some(Rendered {
                detailed: true,
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
        if self.detailed {
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

    fn printed(what: &Observation) -> Option<String> {
        let rendered = Rendered::of(what, &["guestbook".to_string()].into())?;
        Some(anstream::adapter::strip_str(&rendered.text(1.5)).to_string())
    }

    fn check(what: &Observation, expected: Option<&str>) {
        assert_eq!(printed(what).as_deref(), expected);
    }

    fn observed(who: &str) -> Item {
        let what = Observation::ReconcileFinished {
            controller: who.into(),
            request: Request::new(None, "hello"),
            reconcile_id: 1,
            outcome: Outcome::Done,
            took: Duration::ZERO,
        };
        Item::Observed(Instant::now(), what)
    }

    #[test]
    fn effects_are_printed_after_their_step() {
        let step = |text: &str| Item::Step(text.to_string(), Value::Null);
        let mut buffer = Buffer::default();
        let items = [
            observed("before"),
            step("operator"),
            Item::Hold,
            observed("reconcile"),
            observed("write"),
            step("you"),
            observed("after"),
            step("ready"),
        ];
        let order: Vec<String> = (items.into_iter().flat_map(|item| buffer.push(item)))
            .map(|item| match item {
                Item::Hold => "hold".to_string(),
                Item::Step(text, _) => text,
                Item::Observed(_, Observation::ReconcileFinished { controller, .. }) => controller.to_string(),
                Item::Observed(..) => unreachable!("only these happen"),
            })
            .collect();
        assert_eq!(
            order,
            ["before", "operator", "you", "reconcile", "write", "after", "ready"]
        );
    }

    #[test]
    fn the_buffer_is_bounded_when_no_step_comes() {
        let mut buffer = Buffer::default();
        buffer.push(Item::Hold);
        assert!((0..CAPACITY).all(|_| buffer.push(observed("replicaset-controller")).is_empty()));
        assert_eq!(buffer.push(observed("replicaset-controller")).len(), CAPACITY + 1);
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
    fn built_in_controllers_are_printed_in_one_line() {
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
    fn failures_are_printed_for_every_controller_and_success_for_none() {
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
