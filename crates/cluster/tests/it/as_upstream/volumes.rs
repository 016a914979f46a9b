//! Volumes of zones: where a class makes them, and which pods can use them afterwards.

use kubewright_cluster::Nodes;
use serde_json::{Value, json};

use super::{CLAIM, CLASSES, Create, Delete, Is, Says, Step, check, claim, pod};

const POD: &str = "/api/v1/namespaces/default/pods/first";
const ZONE: &str = "topology.kubernetes.io/zone";

fn class(more: Value) -> Step {
    let mut class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "zonal" },
        "provisioner": "kubewright.dev/simulated", "volumeBindingMode": "WaitForFirstConsumer" });
    for (key, value) in more.as_object().into_iter().flatten() {
        class[key] = value.clone();
    }
    Create(CLASSES, class)
}

fn in_zones(zones: &[&str]) -> Value {
    json!({ "allowedTopologies": [{ "matchLabelExpressions": [{ "key": ZONE, "values": zones }] }] })
}

fn using(node: Value) -> Value {
    let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
    json!({ "containers": [{ "name": "c", "image": "app:1" }], "volumes": volumes, "nodeSelector": node })
}

#[tokio::test]
async fn volumes_of_zones() {
    let nodes = || Nodes::from(2).zones(["a", "b"]);
    let bound = || Is(CLAIM, json!({ "status": { "phase": "Bound" } }));
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": ZONE, "operator": "In", "values": ["b"] }] }] } });
    let volume = || {
        Is(
            super::VOLUMES,
            json!({ "items": [{ "spec": { "nodeAffinity": affinity } }] }),
        )
    };
    let steps = vec![
        class(in_zones(&["b", "c"])),
        claim("c", "zonal"),
        pod("first", using(Value::Null)),
        Is(
            POD,
            json!({ "spec": { "nodeName": "node-1" }, "status": { "phase": "Running" } }),
        ),
        bound(),
        volume(),
        Delete(POD),
        Is(POD, Value::Null),
        pod("second", using(json!({ ZONE: "a" }))),
        Says(
            "FailedScheduling",
            "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
    ];
    check("a volume is made in an allowed zone, and used there", nodes(), steps).await;

    let steps = vec![
        class(json!({})),
        claim("c", "zonal"),
        pod("first", using(json!({ ZONE: "b" }))),
        Is(POD, json!({ "spec": { "nodeName": "node-1" } })),
        bound(),
        volume(),
    ];
    check("a volume is made in the zone of its first pod", nodes(), steps).await;

    let steps = vec![
        class(in_zones(&["nowhere"])),
        claim("c", "zonal"),
        pod("first", using(Value::Null)),
        Says(
            "FailedScheduling",
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
    ];
    check("no node is in an allowed zone", nodes(), steps).await;

    let mut at_once = in_zones(&["b"]);
    at_once["volumeBindingMode"] = "Immediate".into();
    let steps = vec![
        class(at_once),
        claim("c", "zonal"),
        bound(),
        volume(),
        pod("first", using(Value::Null)),
        Is(POD, json!({ "spec": { "nodeName": "node-1" } })),
    ];
    check("a volume that is made at once is in an allowed zone", nodes(), steps).await;
}
