//! A long life: the leader goes every minute, watches are cut every ten seconds, and a kind cannot be listed.

use std::time::Duration;

use kubewright_testing::Cluster;

use super::*;

async fn soak(time: Duration) -> Outcome {
    let cluster = TestCluster::in_virtual_time("2026-01-01T00:00:00Z".parse()?, Cluster::builder()).await?;
    let own = json!({"metadata": {"name": sidecarset::controller::revisions::namespace()}});
    let own: Namespace = serde_json::from_value(own)?;
    Api::all(cluster.kube()).create(&PostParams::default(), &own).await?;
    let soak = cluster.soak(sidecarset::operator).await?;
    let sets: Api<SidecarSet> = Api::all(cluster.kube());
    soak.live(time, async |round| {
        let image = format!("agent:{}", 1 + round % 2);
        if round == 0 {
            let set = SidecarSet::new("agents", serde_json::from_value(agent(&image))?);
            sets.create(&PostParams::default(), &set).await?;
            deployment(&cluster, "web", 2).await?;
        } else {
            let patch = Patch::Merge(json!({"spec": containers(&image)}));
            sets.patch("agents", &PatchParams::default(), &patch).await?;
        }
        let updated = |set: &SidecarSet| counts(set) == Some([2, 2, 2, 2]);
        cluster
            .wait_for(NoNamespace, "agents", "is in all pods", updated)
            .await?;
        Outcome::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_life_of_leaders_that_go_leaves_nothing_behind() -> Outcome {
    soak(Duration::from_secs(10 * 60)).await
}

#[tokio::test]
#[ignore = "takes minutes: .ci/night soaks"]
async fn a_day_of_leaders_that_go_leaves_nothing_behind() -> Outcome {
    soak(Duration::from_secs(24 * 60 * 60)).await
}
