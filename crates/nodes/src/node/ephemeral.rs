//! Ephemeral containers: a user adds them to a running pod to look at it (`kubectl debug`).
//!
//! Pure. They wait for nothing and nothing waits for them; they are never started again, have no probes, and neither
//! the pod's phase nor its conditions follow from them (`computePodActions` in pkg/kubelet/kuberuntime). Not here: the
//! right to add one.

use kubewright_objects::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

use super::behaviour::{KILLED, Role};
use super::container::{self, ContainerContext, Observations};

/// The ephemeral containers of a pod, as containers.
pub(super) fn of(pod: &Pod) -> impl Iterator<Item = Container> + '_ {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.map(|added| Container {
        name: added.name.clone(),
        image: added.image.clone(),
        command: added.command.clone(),
        args: added.args.clone(),
        working_dir: added.working_dir.clone(),
        env: added.env.clone(),
        env_from: added.env_from.clone(),
        volume_mounts: added.volume_mounts.clone(),
        stdin: added.stdin,
        stdin_once: added.stdin_once,
        tty: added.tty,
        termination_message_path: added.termination_message_path.clone(),
        termination_message_policy: added.termination_message_policy.clone(),
        restart_policy: Some("Never".to_owned()),
        ..Container::default()
    })
}

/// Takes them as far as they come by now.
pub(super) fn go_on(scene: &ContainerContext<'_>, notes: &mut Observations) -> Option<Vec<ContainerStatus>> {
    let before = scene.pod.status.iter();
    let before: Vec<_> = before
        .flat_map(|status| status.ephemeral_container_statuses.iter().flatten())
        .collect();
    let next = |added: Container| {
        let before = before.iter().find(|status| status.name == added.name).copied();
        let (mut status, _) = container::go_on(scene, &added, Role::Main, before, notes);
        status.ready = false;
        status
    };
    let all: Vec<ContainerStatus> = of(scene.pod).map(next).collect();
    Some(all).filter(|all| !all.is_empty())
}

/// They end with their pod.
pub(super) fn end(scene: &ContainerContext<'_>, status: &mut PodStatus) {
    for status in status.ephemeral_container_statuses.iter_mut().flatten() {
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        if is_running {
            scene.runtime.end(scene, status, KILLED);
        }
    }
}

#[cfg(test)]
mod tests {

    use kubewright::k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::super::life::{self, Place};
    use super::*;

    #[test]
    fn they_change_nothing_of_their_pod() {
        let pod = json!({
            "metadata": { "annotations": { "kubewright.dev/run-seconds.look": "5", "kubewright.dev/exit-code.look": "3" } },
            "spec": {
                "containers": [{ "name": "c", "image": "i" }],
                "ephemeralContainers": [{ "name": "look", "image": "busybox", "targetContainerName": "c" }],
            },
        });
        let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
        let mut look = |now: i64, expected: &str| {
            let scene = ContainerContext::clear(&pod, Timestamp::from_second(now).expect("small"));
            let place = Place::of("10.0.0.1", "192.0.2.1");
            let status = life::go_on(&scene, &place, &mut Observations::default());
            let added = &status.ephemeral_container_statuses.as_ref().expect("one")[0];
            let state = added.state.clone().unwrap_or_default();
            let words = format!(
                "{} {} {:?} {}",
                status.phase.as_deref().unwrap_or_default(),
                state.running.is_some(),
                state.terminated.map(|ended| ended.exit_code),
                added.restart_count
            );
            assert_eq!(words, expected, "at {now}");
            pod.status = Some(status);
        };
        look(0, "Running true None 0");
        look(5, "Running false Some(3) 0");
        look(1000, "Running false Some(3) 0");
    }
}
