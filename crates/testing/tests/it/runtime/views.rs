//! Facts that the cache keeps beside objects, with a real API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::View;
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;

// ANCHOR: view
/// How much a ConfigMap says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Size(usize);

impl View<ConfigMap> for Size {
    fn of(config: &ConfigMap) -> Size {
        Size(config.data.iter().flatten().map(|(_, value)| value.len()).sum())
    }
}
// ANCHOR_END: view

/// How many keys it has: a second view of the same objects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keys(usize);

impl View<ConfigMap> for Keys {
    fn of(config: &ConfigMap) -> Keys {
        Keys(config.data.as_ref().map_or(0, BTreeMap::len))
    }
}

/// Views are those of the objects that the owner has now, own writes included; each version has its own.
#[tokio::test]
async fn views_follow_their_objects() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = cluster.client();
    let config = |name: &str, owner: Option<&str>, data: &[&str]| -> ConfigMap {
        let owners = owner
            .map(|uid| json!([{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": uid, "controller": true}]));
        let data: BTreeMap<_, _> = data
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect();
        let metadata = json!({"namespace": "default", "name": name, "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("it is a ConfigMap")
    };
    let check = async |sizes: &[usize], keys: &[usize]| -> Result<()> {
        let mut seen = client.owned_views::<ConfigMap, Size>(Some("default"), "mine").await?;
        seen.sort();
        assert_eq!(seen.iter().map(|size| size.0).collect::<Vec<_>>(), sizes);
        let mut seen = client.owned_views::<ConfigMap, Keys>(Some("default"), "mine").await?;
        seen.sort();
        assert_eq!(seen.iter().map(|keys| keys.0).collect::<Vec<_>>(), keys);
        Ok(())
    };
    check(&[], &[]).await?;
    let first = client.create(&config("first", Some("mine"), &["a"])).await?;
    client.create(&config("others", Some("another"), &["ab"])).await?;
    client.create(&config("free", None, &["abc"])).await?;
    check(&[1], &[1]).await?;
    client.create(&config("second", Some("mine"), &["abcd", ""])).await?;
    check(&[1, 4], &[1, 2]).await?;
    let mut longer = (*first).clone();
    longer.data = config("", None, &["abcde"]).data;
    let longer = client.update(&longer).await?;
    check(&[4, 5], &[1, 2]).await?;
    client.delete(&*longer).await?;
    check(&[4], &[2]).await?;
    Ok(())
}
