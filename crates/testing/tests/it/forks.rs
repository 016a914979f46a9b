//! Clusters that begin with the contents of another one.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kubewright::kube::api::PostParams;
use kubewright::kube::{Api, Client};
use kubewright_testing::{Cluster, Controllers, Result};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).expect("a ConfigMap")
}

async fn create(client: Client, name: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &map(name))
        .await
        .expect("it is created");
}

#[tokio::test]
async fn a_fork_has_what_the_cluster_had_and_neither_sees_the_other() -> Result<()> {
    let builder = || Cluster::builder().controllers(Controllers::None);
    let first = builder().start().await?;
    create(first.client(), "before").await;
    let then = first.api().resource_version();
    let point = first.fork_point().expect("it is in memory");
    create(first.client(), "after").await;
    let left = builder().fork(&point).start().await?;
    let right = builder().fork(&point).start().await?;
    assert_eq!([&left, &right].map(|fork| fork.api().resource_version()), [then; 2]);
    create(left.client(), "left").await;
    create(right.client(), "right").await;
    for (cluster, own) in [(&first, "after"), (&left, "left"), (&right, "right")] {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
        for name in ["before", "after", "left", "right"] {
            let found = maps.get_opt(name).await.expect("an answer");
            assert_eq!(found.is_some(), name == own || name == "before", "{own}: {name}");
        }
        let changes = cluster.api().changes_after("configmaps", then);
        let keys: Vec<&str> = changes.iter().map(|change| &*change.key).collect();
        assert_eq!(keys, [format!("default/{own}")]);
    }
    // What the cluster has of its own accord is there once.
    let nodes: Api<Node> = Api::all(left.client());
    assert_eq!(nodes.list(&Default::default()).await.expect("an answer").items.len(), 0);
    assert_eq!(
        left.api().entries("namespaces").len(),
        first.api().entries("namespaces").len()
    );
    Ok(())
}
