//! The controller `sidecarset`, on a cluster of its own.

use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use sidecarset::controller::sidecarset_controller::SidecarSetReconciler;
use sidecarset_api::v1alpha1;

#[tokio::test]
async fn a_sidecarset_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(sidecarset::operator().crds()?).await?;
    let wanted = v1alpha1::SidecarSet::new("sample", v1alpha1::SidecarSetSpec::default());
    let sidecarsets = Api::<v1alpha1::SidecarSet>::all(cluster.kube());
    let sidecarset = sidecarsets.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "sidecarset", &sidecarset);
    let action = SidecarSetReconciler.reconcile(Arc::new(sidecarset), ctx).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
