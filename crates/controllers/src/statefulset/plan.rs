//! The next steps for the pods of a StatefulSet (`updateStatefulSet` of `pkg/controller/statefulset`).
//!
//! Pure: [`plan`] looks at the pods and answers with [`Step`]s in the order in which they are to be taken.
//!
//! Invariants with OrderedReady: one pod is made or deleted at a time; a pod is made only after every lower ordinal is
//! available, and deleted only after every lower one is, unless it is itself the first that is not. Scaling comes
//! before updates. OnDelete updates nothing. However many replicas are wanted, a plan is as long as the pods that are
//! there, and [`BURST`].

use std::collections::BTreeMap;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::Pod;

use crate::history::POD_LABEL;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The wanted state by the spec and the revisions.
#[derive(Debug, Clone)]
pub(crate) struct Shape<'a> {
    /// The name of the StatefulSet.
    pub(crate) name: &'a str,
    /// The first ordinal.
    pub(crate) start: usize,
    pub(crate) replicas: usize,
    /// podManagementPolicy OrderedReady, as opposed to Parallel.
    pub(crate) ordered: bool,
    pub(crate) min_ready_seconds: i32,
    /// updateStrategy OnDelete, as opposed to RollingUpdate.
    pub(crate) on_delete: bool,
    /// Positions below it keep the current revision.
    pub(crate) partition: usize,
    /// `rollingUpdate.maxUnavailable`, resolved; `None` when it was not given.
    pub(crate) max_unavailable: Option<usize>,
    /// The name of the revision that is rolled out.
    pub(crate) update_revision: &'a str,
}

/// The most pods that one plan makes, as many as a ReplicaSet makes at once; their events bring the next plan. A number
/// of replicas is four bytes of a request, and would be as many steps at once otherwise.
pub(crate) const BURST: usize = 500;

/// The pods that shall be there and are, by their position.
type Replicas<'a> = BTreeMap<usize, &'a Pod>;

/// One thing to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// Make the pod of this ordinal, of the update revision or of the current one.
    Create {
        /// Its ordinal.
        ordinal: usize,
        /// Of the update revision.
        updated: bool,
    },
    /// Delete the pod.
    Delete(&'a Pod),
    /// Make the claims that this pending pod lacks.
    Claim(&'a Pod),
    /// See that its labels, volumes and the owners of its claims are right.
    Keep(&'a Pod),
    /// See that the owners of the claims of a pod that will go are right.
    Condemn(&'a Pod),
}

/// The ordinal of a pod of the set; `None` when it is not named as one of its pods.
pub(crate) fn ordinal(set: &str, pod: &str) -> Option<usize> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let number: usize = digits.parse().ok()?;
    // Neither `01` nor `+1` is a name that the controller makes.
    (number.to_string() == digits).then_some(number)
}

/// The revision that a pod is of.
pub(crate) fn revision(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(POD_LABEL))
        .map_or("", String::as_str)
}

/// Running and Ready, without regard to minReadySeconds.
pub(crate) fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

impl Shape<'_> {
    /// Whether the set wants a pod of this ordinal.
    pub(crate) fn has(&self, ordinal: usize) -> bool {
        ordinal.checked_sub(self.start).is_some_and(|at| at < self.replicas)
    }

    fn is_unavailable(&self, pod: &Pod, now: Timestamp) -> bool {
        !pods::is_available(pod, self.min_ready_seconds, now) || meta::is_deleting(&pod.metadata)
    }

    /// How many of the pods that shall be there are missing or not available.
    fn unavailable(&self, replicas: &Replicas<'_>, now: Timestamp) -> usize {
        let missing = self.replicas.saturating_sub(replicas.len());
        let there = replicas.values().filter(|pod| self.is_unavailable(pod, now));
        missing.saturating_add(there.count())
    }

    fn works(&self, pod: &Pod, now: Timestamp) -> bool {
        is_running_and_ready(pod) && pods::is_available(pod, self.min_ready_seconds, now)
    }
}

/// The next steps. `pods` are all pods of the set, in any order.
pub(crate) fn plan<'a>(shape: &Shape<'_>, pods: &[&'a Pod], now: Timestamp) -> Vec<Step<'a>> {
    let mut replicas = Replicas::new();
    let mut condemned: Vec<(usize, &'a Pod)> = vec![];
    for &pod in pods {
        let Some(ordinal) = ordinal(shape.name, meta::name(&pod.metadata)) else {
            continue;
        };
        match ordinal.checked_sub(shape.start).filter(|at| *at < shape.replicas) {
            Some(at) => {
                replicas.insert(at, pod);
            }
            None => condemned.push((ordinal, pod)),
        }
    }
    condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    let condemned: Vec<&'a Pod> = condemned.into_iter().map(|(_, pod)| pod).collect();
    let mut steps = vec![];
    if living(shape, &replicas, now, &mut steps).is_some()
        && leaving(shape, &replicas, &condemned, now, &mut steps).is_some()
    {
        updating(shape, &replicas, now, &mut steps);
    }
    steps
}

/// The pods that shall be there. `None` when something has to be awaited before anything else happens.
fn living<'a>(shape: &Shape<'_>, replicas: &Replicas<'a>, now: Timestamp, steps: &mut Vec<Step<'a>>) -> Option<()> {
    // In order one waits; in parallel everything goes on.
    let wait = || (!shape.ordered).then_some(());
    // Positions beyond are empty, and more than this plan makes.
    let seen = shape.replicas.min(replicas.len().saturating_add(BURST));
    let beyond = replicas.range(seen..).map(|(at, _)| *at);
    let mut made = 0;
    for at in (0..seen).chain(beyond) {
        let Some(&pod) = replicas.get(&at) else {
            if made < BURST {
                let ordinal = shape.start.saturating_add(at);
                let updated = shape.on_delete || at >= shape.partition;
                steps.push(Step::Create { ordinal, updated });
                made += 1;
            }
            wait()?;
            continue;
        };
        if pods::is_finished(pod) {
            if !meta::is_deleting(&pod.metadata) {
                steps.push(Step::Delete(pod));
            }
            wait()?;
            continue;
        }
        if pods::phase(pod) == "Pending" {
            steps.push(Step::Claim(pod));
        }
        if meta::is_deleting(&pod.metadata) || !shape.works(pod, now) {
            wait()?;
        }
        steps.push(Step::Keep(pod));
    }
    Some(())
}

/// The pods that are too many, the highest ordinal first.
fn leaving<'a>(
    shape: &Shape<'_>,
    replicas: &Replicas<'a>,
    condemned: &[&'a Pod],
    now: Timestamp,
    steps: &mut Vec<Step<'a>>,
) -> Option<()> {
    steps.extend(condemned.iter().map(|pod| Step::Condemn(pod)));
    let all_there = shape.unavailable(replicas, now) == 0;
    // The lowest one that does not work may go although nothing below it waits for it.
    let first_broken = condemned
        .iter()
        .rposition(|pod| shape.is_unavailable(pod, now))
        .filter(|_| all_there);
    for (at, pod) in condemned.iter().enumerate() {
        if meta::is_deleting(&pod.metadata) {
            if shape.ordered {
                return None;
            }
            continue;
        }
        if shape.ordered && !shape.works(pod, now) && first_broken != Some(at) {
            return None;
        }
        steps.push(Step::Delete(pod));
        if shape.ordered {
            return None;
        }
    }
    Some(())
}

/// Pods of another revision, from the highest ordinal down to the partition.
fn updating<'a>(shape: &Shape<'_>, replicas: &Replicas<'a>, now: Timestamp, steps: &mut Vec<Step<'a>>) {
    // A partition above the replicas is no range.
    if shape.on_delete || shape.partition >= shape.replicas {
        return;
    }
    let is_old = |pod: &Pod| revision(pod) != shape.update_revision && !meta::is_deleting(&pod.metadata);
    let targets = replicas.range(shape.partition..).rev();
    let Some(max_unavailable) = shape.max_unavailable else {
        let mut awaited = shape.replicas;
        for (&at, &pod) in targets {
            // One above is missing.
            if at.saturating_add(1) != awaited {
                return;
            }
            awaited = at;
            if is_old(pod) {
                steps.push(Step::Delete(pod));
                return;
            }
            if shape.is_unavailable(pod, now) {
                return;
            }
        }
        return;
    };
    let room = max_unavailable.saturating_sub(shape.unavailable(replicas, now));
    let old = targets.map(|(_, &pod)| pod).filter(|pod| is_old(pod));
    // In parallel those that do not work anyway go first, and beside the others.
    let (broken, working): (Vec<&Pod>, Vec<&Pod>) =
        old.partition(|pod| !shape.ordered && shape.is_unavailable(pod, now));
    steps.extend(
        broken
            .into_iter()
            .chain(working.into_iter().take(room))
            .map(Step::Delete),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-01T00:01:00Z";

    /// `db-0 words`: `ready` (for a minute), `fresh` (for a second), `running`, `failed`, `deleting`, `old` (of another
    /// revision).
    fn pod(text: &str) -> Pod {
        let mut words = text.split_whitespace();
        let name = words.next().expect("a name");
        let words: Vec<&str> = words.collect();
        let has = |word: &str| words.contains(&word);
        let ready = has("ready") || has("fresh");
        let phase = match () {
            () if has("failed") => "Failed",
            () if ready || has("running") => "Running",
            () => "Pending",
        };
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "deletionTimestamp": has("deleting").then_some(NOW),
                "labels": { POD_LABEL: if has("old") { "one" } else { "two" } },
            },
            "status": { "phase": phase, "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": if has("fresh") { "2026-01-01T00:00:59Z" } else { "2026-01-01T00:00:00Z" },
            }] },
        }))
        .expect("a pod")
    }

    fn shape(text: &str) -> Shape<'static> {
        let mut shape = Shape {
            name: "db",
            start: 0,
            replicas: 3,
            ordered: true,
            min_ready_seconds: 0,
            on_delete: false,
            partition: 0,
            max_unavailable: None,
            update_revision: "two",
        };
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "0"));
            let number: usize = value.parse().expect("a number");
            match key {
                "start" => shape.start = number,
                "replicas" => shape.replicas = number,
                "parallel" => shape.ordered = false,
                "minReady" => shape.min_ready_seconds = 10,
                "onDelete" => shape.on_delete = true,
                "partition" => shape.partition = number,
                "maxUnavailable" => shape.max_unavailable = Some(number),
                other => panic!("what is {other}?"),
            }
        }
        shape
    }

    /// Only the creates and deletes: `+0` (update revision), `+0old`, `-db-0`.
    fn text(steps: &[Step<'_>]) -> String {
        let said = steps.iter().filter_map(|step| match step {
            Step::Create { ordinal, updated } => Some(format!("+{ordinal}{}", if *updated { "" } else { "old" })),
            Step::Delete(pod) => Some(format!("-{}", meta::name(&pod.metadata))),
            _ => None,
        });
        said.collect::<Vec<_>>().join(" ")
    }

    /// What is wanted and not there costs nothing.
    #[test]
    fn any_number_of_replicas() {
        let check = |of: &str, pods: &[&str], expected: usize| {
            let pods: Vec<Pod> = pods.iter().map(|text| pod(text)).collect();
            let pods: Vec<&Pod> = pods.iter().collect();
            let steps = plan(&shape(of), &pods, NOW.parse().expect("a time"));
            let made = steps.iter().filter(|step| matches!(step, Step::Create { .. }));
            assert_eq!(made.count(), expected, "{of}");
        };
        check("parallel replicas=2147483647", &[], BURST);
        check("parallel replicas=2147483647 start=2147483647", &[], BURST);
        check(
            "parallel replicas=2147483647 maxUnavailable=2147483647",
            &["db-7 ready"],
            BURST,
        );
        check(
            "parallel replicas=2147483647 partition=2147483646",
            &["db-2147483646 ready"],
            BURST,
        );
        check("parallel replicas=501", &["db-0 ready", "db-500 ready"], 499);
        check("replicas=2147483647", &["db-0 ready"], 1);
    }

    #[test]
    fn next_steps() {
        let check = |of: &str, pods: &[&str], expected: &str| {
            let pods: Vec<Pod> = pods.iter().map(|text| pod(text)).collect();
            let steps = plan(
                &shape(of),
                &pods.iter().collect::<Vec<_>>(),
                NOW.parse().expect("a time"),
            );
            assert_eq!(text(&steps), expected, "{of} {pods:?}");
        };
        // One after the other, each when the one before works.
        check("", &[], "+0");
        check("", &["db-0"], "");
        check("", &["db-0 running"], "");
        check("", &["db-0 ready"], "+1");
        check("minReady", &["db-0 fresh"], "");
        check("minReady", &["db-0 ready"], "+1");
        check("", &["db-0 ready", "db-1 ready", "db-2 ready"], "");
        check("", &["db-0 ready", "db-2 ready"], "+1");
        check("start=5 replicas=2", &["db-5 ready"], "+6");
        check("start=4 replicas=2", &["db-5 ready", "db-6 ready"], "+4");
        check(
            "start=4 replicas=2",
            &["db-5 ready", "db-6 ready", "db-4 ready"],
            "-db-6",
        );
        // A finished pod goes, and comes again when it has gone.
        check("", &["db-0 failed", "db-1 ready"], "-db-0");
        check("", &["db-0 failed deleting", "db-1 ready"], "");
        // Down from the top, one at a time; an unready pod below blocks.
        check("replicas=1", &["db-0 ready", "db-1 ready", "db-2 ready"], "-db-2");
        check("replicas=1", &["db-0 ready", "db-1 ready", "db-2 ready deleting"], "");
        check("replicas=1", &["db-0 ready", "db-1", "db-2 ready"], "-db-2");
        check("replicas=1", &["db-0 ready", "db-1", "db-2"], "");
        check("replicas=1", &["db-0 ready", "db-1"], "-db-1");
        check("replicas=2", &["db-0 ready", "db-1", "db-2 ready"], "");
        check("replicas=5", &["db-0 ready", "db-1", "db-2 ready"], "");
        // In parallel nothing is awaited.
        check("parallel", &[], "+0 +1 +2");
        check("parallel replicas=1", &["db-0", "db-1", "db-2 ready"], "-db-2 -db-1");
        // Updates: from the top, each awaited; the partition stays.
        let old = ["db-0 ready old", "db-1 ready old", "db-2 ready old"];
        check("", &old, "-db-2");
        check("", &["db-0 ready old", "db-1 ready old", "db-2 running"], "");
        check("", &["db-0 ready old", "db-1 ready old", "db-2 ready"], "-db-1");
        check("partition=2", &["db-0 ready old", "db-1 ready old", "db-2 ready"], "");
        check("partition=2", &["db-1 ready old", "db-2 ready"], "+0old");
        check("partition=5", &old, "");
        check("onDelete", &old, "");
        check("onDelete", &["db-1 ready old", "db-2 ready old"], "+0");
        check("maxUnavailable=2", &old, "-db-2 -db-1");
        check(
            "parallel maxUnavailable=2",
            &["db-0 ready old", "db-1 ready old", "db-2 running"],
            "-db-1",
        );
        // In parallel a bad revision does not keep from the next one.
        check(
            "parallel maxUnavailable=1",
            &["db-0 ready old", "db-1 running old", "db-2 ready old"],
            "-db-1",
        );
        check(
            "parallel maxUnavailable=3",
            &["db-0 ready old", "db-1 running old", "db-2 ready old"],
            "-db-1 -db-2 -db-0",
        );
        // A bad revision waits; in order it is not replaced while it does not work.
        check("", &["db-0 ready old", "db-1 ready old", "db-2 running old"], "");
        // Names that are not its own.
        check("replicas=0", &["db-01 ready", "other-0 ready", "db ready"], "");
    }
}
