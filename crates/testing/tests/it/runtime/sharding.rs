//! Sharding with a real API server: replicas of one operator, each of which works on a part of the objects.
//!
//! A reconciler enters an object's key in a journal that all replicas share, writes, and leaves it. Two in it at once
//! are an error, and so is a write to a system outside with a term that is older than one before (fencing).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{ListParams, Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Client, Context, Controller, Error, Manager, Metrics, Reconciler, Sharding, Stop, StopSource,
};
use kubewright_testing::{Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const SHARDS: usize = 8;

/// An event of a key.
#[derive(Clone, Debug, PartialEq)]
struct Note {
    replica: &'static str,
    term: u64,
    key: String,
    /// The generation that the test gave it.
    round: String,
}

#[derive(Clone, Default)]
struct Journal(Arc<Inner>);

#[derive(Default)]
struct Inner {
    notes: watch::Sender<Vec<Note>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who is at which key.
    active: BTreeMap<String, &'static str>,
    /// The memory of an outside system for each key: the greatest term.
    fence: BTreeMap<String, u64>,
    wrong: Vec<String>,
    /// Terms that the system outside has refused.
    refused: Vec<(String, u64)>,
    /// Reconciles that were dropped.
    dropped: usize,
    /// The answers to a replica that wrote after a pause.
    late: Vec<String>,
}

/// A reconcile of a key, until it ends or is dropped.
struct At<'a>(&'a Journal, String, bool);

impl At<'_> {
    fn leave(mut self) {
        self.2 = true;
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.active.remove(&self.1);
        state.dropped += usize::from(!self.2);
    }
}

impl Journal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, key: &str, replica: &'static str) -> At<'_> {
        let mut state = self.state();
        if let Some(other) = state.active.insert(key.to_owned(), replica) {
            state.wrong.push(format!("{other} and {replica} are both at {key}"));
        }
        At(self, key.to_owned(), false)
    }

    /// The system outside: it takes nothing with an old term.
    fn outside(&self, key: &str, term: u64) -> bool {
        let mut state = self.state();
        let greatest = state.fence.entry(key.to_owned()).or_insert(term);
        let takes = term >= *greatest;
        *greatest = term.max(*greatest);
        if !takes {
            state.refused.push((key.to_owned(), term));
        }
        takes
    }

    async fn until(&self, what: &str, seen: impl Fn(&[Note]) -> bool) -> Vec<Note> {
        let mut notes = self.0.notes.subscribe();
        let found = tokio::time::timeout(Duration::from_secs(60), notes.wait_for(|notes| seen(notes))).await;
        match found {
            Ok(Ok(notes)) => notes.clone(),
            _ => panic!("{what}: {:?}", self.0.notes.borrow()),
        }
    }

    /// Waits until every key was reconciled in a round, by one of these replicas.
    async fn all(&self, keys: usize, round: &str, by: &[&str]) -> Vec<Note> {
        let what = format!("{keys} keys in round {round} by {by:?}");
        let seen = |notes: &[Note]| {
            let done = notes
                .iter()
                .filter(|note| note.round == round && by.contains(&note.replica));
            done.map(|note| &note.key).collect::<BTreeSet<_>>().len() == keys
        };
        self.until(&what, seen).await
    }

    fn check(&self) {
        let state = self.state();
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
    }
}

/// Stops a replica's only thread in the midst of a reconcile, as SIGSTOP would.
#[derive(Clone)]
struct Freezer(Arc<AtomicBool>, Arc<Mutex<mpsc::Receiver<()>>>);

struct Sharer {
    replica: &'static str,
    journal: Journal,
    freezer: Option<Freezer>,
    /// Until this says so, reconciles of the round "slow" do not end.
    gate: Option<watch::Receiver<bool>>,
}

impl Reconciler for Sharer {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let key = ctx.request().to_string();
        if ctx.request().name().starts_with("kube-") {
            return Ok(Action::await_change());
        }
        let at = self.journal.enter(&key, self.replica);
        let term = ctx.term().ok_or_else(|| Error::terminal("no term".to_owned()))?;
        let round = object
            .data
            .as_ref()
            .and_then(|data| data.get("round"))
            .cloned()
            .unwrap_or_default();
        if let Some(Freezer(froze, thaw)) = &self.freezer
            && round == "freeze"
            && !froze.swap(true, Ordering::SeqCst)
        {
            // The others are to go on meanwhile: a stopped process is at no key.
            at.leave();
            let _ = thaw.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let written = write(ctx.client(), &key, self.replica).await;
            let outside = self.journal.outside(&key, term);
            let told = format!(
                "{}, outside {outside}",
                written.map_or_else(|error| error.to_string(), |()| "written".to_owned())
            );
            self.journal.state().late.push(told);
            return Ok(Action::await_change());
        }
        if let Some(gate) = self.gate.clone().filter(|_| round == "slow") {
            let mut gate = gate;
            let _ = gate.wait_for(|open| *open).await;
        }
        write(ctx.client(), &key, self.replica).await?;
        if !self.journal.outside(&key, term) {
            self.journal
                .state()
                .wrong
                .push(format!("{} was at {key} with old term {term}", self.replica));
        }
        let note = Note {
            replica: self.replica,
            term,
            key,
            round,
        };
        self.journal.0.notes.send_modify(|notes| notes.push(note));
        at.leave();
        Ok(Action::await_change())
    }
}

/// Writes the name of the replica; an equal value is no change.
async fn write(client: &Client, key: &str, replica: &str) -> kubewright::Result<()> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let patch = Patch::Merge(json!({"data": {"by": replica}}));
    client.patch::<ConfigMap, _>(Some(namespace), name, &patch).await?;
    Ok(())
}

fn sharding(identity: &str) -> Sharding {
    Sharding::new("sharer", SHARDS)
        .identity(identity)
        .lease_duration(Duration::from_secs(3))
        .renew_deadline(Duration::from_secs(2))
        .retry_period(Duration::from_millis(200))
}

fn manager(kube: kube::Client, sharding: Sharding, sharer: Sharer) -> Manager {
    let builder = Manager::builder(kube).name("sharer").sharding(sharding);
    builder
        .add(Controller::of(sharer).concurrency(4))
        .build()
        .expect("it fits together")
}

/// One process of the operator.
struct Replica {
    stop: StopSource,
    running: JoinHandle<kubewright::Result<()>>,
    metrics: Metrics,
}

impl Replica {
    fn run(manager: Manager) -> Replica {
        let (stop, token) = Stop::pair();
        let metrics = manager.metrics();
        let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
        Replica { stop, running, metrics }
    }

    fn start(cluster: &TestCluster, name: &'static str, journal: &Journal) -> Replica {
        Replica::run(manager(cluster.kube(), sharding(name), sharer(name, journal)))
    }

    fn shards(&self) -> usize {
        let metrics = self.metrics.encode();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("kubewright_shards_held{name=\"sharer\"} "));
        line.map_or(0, |held| held.parse().expect("a number"))
    }

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

fn sharer(replica: &'static str, journal: &Journal) -> Sharer {
    Sharer {
        replica,
        journal: journal.clone(),
        freezer: None,
        gate: None,
    }
}

/// Waits until these replicas hold so many shards each, in any order.
async fn shares(replicas: &[&Replica], expected: &[usize]) {
    let mut counts = Vec::new();
    for _ in 0..600 {
        counts = replicas.iter().map(|replica| replica.shards()).collect();
        counts.sort_unstable();
        if counts == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("they hold {counts:?} shards, not {expected:?}");
}

async fn put(cluster: &TestCluster, keys: usize, round: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    for at in 0..keys {
        let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("k-{at}")}, "data": {"round": round}});
        api.patch(
            &format!("k-{at}"),
            &PatchParams::apply("test").force(),
            &Patch::Apply(patch),
        )
        .await?;
    }
    Ok(())
}

/// SH1, SH4, SH7, SH8: replicas come, crash and end; every key is reconciled, and none by two at once.
#[tokio::test]
async fn sh4_three_managers_share_the_keys_and_take_those_of_one_that_crashes() -> Result<()> {
    const KEYS: usize = 40;
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let one = Replica::start(&cluster, "one", &journal);
    put(&cluster, KEYS, "alone").await?;
    journal.all(KEYS, "alone", &["one"]).await;
    assert_eq!(one.shards(), SHARDS, "who is alone has all");

    let two = Replica::start(&cluster, "two", &journal);
    let three = Replica::start(&cluster, "three", &journal);
    shares(&[&one, &two, &three], &[2, 3, 3]).await;
    put(&cluster, KEYS, "shared").await?;
    let notes = journal.all(KEYS, "shared", &["one", "two", "three"]).await;
    for replica in ["one", "two", "three"] {
        assert!(
            notes
                .iter()
                .any(|note| note.round == "shared" && note.replica == replica),
            "{replica} has no key"
        );
    }

    two.crash().await;
    put(&cluster, KEYS, "after a crash").await?;
    journal.all(KEYS, "after a crash", &["one", "three"]).await;
    shares(&[&one, &three], &[4, 4]).await;

    one.stop().await;
    shares(&[&three], &[SHARDS]).await;
    put(&cluster, KEYS, "last").await?;
    journal.all(KEYS, "last", &["three"]).await;
    three.stop().await;
    journal.check();
    let leases: Api<Lease> = Api::namespaced(cluster.kube(), "default");
    let ours = ListParams::default().labels("kubewright.dev/sharding=sharer");
    let leases = leases.list(&ours).await?.items;
    let holders: Vec<_> = leases
        .iter()
        .filter_map(|lease| lease.spec.as_ref()?.holder_identity.as_deref())
        .collect();
    assert_eq!(
        holders.iter().filter(|holder| !holder.is_empty()).collect::<Vec<_>>(),
        [&"two"],
        "only the crashed one left something"
    );
    Ok(())
}

/// SH1, SH8: a replica that is stopped in the midst of a reconcile, and goes on when others work on its keys, writes
/// nothing more.
#[tokio::test]
async fn sh8_a_replica_that_was_paused_writes_nothing_more() -> Result<()> {
    const KEYS: usize = 24;
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let two = Replica::start(&cluster, "two", &journal);
    let three = Replica::start(&cluster, "three", &journal);
    let (thaw, frozen) = mpsc::channel();
    let froze = Arc::new(AtomicBool::new(false));
    let freezer = Freezer(froze.clone(), Arc::new(Mutex::new(frozen)));
    let sharer = Sharer {
        freezer: Some(freezer),
        ..sharer("one", &journal)
    };
    let (stop, token) = Stop::pair();
    let kube = cluster.kube();
    // A process of its own, as far as that goes: one thread for everything, which the freezer stops.
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            manager(kube, sharding("one"), sharer)
                .run(async move { token.requested().await })
                .await
        })
    });
    put(&cluster, KEYS, "shared").await?;
    journal
        .until("one has keys", |notes| notes.iter().any(|note| note.replica == "one"))
        .await;
    put(&cluster, KEYS, "freeze").await?;
    // The others finish the round without it.
    journal.all(KEYS, "freeze", &["two", "three"]).await;
    assert!(froze.load(Ordering::SeqCst), "it was paused");
    put(&cluster, KEYS, "without").await?;
    journal.all(KEYS, "without", &["two", "three"]).await;
    thaw.send(()).expect("it waits");
    put(&cluster, KEYS, "together").await?;
    journal
        .until("it comes back", |notes| {
            notes
                .iter()
                .any(|note| note.replica == "one" && note.round == "together")
        })
        .await;
    stop.stop();
    process.join().expect("no panic").expect("it stops in order");
    two.stop().await;
    three.stop().await;
    journal.check();
    let state = journal.state();
    assert_eq!(state.late.len(), 1, "{:?}", state.late);
    assert!(
        state.late[0].contains("was not sent") && state.late[0].ends_with("outside false"),
        "{:?}",
        state.late
    );
    assert_eq!(state.refused.len(), 1, "{:?}", state.refused);
    Ok(())
}

/// SH2: when a shard changes hands its running work is waited for, and its Lease is kept meanwhile.
#[tokio::test]
async fn sh2_what_runs_is_waited_for_when_a_shard_changes_hands() -> Result<()> {
    const KEYS: usize = 4;
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let (open, gate) = watch::channel(false);
    let slow = Sharer {
        gate: Some(gate),
        ..sharer("one", &journal)
    };
    let one = Replica::run(manager(cluster.kube(), sharding("one"), slow));
    shares(&[&one], &[SHARDS]).await;
    put(&cluster, KEYS, "slow").await?;
    while journal.state().active.len() < KEYS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let two = Replica::start(&cluster, "two", &journal);
    shares(&[&one], &[SHARDS / 2]).await;
    // Longer than a Lease lasts: a shard with work is renewed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(two.shards() < SHARDS / 2, "a shard that is worked on changed hands");
    assert_eq!(journal.state().active.len(), KEYS, "they run");
    open.send_replace(true);
    shares(&[&one, &two], &[SHARDS / 2, SHARDS / 2]).await;
    let notes = journal.all(KEYS, "slow", &["one"]).await;
    assert!(notes.iter().all(|note| note.round == "slow"), "{notes:?}");
    assert_eq!(journal.state().dropped, 0);
    one.stop().await;
    two.stop().await;
    journal.check();
    Ok(())
}

/// SH6: the number of the first replica counts, and a number that is changed under way ends everything.
#[tokio::test]
async fn sh6_all_replicas_have_the_same_number_of_shards() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let journal = Journal::default();
    let one = Replica::start(&cluster, "one", &journal);
    shares(&[&one], &[SHARDS]).await;
    let told_another = Sharding::new("sharer", 64)
        .identity("two")
        .retry_period(Duration::from_millis(200));
    let two = Replica::run(manager(cluster.kube(), told_another, sharer("two", &journal)));
    shares(&[&one, &two], &[SHARDS / 2, SHARDS / 2]).await;
    let leases: Api<Lease> = Api::namespaced(cluster.kube(), "default");
    let more = json!({"metadata": {"annotations": {"kubewright.dev/shards": "64"}}});
    leases
        .patch("sharer-shards", &PatchParams::default(), &Patch::Merge(more))
        .await?;
    for replica in [one, two] {
        let ended = replica.running.await.expect("no panic").expect_err("it ends");
        assert!(
            ended
                .to_string()
                .contains("says 64 shards, and this replica began with 8"),
            "{ended}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused() {
    let check = |sharding: Sharding, expected: &str| {
        let kube = kube::Client::new(
            tower::service_fn(|_: Request<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) }),
            "default",
        );
        let builder = Manager::builder(kube).name("m").sharding(sharding);
        match builder.runnable("r", |_, _: Stop| async { Ok(()) }).build() {
            Err(Error::Configuration(why)) => assert_eq!(why, expected),
            other => panic!("{other:?}"),
        }
    };
    let name = "their name is a label's value, too: at most 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends";
    check(Sharding::new("", 1), &format!("sharding by Leases \"\": {name}"));
    check(Sharding::new("-a", 1), &format!("sharding by Leases \"-a\": {name}"));
    check(
        Sharding::new("a", 0),
        "sharding by Leases \"a\": 0 shards; there can be 1 to 256",
    );
    check(
        Sharding::new("a", 1).identity(""),
        "sharding by Leases \"a\": the identity is empty, and an empty holder means that nobody works on a shard",
    );
    check(
        Sharding::new("a", 1),
        "m: runnable \"r\" would run on every replica, because only controllers are shared out; add a leader election, or say \
         runnable_on_every_replica",
    );
}
