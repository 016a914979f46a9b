//! The controller `sea-lanes-sailor`, on a cluster of its own.

use kubewright::conditions;
use kubewright::kube::api::{Api, PostParams};
use kubewright_testing::TestCluster;

use multigroup_api::sea_lanes::v1;

#[tokio::test]
async fn a_sailor_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    // The whole operator, with the role that it has in production.
    let running = cluster.run(multigroup::operator()).await?;
    let wanted = v1::Sailor::new("sample", v1::SailorSpec::default());
    let sailors = Api::<v1::Sailor>::namespaced(cluster.kube(), "default");
    sailors.create(&PostParams::default(), &wanted).await?;

    let is_ready = |object: &v1::Sailor| {
        let status = object.status.as_ref();
        status.is_some_and(|status| conditions::is_true(&status.conditions, "Ready"))
    };
    let namespace = Some("default");
    cluster
        .wait_for(namespace, "sample", "is Ready", is_ready)
        .await?;
    running.stop().await?;
    Ok(())
}
