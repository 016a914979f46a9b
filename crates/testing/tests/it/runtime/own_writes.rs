//! Reads that see own writes, where only a real API server shows the result of a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{DeleteParams, Patch, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{Cache, Client};
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

fn config(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("default".to_owned());
    object.data = Some([("key".to_owned(), value.to_owned())].into());
    object
}

/// The same client, whose reads of ConfigMaps are counted, but for watches.
fn counting(kube: kube::Client, reads: &Arc<AtomicUsize>) -> kube::Client {
    let reads = reads.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (kube, uri) = (kube.clone(), request.uri());
        let watches = uri.query().is_some_and(|query| query.contains("watch="));
        if request.method() == http::Method::GET && uri.path().contains("/configmaps") && !watches {
            reads.fetch_add(1, Ordering::SeqCst);
        }
        async move { kube.send(request).await }
    });
    kube::Client::new(service, "default")
}

/// K1 under real concurrency: every task always reads its own last write, with any writes of the others, from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn k1_holds_for_many_writers_at_once() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let reads = Arc::default();
    let kube = counting(cluster.kube(), &reads);
    let client = Client::new(kube.clone(), Cache::new(kube));
    client.list::<ConfigMap>(Some("default")).await?;
    let before = reads.load(Ordering::SeqCst);
    let tasks = (0..8).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let name = format!("c{task}");
            client.create(&config(&name, "0")).await?;
            for number in 1..50 {
                let wanted = number.to_string();
                let patch = Patch::Merge(json!({ "data": { "key": wanted } }));
                client.patch::<ConfigMap, _>(Some("default"), &name, &patch).await?;
                let read = client.get::<ConfigMap>(Some("default"), &name).await?;
                assert_eq!(read.and_then(|read| read.data.clone()), config(&name, &wanted).data);
            }
            let all = client.list::<ConfigMap>(Some("default")).await?;
            let own = all.iter().find(|one| one.metadata.name.as_deref() == Some(&*name));
            assert!(client.delete(&**own.expect("it is listed")).await?);
            assert_eq!(client.get::<ConfigMap>(Some("default"), &name).await?, None);
            Ok::<_, kubewright::Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no task saw an older state")?;
    }
    assert_eq!(reads.load(Ordering::SeqCst), before, "every answer came from the cache");
    Ok(())
}

/// A plain kube client beside ours: its writes are seen through the watch.
#[tokio::test]
async fn what_others_write_arrives() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = cluster.client();
    client.list::<ConfigMap>(None).await?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    api.create(&PostParams::default(), &config("x", "1")).await?;
    let store = client.cache().informer::<ConfigMap>().store();
    let found = async {
        loop {
            match store.get(Some("default"), "x") {
                Some(object) => return object,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let object = tokio::time::timeout(Duration::from_secs(60), found)
        .await
        .expect("the watch tells of it");
    assert_eq!(object.metadata.managed_fields, None);
    Ok(())
}
