//! How a simulated pod behaves: what its annotations say, and what becomes of it next.
//!
//! Pure. Nothing runs, so that a container ends only when somebody said so. Invariant: what is decided follows from the pod alone, so that a
//! cluster that starts again goes on where it was.

use std::time::Duration;

use kubewright::k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kubewright::k8s_openapi::jiff::Timestamp;

use crate::controllers::{meta, pods};

/// The exit code with which the containers end. Without it they run for ever, but for pods of Jobs, which end well.
pub(crate) const EXIT_CODE: &str = "kubewright.dev/exit-code";
/// How many seconds the containers run until they end.
pub(crate) const RUN_SECONDS: &str = "kubewright.dev/run-seconds";
/// `true`: the pod runs and never becomes ready.
pub(crate) const NEVER_READY: &str = "kubewright.dev/never-ready";
/// Images of registries under this name (RFC 2606) cannot be pulled.
const NO_REGISTRY: &str = ".invalid";
/// The first back-off of a container that ended, and the longest (`CrashLoopBackOff`).
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// With which code the containers end, if they do.
pub(super) fn exit_code(pod: &Pod) -> Option<i32> {
    let said = meta::annotation(&pod.metadata, EXIT_CODE).and_then(|code| code.parse().ok());
    let of_job = meta::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job");
    said.or(of_job.then_some(0))
}

fn run_time(pod: &Pod) -> Duration {
    let seconds = meta::annotation(&pod.metadata, RUN_SECONDS).and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Whether the pod says that it is never ready.
pub(super) fn never_ready(pod: &Pod) -> bool {
    meta::annotation(&pod.metadata, NEVER_READY) == Some("true")
}

/// Whether an image can be pulled.
pub(super) fn can_pull(image: &str) -> bool {
    let registry = image.split('/').next().unwrap_or_default();
    let host = registry.split(':').next().unwrap_or_default();
    !(image.contains('/') && host.ends_with(NO_REGISTRY))
}

/// The first container whose image cannot be pulled, in the order in which they start.
pub(super) fn unpullable(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|container| !can_pull(container.image.as_deref().unwrap_or_default()))
}

/// What becomes of a running pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, unless somebody changes it.
    Stays,
    /// Look again then.
    Wait(Duration),
    /// Its containers end for good with this code.
    Ends(i32),
    /// Its containers end with this code and are started again after a back-off.
    Crashes(i32),
    /// Its containers are started again.
    Restarts,
}

/// What becomes of a pod whose containers have been started.
pub(super) fn next(pod: &Pod, now: Timestamp) -> Next {
    let first = status(pod);
    let since = |time: Timestamp| Duration::try_from(now.duration_since(time)).unwrap_or_default();
    let after = |wait: Duration, passed: Duration, then: Next| match wait.saturating_sub(passed) {
        Duration::ZERO => then,
        left => Next::Wait(left),
    };
    let state = first.and_then(|status| status.state.as_ref());
    if state.is_some_and(|state| state.waiting.is_some()) {
        let ended = first
            .and_then(|status| status.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref())
            .map_or(now, |time| time.0);
        let restarts = first.map_or(0, |status| status.restart_count);
        return after(back_off(restarts), since(ended), Next::Restarts);
    }
    let Some(code) = exit_code(pod) else {
        return Next::Stays;
    };
    let started = state.and_then(|state| state.running.as_ref()?.started_at.as_ref());
    let passed = started.map_or(Duration::ZERO, |time| since(time.0));
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let end = match policy {
        Some("Never") => Next::Ends(code),
        Some("OnFailure") if code == 0 => Next::Ends(code),
        _ => Next::Crashes(code),
    };
    after(run_time(pod), passed, end)
}

/// Of the containers of a pod the first stands for all: they start and end together.
fn status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// How long a container waits after its nth start until the next.
pub(super) fn back_off(restarts: i32) -> Duration {
    let doublings = u32::try_from(restarts.clamp(0, 10)).unwrap_or(0);
    BACK_OFF.saturating_mul(1 << doublings).min(LONGEST_BACK_OFF)
}

/// Whether readiness depends on conditions that others write.
pub(super) fn has_gates(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// Whether the conditions that others write allow the pod to be ready.
pub(super) fn gates_open(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let mut gates = gates.into_iter().flatten();
    !never_ready(pod)
        && gates.all(|gate| pods::condition(pod, &gate.condition_type).is_some_and(|gate| gate.status == "True"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(annotations: Value, policy: &str, state: Value, expected: Next) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "annotations": annotations },
            "spec": { "restartPolicy": policy, "containers": [{ "name": "c" }] },
            "status": { "containerStatuses": [state] },
        }))
        .expect("a pod");
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        assert_eq!(next(&pod, now), expected, "{pod:?}");
    }

    #[test]
    fn what_becomes_of_a_running_pod() {
        let state = |restarts: i32, state: Value, last: Value| json!({ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": restarts, "state": state, "lastState": last });
        let running = || {
            state(
                0,
                json!({ "running": { "startedAt": "2026-01-01T00:00:57Z" } }),
                json!({}),
            )
        };
        let waiting = |restarts: i32| {
            let last = json!({ "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:00:45Z" } });
            state(restarts, json!({ "waiting": { "reason": "CrashLoopBackOff" } }), last)
        };
        let code = |code: &str, seconds: &str| json!({ EXIT_CODE: code, RUN_SECONDS: seconds });
        check(json!({}), "Always", running(), Next::Stays);
        check(json!({ EXIT_CODE: "nonsense" }), "Always", running(), Next::Stays);
        check(code("0", "5"), "Never", running(), Next::Wait(Duration::from_secs(2)));
        check(code("0", "3"), "Never", running(), Next::Ends(0));
        check(code("2", "3"), "Never", running(), Next::Ends(2));
        check(code("0", "3"), "OnFailure", running(), Next::Ends(0));
        check(code("1", "3"), "OnFailure", running(), Next::Crashes(1));
        check(code("0", "3"), "Always", running(), Next::Crashes(0));
        check(json!({}), "Always", waiting(0), Next::Restarts);
        check(json!({}), "Always", waiting(1), Next::Wait(Duration::from_secs(5)));
    }

    #[test]
    fn images() {
        let check = |image: &str, expected: bool| assert_eq!(can_pull(image), expected, "{image}");
        check("nginx:1", true);
        check("registry.invalid/app:1", false);
        check("registry.invalid:5000/app", false);
        check("app.invalid", true);
        check("docker.io/library/app", true);
    }

    #[test]
    fn back_offs_double() {
        let check = |restarts: i32, seconds: u64| assert_eq!(back_off(restarts).as_secs(), seconds, "{restarts}");
        check(0, 10);
        check(1, 20);
        check(4, 160);
        check(5, 300);
        check(i32::MAX, 300);
    }
}
