//! Which pods of a DaemonSet come and go (`podsShouldBeOnNode` and `rollingUpdate` of `pkg/controller/daemon`), and its
//! status.
//!
//! Pure. Invariants: without maxSurge a node has one pod, and no more than maxUnavailable nodes are without an
//! available one on account of an update; with it an old pod goes only when the new one beside it is available, and no
//! more than maxSurge nodes have two.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::apps::v1::{DaemonSet, DaemonSetStatus};
use kubewright_objects::api::core::v1::{Node, Pod};

use super::placement::{self, Place};
use crate::intstr::resolve;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The set, its nodes and its pods at one moment.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) set: &'a DaemonSet,
    /// Every node, with its use for the set.
    pub(crate) places: BTreeMap<&'a str, Place>,
    /// The pods of each node, the oldest first, bound ones before others; nodes that do not exist are among them.
    pub(crate) pods: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// The hash of the present template.
    pub(crate) hash: &'a str,
    pub(crate) now: Timestamp,
}

/// The pods to create and to delete.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Nodes that get a pod.
    pub(crate) create: Vec<&'a str>,
    pub(crate) delete: Vec<&'a Pod>,
}

impl Changes<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

impl<'a> View<'a> {
    pub(crate) fn of(
        set: &'a DaemonSet,
        nodes: &[&'a Node],
        pods: &[&'a Pod],
        hash: &'a str,
        now: Timestamp,
    ) -> View<'a> {
        let names = nodes.iter().map(|node| meta::name(&node.metadata));
        let places = names.zip(placement::places(set, nodes)).collect();
        let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        // Finished and deleted: nothing of it is left but its name.
        let there = pods
            .iter()
            .filter(|pod| !(pods::is_finished(pod) && meta::is_deleting(&pod.metadata)));
        for pod in there {
            if let Some(node) = placement::node_of(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| {
                let meta = &pod.metadata;
                (
                    pods::node(pod).is_empty(),
                    meta::created(meta),
                    meta::name(meta).to_owned(),
                )
            });
        }
        View {
            set,
            places,
            pods: by_node,
            hash,
            now,
        }
    }

    fn pods_of(&self, node: &str) -> &[&'a Pod] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready = self
            .set
            .spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or(0);
        pods::is_available(pod, min_ready, self.now)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        placement::is_updated(self.set, pod, self.hash)
    }

    /// A number of the rolling update, rounded up; `None` without one.
    fn rolling(
        &self,
        total: usize,
        of: impl Fn(&kubewright_objects::api::apps::v1::RollingUpdateDaemonSet) -> Option<&IntOrString>,
    ) -> Option<usize> {
        let strategy = self.set.spec.as_ref()?.update_strategy.as_ref()?;
        let value = of(strategy.rolling_update.as_ref()?)?;
        let total = i32::try_from(total).unwrap_or(i32::MAX);
        usize::try_from(resolve(value, total, true)).ok()
    }

    fn surge(&self, total: usize) -> usize {
        self.rolling(total, |rolling| rolling.max_surge.as_ref()).unwrap_or(0)
    }

    fn wanted(&self) -> usize {
        self.places.values().filter(|place| **place == Place::Wanted).count()
    }

    /// One pod where one belongs, none elsewhere. `may_kill` is asked about each failed pod and says whether its node
    /// has waited long enough.
    pub(crate) fn manage(&self, mut may_kill: impl FnMut(&str) -> bool) -> Changes<'a> {
        let mut changes = Changes::default();
        for (node, place) in &self.places {
            match place {
                Place::Wanted if !self.pods.contains_key(node) => changes.create.push(node),
                Place::Unwanted => changes.delete.extend(
                    self.pods_of(node)
                        .iter()
                        .filter(|pod| !meta::is_deleting(&pod.metadata)),
                ),
                _ => self.tidy(node, *place == Place::Wanted, &mut may_kill, &mut changes),
            }
        }
        // Nothing else removes an unbound pod whose node has gone.
        let homeless = self.pods.iter().filter(|(node, _)| !self.places.contains_key(*node));
        let unbound = homeless.flat_map(|(_, pods)| pods.iter().filter(|pod| pods::node(pod).is_empty()));
        changes
            .delete
            .extend(unbound.filter(|pod| !meta::is_deleting(&pod.metadata)));
        changes
    }

    /// A node that may keep its pod: finished ones go, and those that are too many.
    fn tidy(&self, node: &'a str, wanted: bool, may_kill: &mut impl FnMut(&str) -> bool, changes: &mut Changes<'a>) {
        let mut alive = vec![];
        for pod in self
            .pods_of(node)
            .iter()
            .filter(|pod| !meta::is_deleting(&pod.metadata))
        {
            match pods::phase(pod) {
                "Failed" if may_kill(node) => changes.delete.push(pod),
                "Failed" => {}
                "Succeeded" => changes.delete.push(pod),
                _ => alive.push(*pod),
            }
        }
        if self.surge(1) == 0 {
            changes.delete.extend(alive.into_iter().skip(1));
            return;
        }
        if alive.len() <= 1 {
            if alive.is_empty() && wanted {
                changes.create.push(node);
            }
            return;
        }
        let (new, old): (Vec<&Pod>, Vec<&Pod>) = alive.into_iter().partition(|pod| self.is_of_hash(pod));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            changes.delete.push(old);
        }
        changes
            .delete
            .extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)));
    }

    fn is_of_hash(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(crate::history::POD_LABEL))
            .is_some_and(|hash| hash == self.hash)
    }

    /// The next step of an update, when every node has the pods that it shall have; none for the strategy OnDelete,
    /// where the user's deletes update the pods.
    pub(crate) fn roll(&self) -> Changes<'a> {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return Changes::default();
        }
        let wanted = self.wanted();
        let (surge, mut unavailable) = (
            self.surge(wanted),
            self.rolling(wanted, |rolling| rolling.max_unavailable.as_ref())
                .unwrap_or(0),
        );
        if wanted > 0 && surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let mut nodes: Vec<&'a str> = self.pods.keys().copied().collect();
        nodes.extend(
            self.places
                .iter()
                .filter(|(node, place)| **place == Place::Wanted && !self.pods.contains_key(*node))
                .map(|(node, _)| *node),
        );
        match surge {
            0 => self.replace(&nodes, unavailable),
            _ => self.surge_over(&nodes, surge, wanted),
        }
    }

    /// The pods of a node, new and old; `None` when it has several of either, which `manage` sees to.
    fn pair(&self, node: &str) -> Option<(Option<&'a Pod>, Option<&'a Pod>)> {
        let (mut new, mut old) = (None, None);
        for pod in self
            .pods_of(node)
            .iter()
            .filter(|pod| !meta::is_deleting(&pod.metadata))
        {
            let place = if self.is_updated(pod) { &mut new } else { &mut old };
            if place.replace(*pod).is_some() {
                return None;
            }
        }
        Some((new, old))
    }

    /// Without surge: old pods go, those that do not work first.
    fn replace(&self, nodes: &[&'a str], max_unavailable: usize) -> Changes<'a> {
        let (mut unavailable, mut broken, mut working) = (0_usize, vec![], vec![]);
        for node in nodes {
            let lacks = match self.pair(node) {
                Some((Some(new), None)) => !self.is_available(new),
                Some((None, Some(old))) if self.is_available(old) => {
                    working.push(old);
                    false
                }
                Some((None, Some(old))) => {
                    broken.push(old);
                    true
                }
                _ => true,
            };
            unavailable = unavailable.saturating_add(usize::from(lacks));
        }
        working.truncate(max_unavailable.saturating_sub(unavailable));
        broken.extend(working);
        Changes {
            create: vec![],
            delete: broken,
        }
    }

    /// With surge: new pods come beside old ones, which go when the new ones are available.
    fn surge_over(&self, nodes: &[&'a str], max_surge: usize, wanted: usize) -> Changes<'a> {
        let (mut surging, mut available) = (0_usize, 0_usize);
        let (mut delete, mut leaving, mut now, mut later) = (vec![], vec![], vec![], vec![]);
        for node in nodes {
            let Some((new, old)) = self.pair(node) else {
                surging = surging.saturating_add(1);
                continue;
            };
            let counts = old.or(new).is_some_and(|pod| self.is_available(pod));
            available = available.saturating_add(usize::from(counts));
            let is_wanted = self.places.get(node) == Some(&Place::Wanted);
            match (new, old) {
                (_, None) => {}
                (Some(new), Some(old)) if self.is_available(new) => delete.push(old),
                (Some(_), Some(_)) => surging = surging.saturating_add(1),
                (None, Some(old)) => match (self.is_available(old), is_wanted) {
                    (false, false) => delete.push(old),
                    (false, true) => now.push(*node),
                    (true, false) => leaving.push(old),
                    (true, true) => later.push(*node),
                },
            }
        }
        // Pods on nodes that have become unwanted go only as others become available.
        leaving.truncate(available.saturating_sub(wanted));
        delete.extend(leaving);
        later.truncate(max_surge.saturating_sub(surging));
        now.extend(later);
        Changes { create: now, delete }
    }

    /// The status that these pods make.
    pub(crate) fn status(&self, collisions: i32) -> DaemonSetStatus {
        let before = self.set.status.as_ref();
        let (mut desired, mut current, mut misscheduled, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
        for (node, place) in &self.places {
            let oldest = self.pods_of(node).first();
            let Some(pod) = oldest else {
                desired += i32::from(*place == Place::Wanted);
                continue;
            };
            if *place != Place::Wanted {
                misscheduled += 1;
                continue;
            }
            desired += 1;
            current += 1;
            ready += i32::from(pods::is_ready(pod));
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        let some = |number: i32| (number != 0).then_some(number);
        DaemonSetStatus {
            current_number_scheduled: current,
            desired_number_scheduled: desired,
            number_misscheduled: misscheduled,
            number_ready: ready,
            updated_number_scheduled: some(updated),
            number_available: some(available),
            number_unavailable: some(desired - available),
            observed_generation: self.set.metadata.generation,
            collision_count: some(collisions),
            conditions: before.and_then(|status| status.conditions.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::POD_LABEL;
    use serde_json::{Value, json};

    fn node(text: &str) -> Node {
        let (name, taint) = text.split_once(':').unwrap_or((text, ""));
        let taints: Vec<Value> = if taint.is_empty() {
            vec![]
        } else {
            vec![json!({ "key": "k", "effect": taint })]
        };
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "taints": taints } })).expect("a node")
    }

    /// `node words`: `old`, `ready`, `failed`, `done`, `deleting`, `unbound`.
    fn pod(at: usize, text: &str, set: &DaemonSet) -> Pod {
        let words: Vec<&str> = text.split_whitespace().collect();
        let has = |word: &str| words.contains(&word);
        let mut pod = placement::pod(set, if has("old") { "one" } else { "two" }, words[0]);
        pod.metadata.name = Some(text.replace(' ', "-"));
        let phase = match () {
            () if has("failed") => "Failed",
            () if has("done") => "Succeeded",
            () => "Running",
        };
        let mut more = serde_json::to_value(pod).expect("JSON");
        more["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{at:02}Z"));
        more["metadata"]["deletionTimestamp"] = json!(has("deleting").then_some("2026-01-01T00:00:00Z"));
        more["spec"]["nodeName"] = json!((!has("unbound")).then_some(words[0]));
        more["status"] = json!({ "phase": phase, "conditions": [{
            "type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "status": if has("ready") { "True" } else { "False" },
        }] });
        let pod: Pod = serde_json::from_value(more).expect("a pod");
        assert!(
            pod.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(POD_LABEL))
        );
        pod
    }

    fn set(surge: Value, unavailable: Value) -> DaemonSet {
        serde_json::from_value(json!({ "metadata": { "name": "agent" }, "spec": {
            "selector": {}, "template": { "spec": { "containers": [] } },
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
            },
        } }))
        .expect("a DaemonSet")
    }

    fn with<T>(set: &DaemonSet, nodes: &[&str], pods: &[&str], of: impl Fn(&View<'_>) -> T) -> T {
        let nodes: Vec<Node> = nodes.iter().map(|text| node(text)).collect();
        let pods: Vec<Pod> = pods.iter().enumerate().map(|(at, text)| pod(at, text, set)).collect();
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        let (nodes, pods): (Vec<&Node>, Vec<&Pod>) = (nodes.iter().collect(), pods.iter().collect());
        of(&View::of(set, &nodes, &pods, "two", now))
    }

    fn text(changes: &Changes<'_>) -> String {
        let mut said: Vec<String> = changes.create.iter().map(|node| format!("+{node}")).collect();
        said.extend(
            changes
                .delete
                .iter()
                .map(|pod| format!("-{}", meta::name(&pod.metadata))),
        );
        said.join(" ")
    }

    #[test]
    fn a_pod_where_one_belongs() {
        let check = |surge: i32, nodes: &[&str], pods: &[&str], expected: &str| {
            let said = with(&set(json!(surge), json!(1)), nodes, pods, |view| {
                text(&view.manage(|_| true))
            });
            assert_eq!(said, expected, "surge {surge} {nodes:?} {pods:?}");
        };
        check(0, &["a", "b"], &[], "+a +b");
        check(0, &["a", "b"], &["a"], "+b");
        check(0, &["a:NoSchedule"], &[], "");
        check(0, &["a:NoSchedule"], &["a ready"], "");
        check(0, &["a:NoExecute"], &["a ready"], "-a-ready");
        check(0, &["a"], &["a failed"], "-a-failed");
        check(0, &["a"], &["a done"], "-a-done");
        check(0, &["a"], &["a deleting"], "");
        check(0, &["a"], &["a ready", "a"], "-a");
        // A node that has gone: bound pods are the pod collector's.
        check(0, &[], &["a unbound"], "-a-unbound");
        check(0, &[], &["a ready"], "");
        // With surge two may stand side by side while the old one is ready and the new one is not available.
        check(1, &["a"], &["a old ready", "a"], "");
        check(1, &["a"], &["a old ready", "a ready"], "-a-old-ready");
        check(1, &["a"], &["a old", "a"], "-a-old");
        check(1, &["a"], &["a deleting"], "+a");
        let patient = with(&set(json!(0), json!(1)), &["a"], &["a failed"], |view| {
            text(&view.manage(|_| false))
        });
        assert_eq!(patient, "", "a node that has to wait");
    }

    #[test]
    fn updates() {
        let check = |surge: Value, unavailable: Value, pods: &[&str], expected: &str| {
            let said = with(
                &set(surge.clone(), unavailable.clone()),
                &["a", "b", "c"],
                pods,
                |view| text(&view.roll()),
            );
            assert_eq!(said, expected, "{surge} {unavailable} {pods:?}");
        };
        let old = ["a old ready", "b old ready", "c old ready"];
        check(json!(0), json!(1), &old, "-a-old-ready");
        check(json!(0), json!("50%"), &old, "-a-old-ready -b-old-ready");
        check(json!(0), json!(1), &["a", "b old ready", "c old ready"], "");
        check(
            json!(0),
            json!(1),
            &["a ready", "b old ready", "c old ready"],
            "-b-old-ready",
        );
        check(json!(0), json!(1), &["b old ready", "c old ready"], "");
        check(json!(0), json!(1), &["a old", "b old ready", "c old ready"], "-a-old");
        check(json!(0), json!(0), &old, "-a-old-ready");
        check(json!(1), json!(0), &old, "+a");
        check(
            json!(1),
            json!(0),
            &["a old ready", "a", "b old ready", "c old ready"],
            "",
        );
        check(
            json!(1),
            json!(0),
            &["a old ready", "a ready", "b old ready", "c old ready"],
            "+b -a-old-ready",
        );
        check(json!(1), json!(0), &["a old", "b old ready", "c old ready"], "+a +b");
        let mut patient = set(json!(0), json!(1));
        let strategy = patient.spec.as_mut().and_then(|spec| spec.update_strategy.as_mut());
        strategy.expect("a strategy").type_ = Some("OnDelete".to_owned());
        let said = with(&patient, &["a"], &["a old ready"], |view| text(&view.roll()));
        assert_eq!(said, "", "who deletes the pod updates it");
    }

    #[test]
    fn counters() {
        let status = with(
            &set(json!(0), json!(1)),
            &["a", "b", "c", "d:NoSchedule"],
            &["a ready", "b old", "d ready"],
            |view| serde_json::to_value(view.status(0)).expect("JSON"),
        );
        assert_eq!(
            status,
            json!({ "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 1, "numberReady": 1,
                    "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 2 })
        );
    }
}
