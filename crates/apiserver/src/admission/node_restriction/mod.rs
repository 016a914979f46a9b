//! The plugin NodeRestriction: the changes that a node may make to itself, its pods and their claims, beyond the checks
//! that the node authorizer can make.
//!
//! It checks only requests of users that are nodes ([`crate::UserInfo::node`]). Messages are upstream's, except that
//! the fields of a claim that differ are listed, where upstream shows Go's structs.
//!
//! Here: Nodes, Leases, CSINodes, ResourceSlices, claims, certificate requests. In `pods` pods with their status and
//! eviction, in `tokens` tokens for their service accounts, in `certificates` requests for certificates of pods.

mod certificates;
mod pods;
mod tokens;

use std::collections::BTreeSet;

use kubewright_schema::error::quote;
use serde_json::{Map, Value};

use super::{Admission, Admitted, Attributes, Operation, Session, subject};
use crate::authorization::node::LEASES;
use crate::model::facts::signing_request::SigningRequest;
use crate::model::object;
use crate::model::status::{Details, Status};
use crate::storage::StoredObject;
use crate::values::get;

/// Labels of its own Node that a kubelet sets (`KubeletLabels`).
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// The label namespaces in which it may set any label.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The label namespace that is kept from kubelets, so that workloads can be kept from their nodes.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// The fields of a claim's status that a kubelet may write.
const CLAIM_STATUS: [&str; 4] = [
    "capacity",
    "conditions",
    "allocatedResources",
    "allocatedResourceStatuses",
];
/// The signers of kubelets' certificates.
const KUBELET_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// Restricts the writes of nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeRestriction;

/// A request of a node.
struct Request<'a> {
    node: &'a str,
    session: &'a Session<'a>,
    attributes: &'a Attributes,
    /// Null for a delete.
    object: &'a Value,
    /// Null for a create.
    old: &'a Value,
}

impl Admission for NodeRestriction {
    fn mutate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let Some(node) = attributes
            .user
            .node()
            .filter(|_| attributes.operation != Operation::Connect)
        else {
            return Admitted::YES;
        };
        let request = Request {
            node,
            session,
            attributes,
            object,
            old: old.unwrap_or(&Value::Null),
        };
        Admitted::later(session.settled(move || request.check()))
    }
}

/// The error of upstream's lister for an object that does not exist: it knows the singular only.
fn missing(group: &str, kind: &str, name: &str) -> Status {
    let qualified = match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    };
    Status::failure(404, "NotFound", format!("{qualified} \"{name}\" not found")).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    })
}

impl Request<'_> {
    fn refuse(&self, why: impl AsRef<str>) -> Result<(), Status> {
        let name = subject(self.attributes, self.object);
        Err(Status::forbidden(&self.attributes.resource, name, why.as_ref()))
    }

    /// A stored pod of the request's namespace.
    fn pod(&self, name: &str) -> Result<std::sync::Arc<StoredObject>, Status> {
        let key = crate::model::form::key(&self.attributes.namespace, name);
        let stored = self.session.storage().get("pods", &key);
        stored.ok_or_else(|| missing("", "pod", name))
    }

    fn check(&self) -> Result<(), Status> {
        if self.node.is_empty() {
            let why = format!(
                "could not determine node from user {}",
                quote(&self.attributes.user.name)
            );
            return self.refuse(why);
        }
        let resource = &self.attributes.resource;
        match (&*resource.group, &*resource.plural) {
            ("", "pods") => self.check_pod(),
            ("", "nodes") => self.check_node(),
            ("", "persistentvolumeclaims") => self.check_claim(),
            ("", "serviceaccounts") => self.check_token(),
            ("coordination.k8s.io", "leases") => self.check_lease(),
            ("storage.k8s.io", "csinodes") => match self.names_itself() {
                true => Ok(()),
                false => self.refuse("can only access CSINode with the same name as the requesting node"),
            },
            ("resource.k8s.io", "resourceslices") => self.check_slice(),
            ("certificates.k8s.io", "certificatesigningrequests") => self.check_certificate(),
            ("certificates.k8s.io", "podcertificaterequests") => self.check_pod_certificate(),
            _ => Ok(()),
        }
    }

    /// Whether the object has the name of the node. That of a new one is not to be generated.
    fn names_itself(&self) -> bool {
        match self.attributes.operation {
            Operation::Create => object::name(self.object) == self.node,
            _ => self.attributes.name == self.node,
        }
    }

    fn check_lease(&self) -> Result<(), Status> {
        if self.attributes.namespace != LEASES {
            return self.refuse(format!(
                "can only access leases in the {} system namespace",
                quote(LEASES)
            ));
        }
        match self.names_itself() {
            true => Ok(()),
            false => self.refuse("can only access node lease with the same name as the requesting node"),
        }
    }

    /// Every one of a collection that is deleted comes here by itself.
    fn check_slice(&self) -> Result<(), Status> {
        let (slice, verb) = match self.attributes.operation {
            Operation::Create => (self.object, "create"),
            Operation::Delete => (self.old, "delete"),
            _ => return Ok(()),
        };
        match get(slice, &["spec", "nodeName"]).as_str() {
            Some(name) if name == self.node => Ok(()),
            _ => self.refuse(format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }

    fn check_certificate(&self) -> Result<(), Status> {
        let signer = get(self.object, &["spec", "signerName"]).as_str().unwrap_or("");
        if self.attributes.operation != Operation::Create || !KUBELET_SIGNERS.contains(&signer) {
            return Ok(());
        }
        let request = get(self.object, &["spec", "request"]).as_str().unwrap_or("");
        let node = self.node;
        match SigningRequest::read(request) {
            Ok(request) if request.subject.common_name.strip_prefix(crate::user::NODE_PREFIX) == Some(node) => Ok(()),
            Ok(_) => self.refuse(format!("can only create a node CSR with CN=system:node:{node}")),
            Err(why) => self.refuse(format!("unable to parse csr: {why}")),
        }
    }

    fn check_claim(&self) -> Result<(), Status> {
        if self.attributes.subresource != "status" {
            return self.refuse("may only update PVC status");
        }
        if self.attributes.operation != Operation::Update {
            return self.refuse(format!(
                "unexpected operation {}",
                quote(self.attributes.operation.as_str())
            ));
        }
        let changed = changed_of_claim(self.old, self.object);
        if changed.is_empty() {
            return Ok(());
        }
        self.refuse(format!(
            "node {} is not allowed to update fields other than status.quantity and status.conditions: {}",
            quote(self.node),
            changed.join(", ")
        ))
    }

    fn check_node(&self) -> Result<(), Status> {
        let node = quote(self.node);
        if self.attributes.name != self.node {
            let other = quote(&self.attributes.name);
            return self.refuse(format!("node {node} is not allowed to modify node {other}"));
        }
        match self.attributes.operation {
            Operation::Create => self.check_new_node(&node),
            Operation::Update => self.check_changed_node(&node),
            _ => Ok(()),
        }
    }

    fn check_new_node(&self, node: &str) -> Result<(), Status> {
        if !get(self.object, &["spec", "configSource"]).is_null() {
            return self.refuse(format!(
                "node {node} is not allowed to create pods with a non-nil configSource"
            ));
        }
        match forbidden_labels(&Value::Null, self.object).as_slice() {
            [] => Ok(()),
            labels => self.refuse(format!(
                "node {node} is not allowed to set the following labels: {}",
                labels.join(", ")
            )),
        }
    }

    fn check_changed_node(&self, node: &str) -> Result<(), Status> {
        let differs = |path: &[&str]| !same(get(self.object, path), get(self.old, path));
        if !get(self.object, &["spec", "configSource"]).is_null() && differs(&["spec", "configSource"]) {
            return self.refuse(format!(
                "node {node} is not allowed to update configSource to a new non-nil configSource"
            ));
        }
        if differs(&["spec", "taints"]) {
            return self.refuse(format!("node {node} is not allowed to modify taints"));
        }
        if differs(&["metadata", "ownerReferences"]) {
            return self.refuse(format!("node {node} is not allowed to modify ownerReferences"));
        }
        match forbidden_labels(self.old, self.object).as_slice() {
            [] => Ok(()),
            labels => self.refuse(format!("is not allowed to modify labels: {}", labels.join(", "))),
        }
    }
}

/// Whether both are the same to `Semantic.DeepEqual`: nothing is the same as an empty list or map.
fn same(a: &Value, b: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    a == b || (is_empty(a) && is_empty(b))
}

/// The fields that a kubelet changed in a claim and must not, in the order of their names.
fn changed_of_claim(old: &Value, new: &Value) -> Vec<String> {
    let kept = |section: &str, field: &str| match section {
        "metadata" => ["resourceVersion", "managedFields"].contains(&field),
        "status" => CLAIM_STATUS.contains(&field),
        _ => false,
    };
    let empty = Map::new();
    let mut changed = Vec::new();
    for section in ["metadata", "spec", "status"] {
        let map = |object: &'_ Value| {
            get(object, &[section])
                .as_object()
                .cloned()
                .unwrap_or_else(|| empty.clone())
        };
        let (old, new) = (map(old), map(new));
        let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let value = |map: &Map<String, Value>, field: &str| map.get(field).cloned().unwrap_or_default();
        let differs = |field: &&&String| !kept(section, field) && !same(&value(&old, field), &value(&new, field));
        changed.extend(fields.iter().filter(differs).map(|field| format!("{section}.{field}")));
    }
    changed
}

/// The labels that a node added, changed or removed and must not, in order.
fn forbidden_labels<'a>(old: &'a Value, new: &'a Value) -> Vec<&'a str> {
    let keys = |object: &'a Value| object::labels(object).as_object().into_iter().flat_map(Map::keys);
    let all: BTreeSet<&str> = keys(old).chain(keys(new)).map(String::as_str).collect();
    let changed = |key: &&str| object::labels(old).get(key) != object::labels(new).get(key);
    all.into_iter()
        .filter(changed)
        .filter(|key| is_forbidden(key))
        .collect()
}

/// `getForbiddenLabels`
fn is_forbidden(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |domain: &str| {
        let front = namespace.strip_suffix(domain);
        front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
    };
    let is_kubelets = KUBELET_LABELS.contains(&label) || KUBELET_NAMESPACES.into_iter().any(within);
    within(RESTRICTED) || ((within("kubernetes.io") || within("k8s.io")) && !is_kubelets)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_of_kubernetes_are_a_kubelets_when_they_are_named() {
        #[track_caller]
        fn check(label: &str, forbidden: bool) {
            assert_eq!(is_forbidden(label), forbidden, "{label}");
        }
        check("mine", false);
        check("example.com/mine", false);
        check("notkubernetes.io/x", false);
        check("kubernetes.io/hostname", false);
        check("kubernetes.io/other", true);
        check("a.k8s.io/x", true);
        check("kubelet.kubernetes.io/x", false);
        check("a.node.kubernetes.io/x", false);
        check("anode.kubernetes.io/x", true);
        check("a.node-restriction.kubernetes.io/x", true);
    }

    #[test]
    fn a_claims_status_is_a_kubelets_in_part() {
        let old = json!({"metadata": {"name": "c", "resourceVersion": "1"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
        let mut new = json!({"metadata": {"name": "c", "labels": {}}, "spec": {"volumeName": "v"},
            "status": {"phase": "Bound", "capacity": {"storage": "1"}}});
        assert_eq!(changed_of_claim(&old, &new), [] as [&str; 0]);
        new["status"]["phase"] = json!("Lost");
        new["metadata"]["finalizers"] = json!(["x"]);
        assert_eq!(changed_of_claim(&old, &new), ["metadata.finalizers", "status.phase"]);
    }
}
