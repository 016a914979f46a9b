//! Services of type LoadBalancer where the cluster has a range of addresses for them.

use crate::common::scenes::{check_on, create, said, until};
use crate::common::soon;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use kubewright_cluster::{Cluster, ClusterBuilder, ServiceRange};
use serde_json::{Value, json};

/// Six addresses.
fn range() -> ServiceRange {
    "10.9.0.0/29".parse().expect("a range")
}

fn balanced(name: &str, more: Value) -> Value {
    let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

fn address(service: Option<&Service>) -> Option<&str> {
    let ingress = service?.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.as_deref()
}

async fn has(services: &Api<Service>, name: &str, expected: Option<&str>) {
    until(services, name, |service| address(service) == expected).await;
}

/// Each Service has an address of its own; one that goes, or is of another type, gives it back, and the Service that
/// waits gets it. A Service of another class is left alone.
#[tokio::test]
async fn addresses_come_and_go() {
    check_on(Cluster::builder().load_balancer_range(range()), async |client: Client| {
        let services: Api<Service> = Api::default_namespaced(client.clone());
        create(&services, balanced("other", json!({ "loadBalancerClass": "ex.io/lb" }))).await;
        create(&services, balanced("asks", json!({ "loadBalancerIP": "10.9.0.2" }))).await;
        has(&services, "asks", Some("10.9.0.2")).await;
        for (at, expected) in [1, 3, 4, 5, 6].into_iter().enumerate() {
            let name = format!("s{at}");
            create(&services, balanced(&name, json!({}))).await;
            has(&services, &name, Some(&format!("10.9.0.{expected}"))).await;
        }
        assert_eq!(said(&client, "s0", "EnsuredLoadBalancer").await, "Ensured load balancer");
        create(&services, balanced("late", json!({}))).await;
        let full = "Error syncing load balancer: failed to ensure load balancer: no address of 10.9.0.0/29 is free: delete a Service of type LoadBalancer, or start the cluster with a larger --load-balancer-range";
        assert_eq!(said(&client, "late", "SyncLoadBalancerFailed").await, full);
        services.delete("s1", &DeleteParams::default()).await.expect("it is deleted");
        has(&services, "late", Some("10.9.0.3")).await;
        let plain = Patch::Merge(json!({ "spec": { "type": "ClusterIP" } }));
        services.patch("s0", &PatchParams::default(), &plain).await.expect("it is changed");
        has(&services, "s0", None).await;
        create(&services, balanced("next", json!({}))).await;
        has(&services, "next", Some("10.9.0.1")).await;
        let other = services.get("other").await.expect("it is there");
        assert_eq!(address(Some(&other)), None);
    })
    .await;
}

/// A cluster that starts again from its folder gives no address a second time, and takes none away.
#[tokio::test]
async fn addresses_outlive_the_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = || -> ClusterBuilder { Cluster::builder().load_balancer_range(range()).data_dir(folder.path()) };
    let cluster = builder().start().await.expect("a cluster starts");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    for (name, asks) in [("first", json!({})), ("asks", json!({ "loadBalancerIP": "10.9.0.4" }))] {
        create(&services, balanced(name, asks)).await;
    }
    has(&services, "first", Some("10.9.0.1")).await;
    has(&services, "asks", Some("10.9.0.4")).await;
    soon("the end", cluster.stop()).await;
    let cluster = builder().start().await.expect("a cluster starts");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    create(&services, balanced("next", json!({}))).await;
    has(&services, "next", Some("10.9.0.2")).await;
    has(&services, "first", Some("10.9.0.1")).await;
    has(&services, "asks", Some("10.9.0.4")).await;
    soon("the end", cluster.stop()).await;
}
