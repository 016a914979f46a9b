//! Several clusters in one manager: a controller that watches another cluster, and one that works there.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kubewright::kube::api::{ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Context, Controller, Error, EventType, HOME_CLUSTER, KubeconfigSecrets, Manager, Operator, Reconciler,
    Request, Scope, Stop, Watch,
};
use kubewright_testing::{Result, TestCluster};
use serde_json::json;
use tokio::sync::Notify;

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
            let version = |config: &ConfigMap| config.metadata.resource_version.clone()?.parse::<u64>().ok();
            // Another client may have written since.
            assert!(
                read.as_deref().and_then(version) >= version(&written),
                "{read:?} is older than {written:?}"
            );
            assert_eq!(
                read.as_deref().and_then(|read| text(read, "answer")).as_deref(),
                Some("seen")
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
    // It changes over there, and its copy here follows.
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

/// That something was refused, and in which words.
fn refused<T: std::fmt::Debug>(answer: kubewright::Result<T>, expected: &str) {
    let error = answer.expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn clusters_join_and_leave_a_manager_that_runs() -> Result<()> {
    let (home, west) = (TestCluster::start().await?, TestCluster::start().await?);
    let manager = Manager::builder(home.kube()).build()?;
    let (client, controllers, metrics) = (manager.client(), manager.controllers(), manager.metrics());
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let answerer = || Controller::of(Answerer).named("answerer").in_cluster("west");
    let unknown = "there is no cluster \"west\" (there is [])";
    refused(controllers.add(answerer()).await, unknown);
    // Twice: a cluster that has left may come back.
    for name in ["first", "second"] {
        controllers.add_cluster("west", west.kube()).await?;
        let taken = "cannot add cluster \"west\": each needs a name of its own";
        refused(controllers.add_cluster("west", west.kube()).await, taken);
        // A client from before leads there.
        let theirs = client.cluster("west")?;
        assert!(theirs.get::<ConfigMap>(Some("default"), name).await?.is_none());
        drop(theirs);
        controllers.add(answerer()).await?;
        put(west.kube(), name, json!({"text": "?"})).await?;
        let answered = |config: &ConfigMap| text(config, "answer").is_some();
        west.wait_for::<ConfigMap>(Some("default"), name, "is answered", answered)
            .await?;
        let encoded = metrics.encode();
        assert!(encoded.contains("of cluster west"), "{encoded}");
        let used = "because these controllers work there or watch it: answerer; remove them first";
        refused(controllers.remove_cluster("west").await, used);
        assert!(controllers.remove("answerer").await?);
        assert!(controllers.remove_cluster("west").await?);
        assert!(!controllers.remove_cluster("west").await?, "it is gone");
        refused(client.cluster("west"), "there is no cluster \"west\"");
        // No client of it is left, so that its cache is gone.
        let encoded = metrics.encode();
        assert!(!encoded.contains("of cluster west"), "{encoded}");
    }
    let own = "the manager's own cluster cannot be taken away";
    refused(controllers.remove_cluster(HOME_CLUSTER).await, own);
    stop.stop();
    running.await.expect("no panic")?;
    refused(
        controllers.add_cluster("west", west.kube()).await,
        "the manager has ended",
    );
    let events: Api<Event> = Api::namespaced(west.kube(), "default");
    let events = events.list(&ListParams::default()).await?.items;
    let answers = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("Answered"));
    assert_eq!(
        answers.count(),
        2,
        "one is missing that waited when its cluster left: {events:?}"
    );
    Ok(())
}

/// Says that it is at work, and waits until it may end.
struct Patient {
    begun: Arc<Notify>,
    may_end: Arc<Notify>,
}

impl Reconciler for Patient {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        if text(&config, "text").is_some() {
            self.begun.notify_one();
            self.may_end.notified().await;
            ctx.event(&*config, EventType::Normal, "Ended", "it was not hurried");
        }
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn a_cluster_stays_until_the_last_reconcile_there_has_ended() -> Result<()> {
    let (home, west) = (TestCluster::start().await?, TestCluster::start().await?);
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let patient = Patient {
        begun: begun.clone(),
        may_end: may_end.clone(),
    };
    // A cluster that is there from the start may leave as well.
    let manager = Manager::builder(home.kube())
        .cluster("west", west.kube())
        .add(Controller::of(patient).named("patient").in_cluster("west"))
        .build()?;
    let controllers = manager.controllers();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    put(west.kube(), "a", json!({"text": "?"})).await?;
    begun.notified().await;
    let mut removing = Box::pin(controllers.remove("patient"));
    assert!(
        removing.as_mut().now_or_never().is_none(),
        "its reconcile is waited for"
    );
    let used = "because these controllers work there or watch it: patient; remove them first";
    refused(controllers.remove_cluster("west").await, used);
    may_end.notify_one();
    assert!(removing.await?);
    assert!(controllers.remove_cluster("west").await?);
    stop.stop();
    running.await.expect("no panic")?;
    let events: Api<Event> = Api::namespaced(west.kube(), "default");
    let events = events.list(&ListParams::default()).await?.items;
    assert!(
        events.iter().any(|event| event.reason.as_deref() == Some("Ended")),
        "{events:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_joins_and_leaves_without_holding_up_others() -> Result<()> {
    let home = TestCluster::start().await?;
    let silent = tower::service_fn(|_: HttpRequest<Body>| std::future::pending::<std::io::Result<Response<Body>>>());
    let manager = Manager::builder(home.kube()).health("127.0.0.1:0").build()?;
    let (controllers, health) = (manager.controllers(), manager.health_address());
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let health = health.await;
    controllers
        .add_cluster("far", kube::Client::new(silent, "default"))
        .await?;
    controllers
        .add(Controller::of(Answerer).named("far").in_cluster("far"))
        .await?;
    controllers.add(Controller::of(Answerer).named("near")).await?;
    put(home.kube(), "a", json!({"text": "?"})).await?;
    let answered = |config: &ConfigMap| text(config, "answer").is_some();
    home.wait_for::<ConfigMap>(Some("default"), "a", "is answered", answered)
        .await?;
    let (status, told) = super::metrics::plain(health, "/readyz").await;
    let why = "[-]far failed: its caches are not synced: ConfigMap in all namespaces of cluster far";
    assert!(status == 500 && told.contains(why), "{status} {told}");
    assert!(controllers.remove("far").await?);
    assert!(controllers.remove_cluster("far").await?);
    let (status, told) = super::metrics::plain(health, "/readyz").await;
    assert_eq!((status, told.as_str()), (200, "ok"));
    stop.stop();
    running.await.expect("no panic")?;
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

/// Notes where it works.
struct Noter(Arc<tokio::sync::watch::Sender<Vec<String>>>);

impl Reconciler for Noter {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        assert_eq!(ctx.request().cluster(), ctx.cluster());
        let place = format!("{} in {}", ctx.request().name(), ctx.cluster());
        self.0.send_modify(|noted| noted.push(place));
        Ok(Action::await_change())
    }
}

/// Clusters join and leave with the Secrets that hold their kubeconfigs; one that cannot be used holds up no other.
#[tokio::test]
async fn clusters_come_and_go_with_their_kubeconfigs() -> Result<()> {
    let (home, west, east) = (
        TestCluster::start().await?,
        TestCluster::start().await?,
        TestCluster::start().await?,
    );
    let secrets: Api<Secret> = Api::namespaced(home.kube(), "default");
    let put = async |name: &str, kubeconfig: &str| {
        let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
        let secret = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"kubeconfig": kubeconfig}});
        secrets
            .create(
                &PostParams::default(),
                &serde_json::from_value(secret).expect("a Secret"),
            )
            .await
    };
    for cluster in [&west, &east] {
        let mut config = ConfigMap::default();
        config.metadata.name = Some("counted".to_owned());
        Api::namespaced(cluster.kube(), "default")
            .create(&PostParams::default(), &config)
            .await?;
    }
    put("broken", "kind: nonsense: [").await?;
    put("west", &west.kubeconfig().await?).await?;
    let noted = Arc::new(tokio::sync::watch::Sender::new(Vec::new()));
    let noting = noted.clone();
    let controller = Controller::of(Noter(noting)).within(Scope::namespace("default"));
    let operator = Operator::new("fleet").controller(controller.in_every_cluster());
    let operator = operator.fleet(KubeconfigSecrets::new("default"));
    let manager = operator.manager(home.kube()).build()?;
    let client = manager.client();
    let (source, stop) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stop.requested().await }).await });
    let until = async |what: &str| {
        let mut seen = noted.subscribe();
        let is_there = |noted: &Vec<String>| noted.iter().any(|place| place == what);
        let waited = tokio::time::timeout(Duration::from_secs(60), seen.wait_for(is_there)).await;
        assert!(waited.is_ok(), "{what}: {:?}", noted.borrow());
    };
    until("counted in west").await;
    put("east", &east.kubeconfig().await?).await?;
    until("counted in east").await;
    // Other credentials: the cluster leaves and joins anew, and everything in it is looked at again.
    let noted_before = noted.borrow().len();
    let replaced = json!({"stringData": {"kubeconfig": format!("{}\n# renewed", east.kubeconfig().await?)}});
    secrets
        .patch("east", &PatchParams::default(), &Patch::Merge(replaced))
        .await?;
    let again = |noted: &Vec<String>| noted[noted_before..].iter().any(|place| place == "counted in east");
    let mut seen = noted.subscribe();
    let waited = tokio::time::timeout(Duration::from_secs(60), seen.wait_for(again)).await;
    assert!(waited.is_ok(), "{:?}", noted.borrow());
    secrets.delete("west", &Default::default()).await?;
    let left = async {
        while client.cluster("west").is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), left)
        .await
        .expect("it is disengaged");
    assert!(client.cluster("east").is_ok() && client.cluster("broken").is_err());
    source.stop();
    running.await.expect("no panic")?;
    Ok(())
}
