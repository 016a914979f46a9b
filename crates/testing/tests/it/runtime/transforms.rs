//! Objects that are changed before a cache keeps them, with a real API server.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::Patch;
use kubewright::{Error, Health, Manager, Scope};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;

fn config(name: &str) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default", "annotations": {"big": "x", "small": "y"}});
    let object = json!({"metadata": metadata, "data": {"secret": "x", "kept": "y"}});
    serde_json::from_value(object).expect("it is a ConfigMap")
}

/// What a reconciler does not read is not held, of objects that are listed, that come later, and that were read live
/// because the cache lags; a live read shows everything.
#[tokio::test]
async fn what_is_not_read_is_not_held() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    cluster.client().create(&config("before")).await?;
    let manager = Manager::builder(cluster.kube())
        .transform::<ConfigMap>(|config| drop(config.data.as_mut().and_then(|data| data.remove("secret"))))
        .transform::<ConfigMap>(|config| drop(config.metadata.annotations.as_mut().and_then(|all| all.remove("big"))))
        .build()
        .expect("it fits together");
    let client = manager.client();
    let check = async |name: &str| -> Result<()> {
        let read = client
            .get::<ConfigMap>(Some("default"), name)
            .await?
            .expect("it is there");
        let data: Vec<&str> = read
            .data
            .iter()
            .flat_map(|data| data.keys().map(String::as_str))
            .collect();
        let annotations = read.metadata.annotations.iter();
        let annotations: Vec<&str> = annotations.flat_map(|all| all.keys().map(String::as_str)).collect();
        assert_eq!((data, annotations), (vec!["kept"], vec!["small"]), "{name}");
        let live = client
            .live::<ConfigMap>(Some("default"), name)
            .await?
            .expect("it is there");
        assert_eq!(live.data.map(|data| data.len()), Some(2), "{name}");
        Ok(())
    };
    check("before").await?;
    cluster.client().create(&config("later")).await?;
    cluster
        .client()
        .get::<ConfigMap>(Some("default"), "later")
        .await?
        .expect("it is there");
    let store = client.cache().informer::<ConfigMap>().store();
    while store.get(Some("default"), "later").is_none() {
        tokio::task::yield_now().await;
    }
    check("later").await?;
    client.create(&config("own")).await?;
    check("own").await
}

/// A transform that makes another object of it, or panics, loses that object and says so; nothing untransformed is
/// shown.
#[tokio::test]
async fn a_transform_that_fails_is_told() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    for name in ["good", "renamed", "panics"] {
        cluster.client().create(&config(name)).await?;
    }
    let manager = Manager::builder(cluster.kube())
        .transform::<ConfigMap>(|config| match config.metadata.name.as_deref() {
            Some("renamed") => config.metadata.name = Some("other".to_owned()),
            Some("panics") => panic!("no panic, please"),
            _ => {}
        })
        .build()
        .expect("it fits together");
    let client = manager.client();
    let all = client.list::<ConfigMap>(Some("default")).await?;
    let names: Vec<_> = all
        .iter()
        .filter_map(|config| config.metadata.name.as_deref())
        .collect();
    assert_eq!(names, ["good"]);
    let informer = client.cache().informer::<ConfigMap>();
    let mut told: Vec<String> = informer
        .unreadable()
        .iter()
        .map(|one| format!("{}: {}", one.request, one.error))
        .collect();
    told.sort();
    assert!(
        told.len() == 2
            && told[0].contains("panicked: no panic, please")
            && told[1].contains("changed which object it is"),
        "{told:?}"
    );
    assert!(matches!(informer.health(), Health::Degraded { .. }));
    let error = client
        .get::<ConfigMap>(Some("default"), "renamed")
        .await
        .expect_err("it cannot be read");
    assert!(matches!(error, Error::Undecodable { .. }), "{error:?}");
    Ok(())
}

/// Of a kind that is held in part, reads show this part, also after own writes, and controllers work on it.
#[tokio::test]
async fn a_part_of_a_kind_is_held() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let labelled = |name: &str, app: &str| -> ConfigMap {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}});
        serde_json::from_value(json!({"metadata": metadata})).expect("it is a ConfigMap")
    };
    cluster.client().create(&labelled("ours", "shop")).await?;
    cluster.client().create(&labelled("theirs", "other")).await?;
    let ours = Scope::all().labels([("app", "shop")].into_iter().collect());
    let manager = Manager::builder(cluster.kube())
        .within::<ConfigMap>(ours)
        .build()
        .expect("it fits together");
    let client = manager.client();
    let check = async |expected: &[&str]| -> Result<()> {
        let all = client.list::<ConfigMap>(None).await?;
        let names: Vec<_> = all
            .iter()
            .filter_map(|config| config.metadata.name.as_deref())
            .collect();
        assert_eq!(names, expected);
        Ok(())
    };
    check(&["ours"]).await?;
    assert!(client.get::<ConfigMap>(Some("default"), "theirs").await?.is_none());
    assert!(client.live::<ConfigMap>(Some("default"), "theirs").await?.is_some());
    client.create(&labelled("new", "shop")).await?;
    client.create(&labelled("strange", "other")).await?;
    check(&["new", "ours"]).await?;
    let theirs = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
    client.patch::<ConfigMap, _>(Some("default"), "ours", &theirs).await?;
    check(&["new"]).await
}
