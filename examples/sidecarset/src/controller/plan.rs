//! Which pods are upgraded now. Pure: from the SidecarSet and its pods to a list of pods.
//!
//! Invariant: pods that this upgrade has made unavailable, and those that it is about to, are at most `maxUnavailable`
//! together.

use std::cmp::Reverse;

use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sidecarset_api::v1alpha1::SidecarSet;

use super::pods::{is_consistent, is_ready, is_stuck, is_updated, is_upgradable};
use crate::sidecar::hash::Hashes;
use crate::sidecar::selecting;

/// The steps for the pods of a set.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Pods that are upgraded now.
    pub upgrade: Vec<&'a Pod>,
    /// Pods that differ from the latest revision by more than images.
    pub not_upgradable: Vec<&'a Pod>,
}

// ANCHOR: plan
/// Plans one round.
pub fn plan<'a>(set: &SidecarSet, hashes: &Hashes, pods: &[&'a Pod]) -> Plan<'a> {
    let mut plan = Plan::default();
    if !set.is_rolling() || set.spec.update_strategy.paused {
        return plan;
    }
    let mut waiting = Vec::new();
    for pod in pods
        .iter()
        .filter(|pod| !is_updated(set, hashes, pod) && is_selected(set, pod))
    {
        if !is_upgradable(set, hashes, pod) {
            plan.not_upgradable.push(*pod);
        } else if is_consistent(set, pod) || is_stuck(set, pod) {
            waiting.push(*pod);
        }
    }
    waiting.sort_by_cached_key(|pod| rank(pod));
    let behind = pods.iter().filter(|pod| !is_updated(set, hashes, pod)).count();
    waiting.truncate(behind.saturating_sub(partition(set, pods.len())));
    let is_available = |pod: &Pod| is_consistent(set, pod) && is_ready(pod);
    let unavailable = |pod: &&&Pod| is_updated(set, hashes, pod) && !is_available(pod);
    let mut unavailable = pods.iter().filter(unavailable).count();
    let most = max_unavailable(set, pods.len());
    for pod in waiting {
        if is_available(pod) {
            if unavailable >= most {
                continue;
            }
            unavailable = unavailable.saturating_add(1);
        } else if unavailable >= most && !is_stuck(set, pod) {
            // It is unavailable for a reason of its own, which the upgrade neither causes nor cures.
            continue;
        }
        plan.upgrade.push(pod);
    }
    plan
}
// ANCHOR_END: plan

fn is_selected(set: &SidecarSet, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let selector = set.spec.update_strategy.selector.as_ref();
    selector.is_none_or(|selector| selecting::selects(selector, &labels))
}

/// The order of the pods: first those that are not scheduled, do not run, are not ready; then the newest
/// (`ActivePods`).
fn rank(pod: &Pod) -> (bool, u8, bool, Reverse<Option<String>>, Option<String>) {
    let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    (
        scheduled,
        phase,
        is_ready(pod),
        Reverse(created),
        pod.metadata.name.clone(),
    )
}

/// How many pods keep their revision: a percentage is rounded up, but below 100 % at least one pod is upgraded
/// (`CalculatePartitionReplicas`).
fn partition(set: &SidecarSet, pods: usize) -> usize {
    let Some(partition) = &set.spec.update_strategy.partition else {
        return 0;
    };
    let kept = amount(partition, pods);
    let is_whole = match partition {
        IntOrString::Int(_) => true,
        IntOrString::String(_) => percent(partition) >= 100,
    };
    if kept >= pods && !is_whole {
        pods.saturating_sub(1)
    } else {
        kept
    }
}

fn max_unavailable(set: &SidecarSet, pods: usize) -> usize {
    let given = set.spec.update_strategy.max_unavailable.as_ref();
    given.map_or(1, |given| amount(given, pods))
}

/// A number of pods, or a percentage of them, rounded up. The webhook has checked it; what cannot be read all the same
/// counts as 0.
fn amount(value: &IntOrString, pods: usize) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(_) => percent(value).saturating_mul(pods).div_ceil(100),
    }
}

fn percent(value: &IntOrString) -> usize {
    match value {
        IntOrString::String(text) => text
            .strip_suffix('%')
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0),
        IntOrString::Int(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sidecar::{hash, inject};

    fn set(image: &str, strategy: Value) -> SidecarSet {
        let spec = json!({
            "selector": {"matchLabels": {"app": "a"}}, "updateStrategy": strategy,
            "containers": [{"name": "s", "image": image}],
        });
        SidecarSet::new("set", serde_json::from_value(spec).expect("a spec"))
    }

    /// A pod that was injected with an image; `state` is `ready`, `unready` or `stuck`.
    fn pod(name: &str, image: &str, state: &str) -> Pod {
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
        let container = json!({
            "name": "s", "image": if state == "stuck" { "before" } else { image }, "imageID": "id", "ready": state == "ready",
            "restartCount": 0, "state": if state == "stuck" { waiting } else { json!({"running": {}}) },
        });
        let ready = json!([{"type": "Ready", "status": if state == "ready" { "True" } else { "False" }}]);
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": ready, "containerStatuses": [container]},
        }))
        .expect("a pod");
        let now =
            kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(kubewright::jiff::Timestamp::UNIX_EPOCH);
        inject::inject(&mut pod, &[&set(image, json!({}))], &now).expect("records");
        pod
    }

    #[test]
    fn so_many_pods_are_upgraded_at_once() {
        let check = |strategy: Value, pods: &[(&str, &str)], expected: &[&str]| {
            let set = set("v2", strategy.clone());
            let pods: Vec<Pod> = pods
                .iter()
                .enumerate()
                .map(|(index, (image, state))| pod(&format!("p{index}"), image, state))
                .collect();
            let plan = plan(&set, &hash::of(&set.spec), &pods.iter().collect::<Vec<_>>());
            let mut names: Vec<&str> = plan
                .upgrade
                .iter()
                .filter_map(|pod| pod.metadata.name.as_deref())
                .collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{strategy} {pods:?}");
        };
        let (old, new) = (("v1", "ready"), ("v2", "ready"));
        check(json!({}), &[old, old, old], &["p0"]);
        check(json!({}), &[new, old, old], &["p1"]);
        check(json!({}), &[("v2", "stuck"), old, old], &[]);
        check(json!({}), &[("v2", "unready"), old, old], &[]);
        check(json!({"maxUnavailable": "50%"}), &[old, old, old, old], &["p0", "p1"]);
        check(
            json!({"maxUnavailable": "50%"}),
            &[("v2", "stuck"), ("v2", "stuck"), old, old],
            &[],
        );
        check(json!({"maxUnavailable": 0}), &[old, old], &[]);
        check(json!({}), &[("v1", "stuck"), ("v1", "stuck"), old], &["p0", "p1", "p2"]);
        check(json!({"maxUnavailable": 4, "partition": "50%"}), &[old, old], &["p0"]);
        check(json!({"maxUnavailable": 4, "partition": "50%"}), &[new, old], &[]);
        check(
            json!({"maxUnavailable": 4, "partition": "99%"}),
            &[old, old, old],
            &["p0"],
        );
        check(json!({"maxUnavailable": 4, "partition": "100%"}), &[old, old, old], &[]);
        check(json!({"maxUnavailable": 4, "partition": 2}), &[old, old, old], &["p0"]);
        check(json!({"paused": true}), &[old, old], &[]);
        check(json!({"type": "NotUpdate"}), &[old, old], &[]);
        check(
            json!({"selector": {"matchLabels": {"canary": "true"}}}),
            &[old, old],
            &[],
        );
        check(json!({"selector": {"matchLabels": {"app": "a"}}}), &[old, old], &["p0"]);
    }

    #[test]
    fn more_than_an_image_is_not_upgraded_in_place() {
        let mut set = set("v2", json!({}));
        set.spec.containers[0].container.command = Some(vec!["new".to_owned()]);
        let pods = [pod("a", "v1", "ready"), pod("b", "v1", "ready")];
        let plan = plan(&set, &hash::of(&set.spec), &pods.iter().collect::<Vec<_>>());
        assert_eq!((plan.upgrade.len(), plan.not_upgradable.len()), (0, 2));
    }
}
