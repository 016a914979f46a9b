//! Hints of EndpointSlices for the annotation `service.kubernetes.io/topology-mode`.

use kubewright_cluster::Nodes;
use serde_json::{Value, json};

use super::{Create, Is, Merge, PODS, SLICES, Says, Step, check};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SERVICE: &str = "/api/v1/namespaces/default/services/web";

fn service() -> Step {
    let metadata = json!({ "name": "web", "annotations": { "service.kubernetes.io/topology-mode": "Auto" } });
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    Create(
        SERVICES,
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec }),
    )
}

fn pod(name: &str, node: &str) -> Step {
    let metadata = json!({ "name": name, "labels": { "app": "web" } });
    let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "app:1" }] });
    Create(
        PODS,
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }),
    )
}

/// The only slice, with these hints of its endpoints in the order of their names.
fn hints(zones: &[Option<&str>]) -> Step {
    let endpoint = |zone: &Option<&str>| {
        let hints = zone.map_or(Value::Null, |zone| json!({ "forZones": [{ "name": zone }] }));
        json!({ "hints": hints, "conditions": { "ready": true } })
    };
    let endpoints: Vec<Value> = zones.iter().map(endpoint).collect();
    Is(SLICES, json!({ "items": [{ "endpoints": endpoints }] }))
}

#[tokio::test]
async fn hints_by_the_sizes_of_zones() {
    let steps = vec![
        pod("a", "node-0"),
        Is(
            "/api/v1/namespaces/default/pods/a",
            json!({ "status": { "podIP": "*", "phase": "Running" } }),
        ),
        service(),
        Says(
            "TopologyAwareHintsDisabled",
            "Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4",
        ),
        hints(&[None]),
        pod("b", "node-1"),
        Says(
            "TopologyAwareHintsEnabled",
            "Topology Aware Hints has been enabled, addressType: IPv4",
        ),
        hints(&[Some("x"), Some("y")]),
        Merge(
            SERVICE,
            json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Disabled" } } }),
        ),
        Says(
            "TopologyAwareHintsDisabled",
            "Topology Aware Hints has been disabled, addressType: IPv4",
        ),
        hints(&[None, None]),
    ];
    check("two zones of one size", Nodes::from(2).zones(["x", "y"]), steps).await;

    let steps = vec![
        service(),
        pod("a", "node-0"),
        Says(
            "TopologyAwareHintsDisabled",
            "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4",
        ),
    ];
    check("nodes without a zone", 2, steps).await;
}
