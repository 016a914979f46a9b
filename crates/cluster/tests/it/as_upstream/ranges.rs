//! ServiceCIDRs: ready, and held while Services have their addresses.

use serde_json::{Value, json};

use super::{Create, Delete, Is, Step, check};

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const EXTRA: &str = "/apis/networking.k8s.io/v1/servicecidrs/extra";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn range(name: &str, cidr: &str) -> Step {
    let object = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": name },
        "spec": { "cidrs": [cidr] } });
    Create(RANGES, object)
}

/// The only condition of the range.
fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "*" })
}

#[tokio::test]
async fn ranges_of_services() {
    let labels = json!({ "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4" });
    let address = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": { "name": "10.1.0.7", "labels": labels },
        "spec": { "parentRef": { "resource": "services", "namespace": "default", "name": "web" } } });
    let finalizers = json!(["networking.k8s.io/service-cidr-finalizer"]);
    let is_ready = ready("True", "", "Kubernetes Service CIDR is ready");
    let held = ready(
        "False",
        "Terminating",
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
    );
    let steps = vec![
        Is(
            "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
            json!({ "metadata": { "finalizers": finalizers }, "status": { "conditions": [is_ready] } }),
        ),
        range("extra", "10.1.0.0/24"),
        Is(
            EXTRA,
            json!({ "metadata": { "finalizers": finalizers }, "status": { "conditions": [is_ready] } }),
        ),
        Create(ADDRESSES, address),
        Delete(EXTRA),
        Is(
            EXTRA,
            json!({ "metadata": { "deletionTimestamp": "*", "finalizers": finalizers }, "status": { "conditions": [held] } }),
        ),
        Delete("/apis/networking.k8s.io/v1/servicecidrs/kubernetes"),
        Is(
            "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
            json!({ "metadata": { "finalizers": finalizers }, "status": { "conditions": [held] } }),
        ),
    ];
    check("ranges are held by their addresses", 0, steps).await;
}
