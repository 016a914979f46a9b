//! The contribution of a pod to a Service: addresses, ports, and whether it takes requests.
//!
//! Pure. The rules are those of `k8s.io/endpointslice` (`podToEndpoint`, `getEndpointPorts`, `ShouldPodBeInEndpoints`).

use std::net::IpAddr;

use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright_objects::api::core::v1::{ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use kubewright_objects::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone,
};

use super::topology;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The two families of addresses that slices have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// `addressType` of a slice, and an entry of `ipFamilies`.
    pub(super) fn text(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of an address; none when it is no address.
    pub(super) fn of(address: &str) -> Option<Family> {
        match address.parse().ok()? {
            IpAddr::V4(_) => Some(Family::V4),
            IpAddr::V6(_) => Some(Family::V6),
        }
    }
}

/// The families that a Service wants endpoints of.
pub(super) fn families(spec: &ServiceSpec) -> Vec<Family> {
    let wanted = spec.ip_families.iter().flatten();
    let mut families: Vec<Family> = wanted
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    if families.is_empty() {
        families.push(Family::V4);
    }
    families
}

/// Whether the Service has no address of its own.
pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip
        .as_deref()
        .is_none_or(|ip| ip.is_empty() || ip == "None")
}

/// Whether a pod counts at all. A terminating pod is listed in slices, and in Endpoints only when everything is
/// published.
pub(super) fn is_listed(pod: &Pod, with_terminating: bool) -> bool {
    !pods::is_finished(pod)
        && addresses(pod).next().is_some()
        && (with_terminating || !meta::is_deleting(&pod.metadata))
}

/// The addresses of a pod.
pub(super) fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let all = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let single = status
        .and_then(|status| status.pod_ip.as_deref())
        .filter(|_| all.is_empty());
    all.iter()
        .map(|address| address.ip.as_str())
        .chain(single)
        .filter(|ip| !ip.is_empty())
}

/// The name of a pod under the Service's name, when its subdomain is that (`ShouldSetHostname`).
pub(super) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let same = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|hostname| same && !hostname.is_empty())
}

/// The node that a pod is bound to.
pub(super) fn node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    Some(node).filter(|node| !node.is_empty())
}

/// The pod as the target of an endpoint.
pub(super) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The pod as an endpoint of one family; none when it has no address of it.
pub(super) fn endpoint(pod: &Pod, service: &Service, family: Family, zone: Option<String>) -> Option<Endpoint> {
    let addresses: Vec<String> = addresses(pod)
        .filter(|ip| Family::of(ip) == Some(family))
        .map(str::to_owned)
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let (serving, terminating) = (pods::is_ready(pod), meta::is_deleting(&pod.metadata));
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: node(pod).map(str::to_owned),
        target_ref: Some(target(pod)),
        hints: hints(service, pod, zone.as_deref()),
        zone,
        ..Endpoint::default()
    })
}

/// For which zones and nodes an endpoint is meant (`trafficdist.ReconcileHints`): its own, when the Service wants its
/// traffic near.
fn hints(service: &Service, pod: &Pod, zone: Option<&str>) -> Option<EndpointHints> {
    // The annotation wins over the field; its hints follow from all endpoints together.
    if topology::is_wanted(service) {
        return None;
    }
    let distribution = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    let zones = zone.map(|name| vec![ForZone { name: name.to_owned() }]);
    let nodes = node(pod).map(|name| vec![ForNode { name: name.to_owned() }]);
    let (for_zones, for_nodes) = match distribution {
        "PreferSameZone" | "PreferClose" => (zones, None),
        "PreferSameNode" => (zones, nodes),
        _ => return None,
    };
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

/// `spec.publishNotReadyAddresses`.
pub(super) fn publishes_all(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true))
}

/// The ports of the Service on this pod. A named port that the pod does not have is left out.
pub(super) fn ports(pod: &Pod, spec: &ServiceSpec) -> Vec<EndpointPort> {
    let wanted = spec.ports.iter().flatten();
    wanted
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(number(pod, port)?),
                protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

fn protocol(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("TCP")
}

/// The number behind `targetPort` (`FindPort`): itself, or that of the container's port of this name and protocol.
fn number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None | Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let same = ports.find(|there| {
        there.name.as_ref() == Some(name) && protocol(there.protocol.as_deref()) == protocol(port.protocol.as_deref())
    });
    same.map(|port| port.container_port)
}
