//! The controller `guestbook`, on a cluster of its own.

use kubewright::kube::api::{Api, PostParams};
use kubewright::prelude::*;
use kubewright_testing::TestCluster;

use plain::controller::guestbook_controller::GuestbookReconciler;
use plain_api::v1;

#[tokio::test]
async fn a_guestbook_is_reconciled() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    cluster.install_crds(plain::operator().crds()?).await?;
    let wanted = v1::Guestbook::new("sample", v1::GuestbookSpec::default());
    let guestbooks = Api::<v1::Guestbook>::namespaced(cluster.kube(), "default");
    let guestbook = guestbooks.create(&PostParams::default(), &wanted).await?;

    // Called as the controller calls it; what it did is in the cluster then, for `cluster.wait_for(…)` and the clients.
    let client = cluster.client().clone();
    let ctx = Context::detached(client, "guestbook", &guestbook);
    let action = GuestbookReconciler
        .reconcile(Arc::new(guestbook), ctx)
        .await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}
