//! Endpoints that a client made for a Service without a selector, as EndpointSlices (KEP-752,
//! `endpointslicemirroring`).
//!
//! Pure. One slice for each subset and family, [`MAX`] endpoints at most.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright_objects::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use kubewright_objects::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use super::pods::Family;
use super::slices::Plan;
use super::{LAST_CHANGE, MANAGED_BY, SERVICE_NAME};
use kubewright_objects::meta;

/// The value of [`MANAGED_BY`] on our slices.
pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// How many addresses of a subset are mirrored.
const MAX: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether an Endpoints object is mirrored: it does not refuse, and its Service chooses no pods.
pub(super) fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let skips = labels
        .and_then(|labels| labels.get(SKIP))
        .is_some_and(|skip| skip == "true");
    let leader = meta::annotation(&endpoints.metadata, LEADER).is_some();
    let chosen = service.and_then(|service| service.spec.as_ref());
    let by_hand = chosen.is_some_and(|spec| spec.selector.as_ref().is_none_or(BTreeMap::is_empty));
    !skips && !leader && by_hand
}

/// The writes that make the slices show the Endpoints.
pub(super) fn plan(endpoints: &Endpoints, existing: &[&EndpointSlice]) -> Plan {
    let mut plan = Plan::default();
    let mut left: Vec<&EndpointSlice> = existing.to_vec();
    for subset in endpoints.subsets.iter().flatten() {
        for family in [Family::V4, Family::V6] {
            let mut wanted = slice(endpoints, subset, family);
            if wanted.endpoints.as_ref().is_none_or(Vec::is_empty) {
                continue;
            }
            let same = |slice: &&EndpointSlice| slice.address_type == family.text();
            let exact = left.iter().position(|slice| same(slice) && slice.ports == wanted.ports);
            match exact.or_else(|| left.iter().position(same)) {
                None => plan.create.push(wanted),
                Some(index) => {
                    let present = left.remove(index);
                    let (labels, annotations) = (wanted.metadata.labels.take(), wanted.metadata.annotations.take());
                    wanted.metadata = present.metadata.clone();
                    (wanted.metadata.labels, wanted.metadata.annotations) = (labels, annotations);
                    if wanted != *present {
                        plan.update.push(wanted);
                    }
                }
            }
        }
    }
    plan.delete.extend(left.into_iter().cloned());
    plan
}

fn slice(endpoints: &Endpoints, subset: &EndpointSubset, family: Family) -> EndpointSlice {
    let of = |addresses: &Option<Vec<EndpointAddress>>, ready: bool| -> Vec<Endpoint> {
        let addresses = addresses.iter().flatten();
        let addresses = addresses.filter(|address| Family::of(&address.ip) == Some(family));
        addresses.map(|address| mirrored(address, ready)).collect()
    };
    let mut all = of(&subset.addresses, true);
    all.extend(of(&subset.not_ready_addresses, false));
    all.truncate(MAX);
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    });
    EndpointSlice {
        metadata: metadata(endpoints),
        address_type: family.text().to_owned(),
        endpoints: Some(all),
        ports: Some(ports.collect()),
    }
}

fn mirrored(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn metadata(endpoints: &Endpoints) -> ObjectMeta {
    let name = meta::name(&endpoints.metadata);
    let mut labels = meta::labels(&endpoints.metadata).clone();
    labels.insert(SERVICE_NAME.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != LAST_CHANGE && key != LAST_APPLIED);
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: endpoints.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![meta::controller_reference("v1", "Endpoints", &endpoints.metadata)]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(subsets: Value) -> Endpoints {
        let endpoints = json!({ "metadata": { "name": "ext", "labels": { "x": "1" } }, "subsets": subsets });
        serde_json::from_value(endpoints).expect("Endpoints")
    }

    #[test]
    fn what_is_mirrored() {
        let check = |labels: Value, service: Option<Value>, expected: bool| {
            let endpoints: Endpoints =
                serde_json::from_value(json!({ "metadata": { "labels": labels } })).expect("Endpoints");
            let service: Option<Service> =
                service.map(|spec| serde_json::from_value(json!({ "spec": spec })).expect("a Service"));
            assert_eq!(is_mirrored(&endpoints, service.as_ref()), expected, "{labels}");
        };
        check(json!({}), Some(json!({})), true);
        check(json!({}), Some(json!({ "selector": { "a": "b" } })), false);
        check(json!({}), None, false);
        check(json!({ SKIP: "true" }), Some(json!({})), false);
    }

    #[test]
    fn slices_follow() {
        let subset = |ip: &str, port: i32| json!({ "addresses": [{ "ip": ip }], "ports": [{ "port": port, "protocol": "TCP" }] });
        let first = plan(&endpoints(json!([subset("192.0.2.1", 80), subset("fd00::1", 80)])), &[]);
        let types: Vec<&str> = first.create.iter().map(|slice| slice.address_type.as_str()).collect();
        assert_eq!(types, ["IPv4", "IPv6"]);
        let existing: Vec<&EndpointSlice> = first.create.iter().collect();
        let second = plan(&endpoints(json!([subset("192.0.2.2", 81)])), &existing);
        assert_eq!(
            (second.create.len(), second.update.len(), second.delete.len()),
            (0, 1, 1)
        );
        assert_eq!(
            plan(&endpoints(json!([subset("192.0.2.1", 80)])), &existing[..1]),
            Plan::default()
        );
    }
}
