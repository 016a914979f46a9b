//! The life of a release: installed, upgraded, repaired, uninstalled.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kubewright::kube::Api;
use kubewright::kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::charts;
use super::kit::{World, real_helm};

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_lives_and_goes() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let namespace = Some(world.namespace.as_str());
    let (_chart, _running) = world.sites(charts::WEB).await;
    world
        .create(
            "shop",
            json!({}),
            json!({"replicas": 2, "clusterRole": true, "kept": true}),
        )
        .await;

    let site = world.condition("shop", "Deployed", "True InstallSuccessful").await;
    assert_eq!(site.condition("Initialized"), "True");
    assert_eq!(
        (site.condition("ReleaseFailed"), site.condition("Irreconcilable")),
        (String::new(), String::new())
    );
    assert_eq!(site.message("Deployed").trim(), "shop is there.");
    let release = site
        .status
        .clone()
        .unwrap_or_default()
        .deployed_release
        .unwrap_or_default();
    assert_eq!(release.name, "shop");
    assert!(release.manifest.contains("kind: Deployment") && !release.manifest.contains("ownerReferences"));
    let finalizers = site.metadata.finalizers.clone().unwrap_or_default();
    assert_eq!(finalizers, ["helm.sdk.operatorframework.io/uninstall-release"]);
    assert_eq!(world.revisions("shop").await, "1 deployed");
    assert!(world.by_hand(&["history", "shop"]).await.contains("Install complete"));

    // Owned: by reference, by annotation where a reference leads nowhere, and so are the release's records.
    let uid = site.metadata.uid.clone().unwrap_or_default();
    let deployment = world.api::<Deployment>().get("shop").await.expect("it is there");
    let owners = deployment.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>(),
        std::slice::from_ref(&uid)
    );
    let role = format!("{}-shop", world.namespace);
    let role_api: Api<ClusterRole> = Api::all(world.cluster.kube());
    let found = role_api.get(&role).await.expect("it is there");
    assert_eq!(found.metadata.owner_references, None);
    let annotations = found.metadata.annotations.unwrap_or_default();
    assert_eq!(
        annotations["operator-sdk/primary-resource"],
        format!("{}/shop", world.namespace)
    );
    assert_eq!(
        annotations["operator-sdk/primary-resource-type"],
        "Site.demo.example.com"
    );
    let record = world
        .api::<Secret>()
        .get("sh.helm.release.v1.shop.v1")
        .await
        .expect("it is there");
    let owners = record.metadata.owner_references.unwrap_or_default();
    assert_eq!(owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>(), [uid]);

    // Other values are an upgrade.
    world.change("shop", json!({"replicas": 3})).await;
    world.condition("shop", "Deployed", "True UpgradeSuccessful").await;
    assert_eq!(world.revisions("shop").await, "1 superseded, 2 deployed");
    let deployment = world.api::<Deployment>().get("shop").await.expect("it is there");
    assert_eq!(replicas(&deployment), Some(3));

    // What others change and delete comes back, and is no revision. What they add stays.
    let drift = json!({"metadata": {"labels": {"theirs": "x"}}, "spec": {"replicas": 9}});
    let params = PatchParams::default();
    world
        .api::<Deployment>()
        .patch("shop", &params, &Patch::Merge(drift))
        .await
        .expect("it is changed");
    let repaired = world
        .cluster
        .wait_for::<Deployment>(namespace, "shop", "3 replicas again", |it| replicas(it) == Some(3));
    let repaired = repaired.await.expect("it is repaired");
    assert_eq!(repaired.metadata.labels.clone().unwrap_or_default()["theirs"], "x");
    let old = world
        .api::<Service>()
        .get("shop")
        .await
        .expect("it is there")
        .metadata
        .uid;
    world
        .api::<Service>()
        .delete("shop", &Default::default())
        .await
        .expect("it is deleted");
    let new = world
        .cluster
        .wait_for::<Service>(namespace, "shop", "a new one", |it| it.metadata.uid != old)
        .await;
    new.expect("it is made again");
    let rules = Patch::Merge(json!({"rules": []}));
    role_api.patch(&role, &params, &rules).await.expect("it is changed");
    let whole = |it: &ClusterRole| it.rules.iter().flatten().count() == 1;
    world
        .cluster
        .wait_for::<ClusterRole>(None, &role, "its rule again", whole)
        .await
        .expect("it is repaired");
    assert_eq!(world.revisions("shop").await, "1 superseded, 2 deployed");

    // And everything goes, but for what the chart keeps.
    world.delete("shop").await;
    world
        .cluster
        .wait_gone::<super::kit::Site>(namespace, "shop")
        .await
        .expect("it is gone");
    assert_eq!(world.revisions("shop").await, "");
    world
        .cluster
        .wait_gone::<Deployment>(namespace, "shop")
        .await
        .expect("it is gone");
    world
        .cluster
        .wait_gone::<Service>(namespace, "shop")
        .await
        .expect("it is gone");
    world
        .cluster
        .wait_gone::<ClusterRole>(None, &role)
        .await
        .expect("it is gone");
    assert!(
        world.api::<ConfigMap>().get("shop-kept").await.is_ok(),
        "the chart keeps it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_hooks_go_with_their_owner() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let namespace = Some(world.namespace.as_str());
    let (_chart, _running) = world.sites(charts::HOOKED).await;
    world
        .create(
            "a",
            json!({"helm.sdk.operatorframework.io/uninstall-wait": "true"}),
            json!({}),
        )
        .await;
    world.condition("a", "Deployed", "True InstallSuccessful").await;
    let hook = world.api::<ConfigMap>().get("a-hook").await.expect("it is there");
    assert_eq!(hook.metadata.owner_references.map(|owners| owners.len()), Some(1));
    let disabled = json!({"helm.sdk.operatorframework.io/install-disable-hooks": "true"});
    world.create("b", disabled, json!({})).await;
    world.condition("b", "Deployed", "True InstallSuccessful").await;
    assert!(
        world.api::<ConfigMap>().get("b-hook").await.is_err(),
        "hooks are disabled"
    );
    world.delete("a").await;
    world
        .cluster
        .wait_gone::<super::kit::Site>(namespace, "a")
        .await
        .expect("it is gone");
    world
        .cluster
        .wait_gone::<ConfigMap>(namespace, "a-hook")
        .await
        .expect("it is gone");
    world
        .cluster
        .wait_gone::<ConfigMap>(namespace, "a")
        .await
        .expect("it is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_overrides_values() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let chart = charts::write(charts::WEB);
    let watches = r#"
- group: demo.example.com
  version: v1alpha1
  kind: Site
  chart: CHART
  selector: {matchLabels: {mine: "yes"}}
  overrideValues:
    image.name: '{{ ("$IMAGE" | split ":")._0 }}'
    image.tag: '{{ ("$IMAGE" | split ":")._1 }}'
    password: $NOT_SET
"#;
    let _running = world.run(watches, &chart).await;
    world.create("other", json!({}), json!({})).await;
    world
        .create("shop", json!({}), json!({"image": {"name": "theirs", "tag": "1"}}))
        .await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"mine": "yes"}}}));
    let params = PatchParams::default();
    world
        .api::<super::kit::Site>()
        .patch("shop", &params, &labels)
        .await
        .expect("it is changed");
    world.condition("shop", "Deployed", "True InstallSuccessful").await;
    let deployment = world.api::<Deployment>().get("shop").await.expect("it is there");
    let image = deployment
        .spec
        .and_then(|spec| spec.template.spec)
        .and_then(|spec| spec.containers[0].image.clone());
    assert_eq!(image.as_deref(), Some("mine/web:7"));
    let told = |event: &Event| event.reason.as_deref() == Some("OverrideValuesInUse");
    let events = world
        .cluster
        .wait_for_all::<Event>(&world.namespace, "three overrides are told", |events| {
            events.iter().filter(|event| told(event)).count() == 3
        });
    let events = events.await.expect("they are told");
    let tag = events
        .iter()
        .filter_map(|event| event.message.clone())
        .find(|message| message.contains("image.tag"));
    assert_eq!(
        tag.as_deref(),
        Some("Chart value \"image.tag\" overridden to \"7\" by operator's watches.yaml")
    );
    // The selector leaves the other one alone.
    let all = world
        .api::<Deployment>()
        .list(&ListParams::default())
        .await
        .expect("Deployments");
    assert_eq!(all.items.len(), 1);
}
