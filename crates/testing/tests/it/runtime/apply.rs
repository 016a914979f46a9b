//! `Client::apply` against a real merge: only the server knows the field managers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod, PodSpec};
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::{Cache, Client, Context, Error};
use kubewright_testing::{Result, TestCluster};
use serde_json::{Value, json};

use super::server::{self, Server, eventually, pod, raw};

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

/// A server, and the context of a Pod in it.
async fn owned() -> Result<(Server, Client, Context)> {
    let server = Server::new().await;
    let (client, owner) = (server.client(), server.put::<Pod>(pod("owner")).await);
    let owner: Pod = owner.try_parse().expect("a Pod");
    let ctx = Context::detached(client.clone(), "test", &owner);
    Ok((server, client, ctx))
}

/// A child is its owner's, and is written when it is to be otherwise, whatever others add to it.
#[tokio::test]
async fn apply_creates_patches_what_differs_and_sends_nothing_else() -> Result<()> {
    let (server, client, ctx) = owned().await?;
    let desired = |value: &str| {
        let mut desired = server::config("child", value);
        desired.metadata.namespace = None; // the owner's
        desired
    };
    client.list::<ConfigMap>(None).await?; // the kind is cached
    let created = ctx.apply(desired("1")).await?;
    let [reference] = created.metadata.owner_references.as_deref().unwrap_or_default() else {
        panic!("{created:?}")
    };
    assert_eq!((reference.kind.as_str(), reference.name.as_str()), ("Pod", "owner"));
    assert_eq!(
        (reference.controller, reference.block_owner_deletion),
        (Some(true), Some(true))
    );
    ctx.apply(desired("1")).await?;
    assert_eq!(server.writes(), 1, "nothing is sent when nothing changes");

    ctx.apply(desired("2")).await?;
    let patches = server.seen("PATCH", "configmaps");
    let sent: Value = serde_json::from_str(&patches[1].body).expect("JSON");
    assert_eq!((patches.len(), &sent["data"]), (2, &json!({ "key": "2" })));
    assert_eq!(
        (&sent["kind"], &sent["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert!(patches[1].query.contains("force=true"), "{}", patches[1].query);
    // Additions of other clients stay, and are no difference.
    let theirs = json!({ "metadata": { "namespace": "a", "name": "child" }, "data": { "theirs": "x" } });
    server.put::<ConfigMap>(theirs).await;
    let store = client.cache().pinned::<ConfigMap>().store();
    let has_theirs = |child: &ConfigMap| data(child).contains(&"theirs");
    eventually("the cache has it", || {
        store.get("a", "child").is_some_and(|child| has_theirs(&child))
    })
    .await;
    let applied = ctx.apply(desired("2")).await?;
    assert_eq!((server.writes(), has_theirs(&applied)), (2, true));
    Ok(())
}

/// A value that the server writes in another way is applied once, and not for ever: what a server prunes or normalizes
/// today it may keep tomorrow.
#[tokio::test]
async fn apply_does_not_repeat_a_patch_that_the_server_normalizes_away() -> Result<()> {
    let (server, client, ctx) = owned().await?;
    client.list::<Pod>(None).await?; // the kind is cached
    let mut desired = pod("child");
    desired["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1000m" } });
    let desired: Pod = serde_json::from_value(desired).expect("a Pod");
    for _ in 0..5 {
        let applied = serde_json::to_value(&*ctx.apply(desired.clone()).await?).expect("JSON");
        assert_eq!(applied["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    }
    assert_eq!(server.writes(), 1);
    tokio::time::sleep(Duration::from_secs(601)).await;
    ctx.apply(desired).await?;
    assert_eq!(server.writes(), 2);
    Ok(())
}

#[tokio::test]
async fn apply_refuses_what_it_may_not_own() -> Result<()> {
    let (server, _, ctx) = owned().await?;
    let mut taken = raw("taken", "1");
    taken["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "rival", "uid": "other", "controller": true }]);
    server.put::<ConfigMap>(taken).await;
    let error = ctx
        .apply(server::config("taken", "1"))
        .await
        .expect_err("owned by another");
    assert!(matches!(&error, Error::AlreadyOwned { .. }), "{error}");
    assert!(error.to_string().contains("Pod rival"), "{error}");

    let mut foreign = Namespace::default();
    foreign.metadata.name = Some("c".to_owned());
    let error = ctx.apply(foreign).await.expect_err("a pod cannot own a namespace");
    assert!(
        error.is_terminal() && error.to_string().contains("cannot own Namespace c"),
        "{error}"
    );
    let mut elsewhere = server::config("x", "1");
    elsewhere.metadata.namespace = Some("b".to_owned());
    let error = ctx.apply(elsewhere).await.expect_err("another namespace");
    assert!(error.is_terminal(), "{error}");
    let error = ctx.apply(ConfigMap::default()).await.expect_err("no name");
    assert!(error.to_string().starts_with("metadata.name:"), "{error}");
    assert_eq!(server.writes(), 0);
    Ok(())
}
