//! `Client::apply` against a real merge: only the server knows the field managers.

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::{Cache, Client};
use kubewright_testing::{Result, TestCluster};
use serde_json::{Value, json};

fn config(pairs: &[(&str, &str)]) -> ConfigMap {
    let mut config = ConfigMap {
        data: Some(
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        ..Default::default()
    };
    config.metadata.name = Some("c".to_owned());
    config.metadata.namespace = Some("default".to_owned());
    config
}

fn data(config: &ConfigMap) -> Vec<&str> {
    config.data.iter().flatten().map(|(key, _)| key.as_str()).collect()
}

/// A field that is no longer mentioned goes, fields of other clients stay, and nothing is sent that changes nothing.
#[tokio::test]
async fn fields_that_are_no_longer_mentioned_go_and_those_of_others_stay() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let client = Client::new(cluster.kube(), Cache::new(cluster.kube())).with_field_manager("test");
    client.apply(config(&[("a", "1"), ("b", "1")])).await?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let theirs = Patch::Merge(json!({ "data": { "theirs": "x" } }));
    api.patch("c", &PatchParams::apply("somebody"), &theirs).await?;
    let applied = client.apply(config(&[("a", "2")])).await?;
    assert_eq!(data(&applied), ["a", "theirs"]);
    let again = client.apply(config(&[("a", "2")])).await?;
    assert_eq!(again.metadata.resource_version, applied.metadata.resource_version);
    Ok(())
}

/// A list merges by its keys, and fields of its elements beyond the linked types stay.
#[tokio::test]
async fn lists_merge_by_their_keys() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let client = Client::new(cluster.kube(), Cache::new(cluster.kube())).with_field_manager("test");
    let mut pod = Pod {
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "main".to_owned(),
                image: Some("a".to_owned()),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    pod.metadata.name = Some("p".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    client.apply(pod.clone()).await?;
    let api: Api<Pod> = Api::namespaced(cluster.kube(), "default");
    let theirs = json!({ "metadata": { "finalizers": ["example.com/theirs"] } });
    api.patch("p", &PatchParams::apply("somebody"), &Patch::Merge(theirs))
        .await?;
    pod.metadata.finalizers = Some(vec!["example.com/ours".to_owned()]);
    if let Some(spec) = &mut pod.spec {
        spec.containers[0].image = Some("b".to_owned());
    }
    let applied = client.apply(pod).await?;
    let json: Value = serde_json::to_value(&*applied).expect("an object");
    assert_eq!(json["spec"]["containers"][0]["image"], "b");
    assert_eq!(json["spec"]["containers"][0]["imagePullPolicy"], "Always", "{json}");
    assert_eq!(
        json["metadata"]["finalizers"].as_array().map(Vec::len),
        Some(2),
        "{json}"
    );
    Ok(())
}
