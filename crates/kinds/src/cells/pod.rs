//! The cells of pods: the words of `kubectl get pods` for containers that wait, run, end and restart.

use jiff::Timestamp;
use serde_json::Value;

use super::or;
use kubewright_model::Cell;
use kubewright_model::age;
use kubewright_model::values::{At, get};

pub(crate) const POD: &[Cell] = &[
    Cell::Name,
    Cell::With(|pod, now| Summary::of(pod, now).ready()),
    Cell::With(|pod, now| Summary::of(pod, now).reason.into()),
    Cell::With(|pod, now| Summary::of(pod, now).restarts_text(now)),
    Cell::Age,
    Cell::With(|pod, _| {
        let first = get(pod, &["status", "podIPs"])
            .get(0)
            .and_then(|ip| ip.get("ip"))
            .and_then(Value::as_str)
            .unwrap_or("");
        or(or(first, text(pod, &["status", "podIP"])), "<none>").into()
    }),
    Cell::With(|pod, _| or(text(pod, &["spec", "nodeName"]), "<none>").into()),
    Cell::With(|pod, _| or(text(pod, &["status", "nominatedNodeName"]), "<none>").into()),
    Cell::With(readiness_gates),
];

fn text<'a>(object: &'a Value, keys: &[&str]) -> &'a str {
    get(object, keys).as_str().unwrap_or("")
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    At::root(pod)
        .keys(&["status", "conditions"])
        .items()
        .any(|condition| condition.key("type").text() == kind && condition.key("status").text() == "True")
}

fn readiness_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = At::root(pod).keys(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .items()
        .filter(|gate| has_condition(pod, gate.key("conditionType").text()))
        .count();
    format!("{open}/{}", gates.len()).into()
}

/// The state of a pod's containers, summed up.
#[derive(Default)]
struct Summary {
    containers: usize,
    ready: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(pod: &Value, _: Timestamp) -> Self {
        let mut summary = Summary {
            containers: At::root(pod).keys(&["spec", "containers"]).len(),
            reason: or(text(pod, &["status", "reason"]), text(pod, &["status", "phase"])).to_owned(),
            ..Summary::default()
        };
        let gated = |condition: At<'_>| {
            condition.key("type").text() == "PodScheduled" && condition.key("reason").text() == "SchedulingGated"
        };
        if At::root(pod).keys(&["status", "conditions"]).items().any(gated) {
            summary.reason = "SchedulingGated".to_owned();
        }
        let initializing = summary.init_containers(pod);
        if !initializing || has_condition(pod, "Initialized") {
            summary.regular_containers(pod);
        }
        summary.deletion(pod);
        summary
    }

    fn count_restarts(&mut self, status: &At<'_>) {
        self.restarts += status.key("restartCount").int().unwrap_or(0);
        let ended = status
            .keys(&["lastState", "terminated", "finishedAt"])
            .text()
            .parse::<Timestamp>()
            .ok();
        self.last_restart = self.last_restart.max(ended);
    }

    /// Whether initialization still goes on (or failed).
    fn init_containers(&mut self, pod: &Value) -> bool {
        let specs = At::root(pod).keys(&["spec", "initContainers"]);
        let sidecar = |name: &str| {
            specs
                .items()
                .any(|spec| spec.key("name").text() == name && spec.key("restartPolicy").text() == "Always")
        };
        self.containers += specs
            .items()
            .filter(|spec| spec.key("restartPolicy").text() == "Always")
            .count();
        // Once the pod runs, only restarts of sidecars count.
        let (mut sidecar_restarts, mut sidecar_last) = (0, None);
        let mut initializing = false;
        for (index, status) in At::root(pod)
            .keys(&["status", "initContainerStatuses"])
            .items()
            .enumerate()
        {
            self.count_restarts(&status);
            let is_sidecar = sidecar(status.key("name").text());
            if is_sidecar {
                sidecar_restarts += status.key("restartCount").int().unwrap_or(0);
                sidecar_last = self.last_restart;
            }
            let (terminated, waiting) = (
                status.keys(&["state", "terminated"]),
                status.keys(&["state", "waiting"]),
            );
            if terminated.present() && terminated.key("exitCode").int().unwrap_or(0) == 0 {
                continue;
            }
            if is_sidecar && status.key("started").is_true() {
                self.ready += usize::from(status.key("ready").is_true());
                continue;
            }
            let why = waiting.key("reason").text();
            self.reason = if terminated.present() {
                format!("Init:{}", termination(&terminated))
            } else if !why.is_empty() && why != "PodInitializing" {
                format!("Init:{why}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            initializing = true;
            break;
        }
        if !initializing {
            self.restarts = sidecar_restarts;
            self.last_restart = sidecar_last;
        }
        initializing
    }

    fn regular_containers(&mut self, pod: &Value) {
        let statuses: Vec<At<'_>> = At::root(pod).keys(&["status", "containerStatuses"]).items().collect();
        let mut running = false;
        // From the last to the first, so that the first container with a reason has the last word.
        for status in statuses.iter().rev() {
            self.count_restarts(status);
            let (terminated, waiting) = (
                status.keys(&["state", "terminated"]),
                status.keys(&["state", "waiting"]),
            );
            if !waiting.key("reason").text().is_empty() {
                self.reason = waiting.key("reason").text().to_owned();
            } else if terminated.present() {
                self.reason = termination(&terminated);
            } else if status.key("ready").is_true() && status.keys(&["state", "running"]).present() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if has_condition(pod, "Ready") {
                "Running"
            } else {
                "NotReady"
            }
            .to_owned();
        }
    }

    fn deletion(&mut self, pod: &Value) {
        if get(pod, &["metadata", "deletionTimestamp"]).is_null() {
            return;
        }
        if text(pod, &["status", "reason"]) == "NodeLost" {
            self.reason = "Unknown".to_owned();
        } else if !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
            self.reason = "Terminating".to_owned();
        }
    }

    fn ready(&self) -> Value {
        format!("{}/{}", self.ready, self.containers).into()
    }

    fn restarts_text(&self, now: Timestamp) -> Value {
        match self.last_restart {
            Some(last) if self.restarts != 0 => format!(
                "{} ({} ago)",
                self.restarts,
                age::duration(now.duration_since(last).as_secs())
            )
            .into(),
            _ => self.restarts.to_string().into(),
        }
    }
}

/// Why a container ended: its reason, else the signal, else the exit code.
fn termination(at: &At<'_>) -> String {
    let signal = at.key("signal").int().unwrap_or(0);
    match at.key("reason").text() {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", at.key("exitCode").int().unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(status: Value, deleted: bool, wanted: [&str; 3]) {
        let mut pod = json!({
            "metadata": {},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": status
        });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let now = "2026-01-01T00:01:40Z".parse().expect("a time");
        let summary = Summary::of(&pod, now);
        assert_eq!(
            [
                summary.ready(),
                summary.reason.clone().into(),
                summary.restarts_text(now)
            ],
            wanted.map(Value::from)
        );
    }

    #[test]
    fn what_kubectl_says_about_a_pod() {
        let running = json!({"running": {}});
        check(json!({"phase": "Pending"}), false, ["0/3", "Pending", "0"]);
        check(
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            false,
            ["0/3", "SchedulingGated", "0"],
        );
        check(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": running}]}),
            false,
            ["0/3", "Init:0/2", "0"],
        );
        check(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 3}}}]}),
            false,
            ["0/3", "Init:ExitCode:3", "2"],
        );
        check(
            json!({"phase": "Running",
                "initContainerStatuses": [{"name": "i", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "started": true, "ready": true, "state": running}],
                "containerStatuses": [{"name": "a", "ready": true, "state": running}, {"name": "b", "restartCount": 1,
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:01:30Z"}}, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
            false,
            ["2/3", "CrashLoopBackOff", "1 (10s ago)"],
        );
        check(
            json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": running}, {"state": {"terminated": {"reason": "Completed"}}}]}),
            false,
            ["1/3", "NotReady", "0"],
        );
        check(json!({"phase": "Running"}), true, ["0/3", "Terminating", "0"]);
        check(json!({"phase": "Succeeded"}), true, ["0/3", "Succeeded", "0"]);
    }
}
