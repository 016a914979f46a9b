//! Objects that may be adopted: those without a controller.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::Patch;
use kubewright::kube::core::Selector;
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};

async fn names(cluster: &TestCluster, namespace: Option<&str>, labels: &Selector) -> Result<Vec<String>> {
    let found = cluster.client().orphans::<ConfigMap>(namespace, labels).await?;
    let mut names: Vec<String> = found.iter().filter_map(|object| object.metadata.name.clone()).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn orphans_are_what_no_controller_owns() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = cluster.client();
    let owner = |controller: bool| {
        json!([{"apiVersion": "v1", "kind": "Secret", "name": "o", "uid": "2b1c8a58-6f3f-4a44-a2d2-1f6f0c2b8b11",
            "controller": controller}])
    };
    let create = async |namespace: &str, name: &str, app: &str, owners: Value| -> Result<()> {
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}, "ownerReferences": owners});
        let object: ConfigMap = serde_json::from_value(json!({"metadata": metadata})).expect("it is a ConfigMap");
        client.create(&object).await?;
        Ok(())
    };
    create("default", "free", "a", json!([])).await?;
    create("default", "owned", "a", owner(false)).await?;
    create("default", "controlled", "a", owner(true)).await?;
    create("default", "other", "b", json!([])).await?;
    create("kube-public", "far", "a", json!([])).await?;
    let labels: Selector = Selector::from_iter([("app", "a")]);
    assert_eq!(names(&cluster, Some("default"), &labels).await?, ["free", "owned"]);
    assert_eq!(names(&cluster, Some("kube-public"), &labels).await?, ["far"]);
    assert_eq!(names(&cluster, None, &labels).await?, ["far", "free", "owned"]);
    // A read after an own write sees it: adopted, and released.
    let owners = |owners: Value| Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    client
        .patch::<ConfigMap, _>(Some("default"), "free", &owners(owner(true)))
        .await?;
    client
        .patch::<ConfigMap, _>(Some("default"), "controlled", &owners(Value::Null))
        .await?;
    assert_eq!(
        names(&cluster, Some("default"), &labels).await?,
        ["controlled", "owned"]
    );
    Ok(())
}
