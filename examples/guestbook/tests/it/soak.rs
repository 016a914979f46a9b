//! A long life: the leader goes every minute, watches are cut every ten seconds, and a kind cannot be listed.

use std::time::Duration;

use guestbook::Guestbook;
use kubewright::kube::api::{Api, Patch, PatchParams};
use kubewright_testing::{Cluster, Result, TestCluster};
use serde_json::json;

async fn soak(time: Duration) -> Result<()> {
    // ANCHOR: soak
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder()).await?;
    let soak = cluster.soak(guestbook::operator).await?;
    let guestbooks: Api<Guestbook> = Api::namespaced(cluster.kube(), "default");
    soak.live(time, async |round| {
        let size = 1 + (round % 2) as i32;
        let guestbook = json!({
            "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "hello"},
            "spec": {"size": size, "image": "guestbook:1"},
        });
        let apply = PatchParams::apply("user");
        guestbooks.patch("hello", &apply, &Patch::Apply(guestbook)).await?;
        let has_size = |guestbook: &Guestbook| {
            let status = guestbook.status.as_ref();
            guestbook.is_ready() && status.is_some_and(|status| status.ready_replicas == size)
        };
        cluster.wait_for("default", "hello", "has its size", has_size).await?;
        Result::Ok(())
    })
    .await
    // ANCHOR_END: soak
}

#[tokio::test]
async fn a_life_of_leaders_that_go_leaves_nothing_behind() -> Result<()> {
    soak(Duration::from_secs(10 * 60)).await
}

#[tokio::test]
#[ignore = "takes minutes: .ci/night soaks"]
async fn a_day_of_leaders_that_go_leaves_nothing_behind() -> Result<()> {
    soak(Duration::from_secs(24 * 60 * 60)).await
}
