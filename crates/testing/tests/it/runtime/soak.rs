//! A long life: two replicas of an operator, whose leader loses its Lease every minute, whose watches are cut every ten
//! seconds, and of whose kinds one cannot be listed. In virtual time.
//!
//! The children have names that the server chooses, so that nothing but what the operator knows keeps it from making one
//! twice: not the old leader's last write, which the new one has yet to hear of, nor an own one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kubewright::kube::api::{ListParams, Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api, Resource as _};
use kubewright::{Action, Context, Controller, LeaderElection, Manager, Metrics, Reconciler, Scope, Stop, StopSource};
use kubewright_testing::{Cluster, Controllers as BuiltIn, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const PARENTS: usize = 5;
const TERM: Duration = Duration::from_secs(60);
const CUT: Duration = Duration::from_secs(10);
/// How long a change may take to be carried out.
const SOON: Duration = Duration::from_secs(30);
/// How long until a leader that cannot renew its Lease is followed. No replica can list all kinds, so that each leaves the
/// Lease to a better one for a second lease duration (LE7): 30 seconds from the last renewal that it saw, and it may have
/// seen it only when its watch was opened again after a cut.
const FOLLOWED: Duration = Duration::from_secs(2 * 15 + 10);

/// Gives each parent as many children as it says.
struct Children {
    created: Arc<AtomicUsize>,
}

impl Reconciler for Children {
    type Object = ConfigMap;

    async fn reconcile(&self, parent: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let said = parent.data.as_ref().and_then(|data| data.get("children"));
        let wanted: usize = said.and_then(|said| said.parse().ok()).unwrap_or_default();
        let uid = parent.metadata.uid.as_deref().unwrap_or_default();
        let children = ctx.client().owned_by::<Secret>(ctx.request().namespace(), uid).await?;
        for child in children.iter().skip(wanted) {
            ctx.client().delete(&**child).await?;
        }
        for _ in children.len()..wanted {
            let mut child = Secret::default();
            child.metadata.namespace = parent.metadata.namespace.clone();
            child.metadata.generate_name = Some(format!("{}-", ctx.request().name()));
            child.metadata.owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
            ctx.client().create(&child).await?;
            self.created.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Action::await_change())
    }
}

/// Waits for a kind that it may not list.
struct Waiting;

impl Reconciler for Waiting {
    type Object = Service;

    async fn reconcile(&self, _: Arc<Service>, _: Context) -> kubewright::Result<Action> {
        Ok(Action::await_change())
    }
}

type Answer = std::result::Result<Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>;

/// A client whose watches end with each cut, which may not list Services, and no Leases while it is `away`.
fn line(kube: kube::Client, cuts: watch::Sender<u64>, away: Arc<AtomicBool>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kube, mut cuts) = (kube.clone(), cuts.subscribe());
        let of_leases = request.uri().path().contains("/leases");
        let refused = request.uri().path().ends_with("/services") || (of_leases && away.load(Ordering::SeqCst));
        async move {
            if refused {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403});
                let body = Body::from(status.to_string().into_bytes()).boxed_unsync();
                let answer = Response::builder().status(StatusCode::FORBIDDEN);
                return Ok(answer.body(body).expect("valid"));
            }
            let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
            let answer = kube.send(request).await?;
            if !watches {
                return Answer::Ok(answer.map(http_body_util::BodyExt::boxed_unsync));
            }
            let cut = Box::pin(async move { cuts.changed().await });
            Ok(answer.map(|body| {
                let frames = body.into_data_stream().map_ok(Frame::data).take_until(cut);
                StreamBody::new(frames.boxed()).boxed_unsync()
            }))
        }
    });
    kube::Client::new(service, "default")
}

struct Replica {
    stop: StopSource,
    running: JoinHandle<kubewright::Result<()>>,
    metrics: Metrics,
    away: Arc<AtomicBool>,
}

impl Replica {
    fn start(cluster: &TestCluster, cuts: &watch::Sender<u64>, number: usize, created: &Arc<AtomicUsize>) -> Replica {
        let (created, away) = (created.clone(), Arc::new(AtomicBool::new(false)));
        let parents = Scope::all().labels([("role", "parent")].into_iter().collect());
        let children = Controller::of(Children { created }).within(parents).owns::<Secret>();
        let manager = Manager::builder(line(cluster.kube(), cuts.clone(), away.clone()))
            .name("soak")
            .leader_election(LeaderElection::new("soak").identity(format!("replica-{number}")))
            .add(children)
            .add(Controller::of(Waiting))
            .build()
            .expect("it fits together");
        let (stop, token) = Stop::pair();
        Replica {
            stop,
            metrics: manager.metrics(),
            running: tokio::spawn(manager.run(async move { token.requested().await })),
            away,
        }
    }

    async fn stop(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("it stops in order");
    }

    fn leads(&self) -> bool {
        self.metrics
            .encode()
            .contains("leader_election_master_status{name=\"soak\"} 1")
    }

    /// How many objects its caches hold, how many bytes they take, and how many lines its metrics have.
    fn sizes(&self) -> (f64, f64, usize) {
        let (objects, bytes) = (self.sum("kubewright_cache_objects"), self.sum("kubewright_cache_bytes"));
        (objects, bytes, self.metrics.encode().lines().count())
    }

    /// The sum of a metric.
    fn sum(&self, metric: &str) -> f64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.split('{').next() == Some(metric));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// Lives for so long, and returns when all was as it must be.
async fn soak(time: Duration) -> Result<()> {
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(BuiltIn::None)).await?;
    let parents: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let secrets: Api<Secret> = Api::namespaced(cluster.kube(), "default");
    let (cuts, created) = (watch::Sender::new(0), Arc::new(AtomicUsize::new(0)));
    let replicas = [1, 2].map(|number| Replica::start(&cluster, &cuts, number, &created));
    let cutting = tokio::spawn({
        let cuts = cuts.clone();
        async move {
            loop {
                sleep(CUT).await;
                cuts.send_modify(|cut| *cut += 1);
            }
        }
    });
    let began = Instant::now();
    let (mut said, mut expected, mut round) = (vec![0; PARENTS], 0, 0);
    let mut sizes = Vec::new();
    while began.elapsed() < time {
        let turn = Instant::now();
        for (at, before) in said.iter_mut().enumerate() {
            let now = (round + at) % 4;
            expected += now.saturating_sub(*before);
            *before = now;
            let parent = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"children": now.to_string()},
                "metadata": {"name": format!("parent-{at}"), "labels": {"role": "parent"}}});
            let change = Patch::Apply(parent);
            parents
                .patch(&format!("parent-{at}"), &PatchParams::apply("test"), &change)
                .await?;
        }
        let there: usize = said.iter().sum();
        loop {
            let found = secrets.list(&ListParams::default()).await?.items;
            let made = created.load(Ordering::SeqCst);
            assert!(made <= expected, "a child was made twice: {made} instead of {expected}");
            if found.len() == there && made == expected {
                break;
            }
            assert!(turn.elapsed() < SOON, "{} children instead of {there}", found.len());
            sleep(Duration::from_millis(500)).await;
        }
        sleep(TERM.saturating_sub(turn.elapsed())).await;
        // At the same point of the same round, so that there is as much to hold.
        if round % 4 == 0 {
            sizes.push(replicas.each_ref().map(Replica::sizes));
        }
        let leader = replicas.iter().find(|replica| replica.leads()).expect("one leads");
        leader.away.store(true, Ordering::SeqCst);
        let gone = Instant::now();
        while leader.leads() || !replicas.iter().any(Replica::leads) {
            assert!(gone.elapsed() < FOLLOWED, "nobody follows after {FOLLOWED:?}");
            sleep(Duration::from_millis(500)).await;
        }
        leader.away.store(false, Ordering::SeqCst);
        round += 1;
    }
    // By the second one every metric is there.
    let (first, last) = (sizes.get(1).expect("it lasted"), sizes.last().expect("it lasted"));
    for (first, last) in first.iter().zip(last) {
        // A revision has one digit more at some time.
        let grew = last.1 - first.1;
        assert!(
            first.0 == last.0 && grew.abs() <= first.0 && first.2 == last.2,
            "the same objects take as much as they did: {sizes:?}"
        );
    }
    assert_eq!(
        first[0].0, first[1].0,
        "the one that does not lead holds the same objects: {sizes:?}"
    );
    cutting.abort();
    for replica in replicas {
        replica.stop().await;
    }
    Ok(())
}

fn in_virtual_time(time: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(soak(time))
}

#[test]
fn an_operator_whose_leader_goes_every_minute_makes_nothing_twice() -> Result<()> {
    in_virtual_time(Duration::from_secs(20 * 60))
}

#[test]
#[ignore = "takes minutes: cargo test -p kubewright-testing --test it soak:: -- --ignored"]
fn a_day_of_leaders_that_go_makes_nothing_twice() -> Result<()> {
    in_virtual_time(Duration::from_secs(24 * 60 * 60))
}
