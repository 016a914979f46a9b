//! A run in virtual time is the same twice, down to each request and its order: in one process, and in two.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{Patch, PostParams};
use kubewright::kube::{self, Api, client::Body};
use kubewright::{Action, Context, Controller, LeaderElection, Reconciler, Source};
use kubewright_testing::{Cluster, Result, TestCluster};
use serde_json::json;

/// A program that prints a trace of another seed, for the run in another process.
const ASKED: &str = "KUBEWRIGHT_TEST_TRACE_OF_SEED";

/// Every request of a client, as it was sent and when, with the code of its answer.
type Trace = Arc<Mutex<Vec<String>>>;

fn traced(kube: &kube::Client, trace: &Trace, start: tokio::time::Instant) -> kube::Client {
    let namespace = kube.default_namespace().to_owned();
    let (kube, trace) = (kube.clone(), trace.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kube, trace) = (kube.clone(), trace.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let line = format!(
                "{:?} {} {} {}",
                start.elapsed(),
                head.method,
                head.uri,
                String::from_utf8_lossy(&body)
            );
            let mine = {
                let mut lines = trace.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(line);
                lines.len()
            };
            let answer = kube.send(Request::from_parts(head, Body::from(body.to_vec()))).await?;
            let mut lines = trace.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(format!("{:?} {} answers {mine}", start.elapsed(), answer.status()));
            Ok::<_, kube::Error>(answer)
        }
    });
    kube::Client::new(service, namespace)
}

/// Copies each ConfigMap with data into a Secret, whose name the server completes, and into a Deployment.
struct Copies;

impl Reconciler for Copies {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let Some(name) = object.metadata.name.clone().filter(|name| name.starts_with('c')) else {
            return Ok(Action::await_change());
        };
        let made = ctx
            .client()
            .list::<Secret>(object.metadata.namespace.as_deref())
            .await?;
        if made.is_empty() {
            let secret = json!({ "metadata": { "generateName": "secret-", "namespace": "default" } });
            ctx.client()
                .create(&serde_json::from_value::<Secret>(secret).expect("a Secret"))
                .await?;
        }
        let labels = json!({ "app": name });
        let deployment = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
            "replicas": 2, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "app:1" }] } },
        } });
        ctx.apply(serde_json::from_value::<Deployment>(deployment).expect("a Deployment"))
            .await?;
        Ok(Action::requeue_after(Duration::from_secs(700)))
    }
}

/// Notes on each Deployment how many of its pods are there.
struct Counts;

impl Reconciler for Counts {
    type Object = Deployment;

    async fn reconcile(&self, object: Arc<Deployment>, ctx: Context) -> kubewright::Result<Action> {
        let pods = ctx.client().list::<Pod>(object.metadata.namespace.as_deref()).await?;
        ctx.event(
            &*object,
            kubewright::EventType::Normal,
            "Counted",
            format!("{} pods", pods.len()),
        );
        Ok(Action::await_change())
    }
}

/// Labels pods, and fails at the first look at each.
#[derive(Default)]
struct Labels(Mutex<BTreeMap<String, usize>>);

impl Reconciler for Labels {
    type Object = Pod;

    async fn reconcile(&self, object: Arc<Pod>, ctx: Context) -> kubewright::Result<Action> {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let looks = {
            let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let looks = looks.entry(uid.clone()).or_default();
            *looks += 1;
            *looks
        };
        if looks == 1 {
            return Err(kubewright::Error::retry("not yet"));
        }
        let label = Patch::Merge(json!({ "metadata": { "labels": { "of": uid } } }));
        let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
        ctx.client()
            .patch::<Pod, _>(namespace, name.unwrap_or_default(), &label)
            .await?;
        Ok(Action::await_change())
    }
}

/// Three controllers, of which one replica of two runs, on a cluster with all controllers.
async fn three_controllers(seed: u64) -> Result<Vec<String>> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::with_seed(seed, start, Cluster::builder().nodes(2)).await?;
    let (trace, begin) = (Trace::default(), tokio::time::Instant::now());
    let kube = traced(&cluster.kube(), &trace, begin);
    let (stop, stopped) = kubewright::Stop::pair();
    for _ in 0..2 {
        let manager = cluster
            .manager(kube.clone())
            .leader_election(LeaderElection::new("three"))
            .add(
                Controller::of(Copies)
                    .owns::<Deployment>()
                    .reads::<Secret>(kubewright::Scope::all()),
            )
            .add(Controller::of(Counts).reads::<Pod>(kubewright::Scope::all()))
            .add(Controller::of(Labels::default()).source(Source::every(Duration::from_secs(900))));
        let manager = manager.build().expect("it fits together");
        let stopped = stopped.clone();
        tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    }
    let configs: Api<ConfigMap> = Api::default_namespaced(kube);
    for name in ["c1", "c2", "other"] {
        let config = json!({ "metadata": { "name": name } });
        let config = serde_json::from_value(config).expect("a ConfigMap");
        configs.create(&PostParams::default(), &config).await?;
        cluster.advance(Duration::from_secs(40)).await?;
    }
    cluster.advance(Duration::from_secs(3600)).await?;
    stop.stop();
    cluster.advance(Duration::from_secs(60)).await?;
    cluster.stop().await;
    let lines = trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(lines)
}

fn played(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(three_controllers(seed))
        .expect("it runs")
}

/// Says where two traces part.
fn same(one: &[String], other: &[String], what: &str) {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    if let Some(at) = at {
        let around = |lines: &[String]| lines[at.saturating_sub(5)..(at + 3).min(lines.len())].join("\n  ");
        panic!(
            "{what}: they part at line {at}:\n  {}\nand\n  {}",
            around(one),
            around(other)
        );
    }
    assert_eq!(one.len(), other.len(), "{what}: one goes on");
}

#[test]
fn a_seed_is_a_run() {
    if let Ok(seed) = std::env::var(ASKED) {
        let lines = played(seed.parse().expect("a number"));
        return std::fs::write(
            std::env::var("KUBEWRIGHT_TEST_TRACE_IN").expect("where to"),
            lines.join("\n"),
        )
        .expect("a trace");
    }
    let first = played(7);
    for (verb, what) in [
        ("POST", "/secrets"),
        ("PATCH", "/deployments/c2"),
        ("PATCH", "/pods/"),
        ("PUT", "/leases/three"),
        ("POST", "/events"),
    ] {
        let seen = |line: &String| line.contains(&format!(" {verb} ")) && line.contains(what);
        assert!(
            first.iter().any(seen),
            "no {verb} of {what} in a trace of {} lines",
            first.len()
        );
    }
    same(&first, &played(7), "the same seed in one process");
    assert_ne!(first, played(8), "another seed");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace");
    let me = std::env::current_exe().expect("this program");
    let done = Command::new(me)
        .args(["--exact", "runtime::twice::a_seed_is_a_run"])
        .env(ASKED, "7")
        .env("KUBEWRIGHT_TEST_TRACE_IN", &file)
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let other = std::fs::read_to_string(&file).expect("its trace");
    let other: Vec<String> = other.split('\n').map(str::to_owned).collect();
    same(&first, &other, "the same seed in two processes");
}
