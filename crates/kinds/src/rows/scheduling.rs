//! Where pods run and with which devices: `scheduling.k8s.io`, `coordination.k8s.io`, `node.k8s.io`, `resource.k8s.io`.

use super::{CLUSTER, KIND, Kind};
use crate::cells;
use crate::strategies::{core, devices, policy};
use kubewright_model::{Minor, Subresource};

const RESOURCE: Kind = Kind {
    group: "resource.k8s.io",
    ..KIND
};

pub(super) const SCHEDULING: &[Kind] = &[Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    short_names: &["pc"],
    cells: cells::PRIORITY_CLASS,
    strategy: policy::PRIORITY_CLASS,
    ..CLUSTER
}];

pub(super) const COORDINATION: &[Kind] = &[Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    cells: cells::LEASE,
    strategy: core::LEASE,
    ..KIND
}];

pub(super) const NODE: &[Kind] = &[Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    cells: cells::RUNTIME_CLASS,
    strategy: policy::RUNTIME_CLASS,
    ..CLUSTER
}];

pub(super) const DEVICES: &[Kind] = &[
    Kind {
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        strategy: devices::DEVICE_CLASS,
        ..RESOURCE
    },
    Kind {
        since: Minor::V37,
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        namespaced: false,
        subresources: &[Subresource::Status],
        cells: cells::TAINT_RULE,
        strategy: devices::taint_rules::TAINT_RULE,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceClaim",
        plural: "resourceclaims",
        subresources: &[Subresource::Status],
        cells: cells::RESOURCE_CLAIM,
        strategy: devices::CLAIM,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        strategy: devices::CLAIM_TEMPLATE,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        fields: &[
            ("spec.nodeName", &["/spec/nodeName"]),
            ("spec.driver", &["/spec/driver"]),
        ],
        cells: cells::RESOURCE_SLICE,
        strategy: devices::slices::DEVICES,
        ..RESOURCE
    },
];
