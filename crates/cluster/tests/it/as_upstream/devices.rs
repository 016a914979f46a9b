//! Claims to devices.

use serde_json::{Value, json};

use super::{Allocate, Create, DEVICE_CLAIMS, Is, Merge, PODS, Pod, Says, Step, check};

const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";

/// A pod with a claim from the template `gpu`.
fn pod(name: &str, node: Option<&str>) -> Step {
    let resources = json!({ "claims": [{ "name": "g" }] });
    let container = json!({ "name": "c", "image": "app:1", "resources": resources });
    let claim = json!({ "name": "g", "resourceClaimTemplateName": "gpu" });
    let spec = json!({ "nodeName": node, "containers": [container], "resourceClaims": [claim] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
    Create(PODS, pod)
}

fn template() -> Step {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu" } });
    let spec = json!({ "metadata": { "labels": { "from": "gpu" }, "annotations": { "note": "x" } },
        "spec": { "devices": { "requests": [request] } } });
    Create(
        TEMPLATES,
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": "gpu" }, "spec": spec }),
    )
}

/// All claims.
fn claims(items: Value) -> Step {
    Is(DEVICE_CLAIMS, json!({ "items": items }))
}

#[tokio::test]
async fn claims_from_a_template() {
    let early = "/api/v1/namespaces/default/pods/early";
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "early", "controller": true,
        "blockOwnerDeletion": null });
    let metadata = json!({ "generateName": "early-g-", "labels": { "from": "gpu" }, "finalizers": null,
        "annotations": { "note": "x", "resource.kubernetes.io/pod-claim-name": "g" }, "ownerReferences": [owner] });
    let exactly = json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1 });
    let spec = json!({ "devices": { "requests": [{ "name": "r", "exactly": exactly }] } });
    let message = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are \
                   available: 1 Preemption is not helpful for scheduling.";
    let waits = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }]);
    let steps = vec![
        pod("early", None),
        Says(
            "FailedResourceClaimCreation",
            "PodResourceClaim g: resource claim template \"gpu\": resourceclaimtemplate.resource.k8s.io \"gpu\" not found",
        ),
        Is(
            early,
            json!({ "status": { "conditions": null, "resourceClaimStatuses": null } }),
        ),
        template(),
        claims(json!([{ "metadata": metadata, "spec": spec, "status": {} }])),
        Is(
            early,
            json!({ "status": { "conditions": waits, "resourceClaimStatuses": [{ "name": "g", "resourceClaimName": "*" }] } }),
        ),
        Says("FailedScheduling", message),
    ];
    check("a pod whose claim nothing allocates", 1, steps).await;
}

#[tokio::test]
async fn claims_of_pods_that_end() {
    let user = json!({ "resource": "pods", "name": "work", "uid": "*" });
    let steps = vec![
        template(),
        pod("work", Some("node-9")),
        claims(json!([{ "status": { "reservedFor": null } }])),
        Allocate,
        claims(json!([{ "status": { "reservedFor": [user] } }])),
        Pod(None, json!({ "phase": "Succeeded" })),
        claims(json!([])),
        Is(
            "/api/v1/namespaces/default/pods/work",
            json!({ "status": { "phase": "Succeeded" } }),
        ),
    ];
    check("a pod that was bound by hand", 0, steps).await;

    let claim = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/shared";
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu" } });
    let shared = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "shared" },
        "spec": { "devices": { "requests": [request] } } });
    let gone = json!({ "resource": "pods", "name": "gone", "uid": "7a7a7a7a-0000-4000-8000-000000000000" });
    let steps = vec![
        Create(DEVICE_CLAIMS, shared),
        Merge(
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/shared/status",
            json!({ "status": { "allocation": {}, "reservedFor": [gone] } }),
        ),
        Is(claim, json!({ "status": { "reservedFor": null, "allocation": {} } })),
    ];
    check("a claim that a pod reserved which is gone", 0, steps).await;
}
