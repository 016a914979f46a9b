//! The users who may write owner references (the plugin `OwnerReferencesPermissionEnforcement`): the garbage collector
//! deletes what they name, and waits for them, so they are worth rights of their own.
//!
//! Who changes the references of an object needs the right to delete it. Who makes one block the deletion of its owner
//! needs `update` on `finalizers` of the owner. It runs only when it is named, as upstream; OpenShift has it on.

use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session, subject};
use crate::authorization::{self, Decision};
use crate::model::status::Status;
use crate::scheme::split_version;
use crate::values::get;

/// The plugin.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerReferences;

fn references(object: Option<&Value>) -> &[Value] {
    let references = object.and_then(|object| get(object, &["metadata", "ownerReferences"]).as_array());
    references.map_or(&[], Vec::as_slice)
}

fn text<'a>(reference: &'a Value, field: &str) -> &'a str {
    get(reference, &[field]).as_str().unwrap_or("")
}

fn blocks(reference: &Value) -> bool {
    get(reference, &["blockOwnerDeletion"]) == true
}

/// As Go prints the answer of an authorizer.
fn said(decision: &Decision) -> String {
    let error = if decision.error.is_empty() {
        "<nil>"
    } else {
        &decision.error
    };
    format!("{}, {error}", decision.reason)
}

impl OwnerReferences {
    fn check(session: &Session<'_>, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        let resource = &attributes.resource;
        let refuse = |why: String| Err(Status::forbidden(resource, subject(attributes, new), &why));
        let may = |question: &authorization::Attributes| session.decide(&attributes.user, question);
        if attributes.operation != Operation::Create {
            let delete = authorization::Attributes {
                verb: "delete".to_owned(),
                group: resource.group.to_string(),
                version: resource.version.to_string(),
                resource: resource.plural.to_string(),
                subresource: attributes.subresource.clone(),
                namespace: attributes.namespace.clone(),
                name: attributes.name.clone(),
                ..authorization::Attributes::default()
            };
            let decision = may(&delete);
            if !decision.is_allowed() {
                return refuse(format!(
                    "cannot set an ownerRef on a resource you can't delete: {}",
                    said(&decision)
                ));
            }
        }
        // The last of those with its uid counts.
        let was = |uid: &str| references(old).iter().rev().find(|old| text(old, "uid") == uid);
        let is_new = |new: &&Value| blocks(new) && !was(text(new, "uid")).is_some_and(blocks);
        let mut new_ones = references(Some(new)).iter().filter(is_new).peekable();
        let finalize = |[group, version, plural, namespace, name]: [&str; 5]| authorization::Attributes {
            verb: "update".to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: plural.to_owned(),
            subresource: "finalizers".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..authorization::Attributes::default()
        };
        if new_ones.peek().is_none() || may(&finalize(["*", "*", "*", "", "*"])).is_allowed() {
            return Ok(());
        }
        for reference in new_ones {
            let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
            let (group, version) = split_version(api_version);
            let Some(owner) = session.kinds().by_kind(group, version, kind) else {
                return refuse(format!(
                    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
                     {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
                ));
            };
            // An owner that has a namespace is in that of its dependents.
            let namespace = if owner.namespaced {
                attributes.namespace.as_str()
            } else {
                ""
            };
            let name = text(reference, "name");
            let decision = may(&finalize([group, version, &owner.plural, namespace, name]));
            if !decision.is_allowed() {
                return refuse(format!(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
                    said(&decision)
                ));
            }
        }
        Ok(())
    }
}

impl Admission for OwnerReferences {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        // Old kubelets send broken ones with the status of a pod, which changes none.
        let is_pod_status =
            resource.group.is_empty() && resource.plural == "pods" && attributes.subresource == "status";
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !is_write || is_pod_status || references(Some(object)) == references(old) {
            return Admitted::YES;
        }
        Admitted::later(session.settled(move || OwnerReferences::check(session, attributes, object, old)))
    }
}
