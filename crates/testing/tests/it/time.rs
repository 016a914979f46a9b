//! Time that the test owns. Each test would take minutes to days in the machine's time.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubewright_testing::{Cluster, Result, TestCluster};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

async fn cluster() -> Result<TestCluster> {
    let start: Timestamp = "2026-01-01T00:30:00Z".parse().expect("a time");
    TestCluster::in_virtual_time(start, Cluster::builder()).await
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn container(annotations: Value) -> Value {
    json!({ "metadata": { "annotations": annotations }, "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c", "image": "app:1" }] } })
}

/// Days of a CronJob that runs every hour: each run has its Job, which succeeds, and only the last three are kept.
#[tokio::test]
async fn a_cronjob_runs_for_days() -> Result<()> {
    let cluster = cluster().await?;
    let (cronjobs, jobs): (Api<CronJob>, Api<Job>) = (
        Api::default_namespaced(cluster.kube()),
        Api::default_namespaced(cluster.kube()),
    );
    let parameters = WatchParams {
        timeout: Some(u32::MAX),
        ..WatchParams::default()
    };
    let events = jobs.watch(&parameters, "0").await?;
    let made = tokio::spawn(
        events.fold(BTreeMap::new(), async |mut made: BTreeMap<String, bool>, event| {
            if let Ok(WatchEvent::Added(job) | WatchEvent::Modified(job) | WatchEvent::Deleted(job)) = event {
                let succeeded = job.status.is_some_and(|status| status.succeeded == Some(1));
                *made.entry(job.metadata.name.unwrap_or_default()).or_default() |= succeeded;
            }
            made
        }),
    );
    let cronjob = json!({ "metadata": { "name": "hourly" }, "spec": {
        "schedule": "0 * * * *", "jobTemplate": { "spec": { "template": container(json!({ "kubewright.dev/run-seconds": "90" })) } },
    } });
    cronjobs.create(&PostParams::default(), &object(cronjob)).await?;
    const DAYS: usize = 7;
    for day in 1..=DAYS {
        cluster.advance(24 * HOUR).await?;
        let hourly = cronjobs.get("hourly").await?;
        let last = hourly
            .status
            .and_then(|status| status.last_successful_time)
            .map(|time| time.0.to_string());
        assert_eq!(last, Some(format!("2026-01-0{}T00:01:30Z", day + 1)));
    }
    let kept = jobs.list(&Default::default()).await?.items;
    let kept: Vec<String> = kept.into_iter().filter_map(|job| job.metadata.name).collect();
    cluster.stop().await;
    let made = made.await.expect("it does not panic");
    let unfinished: Vec<&String> = made
        .iter()
        .filter(|(_, succeeded)| !**succeeded)
        .map(|(name, _)| name)
        .collect();
    assert_eq!((made.len(), unfinished), (DAYS * 24, vec![]));
    let last: Vec<&String> = made.keys().skip(DAYS * 24 - 3).collect();
    assert_eq!(kept.iter().collect::<Vec<_>>(), last);
    Ok(())
}

/// The waits between restarts double up to five minutes.
#[tokio::test]
async fn restarts_back_off() -> Result<()> {
    let cluster = cluster().await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.kube());
    let mut pod = container(json!({ "kubewright.dev/exit-code": "1" }));
    pod["metadata"]["name"] = json!("p");
    pods.create(&PostParams::default(), &object(pod)).await?;
    cluster.settle().await?;
    let restarts = async || -> Result<i32> {
        let pod = pods.get("p").await?;
        let statuses = pod
            .status
            .and_then(|status| status.container_statuses)
            .unwrap_or_default();
        Ok(statuses.iter().map(|status| status.restart_count).sum())
    };
    assert_eq!(restarts().await?, 1);
    // After 10, 30, 70, 150, 310, 610, 910, … seconds.
    for (seconds, expected) in [
        (15, 2),
        (10, 2),
        (10, 3),
        (40, 4),
        (80, 5),
        (160, 6),
        (300, 7),
        (300, 8),
    ] {
        cluster.advance(Duration::from_secs(seconds)).await?;
        assert_eq!(restarts().await?, expected, "after {seconds} s more");
    }
    cluster.stop().await;
    Ok(())
}

/// A node that falls silent loses its pods after five minutes, as the default tolerations say.
// ANCHOR: silent
#[tokio::test]
async fn a_silent_node_loses_its_pods() -> Result<()> {
    // Where no node is ready nothing is evicted: it may be the network that failed.
    let start = "2026-01-01T00:30:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().nodes(2)).await?;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(cluster.kube()), Api::default_namespaced(cluster.kube()));
    let mut pod = container(json!({}));
    pod["metadata"]["name"] = json!("p");
    pod["spec"]["nodeName"] = json!("node-0");
    pods.create(&PostParams::default(), &object(pod)).await?;
    cluster.settle().await?;
    let silent = Patch::Merge(json!({ "metadata": { "annotations": { "kubewright.dev/node": "silent" } } }));
    nodes.patch("node-0", &PatchParams::default(), &silent).await?;
    let ready = async || -> Result<String> {
        let node = nodes.get("node-0").await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready");
        Ok(ready.map(|ready| ready.status).unwrap_or_default())
    };
    cluster.advance(Duration::from_secs(40)).await?;
    assert_eq!(ready().await?, "True");
    cluster.advance(Duration::from_secs(20)).await?;
    assert_eq!(ready().await?, "Unknown");
    assert!(pods.get("p").await?.metadata.deletion_timestamp.is_none());
    cluster.advance(Duration::from_secs(300)).await?;
    assert!(
        pods.get("p").await?.metadata.deletion_timestamp.is_some(),
        "its kubelet would have to end it"
    );
    cluster.stop().await;
    Ok(())
}
// ANCHOR_END: silent

/// The pods of a node that falls silent are marked at once, however many they are, and no others.
#[tokio::test]
async fn pods_of_a_silent_node_are_not_ready() -> Result<()> {
    const MANY: usize = 120;
    let start = "2026-01-01T00:30:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().nodes(2)).await?;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(cluster.kube()), Api::default_namespaced(cluster.kube()));
    for at in 0..=MANY {
        let mut pod = container(json!({}));
        pod["metadata"]["name"] = format!("p{at}").into();
        pod["spec"]["nodeName"] = json!(if at == MANY { "node-1" } else { "node-0" });
        pods.create(&PostParams::default(), &object(pod)).await?;
    }
    cluster.settle().await?;
    let ready = async || -> Result<Vec<String>> {
        let all = pods.list(&Default::default()).await?.items.into_iter();
        let is_ready = |pod: &Pod| {
            let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|one| one.type_ == "Ready" && one.status == "True")
        };
        Ok(all.filter(is_ready).filter_map(|pod| pod.spec?.node_name).collect())
    };
    assert_eq!(ready().await?.len(), MANY + 1);
    let silent = Patch::Merge(json!({ "metadata": { "annotations": { "kubewright.dev/node": "silent" } } }));
    nodes.patch("node-0", &PatchParams::default(), &silent).await?;
    cluster.advance(Duration::from_secs(60)).await?;
    assert_eq!(ready().await?, ["node-1"]);
    cluster.stop().await;
    Ok(())
}

/// Nodes that fail together keep their pods while no node is ready. One returns: the others lose theirs one by one.
#[tokio::test]
async fn nodes_that_are_all_silent_keep_their_pods() -> Result<()> {
    let start = "2026-01-01T00:30:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().nodes(3)).await?;
    let nodes: Api<Node> = Api::all(cluster.kube());
    let say = async |name: &str, state: Option<&str>| -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "kubewright.dev/node": state } } }));
        nodes.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    // The nodes that pods leave, after so many seconds.
    let check = async |seconds: u64, expected: &[&str]| -> Result<()> {
        cluster.advance(Duration::from_secs(seconds)).await?;
        let left = nodes
            .list(&Default::default())
            .await?
            .items
            .into_iter()
            .filter_map(|node| {
                let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
                let leaves = taints.iter().any(|taint| taint.effect == "NoExecute");
                node.metadata.name.filter(|_| leaves)
            });
        let left: Vec<String> = left.collect();
        assert_eq!(left, expected, "after {seconds} s more");
        Ok(())
    };
    // A cluster whose first nodes were not ready yet begins without a token.
    check(30, &[]).await?;
    say("node-0", Some("silent")).await?;
    check(49, &[]).await?;
    check(3, &["node-0"]).await?;
    say("node-1", Some("silent")).await?;
    check(52, &["node-0", "node-1"]).await?;
    say("node-2", Some("silent")).await?;
    check(52, &[]).await?;
    check(600, &[]).await?;
    say("node-2", None).await?;
    check(9, &[]).await?;
    check(2, &["node-0"]).await?;
    check(10, &["node-0", "node-1"]).await?;
    say("node-0", None).await?;
    check(1, &["node-1"]).await?;
    cluster.stop().await;
    Ok(())
}

/// A cluster in the machine's time says so.
#[tokio::test]
async fn real_time_is_not_moved() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let error = cluster.advance(HOUR).await.expect_err("it is refused");
    assert!(error.to_string().contains("in_virtual_time"), "{error}");
    Ok(())
}

/// A node that is short of memory evicts one pod every ten seconds: those of the lowest priority, then those that use
/// most, never critical ones. It takes up no pod without requests; and when it has enough again, the remaining pods
/// stay.
#[tokio::test]
async fn a_node_short_of_memory_evicts() -> Result<()> {
    let cluster = cluster().await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.kube());
    let nodes: Api<Node> = Api::all(cluster.kube());
    let create = async |name: &str, memory: &str, more: Value| -> Result<()> {
        let mut spec = json!({ "nodeName": "node-0", "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "app:1" }] });
        let whole = spec.as_object_mut().expect("an object");
        whole.extend(more.as_object().expect("an object").clone());
        let annotations = json!({ "kubewright.dev/usage-memory": memory });
        let pod = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
        pods.create(&PostParams::default(), &object(pod)).await?;
        Ok(())
    };
    create("little", "1Mi", json!({})).await?;
    create("much", "3Gi", json!({})).await?;
    create(
        "critical",
        "9Gi",
        json!({ "priorityClassName": "system-node-critical" }),
    )
    .await?;
    let asks = json!([{ "name": "c", "image": "app:1", "resources": { "requests": { "memory": "2Gi" } } }]);
    create("within", "2Gi", json!({ "containers": asks })).await?;
    cluster.settle().await?;
    let pressure = async |what: Option<&str>| -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "kubewright.dev/pressure": what } } }));
        nodes.patch("node-0", &PatchParams::default(), &patch).await?;
        cluster.settle().await?;
        Ok(())
    };
    let check = async |seconds: u64, expected: &[&str]| -> Result<()> {
        cluster.advance(Duration::from_secs(seconds)).await?;
        let all = pods.list(&Default::default()).await?.items;
        let gone = all.iter().filter(|pod| {
            let status = pod.status.as_ref();
            status.is_some_and(|status| {
                status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted")
            })
        });
        let gone: Vec<&str> = gone.filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(gone, expected, "after {seconds} s more");
        Ok(())
    };
    pressure(Some("memory")).await?;
    check(0, &["much"]).await?;
    // Settling takes some of the ten seconds.
    check(4, &["much"]).await?;
    check(8, &["little", "much"]).await?;
    pressure(None).await?;
    check(60, &["little", "much"]).await?;
    pressure(Some("memory")).await?;
    check(60, &["little", "much", "within"]).await?;
    create("late", "0", json!({})).await?;
    cluster.settle().await?;
    check(0, &["late", "little", "much", "within"]).await?;

    let much = pods.get("much").await?.status.expect("it has one");
    let message = "The node was low on resource: memory. Container c was using 3Gi, request is 0, has larger consumption of memory. ";
    assert_eq!(much.message.as_deref(), Some(message));
    let of = |type_: &str| {
        let conditions = much.conditions.iter().flatten();
        let mut found = conditions.filter(|one| one.type_ == type_);
        found
            .next()
            .map(|one| (one.status.as_str(), one.reason.as_deref().unwrap_or("")))
    };
    assert_eq!(of("DisruptionTarget"), Some(("True", "TerminationByKubelet")));
    assert_eq!(of("Ready"), Some(("False", "PodFailed")));
    let ended = much
        .container_statuses
        .iter()
        .flatten()
        .next()
        .and_then(|one| one.state.clone());
    assert!(ended.is_some_and(|state| state.terminated.is_some()));
    let late = pods.get("late").await?.status.expect("it has one").message;
    assert_eq!(
        late.as_deref(),
        Some("Pod was rejected: The node had condition: [MemoryPressure]. ")
    );
    let events: Api<Event> = Api::all(cluster.kube());
    let events = events.list(&Default::default()).await?.items;
    let said = |about: &str, reason: &str| {
        let mut found = events.iter().filter(|event| {
            event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
        });
        found.next().and_then(|event| event.message.clone())
    };
    assert_eq!(said("much", "Evicted").as_deref(), Some(message));
    assert_eq!(
        said("node-0", "EvictionThresholdMet").as_deref(),
        Some("Attempting to reclaim memory")
    );
    cluster.stop().await;
    Ok(())
}
