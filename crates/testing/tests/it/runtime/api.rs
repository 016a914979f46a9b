//! What reconcilers and operators are offered beside reads and applies: the status, plain APIs, checks, options.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewright::jiff::Timestamp;
use kubewright::kube::api::{Api, PostParams};
use kubewright::kube::{self, CustomResource};
use kubewright::{
    Action, AdmissionRequest, Client, Context, Controller, Defaulter, Denied, Error, EventType, Manager, Operator,
    Reconciler, Request, Scope, Sharding, Stop, Waker, Webhook, Woken, conditions,
};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

/// A shop with a list of conditions that controllers share.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "shop.example.com",
    version = "v1",
    kind = "Shop",
    namespaced,
    status = "ShopStatus",
    derive = "Default"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
#[serde(rename_all = "camelCase")]
struct ShopSpec {
    rooms: i64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ShopStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guests: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    motto: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

/// Keeps one condition of a shop, and one field as long as it has few rooms.
struct Keeper(&'static str);

impl Reconciler for Keeper {
    type Object = Shop;

    async fn reconcile(&self, shop: Arc<Shop>, ctx: Context) -> kubewright::Result<Action> {
        let open = shop.spec.rooms > 1;
        let written = ctx
            .status(&shop, |status| {
                status.conditions = vec![ctx.condition(&shop, self.0, open, "RoomsCounted", "")];
                match self.0 {
                    "Open" => status.guests = Some(shop.spec.rooms * 2),
                    _ if !open => status.motto = Some("closed".to_owned()),
                    _ => {}
                }
            })
            .await?;
        let status = written.status.as_ref().expect("it was written");
        assert!(conditions::find(&status.conditions, self.0).is_some());
        ctx.event(&shop, EventType::Normal, "Counted", "rooms were counted");
        Ok(Action::await_change())
    }
}

/// Two controllers share a list of conditions and a status; times change with the status of a condition only.
#[tokio::test]
async fn two_controllers_keep_one_status() -> Result<()> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
    let keeper = |type_: &'static str| Controller::of(Keeper(type_)).named(type_.to_lowercase());
    let operator = Operator::new("shops")
        .crd::<Shop>()
        .controller(keeper("Open"))
        .controller(keeper("Warm"));
    cluster.run(operator).await?;
    let api: Api<Shop> = Api::namespaced(cluster.kube(), "default");
    api.create(&PostParams::default(), &Shop::new("corner", ShopSpec { rooms: 1 }))
        .await?;
    let told = |rooms: i64, open: &'static str| {
        move |shop: &Shop| {
            let status = shop.status.clone().unwrap_or_default();
            let all = ["Open", "Warm"].map(|type_| conditions::find(&status.conditions, type_).cloned());
            let fits = |condition: &Option<Condition>| {
                condition
                    .as_ref()
                    .is_some_and(|told| told.status == open && told.observed_generation == shop.metadata.generation)
            };
            status.guests == Some(rooms * 2) && all.iter().all(fits)
        }
    };
    let first = cluster
        .wait_for(Some("default"), "corner", "both have told", told(1, "False"))
        .await?;
    assert_eq!(
        first.status.clone().and_then(|status| status.motto).as_deref(),
        Some("closed")
    );
    cluster.advance(Duration::from_secs(100)).await?;
    // The generation is new, the conditions are as they were.
    let mut shop = api.get("corner").await?;
    shop.spec.rooms = 0;
    api.replace("corner", &PostParams::default(), &shop).await?;
    let second = cluster
        .wait_for(Some("default"), "corner", "both have told again", told(0, "False"))
        .await?;
    let times = |shop: &Shop| {
        shop.status
            .iter()
            .flat_map(|status| &status.conditions)
            .map(|told| told.last_transition_time.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&second), times(&first));
    cluster.advance(Duration::from_secs(100)).await?;
    shop = api.get("corner").await?;
    shop.spec.rooms = 5;
    api.replace("corner", &PostParams::default(), &shop).await?;
    let third = cluster
        .wait_for(Some("default"), "corner", "it is open", told(5, "True"))
        .await?;
    assert!(
        times(&third)
            .iter()
            .zip(times(&first))
            .all(|(late, early)| late.duration_since(early).as_secs() >= 200)
    );
    let gone = |shop: &Shop| shop.status.as_ref().is_some_and(|status| status.motto.is_none());
    cluster
        .wait_for(Some("default"), "corner", "what is set no longer is removed", gone)
        .await?;
    cluster.settle().await?;
    Ok(())
}

/// Uses plain APIs.
struct Plain(watch::Sender<Vec<String>>);

impl Reconciler for Plain {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let here = ctx.api::<ConfigMap>().list(&Default::default()).await?.items.len();
        let namespaces = ctx.api::<Namespace>().list(&Default::default()).await?.items.len();
        let mut secret = Secret::default();
        secret.metadata.name = config.metadata.name.clone();
        let dry = ctx.client().with_dry_run().api::<Secret>(Some("default"));
        dry.create(&PostParams::default(), &secret).await?;
        let stored = ctx.api::<Secret>().get_opt(ctx.request().name()).await?.is_some();
        self.0
            .send_modify(|told| told.push(format!("{here} here, namespaces: {}, stored: {stored}", namespaces > 1)));
        Ok(Action::await_change())
    }
}

/// A plain API is in the namespace of the request, and keeps to the rules of its client.
#[tokio::test]
async fn a_plain_api_is_held_to_the_rules_of_the_client() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let elsewhere = cluster.namespace().await?;
    let mut config = ConfigMap::default();
    config.metadata.name = Some("other".to_owned());
    Api::<ConfigMap>::namespaced(cluster.kube(), &elsewhere)
        .create(&PostParams::default(), &config)
        .await?;
    let told = watch::Sender::new(Vec::new());
    let waker = Waker::new();
    let refused: Arc<Mutex<Option<Error>>> = Arc::default();
    let noted = refused.clone();
    let mapping = kubewright::Watch::<Secret>::new().map_with(move |secret, client: Client| {
        let noted = noted.clone();
        async move {
            let tried = client
                .api::<Secret>(Some("default"))
                .create(&PostParams::default(), &secret)
                .await;
            let error = tried.expect_err("a mapping only reads").into();
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Ok(vec![Request::new(Some("default"), "a")])
        }
    });
    let controller = Controller::of(Plain(told.clone()))
        .within(Scope::namespace("default"))
        .source(waker.source())
        .source(mapping);
    cluster
        .run_as_admin(Operator::new("plain").controller(controller))
        .await?;
    config.metadata.name = Some("a".to_owned());
    Api::<ConfigMap>::namespaced(cluster.kube(), "default")
        .create(&PostParams::default(), &config)
        .await?;
    let mut seen = told.subscribe();
    assert!(
        tokio::time::timeout(Duration::from_secs(30), seen.wait_for(|told| !told.is_empty()))
            .await
            .is_ok()
    );
    assert_eq!(told.borrow()[0], "1 here, namespaces: true, stored: false");
    let mut secret = Secret::default();
    secret.metadata.name = Some("s".to_owned());
    Api::<Secret>::namespaced(cluster.kube(), "default")
        .create(&PostParams::default(), &secret)
        .await?;
    assert!(
        tokio::time::timeout(Duration::from_secs(30), seen.wait_for(|told| told.len() > 1))
            .await
            .is_ok()
    );
    let error = refused
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .expect("it was tried");
    assert!(
        error.is_terminal() && error.to_string().contains("a source only reads"),
        "{error}"
    );
    Ok(())
}

/// Does nothing.
struct Idle;

impl Reconciler for Idle {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        Ok(Action::await_change())
    }
}

/// With shards a waker says on each replica whether the key is worked on there: on exactly one it is.
#[tokio::test]
async fn a_waker_says_which_replica_works_on_the_key() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let waker = Waker::new();
        let controller = Controller::of(Idle).source(waker.source());
        let manager = Manager::builder(cluster.kube())
            .name("idle")
            .add(controller)
            .sharding(Sharding::new("idle", 8))
            .build()?;
        let metrics = manager.metrics();
        let (source, stop) = Stop::pair();
        let running = tokio::spawn(async move { manager.run(async move { stop.requested().await }).await });
        replicas.push((waker, metrics, source, running));
    }
    let shared = async {
        while !replicas
            .iter()
            .all(|(_, metrics, ..)| metrics.encode().contains("kubewright_shards_held{name=\"idle\"} 4"))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), shared)
        .await
        .expect("they share");
    for number in 0..20 {
        let key = Request::new(Some("default"), &format!("k{number}"));
        let mut here = 0;
        for (waker, ..) in &replicas {
            here += usize::from(waker.wake(key.clone(), "outside").await == Woken::Here);
        }
        assert_eq!(here, 1, "{key}");
    }
    for (_, _, source, running) in replicas {
        source.stop();
        running.await.expect("no panic")?;
    }
    Ok(())
}

/// An operator has the options of a manager: parts of kinds, steps of the set-up, checks, controllers that come later.
#[tokio::test]
async fn an_operator_has_every_option_of_a_manager() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let healthy = Arc::new(watch::Sender::new(true));
    let seen = healthy.clone();
    let begun = Arc::new(watch::Sender::new(Vec::new()));
    let (late, early) = (begun.clone(), begun.clone());
    let operator = Operator::new("all");
    let controllers = operator.controllers_handle();
    let operator = operator
        .within::<ConfigMap>(Scope::all().labels([("ours", "yes")].into_iter().collect()))
        .transform::<ConfigMap>(|config| config.data = None)
        .graceful_shutdown(Duration::from_secs(5))
        .health("127.0.0.1:0")
        .liveness_check("printer", move || match *seen.borrow() {
            true => Ok(()),
            false => Err("it is on fire".to_owned()),
        })
        .readiness_check("paper", || panic!("no tray"))
        .set_up(move |operator: Operator, client: kube::Client| async move {
            let namespaces = Api::<Namespace>::all(client)
                .list(&Default::default())
                .await?
                .items
                .len();
            early.send_modify(|begun| begun.push(format!("set up: {}", namespaces > 0)));
            Ok(operator.controller(Controller::of(Idle).named("early")))
        })
        .runnable_on_every_replica("later", move |_: Client, stop: Stop| {
            let (controllers, late) = (controllers.clone(), late.clone());
            async move {
                controllers.add(Controller::of(Idle).named("late")).await?;
                late.send_modify(|begun| begun.push("added".to_owned()));
                stop.requested().await;
                Ok(())
            }
        });
    let manager = operator
        .prepared(&cluster.kube())
        .await?
        .manager(cluster.kube())
        .build()?;
    let address = manager.health_address();
    let (source, stop) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stop.requested().await }).await });
    let mut all = begun.subscribe();
    let waited = tokio::time::timeout(Duration::from_secs(30), all.wait_for(|begun| begun.len() == 2)).await;
    assert!(waited.is_ok(), "{:?}", begun.borrow());
    assert_eq!(*begun.borrow(), ["set up: true", "added"]);
    let address = address.await;
    assert_eq!(
        super::metrics::plain(address, "/livez/printer").await,
        (200, "ok".to_owned())
    );
    assert_eq!(
        super::metrics::plain(address, "/readyz/early").await,
        (200, "ok".to_owned())
    );
    let (code, text) = super::metrics::plain(address, "/readyz/paper").await;
    assert!(code == 500 && text.contains("the check panicked: no tray"), "{text}");
    healthy.send_replace(false);
    for path in ["/livez", "/healthz"] {
        let (code, text) = super::metrics::plain(address, path).await;
        assert!(
            code == 500 && text.contains("[-]printer failed: it is on fire"),
            "{text}"
        );
    }
    source.stop();
    running.await.expect("no panic")?;
    let twice = || Ok(());
    let error = Operator::new("x")
        .liveness_check("a", twice)
        .liveness_check("a", twice)
        .manager(cluster.kube())
        .build();
    let error = error.expect_err("one name is taken").to_string();
    assert!(error.contains("a check of /healthz is named \"a\""), "{error}");
    let failing = Operator::new("x").set_up(|_, _| async { Err::<Operator, _>(Error::terminal("no network")) });
    let error = failing
        .run(cluster.kube(), std::future::pending())
        .await
        .expect_err("the step fails");
    assert_eq!(error.to_string(), "set-up: no network");
    Ok(())
}

/// Stamps what is written with the time.
struct Stamper;

impl Defaulter for Stamper {
    type Object = ConfigMap;

    async fn default(&self, config: &mut ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
        let stamps = config.metadata.annotations.get_or_insert_default();
        stamps.insert("at".to_owned(), request.now().to_string());
        Ok(())
    }
}

#[tokio::test]
async fn a_webhook_has_the_time_of_its_manager() -> Result<()> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
    cluster
        .run(Operator::new("stamps").webhook(Webhook::of::<ConfigMap>().defaulter(Stamper)))
        .await?;
    let config = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a ConfigMap");
    let config: ConfigMap = Api::namespaced(cluster.kube(), "default")
        .create(&PostParams::default(), &config)
        .await?;
    let at = config
        .metadata
        .annotations
        .and_then(|stamps| stamps.get("at").cloned())
        .unwrap_or_default();
    assert!(at.starts_with("2026-01-01T00:0"), "{at}");
    Ok(())
}
