//! The used resources of each node: kept as pods come and go, so that placing a pod looks at nodes and never at all
//! pods. Pods with the same labels are counted together, and so are pods with the same terms of affinity (`groups`).
//!
//! Pure. Invariant: a pod counts on one node at most, from its placement until it is finished or gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::Request;
use kubewright_objects::api::core::v1::Pod;

use super::groups::{AffinityGroups, LabelCounts};
use super::pod_info::{Interned, PodInfo};
use kubewright_objects::pods;
use kubewright_objects::requests::{self, Amounts, add};

/// The used resources of one node.
#[derive(Debug, Default)]
pub(super) struct NodeInfo {
    pub(super) pods: BTreeMap<Request, Arc<PodInfo>>,
    pub(super) amounts: Amounts,
    /// The same, as nodes are compared ([`assumed_there`]).
    pub(super) assumed: Amounts,
    /// How many have the same labels.
    pub(super) labels: LabelCounts,
}

/// The pods of all nodes.
#[derive(Debug, Default)]
pub(super) struct Cache {
    nodes: BTreeMap<String, NodeInfo>,
    /// The node of which nothing is used.
    empty: NodeInfo,
    places: BTreeMap<Request, String>,
    /// Those that want others near them, or not.
    pub(super) affinity: AffinityGroups,
    /// How many pods use a claim.
    claims: BTreeMap<Request, usize>,
    kept: Interned,
}

impl Cache {
    /// Enters the pod as it is now.
    pub(super) fn enter(&mut self, pod: &Pod) {
        let request = Request::of(pod);
        match pods::node_of(pod).filter(|_| !pods::is_finished(pod)) {
            Some(node) => self.place(&request, pod, node),
            None => self.remove(&request),
        }
    }

    /// Enters the pod as one of this node.
    pub(super) fn place(&mut self, request: &Request, pod: &Pod, node: &str) {
        let pod_info = PodInfo::of(pod, &mut self.kept);
        // Most changes of a pod that has its place are nothing to others.
        if self.places.get(request).is_none_or(|place| **place != *node) || !self.has(request, node, &pod_info) {
            self.put(request, Arc::new(pod_info), node);
        }
    }

    fn has(&self, request: &Request, node: &str, pod_info: &PodInfo) -> bool {
        let there = self.nodes.get(node).and_then(|taken| taken.pods.get(request));
        there.is_some_and(|there| **there == *pod_info)
    }

    /// Enters the facts about a pod as one of this node.
    pub(super) fn put(&mut self, request: &Request, pod_info: Arc<PodInfo>, node: &str) {
        self.remove(request);
        let taken = self.nodes.entry(node.to_owned()).or_default();
        add(&mut taken.amounts, &pod_info.asks.amounts);
        add(&mut taken.assumed, &pod_info.asks.assumed);
        taken.labels.add(request, &pod_info);
        self.affinity.add(request, &pod_info, node);
        for claim in &pod_info.claims {
            let users = self.claims.entry(Request::new(request.namespace(), claim)).or_default();
            *users = users.saturating_add(1);
        }
        taken.pods.insert(request.clone(), pod_info);
        self.places.insert(request.clone(), node.to_owned());
    }

    pub(super) fn remove(&mut self, request: &Request) {
        let Some(node) = self.places.remove(request) else {
            return;
        };
        let Some(taken) = self.nodes.get_mut(&node) else {
            return;
        };
        let Some(pod) = taken.pods.remove(request) else { return };
        subtract(&mut taken.amounts, &pod.asks.amounts);
        subtract(&mut taken.assumed, &pod.asks.assumed);
        taken.labels.remove(request, &pod);
        self.affinity.remove(request, &pod, &node);
        if taken.pods.is_empty() {
            self.nodes.remove(&node);
        }
        for claim in &pod.claims {
            let claim = Request::new(request.namespace(), claim);
            match self.claims.get_mut(&claim) {
                Some(users) if *users > 1 => *users = users.saturating_sub(1),
                _ => drop(self.claims.remove(&claim)),
            }
        }
    }

    /// Whether a pod that has its place uses a claim (`IsPVCUsedByPods`).
    pub(super) fn uses(&self, namespace: Option<&str>, claim: &str) -> bool {
        !self.claims.is_empty() && self.claims.contains_key(&Request::new(namespace, claim))
    }

    /// Whether the pod has its place.
    pub(super) fn knows(&self, request: &Request) -> bool {
        self.places.contains_key(request)
    }

    /// The used resources of a node.
    pub(super) fn on(&self, node: &str) -> &NodeInfo {
        self.nodes.get(node).unwrap_or(&self.empty)
    }
}

/// What is assumed of a container that says nothing of a resource, when nodes are compared: a tenth of a processor, and
/// 200 MiB (`DefaultMilliCPURequest`, `DefaultMemoryRequest`).
const ASSUMED: [(&str, i128); 2] = [("cpu", 100), ("memory", (200 << 20) * 1000)];

/// The requests of a pod that is to be placed, as nodes are compared: of its containers, whatever it requests as a
/// whole (`NodeResourcesFit` is not told of the feature). Nothing of other resources.
pub(super) fn assumed(pod: &Pod) -> Amounts {
    with_assumed(pod, &ASSUMED, false)
}

/// The same of a pod that has its place: what it requests as a whole, nothing is assumed of
/// (`getNonMissingContainerRequests`).
pub(super) fn assumed_there(pod: &Pod, requested: &Amounts) -> Amounts {
    let has_own = pod
        .spec
        .iter()
        .any(|spec| !requests::of_resources(spec.resources.as_ref()).is_empty());
    let missing = ASSUMED
        .into_iter()
        .filter(|(name, _)| !has_own || !requested.contains_key(*name));
    with_assumed(pod, &missing.collect::<Vec<_>>(), true)
}

fn with_assumed(pod: &Pod, assumed: &[(&str, i128)], as_a_whole: bool) -> Amounts {
    let mut all = requests::in_all(pod, as_a_whole, |amounts| {
        for (name, amount) in assumed {
            amounts.entry((*name).to_owned()).or_insert(*amount);
        }
    });
    all.retain(|name, _| ASSUMED.iter().any(|(known, _)| known == name));
    all
}

fn subtract(sum: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        if let Some(total) = sum.get_mut(name) {
            *total = total.saturating_sub(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ledger_balances() {
        let pod = |name: &str, node: Option<&str>, phase: &str| -> Pod {
            let pod = json!({
                "metadata": { "name": name, "namespace": "a" },
                "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
                "status": { "phase": phase },
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let mut cache = Cache::default();
        let check = |cache: &Cache, node: &str, count: usize| {
            let taken = cache.on(node);
            let cpu = taken.amounts.get("cpu").copied().unwrap_or_default();
            assert_eq!(
                (taken.pods.len(), cpu),
                (count, i128::try_from(count).expect("small") * 1000),
                "{node}"
            );
        };
        cache.enter(&pod("p", Some("x"), "Running"));
        cache.enter(&pod("p", Some("x"), "Running"));
        cache.enter(&pod("q", None, "Pending"));
        check(&cache, "x", 1);
        cache.place(&Request::new(Some("a"), "q"), &pod("q", None, "Pending"), "x");
        check(&cache, "x", 2);
        cache.enter(&pod("p", Some("x"), "Succeeded"));
        check(&cache, "x", 1);
        cache.remove(&Request::new(Some("a"), "q"));
        check(&cache, "x", 0);
    }
}
