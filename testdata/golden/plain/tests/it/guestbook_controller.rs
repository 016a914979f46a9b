//! The controller `guestbook`, on a cluster of its own.

use kubewright::conditions;
use kubewright::kube::api::{Api, PostParams};
use kubewright_testing::TestCluster;

use plain_api::v1;

#[tokio::test]
async fn a_guestbook_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    // The whole operator, with the role that it has in production.
    let running = cluster.run(plain::operator()).await?;
    let wanted = v1::Guestbook::new("sample", v1::GuestbookSpec::default());
    let guestbooks = Api::<v1::Guestbook>::namespaced(cluster.kube(), "default");
    guestbooks.create(&PostParams::default(), &wanted).await?;

    let is_ready = |object: &v1::Guestbook| {
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
