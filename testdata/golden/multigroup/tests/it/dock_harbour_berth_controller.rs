//! The controller `dock-harbour-berth`, on a cluster of its own.

use kubewright::conditions;
use kubewright::kube::api::{Api, PostParams};
use kubewright_testing::TestCluster;

use multigroup_api::dock_harbour::v1beta1;

#[tokio::test]
async fn a_berth_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    // The whole operator, with the role that it has in production.
    let running = cluster.run(multigroup::operator()).await?;
    let wanted = v1beta1::Berth::new("sample", v1beta1::BerthSpec::default());
    let berths = Api::<v1beta1::Berth>::all(cluster.kube());
    berths.create(&PostParams::default(), &wanted).await?;

    let is_ready = |object: &v1beta1::Berth| {
        let status = object.status.as_ref();
        status.is_some_and(|status| conditions::is_true(&status.conditions, "Ready"))
    };
    let namespace = None;
    cluster
        .wait_for(namespace, "sample", "is Ready", is_ready)
        .await?;
    running.stop().await?;
    Ok(())
}
