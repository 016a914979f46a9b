//! What a kubelet would report: a Node that is ready, pods that run.
//!
//! Pure. The node and its pods exist in the API only; no container is ever started. Invariant: whoever looks at the API sees nothing that a
//! real kubelet could not have written.

use kubewright::k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kubewright::k8s_openapi::jiff::Timestamp;

use super::behaviour;
use crate::controllers::meta;

/// The label of a node that exists in the API only. Whoever sees it need not look for a machine.
pub(crate) const SIMULATED: &str = "kubewright.dev/simulated";
/// The taint of a node that is not ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The address of the node, out of the range that is reserved for documentation, so that nobody is ever reached by mistake.
pub(crate) const NODE_IP: &str = "192.0.2.1";

/// The Node object.
pub(crate) fn node(name: &str) -> Node {
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        (SIMULATED, "true"),
    ];
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                labels
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// The status of a node that is well and large.
pub(crate) fn node_status(name: &str, now: Timestamp) -> NodeStatus {
    let room: std::collections::BTreeMap<String, Quantity> = [
        ("cpu", "32"),
        ("memory", "256Gi"),
        ("ephemeral-storage", "1Ti"),
        ("pods", "1000"),
    ]
    .into_iter()
    .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
    .collect();
    let condition = |type_: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(meta::time(now)),
        last_transition_time: Some(meta::time(now)),
    };
    NodeStatus {
        capacity: Some(room.clone()),
        allocatable: Some(room),
        addresses: Some(vec![
            NodeAddress {
                type_: "InternalIP".to_owned(),
                address: NODE_IP.to_owned(),
            },
            NodeAddress {
                type_: "Hostname".to_owned(),
                address: name.to_owned(),
            },
        ]),
        conditions: Some(vec![
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            condition(
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
            ),
            condition(
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]),
        node_info: Some(node_info(name)),
        ..NodeStatus::default()
    }
}

/// What the machine would say of itself: `kubectl get nodes` shows the version, and every field says that nothing runs here.
fn node_info(name: &str) -> NodeSystemInfo {
    let simulated = || "simulated".to_owned();
    NodeSystemInfo {
        kubelet_version: crate::KUBERNETES_VERSION.to_owned(),
        container_runtime_version: "simulated://".to_owned(),
        os_image: simulated(),
        kernel_version: simulated(),
        machine_id: name.to_owned(),
        system_uuid: name.to_owned(),
        boot_id: name.to_owned(),
        operating_system: "linux".to_owned(),
        architecture: std::env::consts::ARCH
            .replace("x86_64", "amd64")
            .replace("aarch64", "arm64"),
        ..NodeSystemInfo::default()
    }
}

/// The status of a pod whose containers have all started, keeping what others have written into it. Containers that ran before have been
/// restarted.
pub(crate) fn running(pod: &Pod, ip: &str, now: Timestamp) -> PodStatus {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let time = meta::time(now);
    let ip = if spec.host_network == Some(true) { NODE_IP } else { ip };
    let mut status = begun(pod, &time);
    status.phase = Some("Running".to_owned());
    status.pod_ip = Some(ip.to_owned());
    status.pod_ips = Some(vec![PodIP { ip: ip.to_owned() }]);
    let containers = spec.containers.iter();
    status.container_statuses = Some(containers.map(|container| started(pod, container, &time)).collect());
    status.init_container_statuses = spec.init_containers.as_ref().map(|containers| {
        let containers = containers.iter();
        containers.map(|container| initialized(pod, container, &time)).collect()
    });
    set_conditions(pod, &mut status, true, None, &time);
    status
}

/// The status of a pod that its node has taken up.
fn begun(pod: &Pod, time: &Time) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    PodStatus {
        start_time: Some(before.start_time.clone().unwrap_or_else(|| time.clone())),
        host_ip: Some(NODE_IP.to_owned()),
        host_ips: Some(vec![HostIP { ip: NODE_IP.to_owned() }]),
        observed_generation: pod.metadata.generation,
        ..before
    }
}

/// The status of a pod that cannot start because of one container: that one waits for this reason, those after it for their turn.
pub(crate) fn held_up(pod: &Pod, container: Option<&str>, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let time = meta::time(now);
    let init = spec.init_containers.iter().flatten();
    let in_init = init.clone().any(|one| Some(one.name.as_str()) == container);
    let waits = |one: &Container, otherwise: &str| {
        let is_it = Some(one.name.as_str()) == container;
        let waiting = ContainerStateWaiting {
            reason: Some(if is_it { reason } else { otherwise }.to_owned()),
            message: is_it.then(|| message.to_owned()).filter(|text| !text.is_empty()),
        };
        ContainerStatus {
            started: Some(false),
            image: one.image.clone().unwrap_or_default(),
            name: one.name.clone(),
            state: Some(ContainerState {
                waiting: Some(waiting),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }
    };
    let turn = if in_init {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    let mut status = begun(pod, &time);
    status.phase = Some("Pending".to_owned());
    status.container_statuses = Some(spec.containers.iter().map(|one| waits(one, turn)).collect());
    status.init_container_statuses =
        spec.init_containers
            .as_ref()
            .map(|containers| match in_init || container.is_none() {
                true => containers.iter().map(|one| waits(one, "PodInitializing")).collect(),
                false => containers.iter().map(|one| initialized(pod, one, &time)).collect(),
            });
    set_conditions(pod, &mut status, false, Some("ContainersNotReady"), &time);
    set_condition(
        &mut status,
        "Initialized",
        !in_init,
        Some("ContainersNotInitialized").filter(|_| in_init),
        pod.metadata.generation,
        &time,
    );
    status
}

/// The status of a pod whose containers have ended with this code: for good, or until they are started again.
pub(crate) fn ended(pod: &Pod, code: i32, for_good: bool, now: Timestamp) -> PodStatus {
    let time = meta::time(now);
    let mut status = begun(pod, &time);
    let back_off = behaviour::back_off(restarts(pod, None)).as_secs();
    for container in status.container_statuses.iter_mut().flatten() {
        let running = container.state.take().and_then(|state| state.running);
        let terminated = ContainerStateTerminated {
            container_id: container.container_id.clone(),
            exit_code: code,
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: running.and_then(|running| running.started_at),
            finished_at: Some(time.clone()),
            ..ContainerStateTerminated::default()
        };
        let terminated = ContainerState {
            terminated: Some(terminated),
            ..ContainerState::default()
        };
        (container.ready, container.started) = (false, Some(false));
        if for_good {
            container.state = Some(terminated);
            continue;
        }
        let name = format!(
            "{}_{}({})",
            meta::name(&pod.metadata),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            meta::uid(&pod.metadata)
        );
        container.state = Some(ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some("CrashLoopBackOff".to_owned()),
                message: Some(format!(
                    "back-off {back_off}s restarting failed container={} pod={name}",
                    container.name
                )),
            }),
            ..ContainerState::default()
        });
        container.last_state = Some(terminated);
    }
    let reason = match (for_good, code) {
        (false, _) => "ContainersNotReady",
        (true, 0) => "PodCompleted",
        (true, _) => "PodFailed",
    };
    if for_good {
        status.phase = Some(if code == 0 { "Succeeded" } else { "Failed" }.to_owned());
    }
    set_conditions(pod, &mut status, false, Some(reason), &time);
    status
}

/// The conditions of a pod whose containers are ready or not. With readiness gates, somebody else has a word in whether the pod is.
fn set_conditions(pod: &Pod, status: &mut PodStatus, ready: bool, reason: Option<&str>, time: &Time) {
    let open = behaviour::gates_open(pod);
    let (gated, probed) = (Some("ReadinessGatesNotReady"), Some("ContainersNotReady"));
    let never = behaviour::never_ready(pod);
    let containers = ready && !never;
    let why_not = reason.or(if never { probed } else { gated });
    let generation = pod.metadata.generation;
    for (type_, holds, reason) in [
        ("PodReadyToStartContainers", true, None),
        ("Initialized", true, None),
        ("Ready", ready && open, why_not),
        ("ContainersReady", containers, reason.or(probed)),
        ("PodScheduled", true, None),
    ] {
        set_condition(status, type_, holds, reason, generation, time);
    }
    for container in status.container_statuses.iter_mut().flatten().filter(|_| ready) {
        container.ready = containers;
    }
}

fn set_condition(
    status: &mut PodStatus,
    type_: &str,
    holds: bool,
    reason: Option<&str>,
    generation: Option<i64>,
    time: &Time,
) {
    let text = if holds { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    let present = conditions.iter().position(|condition| condition.type_ == type_);
    let reason = reason.filter(|_| !holds);
    if present
        .is_some_and(|present| conditions[present].status == text && conditions[present].reason.as_deref() == reason)
    {
        return;
    }
    let since = present
        .map(|present| &conditions[present])
        .filter(|present| present.status == text);
    let condition = PodCondition {
        type_: type_.to_owned(),
        status: text.to_owned(),
        reason: reason.map(str::to_owned),
        message: (reason == Some("ReadinessGatesNotReady"))
            .then(|| "a readiness gate of the pod is not True".to_owned()),
        last_transition_time: Some(
            since
                .and_then(|since| since.last_transition_time.clone())
                .unwrap_or_else(|| time.clone()),
        ),
        last_probe_time: None,
        observed_generation: generation,
    };
    match present {
        Some(present) => conditions[present] = condition,
        None => conditions.push(condition),
    }
}

/// How often a container of this name, or any, has been started again.
fn restarts(pod: &Pod, name: Option<&str>) -> i32 {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let same = statuses.filter(|status| name.is_none_or(|name| status.name == name));
    same.map(|status| status.restart_count).max().unwrap_or(0)
}

fn started(pod: &Pod, container: &Container, time: &Time) -> ContainerStatus {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let before = statuses.into_iter().find(|status| status.name == container.name);
    let running = before.and_then(|before| before.state.as_ref()?.running.clone());
    let again = before.is_some_and(|before| before.last_state.as_ref().is_some_and(|last| last.terminated.is_some()));
    // One that runs goes on; one that has ended is started again.
    let restarted = i32::from(again && running.is_none());
    let restart_count = restarts(pod, Some(&container.name)).saturating_add(restarted);
    ContainerStatus {
        ready: true,
        started: Some(true),
        restart_count,
        last_state: before.and_then(|before| before.last_state.clone()),
        state: Some(ContainerState {
            running: Some(running.unwrap_or_else(|| ContainerStateRunning {
                started_at: Some(time.clone()),
            })),
            ..ContainerState::default()
        }),
        ..status_of(pod, container, restart_count)
    }
}

/// A sidecar (an init container that is always restarted) runs; any other has run.
fn initialized(pod: &Pod, container: &Container, time: &Time) -> ContainerStatus {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.init_container_statuses.iter().flatten());
    let before = statuses.into_iter().find(|status| status.name == container.name);
    if let Some(done) = before.filter(|before| before.state.as_ref().is_some_and(|state| state.waiting.is_none())) {
        return done.clone();
    }
    if container.restart_policy.as_deref() == Some("Always") {
        return started(pod, container, time);
    }
    let terminated = ContainerStateTerminated {
        container_id: Some(container_id(pod, container, 0)),
        exit_code: 0,
        reason: Some("Completed".to_owned()),
        started_at: Some(time.clone()),
        finished_at: Some(time.clone()),
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        ready: true,
        started: Some(false),
        state: Some(ContainerState {
            terminated: Some(terminated),
            ..ContainerState::default()
        }),
        ..status_of(pod, container, 0)
    }
}

fn status_of(pod: &Pod, container: &Container, start: i32) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        container_id: Some(container_id(pod, container, start)),
        image_id: image.clone(),
        image,
        ..ContainerStatus::default()
    }
}

/// Another one for each start, under the name of the runtime that the node says it has.
fn container_id(pod: &Pod, container: &Container, start: i32) -> String {
    format!("simulated://{}/{}/{start}", meta::uid(&pod.metadata), container.name)
}

/// The pod address with this number, out of 10.244.0.0/16 without its first and last.
pub(crate) fn pod_ip(number: u32) -> String {
    let number = number % 65_534 + 1;
    format!("10.244.{}.{}", number / 256, number % 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::pods;
    use serde_json::json;

    fn ready(pod: &Pod) -> Vec<String> {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.type_.clone())
            .collect()
    }

    #[test]
    fn a_pod_that_runs() {
        let mut pod: Pod = serde_json::from_value(json!({
            "spec": {
                "containers": [{ "name": "c", "image": "app:1" }],
                "initContainers": [{ "name": "i", "image": "i" }, { "name": "s", "image": "s", "restartPolicy": "Always" }],
                "readinessGates": [{ "conditionType": "example.com/gate" }],
            },
            "status": { "phase": "Pending", "qosClass": "BestEffort", "conditions": [{ "type": "example.com/gate", "status": "False" }] },
        }))
        .expect("a pod");
        pod.status = Some(running(&pod, "10.244.0.1", Timestamp::UNIX_EPOCH));
        assert_eq!(
            ready(&pod),
            [
                "PodReadyToStartContainers",
                "Initialized",
                "ContainersReady",
                "PodScheduled"
            ]
        );
        let status = pod.status.as_mut().expect("set above");
        assert_eq!(
            (status.phase.as_deref(), status.qos_class.as_deref()),
            (Some("Running"), Some("BestEffort"))
        );
        let states = status
            .init_container_statuses
            .as_ref()
            .expect("two")
            .iter()
            .map(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
        assert_eq!(states.collect::<Vec<_>>(), [false, true]);
        // The gate opens: the pod becomes ready, and nothing else moves.
        status.conditions.as_mut().expect("set above")[0].status = "True".to_owned();
        let later = running(&pod, "10.244.0.1", Timestamp::from_second(10).expect("small"));
        pod.status = Some(later);
        assert!(pods::is_ready(&pod));
        assert_eq!(
            pods::condition(&pod, "Initialized").and_then(|condition| condition.last_transition_time.as_ref()),
            Some(&meta::time(Timestamp::UNIX_EPOCH))
        );
    }

    #[test]
    fn addresses() {
        let check = |number, expected: &str| assert_eq!(pod_ip(number), expected);
        check(0, "10.244.0.1");
        check(254, "10.244.0.255");
        check(255, "10.244.1.0");
        check(65_533, "10.244.255.254");
        check(65_534, "10.244.0.1");
    }
}
