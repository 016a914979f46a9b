//! The behaviour of a simulated container: its pod's annotations, and the results of its probes.
//!
//! An annotation stands for all ordinary containers of the pod; with a dot and the name of a container behind it for
//! that one alone, which may be an init container: `kubewright.dev/exit-code.migrate: "1"`.
//!
//! Pure. No program runs, so that a container ends only when an annotation or a delete says so. Invariant: all
//! decisions follow from the pod alone, so that a cluster that starts again goes on where it was.

use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright_objects::api::core::v1::{Container, Pod, Probe};

use kubewright_objects::meta;
use kubewright_objects::quantity::milli;

/// The prefix of the annotations of the simulation.
pub(crate) const PREFIX: &str = "kubewright.dev/";
/// The exit code with which the containers end. Without it they run for ever, but for pods of Jobs, which end well.
pub(crate) const EXIT_CODE: &str = "exit-code";
/// The reason beside the exit code, such as `OOMKilled`.
pub(crate) const EXIT_REASON: &str = "exit-reason";
/// How many seconds the containers run until they end.
pub(crate) const RUN_SECONDS: &str = "run-seconds";
/// How often the containers end by themselves; after so many restarts they run on.
pub(crate) const CRASHES: &str = "crashes";
/// `true`: the pod runs and never becomes ready.
pub(crate) const NEVER_READY: &str = "never-ready";
/// No probe succeeds before the container has run for so long.
pub(crate) const READY_SECONDS: &str = "ready-seconds";
/// `true`: probes run at once and then every second, whatever their delays and periods are.
pub(crate) const QUICK_PROBES: &str = "quick-probes";
/// Liveness probes fail when the container has run for so long.
pub(crate) const UNHEALTHY_SECONDS: &str = "unhealthy-seconds";
/// How long the containers take to end after SIGTERM.
pub(crate) const STOP_SECONDS: &str = "stop-seconds";
/// With which code they end after SIGTERM.
pub(crate) const STOP_CODE: &str = "stop-code";
/// `true`: the hook postStart fails.
pub(crate) const POST_START_FAILS: &str = "post-start-fails";
/// What a command prints that a client runs in a container. With this or the next one such commands are served.
pub(super) const EXEC_OUTPUT: &str = "exec-output";
/// The code with which it exits.
pub(super) const EXEC_CODE: &str = "exec-code";
/// The usage of the containers, for the metrics API (see `objects::usage`).
pub(crate) const USAGE: &str = "usage-";
pub(crate) const USAGE_CPU: &str = "usage-cpu";
pub(crate) const USAGE_MEMORY: &str = "usage-memory";
/// `true`: the simulation leaves the pod alone, and a test writes its status.
pub(crate) const HANDS_OFF: &str = "hands-off";

/// All of them, and the types of their values.
const WORDS: [(&str, Value); 16] = [
    (EXIT_CODE, Value::Number),
    (EXIT_REASON, Value::Text),
    (RUN_SECONDS, Value::Seconds),
    (CRASHES, Value::Number),
    (NEVER_READY, Value::Flag),
    (READY_SECONDS, Value::Seconds),
    (QUICK_PROBES, Value::Flag),
    (UNHEALTHY_SECONDS, Value::Seconds),
    (STOP_SECONDS, Value::Seconds),
    (STOP_CODE, Value::Number),
    (POST_START_FAILS, Value::Flag),
    (EXEC_OUTPUT, Value::Text),
    (EXEC_CODE, Value::Number),
    (USAGE_CPU, Value::Amount),
    (USAGE_MEMORY, Value::Amount),
    (HANDS_OFF, Value::Flag),
];

#[derive(Clone, Copy)]
enum Value {
    Number,
    Seconds,
    Flag,
    Text,
    Amount,
}

/// Images of registries under this name (RFC 2606) cannot be pulled.
const NO_REGISTRY: &str = ".invalid";
/// The first back-off of a container that ended, and the longest (`CrashLoopBackOff`).
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
/// The exit codes of SIGKILL and SIGTERM.
pub(super) const KILLED: i32 = 137;
const TERMINATED: i32 = 143;

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs to its end before the next starts.
    Init,
    /// An init container that is always restarted: started before the next, ended after the ordinary ones (KEP-753).
    Sidecar,
    /// An ordinary one.
    Main,
}

impl Role {
    pub(super) fn of_init(container: &Container) -> Role {
        match container.restart_policy.as_deref() {
            Some("Always") => Role::Sidecar,
            _ => Role::Init,
        }
    }
}

/// How a container behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Behaviour {
    code: Option<i32>,
    /// The reason beside the exit code.
    pub(super) reason: Option<String>,
    /// How long it runs when it ends.
    pub(super) runs: Duration,
    crashes: Option<i32>,
    never_ready: bool,
    quick_probes: bool,
    slow: Duration,
    unhealthy: Option<Duration>,
    /// How long it takes to end after SIGTERM, and with which code.
    pub(super) stops: (Duration, i32),
    /// Whether its hook postStart fails.
    pub(super) hook_fails: bool,
}

impl Behaviour {
    /// The behaviour of a container by the annotations.
    pub(super) fn of(pod: &Pod, container: &Container, role: Role) -> Behaviour {
        let own = |word: &str| meta::annotation(&pod.metadata, &format!("{PREFIX}{word}.{}", container.name));
        let of_all = |word: &str| meta::annotation(&pod.metadata, &format!("{PREFIX}{word}"));
        let says = |word: &str| own(word).or_else(|| of_all(word).filter(|_| role == Role::Main));
        let number = |word: &str| says(word).and_then(|text| text.parse::<i32>().ok());
        let time = |word: &str| says(word).and_then(seconds);
        let of_job = meta::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job");
        let ends_well = role == Role::Init || (role == Role::Main && of_job);
        Behaviour {
            code: number(EXIT_CODE).or(ends_well.then_some(0)),
            reason: says(EXIT_REASON).map(str::to_owned),
            runs: time(RUN_SECONDS).unwrap_or_default(),
            crashes: number(CRASHES),
            never_ready: says(NEVER_READY) == Some("true"),
            quick_probes: says(QUICK_PROBES) == Some("true"),
            slow: time(READY_SECONDS).unwrap_or_default(),
            unhealthy: time(UNHEALTHY_SECONDS),
            stops: (
                time(STOP_SECONDS).unwrap_or_default(),
                number(STOP_CODE).unwrap_or(TERMINATED),
            ),
            hook_fails: says(POST_START_FAILS) == Some("true"),
        }
    }

    /// With which code the container ends by itself in its nth life, if it does.
    pub(super) fn ends(&self, restarts: i32) -> Option<i32> {
        match self.crashes {
            Some(crashes) if restarts < crashes => Some(self.code.filter(|code| *code != 0).unwrap_or(1)),
            Some(_) => self.code.filter(|code| *code == 0),
            None => self.code,
        }
    }
}

/// What a command prints that a client runs in a container, and its exit code; `None` when the annotations say nothing of
/// commands.
pub(super) fn of_command(pod: &Pod, container: &str) -> Option<(String, i32)> {
    let says = |word: &str| {
        let own = meta::annotation(&pod.metadata, &format!("{PREFIX}{word}.{container}"));
        own.or_else(|| meta::annotation(&pod.metadata, &format!("{PREFIX}{word}")))
    };
    let (output, code) = (says(EXEC_OUTPUT), says(EXEC_CODE));
    if output.is_none() && code.is_none() {
        return None;
    }
    // A code that is no number is told by an event.
    let code = code.and_then(|code| code.parse().ok()).unwrap_or(0);
    Some((output.unwrap_or_default().to_owned(), code))
}

/// A time in seconds, with decimals if need be.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim().trim_end_matches('s');
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Whether an annotation says something of pods.
pub(super) fn is_of_pods(key: &str) -> bool {
    let word = key
        .strip_prefix(PREFIX)
        .map(|word| word.split('.').next().unwrap_or(word));
    word.is_some_and(|word| known(word).is_some())
}

/// The type of the values of a word.
fn known(word: &str) -> Option<Value> {
    // Usage of any resource.
    let usage = word.starts_with(USAGE).then_some(Value::Amount);
    WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, value)| *value)
        .or(usage)
}

/// Annotations of the simulation without an effect: unknown words, containers that the pod does not have, and values of
/// the wrong type.
pub(super) fn misunderstood(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let containers: Vec<&str> = containers.map(|container| container.name.as_str()).collect();
    let all = pod.metadata.annotations.iter().flatten();
    let ours = all.filter_map(|(key, value)| Some((key, key.strip_prefix(PREFIX)?, value)));
    ours.filter_map(|(key, whole, value)| {
        let (word, container) = match whole.split_once('.') {
            Some((word, container)) => (word, Some(container)),
            None => (whole, None),
        };
        let Some(expected) = known(word) else {
            let nearest = nearest(word, WORDS.iter().map(|(known, _)| *known));
            return Some(format!(
                "the annotation {key} is unknown; did you mean {PREFIX}{nearest}?"
            ));
        };
        if let Some(name) = container.filter(|name| !containers.contains(name)) {
            let nearest = nearest(name, containers.iter().copied());
            return Some(format!(
                "the annotation {key} names no container of the pod; did you mean {PREFIX}{word}.{nearest}?"
            ));
        }
        let is_fine = match expected {
            Value::Number => value.parse::<i32>().is_ok(),
            Value::Seconds => seconds(value).is_some(),
            Value::Flag => matches!(value.as_str(), "true" | "false"),
            Value::Text => true,
            Value::Amount => milli(&Quantity(value.clone())).is_some_and(|amount| amount >= 0),
        };
        (!is_fine).then(|| format!("the annotation {key} has a value that says nothing: {value:?}"))
    })
    .collect()
}

/// Which of the known words is nearest to one that is not.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> &'a str {
    known
        .min_by_key(|known| strsim::damerau_levenshtein(word, known))
        .unwrap_or_default()
}

/// Whether an image can be pulled.
pub(super) fn can_pull(image: &str) -> bool {
    let registry = image.split('/').next().unwrap_or_default();
    let host = registry.split(':').next().unwrap_or_default();
    !(image.contains('/') && host.ends_with(NO_REGISTRY))
}

/// How long a container waits before its nth restart: the first comes at once, later ones after a time that doubles.
pub(super) fn back_off(restarts: i32) -> Duration {
    match u32::try_from(restarts.saturating_sub(1).min(10)) {
        Ok(doublings) if restarts > 0 => BACK_OFF.saturating_mul(1 << doublings).min(LONGEST_BACK_OFF),
        _ => Duration::ZERO,
    }
}

/// Which of the three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Startup,
    Readiness,
    Liveness,
}

/// The results of a running container's probes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) started: bool,
    pub(super) ready: bool,
    /// The probe that fails now.
    pub(super) failing: Option<Which>,
    /// The probe that has failed so often that the container is killed.
    pub(super) kill: Option<Which>,
    /// After how long of running this changes.
    pub(super) next: Option<Duration>,
}

/// When a probe that runs from `from` on first runs at `at` or later: it runs after its initial delay, and every period
/// from then on.
fn tick(probe: &Probe, from: Duration, at: Duration) -> Duration {
    let first = secs(probe.initial_delay_seconds, 0);
    let (at, period) = (at.max(from), secs(probe.period_seconds, 10).max(Duration::from_secs(1)));
    let missing = at.saturating_sub(first).as_millis().div_ceil(period.as_millis());
    first.saturating_add(period.saturating_mul(u32::try_from(missing).unwrap_or(u32::MAX)))
}

fn secs(value: Option<i32>, otherwise: u64) -> Duration {
    Duration::from_secs(value.map_or(otherwise, |value| u64::try_from(value).unwrap_or(0)))
}

/// How long it takes from the first failure of a probe to its last, or from its first success to its last.
fn row(probe: &Probe, times: Option<i32>, otherwise: i32) -> Duration {
    let more = u32::try_from(times.unwrap_or(otherwise).saturating_sub(1)).unwrap_or(0);
    secs(probe.period_seconds, 10).saturating_mul(more)
}

fn with_quick_probes(container: &Container) -> Container {
    let mut quick = container.clone();
    let probes = [
        &mut quick.startup_probe,
        &mut quick.readiness_probe,
        &mut quick.liveness_probe,
    ];
    for probe in probes.into_iter().flatten() {
        (probe.initial_delay_seconds, probe.period_seconds) = (None, Some(1));
    }
    quick
}

/// The results of a container's probes after it has run for `up`. Its postStart hook, which may sleep, comes before all
/// of them.
pub(super) fn probe(container: &Container, behaviour: &Behaviour, up: Duration) -> Found {
    let quick = behaviour.quick_probes.then(|| with_quick_probes(container));
    let container = quick.as_ref().unwrap_or(container);
    let hook = container.lifecycle.as_ref().and_then(|life| life.post_start.as_ref());
    let hook = hook
        .and_then(|hook| hook.sleep.as_ref())
        .map_or(0, |sleep| sleep.seconds);
    let hook = Duration::from_secs(u64::try_from(hook).unwrap_or(0));
    let slow = behaviour.slow.max(hook);
    let mut found = Found::default();
    let later = |found: &mut Found, at: Duration| match at > up {
        true => {
            found.next = Some(found.next.map_or(at, |next: Duration| next.min(at)));
            true
        }
        false => false,
    };
    let started = match &container.startup_probe {
        None => hook,
        Some(probe) => {
            let first = tick(probe, hook, Duration::ZERO);
            let (well, last) = (
                tick(probe, hook, slow),
                first.saturating_add(row(probe, probe.failure_threshold, 3)),
            );
            if well > last && !later(&mut found, last) {
                found.kill = Some(Which::Startup);
                return found;
            }
            if well > first && !later(&mut found, first) && well > up {
                found.failing = Some(Which::Startup);
            }
            well
        }
    };
    if later(&mut found, started) {
        return found;
    }
    found.started = true;
    if let Some(probe) = &container.liveness_probe {
        let from_slow = tick(probe, started, Duration::ZERO);
        let last = row(probe, probe.failure_threshold, 3);
        let late = behaviour.unhealthy.map(|at| tick(probe, started, at));
        // The probes that fail before the container answers at all, and those after it has become unhealthy.
        let slowly = (tick(probe, started, slow) > from_slow.saturating_add(last)).then_some(from_slow);
        if let Some(first) = [slowly, late].into_iter().flatten().min() {
            if !later(&mut found, first.saturating_add(last)) {
                found.kill = Some(Which::Liveness);
                return found;
            }
            if !later(&mut found, first) {
                found.failing = Some(Which::Liveness);
            }
        }
    }
    let (first, well) = match &container.readiness_probe {
        None => (None, started.max(slow)),
        Some(probe) => {
            let first = tick(probe, started, Duration::ZERO);
            let well = tick(probe, started, slow);
            (Some(first), well.saturating_add(row(probe, probe.success_threshold, 1)))
        }
    };
    found.ready = !behaviour.never_ready && !later(&mut found, well);
    if let Some(first) = first.filter(|_| !found.ready && (behaviour.never_ready || slow > started))
        && !later(&mut found, first)
    {
        found.failing = found.failing.or(Some(Which::Readiness));
    }
    found
}

/// The message of an event about a failing probe, in the words of a kubelet.
pub(super) fn failure(container: &Container, which: Which) -> String {
    let (name, probe) = match which {
        Which::Startup => ("Startup", &container.startup_probe),
        Which::Readiness => ("Readiness", &container.readiness_probe),
        Which::Liveness => ("Liveness", &container.liveness_probe),
    };
    let why = match probe {
        Some(probe) if probe.http_get.is_some() => "HTTP probe failed with statuscode: 503",
        Some(probe) if probe.grpc.is_some() => "service unhealthy (responded with \"NOT_SERVING\")",
        Some(probe) if probe.tcp_socket.is_some() => "connect: connection refused",
        _ => "",
    };
    format!("{name} probe failed: {why}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotations: Value) -> Pod {
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [{ "name": "c" }] } });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn what_annotations_say() {
        let check = |annotations: Value, role: Role, restarts: i32, expected: Option<i32>| {
            let container = Container {
                name: "c".to_owned(),
                ..Container::default()
            };
            let behaviour = Behaviour::of(&pod(annotations.clone()), &container, role);
            assert_eq!(behaviour.ends(restarts), expected, "{annotations} {role:?} {restarts}");
        };
        let word = |word: &str| format!("{PREFIX}{word}");
        check(json!({}), Role::Main, 0, None);
        check(json!({}), Role::Init, 0, Some(0));
        check(json!({}), Role::Sidecar, 0, None);
        check(json!({ word(EXIT_CODE): "3" }), Role::Main, 9, Some(3));
        check(json!({ word(EXIT_CODE): "3" }), Role::Init, 0, Some(0));
        check(json!({ word("exit-code.c"): "3" }), Role::Init, 0, Some(3));
        check(json!({ word("exit-code.other"): "3" }), Role::Main, 0, None);
        check(json!({ word(EXIT_CODE): "nonsense" }), Role::Main, 0, None);
        check(json!({ word(CRASHES): "2" }), Role::Main, 1, Some(1));
        check(json!({ word(CRASHES): "2" }), Role::Main, 2, None);
        check(
            json!({ word(CRASHES): "2", word(EXIT_CODE): "7" }),
            Role::Main,
            1,
            Some(7),
        );
        check(json!({ word(CRASHES): "2", word(EXIT_CODE): "7" }), Role::Main, 2, None);
        check(json!({ word("crashes.c"): "1" }), Role::Init, 1, Some(0));
    }

    #[test]
    fn what_says_nothing() {
        let check = |key: &str, value: &str, expected: usize| {
            let found = misunderstood(&pod(json!({ format!("{PREFIX}{key}"): value })));
            assert_eq!(found.len(), expected, "{found:?}");
        };
        check(EXIT_CODE, "1", 0);
        check(EXIT_CODE, "one", 1);
        check("exit-code.c", "one", 1);
        check(RUN_SECONDS, "1.5s", 0);
        check(RUN_SECONDS, "-1", 1);
        check(NEVER_READY, "yes", 1);
        check("something-else", "x", 1);
    }

    /// `(started, ready, failing, kill, next)` after so many seconds.
    #[test]
    fn what_probes_find() {
        type Seen = (bool, bool, Option<Which>, Option<Which>, Option<u64>);
        let check = |probes: Value, annotations: Value, up: u64, expected: Seen| {
            let mut whole = json!({ "name": "c" });
            let whole_map = whole.as_object_mut().expect("an object");
            whole_map.extend(probes.as_object().expect("an object").clone());
            let container: Container = serde_json::from_value(whole).expect("a container");
            let behaviour = Behaviour::of(&pod(annotations), &container, Role::Main);
            let found = probe(&container, &behaviour, Duration::from_secs(up));
            let seen = (
                found.started,
                found.ready,
                found.failing,
                found.kill,
                found.next.map(|next| next.as_secs()),
            );
            assert_eq!(seen, expected, "{probes} after {up} s");
        };
        let of = |delay: i32, period: i32, failures: i32| json!({ "initialDelaySeconds": delay, "periodSeconds": period, "failureThreshold": failures, "successThreshold": 1 });
        let word = |word: &str, value: &str| json!({ format!("{PREFIX}{word}"): value });
        use Which::{Liveness, Readiness, Startup};
        check(json!({}), json!({}), 0, (true, true, None, None, None));
        let ready = || json!({ "readinessProbe": of(5, 10, 3) });
        check(ready(), json!({}), 4, (true, false, None, None, Some(5)));
        check(ready(), json!({}), 5, (true, true, None, None, None));
        check(
            ready(),
            word(READY_SECONDS, "7"),
            5,
            (true, false, Some(Readiness), None, Some(15)),
        );
        check(ready(), word(READY_SECONDS, "7"), 15, (true, true, None, None, None));
        check(
            ready(),
            word(NEVER_READY, "true"),
            99,
            (true, false, Some(Readiness), None, None),
        );
        check(
            json!({}),
            word(READY_SECONDS, "7"),
            6,
            (true, false, None, None, Some(7)),
        );
        let startup = || json!({ "startupProbe": of(0, 10, 3), "readinessProbe": of(0, 1, 3) });
        check(startup(), json!({}), 0, (true, true, None, None, None));
        check(
            startup(),
            word(READY_SECONDS, "15"),
            3,
            (false, false, Some(Startup), None, Some(20)),
        );
        check(startup(), word(READY_SECONDS, "15"), 20, (true, true, None, None, None));
        check(
            startup(),
            word(READY_SECONDS, "25"),
            19,
            (false, false, Some(Startup), None, Some(20)),
        );
        check(
            startup(),
            word(READY_SECONDS, "25"),
            20,
            (false, false, None, Some(Startup), None),
        );
        let quick = || word(QUICK_PROBES, "true");
        let slow = || json!({ "startupProbe": of(30, 10, 3), "readinessProbe": of(60, 30, 3) });
        check(slow(), quick(), 0, (true, true, None, None, None));
        let live = || json!({ "livenessProbe": of(0, 10, 3) });
        check(live(), json!({}), 99, (true, true, None, None, None));
        check(
            live(),
            word(READY_SECONDS, "30"),
            3,
            (true, false, Some(Liveness), None, Some(20)),
        );
        check(
            live(),
            word(READY_SECONDS, "30"),
            20,
            (true, false, None, Some(Liveness), None),
        );
        check(
            live(),
            word(UNHEALTHY_SECONDS, "35"),
            35,
            (true, true, None, None, Some(40)),
        );
        check(
            live(),
            word(UNHEALTHY_SECONDS, "35"),
            40,
            (true, true, Some(Liveness), None, Some(60)),
        );
        check(
            live(),
            word(UNHEALTHY_SECONDS, "35"),
            60,
            (true, false, None, Some(Liveness), None),
        );
        let hook = json!({ "lifecycle": { "postStart": { "sleep": { "seconds": 3 } } } });
        check(hook.clone(), json!({}), 2, (false, false, None, None, Some(3)));
        check(hook, json!({}), 3, (true, true, None, None, None));
    }

    #[test]
    fn what_is_told() {
        let check = |key: &str, value: &str, expected: Option<&str>| {
            let found = misunderstood(&pod(json!({ key: value })));
            assert_eq!(found.first().map(String::as_str), expected, "{key}: {value}");
        };
        check("kubewright.dev/exit-code", "1", None);
        check("kubewright.dev/exit-code.c", "1", None);
        check("kubewright.dev/usage-ephemeral-storage", "1Gi", None);
        check("example.com/exit-cod", "1", None);
        let said = "the annotation kubewright.dev/exit-cod is unknown; did you mean kubewright.dev/exit-code?";
        check("kubewright.dev/exit-cod", "1", Some(said));
        let said = "the annotation kubewright.dev/never-redy is unknown; did you mean kubewright.dev/never-ready?";
        check("kubewright.dev/never-redy", "true", Some(said));
        let said = "the annotation kubewright.dev/crashes.nosuch names no container of the pod; did you mean kubewright.dev/crashes.c?";
        check("kubewright.dev/crashes.nosuch", "1", Some(said));
        let said = "the annotation kubewright.dev/crashes has a value that says nothing: \"yes\"";
        check("kubewright.dev/crashes", "yes", Some(said));
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
        check(0, 0);
        check(1, 10);
        check(2, 20);
        check(5, 160);
        check(6, 300);
        check(i32::MAX, 300);
    }
}
