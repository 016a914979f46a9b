//! The controller `book`, on a cluster of its own.

use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use conversion::controller::book_controller::BookReconciler;
use conversion_api::v1;

#[tokio::test]
async fn a_book_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(conversion::operator().crds()?).await?;
    let wanted = v1::Book::new("sample", v1::BookSpec::default());
    let books = Api::<v1::Book>::namespaced(cluster.kube(), "default");
    let book = books.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "book", &book);
    let action = BookReconciler.reconcile(Arc::new(book), ctx).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
