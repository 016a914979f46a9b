//! Whether objects are ready, and the reasons if they are not.
//!
//! [`missing`] decides from an object alone; waiting asks the server again and again, reports each change of the
//! missing conditions, and at the end of its time looks at pods and their events for the reasons.

use std::time::Duration;

use kubewright::kube::api::{Api, DynamicObject, ListParams};
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, Kinds};
use super::{is_definition, text, title};
use crate::output::{DIM, Format, paint};

const POLL: Duration = Duration::from_millis(200);

/// Whether there is something to wait for.
pub(super) fn promises(object: &Value) -> bool {
    is_definition(object) || matches!(text(object, "/kind"), "Deployment" | "StatefulSet" | "DaemonSet")
}

/// The missing condition of an object; `None` when it is ready.
pub(crate) fn missing(object: &Value) -> Option<String> {
    if is_definition(object) {
        return missing_of_definition(object);
    }
    let status = &object["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let observed = count("observedGeneration");
    if observed < object["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Some("its controller has not looked at it yet".to_owned());
    }
    let (wanted, updated, available) = match text(object, "/kind") {
        "DaemonSet" => (
            count("desiredNumberScheduled"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
        ),
        "StatefulSet" => (replicas(object), count("updatedReplicas"), count("readyReplicas")),
        "Deployment" => (replicas(object), count("updatedReplicas"), count("availableReplicas")),
        _ => return None,
    };
    let old = count("replicas") - updated;
    match () {
        () if updated < wanted => Some(format!("{updated} of {wanted} pods are of this version")),
        () if available < wanted => Some(format!("{available} of {wanted} pods are available")),
        () if text(object, "/kind") == "Deployment" && old > 0 => Some(format!("{old} old pods are still there")),
        () => None,
    }
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn missing_of_definition(object: &Value) -> Option<String> {
    let condition = |name: &str| {
        let conditions = object["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == name)
    };
    if let Some(refused) = condition("NamesAccepted").filter(|condition| condition["status"] == "False") {
        return Some(format!("its names are taken: {}", text(refused, "/message")));
    }
    match condition("Established") {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => Some(format!("not established: {}", text(condition, "/message"))),
        None => Some("not established yet".to_owned()),
    }
}

/// Waits until all of the objects are ready.
///
/// # Errors
/// When time is over, with the missing conditions and the reasons.
pub(super) async fn wait_ready(
    cluster: &Cluster,
    kinds: &Kinds,
    objects: &[&Value],
    end: Instant,
    output: Format,
) -> Result<(), Diagnostic> {
    for object in objects {
        let title = title(object);
        let Some(api) = cluster.api(kinds, object) else {
            continue;
        };
        let mut told = None;
        let working = crate::progress::during(format!("waiting for {title}"));
        loop {
            let found = api.get_opt(text(object, "/metadata/name")).await;
            let found = found.map_err(|why| cluster.failed(format!("cannot wait for {title}"), &why))?;
            let present = found.map(as_value);
            let lacks = match &present {
                Some(present) => missing(present),
                None => Some("it is gone".to_owned()),
            };
            let Some(lacks) = lacks else { break };
            if Instant::now() >= end {
                return Err(too_late(cluster, &title, &lacks, present.as_ref()).await);
            }
            if told.as_ref() != Some(&lacks) {
                output.say(
                    &paint(DIM, format!("waiting for {title}: {lacks}")),
                    &json!({"event": "waiting", "object": title, "missing": lacks}),
                );
                working.now(format!("waiting for {title}: {lacks}"));
                told = Some(lacks);
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

pub(super) fn as_value(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

async fn too_late(cluster: &Cluster, title: &str, lacks: &str, object: Option<&Value>) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(
        codes::config::NOT_READY,
        format!("{title} did not become ready in time"),
    )
    .because(lacks);
    let reasons = match object {
        Some(object) => reasons(cluster, object).await,
        None => Vec::new(),
    };
    let fix = fix(&reasons);
    for reason in reasons {
        diagnostic = diagnostic.because(reason);
    }
    diagnostic.fix(fix)
}

/// The problems of a workload's pods.
async fn reasons(cluster: &Cluster, object: &Value) -> Vec<String> {
    let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let Some(labels) = labels else { return Vec::new() };
    let selector: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let namespace = text(object, "/metadata/namespace");
    let list = |kind: &str, plural: &str, parameters: ListParams| {
        let resource = kubewright::kube::api::ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
        // Reasons are a help: without them the message names the missing conditions all the same.
        async move { api.list(&parameters).await.map(|list| list.items).unwrap_or_default() }
    };
    let pods = list("Pod", "pods", ListParams::default().labels(&selector.join(","))).await;
    let events = list("Event", "events", ListParams::default()).await;
    let pods: Vec<Value> = pods.into_iter().map(as_value).collect();
    let events: Vec<Value> = events.into_iter().map(as_value).collect();
    let mut found: Vec<String> = pods.iter().filter_map(|pod| pod_reason(pod, &events)).collect();
    if pods.is_empty() {
        found.push(match failed_create(object, &events) {
            Some(why) => format!("it has no pods: {why}"),
            None => "it has no pods".to_owned(),
        });
    }
    found
}

/// Why a pod is not ready, in one line.
fn pod_reason(pod: &Value, events: &[Value]) -> Option<String> {
    let name = text(pod, "/metadata/name");
    let status = |field: &str| pod["status"][field].as_array().cloned().unwrap_or_default();
    for container in status("initContainerStatuses")
        .iter()
        .chain(&status("containerStatuses"))
    {
        let state = container["state"].as_object().and_then(|state| state.iter().next());
        let Some((_, detail)) = state.filter(|(kind, _)| *kind != "running") else {
            continue;
        };
        let reason = text(detail, "/reason");
        // These say only that something else is not done.
        if !matches!(reason, "" | "ContainerCreating" | "PodInitializing" | "Completed") {
            let message = text(detail, "/message");
            let last = text(container, "/lastState/terminated/reason");
            let parts = [reason, message, last].into_iter().filter(|part| !part.is_empty());
            return Some(format!(
                "pod {name}, container {}: {}",
                text(container, "/name"),
                parts.collect::<Vec<_>>().join(": ")
            ));
        }
    }
    for condition in status("conditions") {
        if condition["type"] == "PodScheduled" && condition["status"] == "False" {
            return Some(format!("pod {name} finds no node: {}", text(&condition, "/message")));
        }
    }
    let warning = events
        .iter()
        .rev()
        .find(|event| event["type"] == "Warning" && text(event, "/involvedObject/name") == name);
    if let Some(warning) = warning {
        return Some(format!(
            "pod {name}: {}: {}",
            text(warning, "/reason"),
            text(warning, "/message")
        ));
    }
    let ready = status("conditions")
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let phase = text(pod, "/status/phase");
    (!ready).then(|| match phase {
        "Running" => format!("pod {name} runs but is not ready: its readiness probe does not succeed"),
        phase => format!("pod {name} is {phase}"),
    })
}

/// Why no pod was made.
fn failed_create(object: &Value, events: &[Value]) -> Option<String> {
    let failure = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = failure.clone().find(|condition| condition["type"] == "ReplicaFailure");
    if let Some(condition) = condition {
        return Some(text(condition, "/message").to_owned());
    }
    let name = text(object, "/metadata/name");
    let event = events
        .iter()
        .rev()
        .find(|event| event["reason"] == "FailedCreate" && text(event, "/involvedObject/name").starts_with(name));
    event.map(|event| text(event, "/message").to_owned())
}

fn fix(reasons: &[String]) -> &'static str {
    let says = |words: &[&str]| {
        reasons
            .iter()
            .any(|reason| words.iter().any(|word| reason.contains(word)))
    };
    if says(&["ImagePull", "ErrImage", "InvalidImageName"]) {
        "push the image to where the cluster can get it, and name it with --image"
    } else if says(&["CrashLoopBackOff", "OOMKilled", "Error"]) {
        "see what it says before it ends: kubectl logs --previous of the pod"
    } else if says(&["FailedMount", "secret"]) {
        "is cert-manager running? The Secret with the certificate comes from it"
    } else {
        "look closer with kubectl describe pod, or wait longer with --timeout"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let deployment = |status: Value| json!({"kind": "Deployment", "metadata": {"name": "m", "generation": 2}, "spec": {"replicas": 1}, "status": status});
        let check =
            |object: &Value, expected: Option<&str>| assert_eq!(missing(object).as_deref(), expected, "{object}");
        check(
            &deployment(json!({"observedGeneration": 1})),
            Some("its controller has not looked at it yet"),
        );
        check(
            &deployment(json!({"observedGeneration": 2, "replicas": 1})),
            Some("0 of 1 pods are of this version"),
        );
        check(
            &deployment(json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1})),
            Some("0 of 1 pods are available"),
        );
        let ready = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2});
        check(&deployment(ready), Some("1 old pods are still there"));
        let ready = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
        check(&deployment(ready), None);

        let definition = |conditions: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "status": {"conditions": conditions}});
        check(&definition(json!([])), Some("not established yet"));
        check(
            &definition(json!([{"type": "NamesAccepted", "status": "False", "message": "\"guestbooks\" is in use"}])),
            Some("its names are taken: \"guestbooks\" is in use"),
        );
        check(&definition(json!([{"type": "Established", "status": "True"}])), None);
    }

    #[test]
    fn pods_say_why_they_are_not_ready() {
        let pod = |status: Value| json!({"metadata": {"name": "p"}, "status": status});
        let waiting = |reason: &str, message: &str| {
            pod(
                json!({"phase": "Pending", "containerStatuses": [{"name": "manager", "state": {"waiting": {"reason": reason, "message": message}}}]}),
            )
        };
        let events = [
            json!({"type": "Warning", "reason": "FailedMount", "message": "secret \"webhook-server-cert\" not found", "involvedObject": {"name": "p"}}),
        ];
        let check = |pod: &Value, events: &[Value], expected: &str| {
            assert_eq!(pod_reason(pod, events).as_deref(), Some(expected));
        };
        check(
            &waiting("ImagePullBackOff", "Back-off pulling image \"controller:latest\""),
            &[],
            "pod p, container manager: ImagePullBackOff: Back-off pulling image \"controller:latest\"",
        );
        check(
            &waiting("ContainerCreating", ""),
            &events,
            "pod p: FailedMount: secret \"webhook-server-cert\" not found",
        );
        check(
            &pod(
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}),
            ),
            &[],
            "pod p finds no node: 0/1 nodes are available",
        );
        check(
            &pod(json!({"phase": "Running"})),
            &[],
            "pod p runs but is not ready: its readiness probe does not succeed",
        );
    }
}
