//! The kit as a test uses it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, ServiceAccount};
use kubewright::kube::api::{DeleteParams, PostParams};
use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright::kube::{self, Api, CustomResource};
use kubewright::{Action, Client, Context, Controller, EventType, Operator, Reconciler, Stop};
use kubewright_testing::{Answer, Call, Cluster, Controllers, Error, Result, TestCluster, refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kit.example.com",
    version = "v1",
    kind = "Echo",
    namespaced,
    status = "EchoStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct EchoSpec {
    word: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct EchoStatus {
    word: String,
}

/// Copies the spec into the status.
struct EchoReconciler;

impl Reconciler for EchoReconciler {
    type Object = Echo;

    async fn reconcile(&self, echo: Arc<Echo>, ctx: Context) -> kubewright::Result<Action> {
        let word = echo.spec.word.clone();
        ctx.patch_status(&*echo, |echo| echo.status = Some(EchoStatus { word }))
            .await?;
        Ok(Action::await_change())
    }
}

fn echo(name: &str, word: &str) -> Echo {
    Echo::new(name, EchoSpec { word: word.to_owned() })
}

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

#[tokio::test]
async fn an_operator_runs_in_the_background() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let operator = cluster
        .run(
            Operator::new("echo")
                .crd::<Echo>()
                .controller(Controller::of(EchoReconciler)),
        )
        .await?;
    let api: Api<Echo> = Api::default_namespaced(cluster.kube());
    for word in ["hello", "world"] {
        api.create(&PostParams::default(), &echo(word, word)).await?;
        let answers = |echo: &Echo| echo.status.as_ref().is_some_and(|status| status.word == word);
        cluster
            .wait_for(Some("default"), word, "the status answers", answers)
            .await?;
    }
    assert_eq!(cluster.client().list::<Echo>(Some("default")).await?.len(), 2);
    operator.stop().await?;
    // No operator is there to answer any more.
    api.create(&PostParams::default(), &echo("late", "late")).await?;
    let short = cluster.with_deadline(Duration::from_millis(100));
    let waited = short
        .wait_for(Some("default"), "late", "has a status", |echo: &Echo| {
            echo.status.is_some()
        })
        .await;
    assert!(matches!(waited, Err(Error::Deadline { .. })), "{waited:?}");
    Ok(())
}

#[tokio::test]
async fn a_wait_ends_when_the_state_is_there() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    let (other, later) = (cluster.clone(), api.clone());
    let waiting = tokio::spawn(async move {
        other
            .wait_for::<ConfigMap>(Some("default"), "a", "exists", |_| true)
            .await
    });
    api.create(&PostParams::default(), &config_map("b")).await?;
    later.create(&PostParams::default(), &config_map("a")).await?;
    let found = waiting.await.expect("the wait does not panic")?;
    assert_eq!(found.metadata.name.as_deref(), Some("a"));

    let all = cluster
        .wait_for_all(Some("default"), "there are two", |all: &[ConfigMap]| all.len() >= 2)
        .await?;
    assert_eq!(
        all.iter()
            .filter_map(|object| object.metadata.name.as_deref())
            .filter(|name| name.len() == 1)
            .collect::<Vec<_>>(),
        ["a", "b"]
    );

    let other = cluster.clone();
    let waiting = tokio::spawn(async move { other.wait_gone::<ConfigMap>(Some("default"), "a").await });
    api.delete("a", &DeleteParams::default()).await?;
    waiting.await.expect("the wait does not panic")?;
    cluster.wait_gone::<Namespace>(None, "never").await
}

#[tokio::test]
async fn a_wait_that_fails_shows_what_was_there() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let short = cluster.with_deadline(Duration::from_millis(50));
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    let wait = async || {
        short
            .wait_for(Some("default"), "a", "says so", |object: &ConfigMap| {
                object.immutable == Some(true)
            })
            .await
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        wait().await,
        "ConfigMap default a was not as expected (says so) within 50ms; it never existed"
    );
    api.create(&PostParams::default(), &config_map("a")).await?;
    let error = wait().await;
    assert!(
        error.contains("; it is:\n{") && error.contains("\"name\": \"a\""),
        "{error}"
    );
    Ok(())
}

/// Fails on everything, and counts how often.
struct Hopeless(Arc<tokio::sync::Semaphore>);

impl Reconciler for Hopeless {
    type Object = Echo;

    async fn reconcile(&self, echo: Arc<Echo>, ctx: Context) -> kubewright::Result<Action> {
        ctx.event(&*echo, EventType::Warning, "Hopeless", "there is no hope");
        self.0.add_permits(1);
        Err(kubewright::Error::retry(format!("cannot say {:?}", echo.spec.word)))
    }
}

#[tokio::test]
async fn a_wait_that_fails_says_why_the_operator_fails() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let failed = Arc::new(tokio::sync::Semaphore::new(0));
    let controller =
        Controller::of(Hopeless(failed.clone())).backoff(Duration::from_millis(1), Duration::from_secs(60));
    cluster
        .run(Operator::new("hopeless").crd::<Echo>().controller(controller))
        .await?;
    let api: Api<Echo> = Api::default_namespaced(cluster.kube());
    api.create(&PostParams::default(), &echo("a", "hope")).await?;
    drop(failed.acquire_many(3).await.expect("it is open"));
    let written = |event: &Event| event.reason.as_deref() == Some("Hopeless");
    cluster
        .wait_for_all::<Event>(Some("default"), "the event is there", |events| {
            events.iter().any(written)
        })
        .await?;
    let waited = cluster
        .with_deadline(Duration::from_millis(1))
        .wait_for(Some("default"), "a", "is said", |echo: &Echo| echo.status.is_some())
        .await;
    // The output of a test that returns the error.
    let printed = format!("{:?}", waited.expect_err("it is never said"));
    let expected = [
        "Echo default a was not as expected (is said) within 1ms; it is:\n{",
        "\nreconciles that failed:\n  controller echo, default/a, failed ",
        " times: cannot say \"hope\"",
        "\nits events:\n  Warning Hopeless: there is no hope",
    ];
    for part in expected {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_for_a_dead_operator_is_short() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let fails = async |_: Client, _: Stop| Err(kubewright::Error::terminal("out of ink"));
    let operator = cluster.run(Operator::new("printer").runnable("press", fails)).await?;
    let waited = cluster
        .wait_for(Some("default"), "a", "exists", |_: &ConfigMap| true)
        .await;
    let error = waited.expect_err("nobody creates it").to_string();
    assert!(
        error.starts_with("the operator printer ended: ") && error.contains("out of ink"),
        "{error}"
    );
    assert!(matches!(operator.stop().await, Err(Error::OperatorEnded { .. })));
    Ok(())
}

#[tokio::test]
async fn clusters_do_not_meet() -> Result<()> {
    let (one, two) = (TestCluster::start().await?, TestCluster::start().await?);
    Api::<ConfigMap>::default_namespaced(one.kube())
        .create(&PostParams::default(), &config_map("a"))
        .await?;
    assert!(
        Api::<ConfigMap>::default_namespaced(two.kube())
            .get_opt("a")
            .await?
            .is_none()
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_is_of_its_own_and_alive() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let (one, two) = (cluster.namespace().await?, cluster.namespace().await?);
    assert_ne!(one, two);
    cluster
        .wait_for::<ServiceAccount>(&one, "default", "exists", |_| true)
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_kubeconfig_leads_to_the_same_cluster() -> Result<()> {
    let cluster = TestCluster::start().await?;
    cluster.install_crd::<Echo>().await?;
    cluster.install_crd::<Echo>().await?;
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig().await?).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a usable kubeconfig");
    let client = kube::Client::try_from(config)?;
    Api::default_namespaced(client)
        .create(&PostParams::default(), &echo("a", "b"))
        .await?;
    cluster
        .wait_for::<Echo>(Some("default"), "a", "exists", |_| true)
        .await?;
    let start = Instant::now();
    cluster.stop().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_test_answers_in_place_of_the_api_server() -> Result<()> {
    /// The first write of the status meets `first`; whatever it is, the status comes.
    async fn check(first: Answer, expected_calls: usize) -> Result<()> {
        let cluster = TestCluster::start().await?;
        let seen: Arc<Mutex<Vec<Call>>> = Arc::default();
        let (calls, told) = (seen.clone(), format!("{first:?}"));
        let faults = cluster.intercept(move |call| {
            let mut seen = calls.lock().expect("quiet");
            if call.subresource != "status" {
                return Answer::Pass;
            }
            seen.push(call.clone());
            if seen.len() == 1 { first.clone() } else { Answer::Pass }
        });
        let operator = Operator::new("echo")
            .crd::<Echo>()
            .controller(Controller::of(EchoReconciler));
        let operator = cluster.run(operator).await?;
        let api: Api<Echo> = Api::default_namespaced(cluster.kube());
        let say = async |word: &str| -> Result<()> {
            api.create(&PostParams::default(), &echo(word, word)).await?;
            let answers = |echo: &Echo| echo.status.as_ref().is_some_and(|status| status.word == word);
            cluster
                .wait_for::<Echo>(Some("default"), word, "echoes its word", answers)
                .await?;
            Ok(())
        };
        say("hello").await?;
        let call = {
            let seen = seen.lock().expect("quiet");
            assert_eq!(seen.len(), expected_calls, "{told}: {seen:?}");
            seen[0].clone()
        };
        assert!(call.is("patch", &format!("{}/status", call.resource)), "{call:?}");
        let place = [&call.group, &call.namespace, &call.name];
        assert_eq!(place, ["kit.example.com", "default", "hello"], "{told}");
        drop(faults);
        say("world").await?;
        assert_eq!(
            seen.lock().expect("quiet").len(),
            expected_calls,
            "{told}: dropped, it is not asked"
        );
        operator.stop().await
    }
    check(Answer::Pass, 1).await?;
    check(Answer::After(Duration::from_millis(20)), 1).await?;
    check(Answer::Unreachable, 2).await?;
    check(refusal(409, "Conflict", "the object has been modified"), 2).await?;
    check(refusal(500, "InternalError", "no quorum"), 2).await?;
    // It was carried out: what the operator reads afterwards shows it.
    check(Answer::Lost, 1).await
}

/// What a test refuses is told as the API server's refusal, by the wait that is in vain.
#[tokio::test]
async fn a_refusal_of_a_test_is_an_answer() -> Result<()> {
    let cluster = TestCluster::start().await?.with_deadline(Duration::from_millis(300));
    // ANCHOR: intercept
    let _faults = cluster.intercept(|call| match call.subresource.as_str() {
        "status" => refusal(403, "Forbidden", "no status for you"),
        _ => Answer::Pass,
    });
    // ANCHOR_END: intercept
    let operator = Operator::new("echo")
        .crd::<Echo>()
        .controller(Controller::of(EchoReconciler));
    let _running = cluster.run(operator).await?;
    let api: Api<Echo> = Api::default_namespaced(cluster.kube());
    api.create(&PostParams::default(), &echo("hello", "hello")).await?;
    let answers = |echo: &Echo| echo.status.is_some();
    let error = cluster
        .wait_for::<Echo>(Some("default"), "hello", "has a status", answers)
        .await
        .expect_err("it is refused");
    assert!(error.to_string().contains("no status for you"), "{error}");
    Ok(())
}
