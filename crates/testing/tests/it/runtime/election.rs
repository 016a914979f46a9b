//! Leader election with a real API server: replicas of one operator, of which one acts.
//!
//! A reconciler notes which replica ran in which term. Durations are such that a test that waits for the wrong thing
//! does not end: a Lease of an hour is never waited for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{Action, Client, Context, Controller, Error, LeaderElection, Manager, Reconciler, Stop, StopSource};
use kubewright_testing::{Cluster, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const HOUR: Duration = Duration::from_secs(3600);

/// A reconcile: replica, term, object.
type Note = (&'static str, u64, String);

/// The notes of all replicas.
#[derive(Clone, Default)]
struct Journal(Arc<watch::Sender<Vec<Note>>>);

impl Journal {
    async fn until(&self, what: &str, seen: impl Fn(&[Note]) -> bool) -> Vec<Note> {
        let mut notes = self.0.subscribe();
        let found = tokio::time::timeout(Duration::from_secs(30), notes.wait_for(|notes| seen(notes))).await;
        match found {
            Ok(Ok(notes)) => notes.clone(),
            _ => panic!("{what}: {:?}", self.0.borrow()),
        }
    }

    /// The replica and term of the first reconcile of an object.
    async fn first(&self, object: &str) -> (&'static str, u64) {
        let notes = self
            .until(object, |notes| notes.iter().any(|(_, _, name)| name == object))
            .await;
        let note = notes.into_iter().find(|(_, _, name)| name == object);
        note.map(|(replica, term, _)| (replica, term))
            .expect("it was waited for")
    }
}

struct Noter {
    replica: &'static str,
    journal: Journal,
    /// Where the client of the latest reconcile is kept.
    client: Option<Arc<Mutex<Option<Client>>>>,
}

impl Reconciler for Noter {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let name = object.metadata.name.clone().unwrap_or_default();
        if name.starts_with("kube-") {
            return Ok(Action::await_change());
        }
        let term = ctx.term().ok_or_else(|| Error::terminal("no term".to_owned()))?;
        self.journal
            .0
            .send_modify(|notes| notes.push((self.replica, term, name)));
        if let Some(client) = &self.client {
            *client.lock().expect("no panic while held") = Some(ctx.client().clone());
        }
        Ok(Action::await_change())
    }
}

/// One process of the operator.
struct Replica {
    stop: StopSource,
    running: JoinHandle<kubewright::Result<()>>,
}

impl Replica {
    async fn stop(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("it stops in order");
    }

    /// Ends like a killed process: nothing is given back.
    async fn crash(self) {
        self.running.abort();
        assert!(self.running.await.expect_err("it was aborted").is_cancelled());
    }
}

fn manager(kube: kube::Client, election: LeaderElection, noter: Noter) -> Manager {
    let builder = Manager::builder(kube).name("noter").leader_election(election);
    builder.add(Controller::of(noter)).build().expect("it fits together")
}

fn run(manager: Manager) -> Replica {
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    Replica { stop, running }
}

fn noter(replica: &'static str, journal: &Journal) -> Noter {
    Noter {
        replica,
        journal: journal.clone(),
        client: None,
    }
}

fn election(identity: &str, lease: Duration, renew: Duration, retry: Duration) -> LeaderElection {
    LeaderElection::new("noter")
        .identity(identity)
        .lease_duration(lease)
        .renew_deadline(renew)
        .retry_period(retry)
}

fn patient(identity: &str) -> LeaderElection {
    election(identity, HOUR, HOUR / 2, HOUR / 60)
}

fn hasty(identity: &str) -> LeaderElection {
    election(
        identity,
        Duration::from_secs(1),
        Duration::from_millis(600),
        Duration::from_millis(100),
    )
}

/// A cluster in whose time a hasty election loses nothing to a machine that is busy.
async fn in_virtual_time() -> Result<TestCluster> {
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    TestCluster::in_virtual_time(start, Cluster::builder()).await
}

async fn create(cluster: &TestCluster, name: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// The API server behind a connection that a test can break.
fn breakable(kube: kube::Client, broken: impl Fn(&Request<Body>) -> bool + Send + Sync + 'static) -> kube::Client {
    let broken = Arc::new(broken);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kube, broken) = (kube.clone(), broken.clone());
        async move {
            if broken(&request) {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403});
                let answer = Response::builder().status(StatusCode::FORBIDDEN);
                return Ok(answer.body(Body::from(status.to_string().into_bytes())).expect("valid"));
            }
            kube.send(request).await
        }
    });
    kube::Client::new(service, "default")
}

fn is_lease(request: &Request<Body>) -> bool {
    request.uri().path().contains("/leases")
}

#[tokio::test]
async fn le3_a_lease_that_is_given_back_is_taken_at_once() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let first = manager(cluster.kube(), patient("one"), noter("one", &journal));
    let leads = first.ready();
    let first = run(first);
    leads.await;
    let second = run(manager(cluster.kube(), patient("two"), noter("two", &journal)));
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("one", 0));
    first.stop().await;
    create(&cluster, "b").await?;
    assert_eq!(journal.first("b").await, ("two", 1));
    second.stop().await;
    let lease: Api<Lease> = Api::namespaced(cluster.kube(), "default");
    let spec = lease.get("noter").await?.spec.expect("it has one");
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some(""), Some(1))
    );
    let events: Api<Event> = Api::namespaced(cluster.kube(), "default");
    let events = events.list(&kube::api::ListParams::default()).await?.items;
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("Lease"))
        .filter_map(|event| event.message.as_deref())
        .collect();
    for message in [
        "one became leader",
        "one stopped leading",
        "two became leader",
        "two stopped leading",
    ] {
        assert!(told.contains(&message), "{message}: {told:?}");
    }
    Ok(())
}

/// A replica that stands by keeps no keys of what its cache has anyway, and looks at all of it when it leads.
#[tokio::test]
async fn a_standby_keeps_no_keys() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let first = manager(cluster.kube(), patient("one"), noter("one", &journal));
    let leads = first.ready();
    let first = run(first);
    leads.await;
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("one", 0));
    let second = manager(cluster.kube(), patient("two"), noter("two", &journal));
    let metrics = second.metrics();
    let second = run(second);
    let sum = |series: &str| {
        let text = metrics.encode();
        let values = text.lines().filter(|line| line.starts_with(series));
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.reduce(|sum, value| sum + value)
    };
    let rests = async |cached: f64| {
        let rests = async {
            while sum("kubewright_cache_objects{").is_none_or(|now| now < cached)
                || sum("workqueue_depth{") != Some(0.0)
            {
                tokio::task::yield_now().await;
            }
        };
        let rests = tokio::time::timeout(Duration::from_secs(30), rests).await;
        rests.unwrap_or_else(|_| panic!("{}", metrics.encode()));
        sum("kubewright_cache_objects{").unwrap_or_default()
    };
    let cached = rests(1.0).await;
    create(&cluster, "b").await?;
    rests(cached + 1.0).await;
    first.stop().await;
    let all = |notes: &[Note]| {
        ["a", "b"]
            .iter()
            .all(|name| notes.contains(&("two", 1, (*name).to_owned())))
    };
    journal.until("the second looks at all", all).await;
    second.stop().await;
    Ok(())
}

#[tokio::test]
async fn le4_a_crashed_leader_is_followed_after_its_lease() -> Result<()> {
    let cluster = in_virtual_time().await?;
    let journal = Journal::default();
    let first = manager(cluster.kube(), hasty("one"), noter("one", &journal));
    let leads = first.ready();
    let first = run(first);
    leads.await;
    let second = run(manager(cluster.kube(), hasty("two"), noter("two", &journal)));
    first.crash().await;
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("two", 1));
    second.stop().await;
    Ok(())
}

/// LE2, LE6, M1: a leader that cannot renew its Lease stops, writes nothing more, and comes back without ending.
#[tokio::test]
async fn le2_a_leader_that_is_cut_off_stops_and_comes_back() -> Result<()> {
    let cluster = in_virtual_time().await?;
    let journal = Journal::default();
    let cut = Arc::new(watch::Sender::new(false));
    let seen = cut.clone();
    let kube = breakable(cluster.kube(), move |request| is_lease(request) && *seen.borrow());
    let client = Arc::new(Mutex::new(None));
    let runs = Arc::new(AtomicUsize::new(0));
    let (ended, mut has_ended) = watch::channel(0_usize);
    let counted = runs.clone();
    let reconciler = Noter {
        client: Some(client.clone()),
        ..noter("one", &journal)
    };
    let manager_of_one = Manager::builder(kube)
        .name("noter")
        .leader_election(hasty("one"))
        .add(Controller::of(reconciler))
        .runnable("runs", move |_, stop: Stop| {
            counted.fetch_add(1, Ordering::SeqCst);
            let ended = ended.clone();
            async move {
                stop.requested().await;
                ended.send_modify(|ended| *ended += 1);
                Ok(())
            }
        })
        .build()
        .expect("it fits together");
    let first = run(manager_of_one);
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("one", 0));
    let second = run(manager(cluster.kube(), hasty("two"), noter("two", &journal)));

    cut.send_replace(true);
    has_ended
        .wait_for(|ended| *ended == 1)
        .await
        .expect("the runnable is asked to stop");
    let of_the_first_term = client
        .lock()
        .expect("no panic while held")
        .clone()
        .expect("it reconciled");
    let refused = of_the_first_term
        .patch::<ConfigMap, _>(Some("default"), "a", &Patch::Merge(json!({"data": {"late": "yes"}})))
        .await;
    assert!(matches!(refused, Err(Error::NotLeading { .. })), "{refused:?}");
    create(&cluster, "b").await?;
    assert_eq!(journal.first("b").await, ("two", 1));

    cut.send_replace(false);
    second.stop().await;
    // In its second term it looks at everything: the plans of the other one are lost.
    let again = |notes: &[Note]| {
        ["a", "b"]
            .iter()
            .all(|name| notes.iter().any(|note| *note == ("one", 2, (*name).to_owned())))
    };
    journal.until("it leads again", again).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    first.stop().await;
    Ok(())
}

/// A role without `watch` costs time and nothing else.
#[tokio::test]
async fn a_lease_that_cannot_be_watched_is_read() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let first = manager(cluster.kube(), patient("one"), noter("one", &journal));
    let leads = first.ready();
    let first = run(first);
    leads.await;
    let kube = breakable(cluster.kube(), |request| {
        is_lease(request) && request.uri().query().is_some_and(|query| query.contains("watch="))
    });
    let polling = election("two", HOUR, HOUR / 2, Duration::from_millis(50));
    let second = run(manager(kube, polling, noter("two", &journal)));
    first.stop().await;
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("two", 1));
    second.stop().await;
    Ok(())
}

/// LE5: many replicas that begin at once, one leads; each that ends is followed by one other.
#[tokio::test]
async fn le5_of_many_replicas_one_leads() -> Result<()> {
    const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let mut replicas: Vec<_> = NAMES
        .iter()
        .map(|name| {
            (
                *name,
                run(manager(cluster.kube(), patient(name), noter(name, &journal))),
            )
        })
        .collect();
    for term in 0..NAMES.len() {
        let object = format!("in-term-{term}");
        create(&cluster, &object).await?;
        let (leader, number) = journal.first(&object).await;
        assert_eq!(usize::try_from(number).expect("small"), term);
        let place = replicas.iter().position(|(name, _)| *name == leader).expect("it runs");
        replicas.remove(place).1.stop().await;
    }
    let notes = journal.0.borrow().clone();
    for term in 0..NAMES.len() as u64 {
        let mut leaders: Vec<_> = notes.iter().filter(|note| note.1 == term).map(|note| note.0).collect();
        leaders.dedup();
        assert_eq!(leaders.len(), 1, "term {term}: {notes:?}");
    }
    Ok(())
}

/// LE8, and a Lease that a client deletes.
#[tokio::test]
async fn le8_labels_stay_and_a_deleted_lease_is_made_again() -> Result<()> {
    let cluster = in_virtual_time().await?;
    let leases: Api<Lease> = Api::namespaced(cluster.kube(), "default");
    let mut lease = Lease::default();
    lease.metadata.name = Some("noter".to_owned());
    lease.metadata.labels = Some([("team".to_owned(), "red".to_owned())].into());
    leases.create(&PostParams::default(), &lease).await?;
    let journal = Journal::default();
    let replica = run(manager(cluster.kube(), hasty("one"), noter("one", &journal)));
    create(&cluster, "a").await?;
    assert_eq!(journal.first("a").await, ("one", 1));
    let labels = leases.get("noter").await?.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("team").map(String::as_str), Some("red"));
    leases.delete("noter", &kube::api::DeleteParams::default()).await?;
    journal
        .until("a new term", |notes| {
            notes.iter().filter(|note| note.2 == "a").count() == 2
        })
        .await;
    // A holder that is made up elsewhere is believed.
    let usurper = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    leases
        .patch("noter", &PatchParams::default(), &Patch::Merge(usurper))
        .await?;
    replica.stop().await;
    let spec = leases.get("noter").await?.spec.expect("it has one");
    assert_eq!(spec.holder_identity.as_deref(), Some("other"));
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused() {
    let check = |election: LeaderElection, expected: &str| {
        let kube = kube::Client::new(
            tower::service_fn(|_: Request<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) }),
            "default",
        );
        match Manager::builder(kube).leader_election(election).build() {
            Err(Error::Configuration(why)) => assert_eq!(why, expected),
            other => panic!("{other:?}"),
        }
    };
    check(
        LeaderElection::new(""),
        "leader election by Lease \"\": a Lease needs a name; give it to LeaderElection::new",
    );
    check(
        LeaderElection::new("l").identity(""),
        "leader election by Lease \"l\": the identity is empty, and an empty holder means that nothing leads",
    );
    check(
        LeaderElection::new("l").renew_deadline(HOUR),
        "leader election by Lease \"l\": the lease duration 15s must be longer than the renew deadline 3600s",
    );
}
