//! The controller `pod`, on a cluster of its own.

use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use core_operator::controller::pod_controller::PodReconciler;
use kubewright::k8s_openapi::api::core::v1;

#[tokio::test]
async fn a_pod_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    let mut pod = v1::Pod::default();
    pod.metadata.name = Some("sample".to_owned());
    pod.metadata.namespace = Some("default".to_owned());

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "pod", &pod);
    let action = PodReconciler.reconcile(Arc::new(pod), ctx).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
