//! What the events of a run say: how it ended, with which words its tasks failed, when the next run is due.
//!
//! An event is one of `ansible-runner`'s job events. Nothing of a task with `no_log` is in it: Ansible has taken that out.
//! What is logged here leaves out the results of tasks, among which are Secrets, unless somebody asks for everything;
//! then the data of Secrets are masked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::status::AnsibleResult;
use crate::watches::duration;

/// As many failures of a run are told.
const MOST_FAILURES: usize = 20;
/// How long a message may be, in a condition and in the log.
const LONGEST_MESSAGE: usize = 16 << 10;

/// One event of a run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Unique; empty for events of the runner itself.
    pub uuid: String,
    /// Its place in the run.
    pub counter: u64,
    /// What happened, such as `runner_on_failed`.
    pub event: String,
    /// Of the event, by its sort.
    pub event_data: Map<String, Value>,
    /// What Ansible printed.
    pub stdout: String,
    /// When, as Ansible wrote it.
    pub created: String,
}

/// What is logged of a run; `--ansible-log-events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogEvents {
    /// Nothing.
    Nothing,
    /// The beginning of tasks, messages of `debug`, failures.
    #[default]
    Tasks,
    /// Every event with its data.
    Everything,
}

/// What is known of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The counts, when the playbook ended.
    pub result: Option<AnsibleResult>,
    /// Whether a task failed for good, or a host could not be reached.
    pub failed: bool,
    /// The words of the failures.
    pub messages: Vec<String>,
    /// The next run, when the role asked for one.
    pub requeue_after: Option<Duration>,
    left_out: usize,
}

impl Event {
    fn text(&self, name: &str) -> &str {
        self.event_data.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn is_ignored(&self) -> bool {
        self.event_data
            .get("ignore_errors")
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    /// The counts of all hosts together: of `ok`, `failures`, and the others that the last event has.
    fn count(&self, name: &str) -> u64 {
        let by_host: BTreeMap<String, u64> = self
            .event_data
            .get(name)
            .and_then(|counts| serde_json::from_value(counts.clone()).ok())
            .unwrap_or_default();
        by_host.values().sum()
    }

    /// Why the task failed, in its own words.
    fn failure(&self) -> String {
        let task = self.text("task");
        let nothing = Value::Null;
        let result = self.event_data.get("res").unwrap_or(&nothing);
        if result.get("censored").is_some() {
            return format!("task {task:?} failed; its words are hidden by no_log");
        }
        let said = |result: &Value| {
            let text = |name: &str| result[name].as_str().map(str::trim).filter(|text| !text.is_empty());
            // A role or module that cannot be loaded has a reason.
            let names = ["msg", "reason", "stderr", "module_stderr"];
            names.into_iter().find_map(text).map(str::to_owned)
        };
        let mut message = said(result).unwrap_or_else(|| format!("task {task:?} failed and did not say why"));
        let items = result["results"].as_array().into_iter().flatten();
        let items: Vec<String> = items.filter(|item| item["failed"] == true).filter_map(said).collect();
        if !items.is_empty() {
            message = format!("{message}: {}", items.join("; "));
        }
        bounded(&message)
    }
}

/// A text that fits.
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= LONGEST_MESSAGE {
        return text.to_owned();
    }
    let end = (0..=LONGEST_MESSAGE)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{} [...]", &text[..end])
}

impl Outcome {
    /// Takes the next event.
    pub fn see(&mut self, event: &Event) {
        match event.event.as_str() {
            "runner_on_failed" | "runner_on_unreachable" if !event.is_ignored() => {
                if self.messages.len() < MOST_FAILURES {
                    self.messages.push(event.failure());
                } else {
                    self.left_out += 1;
                }
            }
            "playbook_on_stats" => {
                self.failed = event.count("failures") + event.count("dark") > 0;
                self.result = Some(AnsibleResult {
                    ok: event.count("ok"),
                    changed: event.count("changed"),
                    skipped: event.count("skipped"),
                    failures: event.count("failures"),
                    completion: event.created.clone(),
                });
            }
            "runner_on_ok" => {
                let action = event.text("task_action");
                if action == "requeue_after" || action.ends_with(".requeue_after") {
                    let period = event.event_data.get("res").and_then(|result| result["period"].as_str());
                    self.requeue_after = period.and_then(duration).or(self.requeue_after);
                }
            }
            _ => {}
        }
    }

    /// The words of the failures, in one text.
    #[must_use]
    pub fn message(&self) -> String {
        let mut text = self.messages.join("\n");
        if self.left_out > 0 {
            text = format!("{text}\n{} more tasks failed", self.left_out);
        }
        bounded(&text)
    }
}

/// Logs an event, as far as that is wanted; `object` in words.
pub fn log(event: &Event, wanted: LogEvents, job: &str, object: &str) {
    let task = event.text("task");
    match (wanted, event.event.as_str()) {
        (LogEvents::Nothing, _) => {}
        (_, "runner_on_failed" | "runner_on_unreachable") => {
            let (path, ignored) = (event.text("task_path"), event.is_ignored());
            tracing::error!(job, object, task, path, ignored, "task failed: {}", event.failure());
        }
        (LogEvents::Tasks, "playbook_on_task_start") => {
            let action = event.text("task_action");
            if !["set_fact", "debug"]
                .iter()
                .any(|quiet| action == *quiet || action.ends_with(&format!(".{quiet}")))
            {
                tracing::info!(job, object, task, "task starts");
            }
        }
        (LogEvents::Tasks, "runner_on_ok") => {
            let action = event.text("task_action");
            if action == "debug" || action.ends_with(".debug") {
                let nothing = Value::Null;
                let message = &event.event_data.get("res").unwrap_or(&nothing)["msg"];
                tracing::info!(job, object, task, "debug: {}", bounded(&masked(message).to_string()));
            }
        }
        (LogEvents::Tasks, _) => {}
        (LogEvents::Everything, name) => {
            let data: Map<String, Value> = event
                .event_data
                .iter()
                .filter(|(name, _)| *name != "task_args")
                .map(|(name, value)| (name.clone(), masked(value)))
                .collect();
            let data = bounded(&Value::Object(data).to_string());
            tracing::info!(job, object, event = name, task, data, "event");
        }
    }
}

/// A value whose Secrets say nothing.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let secret = map.get("kind").is_some_and(|kind| kind == "Secret");
            let hides = |name: &str| secret && ["data", "stringData", "metadata"].contains(&name);
            let field = |(name, value): (&String, &Value)| match (hides(name), name.as_str()) {
                (true, "metadata") => (
                    name.clone(),
                    serde_json::json!({"name": value["name"], "namespace": value["namespace"]}),
                ),
                (true, _) => (name.clone(), Value::from("hidden")),
                (false, _) => (name.clone(), masked(value)),
            };
            Value::Object(map.iter().map(field).collect())
        }
        Value::Array(list) => list.iter().map(masked).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(name: &str, data: Value) -> Event {
        serde_json::from_value(
            json!({"uuid": "u", "event": name, "event_data": data, "created": "2026-01-01T00:00:00.5+00:00"}),
        )
        .expect("an event")
    }

    fn outcome(events: &[Event]) -> Outcome {
        let mut outcome = Outcome::default();
        for event in events {
            outcome.see(event);
        }
        outcome
    }

    #[test]
    fn failures_have_the_words_of_the_task() {
        let check = |data: Value, expected: &str| {
            let failed = event("runner_on_failed", data.clone());
            assert_eq!(outcome(&[failed]).message(), expected, "{data}");
        };
        check(json!({"task": "t", "res": {"msg": "no such file"}}), "no such file");
        check(json!({"task": "t", "res": {"rc": 1, "stderr": "boom\n"}}), "boom");
        check(
            json!({"task": "t", "res": {"reason": "the role was not found"}}),
            "the role was not found",
        );
        check(json!({"task": "t", "res": {}}), "task \"t\" failed and did not say why");
        check(json!({"task": "t"}), "task \"t\" failed and did not say why");
        check(
            json!({"task": "t", "res": {"censored": "the output has been hidden"}}),
            "task \"t\" failed; its words are hidden by no_log",
        );
        check(
            json!({"task": "t", "res": {"msg": "One or more items failed", "results": [{"failed": true, "msg": "a"}, {"msg": "b"}, {"failed": true, "msg": "c"}]}}),
            "One or more items failed: a; c",
        );
        check(json!({"task": "t", "ignore_errors": true, "res": {"msg": "x"}}), "");
    }

    #[test]
    fn the_last_event_says_how_it_ended() {
        let stats = |data: Value| event("playbook_on_stats", data);
        let failed = || event("runner_on_failed", json!({"task": "t", "res": {"msg": "rescued"}}));
        let counts = json!({"ok": {"localhost": 3}, "changed": {"localhost": 1}, "skipped": {}, "failures": {}, "dark": {}, "rescued": {"localhost": 1}});
        let well = outcome(&[failed(), stats(counts)]);
        assert!(!well.failed);
        let result = well.result.expect("it ended");
        assert_eq!((result.ok, result.changed, result.failures), (3, 1, 0));
        assert_eq!(result.completion, "2026-01-01T00:00:00.5+00:00");
        assert!(outcome(&[stats(json!({"failures": {"localhost": 1}}))]).failed);
        assert!(outcome(&[stats(json!({"dark": {"localhost": 1}}))]).failed);
        assert!(outcome(&[failed()]).result.is_none());
    }

    #[test]
    fn a_role_may_ask_for_another_run() {
        let asks = |action: &str, period: &str| {
            event(
                "runner_on_ok",
                json!({"task_action": action, "res": {"period": period}}),
            )
        };
        let check = |event: Event, expected: Option<u64>| {
            assert_eq!(outcome(&[event]).requeue_after, expected.map(Duration::from_secs));
        };
        check(asks("operator_sdk.util.requeue_after", "30s"), Some(30));
        check(asks("requeue_after", "1m"), Some(60));
        check(asks("requeue_after", "soon"), None);
        check(asks("set_fact", "30s"), None);
    }

    #[test]
    fn secrets_are_masked_wherever_they_are() {
        let given = json!({"res": {"resources": [{"kind": "Secret", "metadata": {"name": "s", "annotations": {"last": "data"}}, "data": {"p": "cGFzcw=="}}]}});
        let text = masked(&given).to_string();
        assert!(
            !text.contains("cGFzcw==") && !text.contains("last") && text.contains("\"name\":\"s\""),
            "{text}"
        );
    }

    #[test]
    fn messages_are_bounded() {
        let long = "ä".repeat(LONGEST_MESSAGE);
        assert!(bounded(&long).len() < LONGEST_MESSAGE + 10);
        let failed = event("runner_on_failed", json!({"res": {"msg": "x"}}));
        let many = vec![failed; MOST_FAILURES + 3];
        assert!(outcome(&many).message().ends_with("3 more tasks failed"));
    }
}
