//! Verbs besides create, update, patch and delete, and what every write may carry, with a real API server.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::Error;
use kubewright::kube::api::{DeleteParams, ListParams, Patch, ValidationDirective};
use kubewright::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};

async fn started() -> Result<TestCluster> {
    TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await
}

fn config(name: &str, app: &str, data: &Value, finalizers: &[&str]) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}, "finalizers": finalizers});
    serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("it is a ConfigMap")
}

/// K3: a read after a delete of many shows none that is gone, and those that their finalizers hold as going.
#[tokio::test]
async fn k3_a_collection_is_deleted() -> Result<()> {
    let cluster = started().await?;
    let client = cluster.client();
    client.list::<ConfigMap>(None).await?;
    let left = async || -> Result<Vec<String>> {
        let found = client.list::<ConfigMap>(Some("default")).await?;
        let found = found.iter().map(|object| {
            let going = if object.metadata.deletion_timestamp.is_some() {
                " goes"
            } else {
                ""
            };
            format!("{}{going}", object.metadata.name.clone().unwrap_or_default())
        });
        Ok(found.filter(|name| !name.starts_with("kube-")).collect())
    };
    let old = ListParams::default().labels("app=old");
    for round in 0..20 {
        for number in 0..5 {
            client
                .create(&config(&format!("old-{number}"), "old", &json!({}), &[]))
                .await?;
        }
        client
            .create(&config("held", "old", &json!({}), &["example.com/hold"]))
            .await?;
        client.create(&config("new", "new", &json!({}), &[])).await?;
        let dry = client.with_dry_run();
        let told = dry.delete_collection::<ConfigMap>(Some("default"), &old, DeleteParams::default());
        assert_eq!((told.await?, left().await?.len()), (6, 7), "round {round}: dry");
        let told = client.delete_collection::<ConfigMap>(Some("default"), &old, DeleteParams::default());
        assert_eq!(told.await?, 6, "round {round}");
        assert_eq!(left().await?, ["held goes", "new"], "round {round}");
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        client.patch::<ConfigMap, _>(Some("default"), "held", &free).await?;
        let any = ListParams::default().labels("app");
        let all = client.delete_collection::<ConfigMap>(Some("default"), &any, DeleteParams::default());
        assert_eq!((all.await?, left().await?), (1, vec![]), "round {round}: the rest");
    }
    let everywhere = client
        .delete_collection::<ConfigMap>(None, &old, DeleteParams::default())
        .await;
    let refused = everywhere.expect_err("only in one namespace").to_string();
    assert!(
        refused.starts_with("delete all configmaps that are selected: "),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn a_scale_is_read_and_replaced() -> Result<()> {
    let cluster = started().await?;
    let client = cluster.client();
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}},
    }))
    .expect("it is a Deployment");
    client.create(&deployment).await?;
    let scale = client
        .live_subresource::<Deployment, Scale>(Some("default"), "web", "scale")
        .await?;
    let mut scale = scale.expect("it is there");
    let size = |scale: &Scale| scale.spec.as_ref().and_then(|spec| spec.replicas);
    assert_eq!(size(&scale), Some(2));
    scale.spec.get_or_insert_default().replicas = Some(5);
    let replaced: Scale = client
        .update_subresource::<Deployment, _, _>(Some("default"), "web", "scale", &scale)
        .await?;
    assert_eq!(size(&replaced), Some(5));
    // A cached read shows it.
    let read = client
        .get::<Deployment>(Some("default"), "web")
        .await?
        .expect("it is there");
    assert_eq!(read.spec.as_ref().and_then(|spec| spec.replicas), Some(5));
    let lost = client
        .update_subresource::<Deployment, _, Scale>(Some("default"), "web", "scale", &scale)
        .await;
    assert!(lost.expect_err("it is of an older version").is_conflict());
    let none = client
        .live_subresource::<Deployment, Scale>(Some("default"), "none", "scale")
        .await?;
    assert!(none.is_none());
    Ok(())
}

#[tokio::test]
async fn fields_that_the_server_does_not_know_are_refused_when_asked_for() -> Result<()> {
    let cluster = started().await?;
    let client = cluster.client();
    client.create(&config("a", "x", &json!({"k": "1"}), &[])).await?;
    let strict = client.with_field_validation(ValidationDirective::Strict);
    let patch = Patch::Merge(json!({"daat": {"k": "2"}}));
    client.patch::<ConfigMap, _>(Some("default"), "a", &patch).await?;
    let refused = strict.patch::<ConfigMap, _>(Some("default"), "a", &patch).await;
    let refused = refused.expect_err("it is unknown").to_string();
    assert!(refused.contains("unknown field \"daat\""), "{refused}");
    // What is known passes, whichever way it is written.
    strict.create(&config("b", "x", &json!({}), &[])).await?;
    strict.apply(config("c", "x", &json!({"k": "1"}), &[])).await?;
    Ok(())
}

/// Without force an apply leaves the fields of others alone, and says whose they are: no other read would help.
#[tokio::test]
async fn an_apply_may_be_refused_for_the_fields_of_others() -> Result<()> {
    let cluster = started().await?;
    let (ours, theirs) = (
        cluster.client().with_field_manager("ours"),
        cluster.client().with_field_manager("theirs"),
    );
    theirs.apply(config("a", "x", &json!({"k": "theirs"}), &[])).await?;
    let polite = ours.without_force();
    let error = polite
        .apply(config("a", "x", &json!({"k": "ours"}), &[]))
        .await
        .expect_err("a conflict");
    assert!(
        error.is_field_conflict() && !error.is_conflict() && matches!(error, Error::Api(_)),
        "{error:?}"
    );
    let told = error.to_string();
    assert!(told.contains("conflict with \"theirs\": .data.k"), "{told}");
    // The same value is no conflict, and with force it is taken.
    polite.apply(config("a", "x", &json!({"k": "theirs"}), &[])).await?;
    let taken = ours.apply(config("a", "x", &json!({"k": "ours"}), &[])).await?;
    assert_eq!(
        taken.data.as_ref().and_then(|data| data.get("k")).map(String::as_str),
        Some("ours")
    );
    Ok(())
}

/// Whether a kind exists is another question than whether an object does: a definition may not be installed.
#[tokio::test]
async fn a_kind_that_is_not_installed_is_an_error() -> Result<()> {
    let cluster = started().await?;
    let client = cluster.client();
    let unknown = ApiResource::from_gvk(&GroupVersionKind::gvk("shop.example.com", "v1", "Order"));
    let check = |found: kubewright::Result<bool>| {
        let error = found.expect_err("there is no such kind");
        assert!(error.is_not_found(), "{error:?}");
    };
    let live = client.live_of::<DynamicObject>(&unknown, Some("default"), "a").await;
    check(live.map(|found| found.is_some()));
    check(
        client
            .delete_dynamic(&unknown, Some("default"), "a", DeleteParams::default())
            .await,
    );
    let known = ApiResource::erase::<ConfigMap>(&());
    assert!(
        client
            .live_of::<DynamicObject>(&known, Some("default"), "a")
            .await?
            .is_none()
    );
    assert!(
        !client
            .delete_dynamic(&known, Some("default"), "a", DeleteParams::default())
            .await?
    );
    Ok(())
}
