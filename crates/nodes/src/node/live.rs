//! The life of a container that really runs: the observed state of its process takes the place of the simulated one.
//!
//! Pure: wanted actions are noted ([`Observations::starts`], [`Observations::stops`]) and their results are seen the next time. The
//! rest of a container's life, when it is started again and how long it waits, is the same as in `container`.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright::EventType;
use kubewright_objects::api::core::v1::{Container, ContainerStatus};

use super::behaviour::{KILLED, Role};
use super::container::{self, ContainerContext, Observations};
use super::runtime::Runtime;
use crate::processes::{ObservedContainer, State};
use kubewright_objects::meta;

/// Begins the ids of containers that are processes.
const SCHEME: &str = "process://";
/// The reason of a container whose end was not observed (`ReasonContainerStatusUnknown`).
const UNKNOWN: &str = "ContainerStatusUnknown";

/// How long after a start that failed the next is tried.
const AGAIN: Duration = Duration::from_secs(10);

/// The observed state of the containers of a pod.
pub(super) struct Live<'a>(pub(super) &'a BTreeMap<String, ObservedContainer>);

impl Live<'_> {
    fn is_running(&self, name: &str) -> bool {
        let seen = self.0.get(name);
        seen.is_some_and(|seen| matches!(seen.state, State::Running { .. }))
    }

    /// Writes down how a container has ended.
    fn write_end(&self, scene: &ContainerContext<'_>, status: &mut ContainerStatus) {
        let seen = self.0.get(&status.name);
        let seen = seen.filter(|seen| seen.attempt == status.restart_count);
        let Some(State::Ended {
            at,
            code,
            reason,
            message,
        }) = seen.map(|seen| &seen.state)
        else {
            container::end(scene, status, KILLED, Some(UNKNOWN));
            return tell(
                status,
                None,
                "The container could not be located when the pod was looked at again",
            );
        };
        container::end(scene, status, *code, *reason);
        tell(status, Some(*at), message);
    }
}

impl Runtime for Live<'_> {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    /// Asks for its start, or takes up one that was started.
    fn start(
        &self,
        container: &Container,
        attempt: i32,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool {
        let image = container.image.as_deref().unwrap_or_default();
        match self.0.get(&container.name).filter(|seen| seen.attempt >= attempt) {
            None => {
                notes.starts.push((container.name.clone(), attempt));
                false
            }
            Some(seen) => {
                if let State::CannotStart { reason, message } = &seen.state {
                    let is_new = status
                        .state
                        .as_ref()
                        .and_then(|state| state.waiting.as_ref()?.message.as_ref())
                        != Some(message);
                    if is_new {
                        notes.say(EventType::Warning, "Failed", format!("Error: {message}"));
                    }
                    status.state = Some(container::waits(reason, message));
                    // The missing object may have come.
                    notes.starts.push((container.name.clone(), seen.attempt));
                    notes.wake(AGAIN);
                    return false;
                }
                notes.say(
                    EventType::Normal,
                    "Pulled",
                    format!("Image \"{image}\" stands for {}", seen.about),
                );
                status.restart_count = seen.attempt;
                status.image_id = format!("{SCHEME}{}", seen.about);
                true
            }
        }
    }

    fn observe(
        &self,
        scene: &ContainerContext<'_>,
        container: &Container,
        role: Role,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool {
        let name = &container.name;
        let is_changed = role != Role::Init && container.image.as_deref().unwrap_or_default() != status.image;
        let seen = self.0.get(name).filter(|seen| seen.attempt == status.restart_count);
        match seen.map(|seen| &seen.state) {
            Some(State::Running { started, ready }) => {
                status.started = Some(*started);
                status.ready = *ready && role != Role::Init;
                if is_changed {
                    let message = format!("Container {name} definition changed, will be restarted");
                    notes.stops.push((name.clone(), message));
                }
                false
            }
            Some(State::Ended { .. }) => {
                self.write_end(scene, status);
                if is_changed {
                    // A change is no crash: nothing holds the next start up.
                    container::fall(status, "ContainerCreating", "");
                }
                true
            }
            Some(State::CannotStart { .. }) | None => {
                self.write_end(scene, status);
                // The cluster was started again: that is no crash of the container.
                if container::restarts(scene.pod, container, role, KILLED) {
                    container::fall(status, "ContainerCreating", "");
                }
                true
            }
        }
    }

    fn end(&self, scene: &ContainerContext<'_>, status: &mut ContainerStatus, _: i32) {
        self.write_end(scene, status);
    }

    /// It is stopped, and has ended in the end.
    fn end_sidecar(
        &self,
        scene: &ContainerContext<'_>,
        before: &ContainerStatus,
        notes: &mut Observations,
    ) -> Option<ContainerStatus> {
        let mut status = before.clone();
        let is_known_to_run = status.state.as_ref().is_some_and(|state| state.running.is_some());
        match self.is_running(&status.name) {
            true => notes.stops.push((status.name.clone(), String::new())),
            false if is_known_to_run => self.write_end(scene, &mut status),
            false => {}
        }
        Some(status)
    }

    fn stop_all(&self, notes: &mut Observations) -> bool {
        let running: Vec<_> = self.0.keys().filter(|name| self.is_running(name)).collect();
        let stops = running
            .iter()
            .map(|name| ((*name).clone(), format!("Stopping container {name}")));
        notes.stops.extend(stops);
        !running.is_empty()
    }
}

fn tell(status: &mut ContainerStatus, at: Option<jiff::Timestamp>, message: &str) {
    if let Some(ended) = status.state.as_mut().and_then(|state| state.terminated.as_mut()) {
        ended.finished_at = at.map(meta::time).or(ended.finished_at.take());
        ended.message = Some(message.to_owned()).filter(|message| !message.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kubewright_objects::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::super::life::{self, Place};
    use super::*;

    /// The states to expect, step by step, of a pod whose containers are observed so.
    struct Play {
        pod: Pod,
        live: BTreeMap<String, ObservedContainer>,
    }

    impl Play {
        fn of(spec: Value) -> Play {
            let pod = json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec });
            Play {
                pod: serde_json::from_value(pod).expect("a pod"),
                live: BTreeMap::new(),
            }
        }

        fn sees(&mut self, name: &str, attempt: i32, state: State) {
            let about = "program".to_owned();
            self.live
                .insert(name.to_owned(), ObservedContainer { attempt, state, about });
        }

        /// Looks at this second, and compares the pod and its orders.
        fn check(&mut self, second: i64, expected: &str) {
            let mut notes = Observations::default();
            let scene = ContainerContext {
                runtime: &Live(&self.live),
                ..ContainerContext::clear(&self.pod, Timestamp::from_second(second).expect("small"))
            };
            let place = Place::of("127.1.0.1", "127.0.0.1");
            let status = life::go_on(&scene, &place, &mut notes);
            let mut words = vec![status.phase.clone().unwrap_or_default()];
            let init = status.init_container_statuses.iter().flatten();
            for one in init.chain(status.container_statuses.iter().flatten()) {
                let state = one.state.clone().unwrap_or_default();
                let is = match (state.running, state.terminated, state.waiting) {
                    (Some(_), _, _) if one.ready => "ready".to_owned(),
                    (Some(_), _, _) => "runs".to_owned(),
                    (_, Some(ended), _) => format!("ended:{}", ended.exit_code),
                    (_, _, waiting) => waiting.and_then(|waiting| waiting.reason).unwrap_or_default(),
                };
                words.push(format!("{}#{}={is}", one.name, one.restart_count));
            }
            words.extend(
                notes
                    .starts
                    .iter()
                    .map(|(name, attempt)| format!("start:{name}#{attempt}")),
            );
            words.extend(notes.stops.iter().map(|(name, _)| format!("stop:{name}")));
            assert_eq!(words.join(" "), expected);
            self.pod.status = Some(status);
        }
    }

    fn runs(started: bool, ready: bool) -> State {
        State::Running { started, ready }
    }

    fn ended(second: i64, code: i32) -> State {
        State::Ended {
            at: Timestamp::from_second(second).expect("small"),
            code,
            reason: None,
            message: String::new(),
        }
    }

    #[test]
    fn a_container_starts_becomes_ready_and_is_started_again() {
        let mut play = Play::of(json!({ "containers": [{ "name": "c", "image": "i" }] }));
        play.check(0, "Pending c#0=ContainerCreating start:c#0");
        play.sees("c", 0, runs(true, false));
        play.check(0, "Running c#0=runs");
        play.sees("c", 0, runs(true, true));
        play.check(1, "Running c#0=ready");
        play.sees("c", 0, ended(2, 1));
        play.check(2, "Running c#0=ContainerCreating start:c#1");
        play.sees("c", 1, runs(true, true));
        play.check(2, "Running c#1=ready");
        play.sees("c", 1, ended(3, 1));
        play.check(3, "Running c#1=CrashLoopBackOff");
        play.check(12, "Running c#1=CrashLoopBackOff");
        play.check(13, "Running c#1=CrashLoopBackOff start:c#2");
    }

    #[test]
    fn a_forgotten_program_is_started_again_at_once() {
        let mut play = Play::of(json!({ "containers": [{ "name": "c", "image": "i" }] }));
        play.sees("c", 0, runs(true, true));
        play.check(0, "Running c#0=ready");
        play.live.clear();
        let written = play.pod.status.clone();
        play.check(9, "Running c#0=ContainerCreating start:c#1");
        play.pod.status = written;
        play.sees("c", 1, runs(true, true));
        play.check(9, "Running c#1=ready");
    }

    #[test]
    fn init_containers_and_sidecars() {
        let mut play = Play::of(json!({
            "restartPolicy": "Never",
            "initContainers": [{ "name": "s", "image": "i", "restartPolicy": "Always" }, { "name": "i", "image": "i" }],
            "containers": [{ "name": "c", "image": "i" }],
        }));
        play.check(
            0,
            "Pending s#0=ContainerCreating i#0=PodInitializing c#0=PodInitializing start:s#0",
        );
        play.sees("s", 0, runs(true, true));
        play.check(0, "Pending s#0=ready i#0=PodInitializing c#0=PodInitializing start:i#0");
        play.sees("i", 0, ended(1, 0));
        play.check(1, "Pending s#0=ready i#0=ended:0 c#0=PodInitializing start:c#0");
        play.sees("c", 0, ended(2, 0));
        play.check(2, "Running s#0=ready i#0=ended:0 c#0=ended:0 stop:s");
        play.check(2, "Running s#0=ready i#0=ended:0 c#0=ended:0 stop:s stop:s");
        play.sees("s", 0, ended(3, 143));
        play.check(3, "Succeeded s#0=ended:143 i#0=ended:0 c#0=ended:0");
    }

    #[test]
    fn one_that_is_active_for_too_long_fails_when_all_has_ended() {
        let mut play = Play::of(json!({ "activeDeadlineSeconds": 5, "containers": [{ "name": "c", "image": "i" }] }));
        play.sees("c", 0, runs(true, true));
        play.check(0, "Running c#0=ready");
        play.check(5, "Running c#0=ready stop:c");
        play.sees("c", 0, ended(6, 143));
        play.check(6, "Failed c#0=ended:143");
    }

    #[test]
    fn one_that_cannot_be_started_waits() {
        let mut play = Play::of(json!({ "containers": [{ "name": "c", "image": "i" }] }));
        let message = "no command specified".to_owned();
        play.sees(
            "c",
            0,
            State::CannotStart {
                reason: "CreateContainerError",
                message,
            },
        );
        play.check(0, "Pending c#0=CreateContainerError start:c#0");
    }
}
