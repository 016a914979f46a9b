//! Several clusters in one manager: a controller that watches another cluster, and one that works there.

use std::sync::Arc;
use std::time::Duration;

use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kubewright::kube::api::{ListParams, Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Context, Controller, Error, EventType, HOME_CLUSTER, Manager, Reconciler, Request, Stop, Watch,
};
use kubewright_testing::{Result, TestCluster};
use serde_json::json;

fn text(config: &ConfigMap, key: &str) -> Option<String> {
    config.data.as_ref()?.get(key).cloned()
}

/// Copies `text` of the namesake in the west into objects at home.
struct Copier;

impl Reconciler for Copier {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let key = ctx.request();
        let theirs = ctx
            .client()
            .cluster("west")?
            .get::<ConfigMap>(key.namespace(), key.name())
            .await?;
        let theirs = theirs.and_then(|theirs| text(&theirs, "text"));
        if let Some(theirs) = theirs.filter(|theirs| text(&config, "copied").as_ref() != Some(theirs)) {
            let patch = Patch::Merge(json!({"data": {"copied": theirs}}));
            ctx.client()
                .patch::<ConfigMap, _>(key.namespace(), key.name(), &patch)
                .await?;
        }
        Ok(Action::await_change())
    }
}

/// Answers in the west, and counts at home.
struct Answerer;

impl Reconciler for Answerer {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let key = ctx.request();
        if text(&config, "text").is_some() && text(&config, "answer").is_none() {
            let patch = Patch::Merge(json!({"data": {"answer": "seen"}}));
            let written = ctx
                .client()
                .patch::<ConfigMap, _>(key.namespace(), key.name(), &patch)
                .await?;
            // Reads see own writes, in each cluster by itself.
            let read = ctx.client().get::<ConfigMap>(key.namespace(), key.name()).await?;
            assert_eq!(
                read.and_then(|read| read.metadata.resource_version.clone()),
                written.metadata.resource_version
            );
            ctx.event(&*config, EventType::Normal, "Answered", "it was seen");
            let home = ctx.client().cluster(HOME_CLUSTER)?;
            assert!(
                home.get::<ConfigMap>(key.namespace(), "only-in-the-west")
                    .await?
                    .is_none()
            );
        }
        Ok(Action::await_change())
    }
}

async fn put(kube: kube::Client, name: &str, data: serde_json::Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let api: Api<ConfigMap> = Api::namespaced(kube, "default");
    api.patch(name, &PatchParams::apply("test"), &Patch::Apply(object))
        .await?;
    Ok(())
}

#[tokio::test]
async fn controllers_watch_and_work_in_other_clusters() -> Result<()> {
    let (home, west) = (TestCluster::start().await?, TestCluster::start().await?);
    put(home.kube(), "a", json!({})).await?;
    let theirs = Watch::<ConfigMap>::new()
        .in_cluster("west")
        .map(|config| vec![Request::of(config)]);
    let manager = Manager::builder(home.kube())
        .cluster("west", west.kube())
        .add(Controller::of(Copier).named("copier").source(theirs))
        .add(Controller::of(Answerer).named("answerer").in_cluster("west"))
        .build()?;
    let metrics = manager.metrics();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    // It changes over there, and what is here follows.
    for words in ["hello", "goodbye"] {
        put(west.kube(), "a", json!({"text": words})).await?;
        let copied = |config: &ConfigMap| text(config, "copied").as_deref() == Some(words);
        home.wait_for::<ConfigMap>(Some("default"), "a", "is copied", copied)
            .await?;
    }
    put(west.kube(), "only-in-the-west", json!({"text": "?"})).await?;
    let answered = |config: &ConfigMap| text(config, "answer").is_some();
    west.wait_for::<ConfigMap>(Some("default"), "only-in-the-west", "is answered", answered)
        .await?;
    let encoded = metrics.encode();
    for cache in [
        "ConfigMap in all namespaces",
        "ConfigMap in all namespaces of cluster west",
    ] {
        let line = format!("kubewright_cache_healthy{{cache=\"{cache}\"}} 1.0");
        assert!(encoded.contains(&line), "{line}: {encoded}");
    }
    assert_eq!(encoded.matches("# TYPE kubewright_cache_healthy ").count(), 1);
    stop.stop();
    running.await.expect("no panic")?;
    // Events are where their objects are.
    for (cluster, expected) in [(&home, 0), (&west, 2)] {
        let events: Api<Event> = Api::namespaced(cluster.kube(), "default");
        let events = events.list(&ListParams::default()).await?.items;
        let answers = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("Answered"))
            .count();
        assert_eq!(answers, expected, "{events:?}");
    }
    let home = home.client();
    assert!(
        matches!(home.cluster("west"), Err(Error::Configuration(_))),
        "a client of no manager knows no others"
    );
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused() {
    let kube = || {
        let nothing =
            tower::service_fn(|_: HttpRequest<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) });
        kube::Client::new(nothing, "default")
    };
    let check = async |controller: Controller, expected: &str| {
        let manager = Manager::builder(kube())
            .cluster("west", kube())
            .add(controller)
            .build()
            .expect("names are right");
        let ended = tokio::time::timeout(Duration::from_secs(30), manager.run(std::future::pending())).await;
        let error = ended.expect("it ends").expect_err("it fails").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        Controller::of(Copier).in_cluster("east"),
        "there is no cluster \"east\" (there is [\"west\"])",
    )
    .await;
    let elsewhere = Watch::<ConfigMap>::new().in_cluster("east").all();
    check(Controller::of(Copier).source(elsewhere), "there is no cluster \"east\"").await;
    let owned = Watch::<ConfigMap>::new().in_cluster("west").owned();
    check(
        Controller::of(Copier).source(owned),
        "the owners of ConfigMap in cluster \"west\" are not in its own: an owner reference names an object of the same cluster; use Watch::map",
    )
    .await;
    for (first, second) in [("west", "west"), ("west", "")] {
        let twice = Manager::builder(kube())
            .name("m")
            .cluster(first, kube())
            .cluster(second, kube())
            .build();
        let error = twice.expect_err("it fails").to_string();
        assert!(
            error.contains(&format!("a cluster is named {second:?}; each needs a name of its own")),
            "{error}"
        );
    }
}
