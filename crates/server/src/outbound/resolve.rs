//! Where a Service is: at the addresses of its EndpointSlices, or of its Endpoints; of the type ExternalName, at that
//! name.
//!
//! There is no network of Services here, so that a cluster IP cannot be reached; its endpoints may be.

use std::net::{IpAddr, SocketAddr};

use kubewright_apiserver::storage::{ListRequest, Storage};
use serde_json::Value;

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// Where a Service is.
pub(super) enum ServiceAddress {
    Addresses(Vec<SocketAddr>),
    /// A host that is to be looked up; the port is the one that was asked for.
    Host(String),
}

/// Where a port of a Service is; the error is upstream's.
pub(super) fn service(storage: &dyn Storage, namespace: &str, name: &str, port: u16) -> Result<ServiceAddress, String> {
    let stored = storage
        .get("services", &format!("{namespace}/{name}"))
        .ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = stored.value().get("spec").unwrap_or(&Value::Null);
    if text(spec, "type") == "ExternalName" {
        return Ok(ServiceAddress::Host(text(spec, "externalName").to_owned()));
    }
    let served = items(spec, "ports").find(|served| served.get("port").and_then(Value::as_u64) == Some(port.into()));
    let Some(served) = served else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let port_name = text(served, "name");
    let mut found = sliced(storage, namespace, name, port_name);
    if found.is_empty() {
        found = listed(storage, namespace, name, port_name);
    }
    if found.is_empty() {
        return Err(format!("no endpoints available for service {name:?}"));
    }
    Ok(ServiceAddress::Addresses(found))
}

/// The port of this name in a list of ports; a single one needs no name.
fn port_number<'a>(mut ports: impl Iterator<Item = &'a Value>, name: &str) -> Option<u16> {
    let found = ports.find(|port| text(port, "name") == name)?;
    u16::try_from(found.get("port")?.as_u64()?).ok()
}

fn sliced(storage: &dyn Storage, namespace: &str, name: &str, port_name: &str) -> Vec<SocketAddr> {
    let request = ListRequest {
        prefix: format!("{namespace}/"),
        ..ListRequest::default()
    };
    let slices = storage.list("endpointslices.discovery.k8s.io", &request);
    let mut found = Vec::new();
    for (_, slice) in slices.map(|listed| listed.items).unwrap_or_default() {
        let slice = slice.value();
        let of = slice.pointer("/metadata/labels/kubernetes.io~1service-name");
        let port = port_number(items(slice, "ports"), port_name);
        let (Some(port), true) = (port, of.and_then(Value::as_str) == Some(name)) else {
            continue;
        };
        let ready = items(slice, "endpoints")
            .filter(|endpoint| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false)));
        let addresses = ready.flat_map(|endpoint| items(endpoint, "addresses"));
        found.extend(addresses.filter_map(|address| socket(address.as_str()?, port)));
    }
    found
}

fn listed(storage: &dyn Storage, namespace: &str, name: &str, port_name: &str) -> Vec<SocketAddr> {
    let Some(endpoints) = storage.get("endpoints", &format!("{namespace}/{name}")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for subset in items(endpoints.value(), "subsets") {
        if let Some(port) = port_number(items(subset, "ports"), port_name) {
            found.extend(items(subset, "addresses").filter_map(|address| socket(text(address, "ip"), port)));
        }
    }
    found
}

fn socket(address: &str, port: u16) -> Option<SocketAddr> {
    address.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))
}
