//! The life of one container: it waits, runs, ends, and is started again after a back-off. What it runs in is a
//! [`Runtime`].
//!
//! Pure. [`go_on`] takes it as far as it comes by now, several steps at once if need be, so that one write has the
//! states that a kubelet would write one by one. Invariant: all decisions follow from the status and the pod, never
//! from memory.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright::EventType;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::{
    Container, ContainerRestartRule, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Pod,
};

use super::behaviour::{self, Role};
use super::runtime::Runtime;
use super::simulated::Simulated;
use kubewright_objects::meta;

const CRASHING: &str = "CrashLoopBackOff";
/// A container that has run for so long begins with the first back-off again (twice the longest,
/// `flowcontrol.Backoff`).
const RECOVERED: Duration = Duration::from_secs(600);

/// An event: its type, reason and message.
pub(super) type PodEvent = (EventType, &'static str, String);

/// The surroundings of a container.
pub(super) struct ContainerContext<'a> {
    pub(super) pod: &'a Pod,
    pub(super) now: Timestamp,
    /// Containers that cannot start: the reason and the message with which they wait.
    pub(super) obstacles: &'a BTreeMap<String, (String, String)>,
    pub(super) runtime: &'a dyn Runtime,
}

/// No container is kept from starting.
static NO_OBSTACLES: BTreeMap<String, (String, String)> = BTreeMap::new();

impl<'a> ContainerContext<'a> {
    /// A simulated pod with nothing in its way, on a node that has every image.
    pub(super) fn clear(pod: &'a Pod, now: Timestamp) -> ContainerContext<'a> {
        ContainerContext {
            pod,
            now,
            obstacles: &NO_OBSTACLES,
            runtime: &Simulated { has_image: &|_| true },
        }
    }
}

/// The observations on the way.
#[derive(Default)]
pub(super) struct Observations {
    pub(super) events: Vec<PodEvent>,
    /// When to look again at the latest.
    pub(super) again: Option<Duration>,
    /// Probes that fail: the container and the words of the event.
    pub(super) failing: Vec<(String, String)>,
    /// The images that were pulled.
    pub(super) pulled: Vec<String>,
    /// Containers that are to be started, and for which time; of a node whose containers really run.
    pub(super) starts: Vec<(String, i32)>,
    /// Containers that are to be stopped, and why in the words of an event.
    pub(super) stops: Vec<(String, String)>,
}

impl Observations {
    pub(super) fn say(&mut self, kind: EventType, reason: &'static str, message: impl Into<String>) {
        self.events.push((kind, reason, message.into()));
    }

    pub(super) fn wake(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }
}

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits or runs: later containers may have to wait.
    Under,
    /// The next one need not wait for it any more: an init container is over, any other has started.
    Reached,
    /// It has ended with this code and is not started again.
    Over(i32),
}

/// The state of a container that was never started.
pub(super) fn waiting(container: &Container, reason: &str, message: &str) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: Some(waits(reason, message)),
        ..ContainerStatus::default()
    }
}

pub(super) fn waits(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()).filter(|text| !text.is_empty()),
        }),
        ..ContainerState::default()
    }
}

/// How long since.
pub(super) fn since(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(time)).unwrap_or_default()
}

/// Takes a container as far as it comes by now.
pub(super) fn go_on(
    scene: &ContainerContext<'_>,
    container: &Container,
    role: Role,
    before: Option<&ContainerStatus>,
    notes: &mut Observations,
) -> (ContainerStatus, Progress) {
    let mut status = before
        .cloned()
        .unwrap_or_else(|| waiting(container, "ContainerCreating", ""));
    // A container that ends at once ends twice before the first back-off holds it.
    loop {
        let state = status.state.clone().unwrap_or_default();
        let moved = if state.running.is_some() {
            scene.runtime.observe(scene, container, role, &mut status, notes)
        } else if let Some(ended) = &state.terminated {
            match restarts(scene.pod, container, role, ended.exit_code) {
                true => fall_back(scene, container, &mut status, ended, notes),
                false => false,
            }
        } else {
            start(scene, container, &mut status, notes)
        };
        if !moved {
            break;
        }
    }
    let progress = progress(scene, container, role, &status);
    if role == Role::Init {
        // An init container that has succeeded stays ready (`isInitContainerInitialized`).
        status.ready = progress == Progress::Reached;
    }
    (status, progress)
}

fn progress(scene: &ContainerContext<'_>, container: &Container, role: Role, status: &ContainerStatus) -> Progress {
    let state = status.state.as_ref();
    match state.and_then(|state| state.terminated.as_ref()) {
        Some(ended) if role == Role::Init && ended.exit_code == 0 => Progress::Reached,
        Some(ended) if !restarts(scene.pod, container, role, ended.exit_code) => Progress::Over(ended.exit_code),
        Some(_) => Progress::Under,
        None if role != Role::Init && status.started == Some(true) => Progress::Reached,
        None => Progress::Under,
    }
}

/// Whether a container that has ended with this code is started again (`ContainerShouldRestart`).
pub(super) fn restarts(pod: &Pod, container: &Container, role: Role, code: i32) -> bool {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let policy = container.restart_policy.as_deref().or(of_pod).unwrap_or("Always");
    // The first rule that fits decides, where the container has a policy of its own (KEP-5307).
    let fits = |rule: &&ContainerRestartRule| {
        let values = rule
            .exit_codes
            .as_ref()
            .map(|codes| (codes.operator.as_str(), codes.values.iter().flatten()));
        values.is_some_and(|(operator, mut values)| values.any(|value| *value == code) == (operator == "In"))
    };
    if let Some(rule) = container.restart_policy_rules.iter().flatten().find(fits) {
        return rule.action == "Restart";
    }
    match (role, policy) {
        (Role::Sidecar, _) => true,
        (_, "Never") => false,
        (Role::Init, _) | (Role::Main, "OnFailure") => code != 0,
        (Role::Main, _) => true,
    }
}

/// A waiting container: for missing objects, for its image, for the end of its back-off.
fn start(
    scene: &ContainerContext<'_>,
    container: &Container,
    status: &mut ContainerStatus,
    notes: &mut Observations,
) -> bool {
    if let Some((reason, message)) = scene.obstacles.get(&container.name) {
        status.state = Some(waits(reason, message));
        return false;
    }
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let has_run = last.is_some();
    if let Some(last) = last {
        let wait = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let is_crashing = wait.is_some_and(|wait| wait.reason.as_deref() == Some(CRASHING));
        let ended = last.finished_at.as_ref().map_or(scene.now, |time| time.0);
        let left = behaviour::back_off(status.restart_count).saturating_sub(since(scene.now, ended));
        if is_crashing && !left.is_zero() {
            notes.wake(left);
            return false;
        }
    }
    let image = container.image.clone().unwrap_or_default();
    let next = status.restart_count.saturating_add(i32::from(has_run));
    if !scene.runtime.start(container, next, status, notes) {
        return false;
    }
    notes.say(EventType::Normal, "Created", "Container created");
    notes.say(EventType::Normal, "Started", "Container started");
    status.container_id = Some(format!(
        "{}{}/{}/{}",
        scene.runtime.scheme(),
        meta::uid(&scene.pod.metadata),
        container.name,
        status.restart_count
    ));
    status.image = image;
    (status.ready, status.started) = (false, Some(false));
    status.state = Some(ContainerState {
        running: Some(ContainerStateRunning {
            started_at: Some(meta::time(scene.now)),
        }),
        ..ContainerState::default()
    });
    true
}

/// Writes down that a container has ended.
pub(super) fn end(scene: &ContainerContext<'_>, status: &mut ContainerStatus, code: i32, reason: Option<&str>) {
    let running = status.state.take().and_then(|state| state.running);
    let usual = if code == 0 { "Completed" } else { "Error" };
    status.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: status.container_id.clone(),
            exit_code: code,
            reason: Some(reason.unwrap_or(usual).to_owned()),
            started_at: running.and_then(|running| running.started_at),
            finished_at: Some(meta::time(scene.now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
    (status.ready, status.started) = (false, Some(false));
}

/// A container that has ended and is to be started again waits for its turn.
pub(super) fn fall(status: &mut ContainerStatus, reason: &str, message: &str) {
    status.last_state = status.state.take();
    status.state = Some(waits(reason, message));
}

/// Whether the back-off holds up the next start is known now; its end is known later.
fn fall_back(
    scene: &ContainerContext<'_>,
    container: &Container,
    status: &mut ContainerStatus,
    ended: &ContainerStateTerminated,
    notes: &mut Observations,
) -> bool {
    let times = ended.started_at.as_ref().zip(ended.finished_at.as_ref());
    let ran = times.map_or(Duration::ZERO, |(start, end)| since(end.0, start.0));
    let wait = behaviour::back_off(status.restart_count);
    if wait.is_zero() || ran >= RECOVERED {
        fall(status, "ContainerCreating", "");
        return true;
    }
    let pod = &scene.pod.metadata;
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let full = format!("{}_{namespace}({})", meta::name(pod), meta::uid(pod));
    let name = &container.name;
    let text = format!("Back-off restarting failed container {name} in pod {full}");
    notes.say(EventType::Warning, "BackOff", text);
    let text = format!(
        "back-off {} restarting failed container={name} pod={full}",
        duration(wait)
    );
    fall(status, CRASHING, &text);
    true
}

/// A duration as Go writes it.
fn duration(wait: Duration) -> String {
    match (wait.as_secs() / 60, wait.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The state of a container `c` after so many seconds, in words.
    fn after(pod: &Value, before: Option<&ContainerStatus>, now: i64) -> (ContainerStatus, String) {
        let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        let scene = ContainerContext::clear(&pod, Timestamp::from_second(now).expect("small"));
        let mut notes = Observations::default();
        let (status, progress) = go_on(&scene, container, Role::Main, before, &mut notes);
        let state = status.state.clone().unwrap_or_default();
        let state = match (&state.running, &state.terminated) {
            (Some(_), _) => "runs".to_owned(),
            (_, Some(ended)) => format!(
                "ended {} {}",
                ended.exit_code,
                ended.reason.as_deref().unwrap_or_default()
            ),
            _ => state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default(),
        };
        let said: Vec<&str> = notes.events.iter().map(|(_, reason, _)| *reason).collect();
        let again = notes.again.map_or("-".to_owned(), |again| again.as_secs().to_string());
        let text = format!(
            "{state} {} {progress:?} {again} [{}]",
            status.restart_count,
            said.join(" ")
        );
        (status, text)
    }

    fn pod(annotations: Value, policy: &str, image: &str) -> Value {
        json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "annotations": annotations },
            "spec": { "restartPolicy": policy, "containers": [{ "name": "c", "image": image }] },
        })
    }

    #[test]
    fn lives() {
        /// Each look: the image, the second, and the expected state.
        fn check(annotations: Value, policy: &str, looks: &[(&str, i64, &str)]) {
            let mut status = None;
            for (image, now, expected) in looks {
                let (next, found) = after(&pod(annotations.clone(), policy, image), status.as_ref(), *now);
                assert_eq!(&found, expected, "{annotations} {policy} at {now}");
                status = Some(next);
            }
        }
        let code = |code: &str, more: &str, value: &str| json!({ "kubewright.dev/exit-code": code, format!("kubewright.dev/{more}"): value });
        const UP: &str = "Pulled Created Started";
        check(
            json!({}),
            "Always",
            &[
                ("a", 0, &format!("runs 0 Reached - [{UP}]")),
                ("a", 9, "runs 0 Reached - []"),
                ("b", 9, &format!("runs 1 Reached - [Killing {UP}]")),
            ],
        );
        check(
            code("3", "run-seconds", "5"),
            "Never",
            &[
                ("a", 0, &format!("runs 0 Reached 5 [{UP}]")),
                ("a", 5, "ended 3 Error 0 Over(3) - []"),
            ],
        );
        check(
            code("137", "exit-reason", "OOMKilled"),
            "Never",
            &[("a", 0, &format!("ended 137 OOMKilled 0 Over(137) - [{UP}]"))],
        );
        check(
            code("0", "run-seconds", "0"),
            "OnFailure",
            &[("a", 0, &format!("ended 0 Completed 0 Over(0) - [{UP}]"))],
        );
        // The first restart comes at once; then the waits double.
        check(
            code("1", "run-seconds", "5"),
            "Always",
            &[
                ("a", 0, &format!("runs 0 Reached 5 [{UP}]")),
                ("a", 5, &format!("runs 1 Reached 5 [{UP}]")),
                ("a", 10, "CrashLoopBackOff 1 Under 10 [BackOff]"),
                ("a", 14, "CrashLoopBackOff 1 Under 6 []"),
                ("a", 20, &format!("runs 2 Reached 5 [{UP}]")),
                ("a", 25, "CrashLoopBackOff 2 Under 20 [BackOff]"),
            ],
        );
        check(
            json!({ "kubewright.dev/crashes": "2" }),
            "Always",
            &[
                ("a", 0, &format!("CrashLoopBackOff 1 Under 10 [{UP} {UP} BackOff]")),
                ("a", 10, &format!("runs 2 Reached - [{UP}]")),
            ],
        );
    }
}
