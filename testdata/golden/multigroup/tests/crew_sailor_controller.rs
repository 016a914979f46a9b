//! The controller `sailor`, on a cluster of its own.

use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use multigroup::controller::crew::sailor_controller::SailorReconciler;
use multigroup_api::crew::v1;

#[tokio::test]
async fn a_sailor_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(multigroup::operator().crds()?).await?;
    let wanted = v1::Sailor::new("sample", v1::SailorSpec::default());
    let sailors = Api::<v1::Sailor>::namespaced(cluster.kube(), "default");
    let sailor = sailors.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "sailor", &sailor);
    let action = SailorReconciler.reconcile(Arc::new(sailor), ctx).await?;
    assert_eq!(action, Action::await_change());
    let papers = Api::<ConfigMap>::namespaced(cluster.kube(), "default");
    let data = papers.get("sample-papers").await?.data.unwrap_or_default();
    assert_eq!(data["rank"], "Deckhand");
    Ok(())
}
