//! Simulated nodes and their pods as a user meets them, through the API. The behaviour of single containers is tested
//! beside the decisions.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;

use crate::common::scenes::{self, check_on, create, until};
use crate::common::soon;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use kubewright_cluster::{Cluster, Nodes, Stages};
use kubewright_objects::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

async fn annotate<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str, key: &str, value: Option<&str>) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .expect("it is annotated");
}

fn pod(name: &str, annotations: Value, more: Value) -> Value {
    let mut spec = json!({ "containers": [{ "name": "c", "image": "app:1" }] });
    let whole = spec.as_object_mut().expect("an object");
    whole.extend(more.as_object().expect("an object").clone());
    json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec })
}

fn is_ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

fn phase(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    phase.unwrap_or_default()
}

fn restarts(pod: Option<&Pod>) -> i32 {
    let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).map_or(0, |one| one.restart_count)
}

/// Waits until all these reasons have been said of a pod.
async fn said(client: &Client, name: &str, reasons: &[&str]) {
    for reason in reasons {
        scenes::said(client, name, reason).await;
    }
}

/// Three nodes in two zones; and one that a user adds, which lives as well, while a Node that is not simulated is left
/// alone.
#[tokio::test]
async fn several_nodes() {
    let nodes = Nodes::from(3)
        .zones(["a", "b"])
        .label("disk", "ssd")
        .capacity("cpu", "2");
    check_on(Cluster::builder().nodes(nodes), async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let cpu = |node: &Node| Some(node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?.0.clone());
        for (name, zone) in [("node-0", "a"), ("node-1", "b"), ("node-2", "a")] {
            let node = until(&nodes, name, |node| node.is_some_and(|node| cpu(node).is_some()))
                .await
                .expect("a node");
            let label = |key: &str| node.labels().get(key).map(String::as_str);
            assert_eq!(
                (label("topology.kubernetes.io/zone"), label("disk")),
                (Some(zone), Some("ssd"))
            );
            assert_eq!(cpu(&node).as_deref(), Some("2"));
        }
        let mine =
            json!({ "metadata": { "name": "mine", "labels": { "kubewright.dev/simulated": "true", "who": "me" } } });
        create(&nodes, mine).await;
        create(&pods, pod("p", json!({}), json!({ "nodeSelector": { "who": "me" } }))).await;
        let p = until(&pods, "p", is_ready).await.expect("a pod");
        assert_eq!(p.spec.and_then(|spec| spec.node_name).as_deref(), Some("mine"));
        create(&nodes, json!({ "metadata": { "name": "foreign" } })).await;
        create(&pods, pod("q", json!({}), json!({ "nodeName": "foreign" }))).await;
        create(&pods, pod("r", json!({}), json!({}))).await;
        until(&pods, "r", is_ready).await;
        assert!(!is_ready(pods.get_opt("q").await.expect("an answer").as_ref()));
        // A node that is deleted does not come back by itself; its place may be taken.
        nodes
            .delete("node-1", &DeleteParams::default())
            .await
            .expect("it is deleted");
        create(&pods, pod("s", json!({}), json!({}))).await;
        until(&pods, "s", is_ready).await;
        assert!(nodes.get_opt("node-1").await.expect("an answer").is_none());
        let again = json!({ "metadata": { "name": "node-1", "labels": { "kubewright.dev/simulated": "true" } } });
        create(&nodes, again).await;
        until(&nodes, "node-1", |node| node.is_some_and(|node| cpu(node).is_some())).await;
    })
    .await;
}

/// A node that says that it is not ready is tainted, and its pods are not ready; when it recovers they are.
#[tokio::test]
async fn a_node_that_is_not_ready() {
    check_on(Cluster::builder(), async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(&pods, pod("p", json!({}), json!({}))).await;
        until(&pods, "p", is_ready).await;
        let tainted = |node: &Node, key: &str| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
        };
        annotate(&nodes, "node-0", "kubewright.dev/node", Some("not-ready")).await;
        until(&nodes, "node-0", |node| {
            node.is_some_and(|node| tainted(node, "node.kubernetes.io/not-ready"))
        })
        .await;
        until(&pods, "p", |pod| !is_ready(pod)).await;
        annotate(&nodes, "node-0", "kubewright.dev/node", None).await;
        until(&nodes, "node-0", |node| {
            node.is_some_and(|node| !tainted(node, "node.kubernetes.io/not-ready"))
        })
        .await;
        until(&pods, "p", is_ready).await;
        annotate(&nodes, "node-0", "kubewright.dev/pressure", Some("memory")).await;
        until(&nodes, "node-0", |node| {
            node.is_some_and(|node| tainted(node, "node.kubernetes.io/memory-pressure"))
        })
        .await;
    })
    .await;
}

/// Annotations take effect while the pod runs: it crashes once, its image is changed, it is not ready for a while.
#[tokio::test]
async fn pods_change_while_they_run() {
    check_on(Cluster::builder(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let probe = json!({ "name": "c", "image": "app:1", "readinessProbe": { "httpGet": { "port": 80 } } });
        create(&pods, pod("p", json!({}), json!({ "containers": [probe] }))).await;
        let first = until(&pods, "p", is_ready).await.expect("a pod");
        let id = |pod: &Pod| {
            let status = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.as_ref()?.first().cloned());
            status
                .map(|status| (status.container_id, status.image_id))
                .unwrap_or_default()
        };
        annotate(&pods, "p", "kubewright.dev/crashes", Some("1")).await;
        let second = until(&pods, "p", |pod| restarts(pod) == 1 && is_ready(pod))
            .await
            .expect("a pod");
        let image = Patch::Strategic(json!({ "spec": { "containers": [{ "name": "c", "image": "app:2" }] } }));
        pods.patch("p", &PatchParams::default(), &image)
            .await
            .expect("it is patched");
        let third = until(&pods, "p", |pod| restarts(pod) == 2 && is_ready(pod))
            .await
            .expect("a pod");
        let ids: BTreeSet<_> = [&first, &second, &third].map(id).into_iter().collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
        assert_eq!(id(&first).1, id(&second).1);
        annotate(&pods, "p", "kubewright.dev/never-ready", Some("true")).await;
        until(&pods, "p", |pod| !is_ready(pod)).await;
        annotate(&pods, "p", "kubewright.dev/never-ready", None).await;
        until(&pods, "p", is_ready).await;
        said(
            &client,
            "p",
            &[
                "Scheduled",
                "Pulling",
                "Pulled",
                "Created",
                "Started",
                "Killing",
                "Unhealthy",
            ],
        )
        .await;
        pods.delete("p", &DeleteParams::default()).await.expect("it is deleted");
        until(&pods, "p", |pod| pod.is_none()).await;
    })
    .await;
}

/// A container that does not end within its grace is killed at the end of it; a client that keeps the pod by a
/// finalizer sees that.
#[tokio::test]
async fn pods_end_within_their_grace() {
    check_on(Cluster::builder(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let mut kept = pod(
            "p",
            json!({ "kubewright.dev/stop-seconds": "3600" }),
            json!({ "terminationGracePeriodSeconds": 1 }),
        );
        kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
        create(&pods, kept).await;
        until(&pods, "p", is_ready).await;
        pods.delete("p", &DeleteParams::default()).await.expect("it is deleted");
        let ended = |pod: &Pod| {
            let status = pod.status.as_ref()?;
            let terminated = status
                .container_statuses
                .as_ref()?
                .first()?
                .state
                .as_ref()?
                .terminated
                .as_ref()?;
            Some((status.phase.clone()?, terminated.exit_code))
        };
        let p = until(&pods, "p", |pod| pod.is_some_and(|pod| ended(pod).is_some()))
            .await
            .expect("a pod");
        assert_eq!(ended(&p), Some(("Failed".to_owned(), 137)));
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        pods.patch("p", &PatchParams::default(), &free)
            .await
            .expect("it is patched");
        until(&pods, "p", |pod| pod.is_none()).await;
    })
    .await;
}

/// A watch of a pod sees that it has ended and is not ready, and then that it goes.
#[tokio::test]
async fn pods_end_before_they_go() {
    check_on(Cluster::builder(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(&pods, pod("p", json!({}), json!({}))).await;
        let ready = until(&pods, "p", is_ready).await.expect("a pod");
        let version = ready.resource_version().expect("a version");
        let about = WatchParams::default().fields("metadata.name=p");
        let watch = pods.watch(&about, &version).await.expect("it is watched");
        pods.delete("p", &DeleteParams::default()).await.expect("it is deleted");
        let seen = soon("the end of the pod", async {
            let mut seen = Vec::new();
            let mut watch = pin!(watch);
            while let Some(event) = watch.next().await {
                match event.expect("an event") {
                    WatchEvent::Modified(pod) => seen.push((false, is_ready(Some(&pod)), phase(&pod))),
                    WatchEvent::Deleted(pod) => {
                        seen.push((true, is_ready(Some(&pod)), phase(&pod)));
                        break;
                    }
                    _ => {}
                }
            }
            seen
        });
        let seen = seen.await;
        let failed = "Failed".to_owned();
        assert!(seen.contains(&(false, false, failed.clone())), "{seen:?}");
        assert_eq!(seen.last(), Some(&(true, false, failed)), "{seen:?}");
    })
    .await;
}

/// An annotation of a workload, of its namespace and of its node counts for the pods to come: the workload's own first.
#[tokio::test]
async fn annotations_of_owners() {
    check_on(Cluster::builder(), async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let (namespaces, nodes): (Api<Namespace>, Api<Node>) = (Api::all(client.clone()), Api::all(client.clone()));
        let word = "kubewright.dev/never-ready";
        annotate(&deployment(&deployments, "told").await, "told", word, Some("true")).await;
        annotate(&namespaces, "default", word, Some("false")).await;
        annotate(&nodes, "node-0", word, Some("true")).await;
        deployment(&deployments, "plain").await;
        // One after the other: a workload is scaled, and its new pod is as the workload says.
        for (name, is_ready_then) in [("told", false), ("plain", true)] {
            let one = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
            let scaled = deployments.patch(name, &PatchParams::default(), &one).await;
            scaled.expect("it is scaled");
            let runs = |found: Option<&Deployment>| {
                let status = found.and_then(|found| found.status.as_ref());
                status.is_some_and(|status| status.updated_replicas == Some(1))
            };
            until(&deployments, name, runs).await;
            let list = pods.list(&ListParams::default().labels(&format!("app={name}"))).await;
            let pod = list.expect("pods are listed").items.remove(0).name_any();
            let is_as_told = |pod: Option<&Pod>| {
                let runs = pod.is_some_and(|pod| phase(pod) == "Running");
                runs && is_ready(pod) == is_ready_then
            };
            until(&pods, &pod, is_as_told).await;
        }
    })
    .await;
}

/// A Deployment without pods.
async fn deployment(deployments: &Api<Deployment>, name: &str) -> Api<Deployment> {
    let labels = json!({ "app": name });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } });
    let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
    create(deployments, json!({ "metadata": { "name": name }, "spec": spec })).await;
    deployments.clone()
}

/// The rules of a container say by its exit code whether it is started again, whatever the pod's policy is.
#[tokio::test]
async fn containers_with_rules_of_their_own() {
    check_on(Cluster::builder(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        let rule = json!({ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } });
        for (name, code, expected) in [("again", "42", "Running"), ("over", "1", "Failed")] {
            let container =
                json!({ "name": "c", "image": "app:1", "restartPolicy": "Never", "restartPolicyRules": [rule] });
            let spec = json!({ "restartPolicy": "Never", "containers": [container] });
            let annotations = json!({ "kubewright.dev/crashes": "1", "kubewright.dev/exit-code": code });
            create(&pods, pod(name, annotations, spec)).await;
            let ended = |pod: Option<&Pod>| pod.is_some_and(|pod| phase(pod) == "Failed" || restarts(Some(pod)) == 1);
            let found = until(&pods, name, ended).await.expect("a pod");
            assert_eq!(phase(&found), expected, "{name}");
        }
    })
    .await;
}

/// A pod that a test plays itself is left alone.
#[tokio::test]
async fn hands_off() {
    check_on(Cluster::builder(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(
            &pods,
            pod("p", json!({ "kubewright.dev/hands-off": "true" }), json!({})),
        )
        .await;
        let is_bound =
            |pod: Option<&Pod>| pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        until(&pods, "p", is_bound).await;
        create(&pods, pod("q", json!({}), json!({}))).await;
        until(&pods, "q", is_ready).await;
        let p = pods.get("p").await.expect("a pod");
        assert_eq!(p.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
    })
    .await;
}

/// A stage plays for the pods that it selects: the status that it writes stays, other pods live as usual.
#[tokio::test]
async fn stages_play_for_pods() {
    let stages = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {app: db}
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  delay: {durationMilliseconds: 20}
  next:
    event: {type: Normal, reason: Staged, message: it begins}
    statusTemplate: |
      phase: Running
      podIP: 10.1.2.3
      conditions:
      - {type: Ready, status: "False", reason: Stage, lastTransitionTime: {{ Now | Quote }}}
"#;
    let stages = Stages::parse(stages).expect("stages");
    check_on(Cluster::builder().stages(stages), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let mut db = pod("db", json!({}), json!({}));
        db["metadata"]["labels"] = json!({ "app": "db" });
        create(&pods, db).await;
        let ip = |pod: Option<&Pod>| pod.and_then(|pod| pod.status.as_ref()?.pod_ip.clone());
        let staged = until(&pods, "db", |pod| ip(pod).is_some()).await;
        assert_eq!(ip(staged.as_ref()).as_deref(), Some("10.1.2.3"));
        said(&client, "db", &["Staged"]).await;
        create(&pods, pod("web", json!({}), json!({}))).await;
        until(&pods, "web", is_ready).await;
        assert!(!is_ready(pods.get_opt("db").await.expect("an answer").as_ref()));
        pods.delete("db", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until(&pods, "db", |pod| pod.is_none()).await;
    })
    .await;
}

/// A pod of a higher priority takes the place of the least one that makes room, and of none when it may not.
#[tokio::test]
async fn higher_priorities_take_places() {
    let nodes = Nodes::from(1).capacity("cpu", "2");
    check_on(Cluster::builder().nodes(nodes), async |client| {
        let classes: Api<PriorityClass> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        for (name, value, policy) in [
            ("low", 1, "PreemptLowerPriority"),
            ("high", 100, "PreemptLowerPriority"),
            ("polite", 50, "Never"),
        ] {
            let class = json!({ "metadata": { "name": name }, "value": value, "preemptionPolicy": policy });
            create(&classes, class).await;
        }
        let asking = |name: &str, class: Option<&str>, cpu: &str| {
            let container = json!({ "name": "c", "image": "app:1", "resources": { "requests": { "cpu": cpu } } });
            pod(
                name,
                json!({}),
                json!({ "priorityClassName": class, "containers": [container] }),
            )
        };
        create(&pods, asking("low", Some("low"), "1")).await;
        create(&pods, asking("none", None, "1")).await;
        for name in ["low", "none"] {
            until(&pods, name, is_ready).await;
        }
        let why = |pod: Option<&Pod>| {
            let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions
                .find(|one| one.type_ == "PodScheduled")
                .and_then(|one| one.message.clone())
                .unwrap_or_default()
        };
        create(&pods, asking("polite", Some("polite"), "1")).await;
        let polite = until(&pods, "polite", |pod| !why(pod).is_empty()).await;
        assert_eq!(
            why(polite.as_ref()),
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
             preemptionPolicy=Never."
        );
        create(&pods, asking("high", Some("high"), "1")).await;
        let high = until(&pods, "high", is_ready).await.expect("a pod");
        assert_eq!(high.spec.and_then(|spec| spec.node_name).as_deref(), Some("node-0"));
        // The one of priority 0 had to go.
        assert!(pods.get_opt("none").await.expect("an answer").is_none());
        assert!(is_ready(pods.get_opt("low").await.expect("an answer").as_ref()));
        said(&client, "none", &["Preempted"]).await;
        let nobody = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
                      1 No preemption victims found for incoming pod.";
        let useless = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
                       1 Preemption is not helpful for scheduling.";
        for (name, class, cpu, expected) in [("last", None, "1", nobody), ("huge", Some("high"), "3", useless)] {
            create(&pods, asking(name, class, cpu)).await;
            let told = until(&pods, name, |pod| !why(pod).is_empty()).await;
            assert_eq!(why(told.as_ref()), expected, "{name}");
        }
    })
    .await;
}

/// A victim that takes its time: the pod that comes is nominated meanwhile, and one of the same priority does not slip
/// in before it.
#[tokio::test]
async fn places_are_kept_for_the_nominated() {
    let nodes = Nodes::from(1).capacity("pods", "1");
    check_on(Cluster::builder().nodes(nodes), async |client| {
        let classes: Api<PriorityClass> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(&classes, json!({ "metadata": { "name": "high" }, "value": 100 })).await;
        let mut old = pod("old", json!({}), json!({}));
        old["metadata"]["finalizers"] = json!(["example.com/keep"]);
        create(&pods, old).await;
        until(&pods, "old", is_ready).await;
        let high = json!({ "priorityClassName": "high" });
        create(&pods, pod("first", json!({}), high.clone())).await;
        let nominated = |pod: Option<&Pod>| pod.and_then(|pod| pod.status.as_ref()?.nominated_node_name.clone());
        until(&pods, "first", |pod| nominated(pod).as_deref() == Some("node-0")).await;
        let told = until(&pods, "old", |pod| {
            pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await;
        let conditions = told.and_then(|pod| pod.status?.conditions).unwrap_or_default();
        let target = conditions
            .iter()
            .find(|one| one.type_ == "DisruptionTarget")
            .expect("it is told");
        assert_eq!(
            (target.reason.as_deref(), target.message.as_deref()),
            (
                Some("PreemptionByScheduler"),
                Some("default-scheduler: preempting to accommodate a higher priority pod")
            )
        );
        create(&pods, pod("second", json!({}), high)).await;
        said(&client, "second", &["FailedScheduling"]).await;
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        pods.patch("old", &PatchParams::default(), &free)
            .await
            .expect("it is patched");
        let first = until(&pods, "first", is_ready).await;
        assert_eq!(nominated(first.as_ref()), None);
        let second = pods.get("second").await.expect("a pod");
        assert_eq!(second.spec.and_then(|spec| spec.node_name), None);
    })
    .await;
}

/// A scheduler under two names: each reports on the pods that ask for it in its own name; the pods of a third are left
/// alone.
#[tokio::test]
async fn schedulers_by_name() {
    let builder = Cluster::builder().schedulers(["default-scheduler", "batch"]);
    check_on(builder.nodes(Nodes::from(1).capacity("pods", "3")), async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let usable = |node: &Node| {
            let allocatable = node.status.as_ref().is_some_and(|status| status.allocatable.is_some());
            allocatable && node.spec.as_ref().is_none_or(|spec| spec.taints.is_none())
        };
        until(&nodes, "node-0", |node| node.is_some_and(usable)).await;
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let asking = |name: &str, scheduler: &str, more: Value| {
            let mut asking = pod(name, json!({}), more);
            asking["spec"]["schedulerName"] = json!(scheduler);
            asking
        };
        // It is older than all that are placed.
        create(&pods, asking("other", "somebody-else", json!({}))).await;
        create(&pods, asking("b", "batch", json!({}))).await;
        create(&pods, pod("d", json!({}), json!({}))).await;
        let nowhere = json!({ "nodeSelector": { "disk": "tape" } });
        create(&pods, asking("lost", "batch", nowhere)).await;
        for name in ["b", "d"] {
            until(&pods, name, is_ready).await;
            said(&client, name, &["Scheduled"]).await;
        }
        said(&client, "lost", &["FailedScheduling"]).await;
        let events: Api<Event> = Api::default_namespaced(client.clone());
        let all = events.list(&Default::default()).await.expect("events are listed");
        let of_schedulers = all
            .items
            .iter()
            .filter(|event| ["Scheduled", "FailedScheduling"].map(Some).contains(&event.reason.as_deref()));
        let told: BTreeSet<(&str, &str, &str)> = of_schedulers
            .map(|event| {
                (
                    event.involved_object.name.as_deref().unwrap_or_default(),
                    event.reporting_component.as_deref().unwrap_or_default(),
                    event.message.as_deref().unwrap_or_default(),
                )
            })
            .collect();
        let nowhere = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, \
                       preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        let expected = [
            ("b", "batch", "Successfully assigned default/b to node-0"),
            ("d", "default-scheduler", "Successfully assigned default/d to node-0"),
            ("lost", "batch", nowhere),
        ];
        assert_eq!(told, BTreeSet::from(expected));
        let other = pods.get("other").await.expect("a pod");
        let conditions = other.status.and_then(|status| status.conditions);
        assert_eq!((other.spec.and_then(|spec| spec.node_name), conditions), (None, None));
    })
    .await;
}
