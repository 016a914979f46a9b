//! Terms of leading and of shards where requests hang, are refused, lost or slow, where watches lag and caches cannot be
//! filled. In virtual time: a task that spins instead of waiting keeps the time from going on, and a test from ending.
//!
//! Each replica reaches the API server through a line of its own, on which a test lays faults.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Client, Context, Controller, Controllers, Error, LeaderElection, Manager, ManagerBuilder, Metrics,
    Reconciler, Sharding, Stop, StopSource,
};
use kubewright_testing::{Cluster, Controllers as BuiltIn, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The defaults of the elections.
const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(10);
/// How long the others take at most to follow a leader that is not heard of: its Lease, and one retry.
const FOLLOWED: Duration = Duration::from_secs(18);
const SHARDS: usize = 4;

/// The fate of requests for Leases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    Hangs,
    Refused,
    Unreachable,
    AnswerLost,
    Slow(Duration),
}

/// What a replica's line does.
#[derive(Clone, Default)]
struct Faults {
    leases: Fault,
    /// Requests for this resource are forbidden.
    forbidden: &'static str,
    /// Watches of this resource deliver nothing.
    held: &'static str,
    /// Watches of ConfigMaps are late, now more and now less, up to this.
    lag: Duration,
}

fn is_of(path: &str, resource: &str) -> bool {
    !resource.is_empty() && path.split('/').any(|part| part == resource)
}

impl Faults {
    fn holds(&self, path: &str) -> bool {
        is_of(path, self.held) || (is_of(path, "leases") && self.leases == Fault::Hangs)
    }
}

type Answered = std::result::Result<Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>;

#[derive(Clone, Default)]
struct Line {
    faults: Arc<watch::Sender<Faults>>,
    /// Numbers the events of watches, for their lag.
    events: Arc<AtomicU64>,
    /// How many watches of Leases were opened.
    lease_watches: Arc<AtomicU64>,
}

impl Line {
    fn set(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }

    fn client(&self, kube: kube::Client) -> kube::Client {
        let line = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (line, kube) = (line.clone(), kube.clone());
            async move { line.send(kube, request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn send(self, kube: kube::Client, request: Request<Body>) -> Answered {
        let broken = |kind: std::io::ErrorKind| Err(kube::Error::Service(std::io::Error::from(kind).into()));
        let path = request.uri().path().to_owned();
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        let faults = self.faults.borrow().clone();
        let of_leases = is_of(&path, "leases");
        if is_of(&path, faults.forbidden) || (of_leases && faults.leases == Fault::Refused) {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403});
            let body = Body::from(status.to_string().into_bytes()).boxed_unsync();
            let answer = Response::builder().status(StatusCode::FORBIDDEN);
            return Ok(answer.body(body).expect("valid"));
        }
        if of_leases {
            match faults.leases {
                Fault::None | Fault::Refused => {}
                Fault::Hangs => std::future::pending().await,
                Fault::Unreachable => return broken(std::io::ErrorKind::ConnectionRefused),
                Fault::AnswerLost => {
                    kube.send(request).await?;
                    return broken(std::io::ErrorKind::ConnectionReset);
                }
                Fault::Slow(time) => sleep(time).await,
            }
        }
        let answer = kube.send(request).await?;
        if !watches {
            return Ok(answer.map(http_body_util::BodyExt::boxed_unsync));
        }
        if of_leases {
            self.lease_watches.fetch_add(1, Ordering::SeqCst);
        }
        Ok(answer.map(|body| StreamBody::new(self.delivered(path, body)).boxed_unsync()))
    }

    /// The frames of a watch, as late as the faults make them.
    fn delivered(
        self,
        path: String,
        body: Body,
    ) -> impl futures::Stream<Item = std::result::Result<Frame<Bytes>, kube::Error>> + Send {
        let frames = body.into_data_stream().map(|data| data.map(Frame::data)).boxed();
        stream::unfold((frames, self, path), |(mut frames, line, path)| async move {
            let frame = frames.next().await?;
            let mut faults = line.faults.subscribe();
            let lag = faults.borrow().lag;
            if !lag.is_zero() && is_of(&path, "configmaps") {
                let share = line.events.fetch_add(1, Ordering::SeqCst).wrapping_mul(7) % 10;
                sleep(lag.mul_f64(share as f64 / 10.0)).await;
            }
            let _ = faults.wait_for(|faults| !faults.holds(&path)).await;
            Some((frame, (frames, line, path)))
        })
    }
}

/// A reconcile that added one to the counter.
#[derive(Clone, Debug, PartialEq)]
struct Note {
    replica: &'static str,
    object: String,
    /// The number that it read.
    read: u64,
}

#[derive(Clone, Default)]
struct Journal {
    notes: Arc<watch::Sender<Vec<Note>>>,
    /// The replicas whose runnables run.
    active: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Journal {
    fn active(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, what: &str, seen: impl Fn(&[Note]) -> bool) -> Vec<Note> {
        let mut notes = self.notes.subscribe();
        match timeout(Duration::from_secs(300), notes.wait_for(|notes| seen(notes))).await {
            Ok(Ok(notes)) => notes.clone(),
            _ => panic!("{what}: {:?}", self.notes.borrow()),
        }
    }

    async fn by(&self, replica: &'static str, count: usize) -> Vec<Note> {
        let what = format!("{count} notes by {replica}");
        self.until(&what, |notes| {
            notes.iter().filter(|note| note.replica == replica).count() >= count
        })
        .await
    }

    fn of(&self, replica: &str) -> usize {
        self.notes
            .borrow()
            .iter()
            .filter(|note| note.replica == replica)
            .count()
    }
}

/// Adds one to the number in each object, once in each term, without a look at the version: who reads an old number
/// repeats it.
struct Counter {
    replica: &'static str,
    journal: Journal,
    counted: Mutex<BTreeSet<(String, Option<u64>)>>,
}

impl Reconciler for Counter {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let name = ctx.request().name().to_owned();
        if name.starts_with("kube-") {
            return Ok(Action::await_change());
        }
        let turn = (name.clone(), ctx.term());
        let lock = || self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().contains(&turn) {
            return Ok(Action::await_change());
        }
        let number = object.data.as_ref().and_then(|data| data.get("n"));
        let read = number.map_or(0, |number| number.parse().expect("a number"));
        let patch = Patch::Merge(json!({"data": {"n": (read + 1).to_string()}}));
        ctx.client()
            .patch::<ConfigMap, _>(Some("default"), &name, &patch)
            .await?;
        lock().insert(turn);
        let note = Note {
            replica: self.replica,
            object: name,
            read,
        };
        self.journal.notes.send_modify(|notes| notes.push(note));
        Ok(Action::await_change())
    }
}

struct Active(Journal, &'static str);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active().remove(self.1);
    }
}

struct Replica {
    stop: StopSource,
    running: JoinHandle<kubewright::Result<()>>,
    metrics: Metrics,
    controllers: Controllers,
    line: Line,
}

/// A cluster with the replicas of an operator.
struct World {
    cluster: TestCluster,
    journal: Journal,
}

impl World {
    async fn new() -> Result<World> {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(BuiltIn::None)).await?;
        Ok(World {
            cluster,
            journal: Journal::default(),
        })
    }

    fn counter(&self, replica: &'static str) -> Controller {
        let counter = Counter {
            replica,
            journal: self.journal.clone(),
            counted: Mutex::default(),
        };
        Controller::of(counter).named("counter")
    }

    /// Starts a replica; `with` adds an election or a sharding, and more.
    fn start(&self, replica: &'static str, line: Line, with: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Replica {
        let builder = Manager::builder(line.client(self.cluster.kube())).name("counter");
        let manager = with(builder.add(self.counter(replica)))
            .build()
            .expect("it fits together");
        let (stop, token) = Stop::pair();
        Replica {
            stop,
            metrics: manager.metrics(),
            controllers: manager.controllers(),
            running: tokio::spawn(manager.run(async move { token.requested().await })),
            line,
        }
    }

    /// A replica of an election, with a runnable that must never run twice at a time.
    fn candidate(&self, replica: &'static str) -> Replica {
        let journal = self.journal.clone();
        self.start(replica, Line::default(), |builder| {
            builder
                .leader_election(election(replica))
                .runnable("alone", move |_: Client, stop: Stop| {
                    let journal = journal.clone();
                    async move {
                        let others = journal.active().clone();
                        assert!(others.is_empty(), "{replica} begins beside {others:?}");
                        journal.active().insert(replica);
                        let _active = Active(journal, replica);
                        stop.requested().await;
                        Ok(())
                    }
                })
        })
    }

    fn sharer(&self, replica: &'static str) -> Replica {
        let sharding = Sharding::new("counter", SHARDS).identity(replica);
        self.start(replica, Line::default(), |builder| builder.sharding(sharding))
    }

    async fn create(&self, name: &str) -> Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.kube(), "default");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}});
        api.patch(name, &PatchParams::apply("test"), &Patch::Apply(object))
            .await?;
        Ok(())
    }
}

fn election(identity: &str) -> LeaderElection {
    LeaderElection::new("counter").identity(identity)
}

impl Replica {
    async fn stop(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("it stops in order");
    }

    fn shards(&self) -> usize {
        let metrics = self.metrics.encode();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("kubewright_shards_held{name=\"counter\"} "));
        line.map_or(0, |held| held.parse().expect("a number"))
    }
}

/// Waits until replicas hold so many shards; answers how long that took.
async fn shares(replicas: &[(&Replica, usize)]) -> Duration {
    let began = Instant::now();
    while replicas.iter().any(|(replica, shards)| replica.shards() != *shards) {
        let held: Vec<usize> = replicas.iter().map(|(replica, _)| replica.shards()).collect();
        assert!(began.elapsed() < Duration::from_secs(300), "they hold {held:?}");
        sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}

/// Runs a test in a runtime of its own, because a runtime has one time. A task that never sleeps keeps a time that a test
/// owns from going on; the machine's time shows it.
fn in_virtual_time(test: impl Future<Output = Result<()>>) -> Result<()> {
    let (late, is_late) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(180));
        drop(late);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::select! {
            ended = test => ended,
            _ = is_late => panic!("the time stands still: a task spins, or the test waits for ever"),
        }
    })
}

/// Each fault, and for how long at least a replica goes on with it, if it does.
const FAULTS: [(Fault, Option<Duration>); 5] = [
    (Fault::Hangs, None),
    (Fault::Refused, None),
    (Fault::Unreachable, None),
    // Its watch shows that its writes have succeeded, as long as that lasts.
    (Fault::AnswerLost, Some(Duration::from_secs(200))),
    // Slower than a request of a healthy server, and fast enough to renew in time.
    (Fault::Slow(Duration::from_secs(3)), Some(Duration::from_secs(600))),
];

/// LE1, LE2, LE4: whatever becomes of the leader's requests, it stops in time, another replica follows in time, and the
/// first one comes back when it can.
#[test]
fn le2_a_leader_whose_requests_fail_is_followed_in_time() -> Result<()> {
    for (fault, stays) in FAULTS {
        in_virtual_time(async {
            let world = World::new().await?;
            world.create("a").await?;
            let one = world.candidate("one");
            world.journal.by("one", 1).await;
            let two = world.candidate("two");
            sleep(LEASE).await;
            let began = Instant::now();
            one.line.set(|faults| faults.leases = fault);
            if let Some(stays) = stays {
                sleep(stays).await;
                assert_eq!(world.journal.of("two"), 0, "{fault:?}: it renews in time");
            } else {
                world.journal.by("two", 1).await;
                let took = began.elapsed();
                assert!(
                    took > LEASE - RENEW && took <= FOLLOWED,
                    "{fault:?}: followed after {took:?}"
                );
                assert_eq!(*world.journal.active(), BTreeSet::from(["two"]), "{fault:?}");
            }
            one.line.set(|faults| faults.leases = Fault::None);
            sleep(LEASE).await;
            // Who does not lead gives way, and the other one leads then.
            let (leader, other, name, terms) = match stays.is_some() {
                true => (one, two, "two", 1),
                false => (two, one, "one", 2),
            };
            leader.stop().await;
            world.journal.by(name, terms).await;
            other.stop().await;
            assert!(world.journal.active().is_empty());
            Ok(())
        })?;
    }
    Ok(())
}

/// SH1, SH4: the same for shards.
#[test]
fn sh4_shards_of_a_replica_whose_requests_fail_are_taken_in_time() -> Result<()> {
    for (fault, stays) in FAULTS {
        in_virtual_time(async {
            let world = World::new().await?;
            let one = world.sharer("one");
            shares(&[(&one, SHARDS)]).await;
            let two = world.sharer("two");
            shares(&[(&one, SHARDS / 2), (&two, SHARDS / 2)]).await;
            one.line.set(|faults| faults.leases = fault);
            if let Some(stays) = stays {
                sleep(stays).await;
                assert_eq!((one.shards(), two.shards()), (SHARDS / 2, SHARDS / 2), "{fault:?}");
            } else {
                let took = shares(&[(&one, 0), (&two, SHARDS)]).await;
                // Its membership may have been renewed just before, and the shards after that.
                assert!(took <= FOLLOWED + LEASE, "{fault:?}: taken after {took:?}");
            }
            one.line.set(|faults| faults.leases = Fault::None);
            shares(&[(&one, SHARDS / 2), (&two, SHARDS / 2)]).await;
            one.stop().await;
            shares(&[(&two, SHARDS)]).await;
            two.stop().await;
            Ok(())
        })?;
    }
    Ok(())
}

/// M8: who takes over waits until its caches show what the last holder wrote, and for a watch that is broken not for
/// ever.
#[test]
fn m8_work_that_is_taken_over_waits_for_caches_that_lag() -> Result<()> {
    for (sharded, mends) in [(false, true), (true, true), (false, false), (true, false)] {
        in_virtual_time(async {
            let world = World::new().await?;
            let start = |name| {
                if sharded {
                    world.sharer(name)
                } else {
                    world.candidate(name)
                }
            };
            let one = start("one");
            let objects = ["a", "b", "c", "d", "e", "f"];
            for object in objects {
                world.create(object).await?;
            }
            world.journal.by("one", objects.len()).await;
            let two = start("two");
            sleep(LEASE * 2).await;
            let before = world.journal.of("two");
            // From now on it does not hear of anything.
            two.line.set(|faults| faults.held = "configmaps");
            world.create("late").await?;
            let counted = |notes: &[Note]| notes.iter().any(|note| note.object == "late");
            if !sharded {
                world.journal.until("it counts the last one", counted).await;
            }
            one.stop().await;
            let began = Instant::now();
            sleep(Duration::from_secs(20)).await;
            let own = |notes: &[Note]| notes.iter().filter(|note| note.replica == "two").count();
            assert_eq!(
                own(&world.journal.notes.borrow()),
                before,
                "sharded {sharded}: it works on an old cache"
            );
            match mends {
                true => two.line.set(|faults| faults.held = ""),
                false => {
                    world.journal.by("two", before + 1).await;
                    assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
                    two.line.set(|faults| faults.held = "");
                }
            }
            let notes = world
                .journal
                .until("all are counted again", |notes| {
                    let by_two = notes.iter().filter(|note| note.replica == "two");
                    by_two.map(|note| &note.object).collect::<BTreeSet<_>>().len() == objects.len() + 1
                })
                .await;
            if mends {
                // No number was read twice.
                let mut seen = BTreeSet::new();
                for note in &notes {
                    assert!(
                        seen.insert((&note.object, note.read)),
                        "sharded {sharded}: {note:?} in {notes:?}"
                    );
                }
            }
            two.stop().await;
            Ok(())
        })?;
    }
    Ok(())
}

/// M8: of many hand-overs none reads what is older than the last write of the holder before.
#[test]
fn m8_no_hand_over_reads_what_is_older_than_the_last_write() -> Result<()> {
    const TURNS: usize = 1000;
    in_virtual_time(async {
        let world = World::new().await?;
        world.create("a").await?;
        let start = |name| world.start(name, Line::default(), |builder| builder.leader_election(election(name)));
        let (one, two) = (start("one"), start("two"));
        for replica in [&one, &two] {
            replica.line.set(|faults| faults.lag = Duration::from_millis(900));
        }
        let leases: Api<Lease> = Api::namespaced(world.cluster.kube(), "default");
        for turn in 0..TURNS {
            let notes = world.journal.until("the next turn", |notes| notes.len() > turn).await;
            let holder = &notes[turn].replica;
            // The other one is faster.
            for (name, replica) in [("one", &one), ("two", &two)] {
                let slow = Fault::Slow(Duration::from_secs(1));
                replica
                    .line
                    .set(|faults| faults.leases = if name == *holder { slow } else { Fault::None });
            }
            let free = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
            leases.patch("counter", &PatchParams::default(), &free).await?;
        }
        let notes = world.journal.notes.borrow().clone();
        for (turn, note) in notes.iter().enumerate() {
            assert_eq!(note.read, turn as u64, "turn {turn}: {note:?}");
        }
        let changes = notes
            .windows(2)
            .filter(|pair| pair[0].replica != pair[1].replica)
            .count();
        assert!(changes > TURNS * 9 / 10, "the Lease changed hands only {changes} times");
        one.stop().await;
        two.stop().await;
        Ok(())
    })
}

/// M8: a runnable, too, begins on caches that show what the last holder of the Lease wrote.
#[test]
fn m8_a_runnable_begins_when_its_caches_show_the_last_write() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        // The other controller leaves it alone.
        world.create("kube-count").await?;
        let reads = Arc::new(watch::Sender::new(Vec::<u64>::new()));
        let start = |replica: &'static str| {
            let reads = reads.clone();
            world.start(replica, Line::default(), |builder| {
                builder
                    .leader_election(election(replica))
                    .runnable("adds", move |client: Client, stop: Stop| {
                        let reads = reads.clone();
                        async move {
                            let found = client.get::<ConfigMap>(Some("default"), "kube-count").await?;
                            let number = found.as_ref().and_then(|found| found.data.as_ref()?.get("n"));
                            let read: u64 = number.map_or(0, |number| number.parse().expect("a number"));
                            let patch = Patch::Merge(json!({"data": {"n": (read + 1).to_string()}}));
                            client
                                .patch::<ConfigMap, _>(Some("default"), "kube-count", &patch)
                                .await?;
                            reads.send_modify(|reads| reads.push(read));
                            stop.requested().await;
                            Ok(())
                        }
                    })
            })
        };
        let until = async |count: usize| {
            let mut seen = reads.subscribe();
            let there = timeout(Duration::from_secs(300), seen.wait_for(|reads| reads.len() >= count)).await;
            assert!(there.is_ok(), "{:?}", reads.borrow());
        };
        let one = start("one");
        until(1).await;
        let two = start("two");
        sleep(Duration::from_secs(30)).await; // its caches are filled
        two.line.set(|faults| faults.held = "configmaps");
        let api: Api<ConfigMap> = Api::namespaced(world.cluster.kube(), "default");
        let patch = Patch::Merge(json!({"data": {"n": "7"}}));
        api.patch("kube-count", &PatchParams::default(), &patch).await?;
        one.stop().await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(reads.borrow().len(), 1, "it waits");
        two.line.set(|faults| faults.held = "");
        until(2).await;
        assert_eq!(*reads.borrow(), [0, 7]);
        two.stop().await;
        Ok(())
    })
}

/// A second controller, of which the cache cannot be filled.
fn with_a_sick_one(world: &World, replica: &'static str) -> impl FnOnce(ManagerBuilder) -> ManagerBuilder + use<> {
    let sick = world.counter(replica).named("sick").owns::<Secret>();
    move |builder| builder.add(sick)
}

fn without_secrets() -> Line {
    let line = Line::default();
    line.set(|faults| faults.forbidden = "secrets");
    line
}

/// LE7: a replica that could not work leaves the Lease to one that can, and takes it when there is none: its other
/// controllers work.
#[test]
fn le7_a_replica_that_cannot_fill_its_caches_leads_only_if_no_other_does() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        world.create("a").await?;
        let sick = with_a_sick_one(&world, "one");
        let one = world.start("one", without_secrets(), |builder| {
            sick(builder).leader_election(election("one"))
        });
        sleep(LEASE / 2).await;
        let two = world.candidate("two");
        world.journal.by("two", 1).await;
        assert_eq!(world.journal.of("one"), 0);
        two.stop().await;
        let began = Instant::now();
        world.journal.by("one", 1).await;
        assert!(began.elapsed() <= FOLLOWED, "{:?}", began.elapsed());
        // The second controller works as soon as it can.
        one.line.set(|faults| faults.forbidden = "");
        world.journal.by("one", 2).await;
        one.stop().await;
        Ok(())
    })
}

/// SH9: with shards a controller whose cache cannot be filled holds up no other.
#[test]
fn sh9_a_controller_without_its_cache_holds_up_no_other() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        world.create("a").await?;
        let sick = with_a_sick_one(&world, "one");
        let sharding = Sharding::new("counter", SHARDS).identity("one");
        let one = world.start("one", without_secrets(), |builder| sick(builder).sharding(sharding));
        world.journal.by("one", 1).await;
        assert_eq!(world.journal.of("one"), 1);
        one.line.set(|faults| faults.forbidden = "");
        world.journal.by("one", 2).await;
        one.stop().await;
        Ok(())
    })
}

/// M1: a runnable that is slow to stop ends with the term all the same.
#[test]
fn m1_a_runnable_sees_the_end_of_its_term_while_the_manager_stops() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        let journal = world.journal.clone();
        let one = world.start("one", Line::default(), |builder| {
            builder
                .leader_election(election("one"))
                .graceful_shutdown(Duration::from_secs(600))
                .runnable("slow", move |_: Client, stop: Stop| {
                    let active = Active(journal.clone(), "one");
                    active.0.active().insert("one");
                    async move {
                        stop.requested().await;
                        sleep(Duration::from_secs(300)).await;
                        drop(active);
                        Ok(())
                    }
                })
        });
        while world.journal.active().is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        one.line.set(|faults| faults.leases = Fault::Hangs);
        let began = Instant::now();
        one.stop.stop();
        while !world.journal.active().is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(
            began.elapsed() < LEASE,
            "it runs beside the next leader for {:?}",
            began.elapsed()
        );
        one.running.await.expect("no panic").expect("it stops");
        Ok(())
    })
}

/// A connection that is silent is not waited for longer than a Lease lasts.
#[test]
fn a_silent_watch_of_leases_is_opened_again() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        for sharded in [false, true] {
            let replica = match sharded {
                false => world.candidate("one"),
                true => world.sharer("one"),
            };
            sleep(LEASE).await;
            replica.line.set(|faults| faults.held = "leases");
            let before = replica.line.lease_watches.load(Ordering::SeqCst);
            sleep(LEASE * 4).await;
            let opened = replica.line.lease_watches.load(Ordering::SeqCst) - before;
            assert!((2..=4).contains(&opened), "sharded {sharded}: {opened}");
            replica.line.set(|faults| faults.held = "");
            replica.stop().await;
        }
        Ok(())
    })
}

/// A reconciler that takes its time to end.
struct Slow(Arc<watch::Sender<usize>>);

impl Reconciler for Slow {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        if ctx.request().name() == "a" {
            self.0.send_modify(|running| *running += 1);
            sleep(Duration::from_secs(10)).await;
            self.0.send_modify(|running| *running -= 1);
        }
        Ok(Action::await_change())
    }
}

/// R1: a controller that was removed and has not ended keeps its name, whether or not somebody waits for its end.
#[test]
fn r1_a_controller_is_not_added_beside_its_predecessor() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        world.create("a").await?;
        let one = world.start("one", Line::default(), |builder| builder);
        let running = Arc::new(watch::Sender::new(0));
        let slow = || Controller::of(Slow(running.clone())).named("slow");
        one.controllers.add(slow()).await?;
        let mut seen = running.subscribe();
        let _ = seen.wait_for(|running| *running == 1).await;
        let removed = timeout(Duration::from_secs(1), one.controllers.remove("slow")).await;
        assert!(removed.is_err(), "its reconcile runs");
        let refused = one.controllers.add(slow()).await.expect_err("it has not ended");
        let why = "cannot add controller \"slow\": one of this name was removed and still ends its reconciles";
        assert!(
            matches!(&refused, Error::Configuration(_)) && refused.to_string().contains(why),
            "{refused}"
        );
        let _ = seen.wait_for(|running| *running == 0).await;
        sleep(Duration::from_secs(1)).await;
        one.controllers.add(slow()).await?;
        let _ = seen.wait_for(|running| *running == 1).await;
        one.stop().await;
        Ok(())
    })
}

/// Blocks its thread in the reconcile of one object, once, until the test lets it go on.
struct Blocking {
    blocks: Mutex<Option<mpsc::Receiver<()>>>,
    /// Each reconcile: the object and the term.
    notes: Arc<watch::Sender<Vec<(String, u64)>>>,
}

impl Reconciler for Blocking {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let note = (ctx.request().name().to_owned(), ctx.term().unwrap_or_default());
        self.notes.send_modify(|notes| notes.push(note));
        if ctx.request().name() == "blocks" {
            let first = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(first) = first {
                let _ = first.recv();
            }
        }
        Ok(Action::await_change())
    }
}

/// M4: a reconcile that cannot be dropped does not keep its replica out of the election, nor other keys from their
/// reconciles.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m4_a_reconcile_that_blocks_does_not_keep_its_replica_from_leading() -> Result<()> {
    let world = World {
        cluster: TestCluster::start_with(Cluster::builder().controllers(BuiltIn::None)).await?,
        journal: Journal::default(),
    };
    let (go_on, blocks) = mpsc::channel();
    let notes = Arc::new(watch::Sender::new(Vec::new()));
    let blocking = Blocking {
        blocks: Mutex::new(Some(blocks)),
        notes: notes.clone(),
    };
    let hasty = election("one")
        .lease_duration(Duration::from_secs(1))
        .renew_deadline(Duration::from_millis(600))
        .retry_period(Duration::from_millis(100));
    let one = world.start("one", Line::default(), |builder| {
        let controller = Controller::of(blocking).named("blocks").concurrency(2);
        builder.add(controller).leader_election(hasty)
    });
    let mut seen = notes.subscribe();
    let mut until = async |object: &str, term: u64| {
        let is_there =
            |notes: &Vec<(String, u64)>| notes.iter().any(|(name, in_term)| name == object && *in_term >= term);
        let found = timeout(Duration::from_secs(60), seen.wait_for(is_there)).await.is_ok();
        assert!(found, "{object} in term {term}: {:?}", notes.borrow());
    };
    world.create("blocks").await?;
    until("blocks", 0).await;
    let leads = || {
        one.metrics
            .encode()
            .contains("leader_election_master_status{name=\"counter\"} 1")
    };
    one.line.set(|faults| faults.leases = Fault::Refused);
    while leads() {
        sleep(Duration::from_millis(20)).await;
    }
    one.line.set(|faults| faults.leases = Fault::None);
    world.create("other").await?;
    until("other", 1).await;
    let twice = notes.borrow().iter().filter(|(name, _)| name == "blocks").count();
    assert_eq!(twice, 1, "R1: its key stays with it");
    go_on.send(()).expect("it waits");
    until("blocks", 1).await;
    one.stop().await;
    Ok(())
}
