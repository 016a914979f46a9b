//! Which pods are bound to which node: the answer to a `watches` of Nodes, without a list of all pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::core::v1::Pod;
use kubewright::Request;

/// The pods of each node, as far as their reconciles have told. Cheap to clone.
#[derive(Clone, Default)]
pub struct Bound(Arc<Mutex<Index>>);

#[derive(Default)]
struct Index {
    nodes: BTreeMap<String, BTreeSet<Request>>,
    pods: BTreeMap<Request, String>,
}

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    Some(node).filter(|node| !node.is_empty())
}

impl Bound {
    fn index(&self) -> MutexGuard<'_, Index> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod of this key is bound to this node. Say it before the node is read, so that a change in between is not
    /// missed.
    pub fn insert(&self, request: &Request, node: &str) {
        let mut index = self.index();
        if index.pods.get(request).is_some_and(|present| present == node) {
            return;
        }
        index.remove(request);
        index.pods.insert(request.clone(), node.to_owned());
        index.nodes.entry(node.to_owned()).or_default().insert(request.clone());
    }

    /// The pod of this key is gone, or not bound.
    pub fn remove(&self, request: &Request) {
        self.index().remove(request);
    }

    /// The pods of a node.
    pub fn on(&self, node: &str) -> Vec<Request> {
        self.index().nodes.get(node).into_iter().flatten().cloned().collect()
    }
}

impl Index {
    fn remove(&mut self, request: &Request) {
        let Some(node) = self.pods.remove(request) else {
            return;
        };
        if let Some(pods) = self.nodes.get_mut(&node) {
            pods.remove(request);
            if pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_move_between_nodes() {
        let bound = Bound::default();
        let key = |name: &str| Request::new(Some("a"), name);
        let check = |node: &str, expected: &[&str]| {
            let found: Vec<String> = bound.on(node).iter().map(|key| key.name().to_owned()).collect();
            assert_eq!(found, expected, "{node}");
        };
        bound.insert(&key("p"), "x");
        bound.insert(&key("q"), "x");
        check("x", &["p", "q"]);
        // A pod of the same name came to another node.
        bound.insert(&key("p"), "y");
        check("x", &["q"]);
        check("y", &["p"]);
        bound.remove(&key("p"));
        bound.remove(&key("unknown"));
        check("y", &[]);
    }
}
