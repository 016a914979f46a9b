//! One watch and one store for each resource of a cluster, with a real API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use k8s_openapi::api::autoscaling::{v1 as hpa1, v2 as hpa2};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::api::Patch;
use kubewright::kube::core::{DynamicObject, PartialObjectMeta};
use kubewright::kube::{self, client::Body};
use kubewright::{
    Action, Cache, Client, Context, Controller, Error, Event, Health, Manager, Observation, Outcome, Reconciler,
    Request, Scope, Stop, Watch, api_resource,
};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;

/// The watches of a client, by their queries, as its server sees them.
#[derive(Clone, Default)]
struct Watches(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// The path and the answer to "is it held".
    open: BTreeMap<usize, (String, watch::Sender<bool>)>,
    opened: Vec<String>,
    /// Requests of which a part is in the path or the query, and that are refused.
    refused: Option<&'static str>,
}

/// A watch that is open, until this is dropped.
struct Open(Watches, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.seen().open.remove(&self.1);
    }
}

impl Watches {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().expect("no panic while held")
    }

    /// The same client, seen from here.
    fn of(&self, client: kube::Client) -> kube::Client {
        let (watches, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (watches, inner) = (watches.clone(), inner.clone());
            async move {
                let uri = request.uri().to_string();
                if watches.seen().refused.is_some_and(|part| uri.contains(part)) {
                    let status = kube::core::Status::failure("refused by the test", "Forbidden").with_code(403);
                    return Err(kube::Error::Api(Box::new(status)));
                }
                let is_watch = uri.contains("watch=true");
                let open = is_watch.then(|| {
                    let mut seen = watches.seen();
                    let number = seen.opened.len();
                    let path = request.uri().path().to_owned();
                    seen.opened.push(uri);
                    let held = watch::Sender::new(false);
                    let receiver = held.subscribe();
                    seen.open.insert(number, (path, held));
                    (Open(watches.clone(), number), receiver)
                });
                let answer = inner.send(request).await?;
                Ok::<_, kube::Error>(answer.map(|body| {
                    let frames = BodyStream::new(body).scan(open, |open, frame| {
                        let mut held = open.as_ref().map(|(_, held)| held.clone());
                        async move {
                            if let Some(held) = &mut held {
                                let _ = held.wait_for(|held| !held).await;
                            }
                            Some(frame)
                        }
                    });
                    StreamBody::new(frames.boxed())
                }))
            }
        });
        kube::Client::new(service, client.default_namespace())
    }

    /// How many are open at a path, and how many were.
    fn count(&self, path: &str) -> (usize, usize) {
        let seen = self.seen();
        let open = seen.open.values().filter(|(open, _)| open.ends_with(path));
        let opened = seen.opened.iter().filter(|uri| uri.contains(&format!("{path}?")));
        (open.count(), opened.count())
    }

    /// From now on all but the first of the open watches bring nothing.
    fn hold_all_but_the_first(&self) {
        let seen = self.seen();
        seen.open.values().skip(1).for_each(|(_, held)| hold(held, true));
    }

    fn hold(&self, path: &str) {
        let seen = self.seen();
        let those = seen.open.values().filter(|(open, _)| open.ends_with(path));
        those.for_each(|(_, held)| hold(held, true));
    }

    fn release(&self) {
        self.seen().open.values().for_each(|(_, held)| hold(held, false));
    }
}

fn hold(stream: &watch::Sender<bool>, held: bool) {
    stream.send_replace(held);
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "not so: {what}");
}

async fn cluster() -> Result<TestCluster> {
    TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await
}

fn config(name: &str, app: &str, value: &str) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}});
    serde_json::from_value(json!({"metadata": metadata, "data": {"key": value}})).expect("it is a ConfigMap")
}

fn value(config: &ConfigMap) -> &str {
    config
        .data
        .as_ref()
        .and_then(|data| data.get("key"))
        .map_or("", String::as_str)
}

fn labelled(app: &'static str) -> Scope {
    Scope::all().labels([("app", app)].into_iter().collect())
}

const CONFIGS: &str = "/configmaps";

/// What wakes a reconcile and what it reads then is one state of the world, also where the one is a part of a kind and
/// the other all of it: were the read behind, nothing would wake the key again.
#[tokio::test]
async fn a_wake_up_and_the_read_after_it_see_the_same_state() -> Result<()> {
    let cluster = cluster().await?;
    cluster.client().create(&config("x", "shop", "old")).await?;
    let watches = Watches::default();
    let kube = watches.of(cluster.kube());
    let client = Client::new(kube.clone(), Cache::new(kube));
    let part = client.cache().informer_in::<ConfigMap>(labelled("shop"));
    let (woken, mut wakes) = watch::channel(0);
    part.add_key_handler(move |_| woken.send_modify(|count| *count += 1));
    part.synced().await?;
    client
        .get::<ConfigMap>(Some("default"), "x")
        .await?
        .expect("it is there");
    eventually("the part is told what is there", || *wakes.borrow_and_update() == 1).await;
    // Of two streams one is always ahead.
    watches.hold_all_but_the_first();
    let change = Patch::Merge(json!({"data": {"key": "new"}}));
    cluster
        .client()
        .patch::<ConfigMap, _>(Some("default"), "x", &change)
        .await?;
    wakes.wait_for(|count| *count == 2).await.expect("the informer lives");
    let read = client
        .get::<ConfigMap>(Some("default"), "x")
        .await?
        .expect("it is there");
    assert_eq!(value(&read), "new", "nothing will wake the key again");
    let all = client.list::<ConfigMap>(Some("default")).await?;
    assert!(all.iter().any(|config| value(config) == "new"));
    Ok(())
}

/// Two versions of one resource are two stores, because a text of the one is none of the other. A read of the one still
/// shows what an event of the other has told.
#[tokio::test]
async fn a_read_of_another_version_is_not_older_than_the_wake_up() -> Result<()> {
    let cluster = cluster().await?;
    let scaler = |most: i32| -> hpa2::HorizontalPodAutoscaler {
        let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        let object = json!({"metadata": {"name": "x", "namespace": "default"},
            "spec": {"maxReplicas": most, "scaleTargetRef": target}});
        serde_json::from_value(object).expect("it is an autoscaler")
    };
    cluster.client().create(&scaler(3)).await?;
    let watches = Watches::default();
    let kube = watches.of(cluster.kube());
    let client = Client::new(kube.clone(), Cache::new(kube)).with_read_deadline(Duration::from_millis(100));
    let newer = client.cache().informer::<hpa2::HorizontalPodAutoscaler>();
    let (woken, mut wakes) = watch::channel(0);
    newer.add_key_handler(move |_| woken.send_modify(|count| *count += 1));
    newer.synced().await?;
    let read = async || {
        client
            .get::<hpa1::HorizontalPodAutoscaler>(Some("default"), "x")
            .await
            .map(|read| read.and_then(|read| json!(&*read)["spec"]["maxReplicas"].as_i64()))
    };
    assert_eq!(read().await?, Some(3));
    watches.hold("/v1/horizontalpodautoscalers");
    let change = Patch::Merge(json!({"spec": {"maxReplicas": 4}}));
    cluster
        .client()
        .patch::<hpa2::HorizontalPodAutoscaler, _>(Some("default"), "x", &change)
        .await?;
    wakes.wait_for(|count| *count == 2).await.expect("the informer lives");
    assert_eq!(read().await?, Some(4));
    Ok(())
}

/// Reads ConfigMaps in every form.
struct Reader(watch::Sender<usize>);

impl Reconciler for Reader {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let seen = ctx.client().list::<ConfigMap>(None).await?;
        self.0.send_replace(seen.len());
        Ok(Action::await_change())
    }
}

type Meta = PartialObjectMeta<ConfigMap>;

/// README's promise: a controller of a kind that is also watched by metadata, by a dynamic type and in part, and is
/// read, has one watch of it; and since all of that is declared, that one lists once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_operator_has_one_watch_for_each_kind() -> Result<()> {
    let cluster = cluster().await?;
    cluster.client().create(&config("x", "shop", "1")).await?;
    cluster.client().create(&config("y", "other", "1")).await?;
    let watches = Watches::default();
    let (seen, mut counted) = watch::channel(0);
    let name_of = |object: &DynamicObject| vec![Request::of(object)];
    let resource = api_resource::<ConfigMap>();
    let manager = Manager::builder(watches.of(cluster.kube()))
        .add(
            Controller::of(Reader(seen))
                .source(Watch::<ConfigMap>::new().within(labelled("shop")).all())
                .source(Watch::<DynamicObject>::dynamic(&resource).map(name_of))
                .source(Watch::<Meta>::dynamic(&resource).map(|meta: &Meta| vec![Request::of(meta)]))
                .indexes::<ConfigMap>("value", |config| vec![value(config).to_owned()])
                .reads::<ConfigMap>(Scope::all()),
        )
        .build()
        .expect("it fits together");
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(manager.run(async move { token.requested().await }));
    counted.wait_for(|seen| *seen >= 2).await.expect("the manager runs");
    assert_eq!(watches.count(CONFIGS), (1, 1), "{:?}", watches.seen().opened);
    stop.stop();
    running.await.expect("no panic")?;
    Ok(())
}

/// Reads a Secret for each ConfigMap.
struct Undeclared;

impl Reconciler for Undeclared {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        ctx.client().get::<Secret>(Some("default"), "x").await?;
        Ok(Action::await_change())
    }
}

/// A test learns of a read that nobody declares, and of the line to add; in production it starts a watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_that_nobody_declares_is_an_error_in_tests() -> Result<()> {
    let check =
        async |controller: Controller, refuse: bool, lists_secrets: bool, failure: Option<&str>| -> Result<()> {
            let cluster = cluster().await?;
            cluster.client().create(&config("x", "shop", "1")).await?;
            let watches = Watches::default();
            let (told, mut outcomes) = watch::channel(None);
            let observer = move |observation: &Observation| {
                if let Observation::ReconcileFinished { request, outcome, .. } = observation
                    && request.name() == "x"
                {
                    told.send_replace(Some(outcome.clone()));
                }
            };
            let manager = Manager::builder(watches.of(cluster.kube()))
                .observe(Arc::new(observer))
                .refuse_undeclared_reads(refuse)
                .add(controller)
                .build()
                .expect("it fits together");
            let (stop, token) = Stop::pair();
            let running = tokio::spawn(manager.run(async move { token.requested().await }));
            let outcome = outcomes.wait_for(Option::is_some).await.expect("it runs").clone();
            match (outcome, failure) {
                (Some(Outcome::Done), None) => {}
                (Some(Outcome::Retry { error, .. }), Some(failure)) => assert!(error.contains(failure), "{error}"),
                (outcome, _) => panic!("{outcome:?}"),
            }
            assert_eq!(watches.count("/secrets").0 > 0, lists_secrets);
            stop.stop();
            running.await.expect("no panic")?;
            Ok(())
        };
    let line = "add .reads::<Secret>(Scope::all())";
    check(Controller::of(Undeclared), true, false, Some(line)).await?;
    check(Controller::of(Undeclared), false, true, None).await?;
    let declared = Controller::of(Undeclared).reads::<Secret>(Scope::namespace("default"));
    check(declared, true, true, None).await
}

/// A view of some types and scopes, and what its handlers believe in.
#[derive(Clone, Default)]
struct Believer(Arc<Mutex<Belief>>);

/// The objects, and what was wrong about them.
type Belief = (BTreeMap<String, String>, Vec<String>);

impl Believer {
    fn hears(&self, event: &Event<ConfigMap>) {
        let (world, faults) = &mut *self.0.lock().expect("no panic while held");
        let name = event.object().metadata.name.clone().unwrap_or_default();
        let version = |config: &ConfigMap| config.metadata.resource_version.clone().unwrap_or_default();
        let mut fault = |fault: &str| faults.push(format!("{name}: {fault}"));
        match event {
            Event::Added { object, .. } => {
                if world.insert(name.clone(), version(object)).is_some() {
                    fault("added twice");
                }
            }
            Event::Modified { old, new } => {
                let before = world.insert(name.clone(), version(new));
                if before != Some(version(old)) {
                    fault("changed from what was not told");
                }
                if version(old) == version(new) {
                    fault("not changed");
                }
                if before.and_then(|before| before.parse::<u64>().ok()) > version(new).parse().ok() {
                    fault("it went back in time");
                }
            }
            Event::Deleted { .. } => {
                if world.remove(&name).is_none() {
                    fault("deleted what was not told");
                }
            }
        }
    }

    fn world(&self) -> BTreeMap<String, String> {
        self.0.lock().expect("no panic while held").0.clone()
    }

    fn faults(&self) -> Vec<String> {
        self.0.lock().expect("no panic while held").1.clone()
    }
}

/// A watch that becomes wider while objects change: the handlers of the narrower view see one consistent history, those
/// of the wider one all that is there, and in the end there is one watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_becomes_wider_and_nothing_is_lost() -> Result<()> {
    let cluster = cluster().await?;
    for round in 0..8 {
        let watches = Watches::default();
        let kube = watches.of(cluster.kube());
        let client = Client::new(kube.clone(), Cache::new(kube));
        let (narrow, wide) = (Believer::default(), Believer::default());
        let part = client.cache().informer_in::<ConfigMap>(labelled("shop"));
        let sink = narrow.clone();
        part.add_inline_handler(move |event| sink.hears(event));
        part.synced().await?;
        let writer = cluster.client().clone();
        let writes = tokio::spawn(async move {
            for number in 0..60_usize {
                let (name, app) = (format!("c{}", number % 7), ["shop", "other", "shop"][number % 3]);
                let desired = config(&name, app, &format!("{round} {number}"));
                if number % 11 == 10 {
                    let _ = writer.delete(&desired).await;
                } else {
                    writer.apply(desired).await.expect("applied");
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(2 * round)).await;
        let all = client.cache().informer::<ConfigMap>();
        let sink = wide.clone();
        all.add_inline_handler(move |event| sink.hears(event));
        all.synced().await?;
        writes.await.expect("no panic");
        let server = cluster
            .client()
            .list_live::<ConfigMap>(None, &Default::default())
            .await?;
        let of = |inside: &dyn Fn(&ConfigMap) -> bool| -> BTreeMap<String, String> {
            let inside = server.iter().filter(|config| inside(config));
            let facts = inside.map(|config| {
                let meta = &config.metadata;
                (
                    meta.name.clone().unwrap_or_default(),
                    meta.resource_version.clone().unwrap_or_default(),
                )
            });
            facts.collect()
        };
        let shop = |config: &ConfigMap| {
            config
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels["app"] == "shop")
        };
        let (in_part, everything) = (of(&shop), of(&|_| true));
        eventually("both know everything", || {
            narrow.world() == in_part && wide.world() == everything
        })
        .await;
        assert_eq!(
            (narrow.faults(), wide.faults()),
            (Vec::<String>::new(), Vec::new()),
            "round {round}"
        );
        eventually("one watch is left", || watches.count(CONFIGS).0 == 1).await;
        assert_eq!(part.store().len(), in_part.len());
        assert_eq!(all.store().len(), everything.len());
    }
    Ok(())
}

/// A read of all that is refused: whoever watches a part goes on, and the reader is told why. When the right is there,
/// both share one watch.
#[tokio::test]
async fn a_wider_read_that_is_refused_harms_nobody() -> Result<()> {
    let cluster = cluster().await?;
    cluster.client().create(&config("x", "shop", "1")).await?;
    cluster.client().create(&config("y", "other", "1")).await?;
    let watches = Watches::default();
    let kube = watches.of(cluster.kube());
    let client = Client::new(kube.clone(), Cache::new(kube));
    let narrow = Believer::default();
    let part = client
        .cache()
        .informer_in::<ConfigMap>(Scope::namespace("default").labels([("app", "shop")].into_iter().collect()));
    let sink = narrow.clone();
    part.add_inline_handler(move |event| sink.hears(event));
    part.synced().await?;
    watches.seen().refused = Some("/api/v1/configmaps");
    let all = client.cache().informer::<ConfigMap>();
    eventually(
        "it says why",
        || matches!(all.health(), Health::Degraded { reason } if reason.contains("refused by the test")),
    )
    .await;
    let error = all
        .synced_within(Duration::from_millis(10))
        .await
        .expect_err("it may not");
    assert!(
        matches!(&error, Error::NotSynced { reason, .. } if reason.contains("refused by the test")),
        "{error}"
    );
    assert_eq!(part.health(), Health::Synced);
    cluster.client().create(&config("z", "shop", "1")).await?;
    eventually("the part goes on", || narrow.world().len() == 2).await;
    assert_eq!(part.store().len(), 2);
    watches.seen().refused = None;
    all.synced().await?;
    assert!(all.store().get(Some("default"), "y").is_some());
    eventually("one watch is left", || watches.count(CONFIGS).0 == 1).await;
    cluster.client().delete(&config("z", "shop", "1")).await?;
    eventually("the part goes on", || narrow.world().len() == 1).await;
    assert_eq!(narrow.faults(), Vec::<String>::new());
    Ok(())
}

/// Metadata are enough for a view of metadata. When a reader of whole objects comes, the same watch brings them, and
/// nothing has happened for the first view.
#[tokio::test]
async fn metadata_become_whole_objects_when_somebody_reads_them() -> Result<()> {
    let cluster = cluster().await?;
    cluster.client().create(&config("x", "shop", "1")).await?;
    let watches = Watches::default();
    let kube = watches.of(cluster.kube());
    let client = Client::new(kube.clone(), Cache::new(kube));
    let metas = client.cache().informer::<Meta>();
    let (told, events) = watch::channel(0);
    metas.add_inline_handler(move |_: &Event<Meta>| told.send_modify(|count| *count += 1));
    metas.synced().await?;
    let known = *events.borrow();
    assert!(client.cache().existing::<Meta>().is_some());
    let read = client
        .get::<ConfigMap>(Some("default"), "x")
        .await?
        .expect("it is there");
    assert_eq!(value(&read), "1");
    let meta = metas.store().get(Some("default"), "x").expect("it is there");
    let kind = meta.types.as_ref().map(|types| types.kind.as_str());
    assert_eq!(
        (kind, meta.metadata.uid.as_ref()),
        (Some("PartialObjectMetadata"), read.metadata.uid.as_ref())
    );
    assert_eq!(*events.borrow(), known, "nothing has changed");
    eventually("one watch is left", || watches.count(CONFIGS).0 == 1).await;
    watches.release();
    Ok(())
}

/// A part of a kind over a store of all of it: an object that leaves the part is deleted there, one that enters it is
/// added; reads, indexes and counts show the part.
#[tokio::test]
async fn a_part_of_a_shared_store_is_what_the_server_would_select() -> Result<()> {
    let cluster = cluster().await?;
    let client = cluster.client();
    client.create(&config("x", "shop", "1")).await?;
    client.create(&config("y", "other", "1")).await?;
    client.list::<ConfigMap>(None).await?;
    let part = client.cache().informer_in::<ConfigMap>(labelled("shop"));
    part.add_index("value", |config| vec![value(config).to_owned()])?;
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = log.clone();
    part.add_inline_handler(move |event: &Event<ConfigMap>| {
        let (word, object) = match event {
            Event::Added { object, initial: true } => ("initially", object),
            Event::Added { object, .. } => ("added", object),
            Event::Modified { new, .. } => ("changed", new),
            Event::Deleted { object, .. } => ("deleted", object),
        };
        let name = object.metadata.name.as_deref().unwrap_or_default();
        sink.lock()
            .expect("quiet")
            .push(format!("{word} {name} {}", value(object)));
    });
    part.synced().await?;
    let app = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
    for (name, to) in [("x", "other"), ("y", "shop"), ("x", "third")] {
        client.patch::<ConfigMap, _>(Some("default"), name, &app(to)).await?;
    }
    let in_part = |objects: Vec<Arc<ConfigMap>>| -> Vec<String> {
        objects
            .iter()
            .filter_map(|config| config.metadata.name.clone())
            .collect()
    };
    assert_eq!(
        in_part(client.list_from(&part, None).await?),
        ["y"],
        "own writes are seen"
    );
    assert_eq!(in_part(part.store().by_index("value", "1", None)?), ["y"]);
    assert_eq!(
        (part.store().len(), in_part(part.store().list())),
        (1, vec!["y".to_owned()])
    );
    assert!(part.store().get(Some("default"), "x").is_none());
    client.delete(&config("y", "shop", "1")).await?;
    client.list::<ConfigMap>(None).await?;
    assert_eq!(
        *log.lock().expect("quiet"),
        ["initially x 1", "deleted x 1", "added y 1", "deleted y 1"]
    );
    Ok(())
}

/// Applying needs the present object and no watch of its kind, and still sends nothing that changes nothing.
#[tokio::test]
async fn what_is_only_applied_is_not_watched() -> Result<()> {
    let cluster = cluster().await?;
    let watches = Watches::default();
    let kube = watches.of(cluster.kube());
    let client = Client::new(kube.clone(), Cache::new(kube));
    let version = |config: &ConfigMap| config.metadata.resource_version.clone();
    let first = client.apply(config("x", "shop", "1")).await?;
    let again = client.apply(config("x", "shop", "1")).await?;
    assert_eq!(version(&first), version(&again));
    let changed = client.apply(config("x", "shop", "2")).await?;
    assert_ne!(version(&first), version(&changed));
    assert_eq!(watches.seen().opened, Vec::<String>::new());
    // With a cache it is asked, own writes included.
    let read = client
        .get::<ConfigMap>(Some("default"), "x")
        .await?
        .expect("it is there");
    assert_eq!(version(&read), version(&changed));
    client.apply(config("x", "shop", "2")).await?;
    assert_eq!(watches.count(CONFIGS), (1, 1));
    Ok(())
}
