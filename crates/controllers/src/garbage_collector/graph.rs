//! The graph of owners and dependents, built from the watches: the memory of the garbage collector.
//!
//! Pure: every change answers with the objects that have to be looked at. The graph only says *which* objects to look
//! at and which dependents there are; whether an owner exists is asked of the API server before anything is deleted
//! (`mod.rs`).
//!
//! Invariants: an object is its uid; `dependents` holds exactly the objects in the graph that refer to that uid, also
//! while the owner itself is unknown (its watch may be behind) or gone.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The finalizer of foreground deletion: the object waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning: the object waits until its dependents do not refer to it any more.
pub(crate) const ORPHAN: &str = "orphan";

/// An object of any kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
}

impl Node {
    /// The node of an object in the graph.
    pub(crate) fn new(api_version: &str, kind: &str, meta: &ObjectMeta) -> Node {
        Node {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: meta.namespace.clone().filter(|namespace| !namespace.is_empty()),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| present == finalizer)
    }

    /// Deleted in the foreground and waiting for its dependents.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    /// Deleted and waiting for its dependents to be orphaned.
    pub(crate) fn waits_for_orphaning(&self) -> bool {
        self.deleting && self.has(ORPHAN)
    }

    /// Whether a reference means this object: kind and name besides the uid, and its namespace unless it has none.
    pub(crate) fn is_meant_by(&self, reference: &OwnerReference, from: Option<&str>) -> bool {
        let group = |api_version: &str| {
            api_version
                .split_once('/')
                .map_or(String::new(), |(group, _)| group.to_owned())
        };
        reference.uid == self.uid
            && reference.kind == self.kind
            && reference.name == self.name
            && group(&reference.api_version) == group(&self.api_version)
            && (self.namespace.is_none() || self.namespace.as_deref() == from)
    }

    fn refers_to(&self, uid: &str) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.uid == uid)
    }
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// By the uid of the owner.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// An object by uid.
    pub(crate) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that refer to this uid.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|dependent| self.nodes.get(dependent))
    }

    /// The dependents that hold back the foreground deletion of this uid. An object does not hold back itself.
    pub(crate) fn blocking(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.dependents(uid).filter(move |dependent| {
            dependent.uid != uid
                && dependent
                    .refers_to(uid)
                    .is_some_and(|owner| owner.block_owner_deletion == Some(true))
        })
    }

    /// How many objects are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// An object is there, newly or in another state. Answers which objects to look at.
    pub(crate) fn put(&mut self, node: Node) -> BTreeSet<String> {
        let mut look = BTreeSet::new();
        let uid = node.uid.clone();
        if uid.is_empty() {
            return look;
        }
        let before = self.nodes.get(&uid).cloned();
        let references_changed = before.as_ref().is_none_or(|before| before.owners != node.owners);
        for owner in before.iter().flat_map(|before| &before.owners) {
            if references_changed {
                self.unlink(&owner.uid, &uid);
            }
            // An owner may wait for exactly this: the reference is gone, or does not block any more.
            let stays = node
                .refers_to(&owner.uid)
                .is_some_and(|stays| stays.block_owner_deletion == owner.block_owner_deletion);
            if !stays && self.nodes.get(&owner.uid).is_some_and(Node::waits_for_dependents) {
                look.insert(owner.uid.clone());
            }
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        if self.has_questionable_owner(&node) && references_changed {
            look.insert(uid.clone());
        }
        let began = |now: bool, was: fn(&Node) -> bool| now && !before.as_ref().is_some_and(was);
        if began(node.waits_for_orphaning(), Node::waits_for_orphaning) {
            look.insert(uid.clone());
        }
        if began(node.waits_for_dependents(), Node::waits_for_dependents) {
            look.insert(uid.clone());
            look.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        self.nodes.insert(uid, node);
        look
    }

    /// An object is gone. Answers which objects to look at: those it owned, and owners that waited for it.
    pub(crate) fn remove(&mut self, uid: &str) -> BTreeSet<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return BTreeSet::new();
        };
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
        }
        let mut look: BTreeSet<String> = self.dependents.get(uid).cloned().unwrap_or_default();
        let owners = node.owners.iter().map(|owner| &owner.uid);
        look.extend(
            owners
                .filter(|owner| self.nodes.get(*owner).is_some_and(Node::waits_for_dependents))
                .cloned(),
        );
        look
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// An owner is unknown, or differs from the reference, or waits for its dependents.
    fn has_questionable_owner(&self, node: &Node) -> bool {
        node.owners.iter().any(|owner| match self.nodes.get(&owner.uid) {
            Some(known) => !known.is_meant_by(owner, node.namespace.as_deref()) || known.waits_for_dependents(),
            None => owner.uid != node.uid,
        })
    }

    /// References to an object that exists, but in another namespace. They count as missing, and deserve a word of
    /// their own.
    pub(crate) fn across_namespaces<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a OwnerReference> {
        node.owners.iter().filter(|owner| {
            let known = self.nodes.get(&owner.uid);
            known.is_some_and(|known| known.namespace.is_some() && known.namespace != node.namespace)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name` or `name<owner<owner!` with `!` for blocking; uid = name; then words `deleting`, `foreground`, `orphan`,
    /// `ns=x`.
    fn node(text: &str) -> Node {
        let mut words = text.split_whitespace();
        let mut names = words.next().expect("a name").split('<');
        let name = names.next().expect("a name").to_owned();
        let owners = names
            .map(|owner| OwnerReference {
                api_version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                name: owner.trim_end_matches('!').to_owned(),
                uid: owner.trim_end_matches('!').to_owned(),
                block_owner_deletion: owner.ends_with('!').then_some(true),
                controller: None,
            })
            .collect();
        let mut node = Node {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("default".to_owned()),
            uid: name.clone(),
            name,
            owners,
            deleting: false,
            finalizers: vec![],
        };
        for word in words {
            match word {
                "deleting" => node.deleting = true,
                "foreground" => (node.deleting, node.finalizers) = (true, vec![FOREGROUND.to_owned()]),
                "orphan" => (node.deleting, node.finalizers) = (true, vec![ORPHAN.to_owned()]),
                other => node.namespace = Some(other.strip_prefix("ns=").expect("ns=").to_owned()),
            }
        }
        node
    }

    /// Steps are `+node` and `-name`; the expectation is the set of objects to look at after the last step.
    fn check(steps: &[&str], expected: &[&str]) {
        let mut graph = Graph::default();
        let mut look = BTreeSet::new();
        for step in steps {
            look = match step.split_at(1) {
                ("+", text) => graph.put(node(text)),
                (_, name) => graph.remove(name),
            };
            consistent(&graph);
        }
        assert_eq!(
            look.iter().map(String::as_str).collect::<Vec<_>>(),
            expected,
            "{steps:?}"
        );
    }

    fn consistent(graph: &Graph) {
        let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in graph.nodes.values() {
            for owner in &node.owners {
                expected.entry(owner.uid.clone()).or_default().insert(node.uid.clone());
            }
        }
        assert_eq!(graph.dependents, expected);
    }

    #[test]
    fn objects_to_look_at() {
        // New objects: only when an owner is unknown, wrong, or going in the foreground.
        check(&["+a"], &[]);
        check(&["+a", "+b<a"], &[]);
        check(&["+b<a"], &["b"]);
        check(&["+b<a", "+a"], &[]);
        check(&["+a ns=other", "+b<a"], &["b"]);
        check(&["+a foreground", "+b<a"], &["b"]);
        // The same state again is no news.
        check(&["+b<a", "+b<a"], &[]);
        // An owner goes: those it owned. A dependent goes: an owner that waited.
        check(&["+a", "+b<a", "+c<a<b", "-a"], &["b", "c"]);
        check(&["+a", "+b<a", "-b"], &[]);
        check(&["+a foreground", "+b<a!", "-b"], &["a"]);
        check(&["-nobody"], &[]);
        // Foreground begins: the owner and all it owns. Orphaning begins: the owner.
        check(&["+a", "+b<a!", "+c<a", "+a foreground"], &["a", "b", "c"]);
        check(&["+a", "+b<a", "+a orphan"], &["a"]);
        check(&["+a orphan"], &["a"]);
        check(&["+a orphan", "+a orphan"], &[]);
        // A reference is taken away or made harmless while the owner waits.
        check(&["+a foreground", "+b<a!", "+b"], &["a"]);
        check(&["+a foreground", "+b<a!", "+b<a"], &["a", "b"]);
        // Circles are nothing special.
        check(&["+a<b!", "+b<a!", "+a<b! foreground"], &["a", "b"]);
    }

    #[test]
    fn dependents_that_block() {
        let mut graph = Graph::default();
        for text in ["a<a!", "b<a!", "c<a", "d<b!"] {
            graph.put(node(text));
        }
        assert_eq!(
            graph.blocking("a").map(|node| node.name.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(
            graph.dependents("a").map(|node| node.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert_eq!(graph.len(), 4);
    }

    #[test]
    fn owners_in_other_namespaces() {
        let mut graph = Graph::default();
        graph.put(node("far ns=other"));
        graph.put(node("near"));
        let dependent = node("d<far<near<unknown");
        assert_eq!(
            graph
                .across_namespaces(&dependent)
                .map(|owner| owner.name.as_str())
                .collect::<Vec<_>>(),
            ["far"]
        );
    }
}
