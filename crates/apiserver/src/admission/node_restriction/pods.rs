//! Pods of a node: it creates and deletes mirror pods of its own static pods, and writes the status of the pods that
//! run on it.

use kubewright_schema::error::quote;
use serde_json::Value;

use super::super::Operation;
use super::{Request, missing, same};
use crate::model::facts::references;
use crate::model::object;
use crate::model::status::Status;
use crate::values::{get, items};

/// The kinds of volumes that refer to objects (`HasAPIObjectReference`), with the text for each. The first that a
/// volume has counts.
const REFERRING: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// The same for the sources of a projected volume.
const PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

impl Request<'_> {
    pub(super) fn check_pod(&self) -> Result<(), Status> {
        let node = quote(self.node);
        match (self.attributes.subresource.as_str(), self.attributes.operation) {
            ("", Operation::Create) => self.check_mirror(&node),
            ("", Operation::Delete) if self.runs_here(self.old) => Ok(()),
            ("", Operation::Delete) => self.refuse(format!(
                "node {node} can only delete pods with spec.nodeName set to itself"
            )),
            ("", other) => self.refuse(format!(
                "unexpected operation {}, node {node} can only create and delete mirror pods",
                quote(other.as_str())
            )),
            ("status", Operation::Update) => self.check_status(&node),
            ("status", other) => self.refuse(format!("unexpected operation {}", quote(other.as_str()))),
            ("eviction", Operation::Create) => self.check_eviction(),
            ("eviction", other) => self.refuse(format!("unexpected operation {}", other.as_str())),
            (other, _) => self.refuse(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                quote(other)
            )),
        }
    }

    fn runs_here(&self, pod: &Value) -> bool {
        get(pod, &["spec", "nodeName"]) == self.node
    }

    fn check_eviction(&self) -> Result<(), Status> {
        let name = match self.attributes.name.as_str() {
            "" => object::name(self.object),
            name => name,
        };
        if name.is_empty() {
            return self.refuse("could not determine pod from request data");
        }
        match self.runs_here(self.pod(name)?.value()) {
            true => Ok(()),
            false => self.refuse(format!(
                "node {} can only evict pods with spec.nodeName set to itself",
                self.node
            )),
        }
    }

    fn check_status(&self, node: &str) -> Result<(), Status> {
        if !self.runs_here(self.old) {
            return self.refuse(format!(
                "node {node} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        let kept = |path: &[&str]| same(get(self.old, path), get(self.object, path));
        if !kept(&["metadata", "labels"]) {
            return self.refuse(format!("node {node} cannot update labels through pod status"));
        }
        if !kept(&["status", "resourceClaimStatuses"]) {
            return self.refuse(format!("node {node} cannot update resource claim statues"));
        }
        if !kept(&["status", "extendedResourceClaimStatus"]) {
            return self.refuse(format!("node {node} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn check_mirror(&self, node: &str) -> Result<(), Status> {
        let pod = self.object;
        if !references::is_mirror(pod) {
            return self.refuse(format!(
                "pod does not have {} annotation, node {node} can only create mirror pods",
                quote(references::MIRROR)
            ));
        }
        if !self.runs_here(pod) {
            return self.refuse(format!(
                "node {node} can only create pods with spec.nodeName set to itself"
            ));
        }
        self.check_owner(node)?;
        match referred(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => self.refuse(format!("node {node} can not create pods that reference {what}")),
            Err(why) => self.refuse(format!("error checking mirror pod for API references: {why}")),
        }
    }

    /// A mirror pod is owned by its node, and by nothing else.
    fn check_owner(&self, node: &str) -> Result<(), Status> {
        let owner = match items(self.object, &["metadata", "ownerReferences"]) {
            [owner] => owner,
            [] => {
                return self.refuse(format!(
                    "node {node} can only create pods with an owner reference set to itself"
                ));
            }
            _ => {
                return self.refuse(format!(
                    "node {node} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != self.node {
            return self.refuse(format!(
                "node {node} can only create pods with an owner reference set to itself"
            ));
        }
        if owner["controller"] != true {
            return self.refuse(format!(
                "node {node} can only create pods with a controller owner reference set to itself"
            ));
        }
        if owner["blockOwnerDeletion"] == true {
            return self.refuse(format!(
                "node {node} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let stored = self.session.storage().get("nodes", self.node);
        let stored = stored.ok_or_else(|| missing("", "node", self.node))?;
        let (said, uid) = (owner["uid"].as_str().unwrap_or(""), object::uid(stored.value()));
        match said == uid {
            true => Ok(()),
            false => self.refuse(format!("node {} UID mismatch: expected {said} got {uid}", self.node)),
        }
    }
}

/// The first kind of object that a pod refers to, in upstream's words and order; `None`: it refers to none.
fn referred(pod: &Value) -> Result<Option<&'static str>, String> {
    let has_account = get(pod, &["spec", "serviceAccountName"])
        .as_str()
        .is_some_and(|name| !name.is_empty());
    if has_account {
        return Ok(Some("serviceaccounts"));
    }
    if references::secrets(pod).next().is_some() {
        return Ok(Some("secrets"));
    }
    if references::config_maps(pod).next().is_some() {
        return Ok(Some("configmaps"));
    }
    if !items(pod, &["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    let find = |value: &Value, table: &[(&str, &'static str)]| {
        let found = table.iter().find(|(source, _)| !get(value, &[source]).is_null());
        found.map(|(_, what)| *what)
    };
    for volume in items(pod, &["spec", "volumes"]) {
        if let Some(what) = find(volume, &REFERRING) {
            return Ok(Some(what));
        }
        for source in items(volume, &["projected", "sources"]) {
            if let Some(what) = find(source, &PROJECTED) {
                return Ok(Some(what));
            }
            if get(source, &["downwardAPI"]).is_null() {
                let name = get(volume, &["name"]).as_str().unwrap_or("");
                return Err(format!("unknown source for projected volume {}", quote(name)));
            }
        }
    }
    Ok(None)
}
