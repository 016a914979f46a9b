//! Readings of a Pod for the workload controllers, and which of several goes first when there are too many.
//!
//! Pure. Not here: the kubelet's work on a pod (`node`), its placement (`scheduler`).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::core::v1::{PersistentVolumeClaim, Pod, PodCondition, Volume};
use kubewright::k8s_openapi::jiff::Timestamp;

use crate::meta;

/// The annotation with which a user says how dear a pod is when one has to go.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    Some(node).filter(|node| !node.is_empty())
}

/// [`node_of`] as the values of an index.
pub fn node_names(pod: &Pod) -> Vec<String> {
    node_of(pod).map(str::to_owned).into_iter().collect()
}

/// A claim that a volume of a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim<'a> {
    /// The volume.
    pub volume: &'a str,
    /// The claim's name.
    pub name: String,
    /// Whether it is made for the pod, from a template in the volume.
    pub is_ephemeral: bool,
}

/// The claim behind a volume of a pod. That of a generic ephemeral volume is called like pod and volume
/// (`ephemeral.VolumeClaimName`).
pub fn claim_of<'a>(pod: &Pod, volume: &'a Volume) -> Option<PodClaim<'a>> {
    let (name, is_ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => (claim.claim_name.clone(), false),
        (None, Some(_)) => (format!("{}-{}", meta::name(&pod.metadata), volume.name), true),
        (None, None) => return None,
    };
    Some(PodClaim {
        volume: &volume.name,
        name,
        is_ephemeral,
    })
}

/// The claims that a pod names, in the order of its volumes.
pub fn claims(pod: &Pod) -> impl Iterator<Item = PodClaim<'_>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| claim_of(pod, volume))
}

/// Why an ephemeral volume may not use a claim of the right name: it was not made for the pod
/// (`ephemeral.VolumeIsForPod`).
pub fn not_made_for(pod: &Pod, claim: &PersistentVolumeClaim) -> Option<String> {
    let owner = meta::controller_of(&claim.metadata);
    if owner.is_some_and(|owner| owner.kind == "Pod" && owner.uid == meta::uid(&pod.metadata)) {
        return None;
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (claim, pod) = (meta::name(&claim.metadata), meta::name(&pod.metadata));
    Some(format!(
        "PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)"
    ))
}

/// `status.phase`; a pod without one has not been looked at, which is Pending.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// Succeeded or Failed: it will never run again.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither finished nor being deleted: it counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !meta::is_deleting(&pod.metadata)
}

/// Being deleted and not finished yet: it still takes up room.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && meta::is_deleting(&pod.metadata)
}

/// The condition of that type.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Condition Ready is True.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when the pod is ready, if it is and says so.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0)
}

/// Ready for at least `min_ready_seconds` (a pod that does not say since when is available only without such a wish).
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && (min_ready_seconds <= 0 || available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO))
}

/// How long until a ready pod is available, if nothing happens to it.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    ready_since(pod).map(|ready| available_since(ready, min_ready_seconds, now))
}

/// How long until a pod is available that is ready since then.
pub fn available_since(ready: Timestamp, min_ready_seconds: i32, now: Timestamp) -> Duration {
    let wait = Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or(0));
    let ready_for = Duration::try_from(now.duration_since(ready)).unwrap_or(Duration::ZERO);
    wait.saturating_sub(ready_for)
}

/// When the next of these becomes available by time alone (`FindMinNextPodAvailabilityCheck`): with minReadySeconds
/// time has to wake us.
pub fn next_availability<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let waits = pods
        .filter(|pod| is_active(pod))
        .map(|pod| available_in(pod, min_ready_seconds, now));
    next_of(waits, min_ready_seconds)
}

/// The shortest of the times until pods are available; none without such a wish.
pub fn next_of(waits: impl Iterator<Item = Option<Duration>>, min_ready_seconds: i32) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    waits.flatten().filter(|wait| !wait.is_zero()).min()
}

/// The node of the pod, empty for one that has none yet.
pub fn node(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn deletion_cost(pod: &Pod) -> i32 {
    // A value that is not a number costs nothing; refusing it would mean never scaling down.
    meta::annotation(&pod.metadata, DELETION_COST)
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}

/// `Less` when `a` goes before `b`. `crowd` says how many replicas of the same workload run on the node of a pod.
///
/// The order of Kubernetes: without node, pending, unready, cheap, crowded, ready only lately, often restarted, young;
/// each question is asked only among equals in those before it.
pub fn deletion_order(a: &Pod, b: &Pod, crowd: impl Fn(&str) -> usize) -> Ordering {
    let phase_rank = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let assigned = |pod: &Pod| !node(pod).is_empty();
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| crowd(node(b)).cmp(&crowd(node(a))))
        .then_with(|| ready_since(b).cmp(&ready_since(a)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| meta::created(&b.metadata).cmp(&meta::created(&a.metadata)))
}

/// The `count` pods that go first. `related` are the pods of the same workload, these included: they make a node
/// crowded.
pub fn to_delete<'a>(pods: &[&'a Pod], related: &[&Pod], count: usize) -> Vec<&'a Pod> {
    // Counted once: a count inside the comparison would look at every pod for every pair.
    let mut crowds: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *crowds.entry(node(pod)).or_default() += 1;
    }
    let mut pods = pods.to_vec();
    pods.sort_by(|a, b| deletion_order(a, b, |node| crowds.get(node).copied().unwrap_or(0)));
    pods.truncate(count);
    pods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::v1::{ContainerStatus, PodSpec, PodStatus};
    use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    const NOW: i64 = 1_000_000;

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(seconds).expect("a small number"))
    }

    /// `words` describe the pod: `node=a`, `running`, `failed`, `ready=AGE`, `cost=N`, `restarts=N`, `age=N`,
    /// `deleting`.
    fn pod(words: &str) -> Pod {
        let mut pod = Pod {
            metadata: ObjectMeta {
                name: Some(words.to_owned()),
                creation_timestamp: Some(at(NOW - 500)),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec::default()),
            status: Some(PodStatus::default()),
        };
        let status = pod.status.as_mut().expect("set above");
        for word in words.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<i64>().expect("a number");
            match key {
                "node" => pod.spec.as_mut().expect("set above").node_name = Some(value.to_owned()),
                "running" => status.phase = Some("Running".to_owned()),
                "failed" => status.phase = Some("Failed".to_owned()),
                "deleting" => pod.metadata.deletion_timestamp = Some(at(NOW)),
                "cost" => pod.metadata.annotations = Some([(DELETION_COST.to_owned(), value.to_owned())].into()),
                "age" => pod.metadata.creation_timestamp = Some(at(NOW - number())),
                "restarts" => {
                    let restart_count = i32::try_from(number()).expect("small");
                    status.container_statuses = Some(vec![ContainerStatus {
                        restart_count,
                        ..ContainerStatus::default()
                    }]);
                }
                "ready" => {
                    status.phase = Some("Running".to_owned());
                    status.conditions = Some(vec![PodCondition {
                        type_: "Ready".to_owned(),
                        status: "True".to_owned(),
                        last_transition_time: Some(at(NOW - number())),
                        ..PodCondition::default()
                    }]);
                }
                other => panic!("what is {other}?"),
            }
        }
        pod
    }

    #[test]
    fn which_pod_goes_first() {
        // In each row the first pod goes before the second.
        let check = |first: &str, second: &str| {
            let (a, b) = (pod(first), pod(second));
            for pods in [[&a, &b], [&b, &a]] {
                let gone = to_delete(&pods, &pods, 1);
                assert_eq!(
                    gone[0].metadata.name.as_deref(),
                    Some(first),
                    "{first:?} must go before {second:?}"
                );
            }
        };
        check("running", "node=a running");
        check("cost=100", "running");
        check("running cost=100", "ready=10 cost=-5");
        check("ready=10 cost=-5", "ready=5");
        check("ready=10", "ready=5 cost=1");
        check("ready=5", "ready=10");
        check("ready=5 restarts=3", "ready=5");
        check("ready=5 age=10", "ready=5 age=20");
        check("cost=nonsense age=1", "cost=0 age=2");
    }

    #[test]
    fn a_crowded_node_gives_first() {
        let pods = [
            pod("node=a ready=5"),
            pod("node=b ready=5 age=1"),
            pod("node=a ready=5 age=900"),
            pod("node=a failed"),
        ];
        let related: Vec<&Pod> = pods.iter().collect();
        let gone = to_delete(&related[..2], &related, 1);
        assert_eq!(gone[0].metadata.name.as_deref(), Some("node=a ready=5"));
    }

    #[test]
    fn available_after_min_ready_seconds() {
        let now = at(NOW).0;
        let check = |words: &str, min_ready: i32, available: bool, wait: Option<u64>| {
            let pod = pod(words);
            assert_eq!(
                is_available(&pod, min_ready, now),
                available,
                "{words} with {min_ready}"
            );
            assert_eq!(
                available_in(&pod, min_ready, now),
                wait.map(Duration::from_secs),
                "{words} with {min_ready}"
            );
        };
        check("running", 0, false, None);
        check("ready=0", 0, true, Some(0));
        check("ready=2", 3, false, Some(1));
        check("ready=3", 3, true, Some(0));
        check("ready=30", 3, true, Some(0));
    }

    #[test]
    fn counted_as() {
        let check = |words: &str, active: bool, terminating: bool| {
            let pod = pod(words);
            assert_eq!(
                (is_active(&pod), is_terminating(&pod)),
                (active, terminating),
                "{words}"
            );
        };
        check("", true, false);
        check("running", true, false);
        check("failed", false, false);
        check("running deleting", false, true);
        check("failed deleting", false, false);
    }
}
