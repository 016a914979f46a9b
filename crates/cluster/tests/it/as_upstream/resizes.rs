//! Pods that are resized in place.

use kubewright_cluster::Nodes;
use serde_json::{Value, json};

use super::{Delete, Is, Merge, Refused, Says, Step, check, pod};

const POD: &str = "/api/v1/namespaces/default/pods/grows";
const RESIZE: &str = "/api/v1/namespaces/default/pods/grows/resize";
const OTHER: &str = "/api/v1/namespaces/default/pods/other";

fn asking(cpu: &str, policy: &str) -> Value {
    let policies = json!([{ "resourceName": "cpu", "restartPolicy": policy }]);
    let container =
        json!({ "name": "c", "image": "app:1", "resources": { "requests": { "cpu": cpu } }, "resizePolicy": policies });
    json!({ "containers": [container] })
}

/// The same pod with this much.
fn to(cpu: &str, policy: &str) -> Value {
    json!({ "spec": { "containers": asking(cpu, policy)["containers"] } })
}

/// The container has this much, and so much is set aside for it; it was started so often.
fn has(cpu: &str, restarts: u32) -> Step {
    let status = json!({ "resources": { "requests": { "cpu": cpu } }, "allocatedResources": { "cpu": cpu },
        "restartCount": restarts, "ready": true });
    Is(
        POD,
        json!({ "status": { "containerStatuses": [status], "phase": "Running" } }),
    )
}

fn told(reason: &'static str, message: &str, cpu: &str, generation: u32) -> Step {
    let of = format!(
        r#"{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}],"generation":{generation}"#
    );
    let error = match reason {
        "ResizeDeferred" => {
            r#","error":"Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000""#
        }
        _ => "",
    };
    Says(
        reason,
        Box::leak(format!("Pod resize {message}: {of}{error}}}").into_boxed_str()),
    )
}

#[tokio::test]
async fn resizes_in_place() {
    let nodes = || Nodes::from(1).capacity("cpu", "4");
    let steps = vec![
        pod("grows", asking("1", "NotRequired")),
        pod("other", asking("1", "NotRequired")),
        has("1", 0),
        Is(OTHER, json!({ "status": { "phase": "Running" } })),
        Merge(RESIZE, to("2", "NotRequired")),
        told("ResizeStarted", "started", "2", 2),
        told("ResizeCompleted", "completed", "2", 2),
        has("2", 0),
        Refused(
            RESIZE,
            to("5", "NotRequired"),
            "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000",
        ),
        Merge(RESIZE, to("4", "NotRequired")),
        told("ResizeDeferred", "Deferred", "4", 3),
        has("2", 0),
        Delete(OTHER),
        told("ResizeCompleted", "completed", "4", 3),
        has("4", 0),
        Merge(RESIZE, to("1", "NotRequired")),
        has("1", 0),
    ];
    check("a pod grows when there is room", nodes(), steps).await;

    let steps = vec![
        pod("grows", asking("1", "RestartContainer")),
        has("1", 0),
        Merge(RESIZE, to("2", "RestartContainer")),
        has("2", 1),
        Says("Killing", "Container c resize requires restart"),
    ];
    check("a container is started anew for its size", nodes(), steps).await;
}
