//! The memory of a pod that has a node: the facts that other pods ask about, and no others.
//!
//! A whole pod takes ten thousand bytes, and a node has hundreds of them. The parts that the pods of one template share
//! are kept once ([`Interned`]).
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::{Affinity, Pod};

use super::cache;
use super::preempt;
use kubewright_objects::requests::{self, Amounts, HostPort};
use kubewright_objects::{meta, pods};

/// Labels of an object.
pub(super) type Labels = BTreeMap<String, String>;

/// Of so many templates, those that were met last, the common parts are looked for.
const TEMPLATES: usize = 32;

/// A pod that has its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodInfo {
    /// Its uid.
    pub(super) uid: String,
    /// It is being deleted.
    pub(super) is_deleting: bool,
    /// It is being deleted because we have told it to go.
    pub(super) makes_room: bool,
    /// When its kubelet began with it.
    pub(super) started: Option<Timestamp>,
    /// The claims that it uses, by their names.
    pub(super) claims: Box<[String]>,
    pub(super) labels: Arc<Labels>,
    pub(super) asks: Arc<Asks>,
}

/// The requests of a pod, and its terms of affinity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asks {
    pub(super) priority: i32,
    pub(super) amounts: Amounts,
    /// The same, as nodes are compared.
    pub(super) assumed: Amounts,
    pub(super) ports: BTreeSet<HostPort>,
    pub(super) affinity: Option<Affinity>,
}

/// A pod as its neighbours see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) labels: &'a Labels,
    pub(super) affinity: Option<&'a Affinity>,
}

impl<'a> Neighbour<'a> {
    /// A pod that has no place yet.
    pub(super) fn of(pod: &'a Pod) -> Neighbour<'a> {
        const NONE: &Labels = &BTreeMap::new();
        Neighbour {
            namespace: pod.metadata.namespace.as_deref(),
            labels: pod.metadata.labels.as_ref().unwrap_or(NONE),
            affinity: pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()),
        }
    }
}

impl PodInfo {
    pub(super) fn priority(&self) -> i32 {
        self.asks.priority
    }

    /// The facts to remember of a pod.
    pub(super) fn of(pod: &Pod, kept: &mut Interned) -> PodInfo {
        let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let amounts = requests::of(pod);
        PodInfo {
            uid: meta::uid(&pod.metadata).to_owned(),
            is_deleting: meta::is_deleting(&pod.metadata),
            makes_room: preempt::is_going(pod),
            started: start.map(|start| start.0),
            claims: pods::claims(pod).map(|claim| claim.name).collect(),
            labels: shared(&mut kept.labels, meta::labels(&pod.metadata).clone()),
            asks: shared(
                &mut kept.asks,
                Asks {
                    priority: preempt::priority(pod),
                    assumed: cache::assumed_there(pod, &amounts),
                    amounts,
                    ports: requests::host_ports(pod),
                    affinity: pod.spec.as_ref().and_then(|spec| spec.affinity.clone()),
                },
            ),
        }
    }
}

/// The shared parts of the pods that were met last.
#[derive(Clone, Debug, Default)]
pub(super) struct Interned {
    labels: Vec<Arc<Labels>>,
    asks: Vec<Arc<Asks>>,
}

/// The same once more, if it was met before; the latest is the last.
fn shared<T: PartialEq>(kept: &mut Vec<Arc<T>>, one: T) -> Arc<T> {
    let found = kept.iter().rposition(|other| **other == one);
    let one = match found {
        Some(at) => kept.remove(at),
        None => Arc::new(one),
    };
    kept.push(one.clone());
    if kept.len() > TEMPLATES {
        kept.remove(0);
    }
    one
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_of_one_template_share_what_they_have_in_common() {
        let mut kept = Interned::default();
        let mut check = |app: &str, cpu: &str, other: &PodInfo, same: (bool, bool)| -> PodInfo {
            let pod = json!({
                "metadata": { "name": "p", "uid": "u", "labels": { "app": app } },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
            });
            let found = PodInfo::of(&serde_json::from_value(pod).expect("a pod"), &mut kept);
            let shares = (
                Arc::ptr_eq(&found.labels, &other.labels),
                Arc::ptr_eq(&found.asks, &other.asks),
            );
            assert_eq!(shares, same, "{app} {cpu}");
            found
        };
        let first = check("web", "1", &PodInfo::default(), (false, false));
        check("web", "1", &first, (true, true));
        check("web", "2", &first, (true, false));
        check("db", "1", &first, (false, true));
        for number in 0..TEMPLATES {
            check(&format!("app-{number}"), "1", &first, (false, true));
        }
        check("web", "1", &first, (false, true));
    }
}
