//! The life of a simulated pod: its init containers in order, sidecars beside them, then the others; and its status.
//!
//! Pure. Invariants: no container starts before those that it waits for; a client of the API sees no state that a
//! kubelet could not have written; conditions that others write are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright::EventType;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::{
    Container, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};

use super::behaviour::{Behaviour, KILLED, Role};
use super::container::{self, ContainerContext, Observations, Progress, since};
use super::{ephemeral, resize};
use kubewright_objects::meta;
use kubewright_objects::pods;

/// Where a pod is.
pub(super) struct Place<'a> {
    /// Its own address, and that of its node.
    pub(super) ip: &'a str,
    pub(super) host: &'a str,
    /// A volume cannot be mounted: no container starts.
    pub(super) unmounted: bool,
}

impl<'a> Place<'a> {
    /// Where a pod is whose volumes can be mounted.
    pub(super) fn of(ip: &'a str, host: &'a str) -> Place<'a> {
        Place {
            ip,
            host,
            unmounted: false,
        }
    }
}

/// The containers of the pod, with their roles.
fn all(spec: &PodSpec) -> impl Iterator<Item = (&Container, Role)> {
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| (container, Role::of_init(container)));
    init.chain(spec.containers.iter().map(|container| (container, Role::Main)))
}

fn known<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}

/// Whether an ordinary container has ever started: then the init containers are not run again.
fn is_initialized(pod: &Pod, spec: &PodSpec) -> bool {
    let mut names = spec.containers.iter().map(|container| &container.name);
    names.any(|name| known(pod, name).is_some_and(|status| status.container_id.is_some()))
}

/// The status of a pod as far as it comes by now.
pub(super) fn go_on(scene: &ContainerContext<'_>, place: &Place<'_>, notes: &mut Observations) -> PodStatus {
    let (pod, empty) = (scene.pod, PodSpec::default());
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let mut status = begun(pod, place, scene.now);
    if let Some(left) = overdue(spec, &status, scene.now) {
        if left.is_zero() {
            if scene.runtime.stop_all(notes) {
                return status;
            }
            return too_long(scene, spec, status, notes);
        }
        notes.wake(left);
    }
    let was_initialized = is_initialized(pod, spec);
    let (mut init, mut main) = (Vec::new(), Vec::new());
    // Whether the next container may start, and whether the pod is lost.
    let (mut is_open, mut lost) = (!place.unmounted, false);
    let mut codes = Vec::new();
    for (container, role) in all(spec) {
        let before = known(pod, &container.name);
        if let (Some(before), Role::Sidecar) = (before, role)
            && is_over(pod, spec)
            && let Some(ending) = scene.runtime.end_sidecar(scene, before, notes)
        {
            init.push(ending);
            continue;
        }
        let into = if role == Role::Main { &mut main } else { &mut init };
        if role == Role::Init && was_initialized {
            into.extend(before.cloned());
            continue;
        }
        let may = is_open || (was_initialized && !place.unmounted);
        if !may || lost {
            into.push(
                before
                    .cloned()
                    .unwrap_or_else(|| container::waiting(container, turn(role, place), "")),
            );
            continue;
        }
        let (next, progress) = container::go_on(scene, container, role, before, notes);
        into.push(next);
        match (role, progress) {
            (Role::Main, progress) => codes.push(progress),
            (_, Progress::Reached) => {}
            (_, Progress::Under) => is_open = false,
            (_, Progress::Over(_)) => lost = true,
        }
    }
    let codes: Option<Vec<i32>> = codes.iter().map(over).collect();
    let codes = codes.filter(|codes| !codes.is_empty() && codes.len() == spec.containers.len());
    let phase = match &codes {
        _ if lost => "Failed",
        Some(codes) if codes.iter().all(|code| *code == 0) => "Succeeded",
        Some(_) => "Failed",
        None if main.iter().any(|status| status.container_id.is_some()) => "Running",
        None => "Pending",
    };
    if !place.unmounted {
        status.ephemeral_container_statuses = ephemeral::go_on(scene, notes);
    }
    let phase = match phase {
        "Succeeded" | "Failed" if scene.runtime.stop_all(notes) => "Running",
        "Succeeded" | "Failed" => {
            end_sidecars(scene, spec, &mut init);
            ephemeral::end(scene, &mut status);
            phase
        }
        phase => phase,
    };
    status.phase = Some(phase.to_owned());
    status.init_container_statuses = Some(init).filter(|init| !init.is_empty());
    status.container_statuses = Some(main);
    conditions(pod, spec, &mut status, place, scene.now);
    status
}

/// Whether all that a pod is for has ended, so that its sidecars are to end, too.
fn is_over(pod: &Pod, spec: &PodSpec) -> bool {
    let is_over = |container: &Container, role: Role| {
        let state = known(pod, &container.name).and_then(|status| status.state.as_ref());
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| !container::restarts(pod, container, role, ended.exit_code))
    };
    let mut main = spec.containers.iter();
    let is_lost = |(container, role): (&Container, Role)| {
        let ended = known(pod, &container.name).and_then(|status| status.state.as_ref()?.terminated.as_ref());
        role == Role::Init && ended.is_some_and(|ended| ended.exit_code != 0) && is_over(container, role)
    };
    main.all(|container| is_over(container, Role::Main)) || all(spec).any(is_lost)
}

fn over(progress: &Progress) -> Option<i32> {
    match progress {
        Progress::Over(code) => Some(*code),
        _ => None,
    }
}

/// Why a container whose turn has not come waits.
fn turn(role: Role, place: &Place<'_>) -> &'static str {
    match role {
        Role::Main if place.unmounted => "ContainerCreating",
        _ => "PodInitializing",
    }
}

/// Sidecars end when the containers that they serve have ended.
fn end_sidecars(scene: &ContainerContext<'_>, spec: &PodSpec, statuses: &mut [ContainerStatus]) {
    for status in statuses {
        let sidecar = spec
            .init_containers
            .iter()
            .flatten()
            .find(|container| container.name == status.name);
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        if is_running && sidecar.is_some() {
            container::end(scene, status, 0, None);
        }
    }
}

/// The status of a pod that its node has taken up.
fn begun(pod: &Pod, place: &Place<'_>, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let ip = if on_host { place.host } else { place.ip };
    let ip = before.pod_ip.clone().unwrap_or_else(|| ip.to_owned());
    let of_pod = Some(ip).filter(|ip| !place.unmounted && !ip.is_empty());
    PodStatus {
        start_time: Some(before.start_time.clone().unwrap_or_else(|| meta::time(now))),
        host_ip: Some(place.host.to_owned()),
        host_ips: Some(vec![HostIP {
            ip: place.host.to_owned(),
        }]),
        pod_ips: of_pod.clone().map(|ip| vec![PodIP { ip }]).or(before.pod_ips.clone()),
        pod_ip: of_pod.or(before.pod_ip.clone()),
        observed_generation: pod.metadata.generation,
        ..before
    }
}

/// How long until the pod has been active for too long (`activeDeadlineHandler`).
fn overdue(spec: &PodSpec, status: &PodStatus, now: Timestamp) -> Option<Duration> {
    let deadline = Duration::from_secs(u64::try_from(spec.active_deadline_seconds?).ok()?);
    let start = status.start_time.as_ref()?.0;
    Some(deadline.saturating_sub(since(now, start)))
}

fn too_long(
    scene: &ContainerContext<'_>,
    spec: &PodSpec,
    mut status: PodStatus,
    notes: &mut Observations,
) -> PodStatus {
    let message = "Pod was active on the node longer than the specified deadline";
    notes
        .events
        .push((EventType::Normal, "DeadlineExceeded", message.to_owned()));
    end_all(scene, spec, &mut status, Duration::MAX);
    fail(scene, spec, &mut status, "DeadlineExceeded", message);
    status
}

/// The pod has failed, regardless of its containers.
fn fail(scene: &ContainerContext<'_>, spec: &PodSpec, status: &mut PodStatus, reason: &str, message: &str) {
    (status.phase, status.reason) = (Some("Failed".to_owned()), Some(reason.to_owned()));
    status.message = Some(message.to_owned());
    let place = Place::of("", "");
    conditions(scene.pod, spec, status, &place, scene.now);
}

/// The status of a pod that its kubelet takes away at once (`immediateEvictionGracePeriodSeconds`), or never takes up.
pub(super) fn evicted(scene: &ContainerContext<'_>, place: &Place<'_>, reason: &str, message: &str) -> PodStatus {
    let (pod, empty) = (scene.pod, PodSpec::default());
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let mut status = begun(pod, place, scene.now);
    end_all(scene, spec, &mut status, Duration::from_secs(1));
    fail(scene, spec, &mut status, reason, message);
    status
}

/// Ends all containers that run, each with the code that it has after SIGTERM, or that of SIGKILL when it takes longer
/// than it may.
fn end_all(scene: &ContainerContext<'_>, spec: &PodSpec, status: &mut PodStatus, grace: Duration) {
    let statuses = status.init_container_statuses.iter_mut().flatten();
    for status in statuses.chain(status.container_statuses.iter_mut().flatten()) {
        if status.state.as_ref().is_none_or(|state| state.running.is_none()) {
            continue;
        }
        let Some((container, role)) = all(spec).find(|(container, _)| container.name == status.name) else {
            continue;
        };
        let (takes, code) = stopping(scene.pod, container, role);
        scene
            .runtime
            .end(scene, status, if takes > grace { KILLED } else { code });
    }
    ephemeral::end(scene, status);
}

/// How long a container takes to end, with its hook preStop, and with which code.
fn stopping(pod: &Pod, container: &Container, role: Role) -> (Duration, i32) {
    let hook = container.lifecycle.as_ref().and_then(|life| life.pre_stop.as_ref());
    let sleep = hook
        .and_then(|hook| hook.sleep.as_ref())
        .map_or(0, |sleep| sleep.seconds);
    let sleep = Duration::from_secs(u64::try_from(sleep).unwrap_or(0));
    let (stops, code) = Behaviour::of(pod, container, role).stops;
    (sleep.saturating_add(stops), code)
}

/// The grace that a pod under deletion was given.
fn grace(pod: &Pod) -> Duration {
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// How long until the last container of a pod under deletion has ended, by itself or because its grace is over.
pub(super) fn ends_in(pod: &Pod, now: Timestamp) -> Duration {
    let (Some(spec), Some(at)) = (pod.spec.as_ref(), pod.metadata.deletion_timestamp.as_ref()) else {
        return Duration::ZERO;
    };
    let running = all(spec).filter(|(container, _)| {
        let state = known(pod, &container.name).and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.running.is_some())
    });
    // Sidecars are told when the others have ended, and all share one grace.
    let (mut main, mut sidecars) = (Duration::ZERO, Duration::ZERO);
    for (container, role) in running {
        let takes = stopping(pod, container, role).0;
        match role {
            Role::Sidecar => sidecars = sidecars.max(takes),
            _ => main = main.max(takes),
        }
    }
    let takes = main.saturating_add(sidecars).min(grace(pod));
    // The time of deletion is when the grace is over.
    let left = Duration::try_from(at.0.duration_since(now)).unwrap_or_default();
    left.saturating_sub(grace(pod).saturating_sub(takes))
}

/// The last status of a pod under deletion.
pub(super) fn ended(scene: &ContainerContext<'_>, place: &Place<'_>) -> PodStatus {
    let (pod, empty) = (scene.pod, PodSpec::default());
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let mut status = begun(pod, place, scene.now);
    end_all(scene, spec, &mut status, grace(pod));
    let mut main = status.container_statuses.iter().flatten();
    let ended_well = main.all(|status| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    });
    status.phase = Some(if ended_well { "Succeeded" } else { "Failed" }.to_owned());
    conditions(pod, spec, &mut status, place, scene.now);
    status
}

/// A digest of a pod's written status, so that it is written again only when this changes and the fields of other
/// clients stay.
pub(super) fn mark(pod: &Pod, status: &PodStatus) -> String {
    let init = status.init_container_statuses.iter().flatten();
    let mut text = format!("{:?} {:?}", pod.metadata.generation, status.phase);
    let added = status.ephemeral_container_statuses.iter().flatten();
    for one in init.chain(status.container_statuses.iter().flatten()).chain(added) {
        let state = one.state.as_ref();
        let waiting = state
            .and_then(|state| state.waiting.as_ref())
            .map(|waiting| (&waiting.reason, &waiting.message));
        let runs = state.is_some_and(|state| state.running.is_some());
        text.push_str(&format!(
            " {} {} {runs} {} {:?} {waiting:?}",
            one.name, one.restart_count, one.ready, one.started
        ));
    }
    text.push_str(&resize::mark(status));
    for gate in gates(pod.spec.as_ref()) {
        text.push_str(&format!(" {:?}", pods::condition(pod, gate).map(|gate| &gate.status)));
    }
    text
}

fn gates(spec: Option<&PodSpec>) -> impl Iterator<Item = &str> {
    let gates = spec.and_then(|spec| spec.readiness_gates.as_ref());
    gates.into_iter().flatten().map(|gate| gate.condition_type.as_str())
}

/// A condition: whether it holds, and why.
type Verdict = (bool, Option<&'static str>, Option<String>);

/// Writes the conditions of a kubelet (`status/generate.go`).
fn conditions(pod: &Pod, spec: &PodSpec, status: &mut PodStatus, place: &Place<'_>, now: Timestamp) {
    let of: BTreeMap<&str, &ContainerStatus> = {
        let init = status.init_container_statuses.iter().flatten();
        let all = init.chain(status.container_statuses.iter().flatten());
        all.map(|status| (status.name.as_str(), status)).collect()
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    let initialized = initialized(spec, &of, phase);
    let containers = containers_ready(spec, &of, phase);
    let ready = if containers.0 {
        gates_open(spec, status)
    } else {
        containers.clone()
    };
    let time = meta::time(now);
    for (type_, verdict) in [
        (
            "PodReadyToStartContainers",
            (!place.unmounted && phase_runs(phase), None, None),
        ),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", (true, None, None)),
    ] {
        set(status, type_, verdict, pod.metadata.generation, &time);
    }
}

/// Whether the pod has a sandbox.
fn phase_runs(phase: &str) -> bool {
    !matches!(phase, "Succeeded" | "Failed")
}

fn names(what: &str, names: &[&str]) -> Option<String> {
    Some(format!("containers with {what} status: [{}]", names.join(" ")))
}

fn initialized(spec: &PodSpec, of: &BTreeMap<&str, &ContainerStatus>, phase: &str) -> Verdict {
    let is_done = |container: &Container| {
        of.get(container.name.as_str())
            .is_some_and(|status| match Role::of_init(container) {
                Role::Sidecar => status.started == Some(true),
                _ => {
                    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
                    ended.is_some_and(|ended| ended.exit_code == 0)
                }
            })
    };
    let started = spec.containers.iter().any(|container| {
        let status = of.get(container.name.as_str());
        status.is_some_and(|status| status.container_id.is_some())
    });
    let open = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| !is_done(container));
    let open: Vec<&str> = open.map(|container| container.name.as_str()).collect();
    match phase {
        "Succeeded" => (true, Some("PodCompleted"), None),
        _ if started || open.is_empty() => (true, None, None),
        _ => (false, Some("ContainersNotInitialized"), names("incomplete", &open)),
    }
}

fn containers_ready(spec: &PodSpec, of: &BTreeMap<&str, &ContainerStatus>, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return (false, Some("PodCompleted"), None),
        "Failed" => return (false, Some("PodFailed"), None),
        _ => {}
    }
    let counted = all(spec).filter(|(_, role)| *role != Role::Init);
    let unready = counted.filter(|(container, _)| !of.get(container.name.as_str()).is_some_and(|status| status.ready));
    let unready: Vec<&str> = unready.map(|(container, _)| container.name.as_str()).collect();
    match unready.as_slice() {
        [] => (true, None, None),
        unready => (false, Some("ContainersNotReady"), names("unready", unready)),
    }
}

/// With readiness gates another controller decides about the pod's readiness, too (KEP-580).
fn gates_open(spec: &PodSpec, status: &PodStatus) -> Verdict {
    let mut closed = Vec::new();
    for gate in gates(Some(spec)) {
        let mut conditions = status.conditions.iter().flatten();
        match conditions.find(|condition| condition.type_ == gate) {
            None => closed.push(format!(
                "corresponding condition of pod readiness gate \"{gate}\" does not exist."
            )),
            Some(condition) if condition.status != "True" => {
                let is = &condition.status;
                closed.push(format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but {is}"
                ));
            }
            Some(_) => {}
        }
    }
    match closed.is_empty() {
        true => (true, None, None),
        false => (false, Some("ReadinessGatesNotReady"), Some(closed.join(", "))),
    }
}

fn set(status: &mut PodStatus, type_: &str, verdict: Verdict, generation: Option<i64>, time: &Time) {
    let (holds, reason, message) = verdict;
    let text = if holds { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    let present = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let same = present.as_ref().filter(|present| present.status == text);
    let since = same.and_then(|same| same.last_transition_time.clone());
    let next = PodCondition {
        type_: type_.to_owned(),
        status: text.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        last_transition_time: Some(since.unwrap_or_else(|| time.clone())),
        last_probe_time: None,
        observed_generation: generation,
    };
    // Also an unchanged one carries the present generation (`CalculatePodConditionObservedGeneration`): `kubectl wait`
    // passes over conditions that are older than the spec.
    match present {
        Some(present) => *present = next,
        None => conditions.push(next),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Plays a pod at these seconds, and compares the state each time.
    fn check(metadata: Value, spec: Value, looks: &[(i64, &str)]) {
        let mut pod: Pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a pod");
        for (now, expected) in looks {
            let mut notes = Observations::default();
            let scene = ContainerContext::clear(&pod, Timestamp::from_second(*now).expect("small"));
            let place = Place::of("10.0.0.1", "192.0.2.1");
            let status = go_on(&scene, &place, &mut notes);
            assert_eq!(&describe(&status, &notes), expected, "{} at {now}", json!(pod.spec));
            pod.status = Some(status);
        }
    }

    fn describe(status: &PodStatus, notes: &Observations) -> String {
        let mut words = vec![status.phase.clone().unwrap_or_default()];
        let init = status.init_container_statuses.iter().flatten();
        for one in init.chain(status.container_statuses.iter().flatten()) {
            let state = one.state.clone().unwrap_or_default();
            let state = match (state.running, state.terminated) {
                (Some(_), _) => "runs".to_owned(),
                (_, Some(ended)) => format!("ended:{}", ended.exit_code),
                _ => state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default(),
            };
            words.push(format!("{}={state}", one.name));
        }
        let conditions = status
            .conditions
            .iter()
            .flatten()
            .filter(|condition| condition.status == "True");
        for (name, short) in [
            ("Initialized", "initialized"),
            ("ContainersReady", "containers"),
            ("Ready", "ready"),
        ] {
            let mut all = conditions.clone();
            words.extend(all.any(|condition| condition.type_ == name).then(|| short.to_owned()));
        }
        words.extend(notes.again.map(|again| again.as_secs().to_string()));
        words.join(" ")
    }

    #[test]
    fn containers_in_order() {
        let named = |name: &str| json!({ "name": name, "image": "i" });
        let sidecar = || json!({ "name": "s", "image": "i", "restartPolicy": "Always" });
        check(
            json!({}),
            json!({ "containers": [named("c")], "initContainers": [named("i"), sidecar()] }),
            &[(0, "Running i=ended:0 s=runs c=runs initialized containers ready")],
        );
        check(
            json!({ "annotations": { "kubewright.dev/run-seconds.i": "5" } }),
            json!({ "containers": [named("c")], "initContainers": [sidecar(), named("i")] }),
            &[
                (0, "Pending s=runs i=runs c=PodInitializing 5"),
                (5, "Running s=runs i=ended:0 c=runs initialized containers ready"),
            ],
        );
        let slow = json!({ "name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": { "initialDelaySeconds": 3 } });
        check(
            json!({}),
            json!({ "containers": [named("c")], "initContainers": [slow] }),
            &[
                (0, "Pending s=runs c=PodInitializing 3"),
                (3, "Running s=runs c=runs initialized containers ready"),
            ],
        );
        check(
            json!({ "annotations": { "kubewright.dev/exit-code.i": "1" } }),
            json!({ "restartPolicy": "Never", "containers": [named("c")], "initContainers": [sidecar(), named("i")] }),
            &[(0, "Failed s=ended:0 i=ended:1 c=PodInitializing")],
        );
        check(
            json!({ "annotations": { "kubewright.dev/exit-code.i": "1" } }),
            json!({ "containers": [named("c")], "initContainers": [named("i")] }),
            &[(0, "Pending i=CrashLoopBackOff c=PodInitializing 10")],
        );
        check(
            json!({ "annotations": { "kubewright.dev/exit-code": "0" } }),
            json!({ "restartPolicy": "Never", "containers": [named("c"), named("d")], "initContainers": [sidecar()] }),
            &[(0, "Succeeded s=ended:0 c=ended:0 d=ended:0 initialized")],
        );
        check(
            json!({ "annotations": { "kubewright.dev/exit-code.c": "2" } }),
            json!({ "restartPolicy": "Never", "containers": [named("c"), named("d")] }),
            &[(0, "Running c=ended:2 d=runs initialized")],
        );
        check(
            json!({}),
            json!({ "activeDeadlineSeconds": 7, "containers": [named("c")] }),
            &[
                (0, "Running c=runs initialized containers ready 7"),
                (7, "Failed c=ended:143 initialized"),
            ],
        );
        check(
            json!({}),
            json!({ "readinessGates": [{ "conditionType": "example.com/gate" }], "containers": [named("c")] }),
            &[(0, "Running c=runs initialized containers")],
        );
    }

    #[test]
    fn ends() {
        let check = |annotations: Value, container: Value, grace: i64, asked_ago: i64, expected: u64| {
            let mut whole = json!({ "name": "c", "image": "i" });
            let map = whole.as_object_mut().expect("an object");
            map.extend(container.as_object().expect("an object").clone());
            let at = Timestamp::from_second(1000 - asked_ago + grace)
                .expect("small")
                .to_string();
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "annotations": annotations, "deletionTimestamp": at, "deletionGracePeriodSeconds": grace },
                "spec": { "containers": [whole] },
                "status": { "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} } }] },
            }))
            .expect("a pod");
            let now = Timestamp::from_second(1000).expect("small");
            assert_eq!(
                ends_in(&pod, now).as_secs(),
                expected,
                "{annotations} {container} {grace} {asked_ago}"
            );
        };
        let stop = |seconds: &str| json!({ "kubewright.dev/stop-seconds": seconds });
        let hook = json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 4 } } } });
        check(json!({}), json!({}), 30, 0, 0);
        check(stop("8"), json!({}), 30, 0, 8);
        check(stop("8"), json!({}), 30, 3, 5);
        check(stop("8"), hook.clone(), 30, 0, 12);
        check(stop("99"), json!({}), 30, 0, 30);
        check(stop("99"), json!({}), 30, 30, 0);
        check(stop("99"), json!({}), 0, 0, 0);
        check(json!({}), hook, 30, 1, 3);
    }

    #[test]
    fn conditions_carry_the_present_generation() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": { "generation": 1 }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }))
        .expect("a pod");
        let place = Place::of("10.0.0.1", "192.0.2.1");
        let look = |pod: &Pod, second: i64| {
            let now = Timestamp::from_second(second).expect("small");
            go_on(&ContainerContext::clear(pod, now), &place, &mut Observations::default())
        };
        let first = look(&pod, 5);
        pod.status = Some(first.clone());
        pod.metadata.generation = Some(2);
        let second = look(&pod, 9);
        for (before, after) in first
            .conditions
            .iter()
            .flatten()
            .zip(second.conditions.iter().flatten())
        {
            assert_eq!(after.observed_generation, Some(2), "{}", after.type_);
            assert_eq!(
                after.last_transition_time, before.last_transition_time,
                "{}",
                after.type_
            );
        }
    }

    #[test]
    fn what_others_write_stays() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Pending", "qosClass": "BestEffort", "conditions": [{ "type": "example.com/mine", "status": "False" }] },
        }))
        .expect("a pod");
        let scene = ContainerContext::clear(&pod, Timestamp::UNIX_EPOCH);
        let place = Place::of("10.0.0.1", "192.0.2.1");
        let status = go_on(&scene, &place, &mut Observations::default());
        assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
        assert!(
            status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "example.com/mine")
        );
    }
}
