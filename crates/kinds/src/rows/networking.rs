//! How pods are reached: `networking.k8s.io`, `discovery.k8s.io`.

use super::{KIND, Kind};
use crate::cells;
use crate::strategies::{networking, slices};
use kubewright_model::Subresource;

const NETWORKING: Kind = Kind {
    group: "networking.k8s.io",
    ..KIND
};

pub(super) const NETWORKING_KINDS: &[Kind] = &[
    Kind {
        kind: "IngressClass",
        plural: "ingressclasses",
        namespaced: false,
        cells: cells::INGRESS_CLASS,
        strategy: networking::INGRESS_CLASS,
        ..NETWORKING
    },
    Kind {
        kind: "Ingress",
        plural: "ingresses",
        short_names: &["ing"],
        subresources: &[Subresource::Status],
        cells: cells::INGRESS,
        strategy: networking::INGRESS,
        etcd_name: Some("ingress"),
        ..NETWORKING
    },
    Kind {
        kind: "IPAddress",
        plural: "ipaddresses",
        short_names: &["ip"],
        namespaced: false,
        cells: cells::IP_ADDRESS,
        strategy: networking::IP_ADDRESS,
        ..NETWORKING
    },
    Kind {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short_names: &["netpol"],
        cells: cells::NETWORK_POLICY,
        strategy: networking::NETWORK_POLICY,
        ..NETWORKING
    },
    Kind {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        namespaced: false,
        subresources: &[Subresource::Status],
        cells: cells::SERVICE_CIDR,
        strategy: networking::SERVICE_CIDR,
        ..NETWORKING
    },
];

pub(super) const DISCOVERY: &[Kind] = &[Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    cells: cells::ENDPOINT_SLICE,
    strategy: slices::ENDPOINT_SLICE,
    ..KIND
}];
