//! The node authorizer (`--authorization-mode=Node`): a kubelet may read the objects that the pods on its node need,
//! and write about itself.
//!
//! A node is a user `system:node:<name>` in the group `system:nodes`. Of some resources it may touch single objects
//! only, those that the [`graph`] says belong to it; for all others the rules of the ClusterRole `system:node` hold. It
//! never denies: RBAC may still allow. The plugin NodeRestriction checks the content of the written object.

mod graph;

use std::sync::Arc;

use kubewright_schema::error::quote;
use kubewright_schema::fields::Operator;

use self::graph::{Graph, Kind};
use super::{Attributes, Authorizer, Decision, KnownRules, Rule, bootstrap};
use crate::model::Minor;
use crate::model::user::UserInfo;
use crate::storage::{Followed, Storage};

/// The namespace of the leases by which nodes say that they are alive.
pub(crate) const LEASES: &str = "kube-node-lease";

/// The node authorizer.
pub struct Nodes {
    storage: Arc<dyn Storage>,
    graph: Followed<Graph>,
    rules: Vec<Rule>,
    minor: Minor,
}

/// Why not; `Ok` is a yes.
type Answer = Result<(), String>;

fn no<T>(why: impl Into<String>) -> Result<T, String> {
    Err(why.into())
}

impl Nodes {
    /// With the objects of `storage`.
    pub fn new(storage: Arc<dyn Storage>, minor: Minor) -> Nodes {
        Nodes {
            storage,
            graph: Followed::new(&graph::STORES),
            rules: bootstrap::cluster_role_rules(minor, "system:node"),
            minor,
        }
    }

    fn answer(&self, node: &str, asked: &Attributes) -> Answer {
        if !asked.is_resource() {
            return self.by_rules(asked);
        }
        match (asked.group.as_str(), asked.resource.as_str()) {
            ("", "secrets") => self.read(node, Kind::Secret, asked),
            ("", "configmaps") => self.read(node, Kind::ConfigMap, asked),
            ("", "persistentvolumeclaims") if asked.subresource == "status" => match asked.verb.as_str() {
                "update" | "patch" => self.related(node, asked, |graph, key| graph.has(node, Kind::Claim, key)),
                _ => no("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(node, asked, |graph, key| graph.has(node, Kind::Claim, key)),
            ("", "persistentvolumes") => self.get(node, asked, |graph, key| graph.has_volume(node, key)),
            ("resource.k8s.io", "resourceclaims") => {
                self.get(node, asked, |graph, key| graph.has(node, Kind::ResourceClaim, key))
            }
            ("storage.k8s.io", "volumeattachments") => {
                self.get(node, asked, |graph, key| graph.has_attachment(node, key))
            }
            ("", "serviceaccounts") => self.service_account(node, asked),
            ("coordination.k8s.io", "leases") => lease(node, asked),
            ("storage.k8s.io", "csinodes") if asked.subresource == "status" && self.minor >= Minor::V37 => {
                no("CSINode status access requires CSIVolumeHealth feature")
            }
            ("storage.k8s.io", "csinodes") => csi_node(node, asked),
            ("resource.k8s.io", "resourceslices") => self.slice(node, asked),
            ("", "nodes") => own_node(node, asked),
            ("", "pods") => self.pod(node, asked),
            ("certificates.k8s.io", "podcertificaterequests") => self.pod_request(node, asked),
            _ => self.by_rules(asked),
        }
    }

    /// The rights that all nodes share.
    fn by_rules(&self, asked: &Attributes) -> Answer {
        match self.rules.iter().any(|rule| rule.allows(asked)) {
            true => Ok(()),
            false => no(""),
        }
    }

    /// Whether the object that is asked for belongs to the node.
    fn related(&self, node: &str, asked: &Attributes, has: impl FnOnce(&Graph, &str) -> bool) -> Answer {
        if asked.name.is_empty() {
            return no("No Object name found");
        }
        let key = crate::model::form::key(&asked.namespace, &asked.name);
        match self.graph.look(&*self.storage, |graph| has(graph, &key)) {
            true => Ok(()),
            false => no(format!("no relationship found between node '{node}' and this object")),
        }
    }

    /// `authorizeGet`
    fn get(&self, node: &str, asked: &Attributes, has: impl FnOnce(&Graph, &str) -> bool) -> Answer {
        if asked.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !asked.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, asked, has)
    }

    /// `authorizeReadNamespacedObject`
    fn read(&self, node: &str, kind: Kind, asked: &Attributes) -> Answer {
        if !["get", "list", "watch"].contains(&asked.verb.as_str()) {
            return no("can only read resources of this type");
        }
        if !asked.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if asked.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, asked, |graph, key| graph.has(node, kind, key))
    }

    fn service_account(&self, node: &str, asked: &Attributes) -> Answer {
        if asked.verb == "get" && asked.subresource.is_empty() {
            return self.read(node, Kind::ServiceAccount, asked);
        }
        if asked.verb != "create" || asked.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if asked.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(node, asked, |graph, key| graph.has(node, Kind::ServiceAccount, key))
    }

    fn slice(&self, node: &str, asked: &Attributes) -> Answer {
        if !asked.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match asked.verb.as_str() {
            // Of which node the new one is, is looked at by NodeRestriction.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, asked, |graph, key| graph.has_slice(node, key)),
            "watch" | "list" | "deletecollection" if selects_node(node, asked) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, \
                 deletecollection",
            ),
        }
    }

    /// `authorizePodCertificateRequest`
    fn pod_request(&self, node: &str, asked: &Attributes) -> Answer {
        if self.minor < Minor::V37 {
            return no("");
        }
        if !asked.subresource.is_empty() {
            return no("nodes may not access the status subresource of PodCertificateRequests");
        }
        match asked.verb.as_str() {
            // NodeRestriction checks for which pod it is.
            "create" => Ok(()),
            "get" => self.get(node, asked, |graph, key| graph.has_request(node, key)),
            "list" | "watch" if selects_node(node, asked) => Ok(()),
            "list" | "watch" => no("can only list/watch podcertificaterequests with nodeName field selector"),
            verb => no(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn pod(&self, node: &str, asked: &Attributes) -> Answer {
        let own = |graph: &Graph, key: &str| graph.has_pod(node, key);
        match (asked.subresource.as_str(), asked.verb.as_str()) {
            ("", "get") => self.related(node, asked, own),
            ("", "list" | "watch") if selects_node(node, asked) => Ok(()),
            ("", "list" | "watch") if !asked.name.is_empty() => self.related(node, asked, own),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // NodeRestriction checks to which node these pods belong.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }
}

/// Whether the request selects only objects of this node.
fn selects_node(node: &str, asked: &Attributes) -> bool {
    asked.field_selector.iter().any(|requirement| {
        requirement.field == "spec.nodeName" && requirement.operator == Operator::Equals && requirement.value == node
    })
}

fn lease(node: &str, asked: &Attributes) -> Answer {
    if !["get", "create", "update", "patch", "delete"].contains(&asked.verb.as_str()) {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if asked.namespace != LEASES {
        return no(format!(
            "can only access leases in the {} system namespace",
            quote(LEASES)
        ));
    }
    // The name of a new one is looked at by NodeRestriction.
    if asked.verb != "create" && asked.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, asked: &Attributes) -> Answer {
    if !["get", "create", "update", "patch", "delete"].contains(&asked.verb.as_str()) {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !asked.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if asked.verb != "create" && asked.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// A node may ask for its Node before it is there, so names are compared and nothing is looked up.
fn own_node(node: &str, asked: &Attributes) -> Answer {
    match (asked.subresource.as_str(), asked.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match asked.name.as_str() {
            name if name == node => Ok(()),
            "" => no(format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => no(format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => no(""),
    }
}

impl Authorizer for Nodes {
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> super::Answer {
        let decision = match user.node() {
            None => Decision::no_opinion(""),
            Some("") => Decision::no_opinion(format!("unknown node for user {}", quote(&user.name))),
            Some(node) => match self.answer(node, attributes) {
                Ok(()) => Decision::allow(""),
                Err(why) => Decision::no_opinion(why),
            },
        };
        decision.into()
    }

    fn rules_for(&self, user: &UserInfo, _namespace: &str) -> KnownRules {
        match user.node() {
            None => KnownRules::default(),
            Some(_) => KnownRules {
                incomplete: true,
                error: "node authorizer does not support user rule resolution".to_owned(),
                ..KnownRules::default()
            },
        }
    }
}
