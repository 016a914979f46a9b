//! The controller `sea-lanes-sailor`, on a cluster of its own.

use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use multigroup::controller::sea_lanes::sailor_controller::SailorReconciler;
use multigroup_api::sea_lanes::v1;

#[tokio::test]
async fn a_sailor_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(multigroup::operator().crds()?).await?;
    let wanted = v1::Sailor::new("sample", v1::SailorSpec::default());
    let sailors = Api::<v1::Sailor>::namespaced(cluster.kube(), "default");
    let sailor = sailors.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "sea-lanes-sailor", &sailor);
    let action = SailorReconciler.reconcile(Arc::new(sailor), ctx).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
