//! The Endpoints object of a Service, which slices replace and which many clients still read.
//!
//! Pure. Ports that the same pods have share a subset; more than [`MAX`] addresses are not written
//! (`truncateEndpoints`).

use std::collections::BTreeMap;

use kubewright_objects::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Pod, Service};

use super::pods::{self, Family};
use super::{HEADLESS, LEGACY_MANAGED_BY};
use kubewright_objects::meta;
use kubewright_objects::pods as any;

/// How many addresses an Endpoints object holds.
const MAX: usize = 1000;
/// The value of [`LEGACY_MANAGED_BY`].
const MANAGER: &str = "endpoint-controller";

/// The subsets, and whether addresses were left out for their number.
pub(super) fn subsets(service: &Service, pods: &[&Pod]) -> (Vec<EndpointSubset>, bool) {
    let Some(spec) = service.spec.as_ref() else {
        return (vec![], false);
    };
    let family = pods::families(spec).first().copied().unwrap_or(Family::V4);
    let published = pods::publishes_all(service);
    let (mut all, mut count): (Vec<(EndpointAddress, bool)>, usize) = (vec![], 0);
    let mut by_port: Vec<(Option<EndpointPort>, Vec<usize>)> = vec![];
    for pod in pods.iter().filter(|pod| pods::is_listed(pod, published)) {
        let Some(address) = address(pod, service, family) else {
            continue;
        };
        let ports = ports(pod, service);
        // Without ports, only headless Services have endpoints.
        if ports.is_empty() && !(pods::is_headless(spec) && spec.ports.iter().flatten().next().is_none()) {
            continue;
        }
        count = count.saturating_add(1);
        if count > MAX {
            continue;
        }
        let ports = match ports.is_empty() {
            true => vec![None],
            false => ports.into_iter().map(Some).collect(),
        };
        for port in ports {
            match by_port.iter_mut().find(|(known, _)| *known == port) {
                Some((_, addresses)) => addresses.push(all.len()),
                None => by_port.push((port, vec![all.len()])),
            }
        }
        all.push((address, published || any::is_ready(pod)));
    }
    (packed(&all, by_port), count > MAX)
}

/// Ports with the same addresses share a subset (`RepackSubsets`).
fn packed(all: &[(EndpointAddress, bool)], by_port: Vec<(Option<EndpointPort>, Vec<usize>)>) -> Vec<EndpointSubset> {
    let mut sets: Vec<(Vec<EndpointPort>, Vec<usize>)> = vec![];
    for (port, addresses) in by_port {
        match sets.iter_mut().find(|(_, known)| *known == addresses) {
            Some((ports, _)) => ports.extend(port),
            None => sets.push((port.into_iter().collect(), addresses)),
        }
    }
    let subset = |(ports, addresses): (Vec<EndpointPort>, Vec<usize>)| {
        let of = |wanted: bool| {
            let of = addresses.iter().filter_map(|at| all.get(*at));
            let of: Vec<EndpointAddress> = of
                .filter(|(_, ready)| *ready == wanted)
                .map(|(address, _)| address.clone())
                .collect();
            Some(of).filter(|of| !of.is_empty())
        };
        EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        }
    };
    sets.into_iter().map(subset).collect()
}

fn address(pod: &Pod, service: &Service, family: Family) -> Option<EndpointAddress> {
    let ip = pods::addresses(pod).find(|ip| Family::of(ip) == Some(family))?;
    Some(EndpointAddress {
        ip: ip.to_owned(),
        hostname: pods::hostname(pod, service),
        node_name: Some(pods::node(pod)?.to_owned()),
        target_ref: Some(pods::target(pod)),
    })
}

fn ports(pod: &Pod, service: &Service) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| pods::ports(pod, spec));
    ports
        .map(|port| EndpointPort {
            name: port.name.filter(|name| !name.is_empty()),
            port: port.port.unwrap_or_default(),
            protocol: port.protocol,
            app_protocol: port.app_protocol,
        })
        .collect()
}

/// The labels of the Service, and our own.
pub(super) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = meta::labels(&service.metadata).clone();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(pods::is_headless) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(LEGACY_MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, pods: &[Value], expected: Value) {
        let service = json!({ "metadata": { "name": "web" }, "spec": spec });
        let service: Service = serde_json::from_value(service).expect("a Service");
        let pods: Vec<Pod> = pods
            .iter()
            .map(|pod| serde_json::from_value(pod.clone()).expect("a pod"))
            .collect();
        let (subsets, truncated) = subsets(&service, &pods.iter().collect::<Vec<_>>());
        assert!(!truncated);
        let mut found = serde_json::to_value(subsets).expect("JSON");
        for subset in found.as_array_mut().expect("a list") {
            for list in ["addresses", "notReadyAddresses"] {
                if let Some(list) = subset.get_mut(list).and_then(Value::as_array_mut) {
                    list.iter_mut().for_each(|address| *address = address["ip"].clone());
                }
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn subsets_of_a_service() {
        let pod = |ip: &str, ready: &str, going: bool| {
            json!({
                "metadata": { "name": "p", "deletionTimestamp": going.then_some("2026-01-01T00:00:00Z") },
                "spec": { "nodeName": "n", "containers": [] },
                "status": { "phase": "Running", "podIP": ip, "conditions": [{ "type": "Ready", "status": ready }] },
            })
        };
        let pods = [
            pod("10.1.0.1", "True", false),
            pod("10.1.0.2", "False", false),
            pod("10.1.0.3", "True", true),
        ];
        let port = json!([{ "name": "p", "port": 80, "protocol": "TCP" }]);
        let spec =
            |published: bool| json!({ "ports": [{ "name": "p", "port": 80 }], "publishNotReadyAddresses": published });
        let (a, b, c) = ("10.1.0.1", "10.1.0.2", "10.1.0.3");
        check(
            spec(false),
            &pods,
            json!([{ "addresses": [a], "notReadyAddresses": [b], "ports": port }]),
        );
        check(spec(true), &pods, json!([{ "addresses": [a, b, c], "ports": port }]));
        check(
            json!({ "clusterIP": "None" }),
            &pods[..1],
            json!([{ "addresses": [a] }]),
        );
        check(json!({ "clusterIP": "10.0.0.1" }), &pods[..1], json!([]));
        let named = |ip: &str, number: u16| {
            let mut pod = pod(ip, "True", false);
            pod["spec"]["containers"] =
                json!([{ "name": "c", "ports": [{ "name": "http", "containerPort": number }] }]);
            pod
        };
        let two = json!({ "ports": [
            { "name": "w", "port": 80, "targetPort": "http" }, { "name": "u", "port": 53, "protocol": "UDP" },
        ] });
        let of = |number: u16| json!([{ "name": "w", "port": number, "protocol": "TCP" }]);
        check(
            two,
            &[named(a, 80), named(b, 81), named(c, 80)],
            json!([
                { "addresses": [a, c], "ports": of(80) },
                { "addresses": [a, b, c], "ports": [{ "name": "u", "port": 53, "protocol": "UDP" }] },
                { "addresses": [b], "ports": of(81) },
            ]),
        );
        check(spec(false), &[], json!([]));
    }
}
