//! The target of `…/proxy` and the paths below it: the port of a service, a pod or a node.
//!
//! Such a path names an object as `name`, `name:port` or `scheme:name:port`. Not here: the connection to the target,
//! which this server does not make.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::model::status::Status;
use crate::model::{Minor, Resource};
use crate::server::Call;
use crate::storage::{ListRequest, StoredObject};

/// The kinds of a node's addresses in the order in which kube-apiserver tries them.
const PREFERRED: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

impl Call<'_> {
    /// Makes sure that the target of the path exists and has an address that may be connected to.
    pub(crate) fn check_proxied(&self) -> Result<(), Status> {
        let id = self.name();
        let kind = self.resource.kind.to_lowercase();
        let (name, port) = split(id).ok_or_else(|| Status::bad_request(format!("invalid {kind} request {id:?}")))?;
        match kind.as_str() {
            "service" => self.check_service(name, port),
            "pod" => {
                let pod = self.proxied(&self.resource, name)?;
                let address = pod
                    .value()
                    .pointer("/status/podIP")
                    .and_then(Value::as_str)
                    .unwrap_or("");
                match address.parse() {
                    Ok(address) => check_address(address),
                    Err(_) => Err(not_allowed()),
                }
            }
            _ => {
                let node = self.proxied(&self.resource, name)?;
                preferred_address(node.value())?.parse().map_or(Ok(()), check_address)
            }
        }
    }

    fn proxied(&self, resource: &Resource, name: &str) -> Result<Arc<StoredObject>, Status> {
        self.server
            .storage
            .get(&resource.store, &crate::model::form::key(self.namespace(), name))
            .ok_or_else(|| Status::not_found(&self.resource, name))
    }

    fn check_service(&self, name: &str, port: &str) -> Result<(), Status> {
        let by_slices = self.kinds.minor() >= Minor::V37;
        let mut port = port.to_owned();
        if let Ok(number) = port.parse::<i64>() {
            let service = self.proxied(&self.resource, name)?;
            let mut known = list(service.value(), "/spec/ports").iter();
            let is_it = |known: &&Value| known["port"] == number;
            let found = if by_slices {
                known.find(is_it)
            } else {
                known.rfind(is_it)
            };
            let found =
                found.ok_or_else(|| unavailable(format!("no service port {number} found for service {name:?}")))?;
            port = text(found, "name").to_owned();
        }
        let none = |shown: &str| Err(unavailable(format!("no endpoints available for service {shown:?}")));
        if by_slices {
            return if self.has_sliced(name, &port) {
                Ok(())
            } else {
                none(name)
            };
        }
        let endpoints = self
            .kinds
            .lookup("", "v1", "endpoints")
            .ok_or_else(Status::no_such_path)?;
        let endpoints = self.proxied(&endpoints, name)?;
        let subsets = list(endpoints.value(), "/subsets");
        let is_ready = |subset: &Value| {
            let has_port = list(subset, "/ports").iter().any(|known| text(known, "name") == port);
            has_port && !list(subset, "/addresses").is_empty()
        };
        if subsets.iter().any(is_ready) {
            return Ok(());
        }
        // With subsets it is the whole name of the path that is shown.
        none(if subsets.is_empty() { name } else { self.name() })
    }

    /// Whether a slice of a service has an endpoint for this port that is ready and a pod's (`proxy.RandomEndpoint`).
    fn has_sliced(&self, service: &str, port: &str) -> bool {
        let request = ListRequest {
            prefix: format!("{}/", self.namespace()),
            ..ListRequest::default()
        };
        let is_valid = |endpoint: &Value| {
            let address = endpoint.pointer("/addresses/0").unwrap_or(&Value::Null);
            let target = endpoint.get("targetRef").unwrap_or(&Value::Null);
            let key = crate::model::form::key(text(target, "namespace"), text(target, "name"));
            let has_it = |pod: Arc<StoredObject>| {
                list(pod.value(), "/status/podIPs")
                    .iter()
                    .any(|known| known["ip"] == *address)
            };
            endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false))
                && text(target, "namespace") == self.namespace()
                && self.server.storage.get("pods", &key).is_some_and(has_it)
        };
        let slices = self.server.storage.list("endpointslices.discovery.k8s.io", &request);
        slices.is_ok_and(|listed| {
            listed.items.iter().any(|(_, slice)| {
                let slice = slice.value();
                let of = slice.pointer("/metadata/labels/kubernetes.io~1service-name");
                of.is_some_and(|of| of == service)
                    && list(slice, "/ports").iter().any(|known| text(known, "name") == port)
                    && list(slice, "/endpoints").iter().any(is_valid)
            })
        })
    }
}

/// The address at which a node is reached.
pub(super) fn preferred_address(node: &Value) -> Result<&str, Status> {
    let addresses = list(node, "/status/addresses");
    let preferred = PREFERRED
        .iter()
        .find_map(|kind| addresses.iter().find(|address| text(address, "type") == *kind));
    let Some(preferred) = preferred else {
        let known: Vec<String> = addresses
            .iter()
            .map(|address| format!("{{{} {}}}", text(address, "type"), text(address, "address")))
            .collect();
        let why = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
        return Err(Status::untyped(why));
    };
    Ok(text(preferred, "address"))
}

/// Only addresses that lead to other machines may be connected to (Go's `IsGlobalUnicast`).
fn check_address(address: IpAddr) -> Result<(), Status> {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if is_local || address.is_loopback() || address.is_multicast() || address.is_unspecified() {
        return Err(not_allowed());
    }
    Ok(())
}

fn unavailable(why: String) -> Status {
    Status::failure(503, "ServiceUnavailable", why)
}

fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

/// Name and port out of `name`, `name:port` or `scheme:name:port` (`SplitSchemeNamePort`).
fn split(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (name, port) = match parts.as_slice() {
        [name] => (*name, ""),
        [name, port] => (*name, *port),
        ["" | "http" | "https", name, port] => (*name, *port),
        _ => return None,
    };
    (!name.is_empty()).then_some((name, port))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_a_scheme_and_a_port() {
        let check = |id: &str, want: Option<(&str, &str)>| assert_eq!(split(id), want, "{id}");
        check("s", Some(("s", "")));
        check("s:", Some(("s", "")));
        check("s:80", Some(("s", "80")));
        check("https:s:http", Some(("s", "http")));
        check(":s:", Some(("s", "")));
        check("ftp:s:80", None);
        check("http::80", None);
        check(":80", None);
        check("a:b:c:d", None);
    }

    #[test]
    fn only_other_machines_are_reached() {
        let check = |address: &str, want: bool| {
            let address = address.parse().expect("an address");
            assert_eq!(check_address(address).is_ok(), want, "{address}");
        };
        check("10.1.1.1", true);
        check("fd00::1", true);
        for local in [
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "255.255.255.255",
        ] {
            check(local, false);
        }
    }
}
