//! The objects of the works: the same on both sides.

use serde_json::{Value, json};

/// A node without a kubelet, as kwok knows it; on our side the label says the same.
pub(super) fn node(number: usize) -> Value {
    let name = format!("bench-{number}");
    let room = json!({ "cpu": "32", "memory": "256Gi", "pods": "1000" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok" },
        },
        "status": { "allocatable": room, "capacity": room },
    })
}

/// The image of the pods at first.
const FIRST: &str = "app:1";
/// The image of the pods after an update.
pub(super) const LATER: &str = "app:2";

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "bench" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": FIRST,
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            }],
        },
    })
}

/// A Deployment with the defaults of a rolling update: a quarter may be missing, a quarter may be too many.
pub(super) fn deployment(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "bench" } }, "template": template() },
    })
}

/// A StatefulSet whose pods come one after the other.
pub(super) fn statefulset(replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "ordered" },
        "spec": { "replicas": replicas, "serviceName": "ordered", "selector": { "matchLabels": { "app": "bench" } }, "template": template() },
    })
}

/// A Job of one pod, which ends well: kwok completes pods of Jobs, and so do we.
pub(super) fn job(number: usize) -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": format!("job-{number}") },
        "spec": { "template": template },
    })
}

/// A claim of the default class.
pub(super) fn claim(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": format!("claim-{number}") },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

/// A DaemonSet.
pub(super) fn daemonset() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "everywhere" },
        "spec": { "selector": { "matchLabels": { "app": "bench" } }, "template": template() },
    })
}

/// The label of pods that [`selecting`] selects.
pub(super) const CROWD: &str = "crowd";

/// A Service and a PodDisruptionBudget, with the paths of their kinds.
pub(super) fn selecting() -> [(&'static str, Value); 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "crowd" },
        "spec": { "selector": { CROWD: "true" }, "ports": [{ "port": 80 }] },
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "crowd" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { CROWD: "true" } } },
    });
    [
        ("/api/v1/namespaces/default/services", service),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget),
    ]
}

/// A required anti-affinity to pods that do not exist.
pub(super) fn repelling() -> Value {
    let term =
        json!({ "labelSelector": { "matchLabels": { "app": "missing" } }, "topologyKey": "kubernetes.io/hostname" });
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
}

/// A small object.
pub(super) fn config_map(number: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") }, "data": { "key": "value" } })
}

/// A namespace.
pub(super) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}
