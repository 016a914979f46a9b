//! The objects that belong to a node: those that its pods refer to, and those that name the node itself (`graph.go` of
//! the node authorizer).
//!
//! ```text
//! node ← pod ← secret, configmap, service account, resource claim, claim ← volume ← secret
//! node ← volume attachment, resource slice, request for a certificate of a pod
//! ```
//!
//! Invariant: an object is counted for a node as often as pods there refer to it, and forgotten with the last of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::model::facts::references;
use crate::storage::{Derived, SharedMap, StoredObject};
use crate::values::get;

/// The kinds that a pod may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
    ServiceAccount,
    Claim,
    ResourceClaim,
}

/// A kind, and `namespace/name`.
type Item = (Kind, Arc<str>);

/// The node of a pod, and the objects that it refers to.
#[derive(Debug, PartialEq, Eq)]
struct Pod {
    node: Arc<str>,
    items: BTreeSet<Item>,
}

impl Pod {
    /// `None`: it is on no node.
    fn of(key: &str, pod: &Value) -> Option<Pod> {
        let node = get(pod, &["spec", "nodeName"])
            .as_str()
            .filter(|node| !node.is_empty())?;
        let node: Arc<str> = node.into();
        // Only the kubelet says which objects a mirror pod needs, and it must not gain rights by that.
        if references::is_mirror(pod) {
            return Some(Pod {
                node,
                items: BTreeSet::new(),
            });
        }
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let item = |kind: Kind, name: &str| (kind, format!("{namespace}/{name}").into());
        let account = get(pod, &["spec", "serviceAccountName"]).as_str();
        let account = account.filter(|name| !name.is_empty());
        let mut items: BTreeSet<Item> = account
            .map(|name| item(Kind::ServiceAccount, name))
            .into_iter()
            .collect();
        items.extend(references::secrets(pod).map(|name| item(Kind::Secret, name)));
        items.extend(references::config_maps(pod).map(|name| item(Kind::ConfigMap, name)));
        items.extend(references::volume_claims(pod).map(|name| item(Kind::Claim, &name)));
        items.extend(references::resource_claims(pod).map(|name| item(Kind::ResourceClaim, name)));
        Some(Pod { node, items })
    }
}

/// A bound persistent volume.
#[derive(Debug)]
struct Volume {
    /// `namespace/name` of its claim.
    claim: String,
    /// The same of the secrets that the kubelet reads for it.
    secrets: Vec<String>,
}

/// The stored objects, as far as they belong to nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pods: SharedMap<Arc<str>, Arc<Pod>>,
    /// How many pods of a node refer to an item.
    users: SharedMap<Item, SharedMap<Arc<str>, usize>>,
    volumes: SharedMap<Arc<str>, Arc<Volume>>,
    /// The volumes that need a secret.
    volumes_of: SharedMap<Arc<str>, SharedMap<Arc<str>, ()>>,
    /// The node of each VolumeAttachment.
    attachments: SharedMap<Arc<str>, Arc<str>>,
    /// The node of each ResourceSlice.
    slices: SharedMap<Arc<str>, Arc<str>>,
    /// The node of each PodCertificateRequest.
    requests: SharedMap<Arc<str>, Arc<str>>,
}

/// The stores that decide which objects belong to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Pods,
    Volumes,
    Attachments,
    Slices,
    Requests,
}

/// How storage calls the stores, in the order of [`Store`].
pub(super) const STORES: [&str; 5] = [
    "pods",
    "persistentvolumes",
    "volumeattachments.storage.k8s.io",
    "resourceslices.resource.k8s.io",
    "podcertificaterequests.certificates.k8s.io",
];

impl Store {
    /// The one of [`STORES`] that has this name.
    fn named(name: &str) -> Option<Store> {
        let all = [
            Store::Pods,
            Store::Volumes,
            Store::Attachments,
            Store::Slices,
            Store::Requests,
        ];
        all.into_iter()
            .zip(STORES)
            .find_map(|(store, known)| (known == name).then_some(store))
    }
}

impl Derived for Graph {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(store) = Store::named(store) {
            self.take_in(store, key, object.map(|object| object.value()));
        }
    }
}

/// Notes the node that an object names in its spec.
fn put_node(nodes: &mut SharedMap<Arc<str>, Arc<str>>, key: &str, value: Option<&Value>) {
    let node = value.and_then(|value| get(value, &["spec", "nodeName"]).as_str());
    match node.filter(|node| !node.is_empty()) {
        Some(node) => nodes.insert(key.into(), node.into()),
        None => nodes.remove(key),
    };
}

impl Graph {
    /// Takes in the object stored at `key` now; `None`: there is none.
    fn take_in(&mut self, store: Store, key: &str, value: Option<&Value>) {
        match store {
            Store::Pods => self.put_pod(key, value.and_then(|pod| Pod::of(key, pod))),
            Store::Volumes => self.put_volume(key, value),
            Store::Attachments => put_node(&mut self.attachments, key, value),
            Store::Slices => put_node(&mut self.slices, key, value),
            Store::Requests => put_node(&mut self.requests, key, value),
        }
    }

    fn put_pod(&mut self, key: &str, pod: Option<Pod>) {
        // Most changes of pods are of their status.
        if self.pods.get(key).map(|pod| &**pod) == pod.as_ref() {
            return;
        }
        if let Some(old) = self.pods.remove(key) {
            for item in &old.items {
                let Some(nodes) = self.users.get_mut(item) else {
                    continue;
                };
                let left = nodes.get(&old.node).map_or(0, |count| count.saturating_sub(1));
                match left {
                    0 => nodes.remove(&old.node),
                    left => nodes.insert(old.node.clone(), left),
                };
                if nodes.is_empty() {
                    self.users.remove(item);
                }
            }
        }
        let Some(pod) = pod else { return };
        for item in &pod.items {
            let nodes = self.users.or_default(item.clone());
            *nodes.or_default(pod.node.clone()) += 1;
        }
        self.pods.insert(key.into(), Arc::new(pod));
    }

    fn put_volume(&mut self, key: &str, volume: Option<&Value>) {
        if let Some(old) = self.volumes.remove(key) {
            for secret in &old.secrets {
                self.volumes_of.remove_within(secret.as_str(), key);
            }
        }
        let claim = |volume: &Value| {
            let reference = get(volume, &["spec", "claimRef"]);
            let text = |field: &str| get(reference, &[field]).as_str().unwrap_or("").to_owned();
            reference
                .is_object()
                .then(|| format!("{}/{}", text("namespace"), text("name")))
        };
        let Some((volume, claim)) = volume.and_then(|volume| Some((volume, claim(volume)?))) else {
            return;
        };
        let secrets = references::volume_secrets(volume);
        for secret in &secrets {
            self.volumes_of
                .or_default(secret.as_str().into())
                .insert(key.into(), ());
        }
        self.volumes.insert(key.into(), Arc::new(Volume { claim, secrets }));
    }

    /// Whether a pod of the node refers to it; a secret may also be that of a volume.
    pub(super) fn has(&self, node: &str, kind: Kind, key: &str) -> bool {
        let used = self.users.get(&(kind, key.into()));
        let direct = used.is_some_and(|nodes| nodes.contains_key(node));
        direct || (kind == Kind::Secret && self.has_by_volume(node, key))
    }

    fn has_by_volume(&self, node: &str, secret: &str) -> bool {
        let mut volumes = self.volumes_of.get(secret).into_iter().flat_map(SharedMap::keys);
        volumes.any(|volume| self.has_volume(node, volume))
    }

    /// Whether a pod of the node uses the claim of the volume.
    pub(super) fn has_volume(&self, node: &str, name: &str) -> bool {
        let volume = self.volumes.get(name);
        volume.is_some_and(|volume| self.has(node, Kind::Claim, &volume.claim))
    }

    /// Whether the pod is on the node.
    pub(super) fn has_pod(&self, node: &str, key: &str) -> bool {
        self.pods.get(key).is_some_and(|pod| &*pod.node == node)
    }

    /// Whether the VolumeAttachment is the node's.
    pub(super) fn has_attachment(&self, node: &str, name: &str) -> bool {
        self.attachments.get(name).is_some_and(|its| &**its == node)
    }

    /// Whether the ResourceSlice is the node's.
    pub(super) fn has_slice(&self, node: &str, name: &str) -> bool {
        self.slices.get(name).is_some_and(|its| &**its == node)
    }

    /// Whether the PodCertificateRequest is the node's.
    pub(super) fn has_request(&self, node: &str, key: &str) -> bool {
        self.requests.get(key).is_some_and(|its| &**its == node)
    }

    /// Whether nothing is left, for tests.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.users.is_empty()
            && self.volumes.is_empty()
            && self.volumes_of.is_empty()
            && self.attachments.is_empty()
            && self.slices.is_empty()
            && self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, secret: &str) -> Value {
        let volumes = json!([{"name": "v", "secret": {"secretName": secret}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]);
        json!({"spec": {"nodeName": node, "serviceAccountName": "runner", "volumes": volumes}})
    }

    #[test]
    fn an_object_is_a_nodes_until_its_last_pod_there_is_gone() {
        let mut graph = Graph::default();
        graph.take_in(Store::Pods, "n/a", Some(&pod("one", "s")));
        graph.take_in(Store::Pods, "n/b", Some(&pod("one", "s")));
        graph.take_in(Store::Pods, "n/c", Some(&pod("two", "other")));
        graph.take_in(Store::Pods, "n/a", None);
        assert!(graph.has("one", Kind::Secret, "n/s") && !graph.has("two", Kind::Secret, "n/s"));
        // A pod of the same name on another node takes its rights along.
        graph.take_in(Store::Pods, "n/b", Some(&pod("two", "s")));
        assert!(!graph.has("one", Kind::Secret, "n/s") && graph.has("two", Kind::Secret, "n/s"));
        assert!(graph.has_pod("two", "n/b") && !graph.has_pod("one", "n/b"));
        graph.take_in(Store::Pods, "n/b", None);
        graph.take_in(Store::Pods, "n/c", None);
        assert!(graph.is_empty(), "{graph:?}");
    }

    #[test]
    fn the_secret_of_a_volume_is_reached_through_its_claim() {
        let mut graph = Graph::default();
        let secret = json!({"namespace": "x", "name": "s"});
        let bound =
            json!({"spec": {"claimRef": {"namespace": "n", "name": "c"}, "csi": {"nodePublishSecretRef": secret}}});
        graph.take_in(Store::Volumes, "v", Some(&bound));
        assert!(!graph.has("one", Kind::Secret, "x/s"));
        graph.take_in(Store::Pods, "n/a", Some(&pod("one", "t")));
        assert!(graph.has_volume("one", "v") && graph.has("one", Kind::Secret, "x/s"));
        graph.take_in(Store::Volumes, "v", Some(&json!({"spec": {}})));
        assert!(!graph.has_volume("one", "v") && !graph.has("one", Kind::Secret, "x/s"));
        graph.take_in(Store::Pods, "n/a", None);
        assert!(graph.is_empty(), "{graph:?}");
    }

    #[test]
    fn a_mirror_pod_gives_nothing_but_itself() {
        let mut graph = Graph::default();
        let mut mirror = pod("one", "s");
        mirror["metadata"] = json!({"annotations": {references::MIRROR: "x"}});
        graph.take_in(Store::Pods, "n/a", Some(&mirror));
        assert!(graph.has_pod("one", "n/a") && !graph.has("one", Kind::Secret, "n/s"));
    }

    #[test]
    fn what_names_no_node_belongs_to_none() {
        let mut graph = Graph::default();
        for (store, key) in [
            (Store::Attachments, "a"),
            (Store::Slices, "s"),
            (Store::Requests, "n/r"),
            (Store::Pods, "n/p"),
        ] {
            graph.take_in(store, key, Some(&json!({"spec": {"nodeName": "one"}})));
            graph.take_in(store, key, Some(&json!({"spec": {"nodeName": ""}})));
            graph.take_in(store, key, Some(&json!({"spec": {"nodeName": 7}})));
        }
        assert!(graph.is_empty(), "{graph:?}");
    }
}
