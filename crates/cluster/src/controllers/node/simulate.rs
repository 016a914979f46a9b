//! What a kubelet would report: a Node that is ready, pods that run.
//!
//! Pure. The node and its pods exist in the API only; no container is ever started. Invariant: whoever looks at the API sees nothing that a
//! real kubelet could not have written.

use kubewright::k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, HostIP, Node,
    NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kubewright::k8s_openapi::jiff::Timestamp;

use crate::controllers::{meta, pods};

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

/// The status of a pod whose containers have all started, keeping what others have written into it.
pub(crate) fn running(pod: &Pod, ip: &str, now: Timestamp) -> PodStatus {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let before = pod.status.clone().unwrap_or_default();
    let time = meta::time(now);
    let ip = if spec.host_network == Some(true) { NODE_IP } else { ip };
    let mut status = PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(before.start_time.clone().unwrap_or_else(|| time.clone())),
        host_ip: Some(NODE_IP.to_owned()),
        host_ips: Some(vec![HostIP { ip: NODE_IP.to_owned() }]),
        pod_ip: Some(ip.to_owned()),
        pod_ips: Some(vec![PodIP { ip: ip.to_owned() }]),
        container_statuses: Some(
            spec.containers
                .iter()
                .map(|container| started(container, &time))
                .collect(),
        ),
        init_container_statuses: spec.init_containers.as_ref().map(|containers| {
            containers
                .iter()
                .map(|container| initialized(container, &time))
                .collect()
        }),
        observed_generation: pod.metadata.generation,
        ..before
    };
    for (type_, status_) in conditions_of(pod) {
        set_condition(&mut status, type_, status_, pod.metadata.generation, &time);
    }
    status
}

/// The conditions of a running pod. With readiness gates, somebody else has a word in whether it is ready.
fn conditions_of(pod: &Pod) -> [(&'static str, bool); 5] {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let open = gates
        .into_iter()
        .flatten()
        .all(|gate| pods::condition(pod, &gate.condition_type).is_some_and(|gate| gate.status == "True"));
    [
        ("PodReadyToStartContainers", true),
        ("Initialized", true),
        ("Ready", open),
        ("ContainersReady", true),
        ("PodScheduled", true),
    ]
}

fn set_condition(status: &mut PodStatus, type_: &str, holds: bool, generation: Option<i64>, time: &Time) {
    let text = if holds { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    let present = conditions.iter().position(|condition| condition.type_ == type_);
    if present.is_some_and(|present| conditions[present].status == text) {
        return;
    }
    let not_ready = (!holds).then(|| {
        (
            "ReadinessGatesNotReady".to_owned(),
            "a readiness gate of the pod is not True".to_owned(),
        )
    });
    let (reason, message) = not_ready.unzip();
    let condition = PodCondition {
        type_: type_.to_owned(),
        status: text.to_owned(),
        reason,
        message,
        last_transition_time: Some(time.clone()),
        last_probe_time: None,
        observed_generation: generation,
    };
    match present {
        Some(present) => conditions[present] = condition,
        None => conditions.push(condition),
    }
}

fn started(container: &Container, time: &Time) -> ContainerStatus {
    ContainerStatus {
        ready: true,
        started: Some(true),
        state: Some(ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(time.clone()),
            }),
            ..ContainerState::default()
        }),
        ..status_of(container)
    }
}

/// A sidecar (an init container that is always restarted) runs; any other has run.
fn initialized(container: &Container, time: &Time) -> ContainerStatus {
    if container.restart_policy.as_deref() == Some("Always") {
        return started(container, time);
    }
    let terminated = ContainerStateTerminated {
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
        ..status_of(container)
    }
}

fn status_of(container: &Container) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image_id: image.clone(),
        image,
        ..ContainerStatus::default()
    }
}

/// The pod address with this number, out of 10.244.0.0/16 without its first and last.
pub(crate) fn pod_ip(number: u32) -> String {
    let number = number % 65_534 + 1;
    format!("10.244.{}.{}", number / 256, number % 256)
}

#[cfg(test)]
mod tests {
    use super::*;
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
