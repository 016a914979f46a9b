//! The life of a manager: what waits for caches and what does not (R4, M2, M3), how it ends (M5, M7), and what it refuses
//! before it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::{Action, Client, Context, Controller, Error, Operator, Reconciler, Result as Ended, Stop};
use kubewright_testing::Result;
use tokio::time::{Instant, sleep};

use super::metrics::plain;
use super::server::{FORBIDDEN, Scripted, Server, eventually, pod, with_built};

/// A server with a pod, of which Secrets cannot be listed.
async fn without_secrets() -> Server {
    let server = Server::new().await;
    server.fault(|seen| seen.path.contains("/secrets").then_some(FORBIDDEN));
    server.put::<Pod>(pod("p")).await;
    server
}

/// R4, C8, M2, M3: a controller waits for its sources, longer than any limit that nobody asked for; nobody waits for it,
/// and everybody is told. A runnable begins with the caches filled that are filled.
#[tokio::test]
async fn r4_a_controller_waits_for_its_sources_and_no_other_waits_for_it() -> Result<()> {
    let server = without_secrets().await;
    let (scripted, healthy) = (Scripted::idle(), Scripted::idle());
    let begun = Arc::new(AtomicUsize::new(usize::MAX));
    let count = begun.clone();
    let manager = server
        .manager()
        .add(Controller::of(scripted.clone()).named("waits").owns::<Secret>())
        .add(Controller::of(healthy.clone()).named("works"))
        .runnable("counts", move |client: Client, stop: Stop| {
            count.store(client.cache().informer::<Pod>().store().len(), Ordering::SeqCst);
            async move {
                stop.requested().await;
                Ok(())
            }
        })
        .health("127.0.0.1:0")
        .build()?;
    let (address, metrics) = (manager.health_address(), manager.metrics());
    with_built(manager, async {
        let address = address.await;
        assert_eq!(plain(address, "/healthz").await, (200, "ok".to_owned()));
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(scripted.runs(), Vec::<String>::new());
        assert_eq!(healthy.runs(), ["reconcile a/p"], "C8: the other controller works");
        assert_eq!(
            begun.load(Ordering::SeqCst),
            1,
            "and so does the runnable, on a filled cache"
        );
        server.put::<Pod>(pod("q")).await;
        eventually("it goes on", || healthy.runs().len() == 2).await;
        let (status, told) = plain(address, "/readyz").await;
        let waits = "[-]waits failed: its caches are not synced: Secret in all namespaces: ";
        assert!(
            status == 500 && told.contains(waits) && told.contains("[+]works ok"),
            "{status} {told}"
        );
        let unhealthy = "kubewright_cache_healthy{cache=\"Secret in all namespaces\"} 0.0";
        assert!(metrics.encode().contains(unhealthy), "{}", metrics.encode());
        server.no_fault();
        sleep(Duration::from_secs(3600)).await;
        let mut runs = scripted.runs();
        runs.sort();
        assert_eq!(runs, ["reconcile a/p", "reconcile a/q"], "it works as soon as it can");
        assert_eq!(plain(address, "/readyz").await, (200, "ok".to_owned()));
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn r4_a_controller_with_a_limit_fails_and_names_the_kind() -> Result<()> {
    let (server, scripted) = (without_secrets().await, Scripted::idle());
    let limit = Duration::from_secs(120);
    let controller = Controller::of(scripted.clone()).named("waits").owns::<Secret>();
    let manager = server.manager().add(controller.sync_timeout(limit)).build()?;
    let before = Instant::now();
    let error = manager
        .run(std::future::pending())
        .await
        .expect_err("secrets cannot be listed");
    assert!(
        error.to_string().contains("controller waits: the cache of Secret"),
        "{error}"
    );
    assert!(before.elapsed() >= limit);
    assert_eq!(scripted.runs(), Vec::<String>::new());
    Ok(())
}

/// M3: a runnable waits for the first list of the caches, however late it comes.
#[tokio::test]
async fn m3_runnables_begin_when_the_caches_are_filled() -> Result<()> {
    let server = Server::new().await;
    server.fault(|seen| {
        ["LIST", "WATCH"]
            .contains(&seen.verb)
            .then_some(super::server::Fault::Refused(503, "ServiceUnavailable"))
    });
    server.put::<Pod>(pod("p")).await;
    let begun = Arc::new(AtomicUsize::new(usize::MAX));
    let count = begun.clone();
    let manager = server.manager().add(Controller::of(Scripted::idle()));
    let manager = manager.runnable("counts", move |client: Client, stop: Stop| {
        count.store(client.cache().informer::<Pod>().store().len(), Ordering::SeqCst);
        async move {
            stop.requested().await;
            Ok(())
        }
    });
    with_built(manager.build()?, async {
        sleep(Duration::from_secs(10)).await;
        assert_eq!(begun.load(Ordering::SeqCst), usize::MAX);
        server.no_fault();
        eventually("the runnable begins", || begun.load(Ordering::SeqCst) == 1).await;
    })
    .await;
    Ok(())
}

/// Ends two seconds after it is asked to.
struct Slow(Arc<AtomicUsize>);

impl Reconciler for Slow {
    type Object = Pod;

    async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> Ended<Action> {
        ctx.stop().requested().await;
        sleep(Duration::from_secs(2)).await;
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn m7_a_stop_waits_for_running_work_and_names_who_does_not_end() -> Result<()> {
    async fn deaf(_: Client, _: Stop) -> Ended<()> {
        std::future::pending().await
    }
    let server = Server::new().await;
    server.put::<Pod>(pod("p")).await;
    let finished = Arc::new(AtomicUsize::new(0));
    let manager = server
        .manager()
        .graceful_shutdown(Duration::from_secs(5))
        .add(Controller::of(Slow(finished.clone())))
        .runnable("deaf", deaf)
        .build()?;
    let ready = manager.ready();
    let before = Instant::now();
    let error = manager.run(ready).await.expect_err("one does not stop");
    assert_eq!(
        finished.load(Ordering::SeqCst),
        1,
        "R6: the running reconcile was waited for"
    );
    assert!(
        matches!(&error, Error::Shutdown { stuck, .. } if *stuck == ["deaf"]),
        "{error}"
    );
    assert!(before.elapsed() < Duration::from_secs(6));
    Ok(())
}

#[tokio::test]
async fn m5_the_first_error_ends_the_manager_and_carries_its_name() -> Result<()> {
    async fn failing(_: Client, _: Stop) -> Ended<()> {
        Err(Error::terminal("out of paper"))
    }
    async fn panicking(_: Client, _: Stop) -> Ended<()> {
        panic!("out of ink")
    }
    let server = Server::new().await;
    let manager = server.manager().runnable("printer", failing).build()?;
    let error = manager.run(std::future::pending()).await.expect_err("it fails");
    assert_eq!(error.to_string(), "printer: out of paper");
    let manager = server.manager().runnable("printer", panicking).build()?;
    let told = manager
        .run(std::future::pending())
        .await
        .expect_err("it fails")
        .to_string();
    let ink = "printer: printer panicked: out of ink (at ";
    assert!(told.starts_with(ink) && told.contains("managers.rs:"), "{told}");
    Ok(())
}

mod books {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    macro_rules! version {
        ($module:ident, $version:literal, $($storage:tt)*) => {
            pub(crate) mod $module {
                use super::*;

                #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
                #[kube(group = "lib.example.com", version = $version, kind = "Book", namespaced $($storage)*)]
                #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
                pub(crate) struct BookSpec {
                    pub(crate) pages: u32,
                }
            }
        };
    }

    version!(v1, "v1", , storage = false);
    version!(v2, "v2",);
    version!(v3, "v3",);
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_it_runs() {
    let server = Server::new().await;
    let idle = || Controller::of(Scripted::idle());
    let twice = server.manager().add(idle()).add(idle()).build();
    let error = twice.expect_err("one name, two controllers").to_string();
    assert!(error.contains("named \"pod\""), "{error}");
    let unclear = Operator::new("library")
        .crd::<books::v2::Book>()
        .crd::<books::v3::Book>();
    let refused = unclear
        .crds()
        .expect_err("nobody says which version is stored")
        .to_string();
    assert!(
        refused.contains("v2, v3 all claim it") && refused.contains("KWR0310"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_operator_knows_its_crds_and_installs_them() -> Result<()> {
    let server = Server::new().await;
    let operator = Operator::new("library")
        .crd::<books::v2::Book>()
        .crd::<books::v1::Book>();
    let crds = operator.crds()?;
    let versions = |crd: &CustomResourceDefinition| {
        let all = crd.spec.versions.iter();
        let mut all: Vec<_> = all.map(|version| (version.name.clone(), version.storage)).collect();
        all.sort();
        all
    };
    assert_eq!(crds.len(), 1);
    let stored = [("v1".to_owned(), false), ("v2".to_owned(), true)];
    assert_eq!(versions(&crds[0]), stored, "the only one that claims it is stored");
    operator.install_crds(server.kube()).await?;
    let there = server.objects::<CustomResourceDefinition>().await;
    assert_eq!(there.iter().map(versions).collect::<Vec<_>>(), [stored]);
    Ok(())
}
