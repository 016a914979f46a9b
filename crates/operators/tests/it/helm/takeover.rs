//! Releases that are there already: of Helm itself, of other objects, and of an operator that was ended.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use kubewright::kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::charts;
use super::kit::{World, real_helm};

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_the_same_chart_is_taken_over_and_another_is_not() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let namespace = Some(world.namespace.as_str());
    let (chart, _running) = world.sites(charts::WEB).await;
    let path = chart.path().display().to_string();
    world.by_hand(&["install", "mine", &path, "--set", "replicas=2"]).await;
    world.create("mine", json!({}), json!({"replicas": 2})).await;
    let site = world.condition("mine", "Deployed", "True InstallSuccessful").await;
    assert_eq!(world.revisions("mine").await, "1 deployed", "nothing was to be changed");
    let deployment = world.api::<Deployment>().get("mine").await.expect("it is there");
    let owners = deployment.metadata.owner_references.unwrap_or_default();
    assert_eq!(owners.first().map(|owner| owner.uid.clone()), site.metadata.uid.clone());

    let other = charts::write(charts::STRICT);
    world
        .by_hand(&["install", "theirs", &other.path().display().to_string()])
        .await;
    world.create("theirs", json!({}), json!({})).await;
    let site = world.condition("theirs", "Irreconcilable", "True ReconcileError").await;
    let message = site.message("Irreconcilable");
    assert!(
        message.contains("found existing release with name \"theirs\" for chart \"strict\""),
        "{message}"
    );
    world.delete("theirs").await;
    world
        .cluster
        .wait_gone::<super::kit::Site>(namespace, "theirs")
        .await
        .expect("it is gone");
    assert_eq!(
        world.revisions("theirs").await,
        "1 deployed",
        "it belongs to somebody else"
    );
}

/// Writes a revision as an operator that was ended has left it.
async fn leave(world: &World, name: &str, from: u32, to: u32, status: &str) {
    let secrets = world.api::<Secret>();
    let before = secrets
        .get(&format!("sh.helm.release.v1.{name}.v{from}"))
        .await
        .expect("it is there");
    let data = before
        .data
        .clone()
        .unwrap_or_default()
        .remove("release")
        .expect("it holds a release");
    let mut text = String::new();
    let packed = BASE64_STANDARD.decode(data.0).expect("base64");
    GzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .expect("it is packed");
    let mut release: Value = serde_json::from_str(&text).expect("JSON");
    release["version"] = json!(to);
    release["info"]["status"] = json!(status);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(release.to_string().as_bytes()).expect("it is packed");
    let packed = BASE64_STANDARD.encode(packer.finish().expect("it is packed"));
    let labels = [
        ("owner", "helm".to_owned()),
        ("name", name.to_owned()),
        ("status", status.to_owned()),
        ("version", to.to_string()),
    ];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(format!("sh.helm.release.v1.{name}.v{to}")),
            labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..ObjectMeta::default()
        },
        type_: before.type_,
        data: Some([("release".to_owned(), ByteString(packed.into_bytes()))].into()),
        ..Secret::default()
    };
    match from == to {
        true => {
            let labels = json!({"metadata": {"labels": secret.metadata.labels}, "data": secret.data});
            let params = PatchParams::default();
            let name = secret.metadata.name.clone().unwrap_or_default();
            secrets.patch(&name, &params, &Patch::Merge(labels)).await.map(drop)
        }
        false => secrets.create(&PostParams::default(), &secret).await.map(drop),
    }
    .expect("it is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_did_not_end_is_taken_up() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let chart = charts::write(charts::WEB);
    let path = chart.path().display().to_string();
    for name in ["upgrading", "between", "installing"] {
        world.by_hand(&["install", name, &path]).await;
    }
    leave(&world, "upgrading", 1, 2, "pending-upgrade").await;
    leave(&world, "between", 1, 2, "pending-upgrade").await;
    leave(&world, "between", 1, 1, "superseded").await;
    leave(&world, "installing", 1, 1, "pending-install").await;
    for name in ["upgrading", "between", "installing"] {
        world.create(name, json!({}), json!({"replicas": 3})).await;
    }
    let _running = world
        .run(
            "- {group: demo.example.com, version: v1alpha1, kind: Site, chart: CHART}\n",
            &chart,
        )
        .await;
    for (name, reason) in [
        ("upgrading", "Upgrade"),
        ("between", "Upgrade"),
        ("installing", "Install"),
    ] {
        let site = world
            .condition(name, "Deployed", &format!("True {reason}Successful"))
            .await;
        assert_eq!(site.condition("Irreconcilable"), "", "{name}");
        let deployment = world.api::<Deployment>().get(name).await.expect("it is there");
        assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(3), "{name}");
        let revisions = world.revisions(name).await;
        assert!(
            revisions.ends_with("deployed") && revisions.matches("deployed").count() == 1,
            "{name}: {revisions}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_objects_at_once_have_a_release_each() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let (_chart, running) = world.sites(charts::HOOKED).await;
    let names: Vec<String> = (0..50).map(|number| format!("site-{number}")).collect();
    for name in &names {
        world.create(name, json!({}), json!({"text": name})).await;
    }
    for name in &names {
        world.condition(name, "Deployed", "True InstallSuccessful").await;
    }
    // Another operator takes them over as they are.
    running.stop().await.expect("it stops");
    let (_chart, _running) = world.sites(charts::HOOKED).await;
    world.change("site-0", json!({"text": "new"})).await;
    world.condition("site-0", "Deployed", "True UpgradeSuccessful").await;
    for name in &names[1..] {
        assert_eq!(world.revisions(name).await, "1 deployed", "{name}");
    }
}
