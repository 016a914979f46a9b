//! What a role asks of the cluster, on its way through the proxy. The test plays the role, with the kubeconfig of a run
//! that waits.

use std::fs;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright::kube::core::ObjectMeta;
use kubewright::kube::{self, Api, Config};
use serde_json::json;

use crate::support::{Scene, json as read, until};

/// The client of the run of `a`, which waits.
async fn role(scene: &Scene) -> kube::Client {
    let folder = scene.runs("a");
    until("it runs", || folder.join("waits").exists()).await;
    let path = read(&folder.join("env/envvars"))["KUBECONFIG"]
        .as_str()
        .unwrap()
        .to_owned();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    kubewright::connect(config).unwrap()
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn what_a_role_makes_is_owned_and_its_changes_lead_to_a_run() {
    let scene = Scene::new("").await;
    let elsewhere = scene.cluster.namespace().await.unwrap();
    let running = scene.run().await;
    scene.create("a", "waits", &[]).await;
    let client = role(&scene).await;
    let job = scene.api().get("a").await.unwrap();

    let maps = Api::<ConfigMap>::namespaced(client.clone(), &scene.namespace);
    let made = maps.create(&Default::default(), &map("m")).await.unwrap();
    let owners = made.metadata.owner_references.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (owners[0].kind.as_str(), Some(&owners[0].uid)),
        ("Job", job.metadata.uid.as_ref())
    );

    let others = Api::<ConfigMap>::namespaced(client.clone(), &elsewhere);
    let made = others.create(&Default::default(), &map("m")).await.unwrap();
    assert_eq!(made.metadata.owner_references, None);
    let notes = made.metadata.annotations.unwrap();
    assert_eq!(notes["operator-sdk/primary-resource"], format!("{}/a", scene.namespace));
    assert_eq!(notes["operator-sdk/primary-resource-type"], "Job.test.example.com");

    let roles = Api::<ClusterRole>::all(client.clone());
    let wanted: ClusterRole = serde_json::from_value(json!({"metadata": {"name": "r"}, "rules": []})).unwrap();
    let made = roles.create(&Default::default(), &wanted).await.unwrap();
    assert!(
        made.metadata
            .annotations
            .unwrap()
            .contains_key("operator-sdk/primary-resource")
    );

    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}});
    let patch = Patch::Apply(applied);
    let made = maps
        .patch("applied", &PatchParams::apply("role"), &patch)
        .await
        .unwrap();
    assert_eq!(made.metadata.owner_references.map(|owners| owners.len()), Some(1));
    // What somebody else has made stays theirs.
    let theirs = Api::<ConfigMap>::namespaced(scene.cluster.kube(), &scene.namespace);
    theirs.create(&Default::default(), &map("theirs")).await.unwrap();
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "b"}});
    let made = maps
        .patch("theirs", &PatchParams::apply("role"), &Patch::Apply(applied))
        .await
        .unwrap();
    assert_eq!(made.metadata.owner_references, None);

    // ConfigMaps are watched by now. A read shows what the role has written before it.
    maps.create(&Default::default(), &map("own")).await.unwrap();
    for number in 0..20 {
        let value = number.to_string();
        let patch = Patch::Merge(json!({"data": {"number": value}}));
        let written = maps.patch("own", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(written.data.as_ref().unwrap()["number"], value);
        // By comparing the two, Ansible's modules tell whether a task has changed something.
        for _ in 0..3 {
            assert_eq!(maps.get("own").await.unwrap(), written);
        }
    }
    maps.delete("own", &Default::default()).await.unwrap();
    assert!(maps.get_opt("own").await.unwrap().is_none());

    let folder = scene.runs("a");
    fs::write(folder.join("go"), "").unwrap();
    scene.wait("a", "ran", |job| job.holds("Successful")).await;
    let refused = maps.get("m").await.expect_err("the run has ended");
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "{refused}"
    );

    let patch = json!({"data": {"changed": "by hand"}});
    theirs
        .patch("m", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    until("a change leads to a run", || folder.join("waits").exists()).await;
    fs::write(folder.join("go"), "").unwrap();
    until("it ends", || !folder.join("waits").exists()).await;
    let theirs = Api::<ConfigMap>::namespaced(scene.cluster.kube(), &elsewhere);
    theirs.delete("m", &Default::default()).await.unwrap();
    until("a deletion elsewhere leads to a run", || folder.join("waits").exists()).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_that_no_run_has_is_refused() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    scene.create("a", "waits", &[]).await;
    let folder = scene.runs("a");
    until("it runs", || folder.join("waits").exists()).await;
    let path = read(&folder.join("env/envvars"))["KUBECONFIG"]
        .as_str()
        .unwrap()
        .to_owned();
    for user in [
        json!({}),
        json!({"token": "guessed"}),
        json!({"username": "a", "password": "guessed"}),
    ] {
        let mut kubeconfig = read(path.as_ref());
        kubeconfig["users"][0]["user"] = user.clone();
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let client = kubewright::connect(config).unwrap();
        let refused = Api::<ConfigMap>::default_namespaced(client)
            .list(&Default::default())
            .await;
        assert!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.code == 401),
            "{user}: {refused:?}"
        );
    }
    running.stop().await.unwrap();
}
