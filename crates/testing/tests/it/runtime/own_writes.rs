//! Reads that see own writes, where only a real API server shows the result of a write.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{DeleteParams, Patch};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;

/// K3: the patch that takes the last finalizer away is a deletion, though its answer is the object.
#[tokio::test]
async fn k3_the_end_of_the_last_finalizer_is_a_deletion() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = cluster.client();
    client.list::<ConfigMap>(Some("default")).await?;
    for round in 0..200 {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".to_owned());
        object.metadata.namespace = Some("default".to_owned());
        object.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
        let object = client.create(&object).await?;
        assert!(client.delete_with(&*object, DeleteParams::default()).await?);
        let held = client
            .get::<ConfigMap>(Some("default"), "a")
            .await?
            .expect("its finalizer holds it");
        assert!(held.metadata.deletion_timestamp.is_some(), "round {round}");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        client.patch::<ConfigMap, _>(Some("default"), "a", &patch).await?;
        let left = client.list::<ConfigMap>(Some("default")).await?;
        assert!(
            left.iter().all(|object| object.metadata.name.as_deref() != Some("a")),
            "round {round}"
        );
        assert!(
            client.get::<ConfigMap>(Some("default"), "a").await?.is_none(),
            "round {round}"
        );
    }
    Ok(())
}
