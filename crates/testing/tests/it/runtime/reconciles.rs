//! What leads to a reconcile, how often it runs, and what its outcome leads to (R1, R5, R7).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kubewright::kube::{self, core::Status};
use kubewright::{Action, Context, Controller, Error, Outcome, Reconciler, Request, Scope, predicate};
use kubewright_testing::Result;
use serde_json::json;
use tokio::time::sleep;

use super::server::{Log, Scripted, Server, child, eventually, outcomes, pod, raw, value_of, with_built, with_manager};

#[tokio::test]
async fn causes_lead_from_a_change_to_its_reconcile() -> Result<()> {
    let server = Server::new().await;
    let owner: Pod = server.put::<Pod>(pod("owner")).await.try_parse().expect("a Pod");
    server.put::<ConfigMap>(child("c", &owner, "1")).await;
    let scripted = Scripted::idle();
    let controller = Controller::of(scripted.clone()).owns::<ConfigMap>();
    let runs = async |count: usize| eventually("a reconcile", || scripted.runs().len() == count).await;
    with_manager(server.manager().add(controller), async {
        runs(1).await;
        let initially = ["Pod a/owner in the initial list", "ConfigMap a/c in the initial list"];
        assert_eq!(scripted.causes(0), initially);
        server.put::<ConfigMap>(child("c", &owner, "2")).await;
        runs(2).await;
        assert_eq!(scripted.causes(1), ["ConfigMap a/c changed: data.key \"1\" → \"2\""]);
        // A deletion that no watch saw reaches the owner as well.
        server.hold_watches(true);
        server.remove::<ConfigMap>("c").await;
        server.compact_and_cut();
        server.hold_watches(false);
        runs(3).await;
        assert_eq!(scripted.causes(2), ["ConfigMap a/c deleted"]);
        server.remove::<Pod>("owner").await;
        eventually("the deletion", || {
            scripted.runs().last().is_some_and(|run| run == "deleted a/owner")
        })
        .await;
    })
    .await;
    eventually("no watch is left", || server.open_watches() == 0).await;
    Ok(())
}

/// Notes the key of each namespace `n`.
struct Namespaces(Log);

impl Reconciler for Namespaces {
    type Object = Namespace;

    async fn reconcile(&self, _: Arc<Namespace>, ctx: Context) -> kubewright::Result<Action> {
        if ctx.request().name() == "b" {
            self.0.note(ctx.request().to_string());
        }
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn a_cluster_scoped_owner_has_one_key() -> Result<()> {
    let (server, runs) = (Server::new().await, Log::default());
    let controller = Controller::of(Namespaces(runs.clone())).owns::<ConfigMap>();
    with_manager(server.manager().add(controller), async {
        eventually("the first reconcile", || runs.len() == 1).await;
        for namespace in ["a", "b"] {
            let owner =
                json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "b", "uid": "u", "controller": true }]);
            let metadata = json!({ "namespace": namespace, "name": "c", "ownerReferences": owner });
            server.put::<ConfigMap>(json!({ "metadata": metadata })).await;
        }
        eventually("a reconcile for the children", || runs.len() >= 2).await;
        assert!(runs.all().iter().all(|key| key == "b"), "{:?}", runs.all());
    })
    .await;
    Ok(())
}

/// A pointer to another key wakes the old and the new one, and what is for all wakes all.
#[tokio::test]
async fn watches_and_predicates_choose_what_leads_to_a_reconcile() -> Result<()> {
    let server = Server::new().await;
    for name in ["one", "two"] {
        server.put::<Pod>(pod(name)).await;
    }
    let scripted = Scripted::idle();
    let controller = Controller::of(scripted.clone())
        .with_predicate::<Pod>(predicate::generation_changed)
        .watches::<ConfigMap>(|config| vec![Request::new(&config.metadata.namespace, value_of(config))])
        .watches_all_of::<Secret>();
    // What the server itself keeps in ConfigMaps points nowhere.
    let runs = || -> Vec<String> {
        scripted
            .runs()
            .into_iter()
            .filter(|run| run.starts_with("reconcile"))
            .collect()
    };
    let until = async |count: usize| eventually("reconciles", || runs().len() == count).await;
    with_manager(server.manager().add(controller), async {
        until(2).await;
        let mut labelled = pod("one");
        labelled["metadata"]["labels"] = json!({ "a": "b" });
        server.put::<Pod>(labelled).await; // no new generation: filtered
        server.put::<ConfigMap>(raw("c", "one")).await;
        until(3).await;
        assert_eq!(runs()[2], "reconcile a/one");
        server.put::<ConfigMap>(raw("c", "two")).await;
        until(5).await;
        assert_eq!(runs()[3..], ["reconcile a/one", "reconcile a/two"]);
        server
            .put::<Secret>(json!({ "metadata": { "namespace": "b", "name": "global" } }))
            .await;
        until(7).await;
        let last = scripted.runs().len() - 1;
        assert_eq!(scripted.causes(last), ["Secret b/global created"]);
    })
    .await;
    Ok(())
}

/// `deleted` means that the object is gone, never that it left a selection or was not seen yet.
#[tokio::test]
async fn r_deleted_means_gone() -> Result<()> {
    let server = Server::new().await;
    let app = |name: &str, app: &str| {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = json!({ "app": app });
        pod
    };
    for name in ["x", "y"] {
        server.put::<Pod>(app(name, "web")).await;
    }
    let scripted = Scripted::idle();
    let controller = Controller::of(scripted.clone())
        .within(Scope::all().labels([("app", "web")].into_iter().collect()))
        .watches::<Secret>(|secret| vec![Request::of(secret)]);
    let gone = async |key: &str| {
        let last = format!("deleted a/{key}");
        eventually(&last, || scripted.runs().last() == Some(&last)).await;
    };
    with_manager(server.manager().add(controller), async {
        eventually("both are reconciled", || scripted.runs().len() == 2).await;
        server.put::<Pod>(app("x", "other")).await;
        server.remove::<Pod>("y").await;
        gone("y").await;
        // A key that a source made up, of an object that exists, and of one that does not.
        for name in ["x", "nobody"] {
            let secret = json!({ "metadata": { "namespace": "a", "name": name } });
            server.put::<Secret>(secret).await;
        }
        gone("nobody").await;
        assert!(
            !scripted.runs().contains(&"deleted a/x".to_owned()),
            "{:?}",
            scripted.runs()
        );
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn r5_errors_decide_what_happens_next() -> Result<()> {
    let server = Server::new().await;
    server.put::<Pod>(pod("p")).await;
    let scripted = Scripted::new(|_, times| match times {
        1 | 2 => Err(Error::retry("not yet")),
        3 => Err(kube::Error::Api(Status::failure("changed", "Conflict").with_code(409).boxed()).into()),
        4 => Ok(Action::requeue_after(Duration::from_secs(60))),
        5 => Err(Error::retry("again")),
        _ => Err(Error::terminal("never")),
    });
    let (ended, observer) = outcomes();
    let controller = Controller::of(scripted.clone()).backoff(Duration::from_millis(10), Duration::from_secs(10));
    with_manager(server.manager().observe(observer).add(controller), async {
        eventually("the terminal error", || scripted.runs().len() == 6).await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(scripted.runs().len(), 6, "a terminal error is not retried");
        server.put_status("p", json!({ "phase": "Running" })).await;
        eventually("a new event after the terminal error", || scripted.runs().len() == 7).await;
    })
    .await;
    let retry = |error: &str, attempt, after| Outcome::Retry {
        error: error.into(),
        attempt,
        after: Duration::from_millis(after),
    };
    let never = Outcome::Terminal { error: "never".into() };
    let expected = [
        retry("not yet", 1, 10),
        retry("not yet", 2, 20),
        Outcome::Conflict {
            error: "changed".into(),
            after: Duration::from_millis(40),
        },
        Outcome::RequeueAfter(Duration::from_secs(60)),
        retry("again", 1, 10),
        never.clone(),
        never,
    ];
    assert_eq!(*ended.lock().expect("quiet"), expected);
    assert_eq!(scripted.causes(1), ["retry 1 after: not yet"]);
    assert_eq!(scripted.causes(4), ["timer after 60s"]);
    Ok(())
}

/// Is stuck the first time.
struct Stuck(AtomicUsize);

impl Reconciler for Stuck {
    type Object = Pod;

    async fn reconcile(&self, _: Arc<Pod>, _: Context) -> kubewright::Result<Action> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn a_reconcile_that_takes_too_long_is_dropped_and_retried() -> Result<()> {
    let server = Server::new().await;
    server.put::<Pod>(pod("p")).await;
    let (ended, observer) = outcomes();
    let controller = Controller::of(Stuck(AtomicUsize::new(0))).reconcile_timeout(Duration::from_secs(30));
    with_manager(server.manager().observe(observer).add(controller), async {
        eventually("the second try", || ended.lock().expect("quiet").len() == 2).await;
    })
    .await;
    let ended = ended.lock().expect("quiet");
    let late = |outcome: &Outcome| matches!(outcome, Outcome::Retry { error, .. } if error.contains("longer than 30s"));
    assert!(late(&ended[0]) && ended[1] == Outcome::Done, "{ended:?}");
    Ok(())
}

/// An error that panics when it is printed, and again when it is dropped.
#[derive(Debug)]
struct Nasty;

impl std::fmt::Display for Nasty {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Nasty {}

impl Drop for Nasty {
    fn drop(&mut self) {
        panic!("and no end")
    }
}

/// R7: a panic is an error of its key alone, and a worker survives any error value of its reconciler.
#[tokio::test]
async fn r7_panics_are_errors_of_their_key_and_end_no_worker() -> Result<()> {
    let server = Server::new().await;
    for name in ["bad", "error", "payload", "good"] {
        server.put::<Pod>(pod(name)).await;
    }
    let scripted = Scripted::new(|request, times| match request.name() {
        "bad" if times < 3 => panic!("the first two times are too much"),
        "error" if times < 3 => Err(Error::retry(Nasty)),
        "payload" if times < 3 => std::panic::panic_any(Nasty),
        _ => Ok(Action::await_change()),
    });
    let (ended, observer) = outcomes();
    let controller = Controller::of(scripted.clone());
    with_manager(server.manager().observe(observer).add(controller), async {
        let of = |name: &str| scripted.of(&format!("a/{name}"));
        eventually("all of them come through", || {
            (of("bad"), of("payload"), of("good")) == (3, 3, 1) && of("error") >= 3
        })
        .await;
        server.put::<Pod>(pod("later")).await;
        eventually("the worker is there", || of("later") == 1).await;
    })
    .await;
    let ended = ended.lock().expect("quiet");
    let panicked = |outcome: &&Outcome| matches!(outcome, Outcome::Retry { error, .. } if error.contains("panicked: the first two times"));
    assert_eq!(ended.iter().filter(panicked).count(), 2, "{ended:?}");
    Ok(())
}

/// Takes its time, and must never run twice at once.
struct Slow {
    running: AtomicUsize,
    seen: Log,
}

impl Reconciler for Slow {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, _: Context) -> kubewright::Result<Action> {
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "R1");
        sleep(Duration::from_millis(100)).await;
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        self.seen.note(labels.get("n").cloned().unwrap_or_default());
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn r1_a_key_is_never_reconciled_twice_at_once_and_no_change_is_lost() -> Result<()> {
    let (server, seen) = (Server::new().await, Log::default());
    let slow = Slow {
        running: AtomicUsize::new(0),
        seen: seen.clone(),
    };
    with_manager(server.manager().add(Controller::of(slow).concurrency(4)), async {
        for number in 0..20 {
            let mut numbered = pod("p");
            numbered["metadata"]["labels"] = json!({ "n": number.to_string() });
            server.put::<Pod>(numbered).await;
            sleep(Duration::from_millis(30)).await;
        }
        // R2, R3: the last state is reconciled, even when changes were merged on the way.
        eventually("the last state", || seen.all().last().is_some_and(|last| last == "19")).await;
        assert!(seen.len() < 20, "changes were merged");
    })
    .await;
    Ok(())
}

/// Writes a new message at every pass, so that each wakes the next.
struct Restless;

impl Reconciler for Restless {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> kubewright::Result<Action> {
        let message = pod.status.as_ref().and_then(|status| status.message.as_deref());
        let passes: u32 = message.and_then(|message| message.parse().ok()).unwrap_or_default();
        if passes < 30 {
            ctx.patch_status(&*pod, |pod| {
                pod.status.get_or_insert_default().message = Some((passes + 1).to_string());
            })
            .await?;
        }
        Ok(Action::await_change())
    }
}

/// Where a log goes.
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("quiet").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A controller that wakes itself is counted, and told once, with the field; one that is woken by others is not.
#[tokio::test]
async fn a_controller_that_wakes_itself_is_told() -> Result<()> {
    let log: Arc<Mutex<Vec<u8>>> = Arc::default();
    let sink = log.clone();
    // With only one subscriber in the process, tracing asks that of the thread which comes by first, for ever: other
    // tests have none.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || Lines(sink.clone()))
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let server = Server::new().await;
    server.put::<Pod>(pod("x")).await;
    let calm = Controller::of(Scripted::idle()).named("calm");
    let restless = Controller::of(Restless).named("restless");
    let manager = server.manager().add(restless).add(calm).build()?;
    let metrics = manager.metrics();
    let counted = |controller: &str| {
        let text = metrics.encode();
        let name = format!("kubewright_reconcile_self_woken_total{{controller=\"{controller}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        value.unwrap_or(0_u32)
    };
    with_built(manager, async {
        eventually("it comes to rest", || counted("restless") == 30).await;
        assert_eq!(counted("calm"), 0, "it is woken by the other's writes");
    })
    .await;
    let log = String::from_utf8(log.lock().expect("quiet").clone()).expect("text");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("wakes itself")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["restless", "a/x", "Pod a/x changed: status.message"] {
        assert!(lines[0].contains(part), "{part}: {log}");
    }
    Ok(())
}
