//! Scenarios that were played against kube-controller-manager and kube-scheduler 1.36.3, with the results there.
//!
//! A scenario is a list of steps: requests, what a kubelet would say of pods, and states that come. A state is a part
//! of an object: fields that are not mentioned may have any value, `null` is absent, and `*` is any present value. Here
//! are only those in which these controllers once differed.

mod devices;
mod policies;
mod ranges;
mod resizes;
mod since_37;
mod statefulsets;
mod topology;
mod volumes;

use std::pin::pin;

use crate::common::SOON;
use crate::common::scenes::check_on;
use futures::{Stream, StreamExt as _};
use kube::Client;
use kube::api::WatchEvent;
use kubewright_cluster::{Cluster, ClusterBuilder, Nodes};
use serde_json::{Value, json};

/// One step of a scenario.
enum Step {
    /// Creates an object in a collection.
    Create(&'static str, Value),
    /// Merges into an object.
    Merge(&'static str, Value),
    /// A write that is refused, with these words in the message.
    Refused(&'static str, Value, &'static str),
    Delete(&'static str),
    /// The kubelet's status of the living pod that works for this completion; of any pod without one.
    Pod(Option<u32>, Value),
    /// Allocates the only claim to devices.
    Allocate,
    /// Waits until an object has these parts; null: until it is gone.
    Is(&'static str, Value),
    /// Waits for an event of this reason, and compares its message.
    Says(&'static str, &'static str),
    /// No such event was told so far.
    Silent(&'static str),
}
use Step::{Allocate, Create, Delete, Is, Merge, Pod, Refused, Says, Silent};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/work";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const CRON_JOB: &str = "/apis/batch/v1/namespaces/default/cronjobs/cj";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/c";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const DEVICE_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";

async fn request(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(
            "content-type",
            match method {
                "PATCH" => "application/merge-patch+json",
                _ => "application/json",
            },
        )
        .body(match body {
            Value::Null => vec![],
            body => serde_json::to_vec(body).expect("JSON"),
        })
        .expect("a request");
    client.request(request).await
}

/// Whether all that is wanted is there.
fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| has(found.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| has(found, wanted))
        }
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|wanted| has(&Value::Null, wanted)),
        (found, Value::String(any)) if any == "*" => !found.is_null(),
        _ => found == wanted,
    }
}

/// The collections that steps look at as a whole.
const COLLECTIONS: [&str; 6] = [JOBS, PODS, EVENTS, DEVICE_CLAIMS, SLICES, since_37::BUNDLES];

/// The changes, from now on, in the collection that is at a path, or holds the object there.
async fn changes(client: &Client, path: &str) -> impl Stream<Item = kube::Result<WatchEvent<Value>>> {
    let collection = match path.rsplit_once('/') {
        Some((collection, _)) if !COLLECTIONS.contains(&path) => collection,
        _ => path,
    };
    let watch = http::Request::get(format!("{collection}?watch=true")).body(vec![]);
    let events = client.request_events(watch.expect("a request")).await;
    events.expect("it can be watched")
}

/// Looks again at each change, until the object at the path is as it should be.
async fn until(client: &Client, what: &str, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    let waiting = async {
        let mut changes = pin!(changes(client, path).await);
        loop {
            found = request(client, "GET", path, &Value::Null).await.unwrap_or(Value::Null);
            if is(&found) {
                return;
            }
            changes.next().await.expect("the watch goes on").expect("a change");
        }
    };
    let in_time = tokio::time::timeout(SOON / 2, waiting).await.is_ok();
    assert!(in_time, "{what}: {path} is {found:#}");
    found
}

async fn play(client: &Client, name: &str, steps: Vec<Step>) {
    for (at, step) in steps.into_iter().enumerate() {
        let what = format!("{name}, step {at}");
        match step {
            Create(path, object) => drop(request(client, "POST", path, &object).await.expect(&what)),
            Merge(path, patch) => drop(request(client, "PATCH", path, &patch).await.expect(&what)),
            Delete(path) => drop(request(client, "DELETE", path, &json!({})).await.expect(&what)),
            Refused(path, patch, words) => {
                let refusal = request(client, "PATCH", path, &patch).await.expect_err(&what);
                assert!(refusal.to_string().contains(words), "{what}: {refusal}");
            }
            Pod(index, status) => {
                let fits = |pod: &&Value| {
                    let of = &pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"];
                    let lives = pod["status"]["phase"] != "Failed" && pod["status"]["phase"] != "Succeeded";
                    lives && index.is_none_or(|index| *of == json!(index.to_string()))
                };
                let first = |found: &Value| found["items"].as_array().and_then(|all| all.iter().find(fits).cloned());
                let pods = until(client, &what, PODS, |found| first(found).is_some()).await;
                let pod = first(&pods).expect("a pod");
                let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().expect("a name"));
                request(client, "PATCH", &path, &json!({ "status": status }))
                    .await
                    .expect(&what);
            }
            Allocate => {
                let found = until(client, &what, DEVICE_CLAIMS, |found| !found["items"][0].is_null()).await;
                let name = found["items"][0]["metadata"]["name"].as_str().expect("a name");
                let patch = json!({ "status": { "allocation": {} } });
                let path = format!("{DEVICE_CLAIMS}/{name}/status");
                request(client, "PATCH", &path, &patch).await.expect(&what);
            }
            Is(path, wanted) => drop(until(client, &what, path, |found| has(found, &wanted)).await),
            Says(reason, message) => {
                let told = |found: &Value| messages(found, reason).iter().any(|told| told == message);
                until(client, &format!("{what}: {reason} {message:?}"), EVENTS, told).await;
            }
            Silent(reason) => {
                let events = until(client, &what, EVENTS, Value::is_object).await;
                assert_eq!(messages(&events, reason), Vec::<String>::new(), "{what}");
            }
        }
    }
}

fn messages(events: &Value, reason: &str) -> Vec<String> {
    let all = events["items"].as_array().into_iter().flatten();
    all.filter(|event| event["reason"] == reason)
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Plays a scenario on a cluster of its own, with so many nodes.
async fn check(name: &str, nodes: impl Into<Nodes>, steps: Vec<Step>) {
    check_with(Cluster::builder().nodes(nodes), name, steps).await;
}

async fn check_with(builder: ClusterBuilder, name: &str, steps: Vec<Step>) {
    let steps = std::sync::Mutex::new(Some(steps));
    check_on(builder, async |client| {
        let steps = steps.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        play(&client, name, steps.unwrap_or_default()).await;
    })
    .await;
}

fn job(spec: Value) -> Step {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "work" }, "spec": {
        "template": { "metadata": { "labels": { "app": "work" } }, "spec": pod_spec() },
    } });
    let (into, from) = (job["spec"].as_object_mut(), spec.as_object());
    into.expect("an object").extend(from.expect("an object").clone());
    Create(JOBS, job)
}

/// The spec of a pod that no scheduler touches.
fn pod_spec() -> Value {
    let container = json!({ "name": "c", "image": "app:1" });
    json!({ "schedulerName": "nobody", "restartPolicy": "Never", "containers": [container] })
}

fn pod(name: &str, spec: Value) -> Step {
    let meta = json!({ "name": name, "labels": { "app": name } });
    Create(
        PODS,
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec }),
    )
}

fn claim(name: &str, class: &str) -> Step {
    let spec = json!({ "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } });
    let meta = json!({ "name": name });
    Create(
        CLAIMS,
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec }),
    )
}

/// A CronJob whose one run of a year was missed.
fn cron(spec: Value) -> Vec<Step> {
    let mut whole = json!({ "schedule": "0 0 1 1 *", "suspend": true,
        "jobTemplate": { "spec": { "template": { "spec": pod_spec() } } } });
    let (into, from) = (whole.as_object_mut(), spec.as_object());
    into.expect("an object").extend(from.expect("an object").clone());
    let cron_job = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "cj" }, "spec": whole });
    vec![
        Create(CRON_JOBS, cron_job),
        Merge(
            "/apis/batch/v1/namespaces/default/cronjobs/cj/status",
            json!({ "status": { "lastScheduleTime": "2020-06-01T00:00:00Z" } }),
        ),
        Merge(CRON_JOB, json!({ "spec": { "suspend": false } })),
    ]
}

const DONE: &str = "Succeeded";

#[tokio::test]
async fn jobs() {
    let size = |size: u32| Merge(JOB, json!({ "spec": { "completions": size, "parallelism": size } }));
    let steps = vec![
        job(json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 4 })),
        Pod(Some(3), json!({ "phase": DONE })),
        Is(
            JOB,
            json!({ "status": { "succeeded": 1, "completedIndexes": "3", "active": 3 } }),
        ),
        size(2),
        Is(
            JOB,
            json!({ "status": { "succeeded": null, "completedIndexes": null, "active": 2 } }),
        ),
    ];
    check("an Indexed Job that shrinks loses completions", 0, steps).await;

    let failed = json!({ "phase": "Failed" });
    let steps = vec![
        job(json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 2,
            "backoffLimitPerIndex": 0, "maxFailedIndexes": 1 })),
        Pod(Some(0), failed.clone()),
        Is(JOB, json!({ "status": { "failedIndexes": "0", "active": 2 } })),
        Pod(Some(1), failed),
        Is(
            JOB,
            json!({ "status": { "failedIndexes": "0,1", "failed": 3, "active": null } }),
        ),
    ];
    check("pods that go with a Job fail no index", 0, steps).await;

    let bare = "/api/v1/namespaces/default/pods/work";
    let steps = vec![
        pod("work", pod_spec()),
        job(json!({ "manualSelector": true, "selector": { "matchLabels": { "app": "work" } } })),
        Is(
            bare,
            json!({ "metadata": { "finalizers": ["batch.kubernetes.io/job-tracking"] } }),
        ),
        Merge(bare, json!({ "metadata": { "labels": { "app": "free" } } })),
        Is(
            bare,
            json!({ "metadata": { "finalizers": null, "ownerReferences": null } }),
        ),
    ];
    check("an adopted pod is counted", 0, steps).await;
}

#[tokio::test]
async fn cron_jobs() {
    let mut steps = cron(json!({ "schedule": "0 0 31 2 *" }));
    steps.push(Says(
        "InvalidSchedule",
        "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second",
    ));
    check("a day that does not exist", 0, steps).await;

    let mut steps = cron(json!({ "successfulJobsHistoryLimit": 0 }));
    steps.extend([
        Pod(None, json!({ "phase": DONE })),
        Is(CRON_JOB, json!({ "status": { "active": null } })),
        Is(JOBS, json!({ "items": [] })),
        Silent("SawCompletedJob"),
    ]);
    check("a Job for which there is no history", 0, steps).await;
}

#[tokio::test]
async fn budgets_and_autoscalers() {
    let budget = |name: &str| {
        let spec = json!({ "selector": { "matchLabels": { "app": "work" } }, "maxUnavailable": 1 });
        Create(
            BUDGETS,
            json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": name }, "spec": spec }),
        )
    };
    let steps = vec![
        job(json!({})),
        budget("b"),
        Says(
            "CalculateExpectedPodCountFailed",
            "Failed to calculate the number of expected pods: jobs.batch does not implement the scale subresource",
        ),
    ];
    check("a Job has no scale", 0, steps).await;

    let scaler = |name: &str, kind: &str| {
        let spec = json!({ "minReplicas": 2, "maxReplicas": 4,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": "web" } });
        let meta = json!({ "name": name });
        Create(
            SCALERS,
            json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": meta, "spec": spec }),
        )
    };
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "schedulerName": "nobody",
        "containers": [{ "name": "c", "image": "app:1" }] } });
    let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template } });
    let first = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/first";
    let steps = vec![
        Create("/apis/apps/v1/namespaces/default/deployments", web),
        scaler("first", "Deployment"),
        scaler("lost", "Nothing"),
        Says("FailedGetScale", "no matches for kind \"Nothing\" in group \"apps\""),
        Is(
            first,
            json!({ "status": { "desiredReplicas": 2, "lastScaleTime": "*" } }),
        ),
    ];
    check("an autoscaler's first change of a size", 0, steps).await;
}

#[tokio::test]
async fn claims_and_volumes() {
    let mut used = pod_spec();
    used["nodeName"] = json!("node-9");
    used["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
    let held = json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] } });
    let steps = vec![
        claim("c", "none"),
        pod("user", used),
        Delete(CLAIM),
        Is(CLAIM, held.clone()),
        Pod(None, json!({ "phase": DONE })),
        Is(CLAIM, held),
        Delete("/api/v1/namespaces/default/pods/user?gracePeriodSeconds=0"),
        Is(CLAIM, Value::Null),
    ];
    check("a pod that has finished holds its claim", 0, steps).await;

    let class = |provisioner: &str| {
        Create(
            CLASSES,
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "slow" },
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer" }),
        )
    };
    let user = |name: &str, claim: &str| {
        let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }]);
        pod(
            name,
            json!({ "containers": [{ "name": "c", "image": "app:1" }], "volumes": volumes }),
        )
    };
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "hostPath": { "path": "/x" }, "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"] }] }] } } } });
    let steps = vec![
        class("kubernetes.io/no-provisioner"),
        claim("c", "slow"),
        user("p", "c"),
        Says(
            "FailedScheduling",
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. no new claims to deallocate, \
             preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
        Is(
            CLAIM,
            json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": null } } }),
        ),
        Create(VOLUMES, volume),
        Is(
            "/api/v1/namespaces/default/pods/p",
            json!({ "spec": { "nodeName": "node-1" } }),
        ),
        Is(
            CLAIM,
            json!({ "spec": { "volumeName": "v" }, "status": { "phase": "Bound" } }),
        ),
    ];
    check("volumes that are made by hand", 2, steps).await;

    let beta = "volume.beta.kubernetes.io/storage-provisioner";
    let steps = vec![
        class("ex.io/p"),
        claim("c", "slow"),
        user("p", "c"),
        Is(CLAIM, json!({ "metadata": { "annotations": { beta: "ex.io/p" } } })),
        Is(
            "/api/v1/namespaces/default/pods/p",
            json!({ "status": { "nominatedNodeName": "node-0" } }),
        ),
        user("lost", "none"),
        Says(
            "FailedScheduling",
            "0/1 nodes are available: persistentvolumeclaim \"none\" not found. not found",
        ),
    ];
    check("a volume that a provisioner makes", 1, steps).await;
}

/// A volume that is kept for a claim of its name, and the claim.
fn pair(name: &str, policy: &str, class: &str, source: Value) -> [Step; 2] {
    let size = json!({ "storage": "1Gi" });
    let mut volume = json!({ "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "persistentVolumeReclaimPolicy": policy, "claimRef": { "namespace": "default", "name": name } });
    let (into, from) = (volume.as_object_mut(), source.as_object());
    into.expect("an object").extend(from.expect("an object").clone());
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": name,
        "resources": { "requests": size } });
    let object = |kind: &str, spec: Value| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    [
        Create(VOLUMES, object("PersistentVolume", volume)),
        Create(CLAIMS, object("PersistentVolumeClaim", claim)),
    ]
}

#[tokio::test]
async fn volumes_after_their_claims() {
    let path = "/api/v1/persistentvolumes/c";
    let becomes = async |policy: &str, source: Value, status: Value, event: Option<(&'static str, &'static str)>| {
        let name = format!("{policy} {source}");
        let mut steps = Vec::from(pair("c", policy, "none", source));
        steps.push(Is(path, json!({ "status": { "phase": "Bound" } })));
        steps.push(Is(CLAIM, json!({ "status": { "phase": "Bound" } })));
        steps.push(Delete(CLAIM));
        steps.push(Is(path, status));
        steps.extend(event.map(|(reason, message)| Says(reason, message)));
        check(&name, 0, steps).await;
    };
    let failed = |message: &str| json!({ "status": { "phase": "Failed", "message": message } });
    let elsewhere = "host_path deleter only supports /tmp/.+ but received provided /x";
    becomes(
        "Delete",
        json!({ "hostPath": { "path": "/x" } }),
        failed(elsewhere),
        Some(("VolumeFailedDelete", elsewhere)),
    )
    .await;
    becomes("Delete", json!({ "hostPath": { "path": "/tmp/x" } }), Value::Null, None).await;
    let nobody = "error getting deleter volume plugin for volume \"c\": no deletable volume plugin matched";
    becomes(
        "Delete",
        json!({ "nfs": { "server": "a", "path": "/x" } }),
        failed(nobody),
        Some(("VolumeFailedDelete", nobody)),
    )
    .await;
    let csi = || json!({ "csi": { "driver": "ex.io", "volumeHandle": "h" } });
    let released = json!({ "status": { "phase": "Released", "message": null } });
    becomes("Delete", csi(), released, None).await;
    let recycler = "No recycler plugin found for the volume!";
    becomes(
        "Recycle",
        csi(),
        failed(recycler),
        Some(("VolumeFailedRecycle", recycler)),
    )
    .await;
}

#[tokio::test]
async fn claims_that_grow() {
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "slow" },
        "provisioner": "ex.io/p", "allowVolumeExpansion": true });
    let csi = json!({ "csi": { "driver": "ex.io", "volumeHandle": "h" } });
    let mut steps = vec![Create(CLASSES, class)];
    steps.extend(pair("c", "Delete", "slow", csi));
    steps.extend([
        Is(CLAIM, json!({ "status": { "phase": "Bound" } })),
        Merge(
            CLAIM,
            json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }),
        ),
        Says(
            "ExternalExpanding",
            "waiting for an external controller to expand this PVC",
        ),
        Is(
            CLAIM,
            json!({ "status": { "capacity": { "storage": "1Gi" }, "conditions": null } }),
        ),
    ]);
    check("a claim whose driver is to make it grow", 0, steps).await;
}

#[tokio::test]
async fn claims_for_one_pod() {
    const TAKEN: &str = "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                         already in-use by another pod.";
    let one_pod = json!(["ReadWriteOncePod"]);
    let size = json!({ "storage": "1Gi" });
    let user = |name: &str, priority: Option<&str>| {
        let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
        let containers = json!([{ "name": "c", "image": "app:1" }]);
        pod(
            name,
            json!({ "containers": containers, "volumes": volumes, "priorityClassName": priority }),
        )
    };
    let steps = vec![
        Create(
            VOLUMES,
            json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": { "capacity": size,
                "accessModes": one_pod, "storageClassName": "none", "hostPath": { "path": "/x" } } }),
        ),
        Create(
            CLAIMS,
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c" }, "spec": {
                "accessModes": one_pod, "storageClassName": "none", "resources": { "requests": size } } }),
        ),
        Create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "high" }, "value": 100 }),
        ),
        user("first", None),
        Is(
            "/api/v1/namespaces/default/pods/first",
            json!({ "spec": { "nodeName": "node-0" } }),
        ),
        user("second", None),
        Says(
            "FailedScheduling",
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already \
             in-use by another pod. no new claims to deallocate, preemption: 0/1 nodes are available: \
             1 No preemption victims found for incoming pod.",
        ),
        user("third", Some("high")),
        Says("FailedScheduling", TAKEN),
        Is(
            "/api/v1/namespaces/default/pods/third",
            json!({ "spec": { "nodeName": "node-0" } }),
        ),
        Is("/api/v1/namespaces/default/pods/first", Value::Null),
    ];
    check("a claim that one pod may use", 1, steps).await;
}

#[tokio::test]
async fn pods_and_nodes() {
    let cost = json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "x" } } });
    let path = "/api/v1/namespaces/default/pods/work";
    let steps = vec![pod("work", pod_spec()), Refused(path, cost, "must be a 32bit integer")];
    check("what a pod is worth is a number", 0, steps).await;

    let labels = json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "own", "labels": labels } });
    let old = json!({ "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64" });
    let steps = vec![
        Create("/api/v1/nodes", node),
        Is("/api/v1/nodes/own", json!({ "metadata": { "labels": old } })),
    ];
    check("labels of nodes have their old names, too", 0, steps).await;
}
