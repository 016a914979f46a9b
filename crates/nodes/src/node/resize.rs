//! In-place resize of simulated pods (KEP-1287): the resources that a kubelet gives running containers, and what it says
//! of a change (`handlePodResourcesResize`).
//!
//! Pure. The status is the memory: `allocatedResources` is what the node has set aside, `resources` what the container
//! has. A change is allocated in one write (condition PodResizeInProgress) and made in the next. Invariant: nothing is
//! allocated for which the node has no room; such a change waits (PodResizePending).
//!
//! Not here: what can never fit a node, and other resources (the API server refuses both); processes, whose statuses
//! have no `resources`, so that the API server refuses to resize them.

use std::collections::BTreeMap;

use kubewright::EventType;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::{
    Container, ContainerStatus, Pod, PodCondition, PodStatus, ResourceRequirements,
};
use kubewright_objects::quantity::milli;
use kubewright_objects::{meta, pods};
use serde_json::{Value, json};

use super::container::{self, ContainerContext, Observations};

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";
/// What can change of a container that runs.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Gives a container that starts its resources.
pub(super) fn give(container: &Container, status: &mut ContainerStatus) {
    if status.resources.is_none() {
        let resources = container.resources.clone().unwrap_or_default();
        status.allocated_resources.clone_from(&resources.requests);
        status.resources = Some(resources);
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn statuses_mut(status: &mut PodStatus) -> impl Iterator<Item = &mut ContainerStatus> {
    let init = status.init_container_statuses.iter_mut().flatten();
    init.chain(status.container_statuses.iter_mut().flatten())
}

type List = Option<BTreeMap<String, Quantity>>;

fn amount(list: &List, name: &str) -> Option<i128> {
    milli(list.as_ref()?.get(name)?)
}

/// The resources of a running container that are not what its spec says.
fn changed(container: &Container, status: &ContainerStatus) -> Vec<&'static str> {
    let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    let Some(has) = status.resources.as_ref().filter(|_| is_running) else {
        return Vec::new();
    };
    let none = ResourceRequirements::default();
    let wants = container.resources.as_ref().unwrap_or(&none);
    let differs = |name: &&str| {
        amount(&wants.requests, name) != amount(&has.requests, name)
            || amount(&wants.limits, name) != amount(&has.limits, name)
    };
    RESOURCES.into_iter().filter(differs).collect()
}

/// Whether the node has set aside what the spec says.
fn is_allocated(container: &Container, status: &ContainerStatus) -> bool {
    let wants = container.resources.as_ref().and_then(|wants| wants.requests.clone());
    let is_same = |name: &&str| amount(&wants, name) == amount(&status.allocated_resources, name);
    RESOURCES.iter().all(is_same)
}

/// Whether a change is wanted, waits, or is under way.
pub(super) fn is_due(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let known = |container: &Container| statuses(status).find(|status| status.name == container.name);
    let is_told = |type_: &&str| pods::condition(pod, type_).is_some();
    [PENDING, IN_PROGRESS].iter().any(is_told)
        || containers(pod)
            .any(|container| known(container).is_some_and(|status| !changed(container, status).is_empty()))
}

/// The conditions of a resize, for the digest of a status.
pub(super) fn mark(status: &PodStatus) -> String {
    let conditions = status.conditions.iter().flatten();
    let told = conditions.filter(|condition| [PENDING, IN_PROGRESS].contains(&condition.type_.as_str()));
    told.map(|condition| format!(" {} {:?}", condition.type_, condition.observed_generation))
        .collect()
}

/// The status of a pod one step further; `lacks`: why there is no room for what it wants.
pub(super) fn advance(pod: &Pod, lacks: Option<&str>, now: Timestamp, notes: &mut Observations) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let generation = pod.metadata.generation;
    let mut of = BTreeMap::new();
    for container in containers(pod) {
        of.insert(container.name.as_str(), container);
    }
    let wanted = |status: &ContainerStatus| of.get(status.name.as_str()).copied();
    let changes =
        statuses(&status).filter(|status| wanted(status).is_some_and(|wants| !changed(wants, status).is_empty()));
    let changes: Vec<String> = changes.map(|status| status.name.clone()).collect();
    let is_set_aside = statuses(&status).all(|status| wanted(status).is_none_or(|wants| is_allocated(wants, status)));
    let began = pods::condition(pod, IN_PROGRESS).map(|condition| condition.observed_generation);
    if let Some(began) = began.filter(|_| is_set_aside) {
        for status in statuses_mut(&mut status) {
            if let Some(wants) = wanted(status) {
                make(pod, wants, status, now, notes);
            }
        }
        forget(&mut status, IN_PROGRESS);
        let message = format!("Pod resize completed: {}", summary(pod, began, None));
        notes.say(EventType::Normal, "ResizeCompleted", message);
    } else if changes.is_empty() {
        forget(&mut status, PENDING);
    } else if let Some(why) = lacks {
        let before = pods::condition(pod, PENDING);
        let is_said = before.is_some_and(|before| before.observed_generation == generation);
        let since = before.and_then(|before| before.last_transition_time.clone());
        forget(&mut status, PENDING);
        status.conditions.get_or_insert_default().push(PodCondition {
            reason: Some("Deferred".to_owned()),
            message: Some(why.to_owned()),
            last_transition_time: since.or_else(|| Some(meta::time(now))),
            ..condition(PENDING, generation, now)
        });
        if !is_said {
            let message = format!("Pod resize Deferred: {}", summary(pod, generation, Some(why)));
            notes.say(EventType::Warning, "ResizeDeferred", message);
        }
    } else {
        for status in statuses_mut(&mut status).filter(|status| changes.contains(&status.name)) {
            let wants = wanted(status).and_then(|wants| wants.resources.as_ref());
            status.allocated_resources = wants.and_then(|wants| wants.requests.clone());
        }
        forget(&mut status, PENDING);
        forget(&mut status, IN_PROGRESS);
        let next = condition(IN_PROGRESS, generation, now);
        status.conditions.get_or_insert_default().push(next);
        let message = format!("Pod resize started: {}", summary(pod, generation, None));
        notes.say(EventType::Normal, "ResizeStarted", message);
    }
    status
}

/// Gives a container what it wants; one that says so is started anew for it.
fn make(pod: &Pod, wants: &Container, status: &mut ContainerStatus, now: Timestamp, notes: &mut Observations) {
    let changed = changed(wants, status);
    if changed.is_empty() {
        return;
    }
    status.resources = Some(wants.resources.clone().unwrap_or_default());
    let mut policies = wants.resize_policy.iter().flatten();
    if policies
        .any(|policy| policy.restart_policy == "RestartContainer" && changed.contains(&policy.resource_name.as_str()))
    {
        let message = format!("Container {} resize requires restart", wants.name);
        notes.say(EventType::Normal, "Killing", message);
        container::end(&ContainerContext::clear(pod, now), status, 0, None);
        // A change is no crash: nothing holds the next start up.
        container::fall(status, "ContainerCreating", "");
    }
}

fn forget(status: &mut PodStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

fn condition(type_: &str, generation: Option<i64>, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        last_probe_time: Some(meta::time(now)),
        last_transition_time: Some(meta::time(now)),
        observed_generation: generation,
        ..PodCondition::default()
    }
}

/// What a pod wants, as events tell it (`makeResourceSummaryFromSpec`).
fn summary(pod: &Pod, generation: Option<i64>, error: Option<&str>) -> String {
    let list = |all: &[Container]| -> Vec<String> {
        let of = |container: &Container| {
            let resources = container.resources.clone().unwrap_or_default();
            format!(
                "{{\"name\":{},\"resources\":{}}}",
                json!(container.name),
                json!(resources)
            )
        };
        all.iter().map(of).collect()
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let lists = [
        ("initContainers", spec.init_containers.unwrap_or_default()),
        ("containers", spec.containers),
    ];
    let mut parts: Vec<String> = lists
        .iter()
        .filter(|(_, all)| !all.is_empty())
        .map(|(name, all)| format!("\"{name}\":[{}]", list(all).join(",")))
        .collect();
    parts.push(format!("\"generation\":{}", generation.unwrap_or(0)));
    parts.extend(error.map(|error| format!("\"error\":{}", Value::from(error))));
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod at this generation that wants `wants` of cpu, with a status.
    fn pod(generation: i64, wants: &str, policy: Value, status: &PodStatus) -> Pod {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": wants } }, "resizePolicy": policy });
        serde_json::from_value(json!({
            "metadata": { "generation": generation }, "spec": { "containers": [container] }, "status": json!(status),
        }))
        .expect("a pod")
    }

    fn running(cpu: &str) -> PodStatus {
        let requests = json!({ "cpu": cpu });
        serde_json::from_value(json!({ "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} },
            "resources": { "requests": requests }, "allocatedResources": requests,
        }] }))
        .expect("a status")
    }

    /// Resources, allocated resources, conditions, and whether the container runs.
    fn describe(status: &PodStatus) -> String {
        let one = statuses(status).next().expect("a container");
        let cpu = |list: &List| list.as_ref().and_then(|list| list.get("cpu")).map(|cpu| cpu.0.clone());
        let has = one.resources.as_ref().and_then(|has| cpu(&has.requests));
        let runs = one.state.as_ref().is_some_and(|state| state.running.is_some());
        let mut words = vec![
            has.unwrap_or_default(),
            cpu(&one.allocated_resources).unwrap_or_default(),
            (if runs { "runs" } else { "waits" }).to_owned(),
        ];
        words.extend(status.conditions.iter().flatten().map(|condition| {
            let generation = condition.observed_generation.unwrap_or(0);
            format!(
                "{}:{}@{generation}",
                condition.type_,
                condition.reason.as_deref().unwrap_or_default()
            )
        }));
        words.join(" ")
    }

    #[test]
    fn how_a_change_is_made() {
        // The generation, what is wanted, what is lacking, and what comes of it with these events.
        type Look<'a> = (i64, &'a str, Option<&'a str>, &'a str, &'a [&'a str]);
        let check = |policy: Value, looks: &[Look<'_>]| {
            let mut status = running("1");
            for (generation, wants, lacks, expected, told) in looks {
                let mut notes = Observations::default();
                let pod = pod(*generation, wants, policy.clone(), &status);
                let is_due = is_due(&pod);
                status = advance(&pod, *lacks, Timestamp::UNIX_EPOCH, &mut notes);
                let reasons: Vec<&str> = notes.events.iter().map(|(_, reason, _)| *reason).collect();
                assert_eq!(
                    (describe(&status).as_str(), reasons.as_slice()),
                    (*expected, *told),
                    "{wants}"
                );
                assert!(is_due || told.is_empty(), "{expected}");
            }
        };
        let (start, done) = ("1 2 runs PodResizeInProgress:@2", "2 2 runs");
        check(
            json!([]),
            &[
                (1, "1", None, "1 1 runs", &[]),
                (2, "2", None, start, &["ResizeStarted"]),
                (2, "2", None, done, &["ResizeCompleted"]),
                (2, "2", None, done, &[]),
            ],
        );
        let waits = "1 1 runs PodResizePending:Deferred@2";
        check(
            json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]),
            &[
                (2, "2", Some("full"), waits, &["ResizeDeferred"]),
                (2, "2", Some("full"), waits, &[]),
                (2, "2", None, start, &["ResizeStarted"]),
                // It changes again while it is under way.
                (
                    3,
                    "4",
                    Some("full"),
                    "1 2 runs PodResizeInProgress:@2 PodResizePending:Deferred@3",
                    &["ResizeDeferred"],
                ),
                (
                    4,
                    "2",
                    None,
                    "2 2 runs PodResizePending:Deferred@3",
                    &["ResizeCompleted"],
                ),
            ],
        );
        check(
            json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]),
            &[
                (2, "2", None, start, &["ResizeStarted"]),
                (2, "2", None, "2 2 waits", &["Killing", "ResizeCompleted"]),
            ],
        );
        // It is taken back before there was room.
        check(
            json!([]),
            &[
                (2, "2", Some("full"), waits, &["ResizeDeferred"]),
                (3, "1000m", None, "1 1 runs", &[]),
            ],
        );
    }

    #[test]
    fn what_events_tell() {
        let pod = pod(3, "2", Value::Null, &running("1"));
        let expected =
            r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}],"generation":3,"error":"full"}"#;
        assert_eq!(summary(&pod, Some(3), Some("full")), expected);
    }
}
