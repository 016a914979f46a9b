//! One controller in every cluster of its manager: clusters that cannot be reached, that join twice, that leave while
//! something is reconciled there, and objects of one name in several of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Context, Controller, Controllers, Error, LeaderElection, Manager, ManagerBuilder, Reconciler, Request,
    Scope, Sharding, Stop, StopSource, Waker, Watch,
};
use kubewright_testing::{Result, TestCluster};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// Notes each key that it reconciles; those of objects that are named `slow` wait for a permit.
#[derive(Clone)]
struct Noter {
    noted: Arc<watch::Sender<Vec<Request>>>,
    go_on: Arc<Semaphore>,
    /// What runs now: no key may be there twice.
    running: Arc<Mutex<BTreeSet<Request>>>,
}

impl Default for Noter {
    fn default() -> Noter {
        Noter {
            noted: Arc::default(),
            go_on: Arc::new(Semaphore::new(0)),
            running: Arc::default(),
        }
    }
}

impl Noter {
    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<Request>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, what: &str, holds: impl Fn(&[Request]) -> bool) {
        let mut seen = self.noted.subscribe();
        let waited = timeout(LONG, seen.wait_for(|noted| holds(noted))).await.is_ok();
        assert!(waited, "{what}: {:?}", self.noted.borrow());
    }

    async fn until_has(&self, cluster: &str, name: &str) {
        let key = key(cluster, name);
        self.until(&key.to_string(), |noted| noted.contains(&key)).await;
    }

    fn count(&self, cluster: &str, name: &str) -> usize {
        let key = key(cluster, name);
        self.noted.borrow().iter().filter(|noted| **noted == key).count()
    }
}

fn key(cluster: &str, name: &str) -> Request {
    Request::new(Some("default"), name).in_cluster(cluster)
}

impl Reconciler for Noter {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let key = ctx.request().clone();
        assert!(
            self.running().insert(key.clone()),
            "{key} is reconciled twice at a time"
        );
        assert_eq!(key.cluster(), ctx.cluster());
        // The object and what is read are those of the cluster.
        let said = object.data.as_ref().and_then(|data| data.get("cluster"));
        assert_eq!(said.map(String::as_str), Some(key.cluster()));
        let read = ctx.client().get::<ConfigMap>(key.namespace(), key.name()).await?;
        assert_eq!(read.as_deref(), Some(&*object));
        self.noted.send_modify(|noted| noted.push(key.clone()));
        if key.name() == "slow" {
            // The test keeps the semaphore open.
            self.go_on.acquire().await.map_err(Error::retry)?.forget();
        }
        self.running().remove(&key);
        Ok(Action::await_change())
    }
}

async fn put(cluster: &TestCluster, name: &str, says: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"cluster": says}});
    api.patch(name, &PatchParams::apply("test"), &Patch::Apply(object))
        .await?;
    Ok(())
}

fn unreachable() -> kube::Client {
    let silent = tower::service_fn(|_: HttpRequest<Body>| std::future::pending::<std::io::Result<Response<Body>>>());
    kube::Client::new(silent, "default")
}

struct Running {
    controllers: Controllers,
    stop: StopSource,
    task: JoinHandle<kubewright::Result<()>>,
    metrics: kubewright::Metrics,
    health: std::net::SocketAddr,
}

impl Running {
    async fn of(builder: ManagerBuilder) -> Result<Running> {
        let manager = builder.name("noter").health("127.0.0.1:0").build()?;
        let (controllers, metrics, health) = (manager.controllers(), manager.metrics(), manager.health_address());
        let (stop, token) = Stop::pair();
        let task = tokio::spawn(manager.run(async move { token.requested().await }));
        Ok(Running {
            controllers,
            stop,
            task,
            metrics,
            health: health.await,
        })
    }

    async fn stop(self) {
        self.stop.stop();
        self.task.await.expect("no panic").expect("it stops in order");
    }
}

fn everywhere(noter: &Noter) -> Controller {
    let controller = Controller::of(noter.clone()).named("noter");
    controller.within(Scope::namespace("default")).in_every_cluster()
}

type With = fn(ManagerBuilder) -> ManagerBuilder;

/// Objects of one name in two clusters are two keys of one queue; a cluster that cannot be reached holds up neither, nor
/// the replica's readiness, whatever decides which replica works.
#[tokio::test]
async fn a_cluster_that_cannot_be_reached_holds_up_no_other() -> Result<()> {
    let alone: With = |builder| builder;
    let elected: With = |builder| builder.leader_election(LeaderElection::new("noter").identity("one"));
    let shared: With = |builder| builder.sharding(Sharding::new("noter", 4).identity("one"));
    for with in [alone, elected, shared] {
        let (home, west, east) = (
            TestCluster::start().await?,
            TestCluster::start().await?,
            TestCluster::start().await?,
        );
        put(&home, "a", "").await?;
        put(&west, "a", "west").await?;
        put(&east, "a", "east").await?;
        let noter = Noter::default();
        let builder = Manager::builder(home.kube())
            .cluster("west", west.kube())
            .cluster("far", unreachable())
            .add(everywhere(&noter));
        let running = Running::of(with(builder)).await?;
        noter.until_has("west", "a").await;
        running.controllers.add_cluster("east", east.kube()).await?;
        noter.until_has("east", "a").await;
        put(&west, "b", "west").await?;
        noter.until_has("west", "b").await;
        let clusters: BTreeSet<String> = noter
            .noted
            .borrow()
            .iter()
            .map(|key| key.cluster().to_owned())
            .collect();
        assert_eq!(clusters, ["east", "west"].map(str::to_owned).into(), "and none at home");
        let (status, told) = super::metrics::plain(running.health, "/readyz?verbose").await;
        assert!(status == 200 && told.contains("cluster far: "), "{status} {told}");
        let metrics = running.metrics.encode();
        let queues = metrics.lines().filter(|line| line.starts_with("workqueue_adds_total{"));
        assert_eq!(queues.count(), 1, "{metrics}");
        running.stop().await;
    }
    Ok(())
}

/// C1, C3: a cluster that leaves is waited for where something is reconciled in it; keys of it that wait are dropped, and
/// nothing of it is reconciled until it joins again.
#[tokio::test]
async fn a_cluster_leaves_while_something_is_reconciled_there() -> Result<()> {
    let (home, west, east) = (
        TestCluster::start().await?,
        TestCluster::start().await?,
        TestCluster::start().await?,
    );
    let noter = Noter::default();
    let builder = Manager::builder(home.kube()).add(everywhere(&noter));
    let running = Running::of(builder).await?;
    running.controllers.add_cluster("west", west.kube()).await?;
    let refused = running.controllers.add_cluster("west", east.kube()).await;
    assert!(matches!(refused, Err(Error::Configuration(_))), "{refused:?}");
    running.controllers.add_cluster("east", east.kube()).await?;
    put(&west, "slow", "west").await?;
    noter.until_has("west", "slow").await;
    // One worker is there, and it is taken.
    put(&west, "waits", "west").await?;
    put(&east, "waits", "east").await?;
    let mut leaving = Box::pin(running.controllers.remove_cluster("west"));
    assert!(leaving.as_mut().now_or_never().is_none(), "its reconcile is waited for");
    let twice = running.controllers.remove_cluster("west").await;
    assert!(twice.is_err_and(|error| error.to_string().contains("being taken away already")));
    let early = running.controllers.add_cluster("west", west.kube()).await;
    assert!(early.is_err_and(|error| error.to_string().contains("a name of its own")));
    noter.go_on.add_permits(1);
    assert!(timeout(LONG, leaving).await.expect("it ends")?);
    noter.until_has("east", "waits").await;
    put(&west, "later", "west").await?;
    put(&east, "later", "east").await?;
    noter.until_has("east", "later").await;
    assert_eq!((noter.count("west", "waits"), noter.count("west", "later")), (0, 0));
    assert!(!running.controllers.remove_cluster("west").await?);
    noter.go_on.add_permits(1);
    running.controllers.add_cluster("west", west.kube()).await?;
    for name in ["slow", "waits", "later"] {
        let is_there = |noted: &[Request]| {
            noted.iter().filter(|noted| **noted == key("west", name)).count() > usize::from(name == "slow")
        };
        noter.until(name, is_there).await;
    }
    running.stop().await;
    Ok(())
}

/// What a source answers without a cluster is of the cluster that it watched; a source of one cluster wakes keys in any.
#[tokio::test]
async fn keys_are_of_the_cluster_in_which_something_changed() -> Result<()> {
    let (home, west, east) = (
        TestCluster::start().await?,
        TestCluster::start().await?,
        TestCluster::start().await?,
    );
    for (cluster, name) in [(&west, "west"), (&east, "east")] {
        for object in ["mapped", "named", "woken"] {
            put(cluster, object, name).await?;
        }
    }
    let (noter, waker) = (Noter::default(), Waker::new());
    let here = Watch::<Secret>::new().within(Scope::namespace("default"));
    let named = Watch::<Secret>::new()
        .in_cluster("")
        .within(Scope::namespace("default"));
    let controller = everywhere(&noter)
        .source(here.map(|secret| {
            vec![Request::new(
                Some("default"),
                secret.metadata.name.as_deref().unwrap_or_default(),
            )]
        }))
        .source(named.map(|_| vec![Request::new(Some("default"), "named").in_cluster("west")]))
        .source(waker.source());
    let builder = Manager::builder(home.kube()).add(controller);
    let running = Running::of(builder).await?;
    running.controllers.add_cluster("west", west.kube()).await?;
    running.controllers.add_cluster("east", east.kube()).await?;
    for cluster in ["west", "east"] {
        for object in ["mapped", "named", "woken"] {
            noter.until_has(cluster, object).await;
        }
    }
    let counts = || ["mapped", "named", "woken"].map(|name| (noter.count("west", name), noter.count("east", name)));
    let before = counts();
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let apply = PatchParams::apply("test");
    let secrets = |cluster: &TestCluster| Api::<Secret>::namespaced(cluster.kube(), "default");
    secrets(&east)
        .patch("mapped", &apply, &Patch::Apply(secret("mapped")))
        .await?;
    secrets(&home)
        .patch("any", &apply, &Patch::Apply(secret("any")))
        .await?;
    waker.wake(key("east", "woken"), "its row changed").await;
    let expected = [
        (before[0].0, before[0].1 + 1),
        (before[1].0 + 1, before[1].1),
        (before[2].0, before[2].1 + 1),
    ];
    noter.until("each once", |_| counts() == expected).await;
    running.stop().await;
    Ok(())
}

/// What cannot work in a cluster is refused before anything runs.
#[tokio::test]
async fn owners_are_of_the_cluster_of_what_they_own() {
    let source = Watch::<Secret>::new().in_cluster("west").owned();
    let builder = Manager::builder(unreachable()).add(everywhere(&Noter::default()).source(source));
    let refused = builder.build().map(drop).expect_err("it cannot work").to_string();
    assert!(
        refused.contains("the owners of its objects are in that cluster only; use Watch::map"),
        "{refused}"
    );
}
