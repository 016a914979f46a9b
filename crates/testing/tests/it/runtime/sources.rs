//! The sources of reconciles, with a real API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kubewright::kube::Api;
use kubewright::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubewright::kube::core::PartialObjectMeta;
use kubewright::{
    Action, Client, Context, Controller, Error, LeaderElection, Manager, Operator, Reconciler, Request, Scope, Source,
    Stop, Waker, Watch, predicate,
};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

/// The name of a reconciled object, and the causes.
type Note = (String, Vec<String>);

/// The reconciles and their causes.
#[derive(Clone, Default)]
struct Journal(Arc<watch::Sender<Vec<Note>>>);

impl Journal {
    async fn until(&self, what: &str, seen: impl Fn(&[Note]) -> bool) {
        let mut notes = self.0.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(30), notes.wait_for(|notes| seen(notes))).await;
        assert!(waited.is_ok(), "{what}: {:#?}", self.0.borrow());
    }

    /// Waits until every name was reconciled for a cause that begins so.
    async fn woken(&self, names: &[&str], cause: &str) {
        let because = |causes: &[String]| causes.iter().any(|told| told.starts_with(cause));
        let all = |notes: &[Note]| {
            names
                .iter()
                .all(|name| notes.iter().any(|(noted, causes)| noted == name && because(causes)))
        };
        self.until(&format!("{names:?} because of {cause}"), all).await;
    }

    fn clear(&self) {
        self.0.send_modify(Vec::clear);
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.borrow().iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

struct Noter(Journal);

impl Reconciler for Noter {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let causes = ctx.causes().iter().map(ToString::to_string).collect();
        self.0.0.send_modify(|notes| notes.push((name, causes)));
        Ok(Action::await_change())
    }
}

/// A cluster with ConfigMaps of these names that a controller with this source has looked at.
async fn started(names: &[&str], source: Source) -> Result<(TestCluster, Journal)> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    for name in names {
        create::<ConfigMap>(&cluster, json!({"metadata": {"name": name}})).await?;
    }
    let journal = Journal::default();
    let controller = Controller::of(Noter(journal.clone())).source(source);
    cluster.run(Operator::new("noter").controller(controller)).await?;
    journal.woken(names, "ConfigMap").await;
    journal.clear();
    Ok((cluster, journal))
}

async fn create<K>(cluster: &TestCluster, object: Value) -> Result<K>
where
    K: kubewright::Object + kubewright::kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    let object = serde_json::from_value(object).expect("it is one");
    Ok(Api::default_namespaced(cluster.kube())
        .create(&PostParams::default(), &object)
        .await?)
}

async fn patch(cluster: &TestCluster, secret: &str, change: Value) -> Result<()> {
    let api: Api<Secret> = Api::default_namespaced(cluster.kube());
    api.patch(secret, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

fn owned_by(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"for": label}}})
}

/// The ConfigMap that the label names, if the cache knows it.
async fn labelled(secret: Arc<Secret>, client: Client) -> kubewright::Result<Vec<Request>> {
    let name = secret.metadata.labels.iter().flatten().find(|(key, _)| *key == "for");
    let Some((_, name)) = name else { return Ok(Vec::new()) };
    let found = client.get::<ConfigMap>(Some("default"), name).await?;
    Ok(found.iter().map(|found| Request::of(&**found)).collect())
}

/// The Secrets that a ConfigMap names in its data, and the ConfigMaps of the namespace in which they are.
fn named(config: &ConfigMap) -> Vec<String> {
    config.data.iter().flatten().map(|(_, name)| name.clone()).collect()
}

fn name_of(secret: &Secret) -> Vec<String> {
    assert_ne!(secret.metadata.name.as_deref(), Some("bomb"), "it is to panic");
    secret.metadata.name.clone().into_iter().collect()
}

/// R3: a change wakes the objects that an index of the controller's own kind files under its values, as these are when
/// it comes; no other, none twice, and all of them when a function panics.
#[tokio::test]
async fn r3_a_change_wakes_what_its_values_find() -> Result<()> {
    let (cluster, journal) = started(&["a", "b", "c"], Watch::<Secret>::new().by_index(named, name_of)).await?;
    let configs: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    let naming = async |config: &str, data: Value| -> Result<()> {
        let change = Patch::Merge(json!({ "data": data }));
        configs.patch(config, &PatchParams::default(), &change).await?;
        journal.woken(&[config], "ConfigMap").await;
        journal.clear();
        Ok(())
    };
    naming("a", json!({"one": "s", "again": "s"})).await?;
    naming("b", json!({"one": "s", "two": "t"})).await?;

    create::<Secret>(&cluster, json!({"metadata": {"name": "s"}})).await?;
    journal.woken(&["a", "b"], "Secret default/s created").await;
    create::<Secret>(&cluster, json!({"metadata": {"name": "t"}})).await?;
    journal.woken(&["b"], "Secret default/t created").await;
    assert_eq!(journal.names(), ["a", "b"]);
    journal.clear();

    naming("b", json!({"one": null})).await?;
    patch(&cluster, "s", json!({"metadata": {"labels": {"x": "y"}}})).await?;
    journal.woken(&["a"], "Secret default/s").await;
    create::<Secret>(&cluster, json!({"metadata": {"name": "unknown"}})).await?;
    patch(&cluster, "t", json!({"metadata": {"labels": {"x": "y"}}})).await?;
    journal.woken(&["b"], "Secret default/t").await;
    assert_eq!(journal.names(), ["a", "b"]);
    journal.clear();

    create::<Secret>(&cluster, json!({"metadata": {"name": "bomb"}})).await?;
    journal.woken(&["a", "b", "c"], "the mapping of Secret panicked").await;
    Ok(())
}

/// R3: a change wakes the objects for which a condition holds.
#[tokio::test]
async fn r3_a_change_wakes_those_for_which_a_condition_holds() -> Result<()> {
    let is_chosen = |config: &ConfigMap| config.data.iter().flatten().any(|(key, _)| key == "chosen");
    let (cluster, journal) = started(&["a", "b", "c"], Watch::<Secret>::new().all_where(is_chosen)).await?;
    let configs: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    for name in ["a", "c"] {
        let change = Patch::Merge(json!({"data": {"chosen": "yes"}}));
        configs.patch(name, &PatchParams::default(), &change).await?;
        journal.woken(&[name], "ConfigMap").await;
    }
    journal.clear();
    create::<Secret>(&cluster, json!({"metadata": {"name": "s"}})).await?;
    journal.woken(&["a", "c"], "Secret default/s created").await;
    assert_eq!(journal.names(), ["a", "c"]);
    Ok(())
}

/// The index is of the controller's own kind: another one would find keys of strangers.
#[tokio::test]
async fn an_index_of_another_kind_is_refused() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let accounts = |account: &ServiceAccount| account.metadata.name.clone().into_iter().collect();
    let source = Watch::<Secret>::new().by_index(accounts, name_of);
    let operator = Operator::new("noter").controller(Controller::of(Noter(Journal::default())).source(source));
    let refused = cluster.run(operator).await.expect_err("it reconciles ConfigMaps");
    let told = refused.to_string();
    assert!(
        told.contains("Watch::by_index files objects of another type than ConfigMap"),
        "{told}"
    );
    Ok(())
}

/// R3: a state of an object that it had only while its mapping waited counts too.
#[tokio::test]
async fn r3_every_state_of_an_object_is_mapped_however_late() -> Result<()> {
    let gate = Arc::new(Semaphore::new(0));
    let (held, asked) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let source = Watch::<Secret>::new().map_with(move |secret, client| {
        let (gate, attempt) = (held.clone(), asked.fetch_add(1, Ordering::SeqCst));
        async move {
            let _open = gate.acquire().await.map_err(Error::retry)?;
            match attempt {
                1 => Err(Error::retry("not yet")),
                2 => panic!("not at all"),
                _ => labelled(secret, client).await,
            }
        }
    });
    let (cluster, journal) = started(&["a", "b", "c", "d"], source).await?;
    create::<Secret>(&cluster, owned_by("s", "a")).await?;
    patch(&cluster, "s", owned_by("s", "b")).await?;
    patch(&cluster, "s", owned_by("s", "c")).await?;
    Api::<Secret>::default_namespaced(cluster.kube())
        .delete("s", &DeleteParams::default())
        .await?;
    gate.add_permits(100);
    journal.woken(&["a", "b", "c"], "Secret default/s").await;
    assert_eq!(journal.names(), ["a", "b", "c"]);
    Ok(())
}

/// A state that cannot be mapped is given up; a write is refused.
#[tokio::test]
async fn a_mapping_only_reads() -> Result<()> {
    let refused = Arc::new(watch::Sender::new(None));
    let told = refused.clone();
    let source = Watch::<Secret>::new().map_with(move |secret, client| {
        let told = told.clone();
        async move {
            let written = client.create(&*secret).await;
            told.send_replace(written.err().map(|error| error.to_string()));
            labelled(secret, client).await
        }
    });
    let (cluster, journal) = started(&["a"], source).await?;
    create::<Secret>(&cluster, owned_by("s", "a")).await?;
    journal.woken(&["a"], "Secret default/s created").await;
    let why = refused.borrow().clone().unwrap_or_default();
    assert!(why.contains("the mapping of a source only reads"), "{why}");
    Ok(())
}

#[tokio::test]
async fn predicates_and_selectors_belong_to_one_source() -> Result<()> {
    let by_label = |secret: &Secret| {
        let labels = secret.metadata.labels.iter().flatten();
        labels
            .filter(|(key, _)| *key == "for")
            .map(|(_, name)| Request::new(Some("default"), name))
            .collect()
    };
    let red = Scope::all().labels([("colour", "red")].into_iter().collect());
    let source = Watch::<Secret>::new()
        .within(red)
        .when(predicate::and(
            predicate::not(predicate::created),
            predicate::labels_changed,
        ))
        .map(by_label);
    let (cluster, journal) = started(&["a", "b", "c"], source).await?;
    let labels = |name: &str, colour: &str, of: &str| json!({"metadata": {"name": name, "labels": {"for": of, "colour": colour}}});
    create::<Secret>(&cluster, labels("blue", "blue", "a")).await?;
    create::<Secret>(&cluster, labels("red", "red", "b")).await?;
    patch(&cluster, "blue", labels("blue", "blue", "b")).await?;
    patch(&cluster, "red", json!({"data": {"a": "YQ=="}})).await?;
    patch(&cluster, "red", labels("red", "red", "c")).await?;
    journal.woken(&["b", "c"], "Secret default/red changed").await;
    // It leaves the selection, which reads as a deletion.
    patch(&cluster, "red", labels("red", "green", "a")).await?;
    journal.woken(&["c"], "Secret default/red deleted").await;
    assert!(!journal.names().contains(&"a".to_owned()), "{:?}", journal.names());
    Ok(())
}

#[tokio::test]
async fn owners_that_do_not_control_are_woken_when_asked_for_by_metadata_alone() -> Result<()> {
    let source = Watch::<PartialObjectMeta<Secret>>::new().owned_by_any();
    let (cluster, journal) = started(&["a", "b", "c"], source).await?;
    let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": controller});
    let owners = [owner("a", true), owner("b", false)];
    create::<Secret>(&cluster, json!({"metadata": {"name": "s", "ownerReferences": owners}})).await?;
    journal.woken(&["a", "b"], "Secret default/s created").await;
    assert_eq!(journal.names(), ["a", "b"]);
    Ok(())
}

/// A reconciler that waits for permission before each reconcile.
struct Held(Journal, Arc<Semaphore>);

impl Reconciler for Held {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        self.1.acquire().await.map_err(Error::retry)?.forget();
        Noter(self.0.clone()).reconcile(object, ctx).await
    }
}

fn key(name: &str) -> Request {
    Request::new(Some("default"), name)
}

#[tokio::test]
async fn what_is_woken_from_outside_is_reconciled_for_that_reason() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    for name in ["a", "b"] {
        create::<ConfigMap>(&cluster, json!({"metadata": {"name": name}})).await?;
    }
    let (waker, journal) = (Waker::new(), Journal::default());
    let operator = || {
        let controller = Controller::of(Noter(journal.clone())).source(waker.source());
        cluster.run(Operator::new("noter").controller(controller))
    };
    waker.wake(key("a"), "before it ran").await;
    let running = operator().await?;
    journal.woken(&["a"], "before it ran").await;
    waker.wake(key("b"), "while it ran").await;
    journal.woken(&["b"], "while it ran").await;
    waker.wake_all("for everybody").await;
    journal.woken(&["a", "b"], "for everybody").await;
    running.stop().await?;
    // The next one gets the keys that were not worked on.
    waker.wake(key("b"), "between").await;
    let _running = operator().await?;
    journal.woken(&["b"], "between").await;
    Ok(())
}

#[tokio::test]
async fn a_waker_has_room_until_workers_have_taken_the_keys() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let (waker, journal, gate) = (Waker::with_capacity(2), Journal::default(), Arc::new(Semaphore::new(0)));
    for name in ["a", "b", "c"] {
        create::<ConfigMap>(&cluster, json!({"metadata": {"name": name}})).await?;
    }
    waker.wake(key("a"), "first").await;
    waker.wake(key("b"), "second").await;
    let full = waker.try_wake(key("c"), "third").expect_err("two wait");
    let (patient, controller) = (waker.clone(), Held(journal.clone(), gate.clone()));
    let third = tokio::spawn(async move { patient.wake(key("c"), "third").await });
    let controller = Controller::of(controller).source(waker.source());
    let _running = cluster.run(Operator::new("noter").controller(controller)).await?;
    gate.add_permits(100);
    third.await.expect("there is room again");
    journal.woken(&["a"], "first").await;
    journal.woken(&["c"], "third").await;
    assert!(full.to_string().contains("as many wake-ups wait"), "{full}");
    // The same again takes no room while it waits.
    for _ in 0..100 {
        waker.wake(key("a"), "again").await;
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_that_does_not_lead_keeps_what_is_woken_until_it_does() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    create::<ConfigMap>(&cluster, json!({"metadata": {"name": "a"}})).await?;
    let replica = |identity: &str| {
        let (waker, journal) = (Waker::new(), Journal::default());
        let hour = Duration::from_secs(3600);
        let election = LeaderElection::new("noter").identity(identity).lease_duration(hour);
        let election = election.renew_deadline(hour / 2).retry_period(hour / 60);
        let builder = Manager::builder(cluster.kube()).name("noter").leader_election(election);
        let controller = Controller::of(Noter(journal.clone())).source(waker.source());
        let manager = builder.add(controller).build().expect("it fits together");
        (waker, journal, manager)
    };
    let run = |manager: Manager| {
        let (stop, token) = Stop::pair();
        let running = tokio::spawn(manager.run(async move { token.requested().await }));
        (stop, running)
    };
    let (_, first_notes, first) = replica("one");
    let first = run(first);
    first_notes.woken(&["a"], "ConfigMap default/a").await;
    let (waker, second_notes, second) = replica("two");
    let second = run(second);
    waker.wake(key("a"), "while the other led").await;
    assert_eq!(second_notes.names(), [""; 0], "it does not lead");
    first.0.stop();
    first.1.await.expect("no panic").expect("it stops in order");
    second_notes.woken(&["a"], "while the other led").await;
    second.0.stop();
    second.1.await.expect("no panic").expect("it stops in order");
    Ok(())
}

#[tokio::test]
async fn every_object_is_looked_at_again_and_again() -> Result<()> {
    let (_cluster, journal) = started(&["a", "b"], Source::every(Duration::from_millis(5))).await?;
    journal.clear();
    journal.woken(&["a", "b"], "looked at every 5ms").await;
    Ok(())
}

/// R3: what panics beside a reconcile loses no change: the keys that may be meant are reconciled because of it, and it
/// is counted.
#[tokio::test]
async fn r3_a_panic_in_a_source_or_an_index_leads_to_a_reconcile() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let journal = Journal::default();
    let bad = |object: &kubewright::kube::core::ObjectMeta| {
        assert!(object.name.as_deref() != Some("bad"), "it is bad");
    };
    let controller = Controller::of(Noter(journal.clone()))
        .named("noter")
        .with_predicate::<ConfigMap>(move |event| {
            bad(&event.object().metadata);
            true
        })
        .watches::<Secret>(move |secret| {
            bad(&secret.metadata);
            Vec::new()
        })
        .indexes::<ServiceAccount>("spec.x", move |account| {
            bad(&account.metadata);
            Vec::new()
        });
    let manager = Manager::builder(cluster.kube()).add(controller).build()?;
    let (ready, metrics) = (manager.ready(), manager.metrics());
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    ready.await;
    create::<ConfigMap>(&cluster, json!({"metadata": {"name": "good"}})).await?;
    journal.woken(&["good"], "ConfigMap default/good created").await;
    create::<ConfigMap>(&cluster, json!({"metadata": {"name": "bad"}})).await?;
    journal
        .woken(&["bad"], "the predicate of ConfigMap panicked: it is bad")
        .await;
    create::<Secret>(&cluster, json!({"metadata": {"name": "bad"}})).await?;
    journal
        .woken(&["good", "bad"], "the mapping of Secret panicked: it is bad")
        .await;
    create::<ServiceAccount>(&cluster, json!({"metadata": {"name": "bad"}})).await?;
    journal
        .woken(
            &["good", "bad"],
            "the index spec.x of ServiceAccount panicked: it is bad",
        )
        .await;
    let text = metrics.encode();
    let counted = text
        .lines()
        .find(|line| line.starts_with("kubewright_source_panics_total{controller=\"noter\"}"));
    assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{counted:?}");
    stop.stop();
    running.await.expect("no panic")?;
    Ok(())
}

/// However many objects a kind has any of which wakes every key, its first list wakes each key a few times at most.
#[tokio::test]
async fn a_list_of_what_wakes_all_wakes_each_once() -> Result<()> {
    const KEYS: usize = 20;
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    for number in 0..KEYS {
        create::<ConfigMap>(&cluster, json!({"metadata": {"name": format!("c{number}")}})).await?;
    }
    for number in 0..60 {
        create::<Secret>(&cluster, json!({"metadata": {"name": format!("s{number}")}})).await?;
    }
    let journal = Journal::default();
    let controller = Controller::of(Noter(journal.clone()))
        .named("noter")
        .watches_all_of::<Secret>();
    let manager = Manager::builder(cluster.kube()).add(controller).build()?;
    let metrics = manager.metrics();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let names: Vec<String> = (0..KEYS).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    journal.woken(&names, "Secret").await;
    let text = metrics.encode();
    let adds = text
        .lines()
        .find_map(|line| line.strip_prefix("workqueue_adds_total{controller=\"noter\",name=\"noter\"} "));
    let adds: f64 = adds.and_then(|adds| adds.parse().ok()).expect("it is counted");
    assert!(adds <= 5.0 * KEYS as f64, "{adds} adds for {KEYS} keys");
    stop.stop();
    running.await.expect("no panic")?;
    Ok(())
}

/// An error that panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("it goes off");
    }
}

/// R3: neither mappings that never end nor those around which something panics keep others from being mapped.
#[tokio::test]
async fn r3_mappings_that_hang_or_break_hold_up_no_other() -> Result<()> {
    let broken = Arc::new(AtomicUsize::new(0));
    let source = Watch::<Secret>::new().map_with(move |secret, client| {
        let broken = broken.clone();
        async move {
            match secret.metadata.name.as_deref().unwrap_or_default() {
                name if name.starts_with("hang") => std::future::pending().await,
                name if name.starts_with("break") && broken.fetch_add(1, Ordering::SeqCst) < 8 => {
                    Err(Error::retry(Bomb))
                }
                _ => labelled(secret, client).await,
            }
        }
    });
    let (cluster, journal) = started(&["a", "b"], source).await?;
    for number in 0..8 {
        create::<Secret>(&cluster, owned_by(&format!("break-{number}"), "a")).await?;
        create::<Secret>(&cluster, owned_by(&format!("hang-{number}"), "a")).await?;
    }
    create::<Secret>(&cluster, owned_by("late", "b")).await?;
    journal.woken(&["b"], "Secret default/late").await;
    for number in 0..8 {
        journal.woken(&["a"], &format!("Secret default/break-{number}")).await;
    }
    Ok(())
}
