//! The controller `dock-harbour-berth`, on a cluster of its own.

use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use multigroup::controller::dock_harbour::berth_controller::BerthReconciler;
use multigroup_api::dock_harbour::v1beta1;

#[tokio::test]
async fn a_berth_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(multigroup::operator().crds()?).await?;
    let wanted = v1beta1::Berth::new("sample", v1beta1::BerthSpec::default());
    let berths = Api::<v1beta1::Berth>::all(cluster.kube());
    let berth = berths.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "dock-harbour-berth", &berth);
    let action = BerthReconciler.reconcile(Arc::new(berth), ctx).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
