//! Writes of a process that stood still for longer than its term: another replica may act by then, so none of them is
//! sent, whichever way the reconcile writes.
//!
//! A process that stands still does not notice it: the time goes on, and no timer of it fires before its code does. So
//! the reconcile here moves the time of its runtime and goes on at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, LoadBalancerIngress, Service};
use kubewright::kube::api::{DeleteParams, ListParams, Patch, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Cleanup, Client, Context, Controller, Error, LeaderElection, Manager, ManagerBuilder, Observation, Outcome,
    Reconciler, Sharding, Stop,
};
use kubewright_testing::{Cluster, Controllers as BuiltIn, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than a term that is not renewed, and than a Lease.
const PAUSE: Duration = Duration::from_secs(20);
const NAMESPACE: Option<&str> = Some("default");

type Write = for<'a> fn(&'a Context, &'a ConfigMap) -> BoxFuture<'a, kubewright::Result<()>>;

fn config(name: &str) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.to_owned());
    config.metadata.namespace = Some("default".to_owned());
    config
}

fn service() -> Service {
    let mut service = Service::default();
    service.metadata.name = Some("s".to_owned());
    service.metadata.namespace = Some("default".to_owned());
    service
}

fn changed(config: &ConfigMap) -> ConfigMap {
    let mut config = config.clone();
    config
        .data
        .get_or_insert_default()
        .insert("late".to_owned(), "yes".to_owned());
    config
}

/// Every way in which a reconcile writes.
const WRITES: &[(&str, Write)] = &[
    ("create", |ctx, _| {
        async { ctx.client().create(&config("new")).await.map(drop) }.boxed()
    }),
    ("update", |ctx, object| {
        async { ctx.client().update(&changed(object)).await.map(drop) }.boxed()
    }),
    ("update_status", |ctx, object| {
        async { ctx.client().update_status(&changed(object)).await.map(drop) }.boxed()
    }),
    ("patch", |ctx, _| {
        let patch = Patch::Merge(json!({"data": {"late": "yes"}}));
        async move {
            ctx.client()
                .patch::<ConfigMap, _>(NAMESPACE, "a", &patch)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("patch_status of the client", |ctx, _| {
        let patch = Patch::Merge(json!({"status": {}}));
        async move {
            ctx.client()
                .patch_status::<Service, _>(NAMESPACE, "s", &patch)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("patch_status", |ctx, _| {
        async {
            let fill = |service: &mut Service| {
                let balancer = service
                    .status
                    .get_or_insert_default()
                    .load_balancer
                    .get_or_insert_default();
                balancer
                    .ingress
                    .get_or_insert_default()
                    .push(LoadBalancerIngress::default());
            };
            ctx.patch_status(&service(), fill).await.map(drop)
        }
        .boxed()
    }),
    ("apply", |ctx, _| {
        async { ctx.apply(config("child")).await.map(drop) }.boxed()
    }),
    ("apply of the client", |ctx, _| {
        async { ctx.client().apply(config("child")).await.map(drop) }.boxed()
    }),
    ("delete", |ctx, object| {
        async move { ctx.client().delete(object).await.map(drop) }.boxed()
    }),
    ("delete_named", |ctx, _| {
        async {
            let params = DeleteParams::default();
            ctx.client()
                .delete_named::<ConfigMap>(NAMESPACE, "a", params)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete_collection", |ctx, _| {
        async {
            let (which, params) = (ListParams::default(), DeleteParams::default());
            ctx.client()
                .delete_collection::<ConfigMap>(NAMESPACE, &which, params)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("create_subresource", |ctx, _| {
        async {
            let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
            let client = ctx.client();
            client
                .create_subresource::<k8s_openapi::api::core::v1::Pod, _, serde_json::Value>(
                    NAMESPACE, "p", "eviction", &body,
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("api", |ctx, _| {
        async {
            let made = ctx
                .api::<ConfigMap>()
                .create(&PostParams::default(), &config("new"))
                .await;
            made.map(drop).map_err(Error::from)
        }
        .boxed()
    }),
    ("another cluster of the manager", |ctx, _| {
        async { ctx.client().cluster("")?.create(&config("new")).await.map(drop) }.boxed()
    }),
];

/// What reconciles and the observer noted.
#[derive(Default)]
struct Seen {
    /// What became of the write, and by how much the server's revision grew meanwhile.
    writes: Vec<(kubewright::Result<()>, u64)>,
    outcomes: Vec<Outcome>,
    cleanups: usize,
}

#[derive(Clone)]
struct World {
    cluster: TestCluster,
    seen: Arc<Mutex<Seen>>,
    changes: Arc<watch::Sender<usize>>,
}

impl World {
    async fn new() -> Result<World> {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(BuiltIn::None)).await?;
        Ok(World {
            cluster,
            seen: Arc::default(),
            changes: Arc::default(),
        })
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|changes| *changes += 1);
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let holds = |_: &usize| holds(&self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let mut changes = self.changes.subscribe();
        let found = timeout(Duration::from_secs(600), changes.wait_for(holds)).await.is_ok();
        assert!(found, "{what}");
    }

    fn revision(&self) -> u64 {
        self.cluster.cluster().api().resource_version()
    }

    fn start(
        &self,
        controller: Controller,
        kube: kube::Client,
        with: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
    ) -> Replica {
        let world = self.clone();
        let observer = move |what: &Observation| {
            if let Observation::ReconcileFinished { outcome, .. } = what {
                world.note(|seen| seen.outcomes.push(outcome.clone()));
            }
        };
        let builder = self.cluster.manager(kube).name("late").observe(Arc::new(observer));
        let manager: Manager = with(builder.add(controller)).build().expect("it fits together");
        let metrics = manager.metrics();
        let (stop, token) = Stop::pair();
        let running = tokio::spawn(manager.run(async move { token.requested().await }));
        Replica { metrics, stop, running }
    }
}

struct Replica {
    metrics: kubewright::Metrics,
    stop: kubewright::StopSource,
    running: tokio::task::JoinHandle<kubewright::Result<()>>,
}

impl Replica {
    fn metric(&self, name: &str) -> u64 {
        let series = format!("{name}{{controller=\"late\"}} ");
        let text = self.metrics.encode();
        let value = text.lines().find_map(|line| line.strip_prefix(&*series));
        value
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .parse()
            .expect("a number")
    }

    async fn stop(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("it stops in order");
    }
}

/// Stands still in its first reconcile of `a`, then writes.
struct Late {
    world: World,
    write: Write,
    paused: AtomicUsize,
}

impl Late {
    fn of(world: &World, write: Write) -> Late {
        Late {
            world: world.clone(),
            write,
            paused: AtomicUsize::new(0),
        }
    }

    /// Whether this is the time to stand still; it has, then.
    fn stands_still(&self) -> bool {
        let is_first = self.paused.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first {
            // The time is another one, and nothing that waits for it has had its turn.
            let _: Option<()> = tokio::time::advance(PAUSE).now_or_never();
        }
        is_first
    }
}

impl Reconciler for Late {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        if ctx.request().name() != "a" || !self.stands_still() {
            return Ok(Action::await_change());
        }
        let before = self.world.revision();
        let written = (self.write)(&ctx, &object).await;
        let grown = self.world.revision() - before;
        let error = match &written {
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        self.world.note(|seen| seen.writes.push((written, grown)));
        match error {
            None => Ok(Action::await_change()),
            Some(attempted) => Err(Error::NotLeading { attempted }),
        }
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, _: Context) -> kubewright::Result<Cleanup> {
        self.world.note(|seen| seen.cleanups += 1);
        self.stands_still();
        Ok(Cleanup::Done)
    }
}

fn in_virtual_time(test: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

fn election(builder: ManagerBuilder) -> ManagerBuilder {
    builder.leader_election(LeaderElection::new("late").identity("one"))
}

fn sharding(builder: ManagerBuilder) -> ManagerBuilder {
    builder.sharding(Sharding::new("late", 4).identity("one"))
}

type With = fn(ManagerBuilder) -> ManagerBuilder;

/// LE6, SH8: whichever way a reconcile writes, after its term nothing is sent; that is no failure, and in the next term
/// the object is reconciled again.
#[test]
fn le6_nothing_is_written_after_a_pause_that_outlasts_the_term() -> Result<()> {
    for with in [election as With, sharding] {
        for (name, write) in WRITES {
            in_virtual_time(async {
                let world = World::new().await?;
                let api: Api<ConfigMap> = Api::namespaced(world.cluster.kube(), "default");
                api.create(&PostParams::default(), &config("a")).await?;
                let controller = Controller::of(Late::of(&world, *write)).named("late");
                let replica = world.start(controller, world.cluster.kube(), with);
                world.until(name, |seen| !seen.writes.is_empty()).await;
                {
                    let seen = world.seen.lock().unwrap_or_else(PoisonError::into_inner);
                    let (written, grown) = &seen.writes[0];
                    let is_refused = matches!(written, Err(Error::NotLeading { .. }));
                    assert!(is_refused && *grown == 0, "{name}: {written:?}, {grown} changes");
                }
                let is_fenced = |outcome: &Outcome| matches!(outcome, Outcome::NotLeading { .. });
                let comes_back = |seen: &Seen| {
                    let fenced = seen.outcomes.iter().position(is_fenced);
                    fenced.is_some_and(|at| seen.outcomes[at + 1..].contains(&Outcome::Done))
                };
                world
                    .until(&format!("{name}: it is reconciled again"), comes_back)
                    .await;
                assert_eq!(
                    (
                        replica.metric("kubewright_reconcile_not_leading_total"),
                        replica.metric("controller_runtime_reconcile_errors_total"),
                    ),
                    (1, 0),
                    "{name}"
                );
                replica.stop().await;
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// LE6: a cleanup that was done before the pause does not release its finalizer after it.
#[test]
fn le6_no_finalizer_is_released_after_the_term() -> Result<()> {
    for with in [election as With, sharding] {
        in_virtual_time(async {
            let world = World::new().await?;
            let api: Api<ConfigMap> = Api::namespaced(world.cluster.kube(), "default");
            let mut object = config("a");
            object.metadata.finalizers = Some(vec!["late.example.com/held".to_owned()]);
            api.create(&PostParams::default(), &object).await?;
            api.delete("a", &DeleteParams::default()).await?;
            let never: Write = |_, _| async { Ok(()) }.boxed();
            let controller = Controller::of(Late::of(&world, never));
            let controller = controller.named("late").finalizer("late.example.com/held");
            let replica = world.start(controller, world.cluster.kube(), with);
            let is_over = |seen: &Seen| seen.cleanups > 1 && seen.outcomes.last() == Some(&Outcome::Done);
            world.until("the next term cleans up and releases it", is_over).await;
            assert_eq!(api.get_opt("a").await?, None);
            replica.stop().await;
            Ok(())
        })?;
    }
    Ok(())
}

/// LE6: a write that waits for its next attempt while the term ends is not sent again.
#[test]
fn le6_no_write_is_repeated_after_the_term() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        let api: Api<ConfigMap> = Api::namespaced(world.cluster.kube(), "default");
        api.create(&PostParams::default(), &config("a")).await?;
        let attempts = Arc::new(AtomicUsize::new(0));
        let (counted, kube) = (attempts.clone(), world.cluster.kube());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (counted, kube) = (counted.clone(), kube.clone());
            async move {
                if !request.uri().path().contains("/configmaps/a") || request.method() != http::Method::PATCH {
                    return kube
                        .send(request)
                        .await
                        .map(|answer| answer.map(http_body_util::BodyExt::boxed_unsync));
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let _: Option<()> = tokio::time::advance(PAUSE).now_or_never();
                let status = json!({"kind": "Status", "reason": "TooManyRequests", "message": "later", "code": 429});
                let body = Body::from(status.to_string().into_bytes()).boxed_unsync();
                Ok(Response::builder().status(429).body(body).expect("valid"))
            }
        });
        let client: Arc<Mutex<Option<Client>>> = Arc::default();
        let kept = client.clone();
        let controller = Controller::of(Keeper(kept)).named("late");
        let replica = world.start(controller, kube::Client::new(service, "default"), election);
        world.until("it reconciles", |seen| !seen.outcomes.is_empty()).await;
        // Not in the reconcile, which is dropped at the end of its term.
        let client = client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("it was kept");
        let patch = Patch::Merge(json!({"data": {"late": "yes"}}));
        let refused = client.patch::<ConfigMap, _>(NAMESPACE, "a", &patch).await;
        assert!(matches!(refused, Err(Error::NotLeading { .. })), "{refused:?}");
        assert_eq!(attempts.load(Ordering::SeqCst), 1);
        replica.stop().await;
        Ok(())
    })
}

/// LE6: a runnable whose write is refused has ended with its term; the operator goes on, and the next term runs it again.
#[test]
fn le6_a_runnable_ends_with_its_term() -> Result<()> {
    in_virtual_time(async {
        let world = World::new().await?;
        let runs = Arc::new(watch::Sender::new(0_usize));
        let counted = runs.clone();
        let controller = Controller::of(Keeper(Arc::default())).named("late");
        let replica = world.start(controller, world.cluster.kube(), |builder| {
            election(builder).runnable("writer", move |client: Client, stop: Stop| {
                let counted = counted.clone();
                async move {
                    counted.send_modify(|runs| *runs += 1);
                    if *counted.borrow() == 1 {
                        let _: Option<()> = tokio::time::advance(PAUSE).now_or_never();
                        client.create(&config("new")).await?;
                    }
                    stop.requested().await;
                    Ok(())
                }
            })
        });
        let mut seen = runs.subscribe();
        let again = timeout(Duration::from_secs(600), seen.wait_for(|runs| *runs == 2)).await;
        assert!(again.is_ok(), "it runs again");
        let api: Api<ConfigMap> = Api::namespaced(world.cluster.kube(), "default");
        assert_eq!(api.get_opt("new").await?, None);
        replica.stop().await;
        Ok(())
    })
}

/// Keeps the client of its first reconcile.
struct Keeper(Arc<Mutex<Option<Client>>>);

impl Reconciler for Keeper {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| ctx.client().clone());
        Ok(Action::await_change())
    }
}
