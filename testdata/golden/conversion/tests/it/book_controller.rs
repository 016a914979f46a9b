//! The controller `book`, on a cluster of its own.

use kubewright::conditions;
use kubewright::kube::api::{Api, PostParams};
use kubewright_testing::TestCluster;

use conversion_api::v1;

#[tokio::test]
async fn a_book_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    // The whole operator, with the role that it has in production.
    let running = cluster.run(conversion::operator()).await?;
    let wanted = v1::Book::new("sample", v1::BookSpec::default());
    let books = Api::<v1::Book>::namespaced(cluster.kube(), "default");
    books.create(&PostParams::default(), &wanted).await?;

    let is_ready = |object: &v1::Book| {
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
