//! The controller `httproute`, on a cluster of its own.

use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use external::controller::httproute_controller::HTTPRouteReconciler;
use external_api::external::gateway_networking::v1;

#[tokio::test]
async fn an_httproute_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    let mut httproute = v1::HTTPRoute::new("sample", v1::HTTPRouteSpec::default());
    httproute.metadata.namespace = Some("default".to_owned());

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "httproute", &httproute);
    let action = HTTPRouteReconciler
        .reconcile(Arc::new(httproute), ctx)
        .await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
