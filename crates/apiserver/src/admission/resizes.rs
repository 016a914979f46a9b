//! Plugins that look at requests for more. PersistentVolumeClaimResize: only a bound claim grows, and only if its
//! StorageClass says that its volumes can. PodResizeValidator: a running pod is resized only up to its node's
//! resources.

use std::fmt::Write as _;

use kubewright_schema::quantity::Quantity;
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::model::object;
use crate::model::status::{Cause, Status};
use crate::quota::{parse, wanted};
use crate::values::get;

/// The plugins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resizes;

fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    get(object, path).as_str().unwrap_or("")
}

/// The class of a claim, by its old annotation or by its field.
fn class(claim: &Value) -> &str {
    let annotation = &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"];
    match get(claim, annotation).as_str() {
        Some(class) => class,
        None => text(claim, &["spec", "storageClassName"]),
    }
}

fn check_claim(session: &Session<'_>, attributes: &Attributes, new: &Value, old: &Value) -> Result<(), Status> {
    let size = |claim: &Value| parse(get(claim, &["spec", "resources", "requests"])).remove("storage");
    let grows = match (size(new), size(old)) {
        (Some(new), Some(old)) => new > old,
        (Some(new), None) => new.sign() > 0,
        (None, _) => false,
    };
    if !grows {
        return Ok(());
    }
    let forbid = |why: &str| Err(Status::forbidden(&attributes.resource, &attributes.name, why));
    if get(old, &["status", "phase"]) != "Bound" {
        return forbid("Only bound persistent volume claims can be expanded");
    }
    let stays = !class(new).is_empty() && class(new) == class(old);
    let class = session.storage().get("storageclasses.storage.k8s.io", class(new));
    let can_grow = class.is_some_and(|class| get(class.value(), &["allowVolumeExpansion"]) == true);
    if stays && can_grow {
        return Ok(());
    }
    forbid(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

fn check_pod(session: &Session<'_>, attributes: &Attributes, new: &Value, old: &Value) -> Result<(), Status> {
    let name = text(new, &["spec", "nodeName"]);
    if name.is_empty() || object::generation(new) == object::generation(old) {
        return Ok(());
    }
    let forbid = |why: &str| Status::forbidden(&attributes.resource, &attributes.name, why);
    let Some(node) = session.storage().get("nodes", name) else {
        return Err(forbid(&format!("node {name:?} not found")));
    };
    let because = |why: &str, reason: &str| {
        let mut status = forbid(why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: reason.to_owned(),
                message: String::new(),
                field: String::new(),
            });
        }
        Err(status)
    };
    let system = get(node.value(), &["metadata", "labels", "kubernetes.io/os"]);
    if let Some(system) = system.as_str().filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return because(&why, "UnsupportedPlatform");
    }
    let (requests, has) = (requests(new), parse(get(node.value(), &["status", "allocatable"])));
    let mut lacks = String::new();
    for (resource, count) in [
        ("cpu", Quantity::milli_value as fn(&Quantity) -> i128),
        ("memory", Quantity::value),
    ] {
        let of = |list: &crate::quota::ResourceList| list.get(resource).map_or(0, count);
        if of(&requests) > of(&has) {
            let separator = if lacks.is_empty() { "" } else { "; " };
            // Writing to a text cannot fail.
            let _ = write!(
                lacks,
                "{separator}{resource}, requested: {}, allocatable: {}",
                of(&requests),
                of(&has)
            );
        }
    }
    if lacks.is_empty() {
        return Ok(());
    }
    because(
        &format!("node didn't have enough allocatable resources: {lacks}"),
        "NodeCapacity",
    )
}

/// The resources that a pod requests from its node.
fn requests(pod: &Value) -> crate::quota::ResourceList {
    let mut sum = wanted(pod, "requests");
    crate::quota::add(&mut sum, &parse(get(pod, &["spec", "overhead"])));
    sum
}

impl Admission for Resizes {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        let checked = match (
            old,
            attributes.operation,
            resource.plural.as_ref(),
            attributes.subresource.as_str(),
        ) {
            (Some(old), Operation::Update, "persistentvolumeclaims", "") if resource.group.is_empty() => {
                check_claim(session, attributes, object, old)
            }
            (Some(old), Operation::Update, "pods", "resize") if resource.group.is_empty() => {
                check_pod(session, attributes, object, old)
            }
            _ => Ok(()),
        };
        Admitted::Now(checked)
    }
}
