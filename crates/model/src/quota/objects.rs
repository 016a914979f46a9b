//! The quota usage of services and claims.

use kubewright_schema::quantity::{Format, Quantity};
use serde_json::Value;

use crate::facts::amounts::{self, ResourceList};
use crate::values::get;

/// Between a storage class and its counted resource: `gold.storageclass.storage.k8s.io/requests.storage`.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
/// Where the storage class of a claim was named before it had a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Whether services use the resource of this name.
pub(super) fn service_counts(name: &str) -> bool {
    matches!(
        name,
        "services" | "count/services" | "services.nodeports" | "services.loadbalancers"
    )
}

/// The usage of a service. Its ports are counted by the spec, because they may not be allocated yet.
pub(super) fn service(service: &Value) -> ResourceList {
    let ports = get(service, &["spec", "ports"])
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let of_type = get(service, &["spec", "type"]).as_str().unwrap_or("");
    let given = || {
        let given = |port: &&Value| get(port, &["nodePort"]).as_i64().is_some_and(|port| port != 0);
        ports.iter().filter(given).count()
    };
    let node_ports = match of_type {
        "NodePort" => ports.len(),
        "LoadBalancer" if get(service, &["spec", "allocateLoadBalancerNodePorts"]) == false => given(),
        "LoadBalancer" => ports.len(),
        _ => 0,
    };
    [
        ("services", 1),
        ("count/services", 1),
        ("services.nodeports", node_ports),
        ("services.loadbalancers", usize::from(of_type == "LoadBalancer")),
    ]
    .map(|(name, count)| (name.to_owned(), amounts::number(count)))
    .into()
}

/// Whether claims use the resource of this name.
pub(super) fn claim_counts(name: &str) -> bool {
    let of_class = name.rsplit_once(OF_CLASS).map(|(_, what)| what);
    matches!(of_class.unwrap_or(name), CLAIMS | STORAGE) || name == "count/persistentvolumeclaims"
}

/// The usage of a claim: itself and its storage, once for all and once for its storage class.
pub(super) fn claim(claim: &Value) -> ResourceList {
    let one = amounts::number(1);
    let mut used = ResourceList::from([
        (CLAIMS.to_owned(), one.clone()),
        ("count/persistentvolumeclaims".to_owned(), one.clone()),
    ]);
    let annotated = get(claim, &["metadata", "annotations", CLASS_ANNOTATION]).as_str();
    let class = annotated.or_else(|| get(claim, &["spec", "storageClassName"]).as_str());
    let class = class.filter(|class| !class.is_empty());
    if let Some(class) = class {
        used.insert(format!("{class}{OF_CLASS}{CLAIMS}"), one);
    }
    if let Some(storage) = storage(claim) {
        if let Some(class) = class {
            used.insert(format!("{class}{OF_CLASS}{STORAGE}"), storage.clone());
        }
        used.insert(STORAGE.to_owned(), storage);
    }
    used
}

/// The larger of a claim's request and its allocation, in whole bytes.
fn storage(claim: &Value) -> Option<Quantity> {
    let asked = amounts::quantity(get(claim, &["spec", "resources", "requests", "storage"]))?;
    let given = amounts::quantity(get(claim, &["status", "allocatedResources", "storage"]));
    Some(whole(given.filter(|given| *given > asked).unwrap_or(asked)))
}

/// Rounded up; a fraction of a byte cannot be written in binary units, and never was.
fn whole(amount: Quantity) -> Quantity {
    if amount.milli_value() % 1000 == 0 {
        return amount;
    }
    Quantity::new(amount.value(), 0, Format::DecimalSi)
}
